"""Labelling: decisions against a plain loop, promises with a look after every label, what it costs, what it refuses."""

import json
import math
import time
import tracemalloc
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chisquare
from sklearn.linear_model import LogisticRegression

from trace.gate import Labelling
from trace.gate.labelling import FileCourse, change_ranges, uniforms
from trace.io.writing import strict_json
from trace.losses import ClippedCrossEntropy, Huber, SquaredError, ZeroOne
from trace.stats.betting import BETS, PRIOR, edges, pool_edges, wealth_path

LOSSES = [ZeroOne(), ClippedCrossEntropy(3.0), SquaredError(limit=1.0)]
SCOPES = ["file", "population"]
ENOUGH = math.log(40)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def update(n, seed=0, loss=None, moved=0.8, classes=3):
    """Outputs of two models and labels; a regression for a loss of targets."""
    g = seeded(seed)
    if loss is not None and not loss.classification:
        y = torch.rand(n, generator=g, dtype=torch.float64) * 2 - 1
        old = (y + 0.4 * torch.randn(n, generator=g, dtype=torch.float64))[:, None]
        return old, old + 0.3 * moved * torch.randn(n, 1, generator=g, dtype=torch.float64), y
    y = torch.randint(classes, (n,), generator=g)
    old = torch.randn(n, classes, generator=g, dtype=torch.float64)
    old[torch.arange(n), y] += 2
    return old, old + moved * torch.randn(n, classes, generator=g, dtype=torch.float64), y


def changes(old, new, y, loss):
    return (loss(new, y) - loss(old, y)).double().numpy()


def answered(labelling, y, step=10_000):
    """The state after all labels that were asked for, ``step`` at a time."""
    while len(rows := labelling.next_rows(step)):
        labelling.tell(rows, y[rows])
    return labelling.state


def asked(labelling, y):
    """The rows asked for one by one until the decision."""
    found = []
    while len(row := labelling.next_rows(1)):
        found += row.tolist()
        labelling.tell(row, y[row])
    return found


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_the_estimate_is_unbiased(loss, scope):
    """After a number of labels fixed in advance in a file, on average over orders; in a stream, at its end."""
    old, new, y = update(60, 3, loss)
    values = changes(old, new, y, loss)
    found = []
    for seed in range(400):
        labelling = Labelling(old, new, limit=0.0, confidence=1 - 1e-12, loss=loss, scope=scope, generator=seeded(seed))
        rows = labelling.next_rows(6 if scope == "file" else 60)
        labelling.tell(rows, y[rows])
        found.append(labelling.courses[0].estimate(labelling.progress[0]))
    found = np.array(found)
    error = found.std() / math.sqrt(len(found))
    assert abs(found.mean() - values.mean()) <= 4 * error + 1e-9


def test_the_estimate_stays_in_the_interval():
    old, new, y = update(100)
    labelling = Labelling(old, new, limit=0.0, confidence=0.99, generator=seeded())
    assert math.isnan(labelling.state.estimate)
    while len(row := labelling.next_rows(1)):
        labelling.tell(row, y[row])
        assert labelling.state.lower <= labelling.state.estimate <= labelling.state.upper


@pytest.mark.parametrize("scope", SCOPES)
def test_labels_may_be_judged_against_another_limit(scope):
    """As if they had been asked for with it."""
    old, new, y = update(300)
    labelling = Labelling(old, new, limit=0.05, scope=scope, generator=seeded(1))
    state = answered(labelling, y, 1)
    for limit, confidence in ((0.0, 0.9), (0.2, 0.99), (0.05, 0.95)):
        other = Labelling(old, new, limit=limit, confidence=confidence, scope=scope, generator=seeded(1))
        rows = list(labelling.labels)
        other.tell(rows, y[rows])
        judged = labelling.judged(limit=limit, confidence=confidence).state
        assert (judged.decision, judged.lower, judged.upper) == (
            other.state.decision,
            other.state.lower,
            other.state.upper,
        )
    assert judged.decision == state.decision


# --- decisions ---


