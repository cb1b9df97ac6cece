"""The gate: decisions by hand, error rates over many draws, how many samples would decide, several anchors."""

import json
import math

import numpy as np
import pytest
import torch

from trace import Sample, Settings, diagnose
from trace.gate.intervals import score_interval
from trace.gate.policy import Policy, decide
from trace.io.writing import strict_json
from trace.stats.intervals import proportion_interval

from ..test_coverage import NEW, OLD, SHIFT, W_NEW, W_OLD, draw

TRUTH = math.acos(float(W_OLD @ W_NEW / (W_OLD.norm() * W_NEW.norm()))) / math.pi
"""The share of predictions that change, about 0.25."""


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def diagnostic():
    g = seeded(0)
    return diagnose(OLD, NEW, draw(200, g), Sample(draw(200, g, SHIFT).x), source_val=draw(400, g), generator=g)


def record(changed, n=400):
    """What the gate reads of an anchor of n inputs, on ``changed`` of which the prediction changes."""
    term = {"value": changed / n, "reason": "", "deviation": 0.1, "low": 0, "high": 1}
    return {"anchor": {"disagreement": term, "num_samples": n}, "settings": {"c_h": 1.0}, "reasons": {}}


@pytest.mark.parametrize(("threshold", "decision"), [(0.4, "accept"), (0.2, "reject"), (0.28, "inconclusive")])
def test_the_interval_decides(threshold, decision):
    verdict = decide({"a": record(112)}, Policy(threshold))
    (found,) = verdict.anchors
    interval = proportion_interval(112, 400, 0.05)
    assert (verdict.decision, found.decision, verdict.worst) == (decision, decision, "a")
    assert (found.lower, found.upper) == pytest.approx(interval[:2])
    assert found.threshold == threshold
    assert (found.needed is None) == (decision != "inconclusive" or threshold == found.value)


def test_the_ends_belong_to_acceptance():
    upper = score_interval(record(40), "anchor_disagreement").upper
    lower = score_interval(record(40), "anchor_disagreement").lower
    assert decide({"a": record(40)}, Policy(upper)).decision == "accept"
    assert decide({"a": record(40)}, Policy(math.nextafter(upper, 0))).decision == "inconclusive"
    assert decide({"a": record(40)}, Policy(lower)).decision == "inconclusive"
    assert decide({"a": record(40)}, Policy(math.nextafter(lower, 0))).decision == "reject"


@pytest.mark.parametrize("num_anchors", [1, 3])
def test_wrong_decisions_are_as_rare_as_promised(num_anchors):
    """Truth just above the limit must rarely be accepted, just below rarely rejected, on any of the anchors."""
    rng, confidence = np.random.default_rng(0), 0.8
    counts = rng.binomial(400, TRUTH, size=(2000, num_anchors))
    for threshold, wrong in ((TRUTH - 1e-9, "accept"), (TRUTH + 1e-9, "reject")):
        policy = Policy(threshold, confidence=confidence)
        verdicts = [decide({str(i): record(int(c)) for i, c in enumerate(row)}, policy) for row in counts]
        rate = np.mean([any(a.decision == wrong for a in v.anchors) for v in verdicts])
        assert rate <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / 2000)  # half of what is left to 1 on either side
        assert rate > 0.03


