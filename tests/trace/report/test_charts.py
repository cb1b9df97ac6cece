"""Pictures: bars are as long as their values and start where the last one ended; marks stand at their numbers."""

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
import torch

from trace.gate.policy import AnchorVerdict
from trace.report.changes import ColumnDrift, SliceChange
from trace.report.charts import drift_bars, dumbbells, embedding_scatter, intervals, past_scatter, waterfall
from trace.report.embedding import embedding
from trace.report.words import Bar
from trace.stats.conformal import PastUpdate

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"


def parts(svg, kind):
    """Groups whose id begins so; parsing as XML also shows that the text is well formed."""
    groups = ElementTree.fromstring(svg).iter(SVG + "g")
    return [g for g in groups if re.fullmatch(rf"p-{kind}(-\d+)?", g.get("id", ""))]


def box(group):
    """Left and right end of a shape."""
    (path,) = group.iter(SVG + "path")
    xs = [float(x) for x, _ in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.get("d"))]
    return min(xs), max(xs)


def points(group):
    """Where a group's markers stand."""
    return [(float(use.get("x")), float(use.get("y"))) for use in group.iter(SVG + "use")]


def words(svg):
    return " ".join(e.text or "" for e in ElementTree.fromstring(svg).iter(SVG + "text"))


def linear(pairs):
    """Whether positions are a straight function of values, up to the last digit that is written."""
    (a, x), (b, y) = min(pairs), max(pairs)
    unit = (y - x) / (b - a)
    assert unit > 0
    for value, position in pairs:
        assert position == pytest.approx(x + unit * (value - a), abs=0.03)


BARS = [Bar("a", 1.0, "term"), Bar("b", 0.5, "term"), Bar("sum", 1.5, "total"), Bar("c", 2.5, "remainder")]


def anchor(lower, value, upper, threshold, score="trace_w"):
    return AnchorVerdict("a", "reject", score, value, lower, upper, threshold, None, "")


def test_bars_continue_each_other_and_are_as_long_as_their_values():
    svg = waterfall(BARS, "title", name="p", change=0.75)
    a, b = (box(g) for g in parts(svg, "term"))
    (total,), (c,), (change,) = ([box(g) for g in parts(svg, kind)] for kind in ("total", "remainder", "change"))
    values = [0.0, 1.0, 1.0, 1.5, 0.0, 1.5, 1.5, 4.0, 0.75, 0.75]
    linear(list(zip(values, [*a, *b, *total, *c, *change], strict=True)))
    assert "true |change| 0.75" in words(svg)
    assert "in units of the loss" in words(svg)


def test_a_missing_term_has_no_bar_and_its_total_an_outline():
    bars = [Bar("a", 2.0, "term"), Bar("b", math.nan, "term"), Bar("sum", math.nan, "total")]
    svg = waterfall(bars, "title", name="p")
    (term,), (outline,) = parts(svg, "term"), parts(svg, "missing")
    assert box(outline) == pytest.approx(box(term))
    assert not parts(svg, "total")
    assert not parts(svg, "change")
    assert words(svg).count("n/a") == 2


def test_what_is_more_than_the_loss_allows_is_grey_and_does_not_set_the_scale():
    bars = [Bar("a", 1.0, "term"), Bar("b", 180.0, "term"), Bar("sum", 181.0, "total")]
    svg = waterfall(bars, "title", name="p", most=20.0)
    assert (len(parts(svg, "term")), len(parts(svg, "vacuous")), len(parts(svg, "beyond"))) == (1, 2, 1)
    (left, right), (limit, end) = box(parts(svg, "term")[0]), box(parts(svg, "beyond")[0])
    linear([(0.0, left), (1.0, right), (20.0, limit), (22.0, end)])
    assert "b 180, says nothing; sum 181, says nothing." in svg
    within = waterfall(bars[:1], "title", name="p", most=20.0)
    assert parts(within, "vacuous") == parts(within, "beyond") == []