def plain_decision(values, order, limit, n):
    """0-1 loss, one label at a time, with fractions and products: decision and labels spent."""
    total, left, spent = Fraction(repr(limit)) * n, len(order), 0
    below, above = np.ones(len(BETS)), np.ones(len(BETS))
    while True:
        if total >= left:
            return "accept", spent
        if total < -left:
            return "reject", spent
        if spent and PRIOR @ above >= 40:
            return "reject", spent
        if spent and PRIOR @ below >= 40:
            return "accept", spent
        m, value = total / left, values[order[spent]]
        below = below * (1 + BETS * float((m - value) / (1 - m)))
        above = above * (1 + BETS * float((value - m) / (1 + m))) if m > -1 else above
        total, left, spent = total - value, left - 1, spent + 1


@given(st.integers(0, 10_000), st.integers(1, 60), st.sampled_from([-0.2, -0.05, 0.0, 0.02, 0.1, 0.29]))
def test_a_file_is_decided_as_by_a_plain_loop(seed, n, limit):
    old, new, y = update(n, seed, moved=1.5)
    labelling = Labelling(old, new, limit=limit, generator=seeded(seed))
    values = changes(old, new, y, ZeroOne()).astype(int)
    order = labelling.courses[0].rows
    assert sorted(order) == np.flatnonzero((old.argmax(1) != new.argmax(1)).numpy()).tolist()
    rows = asked(labelling, y)
    assert rows == order[: len(rows)].tolist()
    assert (labelling.state.decision, len(rows)) == plain_decision(values, order, limit, n)


@pytest.mark.parametrize("ups", [0, 1, 2, 3, 5])
def test_no_order_of_a_small_file_is_decided_wrongly_too_often(ups):
    """All orders of 5 disagreements among 50 rows, at every limit; on the limit itself nothing may be rejected."""
    n, k, confidence = 50, 5, 0.6
    values = np.array([1.0] * ups + [-1.0] * (k - ups))
    one = np.ones(k)
    for total in range(-k - 1, k + 2):
        limit = total / n
        right = "accept" if values.sum() <= total else "reject"
        wrong = 0
        for order in map(list, permutations(range(k))):
            course = FileCourse(
                np.array(order), -one, one, 0 * one, limit, (1 - confidence) / 2, n, weight=one, fixed=0.0
            )
            found = course.advanced(course.begun(), values[order], values[order])
            assert found.decision != "undecided"
            wrong += found.decision != right
        assert wrong / math.factorial(k) <= (1 - confidence) / 2


@pytest.mark.parametrize(("limit", "n"), [(0.02, 500), (0.29, 100), (0.07, 100), (0.1, 30)])
def test_a_change_that_equals_the_limit_is_never_rejected_in_the_end(limit, n):
    """``limit n`` is a whole number that floats may miss: all disagreements are harmful, and as many as allowed."""
    y = torch.zeros(n, dtype=torch.long)
    old = torch.eye(2)[y]
    new = old.clone()
    harmful = round(limit * n)
    new[:harmful] = torch.tensor([0.0, 1.0])
    assert Labelling(old, new, limit=limit, generator=seeded()).state.decision == "accept"
    new[harmful] = torch.tensor([0.0, 1.0])
    state = answered(Labelling(old, new, limit=limit, generator=seeded()), y)
    assert (state.decision, state.lower > limit) == ("reject", True)


@pytest.mark.parametrize("seed", range(8))
def test_labels_asked_are_the_disagreements_that_betting_on_every_row_reads(seed):
    """Path by path, for the population: the same decision, and labels only where the models differ."""
    old, new, y = update(4000, seed, moved=0.5 if seed % 2 else 0.9)
    values = changes(old, new, y, ZeroOne())
    limit = float(values.mean()) + (0.05 if seed % 4 < 2 else -0.05)
    labelling = Labelling(old, new, limit=limit, scope="population", generator=seeded(seed))
    order = np.argsort(labelling.clock)
    paths = [wealth_path(edges(values[order], limit, end))[0] for end in (1.0, -1.0)]
    last = min(int(np.flatnonzero(path >= ENOUGH)[0]) for path in paths if (path >= ENOUGH).any())
    read = order[: last + 1]
    differ = (old.argmax(1) != new.argmax(1)).numpy()
    rows = asked(labelling, y)
    assert rows == read[differ[read]].tolist()
    assert labelling.state.decision == ("accept" if paths[0][last] >= ENOUGH else "reject")
    assert len(rows) < 0.5 * len(read)


