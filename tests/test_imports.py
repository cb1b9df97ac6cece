"""The direction of imports: what is made from records reaches no training or launching code, and nothing goes round."""

import ast
import fnmatch
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

READERS = (
    "tables", "tables_*", "figures", "figures_*", "claims", "claims_*", "*_reading", "frame", "ledger", "published",
)  # fmt: skip
"""Modules of experiments/ that turn records into tables, figures and claims."""
ALLOWED = (
    *READERS, "records", "errors", "config", "repeats", "table_text", "figure_style", "active_rounds", "gate_scores",
)  # fmt: skip
"""What they may reach there; `config` reads the YAML of a grid, and runs nothing."""
TRAINING = ("training", "models", "worlds", "anchor_penalty", "adapters", "tool", "__main__")
"""What they may not reach in trace/."""
EXCEPTIONS = {
    ("experiments.figures", "experiments.figures_images"): "loaded where a figure with images is asked for, not before",
    ("experiments.frame", "trace.worlds"): "asks which fields a world has, and draws nothing",
}
"""Imports that a walk does not follow, with their reason."""


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


def reached(name):
    """All that a module imports, directly or not, with the one that imports it first."""
    through, open_ = {}, [name]
    while open_:
        own = open_.pop()
        for other in sorted(imports(own)):
            if other not in through and (own, other) not in EXCEPTIONS:
                through[other] = own
                open_.append(other)
    return through


def matches(module, patterns):
    return any(fnmatch.fnmatch(module.removeprefix("experiments."), pattern) for pattern in patterns)


MADE_FROM_RECORDS = sorted(
    name
    for name in MODULES
    if name.startswith("experiments.") and matches(name, READERS) and not name.endswith("figures_images")
)


@pytest.mark.parametrize("name", MADE_FROM_RECORDS)
def test_what_is_made_from_records_reaches_no_training_or_launching_code(name):
    for other, through in reached(name).items():
        package, *rest = other.split(".")
        if package == "trace":
            assert not rest or rest[0] not in TRAINING, f"{name} reaches {other} through {through}"
        elif rest:
            data_only = rest[0] == "vision" and not imports(other) - {"experiments.vision"}
            assert data_only or matches(other, ALLOWED), f"{name} reaches {other} through {through}"


def test_the_walk_sees_what_trains_and_what_launches():
    """It would find them: an experiment reaches training, a launcher the store."""
    assert {"experiments.cells", "trace.training"} <= set(reached("experiments.synthetic"))
    assert "experiments.store" in reached("experiments.launch")
    assert len(MADE_FROM_RECORDS) >= 30


def test_records_import_errors_only():
    assert imports("experiments.records") == {"experiments.errors"}
    assert not imports("experiments.errors")


def test_the_library_does_not_know_the_experiments():
    for name in MODULES:
        if name.split(".")[0] == "trace":
            assert not [other for other in imports(name) if other.startswith("experiments")], name


@pytest.mark.parametrize("package", ["trace", "experiments"])
def test_no_module_imports_itself_in_the_end(package):
    """Over what is imported when a module is loaded."""
    left = {name: imports(name, lazy=False) for name in MODULES if name.split(".")[0] == package}
    while leaves := [name for name, others in left.items() if not any(other in left for other in others)]:
        for name in leaves:
            del left[name]
    assert not left, f"these import each other: {', '.join(sorted(left))}"
