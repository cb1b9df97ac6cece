"""Attacks on the command line: hostile files, each a named case with what must hold.

`python -m tests.trace.attacks` makes each file in an empty folder and hands it to the tool in a process of its own,
with little memory and time. An attack is held where no code of the file ran (a sentinel would be there), the exit code
is one that may be, the tool said one sentence with the words of the case, and nobody saw a traceback. With ``--json``
the outcomes are printed as JSON; other arguments are names to run alone.
"""

import functools
import io
import json
import os
import pickle
import re
import resource
import signal
import struct
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
import skops.io
import torch
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

SECONDS = 60
MEMORY = 3 * 2**30
"""What a process may take beyond what it has when it starts."""


INJECTED = {
    "": r"[\x1b\x07]",
    "gate": r"\nACCEPT",
    "--markdown": r"(?<!\\)<img|(?<!\\)!\[|(?<!\\)\]\(|(?<!\\)@|\nACCEPT",
    "--html": "<img src=x",
    "--junit": "<img",
}
"""What shows that the text of a file became more than text, on a terminal and in the form of an option."""


class Attack(NamedTuple):
    name: str
    kind: str
    """What it is after: ``code``, ``verdict``, ``text`` or ``resources``."""
    arguments: Callable[[Path], list[str]]
    """Makes the files and gives the command line."""
    says: str
    """Words of the sentence; of the answer where ``codes`` allows one."""
    codes: tuple[int, ...]


class AttackOutcome(NamedTuple):
    name: str
    kind: str
    held: bool
    why: str
    seconds: float
    code: bool
    """Whether code of the file ran."""
    accepted: bool
    """Whether the tool said yes where it must not."""
    traceback: bool


ATTACKS: dict[str, Attack] = {}


def attack(kind: str, says: str, *codes: int) -> Callable[[Callable[[Path], list[str]]], Callable[[Path], list[str]]]:
    """Register a case; its exit codes are 3 unless they are given."""

    def register(make: Callable[[Path], list[str]]) -> Callable[[Path], list[str]]:
        assert make.__name__ not in ATTACKS
        ATTACKS[make.__name__] = Attack(make.__name__, kind, make, says, codes or (3,))
        return make

    return register


# What a victim has -----------------------------------------------------------------------------------------------


def sample(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 3)) + np.stack([2.0 * y, 0 * y, 0 * y], axis=1), y


def update(folder: Path) -> None:
    """Two models, three samples and a policy that accepts."""
    for name, n, seed in (("source", 300, 0), ("target", 300, 1), ("held", 300, 2)):
        x, y = sample(n, seed)
        np.savez(folder / f"{name}.npz", x=x, y=y)
    for name in ("old", "new"):
        skops.io.dump(LogisticRegression().fit(*sample(200, 3 + len(name))), folder / f"{name}.skops")
    (folder / "policy.yaml").write_text("threshold: 0.5\n")


def command(folder: Path, name: str = "diagnose", **given: Any) -> list[str]:
    """A command line on the files of `update`, with others in their place; None leaves an option out."""
    usual = {
        "model": "old.skops",
        "new_model": "new.skops",
        "source": "source.npz",
        "source_val": "held.npz",
        "target": "target.npz",
        **({"policy": "policy.yaml"} if name == "gate" else {}),
    }
    line = [name]
    for option, value in {**usual, **given}.items():
        if value is not None:
            line += [f"--{option.replace('_', '-')}", *([] if value is True else [str(value)])]
    return line


# Programs in files -----------------------------------------------------------------------------------------------


class Evil:
    """Leaves the sentinel behind when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder / "ran"),)


class Writer(torch.nn.Module):
    """Leaves the sentinel behind when it runs."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def forward(self, x):  # type: ignore[no-untyped-def]
        torch.save(x, self.path)
        return x[:, :2]


class Plain(torch.nn.Module):
    def forward(self, x):  # type: ignore[no-untyped-def]
        return x[:, :2]


def script(module: torch.nn.Module) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(module), stream)
    return stream.getvalue()


def two_directories(shown: bytes, run: bytes) -> bytes:
    """An archive that a reader from its end sees as ``shown``, and one that follows the stated offset as ``run``."""
    end = struct.Struct("<4s4H2LH")
    archive, directory = bytearray(run), bytearray()
    with zipfile.ZipFile(io.BytesIO(run)) as real, zipfile.ZipFile(io.BytesIO(shown)) as front:
        offset = real.start_dir
        base = len(run) - end.size
        start, size = front.start_dir, len(shown) - end.size - front.start_dir
    body = shown[:start]
    directory += shown[start : start + size]
    archive = bytearray(run[:base]) + body + directory
    count = run.count(b"PK\x01\x02")
    return bytes(archive) + end.pack(b"PK\x05\x06", 0, 0, count, count, size, offset, 0)


@attack("code", "may see in two ways")
def archive_with_two_directories(folder: Path) -> list[str]:
    (folder / "m.pt").write_bytes(two_directories(script(Plain()), script(Writer(str(folder / "ran")))))
    return command(folder, model="m.pt")


@attack("code", "is TorchScript, a program")
def torchscript_that_writes(folder: Path) -> list[str]:
    (folder / "m.pt").write_bytes(script(Writer(str(folder / "ran"))))
    return command(folder, model="m.pt")


