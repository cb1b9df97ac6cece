"""The library on a device that is not the CPU: the same numbers, no tensor on the wrong side, few copies off it."""

import copy
from dataclasses import asdict

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from tests.device import NAME, Meter, counted, without_float64
from trace import Sample, diagnose
from trace.baselines import cbpe, label_free
from trace.estimators import (
    anchor_terms,
    gradient_quantile,
    mmd,
    output_distance,
    rkhs_norm,
    sinkhorn_divergence,
    sinkhorn_floor,
    validation_gap,
    wasserstein1,
)
from trace.estimators.certified import certified_lipschitz
from trace.estimators.jacobians import slopes
from trace.estimators.labelled import labelled_change, slices
from trace.gate import Labelling
from trace.hardware import doubled, free_bytes, has_float64, placed, wide
from trace.losses import ClippedCrossEntropy
from trace.selection import mmdmin, random, w1min

pytestmark = pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation:RuntimeWarning")


def drawn(seed, n, d=6):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def new_generator():
    return torch.Generator().manual_seed(0)


X, Y = drawn(1, 300), drawn(2, 250) + 0.3
LABELS = torch.randint(3, (300,), generator=new_generator())
MODEL = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).requires_grad_(False)
for number, parameter in enumerate(MODEL.parameters()):
    parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)) / 2)
NEW_MODEL = copy.deepcopy(MODEL)
NEW_MODEL[2].bias += torch.tensor([0.5, 0.0, 0.0])
LOSS = ClippedCrossEntropy()


def diagnosed(device):
    def part(x, y):
        return Sample(x.to(device), y.to(device))

    return diagnose(
        copy.deepcopy(MODEL).to(device),
        copy.deepcopy(NEW_MODEL).to(device),
        part(X[:150], LABELS[:150]),
        part(Y[:100], LABELS[:100]),
        source_val=part(X[150:], LABELS[150:]),
        target_val=part(Y[100:], LABELS[100:250]),
        anchor_test=part(X, LABELS),
        loss=LOSS,
        generator=new_generator(),
    )


def slopes_of(device):
    models = [copy.deepcopy(model).to(device) for model in (MODEL, NEW_MODEL)]
    gradients, change = slopes(models, X.to(device), LOSS, num_outputs=3)
    return [value._asdict() for value in (*gradients, change)]


def decided(device):
    labelling = Labelling(MODEL(X).to(device), NEW_MODEL(X).to(device), limit=0.2, generator=new_generator())
    rows = labelling.next_rows(10)
    labelling.tell(rows, LABELS[rows])
    return asdict(labelling.state)


def baselines(device):
    outputs, updated = MODEL(X).to(device), NEW_MODEL(X).to(device)
    marginal = torch.full((3,), 1 / 3, device=device)
    seen = {"source": updated, "target": updated, "old_target": outputs, "target_labels": LABELS.to(device)}
    return label_free({**seen, "label_marginal": marginal}) | {"cbpe": cbpe(updated, LABELS.to(device), outputs)}


