"""Configs: a frozen dataclass per experiment, merged with a YAML variant and ``key=value`` from the command line.

``configs/EXPERIMENT/VARIANT.yaml`` holds what differs from the dataclass. Its ``sweep:`` block, a list of values per
key, expands to a grid, and a list of such blocks to the union of their grids; a list on the command line for a plain
field sweeps it in every block, a plain value pins a swept key. Where a block lists ``"*"`` for a key, a value on the
command line runs only the blocks that list it, and those with ``"*"``.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from .errors import UserError
from .records import ROOT, run_id

CONFIGS = ROOT / "configs"
DEFAULT_VARIANT = "cpu"
ANY = "*"
"""In a sweep's list of values: and any other that the command line gives."""

Schema = TypeVar("Schema")
Block = dict[str, list[Any]]


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
            raise UserError(f"unknown experiment {experiment!r}: `python -m experiments list` shows them") from error
        raise
    if not (dataclasses.is_dataclass(getattr(module, "Config", None)) and callable(getattr(module, "run", None))):
        raise UserError(f"{path} is no experiment: it needs a dataclass Config and a function run(config, context)")
    return module


def expand(experiment: str, arguments: list[str], *, configs: Path = CONFIGS) -> list[Run]:
    """The grid of runs that ``EXPERIMENT [config=VARIANT] [key=value ...]`` asks for, in the order of the YAML.

    Raises:
        UserError: for an unknown experiment, variant or key (with the nearest valid one), or a value of a wrong type.
    """
    experiment = experiment.removeprefix("experiments.")
    overrides = _parse(arguments)
    variant = str(overrides.pop("config", overrides.get("profile", DEFAULT_VARIANT)))
    return _expanded(experiment, _read_variant(_folder(experiment, configs), variant), overrides)


def grid_ids(experiment: str, values: Sequence[Mapping[str, Any]], *, configs: Path = CONFIGS) -> set[str] | None:
    """The ids of all runs that the YAML variants of an experiment ask for, of the profiles among ``values``.

    ``values`` are the configs of stored runs: where a variant lists ``"*"`` for a key, their values of that key count
    as given on the command line, nothing else of them does. None for an experiment without YAML: it has no grid.
    """
    experiment = experiment.removeprefix("experiments.")
    folder = _folder(experiment, configs)
    variants = sorted(path.stem for path in folder.glob("*.yaml"))
    if not variants:
        return None
    schema, ids = experiment_module(experiment).Config, set()
    for stored, blocks in (_read_variant(folder, variant) for variant in variants):
        profile = stored.get("profile", getattr(schema, "profile", None))
        own = [config for config in values if config.get("profile") == profile]
        keys = {key for block in blocks for key, listed in block.items() if ANY in listed}
        asked = [{}, *({key: config[key] for key in keys if key in config} for config in own)] if own else []
        for overrides in (o for i, o in enumerate(asked) if o not in asked[:i]):
            ids |= {run.run_id for run in _expanded(experiment, (stored, blocks), overrides)}
    return ids


def _folder(experiment: str, configs: Path) -> Path:
    return configs / experiment.split(".")[-1]


def _expanded(experiment: str, variant: tuple[dict[str, Any], list[Block]], overrides: dict[str, Any]) -> list[Run]:
    schema = experiment_module(experiment).Config
    stored, blocks = variant
    chosen = _open_to(blocks, overrides)
    points = [point for block in chosen for point in _grid(schema, stored, block, overrides)]
    runs = [Run(experiment, typed(schema, point, experiment)) for point in points]
    return list({run.run_id: run for run in runs}.values())


def _open_to(blocks: list[Block], overrides: dict[str, Any]) -> list[Block]:
    """The blocks that a command line runs: for a key that is open somewhere, those that list its value or are open."""
    for key, value in overrides.items():
        if any(ANY in block.get(key, []) for block in blocks):
            wanted = value if isinstance(value, list) else [value]
            blocks = [b for b in blocks if key not in b or ANY in b[key] or all(v in b[key] for v in wanted)]
    return [{key: [v for v in values if v != ANY] for key, values in block.items()} for block in blocks]


