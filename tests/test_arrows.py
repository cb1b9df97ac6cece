"""The direction of imports between rooms: folders are listed, modules are not, so that a new module needs no edit."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

TRACE = ("stats", "estimators", "worlds", "training", "selection", "gate", "report", "io", "tool")
"""Folders of the library; each may import those before it, and the modules at the root, which know no later room."""
AT_THE_ROOT = ("stats", "estimators")
"""Folders that the root modules of the library may import, but for what they re-export."""
EXPERIMENTS = {
    "engine": set(),
    "pairs": {"engine"},
    "regression": {"engine"},
    "fetch": {"engine"},
    "peers": {"engine"},
    "vision": {"engine", "fetch"},
    "tabular": {"engine", "fetch", "vision"},
    "analysis": {"engine"},
    "tables": {"analysis", "engine"},
    "figures": {"analysis", "engine"},
    "claims": {"analysis", "engine"},
    "arena": {"analysis", "engine", "tables"},
    "benchmarks": {"engine", "pairs", "vision"},
    "site": {"engine", "tables", "claims"},
    "commands": {
        "engine",
        "analysis",
        "tables",
        "figures",
        "claims",
        "arena",
        "benchmarks",
        "site",
        "vision",
        "tabular",
    },
    "entry points": {"engine", "pairs", "regression", "vision", "tabular"},
}
"""What each room of experiments/ may import."""
TRAINING = ("training", "worlds", "adapters", "tool")
"""What is made from records reaches none of these in the library."""


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for package in ("trace", "experiments") for path in (ROOT / package).rglob("*.py")}


def statements(node: ast.AST, *, lazy: bool) -> Iterator[ast.AST]:
    """All import statements; those inside functions if ``lazy``, those for type checkers never."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not lazy:
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        yield from statements(child, lazy=lazy)


@cache
def imports(name, *, lazy=True):
    """The modules of this repository that one of them names in its imports."""
    path = MODULES[name]
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in statements(ast.parse(path.read_text()), lazy=lazy):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return frozenset(found & set(MODULES)) - {name}


def room(module):
    """The folder of a module, or for those at the root of experiments/ that run experiments, "entry points"."""
    package, *rest = module.split(".")
    if not rest or rest[0].startswith("__"):
        return ""
    inside = len(rest) > 1 or MODULES[module].name == "__init__.py"
    return rest[0] if inside else "entry points" if package == "experiments" else ""


@pytest.mark.parametrize("name", [name for name in MODULES if name.split(".")[0] == "trace"])
def test_arrows_of_the_library(name):
    own = room(name)
    allowed = TRACE[: TRACE.index(own) + 1] if own else AT_THE_ROOT
    for other in imports(name):
        assert not other.startswith("experiments"), f"{name} imports {other}"
        if own or name not in ("trace", "trace.__main__", "trace.tracking"):
            assert room(other) in ("", *allowed), f"{name} imports {other}"


@pytest.mark.parametrize("name", [name for name in MODULES if name.split(".")[0] == "experiments"])
def test_arrows_of_the_experiments(name):
    own = room(name)
    assert not any(room(other) == "tool" for other in imports(name)), f"{name} imports the command line of the library"
    for other in imports(name, lazy=False):
        if own and other.startswith("experiments."):
            assert room(other) in ("", own, *EXPERIMENTS[own]), f"{name} imports {other}"


@pytest.mark.parametrize("folder", ["analysis", "tables", "figures", "claims"])
def test_what_is_made_from_records_reaches_no_training_code(folder):
    for name in (name for name in MODULES if name.startswith(f"experiments.{folder}.")):
        seen, open_ = set(), [name]
        while open_:
            for other in imports(open_.pop(), lazy=False) - seen:
                seen.add(other)
                open_.append(other)
                assert other.split(".")[0] != "trace" or room(other) not in TRAINING, f"{name} reaches {other}"
                assert not other.startswith(("experiments.vision", "experiments.pairs")), f"{name} reaches {other}"


def test_every_room_is_listed_once():
    for package, rooms in (("trace", TRACE), ("experiments", EXPERIMENTS)):
        folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
        assert folders == set(rooms) - {"entry points"}


@pytest.mark.parametrize("package", ["trace", "experiments"])
def test_no_module_imports_itself_in_the_end(package):
    """Over what is imported when a module is loaded."""
    left = {name: imports(name, lazy=False) for name in MODULES if name.split(".")[0] == package}
    while leaves := [name for name, others in left.items() if not any(other in left for other in others)]:
        for name in leaves:
            del left[name]
    assert not left, f"these import each other: {', '.join(sorted(left))}"


def test_the_library_imports_itself_relatively():
    for name, path in MODULES.items():
        for node in statements(ast.parse(path.read_text()), lazy=True):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            level = node.level if isinstance(node, ast.ImportFrom) else 0
            if name.split(".")[0] == "trace" and not level:
                assert not any(n.split(".")[0] in ("trace", "trace_shift") for n in named), f"{name} imports {named}"


def test_the_entry_points_stand_alone():
    """What one sees first: experiments, and nothing else."""
    for path in (ROOT / "experiments").glob("[!_]*.py"):
        names = {
            node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef | ast.FunctionDef)
        }
        assert {"Config", "run"} <= names, f"{path.name} is no entry point"


def test_a_class_name_is_used_once():
    """But for what every experiment and every world has."""
    nodes = (node for path in MODULES.values() for node in ast.parse(path.read_text()).body)
    names = [node.name for node in nodes if isinstance(node, ast.ClassDef) and node.name not in ("Config", "World")]
    assert sorted(names) == sorted(set(names))
