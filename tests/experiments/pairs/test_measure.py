"""What is measured on the anchor's large test sample."""

import torch
from torch import nn

from experiments.pairs.measure import anchor_losses
from trace import Sample
from trace.losses import ClippedCrossEntropy


def test_clipping_changes_predictions_where_both_logits_are_beyond_it():
    """Logits (x, x + 1): beyond B both are B, and the first class wins."""
    model = nn.Sequential(nn.Linear(1, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.ones(2, 1))
        model[0].bias.copy_(torch.tensor([0.0, 1.0]))
    loss = ClippedCrossEntropy()
    x = torch.tensor([[0.0], [1.0], [2.0], [2 * loss.clip_at]])
    found = anchor_losses(model, Sample(x, torch.ones(4, dtype=torch.long)), loss, chunk=3)
    assert found.clipped == 0.25
    assert found.wrong.tolist() == [0, 0, 0, 0]
    assert len(found.values) == 4