@pytest.mark.parametrize("loss", [*LOSSES, Huber(limit=1.0, delta=0.3)], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("scope", SCOPES)
def test_the_interval_holds_the_limits_that_are_not_decided(loss, scope):
    """Its ends are where the decision changes: by trying limits on either side of them, on the same seed and labels."""
    old, new, y = update(600, 3, loss)

    def told(limit):
        labelling = Labelling(old, new, limit=limit, loss=loss, scope=scope, generator=seeded(6))
        rows = torch.from_numpy(labelling.courses[0].rows[:60].copy())
        labelling.tell(rows, y[rows])
        return labelling.state

    start = told(changes(old, new, y, loss).mean())
    assert start.decision == "undecided"
    assert start.lower < start.limit < start.upper
    width = start.upper - start.lower
    for limit in (start.lower + 0.02 * width, start.upper - 0.02 * width):
        inside = told(limit)
        assert inside.decision in ("undecided", "reject" if limit < start.limit else "accept")
        assert inside.decision != "undecided" or inside.lower <= limit <= inside.upper
    below, above = told(start.lower - 0.02 * width), told(start.upper + 0.02 * width)
    assert (below.decision, above.decision) == ("reject", "accept")
    assert below.lower >= below.limit
    assert above.upper <= above.limit


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_a_file_that_is_labelled_to_the_end_is_known(loss):
    old, new, y = update(40, 1, loss)
    mean = float(changes(old, new, y, loss).mean())
    for limit, decision in ((mean + 1e-6, "accept"), (mean - 1e-6, "reject")):
        labelling = Labelling(old, new, limit=limit, loss=loss, confidence=1 - 1e-12, generator=seeded(2))
        state = answered(labelling, y, step=1)
        assert state.decision == decision
        assert state.spent <= len(labelling.courses[0].rows)
        assert state.lower - 1e-9 <= mean <= state.upper + 1e-9


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_rounding_rejects_no_change_that_equals_the_limit(loss):
    """The last rows may all lie at the ends of their ranges, where what is left of the sum is 0 up to rounding."""
    old, new, y = update(150, 9, loss, moved=2.0)
    mean = float(changes(old, new, y, loss).mean())
    for seed in range(100):
        labelling = Labelling(old, new, limit=mean, loss=loss, confidence=1 - 1e-12, generator=seeded(seed))
        assert answered(labelling, y).decision == "accept"


def test_models_that_agree_need_no_label():
    old, _, _ = update(100)
    for loss in (ZeroOne(), ClippedCrossEntropy()):
        for limit, decision in ((0.0, "accept"), (-0.01, "reject")):
            labelling = Labelling(old, old, limit=limit, loss=loss, generator=seeded())
            assert len(labelling.next_rows(5)) == 0
            assert (labelling.state.decision, labelling.state.spent) == (decision, 0)
            assert labelling.state.lower == pytest.approx(0) == labelling.state.upper or decision == "reject"
    stream = Labelling(old, old, limit=0.0, scope="population", generator=seeded()).state
    assert (stream.decision, stream.exhausted) == ("undecided", True)
    assert "collect more rows" in stream.in_words()
    assert Labelling(old, old, limit=0.1, scope="population", generator=seeded()).state.decision == "accept"


@pytest.mark.parametrize("scope", SCOPES)
def test_limits_beyond_the_loss_are_decided_at_once(scope):
    old, new, _ = update(50)
    for limit, decision in ((1.0, "accept"), (7.0, "accept"), (-1.5, "reject")):
        assert Labelling(old, new, limit=limit, scope=scope, generator=seeded()).state.decision == decision


# --- promises ---


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("scope", SCOPES)
def test_wrong_decisions_are_as_rare_as_promised(loss, scope):
    """Looked at after every label, in 1000 orders each: on the limit nothing may be rejected, just above it accepted.

    A population is 3000 rows to draw from with replacement; labels nobody knows are among them.
    """
    paths, n = 1000, 150
    whole = update(3000 if scope == "population" else n, 9, loss, moved=2.0)
    mean = float(changes(*whole, loss).mean())
    failures = {"reject": 0, "accept": 0}
    for seed in range(paths):
        old, new, y = whole
        if scope == "population":
            rows = torch.randint(len(y), (n,), generator=seeded(seed))
            old, new, y = old[rows], new[rows], y[rows]
        for wrong, limit in (("reject", mean), ("accept", mean - 1e-4)):
            labelling = Labelling(old, new, limit=limit, loss=loss, scope=scope, confidence=0.8, generator=seeded(seed))
            rows = torch.from_numpy(labelling.courses[0].rows[:-1].copy())
            labels = [None if row % 40 == 7 else float(y[row]) for row in rows.tolist()]
            labelling.tell(rows, [int(x) if x is not None and loss.classification else x for x in labels])
            failures[wrong] += labelling.state.decision == wrong
    for wrong, count in failures.items():
        assert binom.sf(count - 1, paths, 0.1) >= 0.01, (wrong, count)


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (1.0, 2.0, 5.0)])
def test_rows_are_drawn_in_proportion_to_their_reach(weights):
    """Over seeds, every order of three rows as often as successive sampling says."""
    z = torch.zeros(3, 1, dtype=torch.float64)
    new = torch.tensor(weights, dtype=torch.float64)[:, None] / 10
    loss = SquaredError(limit=1.0)
    least, most = change_ranges(z, new, loss)
    reach = np.maximum(most - np.clip(0, least, most), np.clip(0, least, most) - least)
    orders = list(permutations(range(3)))
    counts = dict.fromkeys(orders, 0)
    for seed in range(3000):
        rows = Labelling(z, new, limit=0.0, loss=loss, generator=seeded(seed)).courses[0].rows
        counts[tuple(rows.tolist())] += 1
    expected = [math.prod(reach[row] / reach[list(order[i:])].sum() for i, row in enumerate(order)) for order in orders]
    assert chisquare([counts[order] for order in orders], 3000 * np.array(expected)).pvalue > 0.01


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_values_of_the_stream_are_unbiased_and_bounded(loss):
    """``E[Z_i] = D_i`` over the coins, from the probabilities; the range is the loss's own."""
    old, new, y = update(200, 4, loss)
    d, (least, most) = changes(old, new, y, loss), change_ranges(old, new, loss)
    labelling = Labelling(old, new, limit=0.0, loss=loss, scope="population", generator=seeded())
    course = labelling.courses[0]
    bound = loss.bound(old.shape[1])
    centre = np.clip(0, least, most)
    p = np.maximum(most - centre, centre - least) / (bound - np.abs(centre))
    assert ((p >= 0) & (p <= 1 + 1e-12)).all()
    np.testing.assert_allclose(course.probability, np.minimum(p[course.rows], 1))
    for ends in (least, most, d):
        values = centre + np.divide(ends - centre, p, out=np.zeros(len(p)), where=p > 0)
        assert (np.abs(values) <= bound * (1 + 1e-9)).all()
    np.testing.assert_allclose(
        course._values(d[course.rows]), (centre + (d - centre) / np.maximum(p, 1e-300))[course.rows]
    )
    assert len(course.rows) == pytest.approx(p.sum(), abs=4 * math.sqrt(p.sum()) + 1)


