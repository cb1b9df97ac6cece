"""One look a score: in every figure the same, and a score without one is drawn all the same."""

from matplotlib import pyplot as plt
from matplotlib.colors import to_rgba

from experiments.analysis.gate import SCORES
from experiments.figures.gate import DRAWN
from experiments.figures.style import LINES, axes, line_of
from experiments.figures.synthetic import BOUNDS


def test_drawn_scores_have_looks_that_can_be_told_apart():
    assert set(DRAWN) <= set(SCORES)
    for drawn in (DRAWN, BOUNDS):
        looks = [line_of(name) for name in drawn]
        assert len({look["color"] for look in looks}) == len(looks)


def test_a_new_score_is_drawn_without_an_edit():
    assert "a new score" not in LINES
    figure, ax = axes()
    ax.plot([0, 1], [0, 1], **line_of("a new score"))
    taken = {to_rgba(look["color"]) for look in LINES.values()}
    assert to_rgba(ax.lines[0].get_color()) not in taken
    plt.close(figure)
