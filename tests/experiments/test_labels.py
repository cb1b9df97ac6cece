"""What a decision costs in labels: the simulated labelling is the real one, and rivals have oracles."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, norm

from experiments.analysis.labels import METHODS as TITLES
from experiments.analysis.labels import cost_ratios, labels_frame
from experiments.engine.errors import UserError
from experiments.figures.labels import labels as labels_figure
from experiments.labels import (
    FEWEST,
    METHODS,
    Config,
    bet_rows,
    by_course,
    case_of,
    costs,
    lure,
    ppi_interval,
    run,
    summary,
    whole_file,
)
from experiments.tables.labels import labels as labels_table
from trace.gate import Labelling
from trace.gate.labelling import file_courses, stream_courses
from trace.losses import ClippedCrossEntropy, ZeroOne
from trace.stats.betting import BETS, mixture

VALID = ("file", "population", "betting", "bernstein", "hoeffding")
LOSSES = {"zero-one": ZeroOne(), "cross-entropy": ClippedCrossEntropy(4.0)}


def outputs(n=400, moved=0.7, seed=0):
    """Logits of two models, and labels."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=g)
    old = torch.randn(n, 3, generator=g, dtype=torch.float64)
    old[torch.arange(n), y] += 2
    return old, old + moved * torch.randn(n, 3, generator=g, dtype=torch.float64), y


def case(judged_by="zero-one", *, moved=0.7, **options):
    config = Config(judged_by=judged_by, **{"paths": 40, "horizon": 2000, **options})
    return case_of(*outputs(moved=moved), LOSSES[judged_by], config), config


@pytest.mark.parametrize("judged_by", LOSSES)
@pytest.mark.parametrize("scope", ["file", "population"])
def test_the_simulated_labelling_is_the_labelling(judged_by, scope):
    old, new, y = outputs()
    loss = LOSSES[judged_by]
    ranges = [tuple(end.numpy() for end in loss.change_range(old, new))]
    change = (loss(new, y) - loss(old, y)).numpy()
    for limit in (change.mean() - 0.1, change.mean() + 0.15):
        g = torch.Generator().manual_seed(1)
        labelling = Labelling(old, new, limit=limit, loss=loss, scope=scope, generator=g)
        seed = labelling.seed
        while len(row := labelling.next_rows(1)):
            labelling.tell(row, y[row])
        if scope == "file":
            _, (course,) = file_courses(ranges, limit, 0.025, seed)
        else:
            _, (course,) = stream_courses(ranges, limit, 0.025, loss.bound(3), seed)
        spent, accepted = by_course(course, change, (7, 50))
        assert labelling.state.decision == ("undecided" if math.isinf(spent) else "accept" if accepted else "reject")
        assert labelling.state.decision == "undecided" or labelling.state.spent == spent


@pytest.mark.parametrize("judged_by", LOSSES)
def test_no_way_that_promises_is_wrong_too_often(judged_by):
    """Just beyond the true change, on both sides, looked at after every label."""
    made, config = case(judged_by, margins=[0.004], paths=100)
    for name in VALID:
        for wrong in costs(made, config)["methods"][name]["wrong"]:
            assert binomtest(wrong, 100, 0.025, alternative="greater").pvalue >= 0.01, name


def test_asymptotic_intervals_are_wrong_too_often():
    made, _ = case(paths=100)
    for margin in (-0.004, 0.004):
        ends = METHODS["ppi"](made, float(made.change.mean()) + margin)
        assert summary(ends, right=margin > 0)["wrong"] > 2 * 0.025 * 100


def test_a_file_never_costs_more_than_all_disagreements():
    made, _ = case()
    reachable = int((made.most > made.least).sum())
    for margin in (-0.1, -0.01, -1e-6, 0.0, 1e-6, 0.01, 0.1):
        ends = whole_file(made, float(made.change.mean()) + margin)
        assert ends.labels.max() <= reachable


def test_zero_one_costs_at_most_half_more_than_the_best_bet():
    """Median over limits of the ratio of median labels, population against the best single bet in hindsight."""
    made, config = case(paths=200, margins=[0.05, 0.1, 0.15])
    found = costs(made, config)["methods"]
    ratios = np.array(found["population"]["median"]) / np.array(found["best_bet"]["median"])
    assert np.median(ratios) <= 1.5


def test_cross_entropy_costs_a_third_of_uniform_rows():
    made, config = case("cross-entropy", margins=[0.1, 0.2], moved=0.3)
    found = costs(made, config)["methods"]
    for own in ("file", "population"):
        ratios = np.array(found["betting"]["median"]) / np.array(found[own]["median"])
        assert np.median(ratios) >= 3


def test_bets_end_where_their_wealth_does():
    made, _ = case(paths=5, horizon=1500)
    limit = float(made.change.mean()) + 0.1
    rows = bet_rows(made, limit, lambda sums: mixture(sums)[..., None], share=1.0)[0, :, 0]
    for path, end in zip(made.draws, rows, strict=True):
        products, read = np.zeros(len(BETS)), 0
        while mixture(products) < made.enough and read < len(path):
            products = products + np.log1p((limit - made.change[path[read]]) / (1 - limit) * BETS)
            read += 1
        assert (read if mixture(products) >= made.enough else math.inf) == end