@pytest.mark.parametrize("unknown", [0.02, 0.3])
def test_what_nobody_can_label_counts_as_the_worst_case(unknown):
    old, new, y = update(400, 2)
    values = changes(old, new, y, ZeroOne())
    differ = old.argmax(1) != new.argmax(1)
    hidden = (torch.rand(400, generator=seeded(1)) < unknown) & differ
    ends = {"up": values.copy(), "down": values.copy()}
    ends["up"][hidden], ends["down"][hidden] = 1, -1
    for limit in (-0.05, 0.0, float(values.mean()), 0.1):
        labelling = Labelling(old, new, limit=limit, confidence=1 - 1e-13, generator=seeded())
        while len(rows := labelling.next_rows(7)):
            labelling.tell(rows, [None if hidden[i] else int(y[i]) for i in rows])
        state = labelling.state
        decision = "accept" if ends["up"].mean() <= limit else "reject" if ends["down"].mean() > limit else "undecided"
        assert state.decision == decision
        if decision == "undecided":
            assert state.exhausted
            assert "could not be labelled" in state.in_words()
            assert (state.lower, state.upper) == pytest.approx((ends["down"].mean(), ends["up"].mean()), abs=1e-6)
        with_minus_one = Labelling(old, new, limit=limit, confidence=1 - 1e-13, generator=seeded())
        while len(rows := with_minus_one.next_rows(7)):
            with_minus_one.tell(rows, torch.where(hidden, -1, y)[rows])
        assert with_minus_one.state.decision == state.decision


