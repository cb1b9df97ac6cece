"""The table `hours`: what the paper profile would take on one GPU, projected from counts and the benchmark's rates.

A projection, not a measurement: nobody has run it. Work is counted by formula, FLOPs of ResNet-50 by torch's counter,
and rates come from the stored benchmark record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from trace import Settings

from .config import CONFIGS, read_mapping
from .records import Record
from .table_text import MISSING, Table
from .vision.domainnet_counts import EXPECTED

GPUS = (30e12, 100e12)
"""Sustained FLOP/s of the columns: a good part of what a card of 2018 and one of 2022 reach in half precision."""
DISK = 1e9
"""Bytes a second that the cache of maps is read with: an assumption, of one local disk."""
DIM, CLASSES = 2048, 345
HEAD = 6 * DIM * CLASSES
"""FLOPs of a step of the head, an image."""
MAP_GB = 2048 * 7 * 7 * 2e-9
"""Gigabytes of an image's map, in half precision."""
BATCH_SIZE = 32
"""Of a training step, and of a pass over maps."""
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
    """That a training or a pass goes over, in batches of 32."""
    written: float = 0
    """Gigabytes, to the cache of features and maps."""
    read: float = 0
    """Gigabytes, from the cache of maps."""
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
        f"Hours = max(FLOPs / FLOP/s, images / ({rates.readers} readers x images/s of a core), steps x "
        f"{STEP_SECONDS:g} s, bytes of maps / {DISK / 1e9:g} GB/s); FLOPs of the network by torch's counter, of the "
        f"rest by formula. `here`: with the rates of the stored benchmark, on {rates.cores} cores. GPU columns: "
        "sustained FLOP/s; what runs on the CPU runs there in one thread, at the rate of one core here. A cluster "
        "divides the runs of both studies among its nodes. Not counted: the terms of the diagnostic besides distances."
    )
    header = ["stage", "runs on", "FLOPs", "images read", "written [GB]", "maps read [GB]", "here [h]",
              *(f"{gpu / 1e12:.0f} TFLOP/s [h]" for gpu in GPUS)]  # fmt: skip
    return Table(caption, header, [*rows, ["all", *[""] * 5, *sums], _line(*full)])


class Rates:
    """FLOPs an image and FLOP/s of this machine, from a benchmark record; None where it has no such case."""

    def __init__(self, record: Record) -> None:
        self.rows: dict[str, Record] = {row["case"]: row for row in record["metrics"]["rows"]}
        self.sizes: dict[str, int] = record["config"]["sizes"]
        self.cores: int = record["machine"]["cores"]
        self.readers: int = _profile("active")["workers"]

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
        waiting = max(STEP_SECONDS * stage.rows / BATCH_SIZE, stage.read * 1e9 / DISK)
        own = max(stage.flops / here, waiting) + reading / self.cores
        if not stage.gpu:
            return (own, *[stage.flops / (here / self.cores) for _ in GPUS])
        return (own, *(max(stage.flops / gpu, reading / self.readers, waiting) for gpu in GPUS))


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


def _profile(experiment: str) -> dict[str, Any]:
    return read_mapping(CONFIGS / experiment / "paper.yaml")


def stages(rates: Rates) -> Iterator[Stage]:
    """The profile's stages, from its configs and DomainNet's counts; last what it leaves out."""
    active, gate = _profile("active"), _profile("gate")
    runs = sum(len(block["policy"]) * len(block["seed"]) for block in active["sweep"])
    seeds = len(gate["sweep"]["seed"])
    n = KEPT * EXPECTED["real", "train"]
    forward = rates.flops_an_image(FORWARD)
    for domain in ("real", "painting", "sketch"):
        images = EXPECTED[domain, "train"] + EXPECTED[domain, "test"]
        yield Stage(f"features, {domain}", images * forward, FORWARD, images, written=images * DIM * 4e-9)
    mapped = sum(EXPECTED[domain, split] for domain in ("real", "sketch") for split in ("train", "test"))
    yield Stage("maps, real and sketch", mapped * forward, FORWARD, mapped, written=mapped * MAP_GB)
    trained = n * (runs * active["source_epochs"] + seeds * gate["source_epochs"])
    yield Stage(f"source head, {runs + seeds} runs", trained * HEAD, BLOCK, rows=trained)
    yield from _active(active, runs, n)
    yield from _gate(gate["candidates"], seeds, n, rates)


