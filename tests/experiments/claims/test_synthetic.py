"""Every claim about the synthetic worlds, with records that make it hold and records that do not."""

import pytest

from experiments.claims.ledger import all_claims
from experiments.claims.rule import VERDICTS
from tests.experiments.analysis.synthetic_records import both, excerpt, grid, isolation, record

CLAIMS = {claim.name: claim for claim in all_claims("synthetic", "isolation")}


def shuffled(s, k):
    """A risk change that has nothing to do with severity."""
    return 0.1 + 0.5 * ((7 * s + 3 * k + 0.3) % 1.1)


def against(s, k):
    """A distance that falls so fast that the score does too."""
    return (2.1 - s) ** 6


def falling(s, k):
    return 1.0 - 0.3 * s + 0.01 * k


INVARIANT = {"labels": "invariant"}
NOISE = {"risk_change": shuffled}
CALM = {"risk_change": lambda s, k: 0.0005}
LARGE = {"risk_change": lambda s, k: 0.7}
SMOOTHED = [
    record(
        weight_decay=lambda s, k: 1e-3 if s > 0.5 else 1e-4,
        sensitivity_source=lambda s, k: 1.0 if s > 0.5 else 2.0 + 0.01 * k,
    ),
    grid()[1],
]
KNOB = ((0.0, 1e-3), (1.0, 1e-3), (2.0, 1e-3))


def sized(**columns):
    """Runs that vary the target sample; a column is a function of its size in hundreds, and of the seed."""
    runs = []
    for size in (1, 4, 8):
        at_size = {name: lambda _, k, value=value, size=size: value(size, k) for name, value in columns.items()}
        made = isolation(vary="n", points=((1.0, 1e-3),), **at_size)
        runs.append({**made, "config": {**made["config"], "n_target": 100 * size}})
    return {"isolation": runs}


def tuned(world, n, severity, **values):
    """An excerpt whose row at one severity has given sizes."""
    return excerpt(world, n=n, **{name: lambda s, k, v=v: v if s == severity else 1.0 for name, v in values.items()})


CASES = [
    *(
        (f"rank_{world}_{score}", grid(world), grid(world, risk_change=falling))
        for world in ("blobs_shift", "moons_warp")
        for score in ("proxy_ot", "proxy_mmd")
    ),
    ("monotone_everywhere", both(), both(risk_change=lambda s, k: 3 - s + 0.01 * k)),
    (
        "monotone_in_other_settings",
        [*grid(), *grid(**INVARIANT), *grid("mixture_shift")],
        [*grid(), *grid(**INVARIANT, risk_change=falling)],
    ),
    (
        "covariate_shift_is_kept",
        [*grid(**LARGE), record(**INVARIANT, **LARGE)],
        [*grid(**LARGE), record(**INVARIANT, **CALM)],
    ),
    ("ranks_under_true_covariate_shift", grid(**INVARIANT), grid(**INVARIANT, risk_change=falling)),
    ("ranks_under_covariate_shift_elsewhere", grid("mixture_shift"), grid("mixture_shift", risk_change=falling)),
    ("bound_is_valid", both(), both(risk_change=lambda s, k: 100.0)),
    ("bound_grows", both(), both(output_distance=lambda s, k: 30.0 - 14 * s)),
    ("emp_shift_grows", both(), both(transport=falling)),
    ("transport_grows", both(), both(transport=falling)),
    ("mmd_grows", both(), both(mmd_squared=falling)),
    ("risk_grows", both(), both(risk_change=falling)),
    (
        "excerpt_blobs_shift_025_1000_risk_change",
        tuned("blobs_shift", 1000, 0.25, risk_change=0.05),
        excerpt(n=1000, risk_change=9.0),
    ),
    ("excerpt_blobs_shift_1_2000_risk_change", tuned("blobs_shift", 2000, 1.0, risk_change=-0.7), excerpt(**CALM)),
    (
        "excerpt_blobs_shift_1_2000_model_change",
        tuned("blobs_shift", 2000, 1.0, output_distance_squared=22.0),
        excerpt(output_distance_squared=1.0),
    ),
    (
        "excerpt_moons_warp_025_2000_risk_change",
        tuned("moons_warp", 2000, 0.25, risk_change=0.01),
        excerpt("moons_warp", **LARGE),
    ),
    (
        "excerpt_moons_warp_2_2000_risk_change",
        tuned("moons_warp", 2000, 2.0, risk_change=0.3),
        excerpt("moons_warp", **CALM),
    ),
    (
        "excerpt_moons_warp_2_2000_bound_ot",
        excerpt("moons_warp", output_distance=6.0),
        excerpt("moons_warp", output_distance=60.0),
    ),
    (
        "excerpt_moons_warp_2_2000_model_change",
        tuned("moons_warp", 2000, 2.0, output_distance=8.0),
        excerpt("moons_warp", output_distance=0.1),
    ),
    (
        "excerpt_moons_warp_2_2000_emp_shift_ot",
        tuned("moons_warp", 2000, 2.0, transport=2.0),
        excerpt("moons_warp", transport=0.001),
    ),
    ("model_change_dominates_when_mild", grid(), grid(output_distance=0.001, transport=lambda s, k: 1.0)),
    (
        "benign_shift_leaves_the_model",
        excerpt("moons_warp", output_distance=1.0),
        excerpt("moons_warp", output_distance=lambda s, k: 1 + s * 9, transport=0.1),
    ),
    ("gaps_do_not_rank", both(), both(gap_source=lambda s, k: 100 * (3 - s))),
    *(
        (name, grid(world), grid(world, risk_change=lambda s, k: 0.5 + 2 * s + 0.01 * k, transport=against))
        for name, world in (("shift_term_helps", "blobs_shift"), ("shift_term_helps_elsewhere", "mixture_shift"))
    ),
    ("mmd_is_more_stable", both(rkhs_norm=2.0, mmd_squared=lambda s, k: 0.1 + s), both()),
    ("mmd_is_more_conservative", both(rkhs_norm=1000.0), both(rkhs_norm=0.0001)),
    (
        "conditioning_event",
        both(largest_gradient_source=0.1, largest_gradient_target=0.1),
        both(largest_gradient_source=0.1, largest_gradient_target=1e3),
    ),
    ("cosp_inequality", both(cosp=0.0), both(cosp=1e3)),
    (
        "cosp_inequality_with_w1",
        both(cosp=1.0, wasserstein1_input=100.0),
        both(cosp=1.0, wasserstein1_input=lambda s, k: 1e-6),
    ),
    ("empirical_shift_inequality", both(empirical_shift=0.01), both(empirical_shift=1e3)),
    ("empirical_shift_without_remainder", both(empirical_shift=0.0), both(empirical_shift=1e3)),
    ("mmd_inequality", both(cosp=0.0), both(cosp=1e3)),
    ("model_change_inequality", both(empirical_change=0.0), both(empirical_change=1e3)),
    ("two_term_bound", both(bound_direct=lambda s, k: 1.0 + s), both(bound_direct=1e-9)),
    ("clipping_keeps_accuracy", both(clip_changed=0.0), both(clip_changed=0.005)),
    ("weight_decay_smooths", SMOOTHED, both()),
    (
        "blobs_sinkhorn_is_w1",
        excerpt(wasserstein1=lambda s, k: 0.01 + s**2),
        excerpt(wasserstein1=lambda s, k: s + 0.01),
    ),
    ("gap_shows_overfitting", sized(gap_target=lambda n, k: 9 - n + k), sized(gap_target=lambda n, k: n)),
    (
        "gap_follows_risk",
        sized(gap_target=lambda n, k: n, risk_change=lambda n, k: n + 1e-6 * k),
        sized(gap_target=lambda n, k: n, risk_change=lambda n, k: 9 - n - 1e-6 * k),
    ),
    (
        "model_change_is_isolated",
        {"isolation": [isolation(output_distance=lambda v, k: v, risk_change=lambda v, k: v + 1e-6 * k)]},
        {"isolation": [isolation(output_distance=lambda v, k: v, risk_change=lambda v, k: 1 - v - 1e-6 * k)]},
    ),
    ("shift_stays_put", {"isolation": [isolation()]}, {"isolation": [isolation(transport=lambda v, k: v)]}),
    (
        "shift_is_isolated",
        {"isolation": [isolation(vary="severity", points=KNOB)]},
        {"isolation": [isolation(vary="severity", points=KNOB, risk_change=lambda v, k: 3 - v + 0.01 * k)]},
    ),
]


