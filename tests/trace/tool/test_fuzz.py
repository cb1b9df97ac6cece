"""Files that nobody wrote on purpose, for every reader of the command line; `tests/fuzzing.py` says how many."""

import argparse
import io
import json
import string
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import skops.io
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from tests.fuzzing import NUMBERS, VALUES, changed, damaged, examples, places, put, taken_or_told
from trace import Sample, diagnose
from trace.gate.labelling import Labelling
from trace.gate.policy import Policy
from trace.io.data import read_rows
from trace.io.models import load_model
from trace.io.sheets import read_sheet
from trace.io.splits import read_split
from trace.io.weights import read_weights
from trace.io.writing import sealed, strict_json
from trace.losses import ZeroOne
from trace.scores import GATE_SCORES
from trace.settings import Settings
from trace.stats.conformal import calibrate_threshold
from trace.tool import gate
from trace.tool.options import loss_from, named_paths, settings_from
from trace.tool.policy import StoredCalibration, calibration_record, load_policy, read_calibration, read_past
from trace.tool.state import SavedLabelling, outputs_path, read_state, write_outputs, write_state

from ..conftest import rows
from .test_policy import past_csv


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


KEYS = (
    "threshold",
    "score",
    "past",
    "calibration",
    "confidence",
    "min_source",
    "anchors",
    "files",
    "guarantee",
    "delta",
    "labels",
    "looks",
    "rules",
)
RULES = st.lists(
    st.dictionaries(st.sampled_from(["score", "limit", "anchor", "role", "unlabelled"]), VALUES, max_size=5)
    | st.builds(lambda score, limit: {"score": score, "limit": limit}, st.sampled_from(sorted(GATE_SCORES)), NUMBERS),
    max_size=3,
)


