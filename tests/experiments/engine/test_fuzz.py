"""What nobody wrote on purpose, for every reader of the run engine; `tests/fuzzing.py` says how many."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.engine.config import expand, read_mapping, typed
from experiments.engine.deaths import Death, note_death, refusal
from experiments.engine.launchers.slurm import Cluster
from experiments.engine.leases import look
from experiments.engine.manifests import grids_of_itself, manifest_path, shortfall, write_manifest
from experiments.engine.records import of_profile, parse_records, read_records, write_records
from experiments.engine.scheduler import TaskEnding
from experiments.engine.shared import sealed, unsealed
from experiments.engine.store import RunDirectory
from tests.experiments.toy import TOY, Config
from tests.fuzzing import NUMBERS, VALUES, changed, damaged, examples, taken_or_told

RECORD = {"run_id": "abc", "experiment": "toy", "profile": "cpu", "config": {"seed": 0}, "metrics": {"mean": 0.5}}
LINES = "".join(json.dumps({**RECORD, "run_id": name}) + "\n" for name in ("abc", "abd", "abe"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@examples(600)
@given(
    st.one_of(
        damaged(LINES.encode()),
        st.lists(changed(RECORD), max_size=3).map(lambda found: "\n".join(map(json.dumps, found)).encode()),
        st.sampled_from([b"[" * 100_000, b'{"run_id": ' + b"9" * 5000 + b"}", b"\xff\xfe", b"\x00"]),
    )
)
def test_files_of_records(folder, data):
    """What is taken has an id each, none of them twice."""
    path = folder / "toy.jsonl"
    path.write_bytes(data)
    records = taken_or_told(read_records, path)
    if records is not None:
        assert len({record["run_id"] for record in records}) == len(records)
        taken_or_told(of_profile, records, "cpu")


@pytest.fixture(scope="module")
def described(folder):
    """A file of records with its manifest, and what either holds."""
    path = folder / "described.jsonl"
    write_records(parse_records(LINES, "here"), path)
    write_manifest(path, grids_of_itself(read_records(path)))
    return path, path.read_bytes(), manifest_path(path).read_bytes()


@examples(300)
@given(data=st.data())
def test_records_that_changed_after_their_manifest_are_noticed(described, data):
    path, records, manifest = described
    path.write_bytes(spoiled := data.draw(damaged(records)))
    manifest_path(path).write_bytes(manifest)
    if taken_or_told(shortfall, path, ["cpu"], incomplete=False) is not None:
        assert spoiled.splitlines() == records.splitlines()


@examples(300)
@given(data=st.data())
def test_manifests(described, data):
    path, records, manifest = described
    spoiled = damaged(manifest) | changed(json.loads(manifest)).map(lambda value: json.dumps(value).encode())
    path.write_bytes(records)
    manifest_path(path).write_bytes(data.draw(spoiled))
    taken_or_told(shortfall, path, ["cpu"], incomplete=data.draw(st.booleans()))


@pytest.fixture(scope="module")
def stored(folder):
    """A finished run, and what its record holds."""
    directory = RunDirectory(folder / "runs" / "toy" / "abc")
    directory.finish(RECORD)
    return directory, directory.record_path.read_bytes()


@examples(600)
@given(data=st.data())
def test_a_record_that_counts_is_the_one_that_was_stored(stored, data):
    directory, honest = stored
    directory.record_path.write_bytes(data.draw(damaged(honest)))
    assert directory.state() in ("done", "spoiled")
    if directory.done():
        assert directory.record()["metrics"] == RECORD["metrics"]


KEYS = st.sampled_from([*Config.__dataclass_fields__, "config", "layers.0", "layers.x", "seed.0"]) | st.text(max_size=6)
TEXTS = st.one_of(
    st.text(max_size=12),
    NUMBERS.map(str),
    VALUES.map(lambda value: json.dumps(value, default=str)),
    st.sampled_from(
        ["${seed}", "${oc.env:HOME}", "???", "[" * 2000, "&a [*a]", "!!python/name:os.system", "1:30", "010"]
    ),
)


@examples(600)
@given(st.lists(st.tuples(KEYS, TEXTS).map("=".join) | st.text(max_size=8), max_size=3))
def test_key_value(arguments):
    found = taken_or_told(expand, TOY, arguments)
    assert found is None or all(isinstance(run.config, Config) and run.run_id for run in found)


@examples(300)
@given(
    st.text(max_size=60)
    | st.dictionaries(
        st.sampled_from(list(Cluster.__dataclass_fields__)) | st.text(max_size=4), VALUES, max_size=4
    ).map(lambda keys: json.dumps(keys, default=str))
    | damaged(b"partition: normal\nminutes: 30\nmem: 4GB\n").map(lambda data: data.decode("latin-1"))
)
def test_profiles_of_clusters(folder, text):
    path = folder / "profile.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    keys = taken_or_told(read_mapping, path)
    if keys is not None:
        taken_or_told(typed, Cluster, keys, str(path))


@examples(200)
@given(st.data())
def test_checkpoints(folder, data):
    """A damaged one is none; what is left reads."""
    path, honest = folder / "checkpoint.pt", sealed({"step": 3, "weight": torch.zeros(3)})
    path.write_bytes(data.draw(damaged(honest)))
    payload = unsealed(path)
    assert payload is None or payload == honest[64:]


@examples(200)
@given(st.binary(max_size=80), st.text("abc0123456789", min_size=1, max_size=8))
def test_leases(folder, content, name):
    """A folder with anything in it is a lease that somebody holds, or nobody."""
    lease = folder / "lease"
    lease.mkdir(exist_ok=True)
    (lease / name).write_bytes(content)
    holder = look(lease)
    (lease / name).unlink()
    assert holder is None or isinstance(holder.gone(), bool)


@examples(200)
@given(st.data())
def test_jobs_and_deaths(folder, data):
    directory = RunDirectory(folder / "runs" / "toy" / "dead")
    directory.path.mkdir(parents=True, exist_ok=True)
    noted = json.dumps(Death("7_0", "FAILED", "was killed", "/logs/7_0.out", "4GB")._asdict()).encode()
    (directory.path / "deaths.jsonl").write_bytes(data.draw(damaged(noted)))
    (directory.path / "job.txt").write_bytes(data.draw(damaged(b"7_1\n/logs/7_1.out\n4GB\n")))
    note_death(directory, TaskEnding("FAILED", -9))
    assert isinstance(refusal(directory, "4GB"), str)
