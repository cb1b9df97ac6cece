"""Intervals of gate scores: formulas of `trace.scores` and the diagnostic, coverage in a world with known answers.

Sources are ``N(0, I_2)``, targets ``N((0.7, 0), I_2)``, both models linear: means come from quadrature, distances from
closed forms, quantiles from two million draws. The world and its models are those of `test_coverage`.
"""

import json
import math

import pytest
import torch

from trace import Sample, Settings, diagnose
from trace.estimators import gradient_norms, sinkhorn_divergence
from trace.evidence import measure_shift
from trace.gate.intervals import mmd, score_interval, transport
from trace.io.writing import strict_json
from trace.losses import SquaredError, ZeroOne
from trace.scores import GATE_SCORES
from trace.stats.intervals import proportion_interval

from ..test_coverage import LOSS, NEW, OLD, SHIFT, W_NEW, W_OLD, draw, holds, quadrature, risk

pytestmark = pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation")

SETTINGS = Settings(q=0.9, epsilon=0.5, bandwidth=1.5, c_h=2.0)
DRAWS = 100
LABELLED = ("risk_change", "error_change")


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def grouped(sample):
    return sample._replace(group=tuple("right" if x > 0 else "left" for x in sample.x[:, 0].tolist()))


@pytest.fixture(scope="module")
def diagnostics():
    def one(g):
        return diagnose(
            OLD,
            NEW,
            draw(200, g),
            draw(150, g, SHIFT),
            source_val=grouped(draw(150, g)),
            target_val=draw(150, g, SHIFT),
            settings=SETTINGS,
            generator=g,
        )

    return [one(seeded(seed)) for seed in range(DRAWS)]


def gaussian_divergence(gap, scale, dim, epsilon):
    """Sinkhorn divergence between ``N(0, I)`` and ``N(gap, scale^2 I)`` (Janati et al., 2020), cost ``|x - y|^2``."""

    def ot(a, b):
        s = epsilon / 2
        d = math.sqrt(4 * a**2 * b**2 + s**2)
        return dim * (a**2 + b**2 - d + s * (1 - math.log(2 * s)) + s * math.log(d + s))

    return gap**2 + ot(1, scale) - (ot(1, 1) + ot(scale, scale)) / 2


def gaussian_mmd(gap, scale, dim, bandwidth):
    def k(variance, gap):
        total = bandwidth**2 + variance
        return (bandwidth**2 / total) ** (dim / 2) * math.exp(-(gap**2) / (2 * total))

    return math.sqrt(k(2, 0) + k(2 * scale**2, 0) - 2 * k(1 + scale**2, gap))