# --- order ---


@pytest.mark.parametrize("loss", [ZeroOne(), ClippedCrossEntropy()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("scope", SCOPES)
def test_labels_take_effect_in_the_committed_order(loss, scope):
    """Told backwards, nothing happens until the first row; then all that is contiguous does, as if told forwards."""
    old, new, y = update(1500, 6)
    limit = float(changes(old, new, y, loss).mean())
    forwards, backwards = (
        Labelling(old, new, limit=limit, loss=loss, scope=scope, generator=seeded(3)) for _ in range(2)
    )
    rows = forwards.next_rows(20)
    assert torch.equal(rows, backwards.next_rows(20))
    assert torch.equal(rows[:5], backwards.next_rows(5))
    forwards.tell(rows, y[rows])
    for row in rows[1:].flip(0).tolist():
        backwards.tell([row], [int(y[row])])
        assert backwards.progress[0].position == 0
        assert row not in backwards.next_rows(40).tolist()
    backwards.tell(rows[:1], y[rows[:1]])
    assert backwards.state.spent == forwards.state.spent == 20
    for name in Labelling(old, new, limit=limit, generator=seeded()).progress[0]._fields:
        np.testing.assert_array_equal(getattr(backwards.progress[0], name), getattr(forwards.progress[0], name))
    one_by_one = Labelling(old, new, limit=limit, loss=loss, scope=scope, generator=seeded(3))
    for row in rows.tolist():
        one_by_one.tell([row], [int(y[row])])
    np.testing.assert_allclose(one_by_one.progress[0].below, forwards.progress[0].below, rtol=1e-9)
    assert one_by_one.state.upper == pytest.approx(forwards.state.upper, abs=1e-9)


@pytest.mark.parametrize("scope", SCOPES)
def test_no_row_is_asked_for_twice(scope):
    old, new, y = update(500, 8)
    loss = ClippedCrossEntropy()
    limit = float(changes(old, new, y, loss).mean())
    labelling = Labelling(old, new, limit=limit, loss=loss, scope=scope, confidence=0.999, generator=seeded())
    seen = []
    while len(rows := labelling.next_rows(13)):
        seen += rows.tolist()
        labelling.tell(rows, y[rows])
    assert len(seen) == len(set(seen)) == labelling.state.spent <= 500


def test_a_decision_stays():
    old, new, y = update(500, 8)
    limit = float(changes(old, new, y, ZeroOne()).mean()) + 0.08
    labelling = Labelling(old, new, limit=limit, generator=seeded())
    state = answered(labelling, y, step=1)
    assert state.decision == "accept"
    labelling.tell(torch.arange(500), 1 - torch.eye(3, dtype=torch.long)[old.argmax(1)].argmax(1) % 2)
    assert labelling.state.decision == "accept"
    assert labelling.state.upper <= limit
    assert len(labelling.next_rows(5)) == 0


def test_float32_decides_like_float64():
    old, new, y = update(300, 5)
    double = answered(Labelling(old, new, limit=0.1, loss=ClippedCrossEntropy(), generator=seeded()), y, step=1)
    single = answered(
        Labelling(old.float(), new.float(), limit=0.1, loss=ClippedCrossEntropy(), generator=seeded()), y, step=1
    )
    assert (single.decision, single.spent) == (double.decision, double.spent)
    assert (single.lower, single.upper) == pytest.approx((double.lower, double.upper), abs=1e-5)


# --- several candidates ---


@pytest.mark.parametrize("loss", [ZeroOne(), ClippedCrossEntropy(3.0)], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("scope", SCOPES)
def test_candidates_share_labels_and_the_error(loss, scope):
    old, new, y = update(2000, 1, moved=0.6)
    other, same = update(2000, 1, moved=1.6)[1], old.clone()
    labelling = Labelling(
        old, [new, other, same], limit=0.04, loss=loss, scope=scope, confidence=0.94, generator=seeded(1)
    )
    assert [course.delta for course in labelling.courses] == pytest.approx([0.01] * 3)
    while len(rows := labelling.next_rows(25)):
        assert (np.diff(labelling.clock[rows.numpy()]) > 0).all()
        labelling.tell(rows, y[rows])
    first, second, third = labelling.states
    truth = [float(changes(old, z, y, loss).mean()) for z in (new, other, same)]
    assert second.decision == "reject"
    assert third.decision == "accept"
    for state, change in zip(labelling.states, truth, strict=True):
        assert state.lower - 1e-9 <= change <= state.upper + 1e-9
    assert first.spent == second.spent == third.spent
    with pytest.raises(ValueError, match="there are 3 candidates: use states"):
        _ = labelling.state


def test_equal_candidates_cost_no_more_labels_than_one_at_their_level():
    old, new, y = update(1000, 2)
    alone = Labelling(old, new, limit=0.1, confidence=0.98, generator=seeded())
    both = Labelling(old, (new, new), limit=0.1, confidence=0.96, generator=seeded())
    assert asked(alone, y) == asked(both, y)
    assert [state.decision for state in both.states] == [alone.state.decision] * 2


# --- going on later ---


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_labelling_goes_on_where_it_stopped(loss, scope):
    old, new, y = update(300, 7, loss)
    labelling = Labelling(old, new, limit=0.05, loss=loss, scope=scope, generator=seeded(4))
    rows = labelling.next_rows(12)
    labelling.tell(rows[2:], [None, *y[rows[3:]].tolist()])
    record = json.loads(strict_json(labelling.as_record()))
    resumed = Labelling.resumed(record, old, new, loss=loss)
    assert torch.equal(resumed.next_rows(30), labelling.next_rows(30))
    for found in (labelling, resumed):
        found.tell(rows[:2], y[rows[:2]])
    assert resumed.state.lower == labelling.state.lower
    assert (resumed.state.upper, resumed.state.forecast) == (labelling.state.upper, labelling.state.forecast)
    assert asked(resumed, y) == asked(labelling, y)
    assert resumed.as_record() == labelling.as_record()


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"outputs": "0"}, "begun with other models or rows"),
        ({"new_outputs": ["0"]}, "begun with other models or rows"),
        ({"loss": {"name": "Huber"}}, "begun with the loss"),
        ({"order": "0"}, "another order"),
        ({"seed": 1}, "another order"),
        ({"seed": None}, "no record of a labelling"),
        ({"scope": "world"}, "scope must be"),
        ({"labels": [9], "rows": [0]}, "classes are 0 to 2"),
    ],
)
def test_a_record_of_something_else_is_refused(changed, match):
    old, new, _ = update(30)
    record = Labelling(old, new, limit=0.05, generator=seeded()).as_record()
    with pytest.raises(ValueError, match=match):
        Labelling.resumed({**record, **changed}, old, new)
    if changed.keys() == {"outputs"}:
        with pytest.raises(ValueError, match="begun with other models or rows"):
            Labelling.resumed(record, old, new + 1e-9)
        with pytest.raises(ValueError, match="no record of a labelling"):
            Labelling.resumed({}, old, new)


