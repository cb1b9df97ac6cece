"""scikit-learn estimators from skops files; trees among them once their nodes are known to be a tree.

scikit-learn follows the node indices of a tree without looking, so a file with others reads and writes memory that is
not its own: skops therefore trusts no tree. Here the arrays of every tree are built and checked first, and the same
arrays go into the tree.
"""

import json
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from .archives import most_held, open_archive
from .errors import UserError, explain, require
from .opened import FileBytes, shown_size

TREE = "sklearn.tree._tree.Tree"
OWNERS = tuple(
    f"sklearn.tree._classes.{name}"
    for name in ("DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor")
)
"""The estimators that hold a tree; forests hold these."""
_UNCHECKED = "sklearn.ensemble._gb."
"""Boosting walks the trees of its members itself, over arrays that are not checked here."""


def load_estimator(file: FileBytes, *, trust: bool, remedy: str) -> Any:
    """The estimator of a skops file, which names every type it holds before any is built.

    Args:
        trust: build what skops does not know, and unchecked trees.
        remedy: ends the sentence about such types.

    Raises:
        UserError: where the file cannot be read, holds types that skops does not know, or trees that are none.
    """
    library = require("skops.io", purpose=f"reading {file.path.name}")
    audit, context = (require(f"skops.io.{name}", purpose=f"reading {file.path.name}") for name in ("_audit", "_utils"))
    with open_archive(file) as archive:
        with explain(f"{file.path} is no readable skops file", "save it with skops.io.dump"):
            schema = json.loads(archive.read("schema.json"))
            _check_references(schema, archive, file)
            unknown: list[str] = library.get_untrusted_types(data=file.data)
            nodes = audit.get_tree(
                schema, context.LoadContext(src=archive, protocol=schema["protocol"]), trusted=unknown
            )
            used = list(_nodes(nodes, {}))
        boosted = any(_type(node).startswith(_UNCHECKED) for node in used)
        if (refused := unknown if boosted else [name for name in unknown if name != TREE]) and not trust:
            raise UserError(f"{file.path} holds types that skops does not know ({', '.join(refused)}): {remedy}")
        with explain(f"{file.path} cannot be loaded", "use the scikit-learn version it was saved with"):
            audit.audit_tree(nodes, trusted=unknown)
            if not trust:
                _check_trees(used, str(file.path))
            return _on_one_core(nodes.construct())


def _check_references(schema: Any, archive: zipfile.ZipFile, file: FileBytes) -> None:
    """Refuse a file that names its members so often that their copies fill the memory: skops reads each anew."""
    sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    held, entries = 0, [schema]
    while entries:
        entry = entries.pop()
        if isinstance(entry, dict):
            held += sizes.get(entry.get("file", ""), 0) if isinstance(entry.get("file"), str) else 0
            entries += entry.values()
        elif isinstance(entry, list):
            entries += entry
    if held > most_held(len(file.data)):
        raise UserError(f"{file.path} would take {shown_size(held)} as a model: save it again with skops.io.dump")


def _on_one_core(estimator: Any) -> Any:
    """Estimators keep the number of their threads, which is nothing that a file should decide."""
    if getattr(estimator, "n_jobs", None) is not None:
        estimator.n_jobs = None
    return estimator


def _nodes(node: Any, seen: dict[int, Any]) -> Iterator[Any]:
    """All nodes of skops' own description of the file, each once."""
    entries = [node]
    while entries:
        entry = entries.pop()
        if isinstance(entry, dict):
            entries += entry.values()
        elif isinstance(entry, list | tuple):
            entries += entry
        elif hasattr(entry, "children") and id(entry) not in seen:
            seen[id(entry)] = entry
            yield entry
            entries += entry.children.values()


def _type(node: Any) -> str:
    return f"{node.module_name}.{node.class_name}"


