"""The results page in a real Chromium: silent, offline; links resolve, filters filter, columns sort, figures zoom."""

import csv
import json
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from urllib.parse import unquote

import pytest

from experiments.__main__ import main
from experiments.claims.rule import VERDICTS
from experiments.commands import tables
from experiments.commands.site import read_table
from experiments.engine.records import RECORDS, ROOT
from experiments.figures.style import figure
from experiments.site.pages import GROUPS, MARKS, SAID, first_sentence
from experiments.tables.table import table

OWN = ["index", "ledger", "tables", "figures", "replications", "benchmark", "tables/coverage"]
ROWS = json.loads((ROOT / "results" / "claims.json").read_text())
SHOWN = "[...document.querySelectorAll('.part .claim')].filter(c => c.offsetParent).map(c => c.id)"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """From the committed records, with the tables, figures and verdicts that are committed beside them."""
    folder = tmp_path_factory.mktemp("site") / "site"
    main(["site", "--made", str(ROOT / "results"), "--output", str(folder)])
    return folder


class Links(HTMLParser):
    """What a page points at, and the places in it that others may point at."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.places = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.targets += [found[key] for key in ("href", "src") if found.get(key)]
        self.places |= {found[key] for key in ("id", "name") if found.get(key)}


def go(browser, site, name, width=1280, dark=False):
    """From an empty page, so that a new fragment loads the page anew."""
    browser.open("about:blank")
    page, _, place = name.partition("#")
    browser.open((site / f"{page}.html").as_uri() + (f"#{place}" if place else ""), width, dark)


def events(browser, name):
    return [e["params"] for e in browser.events if e["method"] == name]


def test_all_links_resolve(site):
    """Places within a page of the manual are pdoc's, which links private names that it does not show."""
    pages = {path: Links(path.read_text("utf-8")) for path in site.rglob("*.html")}
    checked = 0
    for path, links in pages.items():
        for target in links.targets:
            if re.match(r"(https?|data|mailto):", target):
                assert path.is_relative_to(site / "manual") or target.startswith("data:"), f"{path}: {target}"
                continue
            name, _, place = target.partition("#")
            aim = (path.parent / unquote(name)).resolve() if name else path
            assert aim.exists(), f"{path}: {target}"
            if place and "=" not in place and not path.is_relative_to(site / "manual"):
                assert unquote(place) in pages[aim].places, f"{path}: {target}"
            checked += 1
    assert checked > 2000


def stored_tables():
    """Labels of the tables whose records are committed."""
    return [label for label, entry in table.all().items() if (RECORDS / f"{entry.experiment}.jsonl").exists()]


def test_everything_registered_is_there(site):
    for label in stored_tables():
        assert all((site / "tables" / f"{label}.{suffix}").exists() for suffix in ("html", "csv", "tex"))
    figures = Links((site / "figures.html").read_text())
    assert figures.places >= set(figure.all())
    assert {f"figures/{name}.pdf" for name in figure.all()} <= set(figures.targets)
    across = {label for label, entry in table.all().items() if entry.across}
    replications = (site / "replications.html").read_text()
    assert across
    assert all(f"tables/{label}.csv" in replications for label in across)
    ledger = Links((site / "ledger.html").read_text())
    assert ledger.places >= {row["name"] for row in ROWS}


def test_a_table_is_read_as_it_was_written(site):
    for label in stored_tables():
        read = read_table(site / "tables" / label)
        with open(tables.TABLES / f"{label}.csv", encoding="utf-8", newline="") as file:
            assert [read.header, *read.rows] == list(csv.reader(file))
        assert {len(row) for row in read.rows} == {len(read.header)}
        assert len(first_sentence(read.caption)) > 15


def test_every_verdict_has_a_shape_a_meaning_and_a_place():
    assert set(MARKS) == set(SAID) == set(VERDICTS)
    assert len(set(MARKS.values())) == len(VERDICTS)
    assert sorted(verdict for own in GROUPS.values() for verdict in own) == sorted(VERDICTS)


def test_the_first_page_counts_as_the_ledger_does(browser, site):
    go(browser, site, "index")
    said = browser.evaluate("[...document.querySelectorAll('.bar a')].map(a => [decodeURIComponent(a.hash), a.title])")
    counts = Counter((row["whose"], row["verdict"]) for row in ROWS)
    assert {tuple(each) for each in said} == {
        (f"#whose={whose}&verdict={verdict}", f"{count} {verdict}") for (whose, verdict), count in counts.items()
    }


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("page", OWN)
def test_silent_offline_and_within_the_screen(browser, site, page, width, dark):
    go(browser, site, page, width, dark)
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert browser.evaluate("innerWidth") == width
    boxes = "[...document.querySelectorAll('.bar a, button')].filter(e => e.clientWidth)"
    assert browser.evaluate(f"{boxes}.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)") == []
    for kind in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
        assert events(browser, kind) == []
    requests = {e["request"]["url"] for e in events(browser, "Network.requestWillBeSent")}
    assert all(request.startswith((site.as_uri(), "data:")) for request in requests)
    paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) < 150) == dark


@pytest.mark.parametrize("page", OWN)
def test_headings_are_in_order_and_pictures_have_names(browser, site, page):
    go(browser, site, page)
    levels = browser.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert browser.evaluate("[...document.querySelectorAll('main img')].every(i => i.alt.length > 20)")


