"""The synthetic tables: a committed miniature sweep pinned to its text, numbers checked by hand, one's own world."""

from pathlib import Path

import numpy as np
import pytest
from pandas import DataFrame

from experiments.analysis.cells import MISSING
from experiments.analysis.isolation import leak
from experiments.analysis.summary import covers, rank_correlation
from experiments.analysis.synthetic import excerpt_terms
from experiments.engine.records import of_profile, read_records
from experiments.tables import isolation as tables_isolation
from experiments.tables import synthetic as tables_synthetic
from experiments.tables.table import table, to_markdown
from tests.experiments.analysis.synthetic_records import both, excerpt, grid, isolation, record

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("label", ["combined-excerpt", "rank-power", "coverage", "isolation", "ridge-scaling"])
def test_the_miniature_sweep_gives_its_table(label):
    experiment, make, _ = table.all()[label]
    records = of_profile(read_records(GOLDEN / f"{experiment}.jsonl"), "smoke")
    assert to_markdown(make(records)) + "\n" == (GOLDEN / f"{label}.md").read_text()


def rows(table, *beginning):
    return [row for row in table.rows if row[: len(beginning)] == list(beginning)]


def test_rank_power_has_every_score_beside_the_published_value():
    table = tables_synthetic.rank_power(both())
    assert len(table.rows) == 3 * len(tables_synthetic.SCORES)
    (ours,) = rows(table, "moons_warp", "mlp", "labels travel", "TRACE-Proxy, OT")
    assert ours[4] == "0.818"
    assert ours[5].startswith("1.000 [")
    assert ours[6] == "16"


def test_captions_say_how_many_seeds_an_interval_is_over():
    assert "95% interval, Student's t over 4 seeds" in tables_synthetic.glance(both()).caption
    many = tables_synthetic.rank_power([*grid(seeds=range(12)), *grid("moons_warp", seeds=range(16))]).caption
    assert "95% interval, Student's t over 12 or 16 seeds. c_h" in many


def test_a_world_of_ones_own_appears():
    table = tables_synthetic.rank_power(grid("mixture_shift"))
    assert {row[0] for row in table.rows} == {"mixture_shift"}
    assert all(row[4] == "" for row in table.rows)


def test_a_score_without_calibration_is_missing():
    table = tables_synthetic.rank_power([record("moons_warp")])
    assert rows(table, "moons_warp", "mlp", "labels travel", "TRACE-Proxy, OT")[0][5] == MISSING


def test_rank_correlation_is_over_all_pairs():
    frame = DataFrame({"seed": np.arange(6) % 3, "score": np.arange(6.0), "abs_risk_change": np.arange(6.0)[::-1]})
    assert rank_correlation(frame, "score").estimate == -1
    frame.loc[2, "score"] = np.nan
    assert np.isnan(rank_correlation(frame, "score").estimate)


def test_coverage_counts_and_takes_the_median_where_something_changed():
    frame = DataFrame({"abs_risk_change": [0.0, 1.0, 2.0, 4.0], "b": [1.0, 3.0, 4.0, 2.0]})
    assert covers(frame, "b") == (0.75, 2.0)


def test_coverage_has_the_two_term_bounds_where_records_do():
    before = tables_synthetic.coverage(grid("moons_warp"))
    assert not any(row[3].startswith(("two-term", "bound of the difference")) for row in before.rows)
    assert all("conditional" not in row[6] for row in before.rows)
    direct = {
        **{"held_out_distance": 0.5, "capped_change": 0.25, "wasserstein1_input": lambda s, k: s},
        **{"largest_gradient_source": 3.0, "largest_gradient_target": 3.25, "jacobian_change": 1.0},
        **{"certified_source": 8.0, "certified_target": 9.0, "certified_change": 2.0},
    }
    found = {row[3]: row for row in tables_synthetic.coverage(grid("moons_warp", **direct)).rows}
    change = np.array([0.4 * s + 0.01 * (k + 1) for s in (0.0, 0.25, 1.0, 2.0) for k in range(4)])
    severity = np.repeat([0.0, 0.25, 1.0, 2.0], 4)
    for name, bound in (
        ("two-term bound, steepest seen", 0.75 + 6.25 * severity),
        ("two-term bound, certified", 0.75 + 17 * severity),
        ("bound of the difference, steepest seen", 0.25 + 1.5 * severity),
        ("bound of the difference, certified", 0.25 + 3 * severity),
    ):
        assert found[name][4:] == ["100.0%", f"{np.median(bound / change):.3g}", "conditional", "16"]
    assert found["bound, OT"][6] == "conditional, event fails in 100%"


def test_coverage_shows_what_the_distance_is_without_a_shift_and_where_the_grid_ended():
    found = tables_synthetic.coverage(
        grid("moons_warp", transport=lambda s, k: 1 + s, floor=2.1, rkhs_at_edge=lambda s, k: k == 3)
    )
    cells = {row[3]: row[6] for row in found.rows}
    assert cells["OT shift alone"] == "1.62, floor 2.1, below in 75%"  # severities 0, 0.25, 1 and 2
    assert cells["MMD shift alone"] == "edge in 25.0%"
    assert {cells[name] for name in set(cells) - {"OT shift alone", "MMD shift alone"}} == {""}
    assert "without any shift" in found.caption


def test_the_two_readings_of_the_excerpt():
    terms = {"model_change": 3.0, "model_change_squared": 9.0, "emp_shift_ot": 2.0, "emp_shift_mmd": 4.0}
    part = DataFrame([{"n": 1000, "risk_change": 1, **terms, "gaps": 0.5, "abs_risk_change": 0.7}])
    plain, squared = (excerpt_terms(part, squared=s).iloc[0] for s in (False, True))
    assert plain["bound_ot"] == 5.5
    assert squared["bound_ot"] == 9.502
    assert squared["emp_shift_mmd"] == 0.004


def test_excerpt_has_the_published_rows_and_names_missing_ones():
    table = tables_synthetic.combined_excerpt(excerpt())
    assert sum(row[3] == "paper" for row in table.rows) == 7
    assert MISSING in rows(table, "moons_warp", "2", "2000", "ours, MLP")[0]
    assert MISSING not in rows(table, "blobs_shift", "1", "2000", "ours, logistic")[0]


def test_isolation_says_what_moved():
    table = tables_isolation.isolation([isolation(output_distance=lambda v, k: v + 0 * k)])
    (moved,) = rows(table, "blobs_shift", "lr", "largest / smallest")
    assert moved[3:5] == ["100", "1"]
    (rho,) = rows(table, "blobs_shift", "lr", "rho with |Delta R|")
    assert rho[-1] == ""


def test_leak_of_a_term_that_vanishes_is_infinite():
    frame = DataFrame({"knob": [0.0, 1.0], "x": [0.0, 2.0], "y": [1.0, 3.0]})
    assert leak(frame, "x") == float("inf")
    assert leak(frame, "y") == 3.0
