"""What a report shows about an anchor: rows of the right sample with their own predictions, labels and images."""

import math

import pytest
import torch

from trace import Sample, diagnose
from trace.losses import SquaredError
from trace.report.page import report_case

from .diagnostics import NASTY, bare_cases, full_cases


@pytest.fixture
def parts(generator):
    x, y = (torch.randn(n, 3, generator=generator) for n in (12, 9))
    source, target = Sample(x, torch.arange(12) % 2), Sample(y + 3)
    logits = [tuple(torch.randn(n, 2, generator=generator) for _ in range(2)) for n in (12, 9)]
    d = diagnose(lambda x: x[:, :2], lambda x: x[:, 1:], source, target)
    names = ([f"s{i}" for i in range(12)], [f"t{i}" for i in range(9)])
    return {
        "anchor": "a",
        "diagnostic": d,
        "source": source,
        "target": target,
        "source_features": source.x,
        "target_features": target.x,
        "source_logits": logits[0],
        "target_logits": logits[1],
        "names": names,
    }


def test_every_example_is_the_row_it_names(parts, generator):
    case = report_case(**parts, generator=generator, num_examples=4)
    assert len(case.shifted) == len(case.disagreeing) == 4
    for examples, kind in ((case.shifted, "target"), (case.disagreeing, "source")):
        ranks = [(e.outcome == "newly wrong", e.old.label != e.new.label) if kind == "source" else 0 for e in examples]
        order = [(rank, e.value) for rank, e in zip(ranks, examples, strict=True)]
        assert order == sorted(order, reverse=True)
        for e in examples:
            row = parts["names"][kind == "target"].index(e.name)
            for prediction, logits in ((e.old, parts[f"{kind}_logits"][0]), (e.new, parts[f"{kind}_logits"][1])):
                p = logits[row].double().softmax(dim=0)
                assert prediction == (str(int(p.argmax())), float(p.max()))
            assert e.label == ("" if kind == "target" else str(row % 2))
            assert e.image == ""


def test_the_same_generator_gives_the_same_case(parts):
    first, second = (report_case(**parts, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first.embedding.source, second.embedding.source)
    assert first.shifted == second.shifted


def test_classes_have_names_and_images_are_drawn():
    (case, _) = full_cases()
    assert all(e.image.startswith("data:image/png;base64,") for e in case.shifted + case.disagreeing)
    assert {e.label for e in case.disagreeing} <= {"zero & none", *"123456789"}
    assert case.disagreeing[0].name.startswith(NASTY)
    assert 0 < case.mean_disagreement < case.disagreeing[0].value
    assert case.typical_distance > 0


def test_unlabelled_rows_have_no_label():
    (case,) = bare_cases()
    assert {e.label for e in case.shifted + case.disagreeing} == {""}
    assert all(e.old is not None for e in case.shifted)


def test_regression_has_no_classes_to_disagree_on(generator):
    x, y = (torch.randn(n, 2, generator=generator) for n in (10, 8))
    source, target = (Sample(z, torch.randn(len(z), generator=generator)) for z in (x, y))
    models = (lambda x: x[:, :1], lambda x: x[:, 1:])
    d = diagnose(*models, source, target, loss=SquaredError())
    outputs = [tuple(m(s.x) for m in models) for s in (source, target)]
    names = [str(i) for i in range(10)], [str(i) for i in range(8)]
    case = report_case("a", d, source, target, x, y, *outputs, names, generator=generator)
    assert case.disagreeing == []
    assert math.isnan(case.mean_disagreement)
    assert all(e.old is None and e.label for e in case.shifted)


def test_no_examples_on_demand(parts, generator):
    case = report_case(**parts, generator=generator, num_examples=0)
    assert case.shifted == case.disagreeing == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": (["s"], ["t"] * 9)}, "names of source: 1 for the 12 inputs"),
        ({"target_features": torch.ones(3, 3)}, "target_features: 3 for the 9 inputs"),
        ({"source_features": torch.ones(12, 4)}, "differ in columns"),
        ({"source_logits": (torch.ones(12, 2), torch.ones(11, 2))}, "run both models on the same inputs"),
        ({"target_logits": (torch.ones(4, 2), torch.ones(4, 2))}, "target_logits: 4 for the 9 inputs"),
        ({"classes": ["one"]}, "1 names for 2 outputs"),
        ({"num_examples": -1}, "num_examples"),
    ],
)
def test_refuses(parts, generator, change, message):
    with pytest.raises(ValueError, match=message):
        report_case(**{**parts, **change}, generator=generator)
