"""Cells: a pair does not depend on what else its cell holds, and is what a plain loop trains."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from experiments.engine.errors import UserError
from experiments.engine.seeds import seeded
from experiments.pairs.train import (
    PROTOCOLS,
    Member,
    ModelSpec,
    draw_source,
    draw_target,
    feature_map,
    fit_sources,
    fit_updates,
    members,
    protocol,
)
from trace import Sample
from trace.features import identity
from trace.worlds import world

SPEC = ModelSpec("mlp", [8], "tanh", "penultimate", [0.0, 1e-2], 1e-2, 2, 1e-3, 3)
LOGISTIC = ModelSpec("logistic", [], "relu", "identity", [1e-4, 1e-2])


def cell(severities=(0.0, 1.0), seeds=(0, 1), n=80):
    made = {severity: world("moons_warp", severity=severity) for severity in severities}
    sources = {seed: draw_source(made[severities[0]], n, seed) for seed in seeds}
    targets = {(s, seed): draw_target(made[s], n, seed) for s in severities for seed in seeds}
    return sources, targets


def test_generators_differ_by_purpose_and_repeat():
    draws = [torch.rand(3, generator=seeded(*p)).tolist() for p in (("a", 0), ("a", 1), ("b", 0), ("a", 0))]
    assert draws[0] == draws[3]
    assert len({tuple(d) for d in draws}) == 3


def test_splits_are_stratified_and_fresh_unless_shared():
    made = world("blobs_shift", severity=0.5)
    source, target = draw_source(made, 200, 3), draw_target(made, 200, 3)
    shared = draw_target(made, 200, 3, shared=True)
    assert len(source.val.x) == len(target.val.x) == 30
    both = torch.cat([source.train.x, source.val.x])
    moved = torch.cat([shared.train.x, shared.val.x])
    torch.testing.assert_close(moved.sum(0), both.sum(0) + torch.tensor([100.0, 0.0]), rtol=1e-4, atol=1e-3)
    assert not torch.allclose(target.train.x.sum(), shared.train.x.sum())


@pytest.mark.parametrize("spec", [SPEC, ModelSpec("mlp", [8], "relu", "identity", [0.0], 1e-2, 2, 0.0, 0), LOGISTIC])
def test_a_pair_is_the_same_alone_and_in_a_cell(spec):
    sources, targets = cell()
    pairs = members((0.0, 1.0), spec, (0, 1))
    together = fit_updates(spec, fit_sources(spec, sources), targets, pairs)
    chosen = pairs[-1]
    q = fit_sources(spec, {chosen.seed: sources[chosen.seed]})
    alone = fit_updates(spec, q, {(chosen.severity, chosen.seed): targets[chosen.severity, chosen.seed]}, [chosen])
    sample = targets[chosen.severity, chosen.seed].train
    losses = [
        float(cross_entropy(model(sample.x), sample.y).detach())
        for model in (together.member(len(pairs) - 1), alone.member(0))
    ]
    assert abs(losses[0] - losses[1]) < 1e-6


def test_updates_start_from_their_own_source_model():
    sources, targets = cell()
    still = ModelSpec("mlp", [8], "tanh", "penultimate", [0.0, 1e-2], 1e-2, 2, 0.0, 1)
    q = fit_sources(still, sources)
    pairs = members((1.0,), still, (1, 0))
    updates = fit_updates(still, q, targets, pairs)
    x = sources[0].val.x
    for i, pair in enumerate(pairs):
        before = q.stack.member(q.position[pair.weight_decay, pair.seed])
        torch.testing.assert_close(updates.member(i)(x), before(x))


def test_a_world_of_three_classes_is_refused_by_name(monkeypatch):
    made = world("moons_warp")
    three = Sample(torch.zeros(6, 2), torch.tensor([0, 1, 2, 0, 1, 2]))
    for draw, side in ((draw_source, "source"), (draw_target, "target")):
        monkeypatch.setattr(type(made), side, lambda *_, **__: three)
        with pytest.raises(UserError, match="moons_warp draws labels from 0 to 2 and declares 2 classes: make them"):
            draw(made, 6, 0)


def test_every_severity_decay_and_seed_is_a_member():
    pairs = members((0.0, 1.0), SPEC, (0, 1, 2))
    assert len(set(pairs)) == 2 * 2 * 3
    assert Member(1.0, 1e-2, 2, 1e-3) in pairs


def test_feature_maps():
    sources, _ = cell()
    q = fit_sources(SPEC, sources).stack.member(0)
    u = feature_map(SPEC, q)(sources[0].val.x)
    assert u.shape == (len(sources[0].val.x), 8)
    torch.testing.assert_close(u.norm(dim=1), torch.ones(len(u)))
    assert feature_map(LOGISTIC, q) is identity
    with pytest.raises(ValueError, match="features must be identity, or penultimate"):
        feature_map(ModelSpec("linear", [], features="penultimate"), q)


def test_every_world_has_a_protocol():
    assert [spec.name for spec in protocol("blobs_shift")] == ["logistic", "mlp"]
    assert protocol("a world of one's own") == [ModelSpec()]
    assert all(spec.features == "identity" for spec in PROTOCOLS["blobs_shift"])