def test_the_order_comes_from_raw_bits():
    """What numpy promises never to change: the stream of a bit generator, by its documented algorithm."""
    assert uniforms(1, 0, 3).tolist() == uniforms(1, 0, 5)[:3].tolist()
    assert uniforms(1, 0, 3).tolist() != uniforms(1, 1, 3).tolist()
    u = uniforms(5, 0, 100_000)
    assert (u.min() > 0, u.max() < 1) == (True, True)
    assert u.mean() == pytest.approx(0.5, abs=0.005)


# --- what it costs ---


def test_cross_entropy_takes_a_third_of_the_labels_of_uniform_draws():
    """Two logistic regressions, each fitted on 400 rows of ten classes; 4000 rows of a file; medians of 15 orders.

    The other draws rows evenly, labels each, and bets on values in ``[-M, M]``, also without replacement.
    """
    g = np.random.default_rng(0)
    means = g.normal(size=(10, 12)) * 1.1

    def draw(n):
        y = g.integers(0, 10, n)
        return means[y] + g.normal(size=(n, 12)), y

    (x, y), loss = draw(4000), ClippedCrossEntropy()
    old, new = (
        torch.from_numpy(LogisticRegression(max_iter=400).fit(*draw(size)).decision_function(x)) for size in (400, 500)
    )
    y = torch.from_numpy(y)
    d, bound = changes(old, new, y, loss), loss.bound(10)
    limit = float(d.mean()) + 0.15
    ours, theirs = [], []
    for seed in range(15):
        ours.append(answered(Labelling(old, new, limit=limit, loss=loss, generator=seeded(seed)), y, step=1).spent)
        values = d[np.random.default_rng(seed).permutation(len(d))]
        left = np.arange(len(d), 0, -1.0)
        path, _ = wealth_path(pool_edges(limit * len(d), values, np.ones(len(d)), left, -bound, bound, "below"))
        theirs.append(int(np.flatnonzero(path >= ENOUGH)[0]) + 1)
    assert np.median(theirs) >= 3 * np.median(ours)