def test_filters_filter(browser, site):
    go(browser, site, "ledger")
    assert set(browser.evaluate(SHOWN)) == {row["name"] for row in ROWS}
    browser.evaluate(
        "form = document.forms[0]; form.elements.whose.value = 'other data';"
        "form.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    assert set(browser.evaluate(SHOWN)) == {row["name"] for row in ROWS if row["whose"] == "other data"}
    browser.evaluate("form.elements.search.value = 'GATE auroc'; form.dispatchEvent(new Event('input'))")
    found = set(browser.evaluate(SHOWN))
    assert "gate_areas_at_13_on_other_data" in found
    assert "w1min_risk_improves_on_other_data" not in found
    assert browser.evaluate("document.querySelector('output').value") == f"{len(found)} of {len(ROWS)} claims"
    parts = "[...document.querySelectorAll('.part')].filter(p => p.offsetParent)"
    assert browser.evaluate(f"{parts}.every(p => p.querySelector('.claim:not([hidden])'))")
    assert "search=GATE%20auroc" in browser.evaluate("location.hash")


def test_a_link_of_the_first_page_opens_the_filtered_ledger(browser, site):
    go(browser, site, "ledger#whose=paper&verdict=contradicts%20itself")
    wanted = {r["name"] for r in ROWS if (r["whose"], r["verdict"]) == ("paper", "contradicts itself")}
    assert set(browser.evaluate(SHOWN)) == wanted
    go(browser, site, "ledger#section=6.4%20Deployment%20gate")
    assert set(browser.evaluate(SHOWN)) == {r["name"] for r in ROWS if r["label"] == "tab:gate-tau-main"}


def test_a_link_to_a_claim_opens_it(browser, site):
    go(browser, site, "ledger#bound_is_valid")
    assert browser.evaluate("document.querySelector('#bound_is_valid details').open")
    said = browser.evaluate("document.querySelector('#bound_is_valid').innerText")
    assert "experiments/claims/rules/" in said
    assert "python -m experiments run synthetic --launcher local" in said
    assert len(browser.evaluate(SHOWN)) == len(ROWS)


def test_columns_sort_by_number_and_back(browser, site):
    """With the keyboard: a focused button and Enter."""
    go(browser, site, "tables/gate-tau-main")
    column = "[...document.querySelectorAll('tbody tr')].map(r => r.cells[2].textContent)"
    before = browser.evaluate(column)
    browser.evaluate("document.querySelectorAll('th button')[2].focus()")
    for key in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=key, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    rising = browser.evaluate(column)
    assert sorted(rising) == sorted(before)
    numbers = [float(cell.split()[0]) for cell in rising if cell != "not printed"]
    assert numbers == sorted(numbers)
    assert rising[-2:] == ["not printed"] * 2
    assert browser.evaluate("document.querySelectorAll('th')[2].getAttribute('aria-sort')") == "ascending"
    browser.evaluate("document.querySelectorAll('th button')[2].click()")
    falling = [float(cell.split()[0]) for cell in browser.evaluate(column) if cell != "not printed"]
    assert falling == numbers[::-1]
    browser.evaluate("document.querySelectorAll('th button')[1].click()")
    names = browser.evaluate("[...document.querySelectorAll('tbody tr')].map(r => r.cells[1].textContent)")
    assert names[-1] == "TRACE-W"


def test_a_figure_is_enlarged(browser, site):
    go(browser, site, "figures")
    browser.evaluate("document.querySelector('#slopes a.zoom').click()")
    assert browser.evaluate("document.querySelector('dialog').open")
    assert browser.evaluate("document.querySelector('dialog img').src").endswith("figures/slopes.png")
    browser.evaluate("document.querySelector('dialog .size').click()")
    assert browser.evaluate("document.querySelector('dialog img').width > 300")
    for key in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=key, key="Escape", code="Escape", windowsVirtualKeyCode=27)
    assert not browser.evaluate("document.querySelector('dialog').open")


def test_without_script_all_claims_are_there(browser, site):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    go(browser, site, "ledger")
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert len(browser.evaluate(SHOWN)) == len(ROWS)
    assert browser.evaluate("document.getElementById('filters').offsetParent === null")


@pytest.mark.parametrize("page", ["index", "tables/gate-tau-main", "benchmark"])
def test_prints_light_and_within_the_paper(browser, site, page):
    go(browser, site, page, 680, dark=True)
    scheme = {"name": "prefers-color-scheme", "value": "dark"}
    browser.call("Emulation.setEmulatedMedia", media="print", features=[scheme])
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    browser.call("Emulation.setEmulatedMedia", media="")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", browser.pdf())) <= 12


def test_what_is_not_made_is_named(tmp_path):
    with pytest.raises(SystemExit, match=r"tables does not exist: leave --made out"):
        main(["site", "--made", str(tmp_path), "--output", str(tmp_path / "site")])


def test_of_one_experiment_alone_the_rest_is_not_run(tmp_path):
    """From records, nothing made before: one small file of them."""
    for name in ("benchmark.jsonl", "benchmark.manifest.json"):
        shutil.copy(RECORDS / name, tmp_path)
    main(["site", "--records", str(tmp_path), "--output", str(tmp_path / "site")])
    rows = json.loads((tmp_path / "site" / "claims.json").read_text())
    assert {row["verdict"] for row in rows if "no records of" in row["why"]} == {"not run here"}
    assert (tmp_path / "site" / "tables" / "growth.html").exists()
    assert not (tmp_path / "site" / "tables" / "glance.html").exists()
    for target in Links((tmp_path / "site" / "ledger.html").read_text()).targets:
        assert target.startswith(("#", "data:")) or (tmp_path / "site" / target.partition("#")[0]).exists(), target
