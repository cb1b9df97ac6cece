"""The sentences follow the numbers."""

import dataclasses
import math

import torch

from trace import Sample, diagnose
from trace.diagnostic import FORMS
from trace.losses import SquaredError
from trace.report.words import TERMS, field_of, glossary, in_words, term


def update(shift=0.0, *, labelled=True, test=True, n=200):
    g = torch.Generator().manual_seed(0)
    x, x_new = torch.randn(n, 2, generator=g), torch.randn(n, 2, generator=g) + shift
    y, y_new = (x[:, 0] > 0).long(), (x_new[:, 0] > 0).long()
    source = Sample(x, y)
    return diagnose(
        lambda x: 2 * x,
        lambda x: x @ torch.tensor([[2.0, 0.0], [1.0, 1.0]]),
        source,
        Sample(x_new, y_new if labelled else None),
        source_val=source,
        target_val=Sample(x_new, y_new),
        anchor_test=source if test else None,
        generator=g,
    )


def test_every_term_has_its_words():
    d = update(n=50)
    used = {id(term(key, form)) for form in FORMS for key in {**d.core_terms(form), **d.remainders(form)}}
    assert used == {id(each) for each in TERMS.values()}
    for form in FORMS:
        words = glossary(d, form)
        assert len(words) == len(d.core_terms(form)) + len(d.remainders(form)) + 2
        assert all(text.endswith(".") for text in words.values())
        for key, value in {**d.core_terms(form), **d.remainders(form)}.items():
            assert getattr(d, field_of(key, form)) == value
    assert "n^(-1/d)" in glossary(d, "ot")["population"]
    assert "in any dimension" in glossary(d, "hybrid")["population"]


def test_the_whole_story():
    d = update(shift=3.0)
    words = " ".join(in_words(d))
    assert f"{d.bound_core():.4g} (ot; {d.bound_full():.4g} with all remainders)" in words
    assert f"{d.bound_core('mmd'):.4g} (mmd;" in words
    assert "lie farther apart than two halves" in words
    assert "most of it" not in words
    assert "than chance explains" in words
    assert "the error rate changed by" in words


def test_a_distance_below_its_floor_is_no_shift():
    d = update()
    assert d.evidence.shift.transport.value <= d.evidence.shift.floor.value
    assert "no farther apart than two halves" in " ".join(in_words(d))


def test_what_is_not_known():
    words = " ".join(in_words(update(test=False, labelled=False)))
    assert "is not known: that takes a labelled anchor test sample" in words


def test_a_bound_that_does_not_exist():
    x = torch.arange(6.0)[:, None]
    d = diagnose(lambda x: x, lambda x: 2 * x, Sample(x, x[:, 0]), Sample(x), loss=SquaredError())
    assert math.isnan(d.bound_core())
    words = in_words(d)
    assert words[1].startswith("There is no bound on the change")
    assert len(words) == 2  # no floor without a generator


def test_one_row_has_no_standard_error():
    d = update(n=50)
    found = d.evidence.risk_change._replace(num_samples=1, standard_error=math.nan)
    alone = dataclasses.replace(d, evidence=d.evidence._replace(risk_change=found))
    assert in_words(alone)[0].startswith("True change on the anchor, from 1 labelled rows: ")


def test_a_true_change_within_its_noise_leads_no_sentence():
    d = update(n=50)
    noisy, clear = (
        dataclasses.replace(d, evidence=d.evidence._replace(risk_change=d.evidence.risk_change._replace(value=value)))
        for value in (0.5 * d.evidence.risk_change.standard_error, 9 * d.evidence.risk_change.standard_error)
    )
    assert in_words(noisy)[0].startswith("True change on the anchor: no more than chance explains (")
    assert in_words(clear)[0].startswith(f"True change on the anchor: {clear.risk_change:+.4g}, with a standard error")
