"""The whole diagnostic on a small world: every term by hand, all forms, what is missing, bad input."""

import copy
import json
import math

import pytest
import torch
from torch import nn

from trace import Sample, Settings, diagnose, stratified_split
from trace.estimators import (
    gradient_quantile,
    mmd,
    output_distance,
    rkhs_norm,
    self_transport,
    sinkhorn_divergence,
    wasserstein1,
)
from trace.estimators.remainders import label_noise_remainder, mmd_remainder, validation_remainder, w1_remainder
from trace.evidence import Known, RiskChange, measure_shift
from trace.features import l2_normalised, layer_features
from trace.losses import ClippedCrossEntropy, Huber, SquaredError, ZeroOne

LOSS = ClippedCrossEntropy()


def blobs(n, shift, generator):
    y = torch.randint(0, 2, (n,), generator=generator)
    x = 0.55 * torch.randn(n, 2, generator=generator)
    x[:, 0] += 2 * y - 1 + shift
    return Sample(x, y)


def fit(sample, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    optimiser = torch.optim.Adam(model.parameters(), 2e-2)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(sample.x), sample.y).backward()
        optimiser.step()
    return model


def trained():
    """Two models with their samples, and the splits beside them."""
    g = torch.Generator().manual_seed(0)
    source, source_val = stratified_split(blobs(400, 0.0, g), generator=g)
    target, target_val = stratified_split(blobs(300, 0.6, g), generator=g)
    splits = {"source_val": source_val, "target_val": target_val, "anchor_test": blobs(5000, 0.0, g)}
    return (fit(source), fit(target), source, target), splits


@pytest.fixture(scope="module")
def update():
    return trained()


@pytest.fixture(scope="module")
def diagnostic(update):
    samples, splits = update
    return diagnose(*samples, **splits)


def test_every_term_by_hand(update, diagnostic):
    (q, q_new, source, target), splits = update
    d, val, new_val, test = diagnostic, splits["source_val"], splits["target_val"], splits["anchor_test"]
    with torch.no_grad():
        risk = lambda f, s: float(LOSS(f(s.x), s.y).double().mean())  # noqa: E731
        assert d.gap_source == pytest.approx(abs(risk(q, val) - risk(q, source)), rel=1e-5)
        assert d.gap_target == pytest.approx(abs(risk(q_new, new_val) - risk(q_new, target)), rel=1e-5)
        distance = output_distance(q(target.x), q_new(target.x)).value
        assert d.model_change == pytest.approx(math.sqrt(2) * distance)
        assert d.risk_change == pytest.approx(risk(q_new, test) - risk(q, test), rel=1e-5)
        assert d.risk_change > 0.05
    L = gradient_quantile(q, val.x, val.y, LOSS).value
    L_new = gradient_quantile(q_new, new_val.x, new_val.y, LOSS).value
    W, discrepancy = sinkhorn_divergence(source.x, target.x).value, mmd(source.x, target.x)
    with torch.no_grad():
        B = rkhs_norm(new_val.x, LOSS(q_new(new_val.x), new_val.y), bandwidth=discrepancy.bandwidth).value
    assert d.emp_shift_ot == pytest.approx((L + L_new) * W)
    assert d.emp_shift_mmd == pytest.approx(B * discrepancy.value)
    assert d.emp_shift_hybrid == pytest.approx(L * W + B * discrepancy.value)
    n, n_new, m, m_new, M = len(source.x), len(target.x), len(val.x), len(new_val.x), LOSS.bound(2)
    assert d.label_noise == pytest.approx(label_noise_remainder(n, n_new, M, 0.025))
    assert d.validation_error == pytest.approx(validation_remainder(m, m_new, M, 0.025, 0.025))
    assert d.population_ot == pytest.approx(
        L_new * (w1_remainder(n, 2, 0.025, 1.0) + w1_remainder(n_new, 2, 0.025, 1.0))
    )
    assert d.population_mmd == pytest.approx(B * mmd_remainder(n, n_new, 0.025))


@pytest.mark.parametrize("form", ["ot", "mmd", "hybrid"])
def test_sums_shares_and_tightness(diagnostic, form):
    d = diagnostic
    gaps = d.gap_source + d.gap_target
    assert d.bound_core(form) == pytest.approx(gaps + d.model_change + d.shift_penalty(form))
    population = d.population_ot if form == "ot" else d.population_mmd
    assert d.bound_full(form) == pytest.approx(d.bound_core(form) + d.label_noise + d.validation_error + population)
    assert sum(d.attribution(form).values()) == pytest.approx(1.0)
    assert d.tightness(form) == pytest.approx(d.bound_core(form) / abs(d.risk_change))
    assert d.tightness(form, full=True) > d.tightness(form) > 1
    assert abs(d.risk_change) <= d.bound_core(form)


