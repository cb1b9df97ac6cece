"""Pictures: bars are as long as their values and start where the last one ended; marks stand at their numbers."""

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
import torch

from trace.gate.verdict import AnchorVerdict
from trace.report.embedding import embedding
from trace.report.scatter import embedding_scatter, past_scatter
from trace.report.svg import Bar, Range, Scale, intervals, span_of, ticks, waterfall
from trace.stats.conformal import PastUpdate

SVG = "{http://www.w3.org/2000/svg}"


def drawn(svg, tag, *classes):
    """Elements of a class; parsing as XML also shows that the text is well formed."""
    return [e for e in ElementTree.fromstring(svg).iter(SVG + tag) if not classes or e.get("class") in classes]


def numbers(element, *names):
    return [float(element.get(name)) for name in names]


def words(svg):
    return " ".join(e.text or "" for e in drawn(svg, "text"))


BARS = [Bar("a", 1.0, "term"), Bar("b", 0.5, "term"), Bar("sum", 1.5, "total"), Bar("c", 2.5, "remainder")]


def test_bars_continue_each_other_and_are_as_long_as_their_values():
    svg = waterfall(BARS, "title", change=0.75)
    rects = drawn(svg, "rect")
    a, b, total, c = (numbers(r, "x", "width") for r in rects)
    unit = total[1] / 1.5
    assert [a[1], b[1], c[1]] == pytest.approx([unit, 0.5 * unit, 2.5 * unit], abs=0.2)
    assert a[0] == total[0] == 8
    assert b[0] == pytest.approx(a[0] + a[1], abs=0.1)
    assert c[0] == pytest.approx(total[0] + total[1], abs=0.1)
    assert c[0] + c[1] == pytest.approx(392)
    (line,) = drawn(svg, "path", "change")
    assert float(re.match(r"M([\d.]+)", line.get("d"))[1]) == pytest.approx(8 + 0.75 * unit, abs=0.2)
    assert "true |change| 0.75" in words(svg)


def test_a_missing_term_has_no_bar_and_its_total_an_outline():
    svg = waterfall([Bar("a", 2.0, "term"), Bar("b", math.nan, "term"), Bar("sum", math.nan, "total")], "title")
    assert len(drawn(svg, "rect", "term")) == 1
    (outline,) = drawn(svg, "rect", "missing")
    assert numbers(outline, "x", "width") == pytest.approx([8, 384])
    assert words(svg).count("n/a") == 2
    assert not drawn(svg, "path", "change")


def test_a_waterfall_of_nothing_is_drawn():
    svg = waterfall([Bar("a", math.nan, "term"), Bar("sum", math.nan, "total")], "title")
    assert not drawn(svg, "rect")


def test_pictures_say_in_words_what_they_show():
    svg = waterfall(BARS, 'a "title" & <more>', change=0.75)
    (title,), (description,) = drawn(svg, "title"), drawn(svg, "desc")
    assert title.text == 'a "title" & <more>'
    assert description.text == "a 1; b 0.5; sum 1.5; c 2.5; true |change| 0.75."
    assert ElementTree.fromstring(svg).get("role") == "img"


def test_intervals_share_a_scale():
    svg = intervals([Range("one", 0.0, 1.0, 2.0, 3.0), Range("two", 2.0, 3.0, math.inf, 1.0)], "title")
    scale = Scale(*span_of([0, 1, 2, 3]), 8, 392)
    dots = [numbers(e, "cx")[0] for e in drawn(svg, "circle", "dot")]
    assert dots == [scale(1.0), scale(3.0)]
    first, second = (e.get("d") for e in drawn(svg, "path", "span"))
    assert first.startswith(f"M{scale(0.0)} ")
    assert f"H{scale(2.0)}" in first
    assert first.count("v14") == 2
    assert second.count("v14") == 1
    edges = [float(re.match(r"M([\d.]+)", e.get("d"))[1]) for e in drawn(svg, "path", "threshold")]
    assert edges == [scale(3.0), scale(1.0)]
    zones = [numbers(e, "x", "width") for e in drawn(svg, "rect", "zone-accept")]
    assert [x + width for x, width in zones] == pytest.approx(edges)


def test_an_interval_without_numbers_is_drawn_open():
    svg = intervals([Range("", math.nan, math.nan, math.nan, math.nan)], "title")
    assert not drawn(svg, "circle")
    assert "nan" not in svg.lower()


def test_past_updates_stand_at_their_scores():
    past = [PastUpdate("good", 0.1, -0.2), PastUpdate("bad <b>", 0.4, 0.3), PastUpdate("lost", 0.2, math.nan)]
    new = AnchorVerdict("a", "reject", "trace_w", 0.5, 0.45, 0.6, 0.25, None, "")
    svg = past_scatter(past, new, "title")
    x = Scale(*span_of([0.1, 0.4, 0.45, 0.5, 0.6, 0.25]), 52, 390)
    harmless, harmful = drawn(svg, "circle", "harmless"), drawn(svg, "path", "harmful")
    assert len(harmless) == len(harmful) == 2  # one each, and the key
    assert numbers(harmless[0], "cx") == [x(0.1)]
    assert harmful[0].get("d").startswith(f"M{x(0.4)} ")
    assert harmful[0].find(SVG + "title").text == "bad <b>"
    assert numbers(harmless[0], "cy")[0] > float(harmful[0].get("d").split()[1].split("l")[0])
    band = drawn(svg, "rect", "band")[0]
    assert numbers(band, "x", "width") == pytest.approx([x(0.45), x(0.6) - x(0.45)], abs=0.1)
    assert "threshold 0.25" in words(svg)
    assert "score: trace w" in words(svg)
    assert "threshold" not in words(past_scatter(past, None, "title"))


def test_embedding_has_one_unit_on_both_axes(generator):
    x = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 1.0], [4.0, 1.0]])
    found = embedding(x, x + torch.tensor([8.0, 0.0]), generator=generator)
    svg = embedding_scatter(found, "title")
    at = [tuple(map(float, p)) for p in re.findall(r"M([\d.]+) ([\d.]+)h0", drawn(svg, "path", "source")[0].get("d"))]
    (a, b), coordinates = (at[0], at[1]), found.source[:2].tolist()
    shown, real = math.dist(a, b), math.dist(*coordinates)
    c, d = at[0], at[2]
    assert math.dist(c, d) / math.dist(coordinates[0], found.source[2].tolist()) == pytest.approx(
        shown / real, rel=0.02
    )
    assert drawn(svg, "path", "target")[0].get("d").count("M") == 4


def test_embedding_of_coinciding_points_is_drawn(generator):
    svg = embedding_scatter(embedding(torch.ones(3, 2), torch.ones(3, 2), generator=generator), "title")
    assert "nan" not in svg.lower()
    assert "n/a of the variance" in svg


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 7), (0, 1e-9), (1e6, 1.1e6), (0.301, 0.302), (-1e-3, 1e3)])
def test_ticks_are_few_round_and_inside(low, high):
    found = ticks(low, high)
    assert 2 <= len(found) <= 8
    steps = {f"{b - a:.3g}" for a, b in pairwise(found)}
    assert len(steps) == 1
    assert steps.pop().replace(".", "").lstrip("0")[0] in "125"
    assert all(low - 1e-9 * abs(high) <= t <= high * (1 + 1e-9) for t in found)
