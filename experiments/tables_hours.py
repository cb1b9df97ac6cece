"""The table `hours`: what the paper profile would take on one GPU, projected from counts and the benchmark's rates.

A projection, not a measurement: nobody has run it. Work is counted by formula, FLOPs of ResNet-50 by torch's counter,
and rates come from the stored benchmark record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from trace import Settings

from .config import CONFIGS, read_mapping
from .records import Record
from .table_text import MISSING, Table
from .vision.domainnet import EXPECTED

GPUS = (30e12, 100e12)
"""Sustained FLOP/s of the columns: a good part of what a card of 2018 and one of 2022 reach in half precision."""
READERS = 8
"""Processes that read images beside the GPU (`workers` of the profile)."""
DIM, CLASSES, MAP = 2048, 345, 2048 * 7 * 7
SOURCE_EPOCHS, EPOCHS, ROUNDS, BATCH, BATCH_SIZE = 30, 5, 5, 50, 32
SHIFTS = 3
"""Distances that a round measures: to all labels, to the batch alone, and to held-out images of the source."""
DRAWS, DRAWN = 5, 10_000
"""Subsamples of Sinkhorn's estimate, and their size."""
ROWS = Settings().mmd_samples
STEP_SECONDS = 1e-3
"""Least time of a training step, whatever is computed in it."""
KEPT = 0.85
"""Of a training split, the rest validates."""


class Stage(NamedTuple):
    """A part of the profile."""

    name: str
    flops: float
    rate: str
    """The benchmark case whose FLOP/s it is projected with on this machine."""
    images: float = 0
    """That are read and resized."""
    rows: float = 0
    """That a training goes over, in batches of 32."""
    gigabytes: float = 0
    """Written and read again, in the cache of features."""
    gpu: bool = True
    """Whether it runs on the GPU; else in one thread of its node."""


FORWARD, BLOCK, FULL = (f"images, resnet50 {what}" for what in ("features", "step, block", "step, full"))
MMD, SINKHORN, MMDMIN, W1MIN = (f"full size, {what}" for what in ("MMD", "Sinkhorn", "mmdmin", "w1min"))


def hours(records: list[Record]) -> Table:
    """One line a stage, then their sum."""
    (record,) = records
    rates = Rates(record)
    *found, full = [(stage, rates.seconds(stage)) for stage in stages(rates)]
    rows = [_line(stage, seconds) for stage, seconds in found]
    sums = [_hours([seconds[i] for _, seconds in found]) for i in range(1 + len(GPUS))]
    caption = (
        "Hours of the paper profile (DomainNet, ResNet-50), one run after the other: a projection, nobody has run it. "
        f"Hours = max(FLOPs / FLOP/s, images / ({READERS} readers x images/s of a core), steps x {STEP_SECONDS:g} s); "
        "FLOPs of the network by torch's counter, of the rest by formula. `here`: with the rates of the stored "
        f"benchmark, on {rates.cores} cores. GPU columns: sustained FLOP/s; what runs on the CPU runs there in one "
        "thread, at the rate of one core here. A cluster divides the runs of both studies among its nodes."
    )
    header = ["stage", "runs on", "FLOPs", "images read", "cache [GB]", "here [h]",
              *(f"{gpu / 1e12:.0f} TFLOP/s [h]" for gpu in GPUS)]  # fmt: skip
    return Table(caption, header, [*rows, ["all", "", "", "", "", *sums], _line(*full)])


class Rates:
    """FLOPs an image and FLOP/s of this machine, from a benchmark record; None where it has no such case."""

    def __init__(self, record: Record) -> None:
        self.rows: dict[str, Record] = {row["case"]: row for row in record["metrics"]["rows"]}
        self.sizes: dict[str, int] = record["config"]["sizes"]
        self.cores: int = record["machine"]["cores"]

    def flops_an_image(self, case: str) -> float:
        """NaN where the case is missing."""
        return float(self.rows[case]["value"]) if case in self.rows else float("nan")

    def flops_a_second(self, case: str) -> float:
        """All cores together."""
        if case not in self.rows:
            return float("nan")
        counts = {FORWARD: self.sizes.get("n_images", 0), BLOCK: self.sizes.get("n_steps", 0)}
        counts[FULL] = counts[BLOCK]
        work = counts[case] * self.flops_an_image(case) if case in counts else self._full_size(case)
        return work / float(self.rows[case]["seconds"])

    def _full_size(self, case: str) -> float:
        n, m, count = (self.sizes[name] for name in ("n_source", "n_pool", "count_selected"))
        return {MMD: mmd_flops(n, m), SINKHORN: sinkhorn_flops(), MMDMIN: mmdmin_flops(n, m, count),
                W1MIN: w1min_flops(m)}[case]  # fmt: skip

    def images_a_second(self) -> float:
        """Read and resized by one core."""
        row = self.rows.get("images, read and resized")
        return float("nan") if row is None else self.sizes["n_images"] / float(row["seconds"])

    def seconds(self, stage: Stage) -> tuple[float, ...]:
        """Here on all cores, then beside each GPU."""
        here, reading = self.flops_a_second(stage.rate), stage.images / self.images_a_second() if stage.images else 0.0
        steps = STEP_SECONDS * stage.rows / BATCH_SIZE
        own = max(stage.flops / here, steps) + reading / self.cores
        if not stage.gpu:
            return (own, *[stage.flops / (here / self.cores) for _ in GPUS])
        return (own, *(max(stage.flops / gpu, reading / READERS, steps) for gpu in GPUS))


