"""The projection of hours: formulas against loops over what they count, rates from a record, and gaps that show."""

import subprocess
import sys

import pytest

from experiments.config import expand
from experiments.table_text import MISSING
from experiments.tables_hours import DIM, Rates, Stage, _gate, hours, mmd_flops, mmdmin_flops, sinkhorn_flops, stages

SIZES = {"n_source": 1000, "n_pool": 400, "count_selected": 50, "n_images": 10, "n_steps": 4}
CASES = {
    "images, read and resized": (0.1, 5e4),
    "images, resnet50 features": (1.0, 8e9),
    "images, resnet50 step, block": (0.5, 1e9),
    "images, resnet50 step, full": (1.0, 2.5e10),
    "full size, mmdmin": (2.0, 0.1),
    "full size, w1min": (3.0, 0.1),
    "full size, Sinkhorn": (4.0, 0.1),
    "full size, MMD": (5.0, 0.1),
}


def record(without=()):
    rows = [{"case": name, "seconds": s, "value": v} for name, (s, v) in CASES.items() if name not in without]
    return {"metrics": {"rows": rows}, "config": {"sizes": SIZES}, "machine": {"cores": 2}}


def test_counts_of_the_distances():
    """A multiply-add of d numbers a pair; the symmetric parts of MMD make each pair of a sample once."""
    pairs = 1000 * 1000 / 2 + 400 * 400 / 2 + 1000 * 400
    assert mmd_flops(1000, 400) == pytest.approx(2 * DIM * pairs)
    assert sinkhorn_flops() == pytest.approx(5 * (3 * 10_000**2) * 2 * DIM)
    assert mmdmin_flops(1000, 400, 50) == pytest.approx(2 * DIM * (1000 * 400 + 1000 * 1000 / 2 + 50 * 400))


def test_rates_are_work_over_time():
    rates = Rates(record())
    assert rates.flops_a_second("images, resnet50 features") == pytest.approx(10 * 8e9 / 1.0)
    assert rates.flops_a_second("images, resnet50 step, block") == pytest.approx(4 * 1e9 / 0.5)
    assert rates.flops_a_second("full size, MMD") == pytest.approx(mmd_flops(1000, 400) / 5)
    assert rates.images_a_second() == pytest.approx(100)


def test_the_slowest_part_decides():
    rates = Rates(record())
    assert rates.seconds(Stage("", 3e15, "images, resnet50 features"))[1:] == pytest.approx((100, 30))
    assert rates.seconds(Stage("", 3e15, "images, resnet50 features", images=64_000))[1:] == pytest.approx((100, 80))
    assert rates.seconds(Stage("", 3e9, "images, resnet50 features", rows=32_000))[1:] == pytest.approx((1, 1))
    assert rates.seconds(Stage("", 3e9, "images, resnet50 features", read=50))[1:] == pytest.approx((50, 50))
    here, *beside = rates.seconds(Stage("", 8e10, "full size, MMD", gpu=False))
    assert beside == pytest.approx([2 * here] * 2)  # one of two cores


def test_every_stage_of_the_profile_is_there():
    found = {stage.name: stage for stage in stages(Rates(record()))}
    assert found["features, painting"].images == 50_416 + 21_850
    assert found["features, real"].flops == (120_906 + 52_041) * 8e9
    assert found["features, real"].written == pytest.approx((120_906 + 52_041) * 2048 * 4 / 1e9)
    assert found["source head, 19 runs"].rows == pytest.approx(19 * 30 * 0.85 * 120_906)
    assert found["active: MMD, 225 times"].flops == pytest.approx(225 * mmd_flops(0.85 * 120_906, 0))
    assert found["active: Sinkhorn, 225 times"].flops == pytest.approx(225 * sinkhorn_flops(1))
    assert found["active: floor of the source, 15 times"].flops == pytest.approx(15 * sinkhorn_flops(3))


def test_what_a_gate_measures_is_counted():
    """Q looks at every map of both domains; each of ten block candidates at all but the source's training split."""
    found = {stage.name: stage for stage in stages(Rates(record()))}
    everything, training = 120_906 + 52_041 + 48_212 + 20_916, 0.85 * 120_906
    seen = 4 * (everything + 10 * (everything - training))
    stage = found["gate: blocks over five splits, 4 runs"]
    assert (stage.rows, stage.flops) == pytest.approx((seen, seen * 1e9 / 3))
    assert stage.read == pytest.approx(seen * 2048 * 49 * 2e-9)


def test_counts_follow_the_profile():
    """What the projection reads from paper.yaml is what a run gets."""
    (active, *_), (gate, *_) = (expand(name, ["config=paper"]) for name in ("active", "gate"))
    c = active.config
    found = {stage.name: stage for stage in stages(Rates(record()))}
    epochs = 15 * c.source_epochs + 4 * gate.config.source_epochs
    assert found["source head, 19 runs"].rows == pytest.approx(epochs * 0.85 * 120_906)
    assert found["active: training, 15 runs"].rows == 15 * c.epochs * sum(c.batch * k for k in range(1, c.rounds + 1))


def test_full_networks_are_counted_where_a_profile_lists_them():
    listed = [{"name": "full", "depth": "full", "epochs": 2, "label_fraction": 0.5}]
    (found,) = [stage for stage in _gate(listed, 4, 1000, Rates(record())) if stage.name.startswith("gate: full")]
    everything, training = 120_906 + 52_041 + 48_212 + 20_916, 0.85 * 120_906
    assert found.images == pytest.approx(4 * (0.85 * 48_212 + everything + everything - training))


def test_the_projection_loads_nothing_that_downloads_or_trains():
    code = (
        "import sys, experiments.tables_hours; print([m for m in sys.modules if m.startswith('experiments.vision.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['experiments.vision.domainnet_counts']"


def test_the_sum_leaves_out_what_is_not_in_the_profile():
    *rows, total, full = hours([record()]).rows
    assert total[0] == "all"
    assert full[0].startswith("not in it")
    assert float(total[7].replace(",", "")) == pytest.approx(sum(float(r[7].replace(",", "")) for r in rows), rel=0.05)


def test_what_was_not_measured_is_missing():
    table = hours([record(without=["full size, MMD"])])
    by_stage = {row[0]: row for row in table.rows}
    assert by_stage["active: MMD, 225 times"][6:] == [MISSING] * 3
    assert by_stage["all"][6:] == [MISSING] * 3
    assert MISSING not in by_stage["features, real"]
