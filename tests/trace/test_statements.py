"""The two-term bounds and the statements: closed forms, simulated worlds, what is valid, vacuous and best."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from trace import Sample, Settings, diagnose
from trace.estimators.remainders import w1_excess
from trace.losses import ClippedCrossEntropy, SquaredError
from trace.statements import bound_difference, bound_direct, proxy_event
from trace.stats.betting import confidence_sequence, tally
from trace.worlds import world

LOSS = ClippedCrossEntropy()
DIAMETER = 2 * math.sqrt(2)
"""Of the square in which the inputs of `draw` lie."""


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def linear(rows, bias=0.0):
    model = nn.Linear(2, 2, dtype=torch.float64)
    model.weight.data.copy_(torch.tensor(rows))
    model.bias.data.fill_(bias)
    return model


OLD, NEW = linear([[-1.0, 0.0], [1.0, 0.5]]), linear([[-0.5, 0.4], [1.2, 0.1]])


def draw(n, generator, shift=0.0):
    """Uniform in a square of which the target has the upper part; the labels follow one rule."""
    x = 2 * torch.rand(n, 2, generator=generator, dtype=torch.float64) - 1
    x = x + shift * (1 - x) / 2
    return Sample(x, torch.bernoulli((2 * x[:, 0] + x[:, 1]).sigmoid(), generator=generator).long())


def diagnosed(seed=0, old=OLD, new=NEW, n=300, shift=0.2, **options):
    g = seeded(seed)
    samples = [draw(n, g), draw(n, g, shift)]
    held_out = {"source_val": draw(n, g), "target_val": draw(n, g, shift)}
    options = {"settings": Settings(input_diameter=DIAMETER), **options}
    return diagnose(old, new, *samples, **held_out, **options)


def by_name(d):
    return {statement.name: statement for statement in d.statements()}


def risk(model, sample):
    return float(LOSS(model(sample.x), sample.y).mean().detach())


def test_by_hand_from_its_parts():
    d = diagnosed()
    e, share = d.evidence, 0.05 / 4 / 2  # of four valid statements, and of the two estimates of each
    g = seeded(0)
    *_, target_val = (draw(300, g, shift) for shift in (0.0, 0.2, 0.0, 0.2))
    outputs = [model(target_val.x).detach() for model in (OLD, NEW)]
    w1 = e.wasserstein1_input.value + w1_excess(300, 300, DIAMETER, share)
    norms = torch.linalg.vector_norm(outputs[1] - outputs[0], dim=1)
    mean = confidence_sequence(tally(norms, 0, LOSS.output_diameter(2)), share, "below").upper
    above = confidence_sequence(tally(math.sqrt(2) * norms, 0, LOSS.bound(2)), share, "below").upper
    found = by_name(d)
    direct = math.sqrt(2) * mean + (e.certified_source + e.certified_target) * w1
    assert found["bound_direct"].value == pytest.approx(direct, rel=1e-12)
    assert found["bound_difference"].value == pytest.approx(above + math.sqrt(2) * e.certified_change * w1, rel=1e-12)
    rows = [OLD.weight, NEW.weight]
    for constant, w in zip((e.certified_source, e.certified_target), rows, strict=True):
        longest = max(float(v.detach().norm()) for v in (w[1] - w[0], w[0], w[1]))
        assert constant == pytest.approx(longest, rel=1e-12)
    change = torch.linalg.matrix_norm((NEW.weight - OLD.weight).detach(), ord=2)
    assert e.certified_change == pytest.approx(float(change), rel=1e-9) == pytest.approx(e.jacobian_change.value)
    assert d.evidence.largest_gradient_source.value <= e.certified_source


def test_bounds_hold_on_any_population_with_the_constants_of_linear_models():
    """Two finite populations, whose W1, expectations and risks are known exactly, under arbitrary labels."""
    rng = np.random.default_rng(0)
    for seed in range(30):
        g = seeded(seed)
        source, target = draw(60, g), draw(60, g, float(rng.uniform(0, 0.8)))
        flipped = Sample(source.x, 1 - source.y)
        old, new = (linear(rng.normal(scale=2, size=(2, 2)).tolist(), rng.normal()) for _ in range(2))
        d = diagnose(old, new, source, target, source_val=source, target_val=target)
        for labelled in (source, flipped):
            change = abs(risk(new, labelled) - risk(old, labelled))
            parts = {**d.columns(), "lipschitz_loss": math.sqrt(2)}
            assert change <= bound_direct(parts, "certified") + 1e-12
            assert change <= bound_difference(parts, "certified") + 1e-12
            assert change <= d.evidence.anchor.worst_label.value + 1e-12


@pytest.mark.parametrize("name", ["blobs_shift", "moons_warp"])
@pytest.mark.parametrize("labels", ["travel", "invariant"])
def test_the_two_term_bounds_hold_where_labels_travel(name, labels):
    """Models fitted in the worlds of the paper, on test sets of their own."""
    made = world(name, severity=1.0, labels=labels)
    for seed in range(3):
        g = seeded(seed)
        source, target = made.source(300, generator=g), made.target(300, generator=g)
        old, new = (fitted(sample, seed) for sample in (source, target))
        held_out = {"source_val": made.source(300, generator=g), "target_val": made.target(300, generator=g)}
        d = diagnose(old, new, source, target, anchor_test=made.source(20_000, generator=g), **held_out)
        found = by_name(d)
        for bound in ("bound_direct", "bound_difference"):
            assert abs(d.risk_change) <= found[bound].value
            assert not found[bound].valid  # nobody said how far apart inputs can lie
            assert "than the rows that were seen do" in found[bound].needs
        assert math.isfinite(d.evidence.certified_source)


def fitted(sample, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(sample.x), sample.y).backward()
        optimiser.step()
    return model


def test_every_valid_statement_holds_as_often_as_it_says():
    """All at once, over many draws, at a level that asks for little; the labels are those of a rule that is known."""
    big = draw(400_000, seeded(99))
    change = abs(risk(NEW, big) - risk(OLD, big))
    missed, settings = 0, Settings(input_diameter=DIAMETER, delta=0.5, eta=0.4)
    for seed in range(120):
        d = diagnosed(seed, n=60, settings=settings, anchor_test=draw(60, seeded(1000 + seed)))
        valid = [s for s in d.statements() if s.valid]
        assert {s.name for s in valid} == {
            "loss_range",
            "labelled",
            "anchor_worst_label",
            "bound_direct",
            "bound_difference",
        }
        missed += any(s.value < change for s in valid)
        assert d.best() == min(valid, key=lambda s: s.value)
    assert missed / 120 <= 0.5


def test_the_same_model_twice_changes_nothing():
    d = diagnosed(new=copy.deepcopy(OLD), n=4000)
    e = d.evidence
    assert (e.certified_change, e.capped_change.value, e.jacobian_change.value) == (0.0, 0.0, 0.0)
    assert bound_difference({**d.columns(), "lipschitz_loss": math.sqrt(2)}, "certified") == 0.0
    assert bound_direct({**d.columns(), "lipschitz_loss": math.sqrt(2)}, "certified") > 0.1
    assert d.best().value < 0.1


@pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation:RuntimeWarning")
def test_constant_logits_show_why_not_through_the_conditional_risk():
    """With L_x = 0 the paper's step would leave no change of risk between domains; there is one."""
    constant = linear([[0.0, 0.0], [0.0, 0.0]])
    constant.bias.data.copy_(torch.tensor([-2.0, 2.0]))
    x = torch.cat([torch.full((50, 2), -1.0), torch.full((50, 2), 1.0)]).double()
    source, target = Sample(x[:50], torch.zeros(50).long()), Sample(x[50:], torch.ones(50).long())
    held = {"source_val": source, "target_val": target}
    source, target = (Sample(s.x.clone(), torch.tensor([0, 1]).repeat(25)) for s in (source, target))
    d = diagnose(constant, OLD, source, target, **held, settings=Settings(bandwidth=1.0))
    on_source, on_target = (risk(constant, sample) for sample in held.values())
    assert d.evidence.certified_source == d.evidence.largest_gradient_source.value == 0.0
    assert on_source - on_target == pytest.approx(4.0, rel=1e-9)  # although L_x W1 = 0
    change = abs(risk(OLD, held["source_val"]) - on_source)
    assert change <= bound_direct({**d.columns(), "lipschitz_loss": math.sqrt(2)}, "certified")