STAGES = {
    "sinkhorn": (lambda d: sinkhorn_divergence(normalize(X).to(d), normalize(Y).to(d)), 60),
    "sinkhorn, log domain": (lambda d: sinkhorn_divergence(X.to(d), Y.to(d)), 80),
    "sinkhorn, weights": (
        lambda d: sinkhorn_divergence(X.to(d), Y.to(d), x_weights=torch.arange(300.0, device=d)),
        120,
    ),
    "sinkhorn, float64": (lambda d: sinkhorn_divergence(1e4 * X.to(d), 1e4 * Y.to(d)), 240),
    "sinkhorn, draws": (
        lambda d: sinkhorn_divergence(
            normalize(X).to(d), normalize(Y).to(d), max_samples=100, subsample=50, generator=new_generator()
        ),
        5 * 60,
    ),
    "floor": (lambda d: sinkhorn_floor(normalize(X).to(d), generator=new_generator()), 160),
    "w1": (lambda d: wasserstein1(X.to(d), Y.to(d)), 6),
    "w1, assignment": (lambda d: wasserstein1(X[:250].to(d), Y.to(d)), 8),
    "mmd": (lambda d: mmd(X.to(d), Y.to(d)), 16),
    "mmd, laplace": (lambda d: mmd(X.to(d), Y.to(d), kernel="laplace"), 12),
    "mmd, block": (lambda d: mmd(X.to(d), Y.to(d), estimator="block", generator=new_generator()), 12),
    "mmd, linear": (lambda d: mmd(X.to(d), Y.to(d), estimator="linear", generator=new_generator()), 12),
    "mmd, float64": (lambda d: mmd(1e5 + X.to(d), 1e5 + Y.to(d), bandwidth=0.1), 12),
    "kernel ridge": (lambda d: rkhs_norm(X.to(d), X[:, 0].sin().to(d)), 12),
    "gradients": (lambda d: gradient_quantile(copy.deepcopy(MODEL).to(d), X.to(d), LABELS.to(d), LOSS), 6),
    "output distance": (lambda d: output_distance(MODEL(X).to(d), NEW_MODEL(X).to(d)), 4),
    "anchor terms": (lambda d: anchor_terms(MODEL(X).to(d), NEW_MODEL(X).to(d), LOSS), 13),
    "labelled change": (lambda d: labelled_change(MODEL(X).to(d), NEW_MODEL(X).to(d), LABELS.to(d), LOSS), 9),
    "slices": (lambda d: slices(MODEL(X).to(d), NEW_MODEL(X).to(d), LABELS.to(d), "abc", LABELS.to(d)), 15),
    "certified": (lambda d: certified_lipschitz(copy.deepcopy(MODEL).to(d), X.to(d)), 6),
    "slopes": (slopes_of, 22),
    "labelling": (decided, 11),
    "baselines": (baselines, 41),
    "gap": (lambda d: validation_gap(X[:, 0].abs().to(d), Y[:, 0].abs().to(d)), 4),
    "mmdmin": (lambda d: mmdmin(X.to(d), Y.to(d), 20), 19),
    "w1min": (lambda d: w1min(X.to(d), Y.to(d), 20), 20 * 10),
    "random": (lambda d: random(X.to(d), Y.to(d), 20, generator=new_generator()), 2),
    "diagnose": (lambda d: diagnosed(d).columns(), 870),
}
"""What runs on a device, and how many copies off it that may make: one a sweep of Sinkhorn, a few a pick of w1min, and
else as many as there are checks and results."""


def plain(value):
    """Tensors off their device, as lists."""
    if isinstance(value, torch.Tensor):
        return value.cpu().tolist()
    if hasattr(value, "_asdict"):
        return {name: plain(part) for name, part in value._asdict().items()}
    return value


@pytest.mark.parametrize("name", STAGES)
def test_values_are_those_of_the_cpu_in_every_digit(name):
    stage, most = STAGES[name]
    with counted(most):
        found = stage(NAME)
    assert repr(plain(found)) == repr(plain(stage("cpu")))


@pytest.mark.parametrize("name", STAGES)
def test_no_stage_needs_float64_of_the_device(name):
    stage, _ = STAGES[name]
    expected = plain(stage("cpu"))
    with without_float64():
        found = plain(stage(NAME))
    decisive = [key for key in ("value", "squared", "objective", "indices", "transport", "mmd_squared") if key in found]
    for key in decisive:
        assert found[key] == pytest.approx(expected[key], rel=1e-3, nan_ok=True), key
    if not decisive:
        assert leaves(found) == pytest.approx(leaves(expected), rel=1e-3, nan_ok=True)


def leaves(value):
    """All numbers of a result, in their order."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
    found = [leaves(part) if isinstance(part, dict | list | tuple) else [part] for part in parts]
    return [x for part in found for x in part if isinstance(x, int | float)]


def test_a_stage_that_mixes_devices_is_refused():
    with pytest.raises(RuntimeError, match="all tensors to be on the same device"):
        X.to(NAME) + X
    with pytest.raises(ValueError, match=f"x is on {NAME}:0 but y is on cpu"):
        mmd(X.to(NAME), Y)


def test_every_copy_is_counted():
    x, before = X.to(NAME), Meter.transfers
    assert float(x.sum()) == float(X.sum())
    assert bool((x.cpu() == X).all())
    assert torch.equal(x, x)
    assert Meter.transfers == before + 3
    with pytest.raises(AssertionError, match="1 copies off the device, at most 0"), counted(0):
        x.tolist()


def test_hardware_knows_its_device(monkeypatch):
    cpu, device = torch.device("cpu"), torch.device(NAME, 0)
    assert has_float64(device)
    assert wide(device) == torch.float64
    with without_float64():
        assert not has_float64(device)
        assert (wide(device), wide(cpu)) == (torch.float32, torch.float64)
        assert doubled(X.to(NAME)).device == cpu
        assert torch.equal(doubled(X.to(NAME)), X.double())
        assert placed(X.double(), device).dtype == torch.float32
    assert placed(X.double(), device).dtype == torch.float64
    assert 0 < free_bytes(cpu) < 2**50
    assert free_bytes(device) > 0
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 7)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 1000))
    assert free_bytes(torch.device("cuda")) == 105
