"""The ridge experiment: a smoke run through the engine, its checks, and its samples against independent oracles."""

import json
import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from experiments import ridge
from experiments.engine.config import expand
from experiments.engine.errors import UserError
from experiments.engine.run import execute
from experiments.engine.store import RunDirectory
from experiments.regression import forms as ridge_forms
from experiments.regression.forms import Problem
from experiments.regression.samples import World, diagnose_fits, monte_carlo_errors, refit_curves
from trace import Settings


def smoke(tmp_path, *options):
    runs = expand("ridge", ["config=smoke", *options])
    for run in runs:
        assert execute(run, runs=tmp_path) == "computed", RunDirectory.of(run, tmp_path).log_path.read_text()
    return [RunDirectory.of(run, tmp_path).record() for run in runs]


def test_smoke_run_through_the_engine(tmp_path):
    changed, orthogonal = smoke(tmp_path)
    assert (changed["config"]["angle"], orthogonal["config"]["angle"]) == (45.0, 90.0)
    for record in (changed, orthogonal):
        assert len(json.dumps(record)) < 30_000
        closed, finite = record["metrics"]["closed"], record["metrics"]["finite"]
        assert {len(curve) for curve in closed["curves"].values()} == {len(closed["shifts"])}
        assert max(closed["monte_carlo_errors"].values()) < 5
        assert [row["shift"] for row in finite["diagnostics"]] == [0.1, 1.0, 10.0]
        for row in finite["diagnostics"]:
            assert row["bound_core"] == pytest.approx(
                row["gap_source"] + row["gap_target"] + row["model_change"] + row["emp_shift"], rel=1e-5
            )
            assert row["bound_full"] > row["bound_core"]
            assert row["holds"] == (abs(row["risk_change"]) <= row["bound_core"])
            assert row["reasons"] == {}
    slopes = changed["metrics"]["closed"]["slopes"]["small"]
    assert slopes["shift_penalty"][0] == pytest.approx(1, abs=0.01)
    assert slopes["risk_change"][0] == pytest.approx(2, abs=0.01)
    assert slopes["risk_change"][3] == 11
    assert orthogonal["metrics"]["closed"]["slopes"]["small"]["risk_change"][:3] == [None] * 3
    assert "tightness" not in orthogonal["metrics"]["closed"]["slopes"]["small"]