def test_printed_formulas(update):
    (q, q_new, source, target), splits = update
    d = diagnose(q, q_new, source, target, **splits, settings=Settings(loss_bound="paper", remainders="paper"))
    n, M = len(source.x), 10 + math.log(2)
    assert d.evidence.loss_bound == pytest.approx(M)
    assert d.label_noise == pytest.approx(label_noise_remainder(n, len(target.x), M, 0.05))
    L_new = d.evidence.sensitivity_target.value
    assert d.population_ot == pytest.approx(L_new * w1_remainder(n, 2, 0.05, 1.0))
    assert d.budget.total == pytest.approx(0.2)


def test_the_distance_of_the_theorem(update, diagnostic):
    samples, splits = update
    d = diagnose(*samples, **splits, settings=Settings(distance="wasserstein1", c_h=2.0))
    W1 = wasserstein1(samples[2].x, samples[3].x).value
    L = d.evidence.sensitivity_source.value + d.evidence.sensitivity_target.value
    assert d.emp_shift_ot == pytest.approx(2 * L * W1)
    assert d.evidence.shift.transport.cost == "euclidean"
    assert diagnostic.evidence.shift.transport.cost == "squared_euclidean"


def test_features_of_a_layer_and_gradients_there(update):
    (q, q_new, source, target), splits = update
    h = l2_normalised(layer_features(q, q[1]))
    d = diagnose(q, q_new, source, target, **splits, feature_map=h, gradient_at=(q[1], q_new[1]))
    with torch.no_grad():
        W = sinkhorn_divergence(h(source.x), h(target.x)).value
    val = splits["source_val"]
    assert d.evidence.shift.dim == 8
    assert d.evidence.shift.transport.value == pytest.approx(W, rel=1e-6)
    assert d.evidence.sensitivity_source.value == gradient_quantile(q, val.x, val.y, LOSS, at=q[1]).value


def test_shift_is_shared_by_candidates(update, diagnostic):
    samples, splits = update
    shift = measure_shift(samples[2].x, samples[3].x, source_self=self_transport(samples[2].x))
    d = diagnose(*samples, **splits, known=Known(shift=shift))
    assert d.as_dict() == diagnostic.as_dict()
    for settings, message in (
        (Settings(distance="wasserstein1", kernel="laplace"), "another distance, kernel"),
        (Settings(epsilon=0.2), "another epsilon"),
    ):
        with pytest.raises(ValueError, match=f"shift was measured with {message}"):
            diagnose(*samples, **splits, known=Known(shift=shift), settings=settings)
    with pytest.raises(ValueError, match="shift was measured on samples of"):
        diagnose(*samples, **splits, known=Known(shift=measure_shift(samples[2].x[:50], samples[3].x)))


