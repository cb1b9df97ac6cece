"""Configs: a frozen dataclass per experiment, merged with a YAML variant and ``key=value`` from the command line.

``configs/EXPERIMENT/VARIANT.yaml`` holds what differs from the dataclass; the field ``profile``, under which tables
find the runs, is the variant's name unless the YAML says otherwise. Its ``sweep:`` block, a list of values per key,
expands to a grid, and a list of such blocks to the union of their grids. On the command line ``key=a,b`` or
``key=[a,b]`` sweeps a plain field in every block and is the value of a field that is a list; one value pins a swept
key. ``models.0.lr=3`` reaches into lists and mappings. Where a block lists ``"*"`` for a key, a value on the
command line runs only the blocks that list it, and those with ``"*"``.
"""

import copy
import dataclasses
import difflib
import functools
import importlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigIndexError, OmegaConfBaseException

from .errors import UserError
from .records import ROOT, run_id

CONFIGS = ROOT / "configs"
DEFAULT_VARIANT = "cpu"
MACHINE = {"machine": True}
"""Metadata of a field that decides how fast a run is, not what it finds."""
ANY = "*"
"""In a sweep's list of values: and any other that the command line gives."""

Schema = TypeVar("Schema")
Block = dict[str, list[Any]]

_hints = functools.cache(get_type_hints)
_structure = functools.cache(OmegaConf.structured)


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
        return run_id(self.experiment, identity(self.config))

    @property
    def metrics_version(self) -> int:
        """Of the experiment's code: a record of another version lacks columns, and is not done."""
        return metrics_version(self.experiment)


def metrics_version(experiment: str) -> int:
    """``METRICS_VERSION`` of an experiment's module; 1 where it has none."""
    return int(getattr(experiment_module(experiment), "METRICS_VERSION", 1))


def added(value: Any) -> Any:
    """The default of a field that was added to a config later, where it means what was done before."""
    return dataclasses.field(default=value, metadata={"added": value})


def identity(config: Any) -> Any:
    """What the id of a run hashes, as plain values: every field, also of configs inside it, but for two kinds.

    A field of `MACHINE` decides how fast a run is, not what it finds. A field of `added` is left out while it has the
    value that it was added with, so that ids from before it stay. That value never changes, the default may.
    """
    if dataclasses.is_dataclass(config):
        values = {field: getattr(config, field.name) for field in dataclasses.fields(config)}
        return {
            field.name: identity(value)
            for field, value in values.items()
            if not field.metadata.get("machine")
            and not ("added" in field.metadata and field.metadata["added"] == value)
        }
    if isinstance(config, list | tuple):
        return [identity(entry) for entry in config]
    return {key: identity(entry) for key, entry in config.items()} if isinstance(config, dict) else config


def with_added(kind: Any, stored: Any) -> Any:
    """A stored config with the fields that its dataclass got later, each with the value that it was added with.

    The run's id does not change by them (`identity`), so a record from before and one from after can stand together.
    """
    if dataclasses.is_dataclass(kind) and isinstance(stored, Mapping):
        later = {field.name: field.metadata["added"] for field in dataclasses.fields(kind) if "added" in field.metadata}
        kinds = get_type_hints(kind)
        return {name: with_added(kinds.get(name), value) for name, value in {**later, **stored}.items()}
    if get_origin(kind) is list and isinstance(stored, list):
        return [with_added(get_args(kind)[0], value) for value in stored]
    if get_origin(kind) is dict and isinstance(stored, Mapping):
        return {name: with_added(get_args(kind)[1], value) for name, value in stored.items()}
    return stored


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
    schema = experiment_module(experiment).Config
    overrides = dict(map(_parse, arguments))
    variant = overrides.pop("config", DEFAULT_VARIANT)
    if "profile" in overrides:
        raise UserError(f"profile={overrides['profile']} follows from the variant: write config={overrides['profile']}")
    return _grid(experiment, schema, *_read_variant(experiment, schema, str(variant), configs), overrides)


def whole_grid(
    experiment: str, variant: str, values: Sequence[Mapping[str, Any]] = (), *, configs: Path = CONFIGS
) -> list[Run]:
    """All runs that a variant asks for.

    ``values`` are the configs of stored runs: where the variant lists ``"*"`` for a key, those of its profile count as
    given on the command line, in this key alone.
    """
    experiment = experiment.removeprefix("experiments.")
    schema = experiment_module(experiment).Config
    stored, blocks = _read_variant(experiment, schema, variant, configs)
    own = [config for config in values if config.get("profile") == stored.get("profile")]
    keys = {key for block in blocks for key, listed in block.items() if ANY in listed}
    asked = [{}, *({key: config[key] for key in keys if key in config} for config in own)]
    different = (overrides for i, overrides in enumerate(asked) if overrides not in asked[:i])
    return _once(run for overrides in different for run in _grid(experiment, schema, stored, blocks, overrides))


def variants(experiment: str, *, configs: Path = CONFIGS) -> list[str]:
    """The YAML files of an experiment, by name."""
    return sorted(path.stem for path in (configs / experiment.split(".")[-1]).glob("*.yaml"))