def mmd_flops(n: float, m: float) -> float:
    """Each pair of the joint sample once: ``(n + m)^2 d``, of at most `ROWS` rows of either."""
    return (min(n, ROWS) + min(m, ROWS)) ** 2 * DIM


def sinkhorn_flops(products: int = 3) -> float:
    """Products of two subsamples; sweeps over their kernels are small beside them."""
    return DRAWS * products * 2 * DRAWN**2 * DIM


def mmdmin_flops(n: float, m: float, count: float) -> float:
    """Mean kernels of the pool with the source, of 20,000 sources with themselves, and a row of the pool a pick."""
    return (2 * n * m + min(n, 20_000) ** 2 + 2 * count * m) * DIM


def w1min_flops(m: float) -> float:
    """At least all of the pool against 2,000 sources once."""
    return 2 * 2000 * m * DIM


def stages(rates: Rates) -> Iterator[Stage]:
    """The profile's stages, from its configs and DomainNet's counts; last what it leaves out."""
    active, gate = (read_mapping(CONFIGS / name / "paper.yaml") for name in ("active", "gate"))
    runs = sum(len(block["policy"]) * len(block["seed"]) for block in active["sweep"])
    policy, seeds = runs / len(active["sweep"][0]["policy"]), len(gate["sweep"]["seed"])
    n, pool, sketch = (KEPT * EXPECTED[domain, "train"] for domain in ("real", "painting", "sketch"))
    forward, head = rates.flops_an_image(FORWARD), 6 * DIM * CLASSES
    for domain in ("real", "painting", "sketch"):
        images = EXPECTED[domain, "train"] + EXPECTED[domain, "test"]
        yield Stage(f"features, {domain}", images * forward, FORWARD, images, gigabytes=images * DIM * 4e-9)
    mapped = sum(EXPECTED[domain, split] for domain in ("real", "sketch") for split in ("train", "test"))
    yield Stage("maps, real and sketch", mapped * forward, FORWARD, mapped, gigabytes=mapped * MAP * 2e-9)
    trained = (runs + seeds) * n * SOURCE_EPOCHS
    yield Stage(f"source head, {runs + seeds} runs", trained * head, BLOCK, rows=trained)
    yield Stage(f"active: mmdmin, {policy:.0f} runs", policy * mmdmin_flops(n, pool, ROUNDS * BATCH), MMDMIN, gpu=False)
    yield Stage(f"active: w1min, {policy:.0f} runs", policy * ROUNDS * w1min_flops(pool), W1MIN, gpu=False)
    trained = runs * EPOCHS * BATCH * ROUNDS * (ROUNDS + 1) / 2
    yield Stage(f"active: training, {runs} runs", trained * head, BLOCK, rows=trained)
    measured = runs * ROUNDS * SHIFTS
    yield Stage(f"active: MMD, {measured} times", measured * mmd_flops(n, 0), MMD, gpu=False)
    yield Stage(f"active: Sinkhorn, {measured} times", measured * sinkhorn_flops(1 + 3), SINKHORN, gpu=False)
    yield from _gate(gate["candidates"], seeds, n, sketch, rates)


def _gate(candidates: list[Record], seeds: int, n: float, sketch: float, rates: Rates) -> Iterator[Stage]:
    passes: dict[str, float] = {"head": 0.0, "block": 0.0}
    for candidate in candidates:
        passes[candidate.get("depth", "head")] += candidate.get("epochs", EPOCHS) * candidate.get("label_fraction", 1.0)
    heads, blocks = (seeds * sketch * count for count in passes.values())
    yield Stage(f"gate: heads, {seeds} runs", heads * 6 * DIM * CLASSES, BLOCK, rows=heads)
    yield Stage(f"gate: blocks, {seeds} runs", blocks * rates.flops_an_image(BLOCK), BLOCK, rows=blocks)
    yield Stage(f"gate: MMD, {seeds} times", seeds * mmd_flops(n, sketch), MMD, gpu=False)
    yield Stage(f"gate: Sinkhorn, {seeds} times", seeds * sinkhorn_flops(3 + 3), SINKHORN, gpu=False)
    yield Stage("not in it: full networks for the blocks", blocks * rates.flops_an_image(FULL), FULL, blocks)


def _line(stage: Stage, seconds: tuple[float, ...]) -> list[str]:
    numbers: list[Any] = [stage.flops, stage.images, stage.gigabytes]
    forms = ("{:.2g}", "{:,.0f}", "{:.1f}")
    cells = [_cell(value, form) if value else "" for value, form in zip(numbers, forms, strict=True)]
    return [stage.name, "GPU" if stage.gpu else "CPU", *cells, *(_hours([s]) for s in seconds)]


def _hours(seconds: list[float]) -> str:
    total = sum(seconds) / 3600
    return _cell(total, "{:.2g}" if total < 10 else "{:,.0f}")


def _cell(value: float, form: str) -> str:
    return MISSING if value != value else form.format(value)
