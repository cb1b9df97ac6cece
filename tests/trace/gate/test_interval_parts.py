"""Parts of gate scores: which rows entered, which band counts, and what is said of the approximations."""

import math

import pytest
import torch

from trace import Policy, Sample, Settings, decide, diagnose
from trace.estimators import gradient_quantile
from trace.gate.intervals import mmd, score_interval, sensitivity, transport
from trace.losses import ClippedCrossEntropy
from trace.report.verdict import to_text

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


def test_more_rows_that_do_not_enter_would_not_decide(generator):
    whole, few = (diagnosed(generator, mmd_samples=rows) for rows in (20_000, 150))
    for d, useless in ((whole, False), (few, True)):
        found = score_interval(d, "trace_mmd")
        wide = (found.value + found.upper) / 2
        (verdict,) = decide({"a": d}, Policy(wide, "trace_mmd")).anchors
        blames_mmd = found.thinned
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


def test_bands_by_order_statistics_are_not_displaced_by_the_dkw_band(generator):
    x = torch.randn(2000, 2, generator=generator, dtype=torch.float64)
    found = gradient_quantile(old, x, (x[:, 0] > 0).long(), ClippedCrossEntropy(), q=0.99, eta=0.01)
    assert math.isinf(found.upper)
    record = {"sensitivity_target": found._asdict(), "reasons": {}}
    part = sensitivity("sensitivity_target", "target", record, 0.012)
    level, lower, upper = max(band for band in found.bands if band[0] <= 0.012)
    assert level < found.eta  # the DKW band's level lies nearer to what was asked for
    assert (part.lower, part.upper) == (lower, upper)
    assert part.upper < math.inf
    del record["sensitivity_target"]["bands"]
    assert math.isinf(sensitivity("sensitivity_target", "target", record, 0.012).upper)


def test_normal_approximations_are_named(generator):
    d = diagnosed(generator)
    for score, what in (("trace_w", "transport distance"), ("trace_mmd", "MMD")):
        text = to_text(decide({"a": d}, Policy(100.0, score)))
        assert f"\nThe interval of the {what} is asymptotic, a normal approximation.\n" in text
    assert "asymptotic" not in to_text(decide({"a": d}, Policy(0.5)))