def test_same_seed_same_metrics_and_another_seed_others(tmp_path):
    first, again, other = (
        smoke(tmp_path / name, "angle=45", f"seed={seed}")[0]["metrics"]
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert first == again
    assert first["finite"]["refits"] != other["finite"]["refits"]
    assert first["closed"]["monte_carlo_errors"] != other["closed"]["monte_carlo_errors"]
    assert first["closed"]["curves"] == other["closed"]["curves"]


@pytest.mark.parametrize("part", ["closed", "finite"])
def test_a_part_alone(tmp_path, part):
    (record,) = smoke(tmp_path, "angle=45", f"part={part}")
    assert list(record["metrics"]) == [part]


@pytest.mark.parametrize(
    ("option", "match"),
    [
        ({"part": "open"}, "part must be"),
        ({"dim": 1}, "dim >= 2"),
        ({"sigma": 0.0}, "sigma > 0"),
        ({"lam": -1.0}, "lam"),
        ({"q": 1.0}, "q must lie between 0 and 1, got 1.0"),
        ({"shifts": [0.0, 0.1, 1.0]}, "shifts must be positive sizes"),
        ({"sample_shifts": []}, "sample_shifts must be positive sizes"),
    ],
)
def test_bad_configs_are_refused(option, match):
    with pytest.raises(UserError, match=match):
        ridge.Config(**option)


def test_a_refusal_comes_before_any_run():
    with pytest.raises(UserError, match="shifts must be positive"):
        expand("ridge", ["config=smoke", "shifts=[0,0.1,1]"])


def test_samples_are_diagnosed_with_the_loss_that_is_named():
    with pytest.raises(UserError, match="loss must be one of squared, huber, got 'absolute'"):
        expand("ridge", ["config=smoke", "loss=absolute"])
    squared, huber = (
        ridge.finite_part(Problem(1.0, 3, 45.0, 0.5), ridge.Config(n=60, n_val=60, n_test=500, loss=loss))[
            "diagnostics"
        ]
        for loss in ("squared", "huber")
    )
    assert [row["lipschitz_loss"] for row in huber] == [1.0] * 4
    assert all(
        a["lipschitz_loss"] > 4 and a["loss_bound"] > b["loss_bound"] for a, b in zip(squared, huber, strict=True)
    )
    assert [a["transport"] for a in squared] == [b["transport"] for b in huber]
    assert all(row["holds"] for row in huber)


def test_default_grid_spans_five_decades_and_every_config_expands():
    shifts = ridge.Config().shifts
    assert (shifts[0], shifts[-1], len(shifts)) == (1e-3, 1e2, 26)
    np.testing.assert_allclose(np.diff(np.log10(shifts)), 0.2, atol=1e-3)
    sizes = {name: len(expand("ridge", [f"config={name}"])) for name in ("smoke", "cpu", "paper")}
    assert sizes == {"smoke": 2, "cpu": 132, "paper": 360}


@pytest.mark.parametrize("name", ["model_change", "mean_norm", "cosp", "risk_change", "shift_penalty"])
def test_monte_carlo_finds_a_wrong_closed_form(monkeypatch, name):
    p, shifts, exact = Problem(1.0, 5, 30.0, 0.5), np.array([1.0, 2.0]), ridge_forms.curves
    options = {"q": 0.99, "num_draws": 20_000}
    assert max(monte_carlo_errors(p, shifts, **options, rng=np.random.default_rng(0)).values()) < 4

    def wrong(*arguments):
        return {key: curve * (1.2 if key == name else 1.0) for key, curve in exact(*arguments).items()}

    monkeypatch.setattr(ridge_forms, "curves", wrong)
    found = monte_carlo_errors(p, shifts, **options, rng=np.random.default_rng(0))
    assert found["target_sensitivity" if name == "shift_penalty" else name] > 5


def test_monte_carlo_finds_wrong_weights(monkeypatch):
    exact = ridge_forms.weight_change
    monkeypatch.setattr(ridge_forms, "weight_change", lambda p, m: 1.5 * exact(p, m))
    p = Problem(1.0, 5, 30.0, 0.5)
    found = monte_carlo_errors(p, np.array([1.0]), q=0.99, num_draws=20_000, rng=np.random.default_rng(0))
    assert found["target_weights"] > 5


def test_monte_carlo_of_nothing_is_quiet():
    found = monte_carlo_errors(
        Problem(1.0, 3, 90.0, 0.5), np.array([1e-3, 100.0]), q=0.99, num_draws=5000, rng=np.random.default_rng(0)
    )
    assert found["risk_change"] == 0
    assert found["model_change"] == 0
    assert found["cosp"] < 4


def test_fit_agrees_with_scikit_learn():
    world = World(Problem(0.7, 6, 20.0, 0.5), torch.Generator().manual_seed(0))
    sample = world.sample(world.draw(50), 0.8)
    peer = Ridge(alpha=0.7 * 50, fit_intercept=False).fit(sample.x.numpy(), sample.y.numpy())
    np.testing.assert_allclose(world.fit(sample).numpy(), peer.coef_, rtol=1e-10)


def test_fits_to_many_samples_approach_the_closed_form():
    p, shifts = Problem(1.0, 3, 30.0, 0.5), [0.5, 2.0, 10.0]
    found = refit_curves(p, shifts, n=400_000, generator=torch.Generator().manual_seed(0))
    for curve in found.values():
        np.testing.assert_allclose(curve, ridge_forms.risk_change(p, np.array(shifts)), atol=0.01)


def test_shared_draws_leave_nothing_but_the_shift():
    shared = refit_curves(Problem(1.0, 3, 30.0, 0.5), [0.0], n=50, generator=torch.Generator().manual_seed(0))
    assert shared["shared"] == [0.0]
    assert shared["fresh"] != [0.0]


def test_shared_draws_make_the_change_linear_below_the_sampling_error():
    """The sample mean is not 0, so a term of order |mu| / sqrt(n) stands before the population's |mu|^2."""
    shifts = [1e-6, 2e-6]
    found = refit_curves(Problem(1.0, 3, 30.0, 0.5), shifts, n=100, generator=torch.Generator().manual_seed(0))
    assert found["shared"][1] / found["shared"][0] == pytest.approx(2, rel=1e-3)


def test_diagnosis_sees_the_world():
    p, m = Problem(1.0, 4, 0.0, 0.5), 3.0
    found = diagnose_fits(
        p, m, n=400, n_val=400, n_test=40_000, loss="squared", settings=Settings(distance="wasserstein1"),
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    assert found.evidence.shift.transport.value == pytest.approx(m, rel=0.1)
    assert found.risk_change == pytest.approx(ridge_forms.risk_change(p, np.array([m]))[0], abs=0.05)
    assert found.evidence.output_distance.value == pytest.approx(
        ridge_forms.model_change(p, np.array([m]))[0], rel=0.15
    )
    L_new = ridge_forms.target_sensitivity(p, np.array([m]), 0.99)[0]
    assert found.evidence.sensitivity_target.value == pytest.approx(L_new, rel=0.25)
    assert found.evidence.lipschitz**2 == pytest.approx(4 * found.evidence.loss_bound)
    assert math.isfinite(found.bound_full())