def test_either_models_share_stands_at_its_number():
    changes = [SliceChange("a", 10, 5, 0.9, 0.2), SliceChange("b", 10, 1, 0.5, 0.6)]
    svg = dumbbells(changes, "title", name="p")
    marks = [(c.before, points(g)[0][0]) for c, g in zip(changes, parts(svg, "old"), strict=True)]
    marks += [(c.after, points(g)[0][0]) for c, g in zip(changes, parts(svg, "new"), strict=True)]
    linear(marks)
    assert "a from 90% to 20%; b from 50% to 60%." in svg
    falls, rises = (ElementTree.tostring(g, encoding="unicode") for g in parts(svg, "new"))
    assert "--reject" in falls
    assert "--source" in rises


def test_columns_are_as_long_as_they_drift():
    found = [ColumnDrift("a", 1.0, 0.8, True), ColumnDrift("b", 0.1, 0.4, True), ColumnDrift("c", 0.0, 0.1, False)]
    svg = drift_bars(found, "title", name="p")
    boxes = [box(g) for g in parts(svg, "term") + parts(svg, "remainder")]
    linear([(0.0, boxes[0][0]), *((each.distance, right) for each, (_, right) in zip(found, boxes, strict=True))])
    assert "a 0.80; b 0.40; c 0.10, within chance." in svg


def test_a_waterfall_of_nothing_is_drawn():
    svg = waterfall([Bar("a", math.nan, "term"), Bar("sum", math.nan, "total")], "title", name="p")
    assert not [kind for kind in ("term", "total", "missing") if parts(svg, kind)]


def test_pictures_say_in_words_what_they_show():
    svg = ElementTree.fromstring(waterfall(BARS, 'a "title" & <more>', name="p", change=0.75))
    assert svg.find(SVG + "title").text == 'a "title" & <more>'
    assert svg.find(SVG + "desc").text == "a 1; b 0.5; sum 1.5; c 2.5; true |change| 0.75."
    assert svg.get("role") == "img"


def test_intervals_share_a_scale():
    svg = intervals([anchor(0.0, 1.0, 2.0, 3.0), anchor(2.0, 3.0, math.inf, 1.0)], "t", name="p", labels=["one", "two"])
    marks = [(value, points(g)[0][0]) for value, g in zip((1.0, 3.0), parts(svg, "value"), strict=True)]
    limits = [(value, box(g)[0]) for value, g in zip((3.0, 1.0), parts(svg, "limit"), strict=True)]
    first, second = (box(g) for g in parts(svg, "interval"))
    linear([*marks, *limits, (0.0, first[0]), (2.0, first[1]), (2.0, second[0])])
    accept, reject = ([box(g) for g in parts(svg, kind)] for kind in ("accept", "reject"))
    assert second[1] == pytest.approx(reject[1][1])
    for (_, edge), below, above in zip(limits, accept, reject, strict=True):
        assert [below[1], above[0]] == pytest.approx([edge, edge], abs=0.02)
    assert [len(list(g.iter(SVG + "path"))) for g in parts(svg, "ends")] == [2, 1]
    for shown in ("one", "two", "trace w", "limit 3", "limit 1", "accept", "reject"):
        assert shown in words(svg)


def test_a_share_is_drawn_in_percent():
    assert "limit 10%" in words(intervals([anchor(0.0, 0.1, 0.2, 0.1, "anchor_disagreement")], "t", name="p"))


def test_an_interval_without_numbers_is_drawn_open():
    svg = intervals([anchor(*[math.nan] * 4)], "title", name="p")
    assert not [point for group in parts(svg, "value") for point in points(group)]
    (line,), (zone,) = parts(svg, "interval"), parts(svg, "accept")
    assert box(line) == pytest.approx(box(zone))
    assert "nan" not in svg.lower()


@pytest.mark.parametrize("name", ["$x_1$ and $", "日本語 \U0001f600", "a\nb\x00\udcff", "#000001", "<b>&amp;"])
def test_any_name_is_drawn_as_it_is(name):
    svg = intervals([anchor(0.0, 1.0, 2.0, 3.0)], "t", name="p", labels=[name])
    shown = " ".join(name.replace("\x00", "\ufffd").replace("\udcff", "\ufffd").split())
    assert shown in words(svg)