def _grid(schema: type, stored: dict[str, Any], block: Block, overrides: dict[str, Any]) -> list[dict[str, Any]]:
    """The points of one sweep block; an override replaces what it sweeps over, or pins it."""
    swept = {key: value for key, value in overrides.items() if isinstance(value, list) and not _is_list(schema, key)}
    for key, values in swept.items():
        if not values:
            raise UserError(f"{key}=[] sweeps over nothing: give it at least one value")
    sweep = {key: values for key, values in block.items() if key not in overrides} | swept
    pinned = {key: value for key, value in overrides.items() if key not in swept}
    base = _merged(stored, pinned)
    return [{**base, **dict(zip(sweep, point, strict=True))} for point in itertools.product(*sweep.values())]


def _merged(stored: dict[str, Any], pinned: dict[str, Any]) -> dict[str, Any]:
    """The YAML's values with those of the command line over them, key by key also inside a mapping."""
    merged = OmegaConf.to_container(OmegaConf.merge(OmegaConf.create(stored), OmegaConf.create(pinned)))
    return {str(key): value for key, value in dict(merged).items()}  # type: ignore[arg-type]


def _parse(arguments: list[str]) -> dict[str, Any]:
    for argument in arguments:
        if "=" not in argument:
            raise UserError(f"{argument!r} is not of the form key=value")
    try:
        return dict(OmegaConf.to_container(OmegaConf.from_dotlist(arguments)))  # type: ignore[arg-type]
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise UserError(
            f"{' '.join(arguments)} cannot be read ({str(error).splitlines()[0]}): quote the value"
        ) from error


def _read_variant(folder: Path, variant: str) -> tuple[dict[str, Any], list[Block]]:
    path = folder / f"{variant}.yaml"
    if not path.exists():
        known = sorted(p.stem for p in folder.glob("*.yaml"))
        if variant == DEFAULT_VARIANT and not known:
            return {}, [{}]
        raise UserError(f"{path} does not exist: config is one of {', '.join(known) or 'none yet'}")
    stored = read_mapping(path)
    sweep = stored.pop("sweep", None) or {}
    return stored, [_block(entry, path) for entry in (sweep if isinstance(sweep, list) else [sweep])]


def _block(sweep: Any, path: Path) -> Block:
    if not isinstance(sweep, dict):
        raise UserError(f"{path}: sweep must map keys to lists of values, or list such mappings, got {sweep!r}")
    for key, values in sweep.items():
        if not isinstance(values, list) or not values:
            raise UserError(f"{path}: sweep.{key} must be a list of values, got {values!r}")
    return {str(key): values for key, values in sweep.items()}


def read_mapping(path: Path) -> dict[str, Any]:
    """A YAML file that holds a mapping."""
    try:
        stored = OmegaConf.to_container(OmegaConf.load(path))
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(stored, dict):
        raise UserError(f"{path} must hold a mapping of keys")
    return {str(key): value for key, value in stored.items()}


def typed(schema: type[Schema], point: Mapping[str, Any], origin: str) -> Schema:
    """An instance of a dataclass; unknown keys (with the nearest one) and wrong types are refused."""
    names = [field.name for field in dataclasses.fields(schema)]  # type: ignore[arg-type]
    for key in point:
        if key.split(".")[0] not in names:
            nearest = difflib.get_close_matches(key, names, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"it has {', '.join(names)}"
            raise UserError(f"{origin} has no config key {key!r}: {hint}")
    try:
        merged = OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.create(dict(point)))
        return OmegaConf.to_object(merged)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        raise UserError(f"config of {origin}: {str(error).splitlines()[0]} (key {error.full_key})") from error


def _is_list(schema: type, key: str) -> bool:
    kinds = {field.name: str(field.type) for field in dataclasses.fields(schema)}
    return kinds.get(key, "").lower().startswith(("list", "tuple"))
