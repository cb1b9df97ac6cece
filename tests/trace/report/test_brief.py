"""The few lines: short, no number within its noise first, no vacuous term first, always with a next step."""

import dataclasses
import math
import re
import warnings

import pytest
import torch
from torch import nn

from trace import Policy, Sample, Settings, decide, diagnose
from trace.gate.policy import rounded
from trace.losses import ClippedCrossEntropy, SquaredError
from trace.report.brief import LINES, diagnosis, measured_ends, telling_terms, to_brief, why
from trace.report.verdict import to_brief as verdict_to_brief

from ..gate.test_policy import record

WIDTH = 330
"""Characters of the longest line: a reason with what labels say of it."""
CASES = range(36)


def linear(weight):
    model = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    model.weight.data.copy_(weight)
    return model


def drawn(seed):
    """Some update of a linear classifier: sizes, classes, shift and size of the change differ, labels may be missing.

    Every third has no held-out rows on one side, every fifth is a regression, every seventh changes next to nothing.
    """
    g = torch.Generator().manual_seed(seed)
    classes, dim = 2 + seed % 3, 2 + seed % 4
    outputs = 1 if seed % 5 == 4 else classes
    W = 2 * torch.randn(outputs, dim, generator=g)
    change = 1e-6 if seed % 7 == 6 else 2.0 ** (seed % 6 - 3)
    new = W + change * torch.randn(outputs, dim, generator=g)

    def sample(n, shift, labelled):
        x = torch.randn(n, dim, generator=g) + shift
        z = x @ W.T
        noise, chance = torch.randn(n, generator=g), z.softmax(dim=1)
        y = z[:, 0] + noise if outputs == 1 else chance.multinomial(1, generator=g)[:, 0]
        return Sample(x, y if labelled else None)

    shift, n = 2.0 ** (seed % 8 - 3), (40, 150, 600)[seed % 3]
    samples = {
        "source_val": sample(n, 0.0, seed % 2 == 0) if seed % 3 else None,
        "target_val": sample(n, shift, True) if seed % 6 else None,
        "anchor_test": sample(4 * n, 0.0, True) if seed % 4 == 1 else None,
    }
    loss = (SquaredError(500.0) if seed % 2 else SquaredError()) if outputs == 1 else ClippedCrossEntropy()
    return diagnose(
        linear(W),
        linear(new),
        sample(n, 0.0, True),
        sample(n, shift, seed % 5 != 3),
        **samples,
        loss=loss,
        settings=Settings(num_iters=30),
        generator=g,
    )


@pytest.fixture(scope="module")
def diagnostics():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the ridge chosen")  # some of the samples are small
        return {seed: drawn(seed) for seed in CASES}


def numbers(line):
    """Numbers of a line, without their signs and units."""
    return re.findall(r"(?<![\w.])\d[\d.,e-]*\d|(?<![\w.])\d", line)


def digits(text):
    """Significant ones.

    >>> digits("0.00120"), digits("130,000"), digits("1.2e-05")
    (3, 2, 2)
    """
    whole = text.replace(",", "").split("e")[0]
    return len(whole.replace(".", "").lstrip("0") if "." in whole else whole.strip("0"))


def test_the_cases_are_of_all_kinds(diagnostics):
    found = list(diagnostics.values())
    assert any(d.evidence.labelled is None for d in found)
    assert any(not d.evidence.slices for d in found)
    assert any("anchor" in d.reasons for d in found)
    assert any(math.isinf(d.evidence.loss_range) for d in found)
    vacuous = [max(d.core_terms().values(), key=lambda v: v if v == v else -1) >= d.evidence.loss_range for d in found]
    assert 3 < sum(vacuous) < len(found) - 3
    assert {decide({"a": d}, Policy()).decision for d in found} == {"accept", "reject", "inconclusive"}


@pytest.mark.parametrize("seed", CASES)
def test_a_diagnosis_is_short_and_leads_with_what_is_known(diagnostics, seed):
    d = diagnostics[seed]
    lines = to_brief({"a": d}).splitlines()
    assert len(lines) <= LINES
    assert all(len(line) <= WIDTH for line in lines)
    assert not re.search(r"\b(nan|inf|n/a)\b", " ".join(lines))
    counts = {str(n) for n in (*d.evidence.sizes.values(), d.evidence.anchor.num_samples)}
    assert all(digits(number) <= 4 or number in counts for line in lines for number in numbers(line))
    assert sum(line.startswith("Next: ") for line in lines) == 1
    assert not re.search("penalty|the bound|term", lines[0])


