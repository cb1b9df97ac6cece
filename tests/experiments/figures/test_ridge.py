"""The ridge figure: which problem, which curves, axes with units, and the same bytes twice."""

import numpy as np
import pytest
from matplotlib import pyplot as plt

from experiments.figures.ridge import slopes
from experiments.figures.style import COLUMN, save
from tests.experiments.analysis.ridge_records import SHIFTS, record, unmoved


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def curves(axis):
    return {line.get_label(): line.get_xydata() for line in axis.lines if not line.get_label().startswith("_")}


def test_curves_are_those_of_the_record():
    figure = slopes([record(), record(seed=1), unmoved()])
    above, below = figure.axes
    assert figure.get_figwidth() == COLUMN
    shown = curves(above)
    assert set(shown) == {
        "core bound", "shift penalty", "model change", "... by Cauchy-Schwarz", "$|\\Delta w|$ [weights]", "exact COSP",
        "$|\\Delta R|$",
    }  # fmt: skip
    np.testing.assert_allclose(shown["$|\\Delta R|$"][:, 1], [5e-7, 5e-3, 0.5])
    np.testing.assert_allclose(shown["shift penalty"], np.column_stack([SHIFTS, SHIFTS]))
    np.testing.assert_allclose(curves(below)["separate samples"][:, 1], [0.02, 0.03, 0.5])
    for axis in (above, below):
        assert axis.get_xscale() == axis.get_yscale() == "log"
        assert axis.get_xlabel().endswith("[input standard deviations]")
        assert axis.get_ylabel().endswith("[units of the loss]")


def test_reference_lines_have_their_slopes():
    above, _ = slopes([record()]).axes
    grey = [np.log(line.get_xydata()) for line in above.lines if line.get_color() == "0.55"]
    assert [round(float((line[1, 1] - line[0, 1]) / (line[1, 0] - line[0, 0])), 6) for line in grey] == [1, 2]
    assert [text.get_text() for text in above.texts] == ["slope 1", "slope 2"]


def test_the_problem_nearest_to_the_reference_is_drawn():
    figure = slopes([record(angle=0.0), record(angle=30.0), unmoved()])
    assert "angle 30°" in figure.axes[0].get_title()
    assert "seeds: 1" in figure.axes[1].get_title()


def test_without_samples_the_panel_says_so():
    half = record()
    del half["metrics"]["finite"]
    assert slopes([half]).axes[1].get_title() == "fits to samples: missing"


def test_without_a_change_both_panels_are_missing():
    assert [ax.texts[0].get_text() for ax in slopes([unmoved()]).axes] == ["missing", "missing"]


def test_same_records_same_bytes(tmp_path):
    for name in ("a", "b"):
        save(slopes([record()]), "slopes", tmp_path / name)
    for suffix in ("png", "pdf"):
        assert (tmp_path / "a" / f"slopes.{suffix}").read_bytes() == (tmp_path / "b" / f"slopes.{suffix}").read_bytes()
