"""Tables of the gate: scores that order harm perfectly, backwards or not at all, and thresholds without harm."""

import pytest

from experiments.analysis.gate import SCORES, THRESHOLDS, alarm, ceiling, lead, resolvable, subsets
from experiments.engine.errors import UserError
from experiments.figures.gate import gate_replications as drawn
from experiments.tables.gate import gate_controls, gate_paired, gate_replications, gate_tau, gate_tau_main
from tests.experiments.analysis.synthetic_records import COLUMNS, REMAINDERS

HARM = [0.0, 0.01, 0.04, 0.08, 0.12, 0.2, 0.3]
EXTRA = ("disagreement_target", "negative_msp_source", "negative_msp_target", "entropy_source", "energy_source", "atc",
         "doc", "cot", "mano", "target_error", "anchor_error_plug_in", "error_change_first",
         "error_change_second")  # fmt: skip


PLAIN = {"rehearsal": 0.0, "distill": 0.0, "constant": 0.0, "relabelled": [], "reference": False}


def updates_of(seed, *, control=False, made=None, data="emoji", arch="", profile="cpu", **changes):
    """The records of one seed; scores are functions of the harm that a candidate does.

    ``made`` are the keys of a kind of control.
    """
    values = {
        **COLUMNS,
        **REMAINDERS,
        **{name: lambda h, k: h for name in EXTRA},
        "error_change": lambda h, k: h,
        **changes,
    }
    made = made or ({"rehearsal": 0.5} if control else {})
    return [
        {
            "run_id": f"{data} {arch} {seed} {'-'.join(made) or 'plain'} {i}",
            "experiment": "gate",
            "profile": profile,
            "config": {
                "data": data,
                "arch": arch,
                "seed": seed,
                "c_h": 1.0,
                "candidate": {**PLAIN, **made, "name": f"{'-'.join(made) or 'plain'}-{i}"},
            },
            "metrics": {
                **{name: v(h, seed) if callable(v) else v for name, v in values.items()},
                "num_classes": 20,
                "skipped": {},
            },
        }
        for i, h in enumerate(HARM)
    ]


def updates(seeds, **options):
    """Of several seeds; an option may be a function of the seed if it is named ``control``."""
    control = options.pop("control", lambda seed: False)
    return [record for seed in range(seeds) for record in updates_of(seed, control=control(seed), **options)]


def cell(table, column, **values):
    wanted = {table.header.index(name): value for name, value in values.items()}
    (row,) = [row for row in table.rows if all(row[i] == value for i, value in wanted.items())]
    return row[table.header.index(column)]


def test_a_perfect_and_a_backward_score():
    table = gate_tau_main(updates(4, cot=lambda h, k: -h))
    assert cell(table, "rho, signed", score="anchor disagreement").startswith("1.00 [")
    assert cell(table, "rho, signed", score="COT").startswith("-1.00 [")
    assert cell(table, "AUROC at 0.13", score="COT") == "0.00 [0.00, 0.00]"
    assert table.rows[0] == [
        "domainnet, published",
        "TRACE gate score",
        "not printed",
        "0.944",
        "not printed",
        "1.000",
        "20",
    ]
    assert table.rows[1][1:6:2] == ["-MSP, side not named", "-0.874", "0.980"]
    assert len(table.rows) == 2 + len(SCORES)
    assert {row[0] for row in table.rows[2:]} == {"emoji, fine-tunes"}


def test_signed_and_absolute_differ_where_updates_help():
    helped = updates(4, error_change=lambda h, k: h - 0.15)
    table = gate_tau_main(helped)
    assert cell(table, "rho, signed", score="anchor disagreement").startswith("1.00")
    assert not cell(table, "rho, absolute", score="anchor disagreement").startswith("1.00")


def test_thresholds_count_harm_and_say_where_there_is_none():
    table = gate_tau(updates(4))
    assert len(table.rows) == 2 * 3 + len(THRESHOLDS) * len(SCORES)
    assert cell(table, "harmful", tau="0.10", score="TRACE-W") == "43%"
    assert table.rows[3] == ["domainnet, published", "0.13", "55%", "-MSP, side not named", "0.980", "0.986"]
    calm = gate_tau(updates(4, error_change=lambda h, k: 0.001 * h))
    assert "one class only" in cell(calm, "AUROC", tau="0.10", score="TRACE-W")


