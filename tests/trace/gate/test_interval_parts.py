"""Parts of gate scores: which rows entered, which band counts, and what is said of the approximations."""

import math

import pytest
import torch

from trace import Policy, Sample, Settings, decide, diagnose
from trace.estimators import gradient_quantile
from trace.gate.intervals import held_out_distance, mmd, score_interval, sensitivity, training_distance, transport
from trace.losses import ClippedCrossEntropy
from trace.report.verdict import to_text
from trace.stats.betting import sequence_ranks

pytestmark = pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation")

W = torch.tensor([[1.0, -1.0], [0.5, 1.0]], dtype=torch.float64)


def old(x):
    return x @ W


def new(x):
    return x @ (1.3 * W + 0.2)


def draw(n, g, shift=0.0):
    x = shift + torch.randn(n, 2, generator=g, dtype=torch.float64)
    return Sample(x, (x.sum(dim=1) > 0).long())


def diagnosed(g, **settings):
    return diagnose(
        old,
        new,
        draw(300, g),
        draw(200, g, 0.7),
        source_val=draw(300, g),
        target_val=draw(200, g, 0.7),
        settings=Settings(q=0.9, **settings),
        generator=g,
    )


def test_only_rows_that_entered_the_mmd_count(generator):
    whole, few = (diagnosed(generator, mmd_samples=rows) for rows in (20_000, 150))
    part = mmd(whole.as_dict(), 0.05)
    assert (part.sample, part.size, part.thinned) == ("target", 200, False)
    part = mmd(few.as_dict(), 0.05)
    assert (part.size, part.thinned) == (150, True)
    assert "150 rows of a sample enter the MMD at most: raise mmd_samples" in part.note


def test_only_held_out_rows_give_a_population_interval(generator):
    """The model change on training rows is given: it spends nothing and its ends are its value."""
    record = diagnosed(generator).as_dict()
    trained, held_out = training_distance(record, 0.05), held_out_distance(record, 0.05)
    assert trained[:3] == (record["output_distance"]["value"],) * 3
    assert held_out.lower < held_out.value < held_out.upper
    (verdict,) = decide({"a": record}, Policy(19.0, "bound_ot")).anchors
    assert "the model change is that of the target's training rows, taken as given" in verdict.notes
    shares = {name: part for name, part in record.items() if name != "output_distance"}
    moved = {**shares, "output_distance": {**record["output_distance"], "value": 0.0}}
    found, without = score_interval(record, "bound_ot"), score_interval(moved, "bound_ot")
    change = record["lipschitz_loss"] * record["output_distance"]["value"]
    assert (found.lower - without.lower, found.upper - without.upper) == pytest.approx((change, change))


def test_more_rows_that_do_not_enter_would_not_decide(generator):
    whole, few = (diagnosed(generator, mmd_samples=rows) for rows in (20_000, 150))
    for d, useless in ((whole, False), (few, True)):
        found = score_interval(d, "trace_mmd")
        wide = (found.value + found.upper) / 2
        (verdict,) = decide({"a": d}, Policy(wide, "trace_mmd")).anchors
        blames_mmd = found.widest.thinned
        assert verdict.decision == "inconclusive"
        assert (verdict.needed is None) == blames_mmd == useless
        assert ("samples would decide" in verdict.reason) == (not useless)
        assert any("raise mmd_samples" in note for note in verdict.notes) == useless


def test_subsampled_transport_says_so(generator):
    record = diagnosed(generator).as_dict()
    assert not transport(record, 0.05).thinned
    record["transport"] |= {"sample_sizes": (120, 120), "num_draws": 5}
    part = transport(record, 0.05)
    assert (part.size, part.thinned) == (120, True)
    assert "compares 120 rows at a time" in part.note


def test_the_narrowest_band_that_is_strict_enough_counts(generator):
    x = torch.randn(2000, 2, generator=generator, dtype=torch.float64)
    found = gradient_quantile(old, x, (x[:, 0] > 0).long(), ClippedCrossEntropy(), q=0.99, eta=0.01)
    record = {"sensitivity_target": found._asdict(), "reasons": {}}
    part = sensitivity("sensitivity_target", "target", record, 0.012)
    level, lower, upper = max(band for band in found.bands if band[0] <= 0.012)
    assert 0.006 < level <= 0.012
    assert (part.lower, part.upper) == (lower, upper)
    assert part.upper < math.inf
    few = gradient_quantile(old, x[:100], (x[:100, 0] > 0).long(), ClippedCrossEntropy(), q=0.99)
    part = sensitivity("sensitivity_target", "target", {"sensitivity_target": few._asdict(), "reasons": {}}, 0.05)
    assert math.isinf(part.upper)
    assert sequence_ranks(part.least, 0.99, 0.05)[1] <= part.least
    assert sequence_ranks(part.least - 1, 0.99, 0.05)[1] > part.least - 1


def test_normal_approximations_are_named(generator):
    d = diagnosed(generator)
    for score, what in (("trace_w", "transport distance"), ("trace_mmd", "MMD")):
        text = to_text(decide({"a": d}, Policy(100.0, score)))
        asymptotic = "is asymptotic, a normal approximation, and promises nothing across reruns"
        assert f"\nThe interval of the {what} {asymptotic}.\n" in text
    assert "asymptotic" not in to_text(decide({"a": d}, Policy(0.5)))
