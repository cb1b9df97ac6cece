"""trace.baselines against closed forms, scipy and brute force, and their invariants."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment, linprog
from scipy.special import logsumexp, softmax
from scipy.stats import entropy as scipy_entropy
from torch.nn import functional as F

from trace.baselines import BASELINES, atc, cbpe, cot, disagreement, doc, energy, entropy, label_free, mano, msp

LABELS = torch.tensor([0, 1, 2, 0, 1])
ONE_INPUT = {
    "msp": msp,
    "entropy": entropy,
    "energy": energy,
    "mano": mano,
    "cot": lambda z: cot(z, torch.ones(max(z.shape[-1], 1))),
    "doc": lambda z: doc(draw(5, 3), z),
    "atc": lambda z: atc(draw(5, 3), LABELS, z),
    "cbpe": lambda z: cbpe(draw(5, 3), LABELS, z),
}


def draw(n: int, num_classes: int, *, seed: int = 0, scale: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(n, num_classes, generator=generator, dtype=torch.float64)


def uniform(num_classes: int) -> torch.Tensor:
    return torch.full((num_classes,), 1 / num_classes, dtype=torch.float64)


def blurred(sharp):
    """Shrunk logits, less confident, some of them of another class."""
    z = 0.3 * sharp
    z[:40] = z[:40].flip(1)
    return z


def seen(sharp, update):
    """A calibration set on which the sharp model is right half of the time."""
    predicted = sharp.argmax(dim=1)
    labels = torch.where(torch.arange(len(sharp)) % 2 == 0, predicted, (predicted + 1) % 3)
    return {
        "source": update,
        "target": sharp,
        "old_target": update,
        "target_labels": labels,
        "label_marginal": uniform(3),
    }


def test_every_baseline_calls_a_blurred_model_more_harmful():
    sharp = draw(400, 3)
    calm, alarmed = (label_free(seen(sharp, z)) for z in (sharp, blurred(sharp)))
    moved = {name: alarmed[name] > calm[name] for name in calm}
    assert moved == {name: name != "negative_msp_target" for name in calm}
    assert calm["negative_msp_target"] == alarmed["negative_msp_target"] == -msp(sharp)


def test_the_registry_calls_the_functions_with_their_parts():
    sharp = draw(400, 3)
    s = seen(sharp, blurred(sharp))
    assert label_free(s) == {
        "disagreement_target": disagreement(s["old_target"], s["target"]),
        "negative_msp_source": -msp(s["source"]),
        "negative_msp_target": -msp(s["target"]),
        "entropy_source": entropy(s["source"]),
        "energy_source": energy(s["source"]),
        "atc": atc(s["target"], s["target_labels"], s["source"]),
        "doc": doc(s["target"], s["source"]),
        "cot": cot(s["source"], s["label_marginal"]),
        "mano": -mano(s["source"]),
    }


def test_both_signs_of_msp_follow_from_the_stored_one():
    stored = np.array([-0.3, -0.9])
    for domain in ("source", "target"):
        assert BASELINES[f"msp_{domain}"].harm({f"negative_msp_{domain}": stored}).tolist() == [0.3, 0.9]


def test_msp_entropy_and_energy_agree_with_scipy():
    z = draw(200, 7)
    p = softmax(z.numpy(), axis=1)
    assert msp(z) == pytest.approx(p.max(axis=1).mean(), rel=1e-12)
    assert entropy(z) == pytest.approx(scipy_entropy(p, axis=1).mean(), rel=1e-12)
    for t in (0.5, 1.0, 3.0):
        expected = -t * logsumexp(z.numpy() / t, axis=1).mean()
        assert energy(z, temperature=t) == pytest.approx(expected, rel=1e-12)


def test_extreme_logits_give_the_limits():
    certain = torch.tensor([[1e4, 0.0, -1e4]])
    assert msp(certain) == 1.0
    assert entropy(certain) == 0.0
    assert energy(certain) == -1e4
    flat = torch.zeros(2, 5)
    assert entropy(flat) == pytest.approx(math.log(5), rel=1e-15)
    assert msp(flat) == pytest.approx(0.2, rel=1e-15)


def test_confidences_near_one_stay_distinct():
    assert msp(torch.tensor([[20.0, 0.0]])) < msp(torch.tensor([[21.0, 0.0]])) < 1.0


@pytest.mark.parametrize("name", ["msp", "entropy", "doc", "atc", "cbpe", "cot"])
def test_probability_scores_ignore_a_constant_added_to_all_logits(name):
    z = draw(50, 3, seed=1)
    assert ONE_INPUT[name](z + 7) == pytest.approx(ONE_INPUT[name](z), abs=1e-12)


def test_energy_falls_by_a_constant_added_to_all_logits():
    z = draw(50, 3)
    assert energy(z + 7, temperature=2.0) == pytest.approx(energy(z, temperature=2.0) - 7, rel=1e-12)


@pytest.mark.parametrize("name", ONE_INPUT)
def test_scores_ignore_the_order_of_inputs_and_the_dtype(name):
    z = draw(60, 3, seed=2).float()
    value = ONE_INPUT[name](z.double())
    permuted = z[torch.randperm(60, generator=torch.Generator().manual_seed(0))].double()
    assert ONE_INPUT[name](permuted) == pytest.approx(value, abs=1e-12)
    if name not in ("doc", "atc", "cbpe"):  # these compare two samples of one dtype
        assert ONE_INPUT[name](z) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("name", ["msp", "entropy", "energy", "mano"])
def test_scores_ignore_the_names_of_classes(name):
    z = draw(60, 5, seed=3)
    assert ONE_INPUT[name](z[:, [3, 1, 4, 0, 2]]) == pytest.approx(ONE_INPUT[name](z), rel=1e-12)


def test_scores_of_tensors_with_gradients():
    z = draw(5, 3).requires_grad_()
    values = [score(z) for score in ONE_INPUT.values()] + [disagreement(z, 2 * z)]
    assert all(type(value) is float for value in values)


def isotonic(x, y, new):
    """``max_a min_b mean(y_a .. y_b)`` over sorted x without ties (Barlow et al., 1972), linear between, then flat."""
    order = np.argsort(x)
    x, y = x[order], y[order]
    fitted = [max(min(y[a : b + 1].mean() for b in range(i, len(y))) for a in range(i + 1)) for i in range(len(y))]
    return np.interp(new, x, fitted)


@pytest.mark.parametrize("num_classes", [2, 4])
def test_cbpe_against_the_closed_form_of_isotonic_regression(num_classes):
    known, new = draw(60, num_classes), draw(25, num_classes, seed=1, scale=5.0)
    labels = torch.where(torch.arange(60) % 3 == 0, torch.arange(60) % num_classes, known.argmax(dim=1))
    p, q = softmax(known.numpy(), axis=1), softmax(new.numpy(), axis=1)
    c = np.stack([isotonic(p[:, k], (labels == k).numpy() * 1.0, q[:, k]) for k in range(num_classes)], axis=1)
    total = c.sum(axis=1, keepdims=True)
    c = np.where(total > 0, c / np.where(total > 0, total, 1), 1 / num_classes)
    expected = 1 - c[np.arange(25), q.argmax(axis=1)].mean()
    assert cbpe(known, labels, new) == pytest.approx(expected, abs=1e-12)


def test_cbpe_of_two_classes_is_one_regression():
    known, new = draw(80, 2), draw(30, 2, seed=1)
    labels = torch.arange(80) % 2
    p, q = (softmax(z.numpy(), axis=1)[:, 1] for z in (known, new))
    c = isotonic(p, labels.numpy() * 1.0, q)
    assert cbpe(known, labels, new) == pytest.approx(np.where(q > 0.5, 1 - c, c).mean(), abs=1e-12)


def test_cbpe_finds_the_error_of_an_overconfident_model_where_labels_follow_the_same_rule(generator):
    """P(y | x) is the softmax of half the logits, here and there; inputs there are harder. Two classes: of more, one
    probability alone does not decide how often its class is right."""
    z, new = draw(20_000, 2, seed=1, scale=2.0), draw(20_000, 2, seed=2, scale=1.0)
    labels = torch.multinomial((z / 2).softmax(dim=1), 1, generator=generator)[:, 0]
    truth = 1 - float((new / 2).softmax(dim=1).gather(1, new.argmax(dim=1, keepdim=True)).mean())
    assert cbpe(z, labels, new) == pytest.approx(truth, abs=0.01)
    assert 1 - msp(new) < truth - 0.05


def test_cbpe_is_uniform_where_no_class_has_any_probability_left():
    """Each class is right above 0.5 and never at 0.4 or below: a third is too little for all of them."""
    known = torch.tensor([[0.4, 0.59, 0.01], [0.01, 0.4, 0.59], [0.59, 0.01, 0.4]], dtype=torch.float64).log()
    right = known.argmax(dim=1)
    assert cbpe(known, right, known) == 0.0
    assert cbpe(known, right, torch.zeros(1, 3, dtype=torch.float64)) == pytest.approx(2 / 3)


@pytest.mark.parametrize("seed", range(5))
def test_atc_in_sample_gives_the_calibration_error(seed):
    z = draw(101, 4, seed=seed)
    labels = torch.randint(4, (101,), generator=torch.Generator().manual_seed(seed))
    error = float((z.argmax(dim=1) != labels).double().mean())
    assert atc(z, labels, z) == error


def test_atc_out_of_sample_against_a_sorted_threshold():
    z, new = draw(200, 4), draw(300, 4, seed=1, scale=1.5)
    labels = torch.where(torch.arange(200) < 150, z.argmax(dim=1), (z.argmax(dim=1) + 1) % 4)

    def confidence(logits):
        return -scipy_entropy(softmax(logits.numpy(), axis=1), axis=1)

    t = np.sort(confidence(z))[50]
    assert atc(z, labels, new) == np.mean(confidence(new) < t)


def test_atc_with_ties_takes_the_nearest_fraction():
    """Confidences in groups of 3, 4 and 3; 4 errors are nearer to 3 below than to 7, and 6 errors nearer to 7."""
    margins = torch.tensor([1.0] * 3 + [2.0] * 4 + [3.0] * 3)
    z = torch.stack([margins, torch.zeros(10)], dim=1)
    new = torch.tensor([[0.5, 0.0], [1.5, 0.0], [2.5, 0.0], [3.5, 0.0]])
    for num_wrong, expected in ((0, 0.25), (3, 0.5), (4, 0.5), (5, 0.5), (6, 0.75), (8, 0.75), (9, 1.0), (10, 1.0)):
        labels = (torch.arange(10) < num_wrong).long()
        assert atc(z, labels, new) == expected


def test_atc_without_errors_or_without_correct_predictions():
    z = draw(50, 3)
    right, wrong = z.argmax(dim=1), (z.argmax(dim=1) + 1) % 3
    assert atc(z, right, z) == 0.0
    assert atc(z, right, torch.zeros(4, 3, dtype=z.dtype)) == 1.0
    assert atc(z, wrong, 1e4 * z) == 1.0


def test_doc_is_a_difference_of_mean_confidences():
    z, new = draw(40, 3), draw(30, 3, seed=1, scale=1.0)
    expected = softmax(z.numpy(), axis=1).max(axis=1).mean() - softmax(new.numpy(), axis=1).max(axis=1).mean()
    assert doc(z, new) == pytest.approx(expected, rel=1e-12)
    assert doc(new, z) == pytest.approx(-expected, rel=1e-12)
    assert doc(z, z) == 0.0


def test_disagreement_counts_and_bounds_the_change_in_error():
    z, new = draw(500, 4), draw(500, 4) + draw(500, 4, seed=1, scale=1.0)
    value = disagreement(z, new)
    assert value == np.mean(z.numpy().argmax(axis=1) != new.numpy().argmax(axis=1)) == disagreement(new, z)
    assert disagreement(z, z) == 0.0
    assert disagreement(z, 2 * z + 1) == 0.0
    for seed in range(20):
        y = torch.randint(4, (500,), generator=torch.Generator().manual_seed(seed))
        errors = [(logits.argmax(dim=1) != y).double().mean() for logits in (z, new)]
        assert abs(errors[1] - errors[0]) <= value + 1e-12


def taylor_reference(z: np.ndarray, p: float) -> float:
    """The truncated branch, entry by entry."""
    total = 0.0
    for row in z:
        v = [1 + x + x**2 / 2 for x in row]
        v = [x - min(v) for x in v]
        total += sum((x / sum(v)) ** p for x in v)
    return (total / z.size) ** (1 / p)


@pytest.mark.parametrize("p", [1.5, 2, 4])
def test_mano_takes_the_branch_of_its_criterion(p):
    uncertain, certain = draw(50, 6, scale=1.0), draw(50, 6, scale=20.0)

    def criterion(z):
        return float(F.cross_entropy(z, torch.full_like(z, 1 / 6)))

    assert criterion(uncertain) < 5 < criterion(certain)
    assert mano(uncertain, p=p) == pytest.approx(taylor_reference(uncertain.numpy(), p), rel=1e-12)
    expected = np.mean(softmax(certain.numpy(), axis=1) ** p) ** (1 / p)
    assert mano(certain, p=p) == pytest.approx(expected, rel=1e-12)
    switched = mano(uncertain, p=p, threshold=criterion(uncertain) - 1e-9)
    assert switched == pytest.approx(np.mean(softmax(uncertain.numpy(), axis=1) ** p) ** (1 / p), rel=1e-12)


def test_mano_limits():
    assert mano(1e3 * torch.eye(4)) == pytest.approx(4**-0.25, rel=1e-12)
    assert mano(torch.zeros(3, 4)) == pytest.approx(0.25, rel=1e-12)
    assert mano(torch.zeros(3, 400)) == pytest.approx(1 / 400, rel=1e-12)
    two_classes = [mano(draw(50, 2, seed=seed, scale=1.0)) for seed in range(3)]
    assert two_classes == pytest.approx([2**-0.25] * 3, rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_cot_is_the_best_assignment_of_labels(seed):
    """With counts n_k of each class the plan is an assignment of n inputs to n labels."""
    counts = [5, 9, 2, 4]
    z = draw(20, 4, seed=seed)
    p = softmax(z.numpy(), axis=1)
    labels = np.repeat(np.arange(4), counts)
    one_hot = np.eye(4)[labels]
    half_l1 = np.abs(p[:, None] - one_hot[None]).sum(axis=2) / 2
    largest = np.abs(p[:, None] - one_hot[None]).max(axis=2)
    np.testing.assert_allclose(half_l1, largest, atol=1e-15)
    rows, columns = linear_sum_assignment(half_l1)
    expected = half_l1[rows, columns].mean()
    assert cot(z, torch.tensor(counts).double()) == pytest.approx(expected, rel=1e-12)
    assert cot(z, torch.tensor(counts).double() / 20) == pytest.approx(expected, rel=1e-12)


def test_cot_with_any_marginal_solves_the_linear_programme():
    z, marginal = draw(12, 3), torch.tensor([0.21, 0.5, 0.29], dtype=torch.float64)
    cost = 1 - softmax(z.numpy(), axis=1)
    rows = np.kron(np.eye(12), np.ones(3))
    columns = np.kron(np.ones(12), np.eye(3))
    solution = linprog(cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.r_[np.full(12, 1 / 12), marginal.numpy()])
    assert cot(z, marginal) == pytest.approx(solution.fun, rel=1e-9)


def test_cot_is_at_least_the_unconfidence_with_equality_at_the_predicted_marginal():
    z = draw(300, 5)
    predicted = torch.bincount(z.argmax(dim=1), minlength=5).double()
    floor = 1 - msp(z)
    assert cot(z, predicted) == pytest.approx(floor, rel=1e-12)
    assert cot(z, uniform(5)) >= floor - 1e-12
    assert cot(z, torch.tensor([1.0, 0, 0, 0, 0])) == pytest.approx(1 - float(z.softmax(dim=1)[:, 0].mean()), rel=1e-12)


def test_cot_of_certain_predictions_is_the_total_variation_between_marginals():
    z = 1e3 * F.one_hot(torch.tensor([0] * 7 + [1] * 2 + [2]), 3).double()
    marginal = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    assert cot(z, marginal) == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize(
    ("marginal", "message"),
    [
        (torch.ones(4), r"must be a torch tensor of shape \[3\]"),
        ([1.0, 1.0, 1.0], r"must be a torch tensor of shape \[3\]"),
        (torch.tensor([0.5, 0.6, -0.1]), "must be nonnegative"),
        (torch.zeros(3), "must be nonnegative with a positive sum"),
        (torch.tensor([0.5, 0.5, math.nan]), "holds NaN"),
        (torch.tensor([1, 2, 3]), "must be float32 or float64"),
    ],
)
def test_bad_marginals_are_refused(marginal, message):
    with pytest.raises(ValueError, match=f"^label_marginal {message}"):
        cot(draw(5, 3), marginal)


def test_an_unfinished_transport_is_refused():
    with pytest.warns(UserWarning, match="numItermax"), pytest.raises(ValueError, match="num_iters=1 did not suffice"):
        cot(draw(200, 5), uniform(5), num_iters=1)


@pytest.mark.parametrize("name", ONE_INPUT)
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (
            torch.tensor([[0.0, 1.0, 2.0], [0.0, math.nan, 2.0]]).double(),
            "logits holds NaN or infinity .first in row 1",
        ),
        (torch.tensor([[0.0, 1.0, math.inf]]).double(), "logits holds NaN"),
        (torch.zeros(0, 3).double(), "logits has 0 samples"),
        (torch.zeros(5, 1).double(), r"logits has shape \[5, 1\], one logit per class"),
        (torch.zeros(5).double(), r"logits must have shape \[n, d\]"),
        (torch.zeros(5, 3, dtype=torch.long), "logits must be float32 or float64"),
    ],
)
def test_bad_logits_are_refused(name, bad, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        ONE_INPUT[name](bad)


def test_logits_that_are_no_tensor_are_refused():
    with pytest.raises(ValueError, match="logits must be a torch tensor, got list"):
        msp([[0.0, 1.0]])


@pytest.mark.parametrize(
    "score",
    [lambda known, z: doc(known, z), lambda known, z: atc(known, LABELS, z), lambda known, z: cbpe(known, LABELS, z)],
    ids=["doc", "atc", "cbpe"],
)
def test_bad_calibration_logits_are_refused(score):
    with pytest.raises(ValueError, match="calibration_logits holds NaN"):
        score(torch.full((5, 3), math.nan), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="calibration_logits has 0 samples"):
        score(torch.zeros(0, 3), torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"calibration_logits has shape \[5, 1\]"):
        score(torch.zeros(5, 1), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="calibration_logits and logits differ in columns"):
        score(torch.zeros(5, 4), torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"calibration_logits is torch\.float32 but logits is"):
        score(torch.zeros(5, 3), torch.zeros(2, 3).double())


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 1, 2, 3, 0]), "holds labels 0 to 3, but the model has 3 outputs"),
        (torch.tensor([0, 1, -1, 0, 0]), "holds labels -1 to 1"),
        (torch.tensor([0, 1]), "has shape .2. for 5 samples"),
        (torch.zeros(5), "must be an integer tensor"),
        ([0, 1, 2, 0, 1], "must be an integer tensor of class indices, got list"),
    ],
)
def test_bad_calibration_labels_are_refused(labels, message):
    with pytest.raises(ValueError, match=f"^calibration_labels {message}"):
        atc(draw(5, 3), labels, draw(2, 3))
    with pytest.raises(ValueError, match=f"^calibration_labels {message}"):
        cbpe(draw(5, 3), labels, draw(2, 3))


def test_bad_pairs_are_refused():
    z = draw(5, 3)
    with pytest.raises(ValueError, match=r"logits has 5 rows .* new_logits has 4"):
        disagreement(z, z[:4])
    with pytest.raises(ValueError, match="logits and new_logits differ in columns"):
        disagreement(z, z[:, :2])
    with pytest.raises(ValueError, match="new_logits holds NaN"):
        disagreement(z, z * math.nan)
    with pytest.raises(ValueError, match=r"logits has shape \[5, 1\], one logit per class"):
        disagreement(z[:, :1], z[:, :1])


def test_bad_options_are_refused():
    z = draw(5, 3)
    for temperature in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="temperature must be finite and positive"):
            energy(z, temperature=temperature)
    for p in (1.0, 0.5, math.inf, math.nan):
        with pytest.raises(ValueError, match="p must be finite and above 1"):
            mano(z, p=p)
    with pytest.raises(ValueError, match="threshold must be finite and positive"):
        mano(z, threshold=0.0)