def test_the_number_of_samples_that_would_decide():
    """Draws of that size decide at least half of the time, draws of a quarter of it hardly ever."""
    rng, policy = np.random.default_rng(1), Policy(0.22)
    (found,) = decide({"a": record(round(TRUTH * 400))}, policy).anchors
    assert found.needed > 400
    assert (found.sample, found.size) == ("anchor", 400)

    def decided(n):
        counts = rng.binomial(n, found.value, size=300)
        return np.mean([decide({"a": record(int(c), n)}, policy).decision == "reject" for c in counts])

    assert decided(found.needed) > 0.45
    assert decided(found.needed // 4) < 0.2
    assert decided(4 * found.needed) > 0.95


def test_no_number_helps_on_the_threshold():
    (found,) = decide({"a": record(100)}, Policy(0.25)).anchors
    assert (found.decision, found.needed) == ("inconclusive", None)
    assert "would decide" not in found.reason


def test_anchors_share_the_confidence_and_the_worst_is_named():
    anchors = {"calm": record(10), "rough": record(90), "wild": record(160)}
    verdict = decide(anchors, Policy(0.2))
    assert [a.decision for a in verdict.anchors] == ["accept", "inconclusive", "reject"]
    assert (verdict.decision, verdict.worst) == ("reject", "wild")
    for a, count in zip(verdict.anchors, (10, 90, 160), strict=True):
        assert (a.lower, a.upper) == pytest.approx(proportion_interval(count, 400, 0.05 / 3)[:2])
    verdict = decide({k: anchors[k] for k in ("calm", "rough")}, Policy(0.2))
    assert (verdict.decision, verdict.worst) == ("inconclusive", "rough")
    verdict = decide({"calm": record(10), "calmer": record(5)}, Policy(0.2))
    assert (verdict.decision, verdict.worst, verdict.confidence) == ("accept", "calm", 0.95)


def test_diagnostics_and_their_records_decide_alike(diagnostic):
    stored = json.loads(strict_json(diagnostic.as_dict()))
    for score in ("anchor_disagreement", "anchor_worst_label", "output_distance", "trace_w", "trace_mmd"):
        for threshold in (0.1, 1.0, 10.0):
            policy = Policy(threshold, score)
            assert repr(decide({"a": stored}, policy)) == repr(decide({"a": diagnostic}, policy))


def test_small_samples_decide_nothing(diagnostic):
    (found,) = decide({"a": record(0, 50)}, Policy(0.9)).anchors
    assert (found.decision, found.needed, found.size, found.sample) == ("inconclusive", 100, 50, "anchor")
    assert "asks for at least 100 anchor samples and there are 50" in found.reason
    assert decide({"a": record(0, 50)}, Policy(0.9, min_source=50, min_target=10_000)).decision == "accept"
    (found,) = decide({"a": diagnostic}, Policy(100.0, "output_distance", min_target=1000)).anchors
    assert (found.needed, found.size, found.sample) == (1000, 200, "target")


def test_a_quantile_without_upper_end_says_how_many_it_needs(diagnostic):
    (found,) = decide({"a": diagnostic}, Policy(1e6, "trace_w")).anchors
    assert (found.decision, found.sample) == ("inconclusive", "target")
    assert math.isinf(found.upper)
    assert "200 samples do not bound the 0.99 quantile" in found.reason
    g = seeded(1)
    enough = Sample(draw(found.needed, g, SHIFT).x)
    d = diagnose(OLD, NEW, draw(200, g), draw(200, g, SHIFT), target_val=enough, settings=Settings(epsilon=1.0))
    assert decide({"a": d}, Policy(1e6, "trace_w")).decision == "accept"
    (low,) = decide({"a": d}, Policy(score_interval(d, "trace_w").value * 0.9, "trace_w")).anchors
    assert (low.decision, low.needed) == ("inconclusive", None)  # no floors: the lower end does not rise


def test_training_rows_decide_nothing():
    """Neither way, and for every score that looks at the anchor; TRACE-W looks at the target alone."""
    g = seeded(2)
    d = diagnose(OLD, NEW, draw(200, g), draw(200, g, SHIFT), target_val=draw(800, g, SHIFT), generator=g)
    for threshold, score in ((0.9, "anchor_disagreement"), (0.01, "anchor_disagreement"), (1e6, "anchor_worst_label")):
        (found,) = decide({"a": d}, Policy(threshold, score)).anchors
        assert (found.decision, found.needed) == ("inconclusive", None)
        assert "on rows that the old model was trained on, which say nothing about new ones" in found.reason
        assert "(source_val, --source-val)" in found.reason
        assert math.isnan(found.lower)
        assert math.isnan(found.upper)
    verdict = decide({"calm": record(0), "unknown": d}, Policy(0.9))
    assert (verdict.decision, verdict.worst) == ("inconclusive", "unknown")
    assert decide({"a": d}, Policy(1e6, "trace_w")).decision == "accept"


def test_what_could_not_be_computed_is_inconclusive(diagnostic):
    (found,) = decide({"a": diagnostic}, Policy(1.0, "trace_mmd")).anchors
    assert (found.decision, found.needed) == ("inconclusive", None)
    assert found.reason == "The gate score TRACE-MMD is not available (rkhs_norm: needs labels on the target)."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": math.inf}, "threshold must be a finite number"),
        ({"threshold": 1.0, "score": "disagreement"}, "score 'disagreement' is not known: use one of"),
        ({"threshold": 1.0, "confidence": 1.0}, "confidence must lie strictly"),
        ({"threshold": 1.0, "min_source": 0}, "min_source must be a whole number"),
    ],
)
def test_bad_policies(options, message):
    with pytest.raises(ValueError, match=message):
        Policy(**options)


def test_missing_anchors():
    with pytest.raises(ValueError, match="there is no anchor to decide on"):
        decide({}, Policy(1.0))
    with pytest.raises(ValueError, match="the policy asks for anchor b, the diagnostics have a: diagnose it too"):
        decide({"a": record(1)}, Policy(1.0, anchors=("a", "b")))
