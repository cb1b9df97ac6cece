"""Views: what is known is not computed again, and what is computed equals the estimators."""

import functools
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from trace import Sample, Settings, diagnose
from trace import evidence as shift_module
from trace.estimators import gradient_quantile, mmd
from trace.estimators import sinkhorn as transport
from trace.estimators.gradient_quantile import NoGradientError
from trace.evidence import Known, Update, View, measure_shift, shared_self
from trace.losses import ClippedCrossEntropy, SquaredError

LOSS = ClippedCrossEntropy()


@pytest.fixture
def sample(generator):
    x = torch.randn(50, 3, generator=generator)
    return Sample(x, (x[:, 0] > 0).long())


@pytest.fixture
def model(generator):
    network = nn.Linear(3, 2)
    with torch.no_grad():
        network.weight.copy_(torch.randn(2, 3, generator=generator))
    network.calls = 0
    network.register_forward_hook(lambda module, *_: setattr(module, "calls", module.calls + 1))
    return network


def view(sample, model, new=lambda x: -x[:, :2], loss=LOSS, **options):
    known = {name: options.pop(name) for name in ("outputs", "new_outputs", "features") if name in options}
    return View(sample, Update((model, new), loss, Settings(batch_size=30), **options), **known)


def test_outputs_and_sensitivities_are_computed_once(model, sample):
    seen = view(sample, model)
    assert torch.equal(seen.outputs, model(sample.x))
    assert seen.outputs is seen.outputs
    assert torch.equal(seen.losses(0), LOSS(seen.outputs, sample.y))
    assert torch.equal(seen.losses(1), LOSS(-sample.x[:, :2], sample.y))
    calls = model.calls
    assert seen.sensitivity is seen.sensitivity
    assert model.calls == calls + 2  # batches of 30
    assert seen.sensitivity == gradient_quantile(model, sample.x, sample.y, LOSS, q=0.99)
    assert view(Sample(2 * sample.x, sample.y), model).sensitivity != seen.sensitivity


def test_pseudo_labels_are_the_old_models(model, sample):
    given, pseudo = view(sample, model), view(Sample(sample.x), model)
    assert (given.new_sensitivity.pseudo_labels, pseudo.new_sensitivity.pseudo_labels) == (False, True)
    labels = model(sample.x).argmax(dim=1)
    expected = gradient_quantile(lambda x: -x[:, :2], sample.x, labels, LOSS, q=0.99)
    assert pseudo.new_sensitivity == expected._replace(pseudo_labels=True)


def test_saved_outputs_are_taken_as_they_are(sample):
    def refuse(x):
        raise NoGradientError("only outputs are known")

    outputs = torch.stack([sample.x[:, 0], -sample.x[:, 0]], dim=1)
    seen = view(sample, refuse, outputs=outputs)
    assert seen.outputs is outputs
    assert torch.equal(seen.losses(0), LOSS(outputs, sample.y))
    assert seen.sensitivity == "only outputs are known"
    for known in ("outputs", "new_outputs", "features"):
        with pytest.raises(ValueError, match="3 saved rows for 50 samples"):
            view(sample, refuse, **{known: outputs[:3]})


def test_regression_has_no_pseudo_labels(model, sample):
    assert "no pseudo-labels for regression" in view(Sample(sample.x), model, loss=SquaredError()).sensitivity


def test_features_are_computed_once(model, sample):
    batches = []
    seen = view(sample, model, feature_map=lambda x: batches.append(len(x)) or x)
    assert torch.equal(seen.features, sample.x)
    assert seen.features is seen.features
    assert batches == [30, 20]
    assert view(sample, model, features=sample.x).features is sample.x


