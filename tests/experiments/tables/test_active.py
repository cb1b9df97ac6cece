"""Tables of active selection: published rows beside ours, in both readings of the ratio."""

import pytest

from experiments.analysis.cells import MISSING
from experiments.engine.errors import UserError
from experiments.tables.active import active_replications, combined, main, ranks, terms
from tests.experiments.analysis.synthetic_records import COLUMNS, REMAINDERS


def record(policy="w1min", seed=0, *, development=False, data="emoji", **changes):
    labeled = [50, 100, 150, 200, 250]
    values = {**COLUMNS, **REMAINDERS, "target_error": 0.4, "target_error_before": 0.5, "batch_transport": 0.1,
              "batch_mmd_squared": 0.01, "held_out_transport": 0.05, "held_out_mmd_squared": 0.0, "floor": 0.02,
              "error_change": 0.02, **changes}  # fmt: skip
    columns = {name: [v(n / 100, seed % 10) if callable(v) else v for n in labeled] for name, v in values.items()}
    config = {"policy": policy, "seed": seed, "development": development, "data": data, "c_h": 1.0}
    return {
        "run_id": f"{policy}{seed}",
        "profile": "cpu",
        "config": config,
        "metrics": {"columns": {"labeled": labeled, **columns}},
    }


def records(seeds=(0, 1), **changes):
    return [record(policy, seed, development=seed == 100, **changes)
            for policy in ("w1min", "mmdmin", "random") for seed in (*seeds, 100)]  # fmt: skip


def test_every_round_has_the_published_row_and_ours():
    table = combined(records())
    assert [row[3] for row in table.rows[:2]] == ["domainnet, published", "emoji"]
    assert sum(row[3] == "domainnet, published" for row in table.rows) == 10
    assert sum(row[3] == "emoji" for row in table.rows) == 15
    assert not any(MISSING in row for row in table.rows)


def test_both_readings_of_the_ratio():
    table = combined(records(output_distance=6.0, transport=0.0, mmd_squared=-1.0, risk_change=0.5))
    (first, *_) = [row for row in table.rows if row[3] == "emoji"]
    assert first[7] == "2 (0)"  # 0.02 of error are 2 points
    assert first[8] == MISSING  # without any distance there is no c_h
    assert first[9] == "18.1"  # (0.03 + 1.5 * 6) / 0.5


def test_without_calibration_the_proxy_is_missing():
    (first, *_) = [row for row in combined([record(seed=0), record(seed=1)]).rows if row[3] == "emoji"]
    assert first[6] == MISSING
    assert first[5] != MISSING


def test_the_main_table_has_the_first_and_the_last_round():
    table = main(records())
    assert table.header[:6] == ["policy", "labeled", "data", "Distance", "Out. Disc.", "|Delta R| [p.p.]"]
    assert table.header[6:] == ["Proxy / |Delta R|", "B / |Delta R|"]
    assert {row[1] for row in table.rows} == {"50", "250"}
    assert table.rows[0][-2:] == ["7.34", "not printed"]


def test_a_policy_that_was_not_run_is_missing():
    table = combined([record("w1min", 0), record("w1min", 1)])
    assert any(row[0] == "mmdmin" and MISSING in row for row in table.rows)


def test_all_terms_of_every_round():
    table = terms(records(transport=0.3, batch_transport=0.5, held_out_transport=-0.1))
    assert len(table.rows) == 15
    first = dict(zip(table.header, table.rows[0], strict=True))
    assert first["W, all labels"] == "0.3 (0)"
    assert first["W, batch"] == "0.5 (0)"
    assert first["W, held-out source"] == "0 (0)"  # a numerical zero below 0
    assert first["Delta R [p.p.]"] == "2 (0)"


def test_scores_that_rank_the_rounds_and_scores_that_do_not():
    harm = {"error_change": lambda n, k: 0.01 * n + 0.001 * k}
    table = ranks(records(output_distance=lambda n, k: n, transport=lambda n, k: 3 - n, seeds=range(5), **harm))
    cells = {row[1]: row[2:] for row in table.rows}
    assert cells["output discrepancy"][0].startswith("1.00 [1.00, 1.00]")
    assert cells["OT distance, all labels"][0].startswith("-1.00")
    helped = ranks(records(error_change=lambda n, k: -0.01 * n, output_distance=lambda n, k: n, seeds=range(5)))
    _, _, means, signed, *_ = next(row for row in helped.rows if row[1] == "output discrepancy")
    assert (means[:4], signed[:5]) == ("1.00", "-1.00")


def test_two_settings_of_one_run_are_refused():
    swept = [record(seed=0), record(seed=0)]
    for page, lr in zip(swept, (0.003, 0.01), strict=True):
        page["config"]["lr"] = lr
    with pytest.raises(UserError, match=r"policy w1min, seed 0.* differ in lr: 0.003 and 0.01\..*configs/active/NAME"):
        terms(swept)


def test_policies_against_chance_on_every_replication():
    def run(policy, seed, data, error):
        return record(policy, seed, data=data, error_change=lambda n, k: error + 0.001 * k * n)

    found = [run("random", seed, data, 0.05) for seed in range(4) for data in ("emoji", "pacs")]
    found += [run("w1min", seed, "emoji", 0.03) for seed in range(4)]
    found += [run("w1min", seed, "pacs", 0.09) for seed in range(3)]
    table = active_replications(found)
    assert [row[:3] for row in table.rows] == [
        ["emoji", "w1min", "4"],
        ["pacs", "w1min", "3"],
        ["mean of 2 data sets", "w1min", ""],
    ]
    assert [row[3].split(" ")[0] for row in table.rows] == ["-2.00", "+4.00", "+1.00"]
    assert [row[3].split("]")[1] for row in table.rows] == [" better", " worse", ""]