def _active(active: dict[str, Any], runs: int, n: float) -> Iterator[Stage]:
    pool = KEPT * EXPECTED["painting", "train"]
    policy, rounds, labels = (
        runs / len(active["sweep"][0]["policy"]),
        active["rounds"],
        active["rounds"] * active["batch"],
    )
    yield Stage(f"active: mmdmin, {policy:.0f} runs", policy * mmdmin_flops(n, pool, labels), MMDMIN, gpu=False)
    yield Stage(f"active: w1min, {policy:.0f} runs", policy * rounds * w1min_flops(pool), W1MIN, gpu=False)
    trained = runs * active["epochs"] * labels * (rounds + 1) / 2
    yield Stage(f"active: training, {runs} runs", trained * HEAD, BLOCK, rows=trained)
    measured = runs * rounds * SHIFTS
    yield Stage(f"active: MMD, {measured} times", measured * mmd_flops(n, 0), MMD, gpu=False)
    yield Stage(f"active: Sinkhorn, {measured} times", measured * sinkhorn_flops(1), SINKHORN, gpu=False)
    yield Stage(f"active: floor of the source, {runs} times", runs * sinkhorn_flops(3), SINKHORN, gpu=False)


def _gate(candidates: list[Record], seeds: int, n: float, rates: Rates) -> Iterator[Stage]:
    sketch = KEPT * EXPECTED["sketch", "train"]
    passes, numbers = dict.fromkeys(("head", "block", "full"), 0.0), Counter[str]()
    for candidate in candidates:
        numbers[candidate.get("depth", "head")] += 1
        passes[candidate.get("depth", "head")] += candidate["epochs"] * candidate.get("label_fraction", 1.0)
    heads, blocks, fulls = (seeds * sketch * count for count in passes.values())
    step = rates.flops_an_image(BLOCK)
    yield Stage(f"gate: heads, {seeds} runs", heads * HEAD, BLOCK, rows=heads)
    yield Stage(f"gate: blocks, {seeds} runs", blocks * step, BLOCK, rows=blocks, read=blocks * MAP_GB)
    seen = seeds * _seen(numbers["block"])
    yield Stage(f"gate: blocks over five splits, {seeds} runs", seen * step / 3, BLOCK, rows=seen, read=seen * MAP_GB)
    if fulls:
        seen = seeds * _seen(numbers["full"])
        work = fulls * rates.flops_an_image(FULL) + seen * rates.flops_an_image(FORWARD)
        yield Stage(f"gate: full networks, {seeds} runs", work, FULL, fulls + seen)
    yield Stage(f"gate: MMD, {seeds} times", seeds * mmd_flops(n, sketch), MMD, gpu=False)
    yield Stage(f"gate: Sinkhorn, {seeds} times", seeds * sinkhorn_flops(3 + 3), SINKHORN, gpu=False)
    yield Stage("not in it: full networks for the blocks", blocks * rates.flops_an_image(FULL), FULL, blocks)


def _seen(blocks: int) -> float:
    """Images that pass what lies below the head to be measured: all by Q, all but the source's training by others.

    A forward pass is a third of a step. Heads see features in memory.
    """
    everything = sum(EXPECTED[domain, split] for domain in ("real", "sketch") for split in ("train", "test"))
    return everything + blocks * (everything - KEPT * EXPECTED["real", "train"])


def _line(stage: Stage, seconds: tuple[float, ...]) -> list[str]:
    numbers = [stage.flops, stage.images, stage.written, stage.read]
    forms = ("{:.2g}", "{:,.0f}", "{:,.1f}", "{:,.0f}")
    cells = [_cell(value, form) if value else "" for value, form in zip(numbers, forms, strict=True)]
    return [stage.name, "GPU" if stage.gpu else "CPU", *cells, *(_hours([s]) for s in seconds)]


def _hours(seconds: list[float]) -> str:
    total = sum(seconds) / 3600
    return _cell(total, "{:.2g}" if total < 10 else "{:,.0f}")


def _cell(value: float, form: str) -> str:
    return MISSING if value != value else form.format(value)
