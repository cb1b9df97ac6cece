"""Thresholds from past updates: ranks by hand, promised rates over thousands of repetitions, ties, bad input."""

import math

import numpy as np
import pytest

from trace.stats.conformal import PastUpdate, TooFewUpdatesError, calibrate_threshold

REPETITIONS = 4000


def updates(scores, changes):
    return [PastUpdate(str(i), float(s), float(c)) for i, (s, c) in enumerate(zip(scores, changes, strict=True))]


def within(rate, promise, count):
    return rate <= promise + 3 * math.sqrt(promise * (1 - promise) / count)


def new_harmful_accepted(num_harmful, decimals=9, **options):
    """Was a fresh harmful update accepted? Over fresh pasts, each with 5 safe updates too."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(REPETITIONS, num_harmful + 1)).round(decimals)
    changes = [0.1] * num_harmful + [-0.1] * 5
    return np.array(
        [s[-1] <= calibrate_threshold(updates([*s[:-1], *[-1.0] * 5], changes), **options).threshold for s in scores]
    )


@pytest.mark.parametrize(("m", "alpha", "exact"), [(9, 0.1, 0.1), (19, 0.1, 0.1), (24, 0.1, 0.08), (3, 0.25, 0.25)])
def test_harmful_updates_are_accepted_as_seldom_as_promised(m, alpha, exact):
    """For continuous scores the rate is exactly ``floor(alpha (m + 1)) / (m + 1)``: the promise is not vacuous."""
    rate = new_harmful_accepted(m, max_harmful_accepted=alpha).mean()
    assert within(rate, alpha, REPETITIONS)
    assert rate == pytest.approx(exact, abs=3 * math.sqrt(exact * (1 - exact) / REPETITIONS))


@pytest.mark.parametrize("decimals", [0, 1])
def test_ties_only_lower_the_rate(decimals):
    """Scores on a grid: equal scores stand on one side together."""
    rate = new_harmful_accepted(19, decimals, max_harmful_accepted=0.2).mean()
    assert within(rate, 0.2, REPETITIONS)
    assert rate < 0.2


@pytest.mark.parametrize("harm_above", [0.0, 0.6])
def test_joint_rate_is_as_promised(harm_above):
    """Scores that hint at the change, a third or a twentieth of them harmful."""
    n, alpha, rng = 39, 0.05, np.random.default_rng(1)
    hits = []
    for _ in range(REPETITIONS):
        changes = rng.normal(-0.2, 0.5, n + 1)
        scores = changes + rng.normal(0, 0.7, n + 1)
        past = updates(scores[:n], changes[:n])
        found = calibrate_threshold(past, harm_above=harm_above, max_harmful_accepted=alpha, guarantee="joint")
        hits.append(changes[n] > harm_above and scores[n] <= found.threshold)
    rate = np.mean(hits)
    assert within(rate, alpha, REPETITIONS)
    if harm_above == 0:
        assert rate > 0.8 * alpha


def test_pac_threshold_rarely_misleads():
    """Uniform scores: the true acceptance rate of harmful updates is the threshold itself."""
    m, alpha, delta, rng = 60, 0.2, 0.1, np.random.default_rng(2)
    thresholds = [
        calibrate_threshold(
            updates(rng.uniform(size=m), [0.1] * m), max_harmful_accepted=alpha, guarantee="pac", delta=delta
        ).threshold
        for _ in range(1000)
    ]
    misled = np.mean(np.array(thresholds) > alpha)
    assert within(misled, delta, 1000)
    assert misled > delta / 3


def test_threshold_lies_just_below_the_ranked_harmful_score():
    past = updates([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], [-1, 0.5, -1, 0.5, 0.5, 0.5, 0.0])
    found = calibrate_threshold(past, max_harmful_accepted=0.4)
    assert (found.rank, found.num_harmful, found.num_past) == (2, 4, 7)
    assert 0.4 - 1e-12 < found.threshold < 0.4
    assert (found.safe_rejected, found.power) == (1, pytest.approx(2 / 3))
    assert calibrate_threshold(past, harm_above=-2.0, max_harmful_accepted=0.5).rank == 4
    assert calibrate_threshold(past, max_harmful_accepted=0.25, guarantee="joint").threshold < 0.4


def test_levels_count_as_written():
    """0.29 * 100 is 28.999... in floats; 29 harmful scores of 99 may lie below."""
    past = updates(range(99), [1.0] * 99)
    assert calibrate_threshold(past, max_harmful_accepted=0.29).rank == 29


def test_beyond_experience_nothing_is_accepted():
    past = updates([0.1, 0.2, 0.9, 0.3], [-1, -1, -1, 0.5])
    found = calibrate_threshold(past, max_harmful_accepted=0.45, guarantee="joint")
    assert (found.rank, found.threshold) == (2, 0.9)


def test_left_out_updates_are_judged_by_the_others():
    rng = np.random.default_rng(3)
    changes = rng.normal(0, 0.5, 60)
    past = updates(changes + rng.normal(0, 0.5, 60), changes)
    for guarantee in ("conditional", "joint"):
        found = calibrate_threshold(past, max_harmful_accepted=0.2, guarantee=guarantee)
        accepted = [
            calibrate_threshold(
                [p for p in past if p is not u], max_harmful_accepted=0.2, guarantee=guarantee
            ).threshold >= u.score
            for u in past
        ]  # fmt: skip
        harmful = [u.risk_change > 0 for u in past]
        assert found.harmful_accepted == sum(a and h for a, h in zip(accepted, harmful, strict=True))
        assert found.safe_rejected == sum(not (a or h) for a, h in zip(accepted, harmful, strict=True))
        assert 0 < found.power < 1


@pytest.mark.parametrize(
    ("guarantee", "needed"), [("conditional", 9), ("joint", 9), ("pac", 29)]
)  # 0.9^29 < 0.05 < 0.9^28
def test_too_few_updates_say_how_many_are_needed(guarantee, needed):
    options = {"max_harmful_accepted": 0.1, "guarantee": guarantee}
    enough = updates(range(needed), [1.0] * needed)
    assert calibrate_threshold(enough, **options).rank == 1
    with pytest.raises(TooFewUpdatesError, match=f"needs at least {needed} "):
        calibrate_threshold(enough[1:], **options)
    with pytest.raises(TooFewUpdatesError, match=r"0 of 0|there are 0"):
        calibrate_threshold([], **options)


def test_the_promise_in_words():
    past = updates(range(20), [-1.0] * 10 + [1.0] * 10)
    words = calibrate_threshold(past, harm_above=0.02, max_harmful_accepted=0.1).in_words()
    assert "accepted with probability at most 10%" in words
    assert "the 20 past updates (10 harmful: risk up by more than 0.02)" in words
    assert "10 of 10 safe past updates would have been accepted, and 1 of 10 harmful" in words
    assert "both harmful and accepted" in calibrate_threshold(past, guarantee="joint").in_words()
    pac = calibrate_threshold(past, max_harmful_accepted=0.3, guarantee="pac").in_words()
    assert "With confidence 95%, at most 30% of harmful updates" in pac


@pytest.mark.parametrize(
    ("past", "options", "message"),
    [
        (updates([math.nan], [1.0]), {}, "past update '0' has no finite score"),
        (updates([1.0], [math.inf]), {}, "past update '0' has no finite score"),
        ([PastUpdate("a", 1.0, 1.0)] * 2, {}, "past updates share the name a"),
        ([], {"max_harmful_accepted": 1.0}, "max_harmful_accepted must lie strictly between"),
        ([], {"guarantee": "sure"}, "guarantee must be one of conditional, joint, pac"),
        ([], {"harm_above": math.nan}, "harm_above must be a finite number"),
        ([], {"delta": 0.0}, "delta must lie strictly between"),
    ],
)
def test_bad_input(past, options, message):
    with pytest.raises(ValueError, match=message):
        calibrate_threshold(past, **options)