def test_shared_views_are_not_computed_again_and_change_nothing(model, sample):
    target = Sample(sample.x + 0.5, sample.y)
    calls = []

    def new(x):
        calls.append(len(x))
        return -model(x)

    @contextmanager
    def stage(name):
        stages.append(name)
        yield

    def one(**known):
        return diagnose(model, new, sample, target, source_val=sample, target_val=held_out, known=Known(**known))

    held_out, stages = Sample(target.x + 0.1, target.y), []
    plain = one()
    views = {
        name: View(s, Update((model, new), LOSS, Settings()))
        for name, s in (("target", target), ("target_val", held_out))
    }
    first = one(views=views, stage=stage)
    assert stages == ["outputs", "gradients", "shift", "kernel norm"]
    calls.clear()
    second = one(views=views, target_self=shared_self(target.x, Settings()))
    assert calls == [50]  # on the anchor alone
    assert plain.evidence == first.evidence == second.evidence


def test_views_of_something_else_are_refused(model, sample):
    target = Sample(sample.x + 0.5, sample.y)
    new = nn.Linear(3, 2)
    for sample_seen, models in ((Sample(target.x, target.y), (model, new)), (target, (new, model))):
        known = Known(views={"target": View(sample_seen, Update(models, LOSS, Settings()))})
        with pytest.raises(ValueError, match="the known view of target is of another sample or other models"):
            diagnose(model, new, sample, target, known=known)


@pytest.fixture
def samples(generator):
    return torch.randn(60, 3, generator=generator), torch.randn(40, 3, generator=generator) + 1


def test_of_large_samples_some_rows_at_even_strides_enter_the_mmd(samples):
    x, y = samples
    whole, few = measure_shift(x, y), measure_shift(x, y, Settings(mmd_samples=20))
    kept = [torch.linspace(0, n - 1, 20).round().long() for n in (60, 40)]
    assert few.mmd == mmd(x[kept[0]], y[kept[1]])
    assert whole.mmd == mmd(x, y)
    assert few.transport == whole.transport


def test_floors_are_those_of_the_sizes_compared(samples, generator, monkeypatch):
    x, y = samples
    whole = measure_shift(x, y, generator=generator)
    assert (whole.floor.sample_sizes, whole.target_floor.sample_sizes) == ((30, 30), (20, 20))
    monkeypatch.setattr(shift_module, "most_samples", lambda device: 50)
    few = functools.partial(transport.sinkhorn_divergence, subsample=15)
    monkeypatch.setattr(shift_module, "sinkhorn_divergence", few)
    found = measure_shift(x, y, generator=generator)
    assert found.transport.sample_sizes == (15, 15)
    assert found.floor.sample_sizes == found.target_floor.sample_sizes == (15, 15)


def test_the_remainder_counts_the_rows_that_entered(samples):
    x, y = samples
    pair = Sample(x, (x[:, 0] > 0).long()), Sample(y, (y[:, 0] > 1).long())
    models = (lambda x: x[:, :2], lambda x: 2 * x[:, :2])
    whole, few = (diagnose(*models, *pair, settings=Settings(mmd_samples=rows)) for rows in (100, 20))
    norms = [d.evidence.rkhs_norm.value for d in (whole, few)]
    assert few.population_mmd / norms[1] > 1.2 * whole.population_mmd / norms[0]


def test_samples_are_named(samples):
    x, y = samples
    with pytest.raises(ValueError, match="target has 1 samples, at least 2 are needed"):
        measure_shift(x, y[:1])
    with pytest.raises(ValueError, match="source has 1 samples, at least 2 are needed"):
        measure_shift(x[:1], y)
    still = torch.zeros(200, 3)
    with pytest.raises(ValueError, match=r"most rows of source and target coincide.*Settings\(bandwidth=\.\.\.\)"):
        measure_shift(x, still)
    assert measure_shift(x, still, Settings(bandwidth=1.0)).mmd.value > 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kernel": "cosine"}, "kernel must be 'rbf' or 'laplace', got 'cosine'"),
        ({"bandwidth": 0.0}, "bandwidth must be finite and positive, got 0"),
        ({"bandwidth": -1.0}, "bandwidth must be finite and positive, got -1"),
        ({"bandwidth": 1e-20}, "bandwidth must be at least 1e-15"),
        ({"mmd_constant": -1.0}, "mmd_constant must be finite and at least 0, got -1"),
        ({"mmd_samples": 1}, "mmd_samples must be at least 2"),
        ({"delta": 0.6, "eta": 0.5}, "delta \\+ eta must lie strictly between 0 and 1"),
    ],
)
def test_settings_are_refused_when_they_are_made(wrong, message):
    with pytest.raises(ValueError, match=message):
        Settings(**wrong)