def test_clipped_outputs_may_part_faster_than_the_models():
    """Q~ = Q + 1 in one logit has a difference of constant 0; clipping takes it away within a short way."""
    old = linear([[0.0, 0.0], [20.0, 0.0]])
    new = copy.deepcopy(old)
    new.bias.data.copy_(torch.tensor([0.0, 1.0]))
    d = diagnosed(old=old, new=new)
    e = d.evidence
    assert e.certified_change == 0.0
    assert e.capped_change.value == pytest.approx(math.sqrt(2))
    assert e.held_out_distance.value < 1
    assert by_name(d)["bound_difference"].value >= e.anchor.worst_label.value


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"settings": Settings()}, "than the rows that were seen do"),
        ({"new": lambda x: NEW(x)}, "no slope is steeper than the steepest that was seen"),
    ],
)
def test_without_certified_constants_or_a_diameter_they_are_conditional_and_never_best(options, missing):
    d = diagnosed(**options)
    for name in ("bound_direct", "bound_difference"):
        assert not by_name(d)[name].valid
        assert missing in by_name(d)[name].needs
    assert d.best().name == "labelled"
    assert d.best().level == 0.95


def test_without_held_out_target_rows_there_are_none():
    g = seeded(0)
    d = diagnose(OLD, NEW, draw(50, g), draw(50, g, 0.2), settings=Settings(input_diameter=DIAMETER))
    assert {"bound_direct", "bound_difference", "anchor_worst_label"}.isdisjoint(by_name(d))
    assert "target_val" in d.reasons["held_out_distance"]
    assert (d.best().name, d.best().vacuous, d.best().value) == ("loss_range", True, LOSS.bound(2))


