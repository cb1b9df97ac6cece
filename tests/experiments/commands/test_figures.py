"""Figures: drawn from records, the same bytes twice, missing parts named, a new world appears by itself."""

import numpy as np
import pytest
from matplotlib import pyplot as plt

from experiments.__main__ import main
from experiments.commands.figures import FIGURES
from experiments.engine.records import write_records
from experiments.figures import active as figures_active
from experiments.figures import gate as figures_gate
from experiments.figures import isolation as figures_isolation
from experiments.figures import synthetic as figures_synthetic
from experiments.figures.style import axes, figure, save
from tests.experiments.analysis.synthetic_records import both, grid, isolation, record
from tests.experiments.tables import test_active as test_tables_active
from tests.experiments.tables import test_gate as test_tables_gate

PORTRAIT = {
    "x": [0.0, 1.0, 2.0],
    "y": [0.0, 1.0],
    "source": {"x": [[0.1, 0.2], [1.5, 0.5]], "y": [0, 1]},
    "target": {"x": [[0.3, 0.2], [1.7, 0.5]], "y": [0, 1]},
    "margins": [[[-1.0, 0.5, 1.0], [-1.0, -0.5, 1.0]]],
    "new_margins": [[[-1.0, -0.5, 1.0], [-1.0, -0.5, 1.0]]],
}


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def titles(figure):
    return [ax.get_title() for ax in figure.axes if ax.get_visible()]


@pytest.mark.parametrize(
    "draw",
    [figures_synthetic.score_scatter, figures_synthetic.attribution, figures_synthetic.attribution_shares,
     figures_synthetic.tightness],
)  # fmt: skip
def test_every_world_has_a_panel_with_labelled_axes(draw):
    figure = draw(both() + grid("mixture_shift"))
    panels = [ax for ax in figure.axes if ax.get_title()]
    assert len(panels) == 4
    assert any("mixture_shift" in ax.get_title() for ax in panels)
    for ax in panels:
        assert ax.get_xlabel()
        assert ax.get_ylabel()


def test_stacks_reach_the_bound():
    figure = figures_synthetic.attribution_shares(grid())
    assert figure.axes[0].get_ylim()[1] == pytest.approx(100)


def test_heat_map_prints_one_number_a_cell_and_leaves_missing_ones_empty():
    records = [*grid("moons_warp"), record("moons_warp", n=1000), record("moons_warp", n_target=1000)]
    figure = figures_synthetic.sample_sizes(records)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert len(texts) == 4
    assert texts.count("") == 1


def test_worlds_are_drawn_with_both_boundaries():
    records = [record(details={"portraits": {"0.0": PORTRAIT, "1.0": PORTRAIT}}),
               record("moons_warp", details={"portraits": {"1.0": PORTRAIT}})]  # fmt: skip
    figure = figures_synthetic.worlds(records)
    assert titles(figure)[:2] == ["severity 0", "severity 1"]
    missing = [ax for ax in figure.axes if any(text.get_text() == "missing" for text in ax.texts)]
    assert len(missing) == 1
    assert len(figure.axes[0].collections) == 1 + 2 + 2  # source, two classes, two boundaries


def test_every_class_of_a_world_has_its_dots_and_its_boundary():
    """Of three classes one is shown by nobody: the update never predicts the last."""
    (margins,) = PORTRAIT["margins"]
    absent = [[-2.0] * 3] * 2
    three = {
        **PORTRAIT,
        "target": {"x": [[0.3, 0.2], [1.7, 0.5], [0.5, 0.5]], "y": [0, 1, 2]},
        "margins": [margins, [[-value for value in row] for row in margins]],
        "new_margins": [margins, absent],
    }
    figure = figures_synthetic.worlds([record(details={"portraits": {"0.0": three}})])
    assert len(figure.axes[0].collections) == 1 + 3 + 2 + 1  # source, classes, boundaries of Q, the one of Q~
    assert [text for text in notes(figure) if "class" in text] == [f"target, class {k}" for k in range(3)]


def test_every_axis_of_the_worlds_is_named():
    figure = figures_synthetic.worlds([record(details={"portraits": {"0.0": PORTRAIT}})])
    assert figure.axes[-1].get_xlabel() == "$x_1$"
    assert figure.axes[0].get_ylabel().endswith("$x_2$")


def notes(figure):
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_bands_and_lines_are_explained_in_the_figure():
    assert "one standard deviation over seeds" in notes(figures_active.rounds(test_tables_active.records()))
    assert "middle 80% of pairs" in notes(figures_synthetic.tightness(grid()))
    (legend,) = figures_synthetic.attribution(grid()).legends
    assert legend.get_title().get_text() == "means over all pairs"