@pytest.mark.parametrize("seed", CASES)
def test_no_value_within_its_noise_leads_and_a_change_has_its_sign(diagnostics, seed):
    d = diagnostics[seed]
    lines, ends = diagnosis(d), d.intervals()
    score = "error_change" if d.evidence.slices else "risk_change"
    said = [line for line in lines if re.match("The (error rate|risk) (rises|falls) by", line)]
    if score in ends:
        beyond = ends[score].lower > 0 or ends[score].upper < 0
        assert len(said) == beyond
        assert all((" rises " in line) == (ends[score].lower > 0) for line in said)
    else:
        assert not said
    within = [t.value for name, t in (("error_change", d.evidence.labelled and d.evidence.labelled.error),) if t]
    for value in within:
        if not math.isnan(value) and ends[score].lower <= 0 <= ends[score].upper:
            assert not any(numbers(line)[:1] == [f"{abs(100 * value):.3g}"] and value for line in lines)
    if "anchor" in d.reasons:
        assert "not held out" in lines[0] or "predictions" not in lines[0].lower()
        assert "anchor_disagreement" not in measured_ends(d.estimates(), 0.05)


@pytest.mark.parametrize("seed", CASES)
def test_a_vacuous_or_noisy_term_is_no_reason(diagnostics, seed):
    d = diagnostics[seed]
    terms, telling = d.core_terms(), telling_terms(d)
    assert all(0 < value < d.evidence.loss_range for value in telling.values())
    for line in why(d):
        if line.startswith("Why: "):
            assert f"{max(telling.values()):.2g}." in line
        else:
            assert line.endswith("the loss allows and says nothing.") or line.endswith("and say nothing.")
            assert not numbers(line)
    if all(value >= d.evidence.loss_range or math.isnan(value) for value in terms.values()):
        assert not any(line.startswith("Why: ") for line in why(d))


def test_the_published_example_does_not_open_with_its_penalty(diagnostics):
    d = next(d for d in diagnostics.values() if d.evidence.slices and "anchor" not in d.reasons)
    vacuous = dataclasses.replace(d, emp_shift_ot=179.5)
    assert "179" not in to_brief({"a": vacuous})
    assert "The covariate-shift penalty is more than the loss allows and says nothing." in diagnosis(vacuous)


def test_the_same_model_is_one_sentence():
    g = torch.Generator().manual_seed(0)
    x, model = torch.randn(50, 2, generator=g), linear(torch.eye(2))
    d = diagnose(model, model, Sample(x, (x[:, 0] > 0).long()), Sample(x + 1))
    assert diagnosis(d) == ["The new model is the old one: nothing changes."]


def test_many_anchors_fit_and_the_worst_comes_first(diagnostics):
    several = {f"anchor {seed}\n\x1b[2J": diagnostics[seed] for seed in CASES}
    lines = to_brief(several, ["The outputs look like probabilities."]).splitlines()
    assert len(lines) <= LINES
    assert lines[0] == "The outputs look like probabilities."
    first = int(re.match(r"anchor (\d+)", lines[1])[1])
    assert decide({"a": diagnostics[first]}, Policy()).decision == "reject"
    assert f"and {len(several) - (LINES - 4)} more anchors." in lines
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("seed", CASES)
@pytest.mark.parametrize("at", ["far below", "below", "on it", "above"])
def test_a_verdict_is_short_and_says_what_to_do(diagnostics, seed, at):
    d = diagnostics[seed]
    value = d.evidence.anchor.disagreement.value
    if math.isnan(value):
        policy = Policy(1.0, "held_out_distance")
    else:
        limit = {"far below": 0.001, "below": 0.7 * value, "on it": value, "above": 1.5 * value}[at]
        policy = Policy(min(max(limit, 0.001), 0.99), min_source=10)
    verdict = decide({"a": d, "b": d, **{str(i): d for i in range(6)}}, policy)
    records = dict.fromkeys([a.anchor for a in verdict.anchors], d)
    lines = verdict_to_brief(verdict, records).splitlines()
    assert len(lines) <= LINES
    assert all(len(line) <= WIDTH for line in lines)
    assert lines[0].split()[0].rstrip(",") == verdict.decision.upper()
    assert lines[1].startswith("Next: ") == (verdict.decision != "accept")
    assert re.search(r"  and \d+ more", " ".join(lines))
    lead = verdict.anchors[0]
    if verdict.decision == "inconclusive" and math.isfinite(lead.lower) and lead.needed:
        assert re.search(r"Next: (add|collect) [\d,]+ ", lines[1])


@pytest.mark.parametrize(("changed", "limit"), [(40, 0.1), (1, 0.0025), (0, 0.001), (399, 0.9975)])
def test_on_the_limit_itself_a_number_of_rows_is_named(changed, limit):
    verdict = decide({"a": record(changed)}, Policy(limit))
    assert verdict.decision == "inconclusive"
    more = verdict.anchors[0].needed - 400
    assert f"Next: add {rounded(more)} anchor samples" in verdict_to_brief(verdict, {"a": record(changed)})