def test_levels_as_printed_do_not_share_a_budget():
    assert Settings(delta=0.6, eta=0.5, remainders="paper").delta == 0.6


def test_other_settings_are_refused(samples):
    x, y = samples
    with pytest.raises(ValueError, match="another mmd_samples"):
        measure_shift(x, y).check(Settings(mmd_samples=20), (60, 40))
    with pytest.raises(ValueError, match="mmd_samples"):
        Settings(mmd_samples=0)


def test_what_is_shared_between_comparisons_changes_nothing(samples, monkeypatch):
    x, y = samples
    whole = measure_shift(x, y, generator=torch.Generator().manual_seed(0))
    shared = measure_shift(x, y, source_self=shared_self(x, Settings()), floors=False, generator=torch.Generator())
    assert (shared.transport, shared.mmd) == (whole.transport, whole.mmd)
    assert whole.floor is not None
    assert (shared.floor, shared.target_floor) == (None, None)
    assert shared_self(x, Settings(distance="wasserstein1")) is None
    monkeypatch.setattr(shift_module, "most_samples", lambda device: 50)
    assert shared_self(x, Settings()) is None


def test_rows_that_are_not_held_out_are_noticed(sample, model, generator):
    """Copies and repetitions, in the library as on the command line; who knows better says so."""
    other = Sample(torch.randn(60, 3, generator=generator), torch.arange(60) % 2)
    ten = torch.arange(10).repeat(6)

    def reasons(known=None, **held_out):
        return diagnose(model, lambda x: -x[:, :2], sample, other, known=known, **held_out).reasons

    fresh = Sample(torch.randn(60, 3, generator=generator), torch.arange(60) % 2)
    assert not {"anchor", "target", "anchor_test"} & set(reasons(source_val=fresh, target_val=fresh, anchor_test=fresh))
    copied = reasons(source_val=sample, target_val=other.at(torch.arange(60).flip(0)), anchor_test=sample)
    assert copied["anchor"].startswith("all 50 held-out rows are the training rows")
    assert copied["target"].startswith("60 of the 60 held-out rows are among the training rows")
    assert copied["anchor_test"] == copied["anchor"]
    assert "60 held-out rows are 10 rows repeated" in reasons(source_val=fresh.at(ten))["anchor"]
    assert "anchor" not in reasons(known=Known(faults={}), source_val=sample)


def test_labels_of_rows_that_are_not_held_out_do_not_count(sample, model, generator):
    """The next sample that has labels and is held out takes their place; without one there are none."""
    other = Sample(torch.randn(60, 3, generator=generator), torch.arange(60) % 2)
    fresh = Sample(torch.randn(70, 3, generator=generator), torch.arange(70) % 2)

    def labelled(**held_out):
        return diagnose(model, lambda x: -x[:, :2], sample, other, **held_out)

    assert labelled(anchor_test=fresh, source_val=sample).evidence.labelled.sample == "anchor_test"
    assert labelled(anchor_test=sample, source_val=fresh).evidence.labelled.sample == "source_val"
    for held_out in ({"source_val": sample}, {"anchor_test": sample, "source_val": Sample(fresh.x)}):
        d = labelled(**held_out)
        assert d.evidence.labelled is None
        assert "class" not in d.evidence.slices
        assert d.reasons["labelled"] == "needs labels on anchor rows that no model was trained on"


def test_the_tolerance_of_a_distance_is_a_setting(samples):
    x, y = samples
    loose, tight = (measure_shift(x, y, Settings(tol=tol)) for tol in (0.1, 1e-7))
    assert 1e-7 < loose.transport.marginal_error <= 0.1
    assert tight.transport.marginal_error <= 1e-7
    assert loose.transport.num_iters < tight.transport.num_iters
    with pytest.raises(ValueError, match="measured with another tol"):
        loose.check(Settings(), (len(x), len(y)))
    with pytest.raises(ValueError, match="tol must be"):
        Settings(tol=0.0)
