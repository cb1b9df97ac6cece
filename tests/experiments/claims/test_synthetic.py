"""Every claim about the synthetic worlds, with records that make it hold and records that do not."""

import pytest

from experiments.claims.ledger import VERDICTS, all_claims
from tests.experiments.analysis.synthetic_records import both, excerpt, grid, isolation, record

CLAIMS = {claim.name: claim for claim in all_claims("synthetic", "isolation")}


def shuffled(s, k):
    """A risk change that has nothing to do with severity."""
    return 0.1 + 0.5 * ((7 * s + 3 * k + 0.3) % 1.1)


def falling(s, k):
    return 1.0 - 0.3 * s + 0.01 * k


INVARIANT = {"labels": "invariant"}
NOISE = {"risk_change": shuffled}
CALM = {"risk_change": lambda s, k: 0.0005}
LARGE = {"risk_change": lambda s, k: 0.7}
KNOB = ((0.0, 1e-3), (1.0, 1e-3), (2.0, 1e-3))


def tuned(world, n, severity, **values):
    """An excerpt whose row at one severity has given sizes."""
    return excerpt(world, n=n, **{name: lambda s, k, v=v: v if s == severity else 1.0 for name, v in values.items()})


CASES = [
    *(
        (f"rank_{world}_{score}", grid(world), grid(world, **NOISE))
        for world in ("blobs_shift", "moons_warp")
        for score in ("proxy_ot", "proxy_mmd")
    ),
    ("monotone_everywhere", both(), both(**NOISE)),
    (
        "covariate_shift_is_kept",
        [*grid(**LARGE), record(**INVARIANT, **LARGE)],
        [*grid(**LARGE), record(**INVARIANT, **CALM)],
    ),
    ("ranks_under_true_covariate_shift", [*grid(), *grid(**INVARIANT)], [*grid(), *grid(**INVARIANT, **NOISE)]),
    ("bound_is_valid", both(), both(risk_change=lambda s, k: 100.0)),
    ("bound_grows", both(), both(output_distance=lambda s, k: 30.0 - 14 * s)),
    ("emp_shift_grows", both(), both(transport=falling)),
    ("transport_grows", both(), both(transport=falling)),
    ("mmd_grows", both(), both(mmd_squared=falling)),
    ("risk_grows", both(), both(risk_change=falling)),
    ("excerpt_blobs_shift_025_1000_risk_change", tuned("blobs_shift", 1000, 0.25, risk_change=0.05), excerpt(n=1000)),
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
    ("gaps_do_not_rank", both(), both(gap_source=lambda s, k: 100 * ((3 * s + k) % 1.3))),
    (
        "shift_term_helps",
        both(),
        both(risk_change=lambda s, k: 0.5 + 2 * s + 0.01 * k, transport=lambda s, k: (2.1 - s) ** 6),
    ),
    ("mmd_is_more_stable", both(rkhs_norm=2.0, mmd_squared=lambda s, k: 0.1 + s), both()),
    ("mmd_is_more_conservative", both(rkhs_norm=1000.0), both(rkhs_norm=0.0001)),
    (
        "blobs_sinkhorn_is_w1",
        excerpt(wasserstein1=lambda s, k: 0.01 + s**2),
        excerpt(wasserstein1=lambda s, k: s + 0.01),
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
    assert found[1].verdict in ("not reproduced", "partly", "contradicts itself"), found[1]
    for finding in found:
        assert finding.verdict in VERDICTS
        assert finding.measured
        assert finding.why.endswith(".")
        assert finding.runs > 0


def test_covariate_shift_includes_the_world_that_cannot_change_its_labels_and_needs_its_own_c_h():
    judge = CLAIMS["ranks_under_true_covariate_shift"].judge
    found = judge({"synthetic": [*grid(), *grid("mixture_shift")]})
    assert found.measured.startswith("mixture_shift, mlp")
    assert judge({"synthetic": [*grid(), record(**INVARIANT)]}).verdict == "not run here"


@pytest.mark.parametrize("name", ["shift_term_helps", "mmd_is_more_stable", "mmd_is_more_conservative"])
def test_claims_about_every_plain_world_keep_those_without_a_choice_of_labels(name):
    plain, both_labels = grid("mixture_shift"), [*grid("mixture_shift"), *grid(labels="invariant")]
    found = [CLAIMS[name].judge({"synthetic": records}) for records in (plain, both_labels)]
    assert found[0].runs == found[1].runs == 16


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