def test_msp_stands_in_both_signs():
    found = updates(4, negative_msp_source=lambda h, k: -h)
    table = gate_tau_main(found)
    assert cell(table, "rho, signed", score="-MSP on source").startswith("-1.00")
    assert cell(table, "rho, signed", score="+MSP on source").startswith("1.00")
    areas = [cell(gate_tau(found), "AUROC", tau="0.13", score=f"{sign}MSP on source") for sign in "-+"]
    assert areas == ["0.00 [0.00, 0.00]", "1.00 [1.00, 1.00]"]
    assert cell(table, "rho, signed", score="+MSP on target").startswith("-1.00")


def test_a_better_and_an_equal_score_are_told_apart():
    noisy = {"output_distance": lambda h, k: -h - 0.01 * k, "transport": 0.0, "mmd_squared": 0.0}
    table = gate_paired(updates(6, **noisy))
    better = {"candidates": "emoji, fine-tunes", "against": "TRACE-W", "score": "anchor disagreement"}
    assert "rho" in cell(table, "resolvable", **better)
    assert cell(table, "rho", **better).startswith("+")
    same = {"candidates": "emoji, fine-tunes", "against": "TRACE-W", "score": "model change"}
    assert cell(table, "rho", **same) == "+0.00 [+0.00, +0.00]"
    assert cell(table, "resolvable", **same) == "no"
    assert not any(row[1] == row[2] for row in table.rows)
    assert len(table.rows) == 2 * (len(SCORES) - 1)


def test_a_difference_is_that_of_the_two_metrics():
    _, frame = subsets(updates(4, cot=lambda h, k: -h, output_distance=lambda h, k: h, transport=0.0))[0]  # fmt: skip
    found = lead(frame, "cot", "output_distance")
    assert found.estimate == pytest.approx(-2.0, abs=1e-9)
    assert resolvable(found)
    assert lead(frame, "cot", "output_distance", 0.1).estimate == pytest.approx(-1.0, abs=1e-9)


def test_thresholds_without_both_kinds_are_not_compared():
    calm = gate_paired(updates(4, error_change=lambda h, k: 0.2 * h))
    assert {row[calm.header.index("AUROC at 0.23")] for row in calm.rows} == {"one kind only"}


def test_an_alarm_is_a_place_among_the_updates_of_a_seed():
    _, frame = subsets(updates(2, cot=lambda h, k: h + 10 * k))[0]
    assert alarm(frame, "cot").tolist() == pytest.approx([i / 6 for i in range(7)] * 2)
    tied = alarm(frame.assign(cot=0.0), "cot")
    assert tied.tolist() == [0.5] * 14


def test_controls_by_kind_with_what_the_scores_say():
    """A constant moves the outputs of harmless updates; blind harm moves nothing on the target."""
    calm, quiet = {"error_change": lambda h, k: 0.1 * h}, {"error_change": lambda h, k: 1 + h}
    found = []
    blind = {"rehearsal": 1.0, "distill": 1.0, "relabelled": [1]}
    for seed in range(3):
        found += updates_of(seed, transport=0.0)
        found += updates_of(seed, made={"constant": 5.0}, transport=0.0, output_distance=50.0, **calm)
        found += updates_of(seed, made=blind, transport=0.0, output_distance=0.0, anchor_disagreement=9.0, **quiet)
    table = gate_controls(found)
    assert [row[1] for row in table.rows] == ["plain", "blind harm", "constant"]
    assert cell(table, "TRACE-W (place)", kind="constant") == "50 (85%)"
    assert cell(table, "place of harm", kind="blind harm") == "85%"
    assert cell(table, "TRACE-W (place)", kind="blind harm") == "0 (15%)"
    assert cell(table, "anchor disagreement (place)", kind="blind harm") == "9 (85%)"
    assert cell(table, "updates", kind="plain") == "21"


def test_a_table_of_controls_without_controls_says_so():
    assert gate_controls(updates(1)).rows[0][0] == "missing"


