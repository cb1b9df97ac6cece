"""The gate: decisions by hand, error rates over many draws, how many samples would decide, several anchors."""

import json
import math

import numpy as np
import pytest
import torch

from trace import Sample, Settings, diagnose
from trace.gate.intervals import score_interval
from trace.gate.policy import Policy, Rule, decide
from trace.io.writing import strict_json
from trace.stats.betting import Tally, confidence_sequence

from ..test_coverage import NEW, OLD, SHIFT, W_NEW, W_OLD, draw

TRUTH = math.acos(float(W_OLD @ W_NEW / (W_OLD.norm() * W_NEW.norm()))) / math.pi
"""The share of predictions that change, about 0.25."""


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def diagnostic():
    g = seeded(0)
    target, held_out = (Sample(draw(200, g, SHIFT).x) for _ in range(2))
    source_val = Sample(draw(400, g).x)
    return diagnose(OLD, NEW, draw(200, g), target, source_val=source_val, target_val=held_out, generator=g)


def record(changed, n=400):
    """What the gate reads of an anchor of n inputs, on ``changed`` of which the prediction changes."""
    term = {"value": changed / n, "reason": "", "tally": counted(changed, n)._asdict()}
    return {"anchor": {"disagreement": term, "num_samples": n}, "settings": {"c_h": 1.0}, "reasons": {}}


def counted(changed, n):
    """The tally of a share."""
    kept = {value: float(count) for value, count in ((0.0, n - changed), (1.0, changed)) if count}
    return Tally(0.0, 1.0, tuple(kept), tuple(kept.values()))


@pytest.mark.parametrize(("threshold", "decision"), [(0.4, "accept"), (0.2, "reject"), (0.28, "inconclusive")])
def test_the_interval_decides(threshold, decision):
    verdict = decide({"a": record(112)}, Policy(threshold))
    (found,) = verdict.anchors
    interval = confidence_sequence(counted(112, 400), 0.05)
    assert (verdict.decision, found.decision, verdict.worst) == (decision, decision, "a")
    assert (found.lower, found.upper) == pytest.approx(interval[:2])
    assert found.threshold == threshold
    assert (found.needed is None) == (decision != "inconclusive")


def test_the_ends_belong_to_acceptance():
    upper = score_interval(record(40), "anchor_disagreement").upper
    lower = score_interval(record(40), "anchor_disagreement").lower
    assert decide({"a": record(40)}, Policy(upper)).decision == "accept"
    assert decide({"a": record(40)}, Policy(math.nextafter(upper, 0))).decision == "inconclusive"
    assert decide({"a": record(40)}, Policy(lower)).decision == "inconclusive"
    assert decide({"a": record(40)}, Policy(math.nextafter(lower, 0))).decision == "reject"


@pytest.mark.parametrize("num_anchors", [1, 3])
def test_wrong_decisions_are_as_rare_as_promised(num_anchors):
    """Truth just above the limit must rarely be accepted, just below rarely rejected, on any of the anchors.

    Not even by one who asks again after 100, 200, 400, 800 and 1,600 rows.
    """
    rng, confidence, paths = np.random.default_rng(0), 0.8, 100
    sizes = 100 * 2 ** np.arange(5)
    counts = rng.binomial(np.diff(sizes, prepend=0), TRUTH, size=(paths, num_anchors, len(sizes))).cumsum(axis=2)

    def ever(row, policy, wrong):
        return any(
            a.decision == wrong
            for look, n in enumerate(sizes.tolist())
            for a in decide({str(i): record(int(c[look]), n) for i, c in enumerate(row)}, policy).anchors
        )

    for threshold, wrong in ((TRUTH - 1e-9, "accept"), (TRUTH + 1e-9, "reject")):
        policy = Policy(threshold, confidence=confidence)
        rate = np.mean([ever(row, policy, wrong) for row in counts])
        assert rate <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / paths)  # half of what is left to 1 on either side


