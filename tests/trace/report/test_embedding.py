"""The two-dimensional picture: the singular value decomposition up to sign, invariances, degenerate samples."""

import math

import numpy as np
import pytest
import torch

from trace.report.embedding import embedding, principal_axes


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def spread(n, k, seed):
    return torch.randn(n, k, generator=generator(seed), dtype=torch.float64) * torch.linspace(3, 0.5, k)


def matched(ours, theirs):
    """Both up to the order of rows, which is drawn."""
    return torch.sort(ours.abs(), dim=0).values, torch.sort(theirs.abs(), dim=0).values


@pytest.mark.parametrize(("n", "m", "k"), [(60, 50, 7), (12, 9, 40)])
def test_agrees_with_the_singular_value_decomposition(n, m, k):
    x, y = spread(n, k, 1), spread(m, k, 2) + 1.5
    found = embedding(x, y, generator=generator())
    mean = torch.cat([x, y]).mean(dim=0)
    _, values, rows = torch.linalg.svd(torch.cat([x, y]) - mean, full_matrices=False)
    assert found.explained == pytest.approx((values**2 / (values**2).sum())[:2].tolist())
    for ours, sample in ((found.source, x), (found.target, y)):
        torch.testing.assert_close(*matched(ours, (sample - mean) @ rows[:2].T))
    assert found.sizes == (n, m)


def test_the_axes_do_not_flip():
    x, y = spread(30, 4, 3), spread(30, 4, 4)
    first, mirrored = embedding(x, y, generator=generator()), embedding(-x, -y, generator=generator())
    torch.testing.assert_close(first.source, -mirrored.source)
    again = embedding(x + 100, y + 100, generator=generator())
    torch.testing.assert_close(first.target, again.target)


def test_large_samples_are_thinned_by_the_generator():
    x, y = spread(500, 3, 5), spread(400, 3, 6)
    first, same, other = (embedding(x, y, generator=generator(s), max_points=20, max_rows=100) for s in (0, 0, 1))
    assert first.source.shape == first.target.shape == (20, 2)
    assert first.sizes == (100, 100)
    assert torch.equal(first.source, same.source)
    assert not torch.equal(first.source, other.source)


def test_one_feature_has_one_axis():
    x = torch.tensor([[0.0], [1.0], [5.0]])
    found = embedding(x, x + 1, generator=generator())
    assert found.explained == pytest.approx((1.0, 0.0))
    assert not found.source[:, 1].any()
    assert sorted(found.source[:, 0].diff().abs().tolist()) != [0.0, 0.0]


def test_coinciding_points_explain_nothing():
    x = torch.ones(4, 3)
    found = embedding(x, x, generator=generator())
    assert all(math.isnan(share) for share in found.explained)
    assert not found.source.any()


@pytest.mark.parametrize(
    ("x", "y", "options", "message"),
    [
        (torch.ones(3, 2), torch.ones(3, 4), {}, "differ in columns"),
        (torch.ones(3, 2), torch.full((2, 2), math.nan), {}, "target holds NaN"),
        (torch.ones(3), torch.ones(3), {}, r"source must have shape \[n, d\]"),
        (torch.ones(3, 2), torch.ones(3, 2), {"max_points": 0}, "max_points"),
        (torch.ones(3, 2), torch.ones(3, 2), {"max_rows": 0}, "max_rows"),
    ],
)
def test_refuses(x, y, options, message):
    with pytest.raises(ValueError, match=message):
        embedding(x, y, generator=generator(), **options)


@pytest.mark.parametrize("n", [50, 5])
def test_axes_are_those_of_the_singular_value_decomposition(n):
    """From the covariance, and from the Gram matrix where there are fewer rows than columns."""
    x = torch.randn(n, 6, generator=generator()) * torch.tensor([5.0, 3.0, 1.0, 1.0, 0.5, 0.1]) + 7
    axes = principal_axes(x)
    centred = x.double().numpy() - x.double().numpy().mean(axis=0)
    _, values, rows = np.linalg.svd(centred, full_matrices=False)
    assert axes.explained.numpy() == pytest.approx(values[:2] ** 2 / (values**2).sum())
    for found, expected in zip(axes.directions.T.numpy(), rows[:2], strict=True):
        sign = np.sign(expected[np.abs(expected).argmax()])
        assert found == pytest.approx(sign * expected)
        assert found[np.abs(found).argmax()] > 0
    assert axes.coordinates(x).var(dim=0, correction=0).numpy() == pytest.approx(values[:2] ** 2 / n)
    torch.testing.assert_close(principal_axes(x[torch.randperm(n, generator=generator(1))]).directions, axes.directions)
