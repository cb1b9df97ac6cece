"""A diagnostic of less than everything: what is missing says why, other losses and dtypes, bad input."""

import copy
import math

import pytest
import torch

from tests.test_diagnostic import LOSS, trained
from trace import Sample, Settings, diagnose
from trace.estimators import (
    gradient_quantile,
)
from trace.losses import ClippedCrossEntropy, Huber, SquaredError, ZeroOne


@pytest.fixture(scope="module")
def update():
    return trained()


def test_what_is_missing_says_why(update):
    q, q_new, source, target = update[0]
    d = diagnose(q, q_new, source, Sample(target.x))
    assert math.isnan(d.bound_core())
    assert math.isnan(d.risk_change)
    assert "intervals do not hold" in d.reasons["anchor"]
    for name in ("gap_source", "gap_target", "rkhs_norm", "emp_shift_mmd", "population_mmd", "risk_change"):
        assert d.reasons[name]
    assert math.isfinite(d.emp_shift_ot)
    assert d.evidence.sensitivity_target.pseudo_labels
    labels = q(target.x).argmax(dim=1)  # pseudo-labels are the old model's
    assert d.evidence.sensitivity_target.value == gradient_quantile(q_new, target.x, labels, LOSS).value
    short = diagnose(q, q_new, source, target, target_val=Sample(target.x[:2], target.y[:2]))
    assert "at least 3" in short.reasons["rkhs_norm"]
    unlabelled = diagnose(q, q_new, source, target, target_val=Sample(target.x))
    assert unlabelled.reasons["gap_target"] == "needs labels on the sample and on its validation split"


@pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation")
def test_zero_one_loss_has_no_gradient_terms(update):
    samples, splits = update
    d = diagnose(*samples, **splits, loss=ZeroOne())
    assert math.isnan(d.model_change)
    assert "Lipschitz" in d.reasons["model_change"]
    assert "no gradient" in d.reasons["emp_shift_ot"]
    assert d.risk_change == pytest.approx(d.evidence.risk_change.error_rate)
    assert abs(d.risk_change) <= d.evidence.anchor.disagreement.hoeffding.upper


def test_regression(generator):
    x, x_new = torch.randn(80, 3, generator=generator), torch.randn(60, 3, generator=generator) + 0.5
    w = torch.tensor([[1.0], [2.0], [0.0]])
    y, y_new = ((z @ w)[:, 0].clamp(-5, 5) for z in (x, x_new))
    samples = (Sample(x, y), Sample(x_new, y_new))
    halves = {"source_val": Sample(x[:20], y[:20]), "target_val": Sample(x_new[:20], y_new[:20])}
    f, f_new = lambda x: x @ w, lambda x: 0.9 * (x @ w)
    d = diagnose(f, f_new, *samples, **halves, loss=Huber(limit=5.0), anchor_test=samples[0])
    assert math.isfinite(d.bound_full())
    assert math.isnan(d.evidence.risk_change.error_rate)
    unbounded = diagnose(f, f_new, *samples, **halves, loss=SquaredError())
    assert unbounded.reasons["label_noise"] == "the loss is unbounded"
    assert math.isnan(unbounded.bound_full())
    unlabelled = diagnose(f, f_new, samples[0], Sample(x_new), loss=Huber(limit=5.0))
    assert "no pseudo-labels for regression" in unlabelled.reasons["sensitivity_target"]
    assert math.isnan(unlabelled.emp_shift_ot)
    assert math.isfinite(unlabelled.model_change)


def test_models_come_back_as_they_were(update):
    (q, q_new, source, target), splits = update
    q.train()
    q_new.eval()
    diagnose(q, q_new, source, target, **splits)
    assert q.training
    assert not q_new.training
    assert all(p.requires_grad for p in q.parameters())