@attack("code", "is TorchScript, a program")
def torchscript_named_skops(folder: Path) -> list[str]:
    (folder / "m.skops").write_bytes(script(Writer(str(folder / "ran"))))
    return command(folder, model="m.skops")


@attack("code", "is a TorchScript file, which holds no sample")
def torchscript_named_npz(folder: Path) -> list[str]:
    (folder / "d.npz").write_bytes(script(Writer(str(folder / "ran"))))
    return command(folder, source="d.npz")


@attack("code", "torch.export")
def exported_program_with_a_pickle(folder: Path) -> list[str]:
    exported, inner = io.BytesIO(), io.BytesIO()
    torch.save(Evil(folder), inner)
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.zeros(4, 3),)), exported)
    with zipfile.ZipFile(exported) as good, zipfile.ZipFile(folder / "m.pt2", "w") as bad:
        for name in good.namelist():
            bad.writestr(name, inner.getvalue() if "sample_inputs" in name else good.read(name))
    return command(folder, model="m.pt2")


def disguised(name: str, as_model: bool) -> None:
    """A pickle under a name that is not its own."""

    def make(folder: Path) -> list[str]:
        (folder / name).write_bytes(pickle.dumps(Evil(folder)))
        return command(folder, **{"model" if as_model else "source": name})

    suffix = name.rpartition(".")[2]
    make.__name__ = f"pickle_named_{suffix}_as_{'model' if as_model else 'data'}"
    attack("code", "is a pickle" if as_model else "which holds no sample")(make)


for _suffix in ("pkl", "skops", "pt", "pt2", "pth", "safetensors", "joblib"):
    disguised(f"m.{_suffix}", as_model=True)
for _suffix in ("npz", "csv", "parquet", "safetensors"):
    disguised(f"d.{_suffix}", as_model=False)


@attack("code", "is a pickle")
def compressed_pickle(folder: Path) -> list[str]:
    joblib.dump(Evil(folder), folder / "m.skops", compress=3)
    return command(folder, model="m.skops")


@attack("code", "is a pickle")
def pickle_before_an_archive(folder: Path) -> list[str]:
    (folder / "m.skops").write_bytes(pickle.dumps(Evil(folder)) + (folder / "old.skops").read_bytes())
    return command(folder, model="m.skops")


@attack("code", "may see in two ways")
def pickle_after_an_archive(folder: Path) -> list[str]:
    (folder / "m.skops").write_bytes((folder / "old.skops").read_bytes() + pickle.dumps(Evil(folder)))
    return command(folder, model="m.skops")


@attack("code", "holds no readable weights")
def pickle_among_timm_weights(folder: Path) -> list[str]:
    (folder / "w.safetensors").write_bytes(pickle.dumps(Evil(folder)))
    return command(folder, model="timm:resnet10t@w.safetensors")


@attack("code", "holds no readable weights")
def state_dict_with_code(folder: Path) -> list[str]:
    torch.save({"fc.weight": Evil(folder)}, folder / "w.pth")
    return command(folder, model="timm:resnet10t@w.pth")


@attack("code", "holds no readable weights")
def old_state_dict_with_code(folder: Path) -> list[str]:
    torch.save({"fc.weight": Evil(folder)}, folder / "w.pth", _use_new_zipfile_serialization=False)
    return command(folder, model="timm:resnet10t@w.pth")


@attack("code", "holds no readable weights")
def torchscript_among_timm_weights(folder: Path) -> list[str]:
    (folder / "w.pth").write_bytes(script(Writer(str(folder / "ran"))))
    return command(folder, model="timm:resnet10t@w.pth")


@attack("code", "is code, which makes the network")
def architecture_without_trust(folder: Path) -> list[str]:
    (folder / "mine.py").write_text(f"import os\nos.mkdir({str(folder / 'ran')!r})\ndef network(): pass\n")
    torch.save({"weight": torch.zeros(2, 3)}, folder / "m.pth")
    return command(folder, model="m.pth", arch="mine:network")


