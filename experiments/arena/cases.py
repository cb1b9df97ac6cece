"""The stored cases: ``results/arena/REPLICATION.seed.npz`` holds one Q and all its plain updates.

Logits are those that the scores of the records were computed from; of the anchor's test rows, from which the truth
comes, there are predictions and labels. What a score gets to see (`ArenaCase`) has no label of the anchor.
"""

import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trace.io.writing import replacement

from ..analysis.gate import kind
from ..analysis.replications import replication_title
from ..engine.errors import MissingFileError, UserError
from ..engine.records import ROOT, Record
from ..engine.store import RUNS

ARENA = ROOT / "results" / "arena"
SEEDS = 4
"""Of a replication that are stored: the first ones."""
OPEN = ("acs", "emoji")
"""Data sets whose licence (`card.LICENCES`) lets outputs of models be passed on; that of PACS states none."""
SCALARS = (
    "output_distance",
    "sensitivity_source",
    "sensitivity_target",
    "transport",
    "mmd_squared",
    "rkhs_norm",
    "floor",
)
"""Of a record, what a score may use besides outputs."""
_ROWS = {"anchor": "source_val", "target": "target_val"}
"""Names in the arena, and of the splits in ``outputs.npz``."""


@dataclass(frozen=True)
class ArenaCase:
    """One update as a score sees it: logits of both models ``[n, C]`` on held-out rows, and no label of the anchor."""

    anchor_outputs: NDArray[np.float32]
    anchor_new_outputs: NDArray[np.float32]
    target_outputs: NDArray[np.float32]
    target_new_outputs: NDArray[np.float32]
    target_labels: NDArray[np.int64]
    scalars: Mapping[str, float]
    """`SCALARS`, such as ``transport`` and ``sensitivity_target``."""


class Bout(NamedTuple):
    """A replication and a seed: one Q and its updates."""

    title: str
    seed: int
    names: list[str]
    arrays: Mapping[str, NDArray[Any]]

    def cases(self) -> Iterator[tuple[str, ArenaCase]]:
        """Every update with its name."""
        a = self.arrays
        for i, name in enumerate(self.names):
            scalars = dict(zip(SCALARS, self.arrays["scalars"][i].tolist(), strict=True))
            outputs = (a["q_anchor"], a["update_anchor"][i], a["q_target"], a["update_target"][i])
            yield name, ArenaCase(*outputs, self.arrays["target_y"], scalars)

    def error_change(self) -> list[float]:
        """The truth: of every update on the anchor's test rows."""
        y = self.arrays["test_y"]
        before = (self.arrays["q_test"] != y).mean()
        return [float((said != y).mean() - before) for said in self.arrays["update_test"]]


def bouts(folder: Path = ARENA) -> list[Bout]:
    """Everything that is stored, in the order of titles and seeds.

    Raises:
        MissingFileError: where there is nothing.
    """
    paths = sorted(folder.glob("*.npz"))
    if not paths:
        raise MissingFileError(f"{folder} holds no cases: restore it from git, or `arena --pack` after `run gate`")
    return [_read(path) for path in paths]


def _read(path: Path) -> Bout:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        title, names = str(arrays.pop("title")), [str(name) for name in arrays.pop("names")]
        return Bout(title, int(arrays.pop("seed")), names, arrays)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is no file of the arena ({error!r}): restore it from git") from error


def pack(records: list[Record], runs: Path = RUNS, folder: Path = ARENA) -> list[Path]:
    """Write the files of all replications whose licence allows it from the outputs that their runs kept.

    Raises:
        MissingFileError: where a run of a replication that is packed has kept none here.
    """
    groups: dict[tuple[str, int], list[Record]] = {}
    for record in sorted(records, key=lambda r: str(r["config"]["candidate"]["name"])):
        config = record["config"]
        if config["data"] in OPEN and config["seed"] < SEEDS and kind(config["candidate"]) == "plain":
            groups.setdefault((replication_title(config), config["seed"]), []).append(record)
    return [_pack(title, seed, own, runs, folder) for (title, seed), own in sorted(groups.items())]


def _pack(title: str, seed: int, records: list[Record], runs: Path, folder: Path) -> Path:
    kept = [_outputs(runs / "gate" / record["run_id"] / "outputs.npz") for record in records]
    names = [record["config"]["candidate"]["name"] for record in records]
    arrays: dict[str, NDArray[Any]] = {"title": np.array(title), "seed": np.array(seed), "names": np.array(names)}
    for name, split in _ROWS.items():
        arrays[f"q_{name}"] = kept[0][f"{split}_q"]
        arrays[f"update_{name}"] = np.stack([outputs[f"{split}_update"] for outputs in kept])
        arrays[f"{name}_y"] = kept[0][f"{split}_y"]
    arrays["q_test"], arrays["test_y"] = kept[0]["source_test_q_class"], kept[0]["source_test_y"]
    arrays["update_test"] = np.stack([outputs["source_test_update_class"] for outputs in kept])
    arrays["scalars"] = np.array([[record["metrics"][name] for name in SCALARS] for record in records])
    path = folder / f"{re.sub('[^a-z0-9_]+', '-', title.lower())}.seed{seed}.npz"
    folder.mkdir(parents=True, exist_ok=True)
    with replacement(path) as aside, open(aside, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    return path


def _outputs(path: Path) -> dict[str, NDArray[Any]]:
    if not path.exists():
        raise MissingFileError(f"{path} is missing: outputs lie beside the runs of the machine that computed them")
    with np.load(path, allow_pickle=False) as stored:
        found = {name: stored[name] for name in stored.files}
    if "source_test_q_class" not in found:
        raise UserError(f"{path} is of an earlier version: `run gate --force` of its run keeps what the arena needs")
    return found