def test_at_the_range_of_the_loss_a_bound_is_vacuous():
    far = diagnosed(old=linear([[-9.0, 0.0], [9.0, 0.0]]), shift=0.9)
    found = by_name(far)
    for name, statement in found.items():
        assert statement.vacuous == (statement.value >= LOSS.bound(2)), name
    assert found["bound_direct"].vacuous
    assert not found["anchor_worst_label"].vacuous
    assert not any(found[name].valid for name in found if name.startswith(("bound_ot", "bound_full", "bound_mmd")))


def test_the_papers_smaller_range_makes_nothing_vacuous_too_soon():
    d = diagnosed(settings=Settings(loss_bound="paper"))
    assert by_name(d)["loss_range"].value == LOSS.bound(2) > d.evidence.loss_bound


def test_an_unbounded_loss_leaves_no_statement():
    g = seeded(0)
    samples = [Sample(s.x, s.x[:, 0] + s.y) for s in (draw(50, g), draw(50, g, 0.2))]
    old, new = (nn.Linear(2, 1, dtype=torch.float64) for _ in range(2))
    d = diagnose(old, new, *samples, source_val=samples[0], target_val=samples[1], loss=SquaredError())
    assert d.best() is None
    assert not any(s.valid for s in d.statements())
    assert "no finite Lipschitz constant" in d.reasons["certified_source"]
    assert "no limit" in d.reasons["largest_gradient_source"]


def test_a_diameter_that_the_rows_exceed_is_refused():
    with pytest.raises(
        ValueError, match=r"input_diameter is 0.5, but a row lies 1\.\d+ from the mean of all: raise it"
    ):
        diagnosed(settings=Settings(input_diameter=0.5))


def test_the_event_of_the_corollary():
    """A quantile below a gradient that was seen fails; one at the certified constant holds."""
    assert diagnosed().proxy_events() == {"source": "fails", "target": "fails"}
    assert proxy_event(2.0, math.nan, math.nan) == "unknown"
    assert proxy_event(math.nan, 1.0, 1.0) == "unknown"
    still = diagnosed(old=linear([[0.0, 0.0], [0.0, 0.0]]))
    assert still.proxy_events()["source"] == "holds"


def test_records_hold_statements_and_the_best():
    record = diagnosed().as_dict()
    assert record["best"]["name"] == "labelled"
    assert record["statements"]["bound_direct"]["valid"] is True
    assert record["proxy_events"] == {"source": "fails", "target": "fails"}
    columns = diagnosed().columns()
    assert columns["empirical_shift"] == record["empirical"]["shift"] > 0
    assert columns["certified_change"] == record["certified_change"]


def test_rows_that_are_not_held_out_make_no_statement():
    """Nothing is stated of the anchor's or the target's rows where the reasons say that they are training rows."""
    g = seeded(3)
    samples = {"source": draw(300, g), "target": draw(300, g, 0.2)}
    held_out = {"source_val": draw(300, g), "target_val": draw(300, g, 0.2)}

    def names(**rows):
        d = diagnose(OLD, NEW, **samples, **rows, settings=Settings(input_diameter=DIAMETER))
        return {
            name for name in by_name(d) if not name.startswith(("bound_full", "bound_ot", "bound_mmd", "bound_hybrid"))
        }

    of_anchor, of_target = {"anchor_worst_label", "labelled"}, {"bound_direct", "bound_difference"}
    everything = {"loss_range", *of_anchor, *of_target}
    assert names(**held_out) == everything
    assert names(target_val=held_out["target_val"]) == everything - of_anchor
    assert names(source_val=held_out["source_val"]) == everything - of_target
    assert names(**{**held_out, "source_val": samples["source"]}) == everything - of_anchor
    assert names(**{**held_out, "target_val": samples["target"]}) == everything - of_target