def _grid(
    experiment: str, schema: type, stored: dict[str, Any], blocks: list[Block], overrides: dict[str, Any]
) -> list[Run]:
    """The union of the blocks' grids; an override replaces what a block sweeps over, or pins it."""
    base = DictConfig(OmegaConf.to_container(_merge(schema, stored, experiment)))
    given = {key: _values(schema, key, value, experiment) for key, value in overrides.items()}
    points: list[Run] = []
    for block in _open_to(blocks, overrides):
        sweep = {key: values for key, values in block.items() if key not in given} | given
        for values in itertools.product(*sweep.values()):
            point = copy.deepcopy(base)
            for key, value in zip(sweep, values, strict=True):
                kind_of(schema, key, experiment)
                _assign(point, key, value, experiment)
            points.append(Run(experiment, typed(schema, point, experiment)))
    return _once(points)


def _once(runs: Iterable[Run]) -> list[Run]:
    return list({run.run_id: run for run in runs}.values())


def _values(schema: type, key: str, value: Any, origin: str) -> list[Any]:
    """What an override runs over: its values one by one, or one list where the field takes a list."""
    values = value if isinstance(value, list) else [value]
    if get_origin(kind_of(schema, key, origin)) is list:
        return [values]
    if not values:
        raise UserError(f"{key}=[] sweeps over nothing: give it at least one value")
    return values


def _open_to(blocks: list[Block], overrides: dict[str, Any]) -> list[Block]:
    """The blocks that a command line runs: for a key that is open somewhere, those that list its value or are open."""
    for key, value in overrides.items():
        if any(ANY in block.get(key, []) for block in blocks):
            wanted = value if isinstance(value, list) else [value]
            blocks = [b for b in blocks if key not in b or ANY in b[key] or all(v in b[key] for v in wanted)]
    return [{key: [v for v in values if v != ANY] for key, values in block.items()} for block in blocks]


def kind_of(schema: type, key: str, origin: str) -> Any:
    """The type at a dotted key, through dataclasses, lists and mappings.

    Raises:
        UserError: for a key that leads nowhere, with the nearest one.
    """
    kind: Any = schema
    for name in key.split("."):
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            hints = _hints(kind)
            names = [field.name for field in dataclasses.fields(kind)]
            if name not in names:
                nearest = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean {nearest[0]}?" if nearest else f"it has {', '.join(names)}"
                owner = origin if kind is schema else kind.__name__
                raise UserError(f"{owner} has no config key {name!r}{'' if name == key else f' ({key})'}: {hint}")
            kind = hints[name]
        elif get_origin(kind) is dict or (get_origin(kind) is list and name.isdecimal()):
            kind = get_args(kind)[-1]
        elif get_origin(kind) is list:
            raise UserError(f"{key}: {name!r} is no entry of a list: count them from 0, or give the whole list")
        else:
            raise UserError(f"{key}: there is nothing below a plain value: leave out .{name}")
    return kind


def _assign(point: DictConfig, key: str, value: Any, origin: str) -> None:
    """Set a dotted key; a mapping is laid over the one that is there."""
    with _explain(origin):
        try:
            OmegaConf.update(point, key, value)
        except ConfigIndexError as error:
            count = len(error.parent_node)
            raise UserError(f"{origin}: {key} is out of range: the list has {count} entries, counted from 0") from error


def _parse(argument: str) -> tuple[str, Any]:
    """``key=value``; values with commas between them are a list."""
    key, equals, text = argument.partition("=")
    if not (key and equals):
        raise UserError(f"{argument!r} is not of the form key=value: name a key before the =, its value after it")
    if not text:
        raise UserError(f"{argument!r} gives no value: write {key}=VALUE, or leave it out for the default")
    try:
        values = OmegaConf.to_container(OmegaConf.create(f"[{text}]"))
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"{argument} cannot be read ({str(error).splitlines()[0]}): quote the value") from error
    assert isinstance(values, list)
    return key, values[0] if len(values) == 1 else values


def _read_variant(experiment: str, schema: type, variant: str, configs: Path) -> tuple[dict[str, Any], list[Block]]:
    """What a YAML file says that differs from the defaults, and the blocks of its sweep."""
    known = variants(experiment, configs=configs)
    if variant == DEFAULT_VARIANT and not known:
        return {}, [{}]
    path = configs / experiment.split(".")[-1] / f"{variant}.yaml"
    if variant not in known:
        raise UserError(f"{path} does not exist: config is one of {', '.join(known) or 'none yet'}")
    stored = read_mapping(path)
    sweep = stored.pop("sweep", None) or {}
    if any(field.name == "profile" for field in dataclasses.fields(schema)):
        stored.setdefault("profile", variant)
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
    except (yaml.YAMLError, OmegaConfBaseException, OSError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(stored, dict):
        raise UserError(f"{path} must hold a mapping of keys")
    return {str(key): value for key, value in stored.items()}


def typed(schema: type[Schema], point: dict[str, Any] | DictConfig, origin: str) -> Schema:
    """An instance of a dataclass; unknown keys (with the nearest one) and wrong types are refused."""
    with _explain(origin):
        return OmegaConf.to_object(_merge(schema, point, origin))  # type: ignore[return-value]


def _merge(schema: type, point: dict[str, Any] | DictConfig, origin: str) -> DictConfig:
    for key in point:
        kind_of(schema, str(key), origin)
    with _explain(origin):
        return OmegaConf.merge(_structure(schema), point)  # type: ignore[return-value]


@contextmanager
def _explain(origin: str) -> Iterator[None]:
    """OmegaConf's refusals as sentences."""
    try:
        yield
    except OmegaConfBaseException as error:
        message = f"config of {origin}: {str(error).splitlines()[0]} (key {error.full_key}): mend this value"
        raise UserError(message) from error
