"""Tables of the gate: scores that order harm perfectly, backwards or not at all, and thresholds without harm."""

from experiments.tables_gate import SCORES, THRESHOLDS, gate_tau, gate_tau_main
from tests.experiments.synthetic_records import COLUMNS, REMAINDERS

HARM = [0.0, 0.01, 0.04, 0.08, 0.12, 0.2, 0.3]
EXTRA = ("disagreement_target", "negative_msp_source", "negative_msp_target", "entropy_source", "energy_source", "atc",
         "doc", "cot", "mano", "target_error")  # fmt: skip


def record(seed, *, control=False, **changes):
    """One seed; scores are functions of the harm that a candidate does."""
    values = {
        **COLUMNS,
        **REMAINDERS,
        **{name: lambda h, k: h for name in EXTRA},
        "error_change": lambda h, k: h,
        **changes,
    }
    columns = {name: [v(h, seed) if callable(v) else v for h in HARM] for name, v in values.items()}
    candidates = [
        {"rehearsal": 0.5 if control else 0.0, "distill": 0.0, "constant": 0.0, "relabelled": []} for _ in HARM
    ]
    config = {"data": "emoji", "seed": seed, "candidates": candidates}
    names = [f"{'control' if control else 'plain'}-{i}" for i in range(len(HARM))]
    return {"run_id": str(seed), "profile": "cpu", "config": config, "metrics": {"columns": columns, "names": names}}


def cell(table, column, **values):
    wanted = {table.header.index(name): value for name, value in values.items()}
    (row,) = [row for row in table.rows if all(row[i] == value for i, value in wanted.items())]
    return row[table.header.index(column)]


def test_a_perfect_and_a_backward_score():
    table = gate_tau_main([record(seed, cot=lambda h, k: -h) for seed in range(4)])
    assert cell(table, "rho, signed", score="anchor disagreement").startswith("1.00 [")
    assert cell(table, "rho, signed", score="COT").startswith("-1.00 [")
    assert cell(table, "AUROC at 0.13", score="COT") == "0.000"
    assert cell(table, "rho, paper", score="TRACE-W") == "0.944"
    assert len(table.rows) == len(SCORES)


def test_signed_and_absolute_differ_where_updates_help():
    helped = [record(seed, error_change=lambda h, k: h - 0.15) for seed in range(4)]
    table = gate_tau_main(helped)
    assert cell(table, "rho, signed", score="anchor disagreement").startswith("1.00")
    assert not cell(table, "rho, absolute", score="anchor disagreement").startswith("1.00")


def test_thresholds_count_harm_and_say_where_there_is_none():
    table = gate_tau([record(seed) for seed in range(4)])
    assert len(table.rows) == len(THRESHOLDS) * len(SCORES)
    assert cell(table, "harmful", tau="0.10", score="TRACE-W") == "43%"
    assert cell(table, "paper", tau="0.13", score="-MSP on source") == "0.980 / 0.986"
    calm = gate_tau([record(seed, error_change=lambda h, k: 0.001 * h) for seed in range(4)])
    assert "one class only" in cell(calm, "AUROC", tau="0.10", score="TRACE-W")


def test_controls_stand_in_a_block_of_their_own():
    table = gate_tau_main([record(seed, control=seed > 1) for seed in range(4)])
    assert {row[0] for row in table.rows} == {"emoji, fine-tunes", "emoji, with controls"}
    assert cell(table, "updates", candidates="emoji, fine-tunes", score="COT") == "14"
