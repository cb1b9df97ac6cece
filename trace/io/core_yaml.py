"""YAML that means what it says: the core schema of YAML 1.2 without anchors, aliases, merge keys and tags."""

import re
from collections import Counter
from typing import Any

from .errors import UserError, require

MOST_DEPTH = 20

_SCALARS = {
    "null": re.compile(r"(?:~|null|Null|NULL|)$"),
    "bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"),
    "int": re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})$"),
    "float": re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]{0,17})(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,4})?$"),
}
"""Everything else is text: also 1:30, 010, 1_000 and yes, which YAML 1.1 reads as 90, 8, 1000 and true."""


def parse_yaml(text: str, origin: str, remedy: str) -> Any:
    """Mappings, lists, numbers, text, true, false and null.

    Raises:
        UserError: for what is no YAML, for a key twice, for nesting beyond `MOST_DEPTH`, and for what lets a small
            file grow: anchors, aliases, merge keys and tags.
    """
    yaml = require("yaml", purpose=f"reading {origin}")
    try:
        _check_events(yaml, text, origin)
        return yaml.load(text, Loader=_loader(yaml, origin))
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise UserError(f"{origin} is not YAML ({problem}): {remedy}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{origin} is not YAML ({type(error).__name__}: {error}): {remedy}") from error


def _check_events(yaml: Any, text: str, origin: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise UserError(f"{origin} has an anchor or alias (&, *): write the value where it is needed")
        if getattr(event, "tag", None) is not None:
            raise UserError(f"{origin} has a tag ({event.tag}): write plain values")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise UserError(f"{origin} is nested deeper than {MOST_DEPTH} levels: write it flat")


def _loader(yaml: Any, origin: str) -> Any:
    class Core(yaml.SafeLoader):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [key.value if isinstance(key.value, str) else "" for key, _ in node.value]
            if twice := next((key for key, count in Counter(keys).items() if count > 1), ""):
                raise UserError(f"{origin} has the key {twice!r} twice: keep one of them")
            return yaml.constructor.BaseConstructor.construct_mapping(self, node, deep=True)

    def mapping(loader: Any, node: Any) -> Any:
        return loader.construct_mapping(node)

    for name, pattern in _SCALARS.items():
        Core.add_implicit_resolver(f"tag:yaml.org,2002:{name}", pattern, None)
    Core.add_constructor("tag:yaml.org,2002:map", mapping)
    Core.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))
    Core.add_constructor("tag:yaml.org,2002:float", lambda loader, node: float(node.value))
    return Core
