"""The page: complete, escaped, the same for the same input, in order, with enough contrast."""

import math
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from trace.gate.policy import AnchorVerdict, Verdict
from trace.report.page import to_html
from trace.report.text import column_kinds
from trace.report.verdict import to_text
from trace.report.words import comparison, core_bars, full_bars, readings, unbroken
from trace.stats.conformal import PastUpdate

from .diagnostics import bare_cases, bare_report, full_cases, full_report, past, verdict

VOID = {"meta", "link", "img"}
STYLE = files("trace.report").joinpath("page.css").read_text()
LIGHT, DARK = (
    dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root {([^}]*--[^}]*)}", STYLE)
)


class Page(HTMLParser):
    """Text, tags and links; fails where tags do not match."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.links, self.words = [], [], [], []
        self.feed(page)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href")]
        assert not [name for name, _ in attributes if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return "".join(self.words)


@pytest.fixture(scope="module")
def full():
    return Page(full_report())


@pytest.fixture(scope="module")
def bare():
    return Page(bare_report())


@pytest.mark.parametrize("page", [full_report, bare_report])
def test_one_file_without_scripts_or_links(page):
    parsed = Page(page())
    assert not {"script", "iframe", "object", "video", "audio"} & set(parsed.tags)
    assert all(link.startswith("data:") for link in parsed.links)
    assert "@import" not in STYLE
    assert "url(" not in STYLE
    page().encode("utf-8")


def test_names_are_never_markup(full):
    assert "<script" not in full_report()
    assert "alert" in full.text
    assert "update 16 <b>" in full.text
    assert "Fading <ink>" in full.text
    assert "&amp;amp;" not in full_report()
    assert "\x00" not in full_report()


def test_the_full_report_says_everything(full):
    case = full_cases()[0]
    d = case.diagnostic
    values = [*d.core_terms().values(), *d.remainders("hybrid").values(), d.bound_core("mmd"), d.bound_full()]
    values += [d.intervals()["anchor_worst_label"].upper, d.evidence.shift.mmd.bandwidth, case.shifted[-1].value]
    for value in values:
        assert f"{value:.4g}" in full.text
    for words in (
        "Verdict: \u2715 reject",
        "Anchor daylight decides. All of it lies above.",
        "The full bound (ot, hybrid) fails with probability at most 0.1",
        "17 past updates with a known outcome. 1 more have none",
        "5 scored at or below the threshold, of which 0 did harm",
        "12 scored above the threshold, of which 12 did harm",
        "distil from the old model",
        "batch_size",
        "2026-01-31",
        "torch",
    ):
        assert words in full.text
    assert full.tags.count("img") == sum(len(c.shifted) + len(c.disagreeing) for c in full_cases())


def test_worst_anchor_first(full):
    assert (
        full.text.index("daylight: reject") < full.text.index(".png: inconclusive") < full.text.index("space_: accept")
    )
    text = full.text
    assert text.index("Anchor: daylight") < text.index("Anchor: <script>")
    shown = to_html(full_cases()[::-1], verdict=verdict(), past=past(), title="t", about={})
    assert shown.index("Anchor: daylight") < shown.index("Anchor: &lt;script&gt;")


def test_the_bare_report_says_what_is_missing_and_why(bare):
    assert "No gate was asked" in bare.text
    assert "Verdict" not in bare.text
    assert "Against past updates" not in bare.text
    assert "needs a validation split" in bare.text
    assert "no gradient" in bare.text
    assert "so there is no bound" in bare.text
    assert "There is no full bound in the ot or hybrid form here" in bare.text
    assert not re.search(r"\bnan\b", bare.text, re.IGNORECASE)
    assert "n/a" in bare.text


def test_the_same_input_gives_the_same_bytes():
    full_report.cache_clear()
    again = full_report()
    full_cases.cache_clear()
    full_report.cache_clear()
    assert full_report() == again


def test_verdict_alone():
    page = Page(to_html([], verdict=verdict(), past=past(), title="t", about={}))
    assert "Against past updates" in page.text
    assert "Anchor: " not in page.text


def test_scores_without_numbers_are_shown():
    v = AnchorVerdict("a", "inconclusive", "trace_w", math.nan, -math.inf, math.inf, 0.3, None, "No score.")
    page = Page(to_html([], verdict=Verdict("inconclusive", (v,), "a"), title="t", about={}))
    assert "trace w n/a, interval [-inf, inf], limit 0.3." in page.text


def test_past_updates_without_a_verdict():
    page = Page(to_html(bare_cases(), past=[PastUpdate("one", 0.2, 0.1)], title="t", about={}))
    assert "1 past updates with a known outcome." in page.text
    assert "threshold" not in page.text


def test_what_counts_as_harm_is_the_callers_to_say():
    updates = [PastUpdate(str(rise), 0.1, rise) for rise in (-0.1, 0.01, 0.03)]
    shown = [to_html([], verdict=verdict(), past=updates, harm_above=tau, title="t", about={}) for tau in (0.0, 0.02)]
    assert [page.count('id="past-harmful-') for page in shown] == [2, 1]
    assert "3 scored at or below the threshold, of which 1 did harm." in Page(shown[1]).text
    assert "above 0.02: harm" in shown[1]


def test_past_updates_stand_beside_the_rule_that_they_calibrate():
    """Labels that show harm decide by another score, whose limit says nothing about past scores."""
    required = AnchorVerdict("a", "accept", "anchor_disagreement", 0.02, 0.01, 0.04, 0.1, None, "It lies below.")
    guard = AnchorVerdict("a", "reject", "recall_drop", 0.5, 0.4, 0.6, 0.0, None, "It lies above.", role="guard")
    told = Verdict("reject", (guard,), "a", rules=(guard, required))
    updates = [PastUpdate("small", 0.05, 0.0), PastUpdate("large", 0.2, 0.1)]
    shown = Page(to_html([], verdict=told, past=updates, title="t", about={})).text
    assert "1 scored at or below the threshold, of which 0 did harm. 1 scored above the threshold" in shown


@pytest.mark.parametrize(("copies", "message"), [(0, "nothing to report"), (2, "same anchor")])
def test_refuses(copies, message):
    with pytest.raises(ValueError, match=message):
        to_html(bare_cases() * copies, title="t", about={})


def test_waterfalls_add_up():
    d = full_cases()[0].diagnostic
    *terms, core = core_bars(d, "ot")
    first, *rest, full = full_bars(d, "ot")
    assert sum(bar.value for bar in terms) == pytest.approx(core.value) == pytest.approx(d.bound_core())
    assert first.value == core.value
    assert core.value + sum(bar.value for bar in rest) == pytest.approx(full.value) == pytest.approx(d.bound_full())


def test_readings_are_strongest_first_with_vacuous_ones_last_and_leave_out_what_is_missing():
    d = full_cases()[0].diagnostic
    found = readings(d, "ot")
    order = [(not r.vacuous, r.value) for r in found]
    assert order == sorted(order, reverse=True)
    assert [r.vacuous for r in found] == [r.value >= d.evidence.loss_range for r in found]
    assert len(found) == 4
    assert [r.term.name for r in readings(bare_cases()[0].diagnostic, "ot")] == ["model change"]


def test_a_bound_that_does_not_hold_is_called_so():
    d = full_cases()[0].diagnostic
    assert "within the core bound, which is" in comparison(d, "ot")
    worse = d.evidence._replace(risk_change=d.evidence.risk_change._replace(value=1e6))
    assert "NOT within the core bound." in comparison(type(d)(**{**vars(d), "evidence": worse}), "ot")
    assert comparison(bare_cases()[0].diagnostic, "ot") == ""


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast_is_at_least_aa(colours):
    backgrounds = ["paper", "panel", "accept-panel", "reject-panel", "inconclusive-panel"]
    for ground in backgrounds:
        for ink in ("ink", "soft"):
            assert contrast(colours[ink], colours[ground]) >= 4.5
    for decision in ("accept", "reject", "inconclusive"):
        assert contrast(colours[decision], colours[f"{decision}-panel"]) >= 4.5
        assert contrast(colours[decision], colours["paper"]) >= 4.5
    for mark in ("term", "total", "source", "target"):
        assert contrast(colours[mark], colours["paper"]) >= 3


def test_tables():
    page = to_html(bare_cases(), title="t", about={'<x> "q"': "[1, 2]", "y": ""})
    assert '<th scope="row">&lt;x&gt; &#34;q&#34;</th><td>[1,\u00a02]</td>' in page
    assert '<div class="scroll" tabindex="0" role="region" aria-label="Their sums">' in page
    assert re.search(r'<td class="number">[\d.]+</td>', page)
    assert unbroken("a [0.1, n/a] b") == "a [0.1,\u00a0n/a] b"


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (["1.5", "n/a", "", "-inf", "+3e-05", "12%"], "number"),
        (["1.5", "x"], None),
        (["[1, 2]"], None),
        (["x" * 41, "1"], "long"),
        ([], None),
    ],
)
def test_columns_are_aligned_by_what_they_hold(column, kind):
    assert column_kinds([["header"], *([cell] for cell in column)]) == [kind]


def test_no_id_occurs_twice():
    ids = re.findall(r'\bid="([^"]*)"', full_report())
    assert len(set(ids)) == len(ids) > 100


def test_charts_use_colours_that_the_style_sheet_has():
    assert set(LIGHT) == set(DARK)
    assert set(re.findall(r"var\(--([a-z-]+)\)", full_report())) <= {*LIGHT, "font"}


def test_the_verdict_s_numbers_are_those_of_its_sentence():
    v = AnchorVerdict("a", "inconclusive", "anchor_disagreement", 0.09, 0.05, 0.14, 0.1, 900, "It holds 10%.")
    page = Page(to_html([], verdict=Verdict("inconclusive", (v,), "a"), title="t", about={}))
    assert "anchor disagreement 9%, interval [5%, 14%], limit 10%." in page.text
    assert "samples would decide" not in page.text


def test_a_verdict_without_an_interval():
    v = AnchorVerdict(
        "a", "inconclusive", "anchor_disagreement", 0.0, math.nan, math.nan, 0.1, None, "On training rows."
    )
    verdict = Verdict("inconclusive", (v,), "a")
    page = Page(to_html([], verdict=verdict, title="t", about={}))
    assert "anchor disagreement 0%, interval [n/a, n/a], limit 10%." in page.text
    assert "[n/a, n/a]" in to_text(verdict)


HEADINGS = (
    "Why: what the bound is made of",
    "What to do about it, strongest first",
    "All that is known about the change of the risk",
    "Predictions that change",
    "Classes and old to new predictions",
    "On the anchor's own inputs",
    "Where the inputs lie",
    "Most-shifted examples",
    "Against past updates",
    "Estimates and guarantee",
    "Settings and versions",
)


def test_the_answer_comes_first_then_why_then_evidence_and_settings_last(full):
    found = re.findall(r"<h[23][^>]*>([^<]*)", full_report().replace("&#39;", "'"))
    assert found[0].startswith("Verdict: ")
    first = [found.index(heading) for heading in HEADINGS]
    assert first[:-1] == sorted(first[:-1])
    assert found[-1] == HEADINGS[-1]
    answer = full_report().split("</section>")[0]
    assert "newly wrong" in answer
    assert "penalty" not in answer


def test_what_says_nothing_is_grey_and_explained(full):
    d = full_cases()[0].diagnostic
    assert d.emp_shift_ot > d.evidence.loss_range > d.model_change
    grey = re.findall(r'<tr class="vacuous"><th scope="row">([^<]*)', full_report())
    assert {"covariate-shift penalty", "core", "full"} <= set(grey)
    assert "model change" not in grey
    assert "Grey is what says nothing: it is" in full.text
    assert "It says nothing about this update, and no advice follows." in full.text
    assert "Train the update on data closer to the anchor" not in full.text
    said = full.text.split("More than the loss allows, and so says nothing: ")[1]
    assert said.startswith("the two-term bound (") or f"the paper's bound, ot ({d.bound_core():.4g})" in said


def test_flips_classes_and_pairs_are_those_of_the_held_out_rows(full):
    case = full_cases()[0]
    labelled = case.diagnostic.evidence.labelled
    assert f"{labelled.num_samples} labelled rows: {labelled.negative_flips} newly wrong" in full.text
    assert [e.outcome for e in case.disagreeing] == ["newly wrong"] * 8
    assert sum(each.rows for each in case.classes) == labelled.num_samples == 700
    assert all(f"{each.before:.0%}" in full.text for each in case.classes)
    assert case.transitions[0] == ["old model", "new model", "rows"]


def test_drift_by_column_where_columns_have_names(bare):
    case = bare_cases()[0]
    assert {each.name for each in case.drift} == set("abcd")
    assert "Drift by column" in bare.text
    assert f"{case.drift[0].shift:+.2f}" in bare.text
    assert "Drift by column" not in Page(full_report()).text