@pytest.mark.parametrize("loss", [ZeroOne(), ClippedCrossEntropy()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_million_rows_and_ten_thousand_labels_are_quick(loss, scope):
    """Processor time, and memory of all arrays beyond the outputs of 10 classes."""
    g = seeded()
    n = 1_000_000
    y = torch.randint(10, (n,), generator=g)
    old = torch.randn(n, 10, generator=g)
    old[torch.arange(n), y] += 3
    new = old + 0.7 * torch.randn(n, 10, generator=g)
    limit = float((loss(new, y) - loss(old, y)).double().mean())
    tracemalloc.start()
    labelling = Labelling(old, new, limit=limit, loss=loss, scope=scope, generator=g)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 400e6
    seconds = []
    for _ in range(2):
        start = time.process_time()
        rows = labelling.next_rows(10_000)
        seconds.append(time.process_time() - start)
    start = time.process_time()
    labelling.tell(rows, y[rows])
    state = labelling.state
    assert state.lower < limit < state.upper
    assert (state.spent, labelling.progress[0].position) == (10_000, 10_000)
    assert min(seconds) + time.process_time() - start < 1


@pytest.mark.parametrize("scope", SCOPES)
def test_forecasts_are_of_the_right_size(scope):
    """After 60 labels, over seeds: the median forecast against the median of labels that it took from there."""
    forecasts, taken = [], []
    for seed in range(24):
        old, new, y = update(6000, seed, moved=0.7)
        limit = float(changes(old, new, y, ZeroOne()).mean()) + 0.02
        labelling = Labelling(old, new, limit=limit, scope=scope, generator=seeded(seed))
        assert labelling.state.forecast > 0
        assert labelling.state.at_least
        rows = labelling.next_rows(60)
        labelling.tell(rows, y[rows])
        if labelling.state.decision == "undecided":
            forecasts.append(labelling.state.forecast)
            answered(labelling, y)
            taken.append(labelling.progress[0].position - 60)
        assert labelling.state.forecast == 0
    assert len(taken) > 12
    assert min(forecasts) > 0
    assert 0.4 < np.median(forecasts) / np.median(taken) < 2.5


def test_words_say_what_the_decision_is_about():
    old, new, y = update(400, 2)
    limit = float(changes(old, new, y, ZeroOne()).mean())
    labelling = Labelling(old, new, limit=limit + 0.04, generator=seeded())
    assert "more labels would decide" in labelling.state.in_words()
    assert "this file of 400 rows" in labelling.state.in_words()
    words = answered(labelling, y).in_words()
    assert words.startswith(f"Accept after {labelling.state.spent} labels: on this file of 400 rows")
    assert "95% confidence" in words
    stream = answered(Labelling(old, new, limit=limit - 0.3, scope="population", generator=seeded()), y)
    assert stream.in_words().startswith("Reject after ")
    assert "the population that 400 rows were drawn from" in stream.in_words()


# --- bad input ---


OLD, NEW, Y = update(20, 3, moved=2.0)


def begin(**options):
    return Labelling(OLD, NEW, **{"limit": 0.0, "generator": seeded(), **options})


FIRST = int(begin().next_rows(1)[0])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: Labelling(OLD, NEW[:5], limit=0.0, generator=seeded()), "run both models on the same inputs"),
        (lambda: Labelling(OLD, [], limit=0.0, generator=seeded()), "new_outputs is empty"),
        (lambda: Labelling(OLD[:, :1], NEW[:, :1], limit=0.0, generator=seeded()), "one logit per class"),
        (lambda: begin(limit=math.nan), "limit must be a finite number"),
        (lambda: begin(confidence=1.0), "confidence must lie strictly between"),
        (lambda: begin(scope="world"), "scope must be 'file' or 'population', got 'world'"),
        (lambda: begin(generator=None), "generator must be a torch Generator, got NoneType"),
        (lambda: begin(loss=SquaredError()), "SquaredError is unbounded"),
        (lambda: begin().next_rows(0), "k must be a whole number of at least 1"),
        (lambda: begin().tell([0], [0, 1]), "1 rows but 2 labels"),
        (lambda: begin().tell([20], [0]), "rows holds 20, but there are rows 0 to 19"),
        (lambda: begin().tell([0.5], [0]), "rows holds 0.5"),
        (lambda: begin().tell([0], [3]), "row 0 has label 3, classes are 0 to 2"),
        (lambda: begin().tell([0], [1.0]), "row 0 has label 1.0, classes are 0 to 2"),
        (lambda: begin().tell([0], ["cat"]), "row 0 has label 'cat'"),
        (lambda: begin().tell([FIRST, FIRST], [0, 1]), f"row {FIRST} was labelled 0 before and is 1 now"),
    ],
)
def test_bad_input_gets_one_sentence(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_a_label_stays_as_told_and_a_bad_one_tells_nothing():
    labelling = begin()
    row = int(labelling.next_rows(1)[0])
    with pytest.raises(ValueError, match="classes are"):
        labelling.tell([row, 0], [1, 7])
    assert labelling.state.spent == 0
    labelling.tell([row], [1])
    labelling.tell([row], [1])
    assert labelling.state.spent == 1
    with pytest.raises(ValueError, match=f"row {row} was labelled 1 before and is 2 now"):
        labelling.tell([row], [2])
    old, new, _ = update(30, 0, SquaredError(limit=1.0))
    regression = Labelling(old, new, limit=0.0, loss=SquaredError(limit=1.0), generator=seeded())
    row = int(regression.next_rows(1)[0])
    with pytest.raises(ValueError, match="beyond limit=1"):
        regression.tell([row], [1.5])
    regression.tell([row], [math.nan])
    assert regression.labels == {row: None}