def rewritten(folder: Path, estimator: Any, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> list[str]:
    """A skops file with another schema or other members."""
    with zipfile.ZipFile(io.BytesIO(skops.io.dumps(estimator))) as good:
        members = {name: good.read(name) for name in good.namelist()}
    schema = json.loads(members.pop("schema.json"))
    change(schema, members)
    with zipfile.ZipFile(folder / "m.skops", "w") as bad:
        for name, data in {**members, "schema.json": json.dumps(schema)}.items():
            bad.writestr(name, data)
    return command(folder, model="m.skops")


@attack("code", "types that skops does not know (posix.mkdir)")
def skops_with_a_function(folder: Path) -> list[str]:
    def change(schema: dict[str, Any], members: dict[str, bytes]) -> None:
        schema["content"]["content"]["C"] = {
            "__class__": "mkdir", "__module__": "posix", "__loader__": "FunctionNode", "content": {},
        }  # fmt: skip

    return rewritten(folder, LogisticRegression().fit(*sample(50, 0)), change)


@attack("code", "types that skops does not know")
def skops_with_a_partial_call(folder: Path) -> list[str]:
    def change(schema: dict[str, Any], members: dict[str, bytes]) -> None:
        state = json.loads(zipfile.ZipFile(io.BytesIO(skops.io.dumps(functools.partial(print, 1)))).read("schema.json"))
        schema["content"]["content"]["C"] = state

    return rewritten(folder, LogisticRegression().fit(*sample(50, 0)), change)


@attack("code", "is no readable skops file")
def skops_with_an_operator(folder: Path) -> list[str]:
    """The hole of skops 0.11: a node whose loader and class disagree."""

    def change(schema: dict[str, Any], members: dict[str, bytes]) -> None:
        schema["content"]["content"]["C"] = {
            "__class__": "system", "__module__": "os", "__loader__": "OperatorFuncNode",
            "attrs": {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "content": '"x"'},
        }  # fmt: skip

    return rewritten(folder, LogisticRegression().fit(*sample(50, 0)), change)


# Trees that are none ---------------------------------------------------------------------------------------------


def tree_state(schema: dict[str, Any]) -> dict[str, Any]:
    return schema["content"]["content"]["tree_"]


def bad_tree(name: str, says: str, change: Callable[[np.ndarray], None]) -> None:
    """A tree whose nodes lead elsewhere."""

    def make(folder: Path) -> list[str]:
        def other(schema: dict[str, Any], members: dict[str, bytes]) -> None:
            file = tree_state(schema)["content"]["content"]["nodes"]["file"]
            nodes = np.load(io.BytesIO(members[file]))
            change(nodes)
            stream = io.BytesIO()
            np.save(stream, nodes)
            members[file] = stream.getvalue()

        return rewritten(folder, DecisionTreeClassifier().fit(*sample(200, 0)), other)

    make.__name__ = f"tree_{name}"
    attack("code", says)(make)


def _set(field: str, value: Any) -> Callable[[np.ndarray], None]:
    def change(nodes: np.ndarray) -> None:
        nodes[field][0] = value

    return change


bad_tree("with_a_far_child", "point back, outside", _set("left_child", 10**9))
bad_tree("with_a_negative_child", "point back, outside", _set("left_child", -5))
bad_tree("in_a_circle", "point back, outside", _set("right_child", 0))
bad_tree("with_one_child", "a node has one child", _set("right_child", -1))
bad_tree("of_a_far_column", "beyond the 3", _set("feature", 10**6))
bad_tree("of_a_negative_column", "beyond the 3", _set("feature", -(10**6)))
bad_tree("without_a_threshold", "a threshold is no number", _set("threshold", np.nan))


def bad_tree_number(name: str, says: str, path: tuple[str, ...], content: str) -> None:
    """A tree whose sizes are not those of its arrays."""

    def make(folder: Path) -> list[str]:
        def other(schema: dict[str, Any], members: dict[str, bytes]) -> None:
            place: Any = schema["content"]["content"]
            for key in path:
                place = place[int(key) if key.isdigit() else key]
            place["content"] = content
            place.pop("__id__")  # or skops takes an equal number from elsewhere

        return rewritten(folder, DecisionTreeClassifier().fit(*sample(200, 0)), other)

    make.__name__ = f"tree_{name}"
    attack("code", says)(make)


_STATE = ("tree_", "content", "content")
_ARGUMENTS = ("tree_", "__reduce__", "args", "content")
bad_tree_number("that_counts_more_nodes", "it has not 1000000 nodes", (*_STATE, "node_count"), "1000000")
bad_tree_number("that_is_deeper", "deep and says 1", (*_STATE, "max_depth"), "1")
bad_tree_number("of_more_outputs", "classes are not one number for each output", (*_ARGUMENTS, "2"), "1000000")
bad_tree_number("of_other_columns", "it is about 2 columns", (*_ARGUMENTS, "0"), "2")
bad_tree_number("in_an_estimator_of_other_columns", "its estimator about 9", ("n_features_in_",), "9")


@attack("code", "stores a tree in a way that skops does not")
def tree_by_another_loader(folder: Path) -> list[str]:
    def change(schema: dict[str, Any], members: dict[str, bytes]) -> None:
        tree = tree_state(schema)
        tree["__loader__"] = "ObjectNode"
        tree.pop("__reduce__")

    return rewritten(folder, DecisionTreeClassifier().fit(*sample(200, 0)), change)


@attack("code", "holds a tree outside of scikit-learn's tree estimators")
def tree_in_a_linear_model(folder: Path) -> list[str]:
    def change(schema: dict[str, Any], members: dict[str, bytes]) -> None:
        state = skops.io.dumps(DecisionTreeClassifier().fit(*sample(50, 0)))
        with zipfile.ZipFile(io.BytesIO(state)) as other:
            members |= {name: other.read(name) for name in other.namelist() if name != "schema.json"}
            schema["content"]["content"]["tree_"] = tree_state(json.loads(other.read("schema.json")))

    return rewritten(folder, LogisticRegression().fit(*sample(50, 0)), change)


@attack("code", "types that skops does not know (sklearn.tree._tree.Tree)")
def boosted_trees(folder: Path) -> list[str]:
    skops.io.dump(GradientBoostingClassifier(n_estimators=3).fit(*sample(100, 0)), folder / "m.skops")
    return command(folder, model="m.skops")


@attack("resources", "", 0)
def forest_of_a_million_threads(folder: Path) -> list[str]:
    forest = RandomForestClassifier(3).fit(*sample(100, 0))
    forest.n_jobs = 10**6
    skops.io.dump(forest, folder / "m.skops")
    return command(folder, model="m.skops", new_model="m.skops")


# Archives and arrays ---------------------------------------------------------------------------------------------


def npy(shape: str, data: bytes = b"", descr: str = "'<f8'") -> bytes:
    """An array with any header."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


def npz(folder: Path, **members: bytes) -> list[str]:
    with zipfile.ZipFile(folder / "d.npz", "w") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return command(folder, source="d.npz")


@attack("code", "holds Python objects")
def npz_with_objects(folder: Path) -> list[str]:
    np.savez(folder / "d.npz", x=np.array([Evil(folder)], dtype=object))
    return command(folder, source="d.npz")


@attack("code", "holds Python objects")
def npz_with_objects_as_names(folder: Path) -> list[str]:
    x, y = sample(50, 0)
    np.savez(folder / "d.npz", x=x, y=y, names=np.array([Evil(folder)] * 50, dtype=object))
    return command(folder, source="d.npz")


@attack("code", "is no readable array")
def npy_header_with_code(folder: Path) -> list[str]:
    return npz(folder, x=npy(f"__import__('os').mkdir({str(folder / 'ran')!r})"))


def with_member(name: str, says: str, member: str, mode: int = 0) -> None:
    def make(folder: Path) -> list[str]:
        x, y = sample(50, 0)
        np.savez(folder / "d.npz", x=x, y=y)
        entry = zipfile.ZipInfo(member)
        entry.external_attr = mode << 16
        with zipfile.ZipFile(folder / "d.npz", "a") as archive:
            archive.writestr(entry, "../../ran")
        return command(folder, source="d.npz")

    make.__name__ = name
    attack("code", says)(make)


with_member("archive_with_a_way_out", "a name that leaves the archive", "../ran.npy")
with_member("archive_with_an_absolute_name", "a name that leaves the archive", "/tmp/ran.npy")
with_member("archive_with_a_link", "which holds no sample", "names", 0o120777)


@attack("code", "more than once")
def archive_with_a_name_twice(folder: Path) -> list[str]:
    x, y = sample(50, 0)
    np.savez(folder / "d.npz", x=x, y=y)
    with warnings.catch_warnings(), zipfile.ZipFile(folder / "d.npz", "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("x.npy", npy("(50, 3)", x.tobytes()))
    return command(folder, source="d.npz")


def safetensors(folder: Path, header: Any, data: bytes = b"", length: int | None = None) -> list[str]:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = struct.pack("<Q", len(text) if length is None else length)
    (folder / "d.safetensors").write_bytes(size + text + data)
    return command(folder, source="d.safetensors")


@attack("resources", "is no readable .safetensors file")
def safetensors_of_12_terabytes(folder: Path) -> list[str]:
    return safetensors(folder, {"x": {"dtype": "F64", "shape": [10**6, 1500000], "data_offsets": [0, 12 * 10**12]}})


@attack("resources", "is no readable .safetensors file")
def safetensors_that_overlap(folder: Path) -> list[str]:
    about = {"dtype": "F64", "shape": [4], "data_offsets": [0, 32]}
    return safetensors(folder, {"x": about, "y": about}, bytes(32))


@attack("resources", "of no known kind")
def safetensors_with_an_endless_header(folder: Path) -> list[str]:
    return safetensors(folder, b"{" * 100, length=2**62)


@attack("resources", "is no readable .safetensors file")
def safetensors_with_deep_nesting(folder: Path) -> list[str]:
    return safetensors(folder, b'{"x":' * 100_000)


# Pictures --------------------------------------------------------------------------------------------------------


@attack("code", "cannot be read as an image")
def postscript_named_png(folder: Path) -> list[str]:
    """Pillow would hand it to Ghostscript."""
    (folder / "pictures/a").mkdir(parents=True)
    text = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(ran) (w) file closefile\n%%EOF\n"
    (folder / "pictures/a/1.png").write_text(text)
    return command(folder, source="pictures")


# Rows that are not held out --------------------------------------------------------------------------------------


@attack("verdict", "all 300 held-out rows are the training rows", 2)
def held_out_rows_are_the_source(folder: Path) -> list[str]:
    return command(folder, "gate", source_val="source.npz")


@attack("verdict", "300 of the 300 held-out rows are among the training rows", 2)
def held_out_rows_are_the_source_shuffled(folder: Path) -> list[str]:
    x, y = sample(300, 0)
    order = np.random.default_rng(0).permutation(300)
    np.savez(folder / "shuffled.npz", x=x[order].astype(np.float32), y=y[order])
    return command(folder, "gate", source_val="shuffled.npz")


@attack("verdict", "held-out rows are 10 rows repeated", 2)
def ten_rows_fifty_times(folder: Path) -> list[str]:
    x, y = sample(10, 9)
    np.savez(folder / "repeated.npz", x=np.tile(x, (50, 1)), y=np.tile(y, 50))
    return command(folder, "gate", source_val="repeated.npz")


@attack("verdict", "150 of the 300 held-out rows are among the training rows", 2)
def half_of_the_held_out_rows_are_copies(folder: Path) -> list[str]:
    (x, y), (more, labels) = sample(300, 0), sample(150, 9)
    np.savez(folder / "mixed.npz", x=np.concatenate([x[:150], more]), y=np.concatenate([y[:150], labels]))
    return command(folder, "gate", source_val="mixed.npz")


@attack("verdict", "300 of the 300 held-out rows are among the training rows", 2)
def copies_hidden_by_a_limit(folder: Path) -> list[str]:
    x, y = sample(300, 0)
    np.savez(folder / "reversed.npz", x=x[::-1], y=y[::-1])
    return command(folder, "gate", source_val="reversed.npz", limit=120)


@attack("verdict", "20 of the 320 held-out rows have the id of a training row", 2)
def ids_on_both_sides(folder: Path) -> list[str]:
    for name, n, seed, first in (("source", 300, 0, 0), ("held", 320, 2, 280)):
        x, y = sample(n, seed)
        np.savez(folder / f"{name}.npz", x=x, y=y, id=np.arange(first, first + n))
    return command(folder, "gate")


# Diagnostics -----------------------------------------------------------------------------------------------------


@functools.cache
def diagnosed() -> str:
    """An honest diagnostic."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        update(folder)
        _contained(command(folder, json="d.json"), folder)  # a parent that has used autograd could not fork any more
        return (folder / "d.json").read_text()


def judged(folder: Path, text: str, policy: str = "threshold: 0.5\n") -> list[str]:
    (folder / "d.json").write_text(text)
    (folder / "policy.yaml").write_text(policy)
    return ["gate", "--policy", "policy.yaml", "--diagnostic", "d.json"]


def changed(path: str, value: Any) -> str:
    """A diagnostic with another value and the right digest."""
    from trace.io.writing import sealed

    record = json.loads(diagnosed())
    *above, last = path.split(".")
    place = record["anchors"]["source"]
    for key in above:
        place = place[key]
    place[last] = value
    return json.dumps(sealed(record))


@attack("verdict", "all 300 held-out rows are the training rows", 2)
def held_out_target_rows_are_the_target(folder: Path) -> list[str]:
    (folder / "policy.yaml").write_text("score: held_out_distance\nthreshold: 5\n")
    return command(folder, "gate", target_val="target.npz")


def senseless(name: str, says: str, text: str) -> None:
    """A limit that no model can miss, or none can meet."""

    def make(folder: Path) -> list[str]:
        return judged(folder, diagnosed(), text)

    make.__name__ = f"policy_with_{name}"
    attack("verdict", says)(make)


senseless("a_share_of_500_percent", "must lie strictly between 0 and 1: write 0.05 for 5%", "threshold: 5\n")
senseless(
    "a_rule_of_500_percent",
    "must lie strictly between -1 and 1: write 0.05 for 5%",
    "rules:\n  - {score: error_change, limit: 5}\n",
)
senseless("a_negative_share", "must lie strictly between 0 and 1", "threshold: -0.1\n")
senseless("an_endless_threshold", "threshold must be a number", "threshold: .inf\n")
senseless("no_confidence", "confidence must lie strictly between 0 and 1", "threshold: 0.1\nconfidence: 0\n")
senseless("a_confidence_of_95", "confidence must lie strictly between 0 and 1", "threshold: 0.1\nconfidence: 95\n")
senseless(
    "rules_that_all_advise",
    "no rule is required, so nothing would decide",
    "rules:\n  - {score: trace_w, limit: 5, role: advisory}\n",
)
senseless("no_rows_asked_for", "min_source must be a whole number of at least 1", "threshold: 0.1\nmin_source: 0\n")


@attack("verdict", "was edited or damaged")
def edited_diagnostic(folder: Path) -> list[str]:
    return judged(folder, diagnosed().replace('"disagreement"', '"disagreement" ').replace("0.", "0.0", 1))


@attack("verdict", "carries no digest")
def diagnostic_without_a_digest(folder: Path) -> list[str]:
    record = json.loads(diagnosed())
    del record["digest"]
    return judged(folder, json.dumps(record))


@attack("verdict", "is -1e+308, below 0")
def negative_reach(folder: Path) -> list[str]:
    return judged(
        folder, changed("output_distance.tally.high", -1e308), "score: anchor_disagreement\nthreshold: 0.01\n"
    )


@attack("verdict", "no number of rows")
def negative_number_of_rows(folder: Path) -> list[str]:
    return judged(folder, changed("anchor.num_samples", -10))


@attack("verdict", "no share between 0 and 1")
def negative_share(folder: Path) -> list[str]:
    return judged(folder, changed("anchor.disagreement.value", -1))


@attack("verdict", "is not JSON")
def not_a_number_in_a_diagnostic(folder: Path) -> list[str]:
    return judged(folder, diagnosed().replace('"value": 0', '"value": NaN, "other": 0', 1))


@attack("verdict", "is not JSON")
def infinity_in_a_diagnostic(folder: Path) -> list[str]:
    return judged(folder, diagnosed().replace('"value": 0', '"value": 1e999, "other": 0', 1))


@attack("verdict", "twice")
def key_twice_in_a_diagnostic(folder: Path) -> list[str]:
    return judged(folder, diagnosed().replace('"anchors"', '"anchors": {}, "anchors"', 1))


@attack("verdict", "is about another one")
def diagnostic_of_another_model(folder: Path) -> list[str]:
    return [*judged(folder, diagnosed()), "--model", "new.skops"]


@attack("verdict", "is about another one")
def diagnostic_of_another_model_than_pinned(folder: Path) -> list[str]:
    return judged(folder, diagnosed(), f"threshold: 0.5\nfiles: {{new_model: '{'0' * 64}'}}\n")


@attack("resources", "nested too deep")
def diagnostic_with_deep_nesting(folder: Path) -> list[str]:
    return judged(folder, "[" * 200_000)


@attack("resources", "a whole number of 400 digits")
def diagnostic_with_400_digits(folder: Path) -> list[str]:
    return judged(folder, diagnosed().replace('"sizes": {', '"sizes": {"more": ' + "9" * 400 + ", ", 1))


# Text ------------------------------------------------------------------------------------------------------------

NASTY = (
    "\x1b[2J\x1b]0;owned\x07\nACCEPT the update\r<img src=x onerror=alert(1)>![](https://example.org/pixel)@everyone"
)


def nasty_table(folder: Path, column: str = "c", label: str = "no") -> list[str]:
    """Tables with a column and a class of any name, and models that know them."""
    for name, n, seed in (("source", 300, 0), ("target", 300, 1), ("held", 300, 2)):
        x, y = sample(n, seed)
        frame = pd.DataFrame(x, columns=["a", "b", column]).assign(y=np.where(y == 1, "yes", label))
        frame.to_parquet(folder / f"{name}.parquet")
        fitted = LogisticRegression().fit(frame[["a", "b", column]], frame["y"])
        skops.io.dump(fitted, folder / f"{name}.skops")
    return command(
        folder, model="source.skops", new_model="target.skops",
        source="source.parquet", source_val="held.parquet", target="target.parquet",
    )  # fmt: skip


@attack("text", "gone")
def column_name_in_an_error(folder: Path) -> list[str]:
    line = nasty_table(folder, column=f"gone{NASTY}")
    frame = pd.read_parquet(folder / "target.parquet")
    frame.rename(columns={f"gone{NASTY}": f"here{NASTY}"}).to_parquet(folder / "target.parquet")
    return line


@attack("text", "", 0)
def column_name_in_markdown(folder: Path) -> list[str]:
    line = nasty_table(folder)
    frame = pd.read_parquet(folder / "target.parquet")
    frame.assign(**{NASTY: 1.0}).to_parquet(folder / "target.parquet")
    return [*line, "--markdown", "-"]


@attack("text", "", 0)
def column_name_in_the_text(folder: Path) -> list[str]:
    return column_name_in_markdown(folder)[:-2]


@attack("text", "", 0)
def class_name_on_the_page(folder: Path) -> list[str]:
    return [*nasty_table(folder, label=NASTY), "--html", "-"]


@attack("text", "is none of the classes")
def class_name_in_an_error(folder: Path) -> list[str]:
    line = nasty_table(folder)
    frame = pd.read_parquet(folder / "target.parquet")
    frame.assign(y=NASTY).to_parquet(folder / "target.parquet")
    return line


@attack("text", "types that skops does not know")
def type_name_in_an_error(folder: Path) -> list[str]:
    def change(schema: dict[str, Any], members: dict[str, bytes]) -> None:
        schema["content"]["content"]["C"] = {
            "__class__": NASTY, "__module__": "os", "__loader__": "FunctionNode", "content": {},
        }  # fmt: skip

    return rewritten(folder, LogisticRegression().fit(*sample(50, 0)), change)


def nasty_group(form: str) -> None:
    """The name of a group of rows."""

    def make(folder: Path) -> list[str]:
        line = nasty_table(folder)
        for name in ("source", "target", "held"):
            frame = pd.read_parquet(folder / f"{name}.parquet")
            frame.assign(g=np.where(np.arange(len(frame)) % 2, NASTY, "other")).to_parquet(folder / f"{name}.parquet")
        line = ["gate", "--policy", "policy.yaml", *line[1:], "--group", "g"]
        (folder / "policy.yaml").write_text("rules:\n  - {score: group_disagreement, limit: 0.9}\n")
        return [*line, f"--{form}", "-"] if form != "text" else line

    make.__name__ = f"name_of_a_group_as_{form}"
    attack("text", "", 0, 1, 2)(make)


for _form in ("text", "markdown", "html"):
    nasty_group(_form)


def nasty_diagnostic(form: str) -> None:
    """Notes, reasons and the name of an anchor."""

    def make(folder: Path) -> list[str]:
        from trace.io.writing import sealed

        record = json.loads(diagnosed())
        entry = record["anchors"].pop("source")
        entry["reasons"]["anchor"] = NASTY
        record["anchors"][NASTY] = entry
        record["anchors"]["$x^{"] = entry
        record["notes"] = {NASTY: [NASTY]}
        line = judged(folder, json.dumps(sealed(record)))
        return [*line, f"--{form}", "-"] if form != "text" else line

    make.__name__ = f"names_and_notes_of_a_diagnostic_as_{form}"
    attack("text", "", 2)(make)


for _form in ("text", "markdown", "html", "json", "junit"):
    nasty_diagnostic(_form)


def overwriting(name: str, option: str, how: str) -> None:
    """An output that is an input."""

    def make(folder: Path) -> list[str]:
        output = folder / ("held.npz" if how == "itself" else "link")
        if how == "link":
            output.symlink_to(folder / "held.npz")
        elif how == "hard link":
            os.link(folder / "held.npz", output)
        return [*command(folder), f"--{option}", output.name]

    make.__name__ = name
    attack("text", "would overwrite an input")(make)


overwriting("json_over_the_data", "json", "itself")
overwriting("markdown_over_the_data_by_a_link", "markdown", "link")
overwriting("html_over_the_data_by_a_hard_link", "html", "hard link")


@attack("text", "would overwrite an input")
def json_over_the_policy(folder: Path) -> list[str]:
    return [*command(folder, "gate"), "--json", "policy.yaml"]


@attack("text", "would overwrite an input")
def json_over_a_model(folder: Path) -> list[str]:
    return [*command(folder), "--json", "./new.skops"]


@attack("text", "would overwrite an input")
def json_over_past_updates(folder: Path) -> list[str]:
    (folder / "past.csv").write_text("name,score,risk_change\n" + "".join(f"u{i},{i},1\n" for i in range(20)))
    (folder / "policy.yaml").write_text("past: past.csv\nmax_harmful_accepted: 0.1\n")
    return [*command(folder, "gate"), "--json", "past.csv"]


@attack("text", "would overwrite an input")
def calibration_over_past_updates(folder: Path) -> list[str]:
    (folder / "past.csv").write_text("name,score,risk_change\n" + "".join(f"u{i},{i},1\n" for i in range(20)))
    return ["calibrate", "--past", "past.csv", "--out", "./past.csv"]


@attack("text", "both name ./out")
def two_outputs_in_one_file(folder: Path) -> list[str]:
    return [*command(folder), "--json", "out", "--html", "./out"]


# Small files, large appetites ------------------------------------------------------------------------------------


def policy(name: str, says: str, text: str) -> None:
    def make(folder: Path) -> list[str]:
        return judged(folder, diagnosed(), text)

    make.__name__ = f"policy_{name}"
    attack("resources", says)(make)


_LAUGHS = "a0: &a0 [1, 1]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
policy("of_a_billion_laughs", "has an anchor or alias", _LAUGHS)
policy("of_merge_keys", "has an anchor or alias", "a: &a {x: 1}\nb: {<<: [*a, *a]}\nthreshold: 0.5\n")
policy("of_deep_nesting", "nested deeper than", "threshold: " + "[" * 20_000)
policy("with_a_tag", "has a tag", "threshold: !!python/object/apply:os.mkdir [ran]\n")
policy("of_base_sixty", "threshold must be a number such as 0.05, got '1:30'", "threshold: 1:30\n")
policy("of_base_eight", "threshold must be a number such as 0.05, got '010'", "threshold: 010\n")
policy("of_400_digits", "threshold must be a number", f"threshold: {'9' * 400}\n")
policy("of_a_megabyte", "at most 64 kB are read", f"# {'x' * 2**20}\nthreshold: 0.5\n")


@attack("resources", "is a pipe or a device")
def endless_policy(folder: Path) -> list[str]:
    return [*judged(folder, diagnosed())[:2], "/dev/zero", "--diagnostic", "d.json"]


@attack("resources", "is a pipe or a device")
def endless_data(folder: Path) -> list[str]:
    return command(folder, source="/dev/zero")


@attack("resources", "is a pipe or a device")
def endless_model(folder: Path) -> list[str]:
    return command(folder, model="/dev/zero")


@attack("resources", "is a pipe or a device")
def pipe_as_data(folder: Path) -> list[str]:
    os.mkfifo(folder / "pipe.csv")
    return command(folder, source="pipe.csv")


@attack("resources", "is a pipe or a device")
def pipe_as_model(folder: Path) -> list[str]:
    os.mkfifo(folder / "pipe.skops")
    return command(folder, model="pipe.skops")


@attack("resources", "is a pipe or a device")
def pipe_among_images(folder: Path) -> list[str]:
    (folder / "pictures/a").mkdir(parents=True)
    os.mkfifo(folder / "pictures/a/1.png")
    return command(folder, source="pictures")


@attack("resources", "says that it holds 10.9 TB")
def npy_of_12_terabytes(folder: Path) -> list[str]:
    return npz(folder, x=npy("(1500000000000,)"), y=npy("(3,)", bytes(24)))


@attack("resources", "says that it holds 48 GB")
def npy_of_48_gigabytes(folder: Path) -> list[str]:
    return npz(folder, x=npy(f"({6 * 2**30},)"))


@attack("resources", "is no readable array")
def npy_of_400_digits(folder: Path) -> list[str]:
    return npz(folder, x=npy(f"({'9' * 400},)"))


@attack("resources", "is no readable array")
def npy_header_of_deep_nesting(folder: Path) -> list[str]:
    return npz(folder, x=npy("(" * 9000 + ")" * 9000))


@attack("resources", "is an archive of 400000 members")
def archive_of_400000_members(folder: Path) -> list[str]:
    entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    count = 400_000
    directory = entry * count
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, len(directory), 4, 0)
    (folder / "d.npz").write_bytes(b"PK\x03\x04" + directory + end)
    return command(folder, source="d.npz")