def test_floor_stands_beside_the_distance(update, generator):
    samples, splits = update
    d = diagnose(*samples, **splits, generator=generator)
    record = d.as_dict()
    assert 0 < record["floor"]["value"] < record["transport"]["value"]
    assert record["floor"]["sample_sizes"] == (len(samples[2].x) // 2,) * 2


def test_same_model_has_no_change(update):
    (q, _, source, target), splits = update
    d = diagnose(q, q, source, target, **splits)
    assert d.model_change == 0.0
    assert d.risk_change == 0.0
    assert math.isnan(d.tightness())
    assert d.evidence.anchor.worst_label.value == 0.0


def test_records_are_plain_and_complete(diagnostic):
    record = json.loads(json.dumps(diagnostic.as_dict()))
    for key in ("risk_change", "model_change", "emp_shift_ot", "emp_shift_mmd", "gap_source", "gap_target"):
        assert math.isfinite(record[key])
    for form in ("ot", "mmd", "hybrid"):
        assert record[f"bound_full_{form}"] > record[f"bound_{form}"] > 0
    assert record["transport"]["cost"] == "squared_euclidean"
    assert record["settings"]["epsilon"] == 0.1
    assert record["reasons"] == {}
    assert record["budget"]["total"] == pytest.approx(0.1)
    assert record["anchor"]["disagreement"]["tally"]["high"] == 1


def leaves(value):
    if isinstance(value, dict):
        return sum(map(leaves, value.values()))
    return value is None or isinstance(value, int | float)


def test_columns_are_the_numbers_of_the_record_by_their_path(update, diagnostic):
    columns, record = diagnostic.columns(), diagnostic.estimates()
    assert all(type(value) is float for value in columns.values())
    assert len(columns) == leaves({key: entry for key, entry in record.items() if key != "settings"})  # none collide
    for name, value in (
        ("bound_full_ot", diagnostic.bound_full()),
        ("output_distance", record["output_distance"]["value"]),
        ("output_distance_squared", record["output_distance"]["squared"]),
        ("rkhs_norm_at_edge", record["rkhs_norm"]["at_edge"]),
        ("anchor_worst_label", record["anchor"]["worst_label"]["value"]),
        ("anchor_worst_label_deviation", record["anchor"]["worst_label"]["deviation"]),
        ("labelled_error", record["labelled"]["error"]["value"]),
        ("risk_change_details_error_rate", record["risk_change_details"]["error_rate"]),
        ("attribution_mmd_gap_source", record["attribution"]["mmd"]["gap_source"]),
        ("sizes_source_val", len(update[1]["source_val"].x)),
    ):
        assert columns[name] == value
    q, q_new, source, target = update[0]
    missing = diagnose(q, q_new, source, Sample(target.x)).columns()
    assert math.isnan(missing["rkhs_norm"])
    assert math.isnan(missing["gap_source"])


def test_known_risk_changes_stand_in_for_a_test_sample(update, diagnostic):
    samples, splits = update
    without = {name: sample for name, sample in splits.items() if name != "anchor_test"}
    known = RiskChange.of(torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64), 0.25)
    d = diagnose(*samples, **without, known=Known(risk_change=known))
    assert (d.risk_change, d.evidence.risk_change.error_rate) == (3.0, 0.25)
    assert d.evidence.risk_change.standard_error == pytest.approx(math.sqrt(7 / 3))
    assert "risk_change" not in d.reasons
    assert d.bound_full() == diagnostic.bound_full()
    assert math.isnan(RiskChange.of(torch.ones(1), 0.0).standard_error)


def test_what_is_missing_says_why(update):
    q, q_new, source, target = update[0]
    d = diagnose(q, q_new, source, Sample(target.x))
    assert math.isnan(d.bound_core())
    assert math.isnan(d.risk_change)
    assert "intervals do not hold" in d.reasons["anchor"]
    for name in ("gap_source", "gap_target", "rkhs_norm", "emp_shift_mmd", "population_mmd", "risk_change"):
        assert d.reasons[name]
    assert math.isfinite(d.emp_shift_ot)
    assert d.evidence.sensitivity_target.pseudo_labels
    labels = q(target.x).argmax(dim=1)  # pseudo-labels are the old model's
    assert d.evidence.sensitivity_target.value == gradient_quantile(q_new, target.x, labels, LOSS).value
    short = diagnose(q, q_new, source, target, target_val=Sample(target.x[:2], target.y[:2]))
    assert "at least 3" in short.reasons["rkhs_norm"]
    unlabelled = diagnose(q, q_new, source, target, target_val=Sample(target.x))
    assert unlabelled.reasons["gap_target"] == "needs labels on the sample and on its validation split"


@pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation")
def test_zero_one_loss_has_no_gradient_terms(update):
    samples, splits = update
    d = diagnose(*samples, **splits, loss=ZeroOne())
    assert math.isnan(d.model_change)
    assert "Lipschitz" in d.reasons["model_change"]
    assert "no gradient" in d.reasons["emp_shift_ot"]
    assert d.risk_change == pytest.approx(d.evidence.risk_change.error_rate)
    assert abs(d.risk_change) <= d.intervals()["anchor_disagreement"].upper


def test_regression(generator):
    x, x_new = torch.randn(80, 3, generator=generator), torch.randn(60, 3, generator=generator) + 0.5
    w = torch.tensor([[1.0], [2.0], [0.0]])
    y, y_new = ((z @ w)[:, 0].clamp(-5, 5) for z in (x, x_new))
    samples = (Sample(x, y), Sample(x_new, y_new))
    halves = {"source_val": Sample(x[:20], y[:20]), "target_val": Sample(x_new[:20], y_new[:20])}
    f, f_new = lambda x: x @ w, lambda x: 0.9 * (x @ w)
    d = diagnose(f, f_new, *samples, **halves, loss=Huber(limit=5.0), anchor_test=samples[0])
    assert math.isfinite(d.bound_full())
    assert math.isnan(d.evidence.risk_change.error_rate)
    unbounded = diagnose(f, f_new, *samples, **halves, loss=SquaredError())
    assert unbounded.reasons["label_noise"] == "the loss is unbounded"
    assert math.isnan(unbounded.bound_full())
    unlabelled = diagnose(f, f_new, samples[0], Sample(x_new), loss=Huber(limit=5.0))
    assert "no pseudo-labels for regression" in unlabelled.reasons["sensitivity_target"]
    assert math.isnan(unlabelled.emp_shift_ot)
    assert math.isfinite(unlabelled.model_change)