def test_float64_inputs_stay_float64(update):
    (q, q_new, source, target), splits = update
    single = diagnose(q, q_new, source, target, **splits)
    double = lambda s: Sample(s.x.double(), s.y)  # noqa: E731
    d = diagnose(
        copy.deepcopy(q).double(),
        copy.deepcopy(q_new).double(),
        double(source),
        double(target),
        **{name: double(s) for name, s in splits.items()},
    )
    assert d.bound_core() == pytest.approx(single.bound_core(), rel=1e-4)
    assert d.risk_change == pytest.approx(single.risk_change, rel=1e-4)


class TooConfident(ClippedCrossEntropy):
    """A loss whose stated bound is wrong."""

    def bound(self, num_outputs, convention="true"):
        return 0.1


def test_bad_input(update):
    (q, q_new, source, target), splits = update
    nan = Sample(torch.full_like(target.x, torch.nan), target.y)
    cases = [
        ((q, q_new, Sample(source.x, torch.zeros_like(source.y)), target), {}, "source holds one class only"),
        ((q, lambda x: x[:, 0], source, target), {}, "new_model returned"),
        ((q, lambda x: torch.cat([x, x], dim=1), source, target), {}, "the two models must have the same outputs"),
        ((q, q_new, source, nan), {}, r"target\.x holds NaN or infinity"),
        ((q, q_new, source, Sample(target.x, target.y + 5)), {}, r"target\.y holds labels 5 to 6"),
        ((q, q_new, source, target), {"anchor_test": Sample(source.x)}, "anchor_test has no labels"),
        ((q, q_new, source, Sample(target.x[:0], target.y[:0])), {}, r"target\.x has 0 samples"),
        ((q, q_new, Sample(source.x[:0], source.y[:0]), target), {}, r"source\.x has 0 samples"),
        ((q, q_new, source, target), {"source_val": Sample(source.x[:0])}, r"source_val\.x has 0 samples"),
        ((q, q_new, source, Sample(target.x, target.y[:5])), {}, r"target\.y has shape \[5\] for"),
        ((q, q_new, source, Sample(target.x.numpy(), target.y)), {}, r"target\.x must be a torch tensor"),
        ((q, q_new, source, Sample(target.x, target.y.numpy())), {}, r"target\.y must be a torch tensor"),
        ((q, q_new, source, Sample(target.x[:, 0], target.y)), {}, r"target\.x must have shape \[n, \.\.\.\]"),
        ((q, q_new, source, Sample(target.x.long(), target.y)), {}, r"target\.x must be float32 or float64"),
        ((q, q_new, source, Sample(target.x.half(), target.y)), {}, r"target\.x must be float32 or float64"),
        ((q, q_new, source, Sample(target.x, target.y.float())), {}, r"target\.y must be an integer tensor"),
        ((q, q_new, source, Sample(target.x, target.y.to("meta"))), {}, r"target\.y on meta"),
        ((q, q_new, source, Sample(target.x.double(), target.y)), {}, "model failed on inputs"),
        ((q, q_new, source, Sample(target.x[:, :1], target.y)), {}, "model failed on inputs"),
        ((q, q_new, source, target), {"anchor_test": Sample(source.x, 0 * source.y)}, "anchor_test holds one class"),
        ((q, q_new, source, target), {"feature_map": lambda x: x[:, 0]}, "feature_map returned"),
        ((q, q_new, source, target), {**splits, "loss": TooConfident()}, "the losses of model lie in"),
    ]
    for samples, options, message in cases:
        with pytest.raises(ValueError, match=message):
            diagnose(*samples, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"q": 1.0}, "q must lie strictly between"),
        ({"delta": 0.0}, "delta must lie strictly between"),
        ({"c_h": 0.0}, "c_h must be finite and positive"),
        ({"distance": "w1"}, "distance must be one of sinkhorn, wasserstein1"),
        ({"loss_bound": "exact"}, "loss_bound must be one of true, paper"),
        ({"remainders": "none"}, "remainders must be one of corrected, paper"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        Settings(**options)