@attack("resources", "if that is true, save it without compression")
def archive_that_swells(folder: Path) -> list[str]:
    with zipfile.ZipFile(folder / "d.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        member.write(npy(f"({600 * 2**17},)"))
        for _ in range(600):
            member.write(bytes(2**20))
    return command(folder, source="d.npz")


@attack("resources", "would take")
def skops_that_names_one_array_often(folder: Path) -> list[str]:
    def change(schema: dict[str, Any], members: dict[str, bytes]) -> None:
        members["big.npy"] = npy(f"({2**23},)", bytes(2**26))
        about = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode", "type": "numpy"}
        many = [{**about, "file": "big.npy"} for _ in range(2000)]
        schema["content"]["content"]["C"] = {
            "__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": many,
        }  # fmt: skip

    return rewritten(folder, LogisticRegression().fit(*sample(50, 0)), change)


@attack("resources", "no readable skops file")
def skops_of_deep_nesting(folder: Path) -> list[str]:
    with zipfile.ZipFile(folder / "m.skops", "w") as archive:
        archive.writestr("schema.json", "[" * 200_000)
    return command(folder, model="m.skops")


@attack("resources", "rows, ")
def parquet_that_swells(folder: Path) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2**26, dtype=np.int8)), pa.array([1.0]))
    pq.write_table(pa.table({"a": column}), folder / "d.parquet")
    return command(folder, source="d.parquet")