def test_models_come_back_as_they_were(update):
    (q, q_new, source, target), splits = update
    q.train()
    q_new.eval()
    diagnose(q, q_new, source, target, **splits)
    assert q.training
    assert not q_new.training
    assert all(p.requires_grad for p in q.parameters())


def test_float64_inputs_stay_float64(update):
    (q, q_new, source, target), splits = update
    single = diagnose(q, q_new, source, target, **splits)
    double = lambda s: Sample(s.x.double(), s.y)  # noqa: E731
    d = diagnose(
        copy.deepcopy(q).double(),
        copy.deepcopy(q_new).double(),
        double(source),
        double(target),
        **{name: double(s) for name, s in splits.items()},
    )
    assert d.bound_core() == pytest.approx(single.bound_core(), rel=1e-4)
    assert d.risk_change == pytest.approx(single.risk_change, rel=1e-4)


class TooConfident(ClippedCrossEntropy):
    """A loss whose stated bound is wrong."""

    def bound(self, num_outputs, convention="true"):
        return 0.1


def test_bad_input(update):
    (q, q_new, source, target), splits = update
    nan = Sample(torch.full_like(target.x, torch.nan), target.y)
    cases = [
        ((q, q_new, Sample(source.x, torch.zeros_like(source.y)), target), {}, "source holds one class only"),
        ((q, lambda x: x[:, 0], source, target), {}, "new_model returned"),
        ((q, lambda x: torch.cat([x, x], dim=1), source, target), {}, "the two models must have the same outputs"),
        ((q, q_new, source, nan), {}, r"target\.x holds NaN or infinity"),
        ((q, q_new, source, Sample(target.x, target.y + 5)), {}, r"target\.y holds labels 5 to 6"),
        ((q, q_new, source, target), {"anchor_test": Sample(source.x)}, "anchor_test has no labels"),
        ((q, q_new, source, Sample(target.x[:0], target.y[:0])), {}, r"target\.x has 0 samples"),
        ((q, q_new, Sample(source.x[:0], source.y[:0]), target), {}, r"source\.x has 0 samples"),
        ((q, q_new, source, target), {"source_val": Sample(source.x[:0])}, r"source_val\.x has 0 samples"),
        ((q, q_new, source, Sample(target.x, target.y[:5])), {}, r"target\.y has shape \[5\] for"),
        ((q, q_new, source, Sample(target.x.numpy(), target.y)), {}, r"target\.x must be a torch tensor"),
        ((q, q_new, source, Sample(target.x, target.y.numpy())), {}, r"target\.y must be a torch tensor"),
        ((q, q_new, source, Sample(target.x[:, 0], target.y)), {}, r"target\.x must have shape \[n, \.\.\.\]"),
        ((q, q_new, source, Sample(target.x.long(), target.y)), {}, r"target\.x must be float32 or float64"),
        ((q, q_new, source, Sample(target.x.half(), target.y)), {}, r"target\.x must be float32 or float64"),
        ((q, q_new, source, Sample(target.x, target.y.float())), {}, r"target\.y must be an integer tensor"),
        ((q, q_new, source, Sample(target.x, target.y.to("meta"))), {}, r"target\.y on meta"),
        ((q, q_new, source, Sample(target.x.double(), target.y)), {}, "model failed on inputs"),
        ((q, q_new, source, Sample(target.x[:, :1], target.y)), {}, "model failed on inputs"),
        ((q, q_new, source, target), {"anchor_test": Sample(source.x, 0 * source.y)}, "anchor_test holds one class"),
        ((q, q_new, source, target), {"feature_map": lambda x: x[:, 0]}, "feature_map returned"),
        ((q, q_new, source, target), {**splits, "loss": TooConfident()}, "the losses of model lie in"),
    ]
    for samples, options, message in cases:
        with pytest.raises(ValueError, match=message):
            diagnose(*samples, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"q": 1.0}, "q must lie strictly between"),
        ({"delta": 0.0}, "delta must lie strictly between"),
        ({"c_h": 0.0}, "c_h must be finite and positive"),
        ({"distance": "w1"}, "distance must be one of sinkhorn, wasserstein1"),
        ({"loss_bound": "exact"}, "loss_bound must be one of true, paper"),
        ({"remainders": "none"}, "remainders must be one of corrected, paper"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        Settings(**options)
