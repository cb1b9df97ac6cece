"""Configs: a frozen dataclass per experiment, merged with a YAML variant and ``key=value`` from the command line.

``configs/EXPERIMENT/VARIANT.yaml`` holds what differs from the dataclass. Its ``sweep:`` block, a list of values per
key, expands to a grid; a list on the command line for a plain field does the same, a plain value pins a swept key.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import itertools
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from .records import ROOT, run_id

CONFIGS = ROOT / "configs"
DEFAULT_VARIANT = "cpu"

Schema = TypeVar("Schema")


@dataclasses.dataclass(frozen=True)
class Run:
    """One point of a grid: an experiment and everything that decides its result."""

    experiment: str
    config: Any
    """An instance of the experiment's ``Config``."""

    @property
    def values(self) -> dict[str, Any]:
        return dataclasses.asdict(self.config)

    @property
    def run_id(self) -> str:
        return run_id(self.experiment, self.values.get("profile", ""), self.values)


def experiment_module(experiment: str) -> ModuleType:
    """The module of an experiment: its short name inside this package, or a dotted path to one's own."""
    path = experiment if "." in experiment else f"experiments.{experiment}"
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name and path.startswith(error.name):
            raise ValueError(f"unknown experiment {experiment!r}: `python -m experiments list` shows them") from error
        raise
    if not (dataclasses.is_dataclass(getattr(module, "Config", None)) and callable(getattr(module, "run", None))):
        raise ValueError(f"{path} is no experiment: it needs a dataclass Config and a function run(config, context)")
    return module


def expand(experiment: str, arguments: list[str], *, configs: Path = CONFIGS) -> list[Run]:
    """The grid of runs that ``EXPERIMENT [config=VARIANT] [key=value ...]`` asks for, in the order of the YAML.

    Raises:
        ValueError: for an unknown experiment, variant or key (with the nearest valid one), or a value of a wrong type.
    """
    experiment = experiment.removeprefix("experiments.")
    schema = experiment_module(experiment).Config
    overrides = _parse(arguments)
    variant = str(overrides.pop("config", overrides.get("profile", DEFAULT_VARIANT)))
    stored, sweep = _read_variant(configs / experiment.split(".")[-1], variant)
    for key, value in overrides.items():
        sweep.pop(key, None)
        if isinstance(value, list) and not _is_list(schema, key):
            if not value:
                raise ValueError(f"{key}=[] sweeps over nothing: give it at least one value")
            sweep[key] = value
    pinned = {key: value for key, value in overrides.items() if key not in sweep}
    points = itertools.product(*sweep.values())
    grid = [{**stored, **pinned, **dict(zip(sweep, point, strict=True))} for point in points]
    runs = [Run(experiment, typed(schema, point, experiment)) for point in grid]
    return list({run.run_id: run for run in runs}.values())


def _parse(arguments: list[str]) -> dict[str, Any]:
    for argument in arguments:
        if "=" not in argument:
            raise ValueError(f"{argument!r} is not of the form key=value")
    try:
        return dict(OmegaConf.to_container(OmegaConf.from_dotlist(arguments)))  # type: ignore[arg-type]
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise ValueError(
            f"{' '.join(arguments)} cannot be read ({str(error).splitlines()[0]}): quote the value"
        ) from error


def _read_variant(folder: Path, variant: str) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    path = folder / f"{variant}.yaml"
    if not path.exists():
        known = sorted(p.stem for p in folder.glob("*.yaml"))
        if variant == DEFAULT_VARIANT and not known:
            return {}, {}
        raise ValueError(f"{path} does not exist: config is one of {', '.join(known) or 'none yet'}")
    stored = read_mapping(path)
    sweep = stored.pop("sweep", None) or {}
    if not isinstance(sweep, dict):
        raise ValueError(f"{path}: sweep must map keys to lists of values, got {sweep!r}")
    for key, values in sweep.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"{path}: sweep.{key} must be a list of values, got {values!r}")
    return stored, {str(key): values for key, values in sweep.items()}


def read_mapping(path: Path) -> dict[str, Any]:
    """A YAML file that holds a mapping."""
    try:
        stored = OmegaConf.to_container(OmegaConf.load(path))
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise ValueError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(stored, dict):
        raise ValueError(f"{path} must hold a mapping of keys")
    return {str(key): value for key, value in stored.items()}


def typed(schema: type[Schema], point: Mapping[str, Any], origin: str) -> Schema:
    """An instance of a dataclass; unknown keys (with the nearest one) and wrong types are refused."""
    names = [field.name for field in dataclasses.fields(schema)]  # type: ignore[arg-type]
    for key in point:
        if key.split(".")[0] not in names:
            nearest = difflib.get_close_matches(key, names, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"it has {', '.join(names)}"
            raise ValueError(f"{origin} has no config key {key!r}: {hint}")
    try:
        merged = OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.create(dict(point)))
        return OmegaConf.to_object(merged)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        raise ValueError(f"config of {origin}: {str(error).splitlines()[0]} (key {error.full_key})") from error


def _is_list(schema: type, key: str) -> bool:
    kinds = {field.name: str(field.type) for field in dataclasses.fields(schema)}
    return kinds.get(key, "").lower().startswith(("list", "tuple"))