@attack("resources", "has 1 x 60000 pixels, which is no picture")
def picture_of_one_line(folder: Path) -> list[str]:
    from PIL import Image

    (folder / "pictures/a").mkdir(parents=True)
    Image.new("1", (1, 60_000)).save(folder / "pictures/a/1.png")
    return command(folder, source="pictures")


@attack("resources", "cannot be read as an image")
def picture_of_30000_pixels_a_side(folder: Path) -> list[str]:
    """An image that is all header."""
    import zlib

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">2I5B", 30_000, 30_000, 8, 2, 0, 0, 0)
    (folder / "pictures/a").mkdir(parents=True)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    (folder / "pictures/a/1.png").write_bytes(png)
    return command(folder, source="pictures")


@attack("resources", "1000000 rows", 0)
def table_of_a_million_rows(folder: Path) -> list[str]:
    """No attack, but what honest users have: it is read a block at a time."""
    line = nasty_table(folder)
    x, y = sample(10_000, 5)
    block = pd.DataFrame(x.round(6), columns=["a", "b", "c"]).assign(y=np.where(y == 1, "yes", "no"))
    text = block.to_csv(index=False, header=False)
    with open(folder / "big.csv", "w") as file:
        file.write("a,b,c,y\n")
        for _ in range(100):
            file.write(text)
    cheap = ["--set", "distance=wasserstein1", "--set", "mmd_samples=200"]
    return [*line[:-1], "big.csv", "--hold-out", *cheap, "--verbose"]