def labelled_truths(big):
    """What labels, classes and groups of a million rows say."""
    before, after = OLD(big.x).argmax(dim=1), NEW(big.x).argmax(dim=1)
    changed, rise = (before != after).double(), (after != big.y).double() - (before != big.y).double()
    losses = LOSS(NEW(big.x), big.y) - LOSS(OLD(big.x), big.y)
    left = big.x[:, 0] <= 0

    def worst(values, *parts):
        return max(float(values[part].mean()) for part in parts)

    return {
        "class_disagreement": worst(changed, before == 0, before == 1),
        "group_disagreement": worst(changed, left, ~left),
        "error_change": float(rise.mean()),
        "risk_change": float(losses.mean()),
        "recall_drop": worst(rise, big.y == 0, big.y == 1),
        "group_error_rise": worst(rise, left, ~left),
        "tail_loss_rise": float(losses.sort(descending=True).values[: len(losses) // 20].mean()),
    }


@pytest.fixture(scope="module")
def truths():
    """Every part's population value, and the risks behind the gaps."""
    big, big_new = draw(1_000_000, seeded(1)), draw(1_000_000, seeded(2), SHIFT)

    def quantile(model, sample):
        norms = gradient_norms(model, sample.x, sample.y, LOSS, batch_size=250_000)
        return float(norms.kthvalue(int(SETTINGS.q * len(norms))).values)

    distance = quadrature(lambda x: (NEW(x + SHIFT) - OLD(x + SHIFT)).norm(dim=1))
    return {
        "anchor_disagreement": math.acos(float(W_OLD @ W_NEW / (W_OLD.norm() * W_NEW.norm()))) / math.pi,
        "anchor_worst_label": quadrature(lambda x: LOSS.worst_label_change(OLD(x), NEW(x))),
        "anchor_lipschitz": math.sqrt(2) * quadrature(lambda x: (NEW(x) - OLD(x)).norm(dim=1)),
        "anchor_plug_in": quadrature(lambda x: LOSS.expected_change(OLD(x), NEW(x))),
        "anchor_error_plug_in": quadrature(lambda x: ZeroOne().expected_change(OLD(x), NEW(x))),
        **labelled_truths(big),
        "held_out_distance": distance,
        "lipschitz_loss": math.sqrt(2),
        "c_h": SETTINGS.c_h,
        "sensitivity_source": quantile(OLD, big),
        "sensitivity_target": quantile(NEW, big_new),
        "transport": gaussian_divergence(float(SHIFT.norm()), 1.0, 2, SETTINGS.epsilon),
        "mmd": gaussian_mmd(float(SHIFT.norm()), 1.0, 2, SETTINGS.bandwidth),
        "risk_source": quadrature(lambda x: risk(OLD, x)),
        "risk_target": quadrature(lambda x: risk(NEW, x + SHIFT)),
    }


def truth_of(name, d, truths):
    """The score of infinitely many samples; training risks, training outputs and the RKHS norm are given."""
    e = d.evidence
    gaps = {
        "gap_source": abs(truths["risk_source"] - e.gap_source.train_risk),
        "gap_target": abs(truths["risk_target"] - e.gap_target.train_risk),
    }
    known = {**truths, **gaps, "rkhs_norm": e.rkhs_norm.value, "output_distance": e.output_distance.value}
    return GATE_SCORES[name].formula({part: known[part] for part in GATE_SCORES[name].parts})


@pytest.mark.parametrize("score", GATE_SCORES)
def test_interval_covers_the_truth(score, diagnostics, truths):
    """Seen at 90%, and at 50%."""
    for delta in (0.1, 0.5):
        found = [score_interval(d, score, delta=delta) for d in diagnostics]
        answers = [truth_of(score, d, truths) for d in diagnostics]
        holds([f.lower <= t <= f.upper for f, t in zip(found, answers, strict=True)], 1 - delta)
        assert all(f.lower <= f.value <= f.upper < math.inf for f in found)


def test_a_promise_for_every_n_costs_a_third(diagnostics):
    """Against the exact interval that holds at one n alone."""
    for d in diagnostics[:10]:
        found = score_interval(d, "anchor_disagreement", delta=0.05)
        at_one_n = proportion_interval(round(150 * found.value), 150, 0.05)
        assert 1 < (found.upper - found.lower) / (at_one_n.upper - at_one_n.lower) < 1.6


def test_diagnose_and_gate_have_one_interval(diagnostics):
    d = diagnostics[0]
    printed = d.intervals()
    assert set(printed) == {
        *(f"anchor_{t}" for t in ("worst_label", "lipschitz", "disagreement", "plug_in", "error_plug_in")),
        *LABELLED,
    }
    for score, interval in printed.items():
        found = score_interval(d, score, delta=d.settings.delta)
        assert (found.lower, found.upper) == (interval.lower, interval.upper)
        assert d.as_dict()["intervals"][score] == (interval.lower, interval.upper)


@pytest.mark.parametrize(
    ("gap", "scale", "dim"), [(0.0, 1.0, 2), (0.15, 1.0, 2), (1.0, 1.0, 2), (0.0, 2.0, 2), (0.5, 0.5, 8), (0.0, 1.5, 8)]
)
def test_distances_cover_the_truth_with_and_without_shift(gap, scale, dim):
    """Without a shift both limit theorems degenerate, and in 8 dimensions the transport distance is mostly bias."""
    inside, mmd_inside, error = [], [], []
    shift = torch.zeros(dim, dtype=torch.float64)
    shift[0] = gap
    for seed in range(60):
        g = seeded(seed)
        x = torch.randn(80, dim, generator=g, dtype=torch.float64)
        y = shift + scale * torch.randn(60, dim, generator=g, dtype=torch.float64)
        found = measure_shift(x, y, SETTINGS, generator=g)
        record = {
            "transport": found.transport._asdict(),
            "floor": found.floor._asdict(),
            "target_floor": found.target_floor._asdict(),
            "mmd": found.mmd._asdict(),
            "sizes": {"source": 80, "target": 60},
            "settings": {"mmd_samples": 20_000},
        }
        truth, mmd_truth = gaussian_divergence(gap, scale, dim, 0.5), gaussian_mmd(gap, scale, dim, 1.5)
        part, mmd_part = transport(record, 0.1), mmd(record, 0.1)
        inside.append(part.lower <= truth <= part.upper)
        mmd_inside.append(mmd_part.lower <= mmd_truth + 1e-9 and mmd_truth <= mmd_part.upper)
        error.append(found.transport.value - truth)
    holds(inside, 0.9)
    holds(mmd_inside, 0.9)
    assert sum(error) > 0  # the bias upwards, which the upper end relies on


def test_values_are_the_scores_of_the_library(diagnostics):
    d = diagnostics[0]
    e = d.evidence
    expected = {
        "anchor_disagreement": e.anchor.disagreement.value,
        "anchor_worst_label": e.anchor.worst_label.value,
        "anchor_lipschitz": e.anchor.lipschitz.value,
        "anchor_plug_in": e.anchor.plug_in.value,
        "anchor_error_plug_in": e.anchor.error_plug_in.value,
        "held_out_distance": e.held_out_distance.value,
        "trace_w": e.held_out_distance.value + e.sensitivity_target.value * e.shift.transport.value,
        "trace_mmd": e.held_out_distance.value + e.rkhs_norm.value * e.shift.mmd.value,
        **{f"bound_{form}": d.bound_core(form) for form in ("ot", "mmd", "hybrid")},
        "error_change": e.labelled.error.value,
        "risk_change": e.labelled.risk.value,
        "tail_loss_rise": e.labelled.tail,
        **{
            score: max(m / n for m, n in zip(e.slices[kind].changed, e.slices[kind].rows, strict=True))
            for score, kind in (("class_disagreement", "predicted"), ("group_disagreement", "group"))
        },
        **{
            score: max(
                (m - k) / n
                for m, k, n in zip(e.slices[kind].worse, e.slices[kind].better, e.slices[kind].rows, strict=True)
            )
            for score, kind in (("recall_drop", "class"), ("group_error_rise", "group"))
        },
    }
    assert set(expected) == set(GATE_SCORES)
    for score, value in expected.items():
        assert score_interval(d, score).value == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("score", GATE_SCORES)
def test_strict_json_gives_the_same(score, diagnostics):
    for d in diagnostics[:3]:
        stored = json.loads(strict_json(d.as_dict()))
        assert score_interval(stored, score) == score_interval(d, score)


def test_stricter_levels_are_wider_and_parts_share_the_level(diagnostics):
    d = diagnostics[0]
    for score in GATE_SCORES:
        loose, strict = (score_interval(d, score, delta=delta) for delta in (0.2, 0.02))
        assert strict.lower <= loose.lower <= loose.value <= loose.upper <= strict.upper
        assert strict.upper - strict.lower > loose.upper - loose.lower
    alone = score_interval(d, "held_out_distance", delta=0.05 / 3)
    upper = alone.upper + d.evidence.sensitivity_target.bands[4][2] * transport(d.as_dict(), 0.05 / 3).upper
    assert d.evidence.sensitivity_target.bands[4][0] == 0.0125  # the narrowest of those that fail at most 0.05 / 3
    assert score_interval(d, "trace_w").upper == pytest.approx(upper, rel=1e-12)


def test_the_sample_to_enlarge_is_named(diagnostics):
    d = diagnostics[0]
    anchor, both = score_interval(d, "anchor_disagreement"), score_interval(d, "bound_ot")
    assert (anchor.widest.sample, anchor.widest.size, anchor.sizes) == ("anchor", 150, {"anchor": 150})
    assert both.sizes == {"anchor": 150, "target": 150}
    assert score_interval(d, "held_out_distance").widest.sample == "target"


def test_what_is_unknown_is_said():
    g = seeded(0)
    source, target = draw(60, g), Sample(draw(50, g, SHIFT).x)
    d = diagnose(OLD, NEW, source, target, target_val=Sample(draw(50, g, SHIFT).x))
    found = score_interval(d, "trace_w")
    assert math.isinf(found.upper)
    assert "50 samples do not bound the 0.99 quantile of gradient norms from above" in found.reason
    assert found.widest.least > 400
    assert found.open_below
    assert any("without its floors" in note for note in found.notes)
    assert not found.on_training
    assert score_interval(d, "anchor_worst_label").on_training
    assert score_interval(d, "bound_ot").on_training
    missing = score_interval(d, "trace_mmd")
    assert math.isnan(missing.value)
    assert missing.reason == "rkhs_norm: needs labels on the target"
    assert math.isnan(score_interval(d, "bound_ot").value)
    given = diagnose(OLD, NEW, draw(60, g), draw(50, g, SHIFT), target_val=draw(50, g, SHIFT))
    assert any("RKHS norm: it is taken as given" in note for note in score_interval(given, "trace_mmd").notes)


def test_training_rows_of_the_target_are_said():
    """Without held-out target rows the scores that look at them have no value, or none that decides."""
    g = seeded(0)
    d = diagnose(OLD, NEW, draw(60, g), draw(50, g, SHIFT), source_val=draw(60, g))
    for score in ("trace_w", "trace_mmd", "held_out_distance"):
        found = score_interval(d, score)
        assert math.isnan(found.value)
        assert "held_out_distance: needs target rows that no model was trained on" in found.reason
        assert found.on_target_training
    assert not score_interval(d, "anchor_disagreement").on_target_training


def test_unbounded_losses_and_the_exact_distance_have_no_interval():
    g = seeded(0)
    source, target = (Sample(x, x.sum(dim=1)) for x in (draw(60, g).x, draw(50, g, SHIFT).x))
    d = diagnose(
        lambda x: x @ W_OLD[:, None],
        lambda x: x @ W_NEW[:, None],
        source,
        target,
        target_val=target,
        loss=SquaredError(),
        settings=Settings(distance="wasserstein1", q=0.5),
    )
    for score, reason in (
        ("held_out_distance", "the outputs have no finite range"),
        ("anchor_plug_in", "the values have no finite range"),
        ("bound_ot", "no finite Lipschitz constant"),
        ("trace_w", "the wasserstein1 distance has no standard error"),
    ):
        found = score_interval(d, score)
        assert math.isinf(found.upper)
        assert reason in found.reason
    assert math.isnan(score_interval(d, "anchor_disagreement").value)


def test_bad_input(diagnostics):
    with pytest.raises(ValueError, match="score 'trace' is not known: use one of anchor_disagreement"):
        score_interval(diagnostics[0], "trace")
    with pytest.raises(ValueError, match="delta must lie strictly"):
        score_interval(diagnostics[0], "trace_w", delta=0.0)
    with pytest.raises(ValueError, match=r"record has no anchor\.disagreement\.value: make it again"):
        score_interval({"anchor": {}, "settings": {"c_h": 1}}, "anchor_disagreement")


def test_transport_error_is_the_estimators(diagnostics):
    d = diagnostics[0]
    found = transport(d.as_dict(), 0.05)
    estimate = d.evidence.shift.transport
    assert found.upper == pytest.approx(estimate.value + 1.959964 * estimate.standard_error + estimate.value_error)
    assert sinkhorn_divergence(torch.zeros(1, 1), torch.ones(1, 1)).standard_error == 0.0
