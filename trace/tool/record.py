"""A diagnostic's file: what it is about, and whether what it says can be.

Its digest shows edits and damage, not who made it: whoever writes a file can compute a digest. Values that no
diagnostic has are refused besides, and files that are given or pinned must be those that were diagnosed.
"""

import argparse
import math
import platform
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from ..io.errors import UserError
from ..io.models import NamedModel
from ..io.opened import read_bytes
from ..version import own_version
from .options import named_paths

_PACKAGES = (
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "POT",
    "pandas",
    "pyarrow",
    "pillow",
    "skops",
    "safetensors",
    "timm",
)
_COUNTS = {
    *("num_samples", "num_iters", "mmd_samples", "dim", "sizes", "sample_sizes", "batch_size"),
    *("rows", "changed", "right", "worse", "better", "negative_flips", "positive_flips"),
}
_SHARES = {"q", "eta", "delta", "budget", "disagreement", "error_plug_in", "confidence", "level"}
_NOT_NEGATIVE = {
    *("standard_error", "value_error", "marginal_error", "lipschitz_loss", "loss_bound", "loss_range"),
    *("bandwidth", "ridge", "epsilon", "c_h", "output_distance", "held_out_distance", "capped_change", "empirical"),
    *("sensitivity_source", "sensitivity_target", "largest_gradient_source", "largest_gradient_target", "rkhs_norm"),
    *("certified_source", "certified_target", "certified_change", "jacobian_change", "wasserstein1_input"),
    *("gap_source", "gap_target", "model_change", "label_noise", "validation_error", "population_ot", "population_mmd"),
    *("worst_label", "lipschitz", "emp_shift_ot", "emp_shift_mmd", "emp_shift_hybrid"),
}
_FREE = {"squared", "plug_in", "risk_change"}
"""Below these any finite number may stand."""


def versions() -> dict[str, str]:
    """This library, Python and every package that is here and may decide a number."""
    found = {"trace-shift": own_version(), "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def check_ranges(record: Mapping[str, Any], origin: str) -> None:
    """Refuse numbers that no diagnostic has: negative sizes and distances, shares beyond 1, values out of range.

    Keys that are not known are left alone; null is a number that is not there.

    Raises:
        UserError: with the path of the first one.
    """
    for path, value in _leaves(record, ()):
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        names = set(path)
        if not math.isfinite(value):
            fault = "no finite number"
        elif path[-1] == "counts":
            fault = "" if value >= 0 else "no number of rows"
        elif names & _FREE:
            continue
        elif names & _COUNTS:
            fault = "" if value >= 0 and value == int(value) else "no number of rows"
        elif names & _SHARES:
            fault = "" if 0 <= value <= 1 else "no share between 0 and 1"
        else:
            fault = "below 0" if names & _NOT_NEGATIVE and value < 0 else ""
        if fault:
            raise UserError(f"{origin}: {'.'.join(path)} is {value:g}, {fault}: make it again with diagnose --json")
    for path, entry in _mappings(record, ()):
        if said := _out_of_range(entry):
            raise UserError(f"{origin}: {'.'.join(path)} has {said}: make it again with diagnose --json")


def _out_of_range(entry: Mapping[str, Any]) -> str:
    """Which value of a mean, or of its tally, lies outside of the tally's range; empty where none does."""
    tally = entry.get("tally", entry)
    if not isinstance(tally, Mapping) or not {"low", "high", "values", "counts"} <= set(tally):
        return ""
    low, high, values, counts = (tally[name] for name in ("low", "high", "values", "counts"))
    if not (isinstance(values, list) and isinstance(counts, list) and len(values) == len(counts)):
        return "a tally without a count for every value"
    if not all(isinstance(each, int | float) for each in (low, high, *values, *counts)):
        return "a tally that is not of numbers"
    mean = entry.get("value")
    for number in (low, *values, *([mean] if isinstance(mean, int | float) else [])):
        if not low - _slack(low) <= number <= high + _slack(high):
            return f"the value {number:g} outside of its tally's range [{low:g}, {high:g}]"
    return ""


def _slack(end: float) -> float:
    """Of rounding."""
    return 1e-6 * max(1.0, abs(end))


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _leaves(entry, (*path, str(key)))
    elif isinstance(value, list):
        for entry in value:
            yield from _leaves(entry, path)
    else:
        yield path, value


def _mappings(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        yield path, value
        for key, entry in value.items():
            yield from _mappings(entry, (*path, str(key)))


def model_digests(models: tuple[NamedModel, NamedModel]) -> dict[str, str]:
    """SHA-256 of the models' files by their names among the arguments; code and saved outputs have none."""
    named = zip(("model", "new_model"), models, strict=True)
    return {name: model.sha256 for name, model in named if model.sha256}


def check_same(files: Any, given: Mapping[str, str], origin: str, told: str) -> None:
    """Refuse a diagnostic of other files than those with the digests ``given``.

    Args:
        files: SHA-256 by name, as the diagnostic has them.
        told: who says what they should be, for the sentence.

    Raises:
        UserError: with the first that differs, or that the diagnostic does not know.
    """
    known = files if isinstance(files, Mapping) else {}
    for name, digest in given.items():
        if known.get(name) != digest:
            what = "is about another one" if name in known else "does not say of which one it is"
            raise UserError(f"{told} {name} has the SHA-256 {digest[:12]}..., and {origin} {what}: diagnose it again")


def digests_of(arguments: argparse.Namespace) -> dict[str, str]:
    """SHA-256 of the models and samples that options name, without a look into them.

    Raises:
        UserError: for a folder, or a model that is code, which has no digest of its own here.
    """
    paths = {
        name: value for name in ("model", "new_model", "target", "target_val") if (value := getattr(arguments, name))
    }
    anchors = named_paths(arguments.source or [], "--source", "source")
    only = next(iter(anchors)) if len(anchors) == 1 else "source"
    for name, texts in (
        ("source", arguments.source),
        ("source_val", arguments.source_val),
        ("anchor_test", arguments.anchor_test),
    ):
        option = f"--{name.replace('_', '-')}"
        paths |= {f"{name}:{anchor}": path for anchor, path in named_paths(texts or [], option, only).items()}
    found = {}
    for name, path in paths.items():
        file = Path(path.partition("@")[2] if path.startswith("timm:") else path)
        if not file.is_file():
            raise UserError(f"{path} is no file whose SHA-256 could be compared with the diagnostic's: leave it out")
        found[name] = read_bytes(file).sha256
    return found