def test_every_claim_is_tested():
    assert {case[0] for case in CASES} == set(CLAIMS)


@pytest.mark.parametrize(("name", "good", "bad"), CASES, ids=[case[0] for case in CASES])
def test_verdicts_follow_the_records(name, good, bad):
    found = [CLAIMS[name].judge(r if isinstance(r, dict) else {"synthetic": r}) for r in (good, bad)]
    assert found[0].verdict == "reproduced", found[0]
    assert found[1].verdict in ("not reproduced", "does not transfer", "partly", "contradicts itself"), found[1]
    for finding in found:
        assert finding.verdict in VERDICTS
        assert finding.measured
        assert finding.why
        assert finding.cases > 0


def test_covariate_shift_includes_the_world_that_cannot_change_its_labels_and_needs_its_own_c_h():
    own, elsewhere = (
        CLAIMS[f"ranks_under_{name}"].judge for name in ("true_covariate_shift", "covariate_shift_elsewhere")
    )
    found = {"synthetic": [*grid(), *grid("mixture_shift")]}
    assert elsewhere(found).measured.startswith("mixture_shift, mlp")
    assert own(found).verdict == "not run here"
    assert own({"synthetic": [*grid(), record(**INVARIANT)]}).verdict == "not run here"


@pytest.mark.parametrize("name", ["shift_term_helps_elsewhere", "mmd_is_more_stable", "mmd_is_more_conservative"])
def test_claims_about_every_plain_world_keep_those_without_a_choice_of_labels(name):
    plain, both_labels = grid("mixture_shift"), [*grid("mixture_shift"), *grid(labels="invariant")]
    found = [CLAIMS[name].judge({"synthetic": records}) for records in (plain, both_labels)]
    assert found[0].cases == found[1].cases == 16


@pytest.mark.parametrize(("kept", "moved", "verdict"), [
    (0.7, 0.7, "reproduced"),
    (0.7, 0.0005, "reproduced"),
    (0.0005, 0.7, "contradicts itself"),
    (0.0005, 0.0005, "not reproduced"),
    (1000.0, 1000.0, "not reproduced"),
])  # fmt: skip
def test_a_printed_size_counts_where_one_of_the_two_readings_meets_it(kept, moved, verdict):
    records = [*grid(risk_change=moved), record(**INVARIANT, risk_change=kept)]
    assert CLAIMS["covariate_shift_is_kept"].judge({"synthetic": records}).verdict == verdict


def test_a_claim_about_the_grid_does_not_ask_for_the_published_rows():
    for name in ("model_change_dominates_when_mild", "shift_term_helps", "mmd_is_more_stable",
                 "mmd_is_more_conservative"):  # fmt: skip
        finding = CLAIMS[name].judge({"synthetic": excerpt()})
        assert finding.verdict == "not run here"
        assert "published table" not in finding.why
        assert "pairs" in finding.why


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_without_records_nothing_is_claimed(claim):
    assert claim.judge({}).verdict == "not run here"