def test_controls_stand_in_a_block_of_their_own():
    table = gate_tau_main(updates(4, control=lambda seed: seed > 1))
    assert {row[0] for row in table.rows} == {"domainnet, published", "emoji, fine-tunes", "emoji, with controls"}
    assert cell(table, "updates", candidates="emoji, fine-tunes", score="COT") == "14"


def test_references_are_no_fine_tunes():
    """They are near-copies of fine-tunes: in `with controls` they stand, in `fine-tunes` they would count twice."""
    beside = updates(3, made={"constant": 5.0})
    for record in beside[:: len(HARM)]:
        record["config"]["candidate"] |= PLAIN | {"reference": True}
    (title, plain), (_, everything) = subsets([*updates(3), *beside])
    assert title == "emoji, fine-tunes"
    assert (len(plain["kind"]), set(plain["kind"])) == (21, {"plain"})
    assert (len(everything["kind"]), int((everything["kind"] == "reference").sum())) == (42, 3)
    assert [row[1] for row in gate_controls([*updates(1), *beside]).rows] == ["plain", "reference", "constant"]


def test_two_settings_of_one_update_are_refused():
    first, second = updates(1), updates(1, made={"constant": 5.0})
    for records, lr in ((first, 0.003), (second, 0.01)):
        for record in records:
            record["config"]["source_lr"] = lr
    with pytest.raises(UserError, match=r"of data emoji, seed 0, which differ in source_lr: 0.003 and 0.01"):
        subsets([*first, *second])
    again = updates(1)
    again[0]["config"]["candidate"]["epochs"] = 9
    with pytest.raises(UserError, match=r"candidate plain-0, which differ in epochs: None and 9.*configs/gate/NAME"):
        subsets([*updates(1), *again])


def test_abbreviations_are_spelt_out():
    for table in (gate_tau_main(updates(1)), gate_controls([*updates(1), *updates_of(0, control=True)])):
        assert "ATC average thresholded confidence" in table.caption


def replicated():
    """Two backbones of one data set, on one of which a score is backwards, and a table with a score of its own."""
    return [
        *updates(4, arch="lite", output_distance=lambda h, k: h, transport=0.0),
        *updates(4, arch="wide", output_distance=lambda h, k: -h, transport=0.0),
        *updates(4, data="acs", output_distance=lambda h, k: h, transport=0.0, cbpe=lambda h, k: -h),
    ]


def test_replications_of_one_data_set_count_as_one():
    table = gate_replications(replicated())
    rho = {row[0]: row[3] for row in table.rows if row[1] == "model change"}
    assert [rho[title].split(" ")[0] for title in ("emoji, lite", "emoji, wide", "acs")] == ["1.00", "-1.00", "1.00"]
    assert rho["mean of 2 data sets"].startswith("0.50 [")
    assert [row[0] for row in table.rows if row[1] == "CBPE"] == ["acs", "one data set"]
    assert cell(table, "AUROC at 0.01", replication="acs", score="CBPE") == "0.00 [0.00, 0.00]"
    calm = gate_replications(updates(4, error_change=lambda h, k: 0.001 * h))
    assert "one class only" in cell(calm, "AUROC at 0.13", replication="emoji", score="TRACE-W")


def test_the_figure_of_replications_has_a_number_for_every_score_and_replication():
    (ax, bar) = drawn(replicated()).axes
    assert [label.get_text() for label in ax.get_xticklabels()] == [
        "acs",
        "emoji\nlite",
        "emoji\nwide",
        "mean of data sets",
    ]
    assert len(ax.texts) == 4 * len(SCORES) + 2  # CBPE on acs alone
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names.index("model change") > names.index("anchor disagreement")
    assert "Spearman" in bar.get_ylabel()


def test_the_ceiling_is_that_of_noise_between_halves():
    (_, frame), *_ = subsets(updates(4))
    assert ceiling(frame) == 1.0
    noisy = frame.assign(error_change_second=[0.0, 0.01, 0.12, 0.08, 0.04, 0.3, 0.2] * 4)
    r = 1 - 6 * (4 + 4 + 1 + 1) / (7 * 48)
    assert ceiling(noisy) == pytest.approx((2 * r / (1 + r)) ** 0.5)
    assert ceiling(frame.assign(error_change_second=-frame["error_change_first"])) == 0.0
