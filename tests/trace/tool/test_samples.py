"""Standardised columns are a change of coordinates: models give what they gave."""

import torch

from trace import Sample
from trace.io.rows import Part
from trace.tool.samples import Scaling, Unscaled


def test_a_change_of_coordinates(generator):
    x = torch.randn(40, 3, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 1000.0, 0.0]) + 7
    part = Part("", Sample(x), [str(i) for i in range(40)], {})
    scaling = Scaling.of([part])
    z = scaling.scale(part).sample.x
    assert torch.allclose(z.mean(dim=0), torch.zeros(3, dtype=torch.float64), atol=1e-9)
    assert torch.allclose(z.std(dim=0, correction=0), torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64))
    model = torch.nn.Linear(3, 2).double()
    assert torch.allclose(Unscaled(model, scaling)(z), model(x))