def _check_trees(nodes: list[Any], origin: str) -> None:
    """Every tree belongs to an estimator of `OWNERS` with as many columns, and passes `check_tree`."""
    owned = set()
    for node in nodes:
        if _type(node) not in OWNERS or type(node).__name__ != "ObjectNode":
            continue
        state = node.children["attrs"].children["content"]
        if (tree := state.get("tree_")) is None:
            continue
        if type(tree).__name__ != "TreeNode":
            raise UserError(f"{origin} stores a tree in a way that skops does not: save it again with skops.io.dump")
        check_tree(
            tree.children["args"].construct(),
            tree.children["attrs"].construct(),
            columns=state["n_features_in_"].construct(),
            origin=origin,
        )
        owned.add(id(tree))
    held = [node for node in nodes if _type(node) == TREE and type(node).__name__ != "TypeNode"]
    if any(id(node) not in owned for node in held):
        raise UserError(f"{origin} holds a tree outside of scikit-learn's tree estimators: save it with skops.io.dump")


def check_tree(arguments: Any, state: Any, *, columns: Any, origin: str) -> None:
    """Refuse what is no binary tree over ``columns`` inputs.

    Children come after their parent and each node has one parent, so that every path ends in a leaf; features are
    columns of the inputs; thresholds are numbers, values finite.

    Args:
        arguments: of scikit-learn's ``Tree``: number of columns, classes by output, number of outputs.
        state: ``node_count``, ``nodes`` and ``values``, as ``Tree.__getstate__`` gives them.

    Raises:
        UserError: where any of it does not hold.
    """
    fault = None
    try:
        width, classes, outputs = arguments
        nodes, values, count = state["nodes"], state["values"], state["node_count"]
        fault = _fault(width, classes, outputs, nodes, values, count, columns) or _too_deep(nodes, state["max_depth"])
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise UserError(f"{origin} holds no scikit-learn tree ({error}): save it again with skops.io.dump") from error
    if fault:
        raise UserError(f"{origin} holds a tree that is none ({fault}): save it again with skops.io.dump")


def _fault(width: Any, classes: Any, outputs: Any, nodes: Any, values: Any, count: Any, columns: Any) -> str:
    whole = (width, outputs, count, columns)
    if not all(isinstance(n, int | np.integer) and not isinstance(n, bool) and n >= 1 for n in whole):
        return "its sizes are no whole numbers of at least 1"
    if width != columns:
        return f"it is about {width} columns, its estimator about {columns}"
    if not isinstance(classes, np.ndarray) or classes.dtype.kind != "i" or classes.shape != (outputs,):
        return "its classes are not one number for each output"
    if not all(isinstance(array, np.ndarray) for array in (nodes, values)) or nodes.shape != (count,):
        return f"it has not {count} nodes"
    if values.dtype != np.float64 or values.shape != (count, outputs, max(1, int(classes.max()))):
        return "its values are not one row of numbers for each node"
    if int(classes.min()) < 1 or not np.isfinite(values).all():
        return "its values or classes are no numbers that count"
    left, right, feature = (nodes[name].astype(np.int64) for name in ("left_child", "right_child", "feature"))
    inner = left != -1
    if not np.array_equal(inner, right != -1):
        return "a node has one child"
    children, parents = np.concatenate([left[inner], right[inner]]), np.tile(np.flatnonzero(inner), 2)
    if (children <= parents).any() or (children >= count).any() or len(np.unique(children)) != len(children):
        return "its nodes point back, outside, or at one child twice"
    if (feature[inner] < 0).any() or (feature[inner] >= columns).any():
        return f"a node asks for a column beyond the {columns}"
    return "a threshold is no number" if np.isnan(nodes["threshold"][inner]).any() else ""


def _too_deep(nodes: Any, most: Any) -> str:
    """Paths are kept in arrays of ``max_depth``; the nodes are a tree."""
    left, right = nodes["left_child"], nodes["right_child"]
    level, depth = np.zeros(1, dtype=np.int64), 0
    while len(level := np.concatenate([left[level], right[level]])) and len(level := level[level != -1]):
        depth += 1
    return "" if isinstance(most, int | np.integer) and most >= depth else f"it is {depth} deep and says {most}"