# The runner ------------------------------------------------------------------------------------------------------


def outcome(case: Attack) -> AttackOutcome:
    """Carry out one attack in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        update(folder)
        arguments = case.arguments(folder)
        before = time.perf_counter()
        code, out, err = _contained(arguments, folder)
        seconds = time.perf_counter() - before
        ran, traceback = (folder / "ran").exists(), bool(re.search(r"Traceback|\(unexpected;", err))
        faults = [
            "code ran" if ran else "",
            f"exit code {code}" if code not in case.codes else "",
            "a traceback, or an error that nobody expected" if traceback else "",
            f"more than one sentence: {err!r}" if code == 3 and err.count("\n") != 1 else "",
            f"it said {err or out!r}" if case.says not in out + err else "",
            "text became more than text" if case.kind == "text" and _injected(arguments, out + err) else "",
        ]
    why = "; ".join(fault for fault in faults if fault)
    return AttackOutcome(case.name, case.kind, not why, why, seconds, ran, code == 0 and 0 not in case.codes, traceback)


def _injected(arguments: list[str], said: str) -> bool:
    return any(
        re.search(what, said, re.MULTILINE)
        for option, what in INJECTED.items()
        if option in ("", *arguments) and not (option == "gate" and {"--html", "--junit"} & set(arguments))
    )


def _contained(arguments: list[str], folder: Path) -> tuple[int, str, str]:
    """Exit code and output of the tool in a fork with bounds; -9 where it had to be ended."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.chdir(folder)
            for descriptor, file in ((0, os.devnull), (1, ".out"), (2, ".err")):
                os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), descriptor)
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            code = _main(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    end = time.monotonic() + SECONDS
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    code = os.waitstatus_to_exitcode(status)
    texts = [(folder / name).read_text(errors="replace") for name in (".out", ".err")]
    for name in (".out", ".err"):
        (folder / name).unlink()
    return code, texts[0], texts[1]


def _main(arguments: list[str]) -> int:
    from trace.tool.cli import main

    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    try:
        return main(arguments)
    except SystemExit as leaving:
        return int(leaving.code or 0)


def main(arguments: list[str]) -> int:
    import trace.report.page
    import trace.tool.cli
    import trace.tool.gate  # noqa: F401  so that no case pays for the imports

    names = [name for name in arguments if not name.startswith("-")] or list(ATTACKS)
    found = [outcome(ATTACKS[name]) for name in names]
    if "--json" in arguments:
        print(json.dumps([each._asdict() for each in found]))
    else:
        for each in found:
            print(f"{'held' if each.held else 'LOST'}  {each.kind:10}{each.name:45}{each.seconds:6.2f} s  {each.why}")
        print(f"{sum(each.held for each in found)} of {len(found)} attacks held")
    return 0 if all(each.held for each in found) else 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(sys.argv[1:]))