@examples(150)
@given(
    st.one_of(
        st.text(max_size=80),
        st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), VALUES, max_size=5).map(
            lambda keys: json.dumps(keys, default=str)
        ),
        RULES.map(lambda rules: json.dumps({"rules": rules})),
        st.lists(st.tuples(st.sampled_from(KEYS), st.text(string.printable, max_size=20)), max_size=4).map(
            lambda pairs: "\n".join(f"{key}: {value}" for key, value in pairs)
        ),
    )
)
def test_policies(folder, text):
    (folder / "policy.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
    found = taken_or_told(load_policy, str(folder / "policy.yaml"))
    assert found is None or isinstance(found.policy, Policy)


@pytest.fixture(scope="module")
def record():
    (x, y), (held, labels), (new, new_y) = (
        rows(n, shift, seed) for n, shift, seed in ((60, 0, 0), (80, 0, 1), (50, 1, 2))
    )
    samples = [Sample(torch.from_numpy(a), torch.from_numpy(b)) for a, b in ((x, y), (held, labels), (new, new_y))]
    found = diagnose(
        lambda x: x[:, :2],
        lambda x: x[:, 1:],
        samples[0],
        samples[2],
        source_val=samples[1],
        generator=torch.Generator().manual_seed(0),
    )
    return json.loads(strict_json(found.as_dict()))


@examples(120)
@given(st.data())
def test_diagnostics(folder, record, data):
    """A number, a name or a branch of an honest record is another, and the digest is right."""
    anchor = data.draw(changed(record))
    whole = {"format": "trace-diagnostic/1", "anchors": {"a": anchor}, "notes": data.draw(VALUES), "files": {}}
    (folder / "d.json").write_text(json.dumps(sealed(whole)))
    score = data.draw(st.sampled_from(sorted(GATE_SCORES)))
    (folder / "p.yaml").write_text(f"score: {score}\nthreshold: 0.3\nmin_source: 10\nmin_target: 10\n")
    parser = argparse.ArgumentParser()
    gate.add_arguments(parser)
    line = [
        "--policy",
        str(folder / "p.yaml"),
        "--diagnostic",
        str(folder / "d.json"),
        "--json",
        str(folder / "v.json"),
    ]
    forms = ["--markdown", str(folder / "v.md"), "--junit", str(folder / "v.xml")]
    assert taken_or_told(gate.main, parser.parse_args([*line, *forms])) in (None, 0, 1, 2)


@examples(100)
@given(st.text(max_size=60) | VALUES.map(lambda value: json.dumps(value, default=str)))
def test_diagnostics_of_any_text(folder, text):
    (folder / "any.json").write_text(text, encoding="utf-8", errors="surrogatepass")
    (folder / "p.yaml").write_text("threshold: 0.3\n")
    parser = argparse.ArgumentParser()
    gate.add_arguments(parser)
    line = ["--policy", str(folder / "p.yaml"), "--diagnostic", str(folder / "any.json")]
    assert taken_or_told(gate.main, parser.parse_args(line)) is None


@examples(200)
@given(st.data())
def test_calibrations(folder, data):
    (folder / "past.csv").write_text(past_csv())
    found = calibrate_threshold(read_past(folder / "past.csv"))
    stored = calibration_record(StoredCalibration(found, "", tuple(read_past(folder / "past.csv"))))
    (folder / "c.json").write_text(json.dumps(data.draw(changed(json.loads(strict_json(stored)))), default=str))
    taken_or_told(read_calibration, folder / "c.json")
    (folder / "of.yaml").write_text("calibration: c.json\n")
    taken_or_told(load_policy, str(folder / "of.yaml"))


@examples(100)
@given(
    st.sampled_from(["past.csv", "past.jsonl"]),
    st.binary(max_size=60)
    | st.lists(st.lists(st.text(max_size=6), max_size=4), max_size=4).map(
        lambda table: ("name,score,risk_change\n" + "\n".join(",".join(row) for row in table)).encode(
            "utf-8", "replace"
        )
    )
    | st.lists(VALUES, max_size=3).map(lambda lines: "\n".join(json.dumps(v, default=str) for v in lines).encode()),
)
def test_past_updates(folder, name, data):
    (folder / name).write_bytes(data)
    taken_or_told(read_past, folder / name)


@examples(100)
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_split_files(folder, data):
    (folder / "split.txt").write_bytes(data)
    taken_or_told(read_split, folder / "split.txt")


FIELDS = list(Settings.__dataclass_fields__)


@examples(300)
@given(
    st.lists(
        st.text(max_size=12)
        | st.tuples(st.sampled_from(FIELDS), st.text(max_size=10) | NUMBERS.map(str) | st.just("9" * 5000)).map(
            "=".join
        ),
        max_size=3,
    )
)
def test_settings(pairs):
    """What settings refuse by themselves is a sentence too."""
    with suppress(ValueError):
        assert isinstance(settings_from(pairs, batch_size=10), Settings)


@examples(100)
@given(
    st.text(max_size=20)
    | st.tuples(st.sampled_from(["cross-entropy:", "squared-error:"]), NUMBERS.map(str)).map("".join)
)
def test_losses_and_named_paths(text):
    taken_or_told(loss_from, text)
    taken_or_told(named_paths, [text, text], "--source", "source")


def honest_files():
    """A small file of every kind."""
    x, y = rows(30, 0.0, 0)
    npz, weights = io.BytesIO(), io.BytesIO()
    np.savez(npz, x=x, y=y)
    torch.save({"weight": torch.zeros(2, 3)}, weights)
    return {
        "npz": npz.getvalue(),
        "csv": ("a,b,y\n" + "\n".join(f"{a},{b},{c}" for (a, b, _), c in zip(x, y, strict=True))).encode(),
        "safetensors": save({"x": torch.from_numpy(x), "y": torch.from_numpy(y)}),
        "skops": skops.io.dumps(LogisticRegression().fit(x, y)),
        "tree": skops.io.dumps(DecisionTreeClassifier(max_depth=2).fit(x, y)),
        "weights": weights.getvalue(),
    }


HONEST = honest_files()


@st.composite
def rewritten(draw, kind):
    """An archive whose members were changed before it was made, so that its checksums are right."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(HONEST[kind])) as good, zipfile.ZipFile(stream, "w") as bad:
        names = good.namelist()
        chosen = draw(st.sampled_from(names))
        for name in names:
            data = bytearray(good.read(name))
            if name == chosen and data:
                for _ in range(draw(st.integers(1, 3))):
                    data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
            bad.writestr(name, bytes(data))
    return stream.getvalue()


@st.composite
def other_schemas(draw, kind):
    """A skops file that says other things about itself."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(HONEST[kind])) as good, zipfile.ZipFile(stream, "w") as bad:
        schema = json.loads(good.read("schema.json"))
        path = draw(st.sampled_from(list(places(schema))))
        members = {name: good.read(name) for name in good.namelist()}
        members["schema.json"] = json.dumps(put(schema, path, draw(VALUES)), default=str).encode()
        for name, data in members.items():
            bad.writestr(name, data)
    return stream.getvalue()


ROWS = {"transform": None, "label": None, "labelled": True, "columns": None, "limit": None, "generator": None}


@examples(60)
@pytest.mark.parametrize("kind", ["npz", "csv", "safetensors"])
@given(st.data())
def test_data(folder, kind, data):
    file = folder / f"d.{kind}"
    file.write_bytes(data.draw(damaged(HONEST[kind]) | rewritten(kind) if kind == "npz" else damaged(HONEST[kind])))
    taken_or_told(read_rows, str(file), **ROWS)


@examples(60)
@pytest.mark.parametrize("kind", ["skops", "tree", "weights"])
@given(st.data())
def test_models(folder, kind, data):
    """What loads also runs, or says one sentence."""
    ways = damaged(HONEST[kind]) | rewritten(kind)
    file = Path(folder / f"m.{kind}")
    file.write_bytes(data.draw(ways if kind == "weights" else ways | other_schemas(kind)))
    if kind == "weights":
        taken_or_told(read_weights, file)
        return
    model = taken_or_told(load_model, str(file), "--model", trust=False, device=torch.device("cpu"))
    if model is not None:
        taken_or_told(model, torch.from_numpy(rows(5, 0.0, 1)[0]))


@pytest.fixture(scope="module")
def begun(folder):
    """A labelling on disk with some labels told, and its record."""
    generator = torch.Generator().manual_seed(0)
    old, new = torch.randn(2, 40, 3, generator=generator)
    labelling = Labelling(old, new, limit=0.1, loss=ZeroOne(), confidence=0.95, scope="file", generator=generator)
    chosen = labelling.next_rows(5)
    labelling.tell(chosen, [0] * len(chosen))
    path = folder / "labels.json"
    asked = {"threshold": 0.1, "confidence": 0.95, "scope": "file", "loss": "zero-one", "seed": 0, "id": None}
    saved = SavedLabelling(labelling, asked, {}, {}, ("a", "b", "c"), None)
    write_outputs(path, labelling)
    write_state(path, saved)
    return path, json.loads(path.read_text()), outputs_path(path).read_bytes()


@examples(300)
@given(data=st.data())
def test_labellings(begun, data):
    """Their digest is right, as that of anybody who writes one."""
    path, record, outputs = begun
    other = data.draw(changed(record))
    path.write_text(json.dumps(sealed(other) if isinstance(other, dict) else other, default=str))
    outputs_path(path).write_bytes(data.draw(st.just(outputs) | damaged(outputs)))
    found = taken_or_told(read_state, path)
    assert found is None or found.labelling.state.decision in ("accept", "reject", "undecided")


@examples(300)
@given(damaged(b"id,label,prediction,new_prediction\n1,a,b,c\n2,?,b,c\n3,,b,c\n") | st.binary(max_size=60))
def test_sheets(folder, data):
    (folder / "sheet.csv").write_bytes(data)
    taken_or_told(read_sheet, folder / "sheet.csv")
