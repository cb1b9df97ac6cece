"""Logits, labels, pairs and options that trace.baselines refuses, each with one sentence."""

from __future__ import annotations

import math

import pytest
import torch

from tests.test_baselines import LABELS, ONE_INPUT, draw
from trace.baselines import atc, disagreement, doc, energy, mano, msp


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
    "score", [lambda known, z: doc(known, z), lambda known, z: atc(known, LABELS, z)], ids=["doc", "atc"]
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
    with pytest.raises(ValueError, match="score must be one of negative_entropy, max_confidence, got 'margin'"):
        atc(z, LABELS, z, score="margin")