def test_a_long_name_loses_its_middle():
    svg = intervals([anchor(0.0, 1.0, 2.0, 3.0)], "t", name="p", labels=["begin" + "-" * 100 + "end"])
    assert re.search(r"begin-+\u2026-+end", words(svg))


def test_past_updates_stand_at_their_scores():
    past = [PastUpdate("good", 0.1, -0.2), PastUpdate("bad <b>", 0.4, 0.3), PastUpdate("lost", 0.2, math.nan)]
    new = anchor(0.45, 0.5, 0.6, 0.25)
    svg = past_scatter(past, new, "title", name="p")
    (harmless,), (harmful,), (band,), (limit,) = (
        parts(svg, kind) for kind in ("harmless", "harmful", "band", "threshold")
    )
    ((good_x, good_y),), ((bad_x, bad_y),) = points(harmless), points(harmful)
    linear([(0.1, good_x), (0.4, bad_x), (0.45, box(band)[0]), (0.6, box(band)[1]), (0.25, box(limit)[0])])
    assert good_y > bad_y
    assert harmful.find(SVG + "title").text == "bad <b>"
    for shown in ("threshold 0.25", "score: trace w", "risk change (above 0: harm)", "did no harm", "this update"):
        assert shown in words(svg)
    alone = words(past_scatter(past, None, "title", name="p"))
    assert "threshold" not in alone
    assert "this update" not in alone


def test_embedding_has_one_unit_on_both_axes(generator):
    x = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 1.0], [4.0, 1.0]])
    found = embedding(x, x + torch.tensor([8.0, 0.0]), generator=generator)
    (source,), (target,) = (parts(embedding_scatter(found, "title", name="p"), kind) for kind in ("source", "target"))
    shown, real = points(source) + points(target), [*found.source.tolist(), *found.target.tolist()]
    assert len(shown) == 8
    units = [math.dist(a, b) / math.dist(c, d) for (a, b), (c, d) in zip(pairwise(shown), pairwise(real), strict=True)]
    assert units == pytest.approx([units[0]] * 7, rel=2e-3)


def test_embedding_of_coinciding_points_is_drawn(generator):
    found = embedding(torch.ones(3, 2), torch.ones(3, 2), generator=generator)
    svg = embedding_scatter(found, "title", name="p")
    assert "nan" not in svg.lower()
    assert "n/a of the variance" in words(svg)


def test_ids_begin_with_the_name_and_links_find_them():
    past = [PastUpdate("good", 0.1, -0.2), PastUpdate("bad", 0.4, 0.3)]
    svg = past_scatter(past, anchor(0.45, 0.5, 0.6, 0.25), "title", name="one")
    elements = list(ElementTree.fromstring(svg).iter())
    ids = [e.get("id") for e in elements if e.get("id")]
    assert len(set(ids)) == len(ids) > 10
    assert all(each.startswith("one-") for each in ids)
    links = [e.get(LINK)[1:] for e in elements if e.get(LINK)] + re.findall(r"url\(#([^)]*)\)", svg)
    assert set(links) <= set(ids)
    assert links


def test_colours_are_those_of_the_style_sheet_alone():
    past = [PastUpdate("good", 0.1, -0.2), PastUpdate("bad", 0.4, 0.3)]
    pictures = [waterfall(BARS, "t", name="p", change=0.75), intervals([anchor(0.0, 1.0, 2.0, 3.0)], "t", name="p")]
    pictures.append(past_scatter(past, anchor(0.45, 0.5, 0.6, 0.25), "t", name="p"))
    for svg in pictures:
        painted = set(re.findall(r"(?:fill|stroke): ([^;\"]*)", svg))
        assert all(re.fullmatch(r"none|var\(--[a-z]+\)", colour) for colour in painted), painted
        assert "<style" not in svg
        assert "<metadata" not in svg


def test_settings_of_the_user_change_nothing():
    import matplotlib

    plain = waterfall(BARS, "t", name="p")
    with matplotlib.rc_context(
        {"font.size": 30, "svg.fonttype": "path", "axes.facecolor": "red", "svg.hashsalt": None}
    ):
        assert waterfall(BARS, "t", name="p") == plain
        assert matplotlib.rcParams["font.size"] == 30
