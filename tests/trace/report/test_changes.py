"""What changes: counts against brute force, drift against SciPy and a closed form, tables of any size."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from trace import Sample
from trace.estimators.labelled import slices
from trace.report.changes import (
    SHOWN,
    ColumnDrift,
    column_drift,
    drift_rows,
    slice_changes,
    slice_rows,
    transitions,
)


def scores(labels, classes):
    return torch.nn.functional.one_hot(torch.tensor(labels), classes).float()


@pytest.fixture
def drawn(generator):
    before, after, y = torch.randint(0, 4, (3, 300), generator=generator)
    return before, after, y, tuple(torch.nn.functional.one_hot(z, 5).float() for z in (before, after))


def test_classes_are_counted_and_the_worst_comes_first(drawn):
    before, after, y, outputs = drawn
    found = slice_changes(slices(*outputs, y, list("abcde"), y))
    assert {each.name for each in found} == set("abcd")  # no row is of the last
    for each in found:
        rows = y == "abcde".index(each.name)
        assert each.rows == int(rows.sum())
        assert each.changed == int((before != after)[rows].sum())
        assert each.before == pytest.approx(float((before == y)[rows].double().mean()))
        assert each.after == pytest.approx(float((after == y)[rows].double().mean()))
    falls = [each.before - each.after for each in found]
    assert falls == sorted(falls, reverse=True)
    header, first, *_ = slice_rows(found, "class")
    assert header == ["class", "rows", "changed", "right before", "after"]
    assert first[0] == found[0].name
    assert first[3:] == [f"{found[0].before:.0%}", f"{found[0].after:.0%}"]


def test_without_labels_the_class_that_changes_most_comes_first(drawn):
    before, _, _, outputs = drawn
    found = slice_changes(slices(*outputs, before, list("abcde")))
    shares = [each.changed / each.rows for each in found]
    assert shares == sorted(shares, reverse=True)
    assert all(math.isnan(each.before) for each in found)
    assert slice_rows(found, "group")[0] == ["group", "rows", "changed"]


def test_few_classes_are_a_matrix_and_many_are_pairs(drawn, generator):
    before, after, _, outputs = drawn
    header, *body = transitions(*outputs, list("abcde"))
    assert header == ["old \\ new", *"abcde"]
    expected = np.zeros((5, 5), dtype=int)
    np.add.at(expected, (before.numpy(), after.numpy()), 1)
    assert [[int(cell) for cell in row[1:]] for row in body] == expected.tolist()
    old, new = torch.randint(0, 9, (2, 400), generator=generator).tolist()
    header, *body = transitions(scores(old, 9), scores(new, 9), [f"c{i}" for i in range(9)])
    assert header == ["old model", "new model", "rows"]
    assert len(body) == 8
    counts = [int(row[2]) for row in body]
    assert counts == sorted(counts, reverse=True)
    for first, second, count in body:
        assert int(count) == sum((f"c{i}", f"c{j}") == (first, second) for i, j in zip(old, new, strict=True))
        assert first != second


def test_nothing_that_changes_is_no_table(drawn):
    *_, (outputs, _) = drawn
    assert transitions(outputs, outputs, list("abcde")) == []


def test_drift_is_scipys_and_known_for_a_translation(generator):
    x, y = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (4000, 3000))
    y[:, 1] += 1.0
    found = column_drift(Sample(x), Sample(y), ["a", "b", "c"])
    assert found[0].name == "b"
    for each in found:
        i = "abc".index(each.name)
        assert each.distance == pytest.approx(ks_2samp(x[:, i].numpy(), y[:, i].numpy()).statistic)
        assert each.beyond_chance == (each.name == "b")
    # sup |Phi(t) - Phi(t - 1)| = 2 Phi(1 / 2) - 1
    assert found[0].distance == pytest.approx(math.erf(0.5 / math.sqrt(2)), abs=0.03)
    assert found[0].shift == pytest.approx(1.0, abs=0.06)


def test_chance_alone_is_seldom_called_drift():
    """At most 5% of all tables without a shift have a column that is."""
    called = 0
    for seed in range(200):
        g = torch.Generator().manual_seed(seed)
        x, y = (torch.randn(60, 8, generator=g) for _ in range(2))
        called += any(each.beyond_chance for each in column_drift(Sample(x), Sample(y), list("abcdefgh")))
    assert called <= 20  # 200 draws at 5%: above 20 has a probability below 0.1%


def test_constant_columns_images_and_names():
    x = torch.zeros(10, 2)
    (first, _) = column_drift(Sample(x), Sample(x + torch.tensor([1.0, 0.0])), ["a", "b"])
    assert (first.name, math.isnan(first.shift), first.distance) == ("a", True, 1.0)
    assert drift_rows([first])[1] == ["a", "n/a", "1.00", "yes"]
    assert column_drift(Sample(torch.zeros(4, 3, 8, 8)), Sample(torch.zeros(4, 3, 8, 8)), []) == []
    with pytest.raises(ValueError, match="columns has 1 names for 2 columns"):
        column_drift(Sample(x), Sample(x), ["a"])
    many = [ColumnDrift(str(i), 0.0, 0.0, False) for i in range(SHOWN + 5)]
    assert len(drift_rows(many)) == 1 + SHOWN