def test_a_panel_of_less_than_two_decades_has_several_ticks():
    figure, ax = axes()
    ax.set(xscale="log", xlim=(0.9, 4))
    figures_synthetic._ticks_of_few_decades(ax)
    figure.canvas.draw()
    shown = [tick.get_text() for tick in ax.get_xticklabels() if 0.9 <= float(tick.get_text()) <= 4]
    assert shown == ["1", "2", "3"]


def test_every_data_set_of_the_gate_is_drawn():
    updates = [
        record
        for data in ("emoji", "own")
        for record in test_tables_gate.updates(4, control=lambda seed: seed > 1, data=data)
    ]
    assert [ax.get_title(loc="left") for ax in figures_gate.scores(updates).axes[::6]] == ["emoji", "own"]
    forest = figures_gate.forest(updates)
    assert notes(forest) == [f"{data}, {kind}" for data in ("emoji", "own") for kind in ("fine-tunes", "with controls")]
    places = [line.get_ydata()[0] for line in forest.axes[0].lines if line.get_marker() != "None"]
    assert len(set(places)) == 4
    looks = {line.get_label(): line.get_linestyle() for line in figures_gate.curves(updates).axes[0].lines}
    assert ":" not in looks.values()
    assert "alarms at random" in looks


def test_isolation_has_a_panel_per_world_and_knob():
    figure = figures_isolation.isolation([isolation(), isolation("moons_warp")])
    assert titles(figure)[:2] == ["blobs_shift", "moons_warp"]
    assert figure.axes[0].get_xscale() == "log"


def test_files_are_the_same_twice(tmp_path):
    for folder in ("a", "b"):
        figure, ax = axes()
        ax.plot([0, 1], [0, 1])
        save(figure, "line", tmp_path / folder)
    for suffix in ("pdf", "png"):
        assert (tmp_path / "a" / f"line.{suffix}").read_bytes() == (tmp_path / "b" / f"line.{suffix}").read_bytes()


def test_command_draws_what_it_can_and_names_the_rest(tmp_path, capsys):
    write_records(both(), tmp_path / "synthetic.jsonl")
    options = ["figures", "--incomplete", "--records", str(tmp_path)]
    main([*options, "--output", str(tmp_path), "--only", "tightness", "isolation"])
    assert (tmp_path / "tightness.pdf").stat().st_size > 5000
    assert "isolation is missing" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no records of profile 'paper'"):
        main([*options, "--profile", "paper", "--only", "tightness"])


def test_one_experiment_of_a_profile_is_enough(tmp_path, capsys):
    write_records(both(), tmp_path / "synthetic.jsonl")
    write_records([{**isolation(), "profile": "paper"}], tmp_path / "isolation.jsonl")
    options = ["--incomplete", "--records", str(tmp_path), "--output", str(tmp_path / "paper")]
    main(["figures", "--profile", "paper", *options])
    assert {path.name for path in (tmp_path / "paper").iterdir()} == {"isolation.pdf", "isolation.png"}
    assert "tightness is missing: no records of profile 'paper' in synthetic.jsonl" in capsys.readouterr().out


def test_every_figure_is_committed_in_both_formats():
    stored = {path.name for path in FIGURES.iterdir()}
    assert stored == {f"{name}.{suffix}" for name in figure.all() for suffix in ("pdf", "png")}


@pytest.mark.parametrize("name", figure.all())
def test_committed_figures_are_those_of_the_committed_records(name, tmp_path):
    """Up to a line that another processor's last digit moves by less than a pixel."""
    main(["figures", "--output", str(tmp_path), "--only", name])
    drawn, stored = (plt.imread(folder / f"{name}.png") for folder in (tmp_path, FIGURES))
    moved = (np.abs(drawn - stored) > 0.25).any(axis=2).mean() if drawn.shape == stored.shape else 1.0
    assert moved < 1e-3, f"{name} is stale: run `python -m experiments figures`"


def test_case_studies_are_drawn_from_their_records():
    rounds = figures_active.rounds(test_tables_active.records())
    assert [len(ax.lines) for ax in rounds.axes[:3]] == [4, 4, 3]  # distances have the held-out source beside them
    updates = test_tables_gate.updates(4, control=lambda seed: seed > 1)
    assert len(figures_gate.scores(updates).axes) == 6
    assert "harm above 0.13" in figures_gate.curves(updates).axes[0].get_title()
    labels = [tick.get_text() for tick in figures_gate.forest(updates).axes[0].get_yticklabels()]
    assert labels[0] == "TRACE-W"
    assert "+MSP on source" in labels
