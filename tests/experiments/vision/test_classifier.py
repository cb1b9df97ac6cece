"""Heads on features that were computed once say what the models themselves say, and the diagnostic is the same."""

import pytest
import torch

from experiments.pairs.measure import row
from experiments.pairs.settings import MeasureConfig
from experiments.vision.backbone import BackboneSpec, load_backbone
from experiments.vision.batches import Rows
from experiments.vision.classifier import at_depth, beside, features_of, heads, new_classifier
from experiments.vision.finetune import TrainSpec, train
from experiments.vision.study import Domain, error, sample
from trace import Sample, diagnose
from trace.evidence import Known, measure_shift

LOSS, SETTINGS = MeasureConfig().loss(), MeasureConfig().settings()

pytestmark = pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation:RuntimeWarning")


def view(model, domain):
    return Domain(*(features_of(model, rows, device="cpu") for rows in domain))


@pytest.fixture(scope="module")
def backbone():
    return load_backbone(BackboneSpec(arch="test_efficientnet", weights="none", size=32))


@pytest.fixture(scope="module")
def pair(backbone):
    """Q on the backbone's last block, an update of both, and two domains of maps."""
    generator = torch.Generator().manual_seed(0)
    shape = backbone.trunk()(torch.zeros(1, 3, 32, 32)).shape[1:]

    def rows(n, offset):
        y = torch.arange(n) % 3
        return Rows(torch.randn(n, *shape, generator=generator) + offset + y[:, None, None, None], y)

    source, target = (Domain(rows(40, o), rows(24, o), rows(30, o)) for o in (0.0, 0.5))
    q = at_depth(new_classifier(backbone.dim, 3, scale=3.0), "block", backbone)
    q = train(TrainSpec(depth="block", lr=0.01, epochs=2), q, source.train, generator=generator).model
    update = train(TrainSpec(depth="block", lr=0.05, epochs=2), q, target.train, generator=generator).model
    return q, update, source, target


def test_both_heads_give_their_models_logits(pair):
    q, update, source, _ = pair
    both = beside(view(q, source).val, features_of(update, source.val, device="cpu"), source.val.y)
    old, new = heads(q, update)
    assert torch.allclose(old(both.x), q(source.val.x), atol=1e-5)
    assert torch.allclose(new(both.x), update(source.val.x), atol=1e-5)
    assert not torch.allclose(old(both.x), new(both.x), atol=1e-2)
    assert error(new, both) == error(update, sample(source.val))


def test_the_diagnostic_is_that_of_the_models_themselves(pair):
    q, update, source, target = pair
    seen, seen_target = view(q, source), view(q, target)
    shift = measure_shift(seen.train, seen_target.train, SETTINGS)
    options = {"loss": LOSS, "known": Known(shift=shift), "settings": SETTINGS}
    direct = diagnose(
        q,
        update,
        sample(source.train),
        sample(target.train),
        source_val=sample(source.val),
        target_val=sample(target.val),
        anchor_test=sample(source.test),
        feature_map=q.features,
        gradient_at=(q.features, update.features),
        **options,
    )

    def both(rows, by_q):
        return beside(by_q, features_of(update, rows, device="cpu"), rows.y)

    old, new = heads(q, update)
    through = diagnose(
        old,
        new,
        Sample(seen.train, source.train.y),
        both(target.train, seen_target.train),
        source_val=both(source.val, seen.val),
        target_val=both(target.val, seen_target.val),
        anchor_test=both(source.test, seen.test),
        feature_map=old.features,
        gradient_at=(old.features, new.features),
        **options,
    )
    for name, value in row(direct).items():
        assert row(through)[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name


def test_the_models_keep_their_heads(pair):
    q, update, *_ = pair
    old, new = heads(q, update)
    old.head.weight.data.zero_()
    assert q.head.weight.abs().sum() > 0
    assert new.head.weight.equal(update.head.weight)