def test_the_number_of_samples_that_would_decide():
    """Draws of that size decide at least half of the time, draws of a quarter of it hardly ever."""
    rng, policy = np.random.default_rng(1), Policy(0.22)
    (found,) = decide({"a": record(round(TRUTH * 400))}, policy).anchors
    assert found.needed > 400
    assert (found.sample, found.size) == ("anchor", 400)

    def decided(n):
        counts = rng.binomial(n, found.value, size=300)
        return np.mean([decide({"a": record(int(c), n)}, policy).decision == "reject" for c in counts])

    assert decided(found.needed) > 0.3
    assert decided(found.needed // 4) < 0.2
    assert decided(4 * found.needed) > 0.95


def test_there_is_a_number_on_the_threshold_too():
    """As if the value were a standard error off: no number would do if it were exact."""
    (found,) = decide({"a": record(100)}, Policy(0.25)).anchors
    assert found.decision == "inconclusive"
    assert found.needed > 4 * 400
    assert f"; at least {found.needed} anchor samples would decide, there are 400" in found.reason
    assert found.next == (
        f"Add {found.needed - 400} anchor samples that no model was trained on to those there are, and ask again."
    )


def test_anchors_share_the_confidence_and_the_worst_is_named():
    anchors = {"calm": record(10), "rough": record(90), "wild": record(160)}
    verdict = decide(anchors, Policy(0.2))
    assert [a.decision for a in verdict.anchors] == ["accept", "inconclusive", "reject"]
    assert (verdict.decision, verdict.worst) == ("reject", "wild")
    for a, count in zip(verdict.anchors, (10, 90, 160), strict=True):
        assert (a.lower, a.upper) == pytest.approx(confidence_sequence(counted(count, 400), 0.05 / 3)[:2])
    verdict = decide({k: anchors[k] for k in ("calm", "rough")}, Policy(0.2))
    assert (verdict.decision, verdict.worst) == ("inconclusive", "rough")
    verdict = decide({"calm": record(10), "calmer": record(5)}, Policy(0.2))
    assert (verdict.decision, verdict.worst, verdict.confidence) == ("accept", "calm", 0.95)


def test_diagnostics_and_their_records_decide_alike(diagnostic):
    stored = json.loads(strict_json(diagnostic.as_dict()))
    for score in ("anchor_disagreement", "anchor_worst_label", "held_out_distance", "trace_w", "trace_mmd"):
        for threshold in (0.1, 0.9):
            policy = Policy(threshold, score)
            assert repr(decide({"a": stored}, policy)) == repr(decide({"a": diagnostic}, policy))


def test_small_samples_decide_nothing(diagnostic):
    (found,) = decide({"a": record(0, 50)}, Policy(0.9)).anchors
    assert (found.decision, found.needed, found.size, found.sample) == ("inconclusive", 100, 50, "anchor")
    assert "asks for at least 100 anchor samples and there are 50" in found.reason
    assert decide({"a": record(0, 50)}, Policy(0.9, min_source=50, min_target=10_000)).decision == "accept"
    (found,) = decide({"a": diagnostic}, Policy(10.0, "held_out_distance", min_target=1000)).anchors
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
    for threshold, score in ((0.9, "anchor_disagreement"), (0.01, "anchor_disagreement"), (19.0, "anchor_worst_label")):
        (found,) = decide({"a": d}, Policy(threshold, score)).anchors
        assert (found.decision, found.needed) == ("inconclusive", None)
        assert "on rows that are not held out and say nothing about new ones" in found.reason
        assert "(source_val, --source-val)" in found.next
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
        ({"threshold": 0.5, "score": "disagreement"}, "score 'disagreement' is not known: use one of"),
        ({"threshold": 0.5, "confidence": 1.0}, "confidence must lie strictly"),
        ({"threshold": 0.5, "min_source": 0}, "min_source must be a whole number"),
        ({"threshold": 5.0}, "threshold 5 for anchor_disagreement, a share, must lie strictly between 0 and 1"),
        ({"threshold": 0.0}, "must lie strictly between 0 and 1: write 0.05 for 5%"),
        ({"threshold": -0.1, "score": "trace_w"}, "threshold -0.1 for trace_w, which is never negative, would reject"),
        ({"threshold": 1.0, "score": "error_change"}, "a share, must lie strictly between -1 and 1"),
        ({"threshold": 0.5, "rules": (Rule("trace_w", 1.0),)}, "threshold and rules exclude each other"),
        ({"score": "trace_w"}, "score trace_w has no threshold: give one"),
        ({"rules": (Rule("trace_w", 1.0, required=False),)}, "no rule is required, so nothing would decide"),
        ({"threshold": 0.5, "labels": "vote"}, "labels must be one of guard, decide, got 'vote'"),
        ({"threshold": 0.5, "looks": 0}, "looks must be a whole number"),
    ],
)
def test_bad_policies(options, message):
    with pytest.raises(ValueError, match=message):
        Policy(**options)


def test_missing_anchors():
    with pytest.raises(ValueError, match="there is no anchor to decide on"):
        decide({}, Policy(0.5))
    with pytest.raises(ValueError, match="the policy asks for anchor b, the diagnostics have a: diagnose it too"):
        decide({"a": record(1)}, Policy(0.5, anchors=("a", "b")))
