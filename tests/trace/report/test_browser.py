"""The report in a real Chromium: silent, offline, readable on a phone and on paper, with names for its pictures."""

import re
from itertools import pairwise

import pytest

from ...browser import need_chromium
from .diagnostics import bare_report, full_report

A4_TEXT = 680
"""Pixels between the margins of an A4 page."""


@pytest.fixture(scope="module", params=[full_report, bare_report], ids=["full", "bare"])
def url(request, tmp_path_factory):
    page = tmp_path_factory.mktemp("report") / "report.html"
    page.write_text(request.param(), encoding="utf-8")
    return page.as_uri()


def events(browser, name):
    return [e["params"] for e in browser.events if e["method"] == name]


def overflow(browser):
    """Elements outside boxes that scroll by themselves which stick out of the page."""
    return browser.evaluate(
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll table, svg') && "
        "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + '.' + e.className)"
    )


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_silent_offline_and_within_the_screen(browser, url, width, dark):
    browser.open(url, width, dark)
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert browser.evaluate("innerWidth") == width
    assert overflow(browser) == []
    for kind in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
        assert events(browser, kind) == []
    requests = {e["request"]["url"] for e in events(browser, "Network.requestWillBeSent")}
    assert {r for r in requests if not r.startswith("data:")} == {url}
    paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) < 150) == dark


def test_all_images_are_drawn(browser, url):
    browser.open(url)
    assert browser.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")


def test_headings_are_in_order_and_pictures_have_names(browser, url):
    browser.open(url)
    levels = browser.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    pictures = [n for n in nodes if n.get("role", {}).get("value") in ("image", "img") and not n.get("ignored")]
    assert len(pictures) >= browser.evaluate("document.querySelectorAll('svg').length") > 2
    assert all(n["name"]["value"].strip() for n in pictures)


def test_wide_tables_are_reached_with_the_keyboard(browser, url):
    browser.open(url, 390)
    boxes = browser.evaluate(
        "[...document.querySelectorAll('.scroll')].map(b => [b.tabIndex, b.getAttribute('role'), "
        "(b.getAttribute('aria-label') || '').trim().length > 0, b.querySelectorAll('th[scope]').length > 0])"
    )
    assert boxes
    assert all(box == [0, "region", True, True] for box in boxes)


def test_prints_on_a_sane_number_of_pages(browser, url):
    browser.open(url, dark=True)
    pdf = browser.pdf()
    assert pdf.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    anchors = browser.evaluate(
        "[...document.querySelectorAll('h2')].filter(h => /^Anchor:/.test(h.textContent)).length"
    )
    assert 3 <= pages <= 2 + 6 * anchors  # answer, reasons, examples, classes, inputs, estimates
    boxes = {tuple(round(float(v)) for v in b.split()) for b in re.findall(rb"/MediaBox\s*\[([^\]]+)\]", pdf)}
    assert boxes == {(0, 0, 595, 842)}


def test_paper_is_light_and_cuts_no_table(browser, url):
    browser.open(url, A4_TEXT, dark=True)
    scheme = {"name": "prefers-color-scheme", "value": "dark"}
    browser.call("Emulation.setEmulatedMedia", media="print", features=[scheme])
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    wide = (
        "[...document.querySelectorAll('table')].filter(t => t.getBoundingClientRect().right > innerWidth + 1).length"
    )
    assert browser.evaluate(wide) == 0
    browser.call("Emulation.setEmulatedMedia", media="")


def test_the_browser_reports_what_a_bad_page_does(browser, tmp_path):
    """Without this the silence above would prove nothing."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<!DOCTYPE html><title>x</title><div style='width:2000px'>wide</div>"
        "<script>console.warn('w')</script><img src='http://127.0.0.1:1/x.png'>"
    )
    browser.open(page.as_uri(), 390)
    assert not browser.evaluate("document.documentElement.scrollWidth <= 390")
    assert events(browser, "Runtime.consoleAPICalled")
    assert any("127.0.0.1" in e["request"]["url"] for e in events(browser, "Network.requestWillBeSent"))


def test_without_chromium_the_tests_skip_or_fail(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("TRACE_REQUIRE_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Chromium here"):
        need_chromium()
    monkeypatch.setenv("TRACE_REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match="no Chromium here"):
        need_chromium()