def test_prediction_powered_intervals_are_those_of_the_formula():
    """`ppi_mean_ci` of ppi-python, written plainly: power tuning over labelled and unlabelled guesses together."""
    rng = np.random.default_rng(0)
    guess, unlabelled = rng.normal(size=(3, 60)), rng.normal(size=500)
    y = 0.6 * guess + rng.normal(size=(3, 60))
    n = np.array([20, 21, 60])
    _, estimate, radius = ppi_interval(y, guess, unlabelled, n, 0.025)
    for path in range(3):
        for look, count in enumerate(n):
            own, said = y[path, :count], guess[path, :count]
            covariance = np.mean((own - own.mean()) * (said - said.mean()))
            variance = np.cov(np.concatenate([said, unlabelled]))
            lam = np.clip(covariance / ((1 + count / 500) * variance), 0, 1)
            error = np.hypot((lam * unlabelled).std() / math.sqrt(500), (own - lam * said).std() / math.sqrt(count))
            assert estimate[path, look] == pytest.approx(lam * unlabelled.mean() + (own - lam * said).mean())
            assert radius[path, look] == pytest.approx(norm.ppf(0.975) * error)


def test_lure_is_unbiased_and_ends_at_the_mean():
    rng = np.random.default_rng(0)
    values, weight = rng.normal(size=8), rng.uniform(0.2, 2, 8)
    order = np.argsort(rng.exponential(size=(40_000, 8)) / weight, axis=1)
    mean, spread = lure(values[order], weight[order])
    np.testing.assert_allclose(mean[:, -1], values.mean())
    np.testing.assert_allclose(spread[:, -1], values.std())
    errors = mean.std(axis=0) / math.sqrt(len(mean))
    assert (abs(mean.mean(axis=0) - values.mean()) <= 4 * errors + 1e-12).all()


def test_models_that_agree_cost_nothing_by_ours():
    old, _, y = outputs()
    config = Config(paths=3, horizon=400)
    made = case_of(old, old.clone(), y, ZeroOne(), config)
    assert (whole_file(made, 0.01).labels == 0).all()
    assert np.isinf(METHODS["active_testing"](made, 0.01).labels).all()


def test_the_summary_counts_wrong_and_undecided_paths():
    made, _ = case(paths=4, horizon=FEWEST)
    ends = METHODS["hoeffding"](made, float(made.change.mean()) + 0.01)
    assert summary(ends, right=True) == {"median": None, "most": None, "wrong": 0, "undecided": 4}


def test_an_unknown_loss_is_refused():
    with pytest.raises(UserError, match="judged_by must be one of zero-one, cross-entropy, got 'hinge'"):
        run(Config(judged_by="hinge"), None)


@pytest.fixture(scope="module")
def records():
    found = []
    for judged_by in LOSSES:
        for name, moved in (("little", 0.3), ("much", 0.8)):
            made, config = case(judged_by, moved=moved, paths=20, horizon=600, margins=[0.01, 0.05, 0.1])
            told = {"data": "toy", "judged_by": judged_by, "candidate": {"name": name}, "paths": 20, "horizon": 600}
            found.append(
                {
                    "config": {**told, "delta": config.delta},
                    "metrics": {**costs(made, config), "disagreement": moved / 3, "change": float(made.change.mean())},
                }
            )
    return found


def test_the_table_has_a_line_for_every_way(records):
    table = labels_table(records)
    assert len(table.rows) == 2 * len(METHODS)
    assert [row[2] for row in table.rows[: len(TITLES)]] == list(TITLES.values())
    assert {row[1] for row in table.rows} == set(LOSSES)
    frame = labels_frame(records)
    own = frame[(frame["loss"] == "zero-one") & (frame["method"] == "file") & (frame["margin"] == 0.1)]
    median = np.sort(own["median"])[len(own) // 2]
    row = next(row for row in table.rows if row[1] == "zero-one" and row[2] == TITLES["file"])
    assert row[3].startswith(f"{median:,.0f} (")
    assert row[-1] == row[-3] == "kept"
    assert "times fewer labels than betting on uniform rows" in table.caption


def test_ratios_are_of_limits_that_both_decide(records):
    found = cost_ratios(labels_frame(records), "file", "betting")
    assert np.isfinite(found["ratio"]).all()
    np.testing.assert_allclose(found["ratio"], found["other"] / found["own"])


def test_the_figure_shows_cost_by_margin_and_by_disagreement(records):
    drawn = labels_figure(records)
    labels = [(ax.get_xlabel(), ax.get_yscale()) for ax in drawn.axes]
    assert [text for text, _ in labels] == [
        "margin [share of rows]",
        "disagreement [%]",
        "margin [nats]",
        "disagreement [%]",
    ]
    assert {scale for _, scale in labels} == {"log"}
