"""Anchoring from records: which update is taken at equal accuracy, the table and figure of it, and both verdicts."""

import numpy as np
import pytest
from matplotlib import pyplot as plt
from scipy import stats

from experiments.analysis.anchoring import METHODS, TOLERANCE, anchoring_frame, at_equal_accuracy, difference, studies
from experiments.anchoring import Config
from experiments.claims.ledger import all_claims
from experiments.engine.errors import UserError
from experiments.figures.anchoring import STYLES
from experiments.figures.anchoring import anchoring as figure_of
from experiments.tables.anchoring import anchoring
from tests.experiments.tables.anchoring_records import HARM, both, record


def part(**options):
    ((_, frame),) = studies(anchoring_frame([record(seed=seed, **options) for seed in range(4)]))
    return frame


def test_every_method_that_is_run_is_shown():
    assert set(METHODS) - {"plain"} == set(Config().strengths) == set(STYLES)


def test_the_most_restrained_update_within_the_tolerance_is_taken():
    frame = part()
    weights = at_equal_accuracy(frame, "plug_in")
    assert weights["strength"].tolist() == [1.0] * 4  # 10 costs the target too much
    assert weights["seed"].tolist() == [0, 1, 2, 3]
    assert at_equal_accuracy(frame, "early_stop")["strength"].tolist() == [0.5] * 4
    assert at_equal_accuracy(frame, "plain")["method"].tolist() == ["plain"] * 4


def test_where_every_update_costs_too_much_the_plain_one_stays():
    frame = part()
    frame["target_val_error"] = np.where(
        frame["method"] == "plug_in", 0.10 + TOLERANCE + 0.002, frame["target_val_error"]
    )
    assert set(at_equal_accuracy(frame, "plug_in")["method"]) == {"plain"}
    assert difference(frame, "plug_in", "plain", "risk_change").estimate == 0


def test_differences_are_paired():
    found = difference(part(), "plug_in", "plain", "abs_risk_change")
    expected = -(1 - 0.25**2) * (HARM + 0.01 * np.arange(4))
    assert found.estimate == pytest.approx(expected.mean())
    assert found[1:3] == pytest.approx(stats.t.interval(0.95, 3, expected.mean(), stats.sem(expected)))


def test_the_table_has_a_line_for_each_study_and_method():
    table = anchoring(both())
    assert [row[0] for row in table.rows] == ["moons_warp, severity 1"] * 9 + ["emoji, real to sketch"] * 9
    plain, worst = table.rows[0], table.rows[1]
    assert plain[5] == plain[8] == plain[11] == ""
    assert worst[1:4] == ["penalty, worst label", "inputs", "1"]
    assert worst[5].startswith("0.5 [")
    assert float(worst[8].split()[0]) == pytest.approx(-0.389, abs=2e-3)
    assert all(len(row) == len(table.header) for row in table.rows)


def test_the_caption_says_whether_it_helps():
    helps = anchoring(both()).caption
    assert "3 of 3 penalties lower |Delta R| (interval below 0), from 0.415 nats to 0.026" in helps
    assert "(fewer epochs) leaves 0.332; 3 of 3 penalties leave less |Delta R| than it" in helps
    does_not = anchoring(both(penalised=1.2)).caption
    assert "0 of 3 penalties lower |Delta R| (interval below 0)" in does_not
    assert "0 of 3 penalties leave less |Delta R| than it" in does_not


def test_the_figure_has_both_losses_of_both_studies_and_curves_that_start_at_plain():
    figure = figure_of(both())
    assert [ax.get_title() for ax in figure.axes] == ["moons_warp, severity 1"] * 2 + ["emoji, real to sketch"] * 2
    for ax in figure.axes:
        curves = ax.lines[: len(STYLES)]
        starts = {(round(line.get_xdata()[0], 6), round(line.get_ydata()[0], 6)) for line in curves}
        assert len(starts) == 1
        assert ax.get_xlabel()
        assert ax.get_ylabel()
    (legend,) = figure.legends
    assert len(legend.get_texts()) == len(STYLES) + 4  # and plain, Q, bands, no change
    plt.close(figure)


PROTECTS, CERTIFIES = (
    next(claim for claim in all_claims("anchoring") if claim.name == f"anchor_penalty_{name}")
    for name in ("protects", "certifies")
)


def judged(claim, records):
    return claim.judge({"anchoring": records})


def test_protection_is_judged_by_all_penalties_in_both_studies():
    assert judged(PROTECTS, both()).verdict == "reproduced"
    assert judged(PROTECTS, both(left={"lipschitz": 1.0})).verdict == "partly"
    nothing = judged(PROTECTS, both(penalised=1.0))
    assert nothing.verdict == "not reproduced"
    assert nothing.cases == len(both()) * len(both()[0]["metrics"]["methods"])
    assert "0 of 3 penalties leave less of it than fewer epochs" in nothing.why


def test_a_certificate_must_hold_fall_and_exclude_the_harm():
    assert judged(CERTIFIES, both(certificate=2.0)).verdict == "reproduced"  # 0.23 below 0.41
    loose = judged(CERTIFIES, both(certificate=20.0))  # falls from 20 to 1.35
    assert loose.verdict == "partly"
    assert "holds for 8 of 8 updates" in loose.why
    assert judged(CERTIFIES, both(certificate=-1.0)).verdict == "not reproduced"


@pytest.mark.parametrize("claim", all_claims("anchoring"), ids=lambda claim: claim.name)
def test_without_records_it_was_not_run(claim):
    assert claim.judge({}).verdict == "not run here"


def test_two_settings_of_one_run_are_refused():
    swept = [record(), record()]
    swept[1]["config"]["n"] = 9
    with pytest.raises(UserError, match=r"study moons_warp, severity 1, seed 0, which differ in n: None and 9\."):
        anchoring_frame(swept)


def test_where_q_is_far_off_the_figure_shows_what_is_near_the_plain_fine_tune():
    near, far = [record("moons_warp", seed) for seed in range(2)], [record("images", seed) for seed in range(2)]
    for page in near:
        page["metrics"]["columns"]["target_error_before"] = [0.2] * len(page["metrics"]["methods"])
    figure = figure_of(near + far)
    whole, cut = figure.axes[0], figure.axes[2]
    assert whole.get_xlim()[1] > 20
    assert not whole.texts
    assert cut.get_xlim()[1] == pytest.approx(10.05 + 10, abs=0.1)
    assert "Q is outside, at 50%" in cut.texts[0].get_text()
    plt.close(figure)
