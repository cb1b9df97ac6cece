"""A score in the arena: what it sees, where it stands, and what becomes of one that fails."""

import json

import numpy as np
import pytest
from pandas import DataFrame

from experiments.__main__ import main
from experiments.arena.cases import SCALARS, ArenaCase, bouts, pack
from experiments.arena.contest import OWN, entered, joined, ladder, scored, standing
from experiments.engine.errors import UserError
from experiments.engine.manifests import grids_of_itself, write_manifest
from experiments.engine.records import write_records
from tests.experiments.tables.test_gate import HARM, updates_of

ROWS, CLASSES = 200, 3


def outputs(harm, seed):
    """Both models right everywhere on the target, Q on the anchor too, and the update wrong on a share of it."""
    rng = np.random.default_rng(seed)
    kept = {}
    for split in ("source_val", "source_test", "target_val", "target_test"):
        y = rng.integers(CLASSES, size=ROWS)
        said = np.where(np.arange(ROWS) < (0 if split.startswith("target") else round(harm * ROWS)), (y + 1) % 3, y)
        kept |= {f"{split}_y": y, f"{split}_q": _logits(y), f"{split}_update": _logits(said)}
        kept |= {f"{split}_q_class": y, f"{split}_update_class": said}
    return kept


def _logits(labels):
    return (4 * np.eye(CLASSES)[labels]).astype(np.float32)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Records of five seeds and their runs, packed."""
    folder = tmp_path_factory.mktemp("arena")
    records = [
        {**record, "run_id": f"{seed}-{i}"}
        for seed in range(5)
        for i, record in enumerate(updates_of(seed, anchor_disagreement=lambda h, k: h, target_error=0.0))
    ]
    for record, harm in zip(records, HARM * 5, strict=True):
        path = folder / "runs" / "gate" / record["run_id"]
        path.mkdir(parents=True)
        np.savez(path / "outputs.npz", **outputs(harm, record["config"]["seed"]))
    (folder / "records").mkdir()
    write_records(records, folder / "records" / "gate.jsonl")
    write_manifest(folder / "records" / "gate.jsonl", grids_of_itself(records))
    pack(records, folder / "runs", folder / "cases")
    return folder, records


PLAIN = "def score(case):\n    return (case.anchor_outputs.argmax(1) != case.anchor_new_outputs.argmax(1)).mean()\n"


def script(tmp_path, text):
    path = tmp_path / "my_score.py"
    path.write_text(text)
    return path


def test_four_seeds_are_stored_with_the_truth(store):
    folder, records = store
    found = bouts(folder / "cases")
    assert [(bout.title, bout.seed) for bout in found] == [("emoji", seed) for seed in range(4)]
    truth = [
        (bout.title, bout.seed, name, change)
        for bout in found
        for name, change in zip(bout.names, bout.error_change(), strict=True)
    ]
    together = joined(records, DataFrame(truth, columns=["title", "seed", "name", OWN]))
    assert together[OWN].tolist() == pytest.approx(together["error_change"].tolist(), abs=0.005)


def test_a_score_sees_outputs_and_no_label_of_the_anchor(store, tmp_path):
    """Neither in the case nor in the file of its process."""
    folder, _ = store
    seen = tmp_path / "seen.json"
    spy = script(
        tmp_path,
        "import json, sys, numpy as np\n"
        "def score(case):\n"
        f"    json.dump([sorted(vars(case)), sorted(np.load(sys.argv[2]).files)[:8]], open({str(seen)!r}, 'w'))\n"
        "    return 0\n",
    )
    scored(spy, bouts(folder / "cases"))
    fields, names = json.loads(seen.read_text())
    assert fields == sorted(ArenaCase.__dataclass_fields__)
    assert not [name for name in (*fields, *names) if "anchor_labels" in name or name.endswith("_y")]
    (_, case), *_ = bouts(folder / "cases")[0].cases()
    assert case.anchor_outputs.shape == (ROWS, CLASSES)
    assert set(case.scalars) == set(SCALARS)


def test_a_score_equals_the_one_of_the_records_and_is_ranked(store, tmp_path, capsys):
    folder, _ = store
    path = script(tmp_path, PLAIN)
    main(["arena", str(path), "--arena", str(folder / "cases"), "--records", str(folder / "records")])
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("emoji")]
    assert "1.00 [1.00, 1.00]" in row
    assert "1 of " in row
    backwards = script(tmp_path, "def score(case):\n    return -case.scalars['output_distance']\n")
    frame = joined(store[1], scored(backwards, bouts(folder / "cases")))
    (line,) = standing(frame).rows
    assert line[1].startswith("-0.99")
    rank, of = line[2].split(" of ")
    assert int(rank) > int(of) / 2
    assert line[3].startswith("-1.99")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "defines no function score"),
        ("def score(case)\n", "cannot be run: SyntaxError"),
        ("def score(case):\n    return case.anchor_labels\n", "AttributeError"),
        ("def score(case):\n    return float('nan')\n", "must be a finite number"),
        ("def score(case):\n    return 'harm'\n", "ValueError"),
        ("def score(case):\n    raise SystemExit(3)\n", "SystemExit: 3 (line 2)"),
        ("import os\ndef score(case):\n    os._exit(7)\n", "ended its process: it ended with code 7"),
    ],
)
def test_a_score_that_fails_is_one_sentence(store, tmp_path, text, said):
    with pytest.raises(UserError, match=said.replace("(", r"\(").replace(")", r"\)")):
        scored(script(tmp_path, text), bouts(store[0] / "cases"))


def test_a_score_that_never_ends_is_stopped(store, tmp_path):
    endless = script(tmp_path, "def score(case):\n    while True:\n        pass\n")
    with pytest.raises(UserError, match="took more than 3 s"):
        scored(endless, bouts(store[0] / "cases"), seconds=3)


def test_what_is_missing_or_damaged_is_named(store, tmp_path):
    folder, records = store
    with pytest.raises(UserError, match=r"outputs\.npz is missing"):
        pack(records, tmp_path, tmp_path / "cases")
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(UserError, match=r"cut.npz is no file of the arena"):
        bouts(tmp_path)
    with pytest.raises(UserError, match="holds no cases"):
        bouts(tmp_path / "nowhere")
    with pytest.raises(UserError, match="have no record"):
        joined(records[:3], scored(script(tmp_path, "def score(case):\n    return 1\n"), bouts(folder / "cases")))
    with pytest.raises(SystemExit, match=r"name a file that defines score\(case\), or --pack"):
        main(["arena", "--records", str(folder / "records")])


def test_a_data_set_without_a_licence_is_not_packed(store, tmp_path):
    folder, records = store
    pacs = [{**r, "config": {**r["config"], "data": "pacs"}} for r in records]
    assert pack(pacs, folder / "runs", tmp_path) == []


def test_all_scores_stand_on_a_ladder(store, tmp_path):
    folder, records = store
    own = ladder(joined(records, scored(script(tmp_path, PLAIN), bouts(folder / "cases"))), own="my_score")
    rho = [float(row[3].split()[0]) for row in own.rows]
    assert rho == sorted(rho, reverse=True)
    assert [row[1] for row in own.rows] == [str(1 + place) for place in range(len(rho))]
    alone = ladder(joined(records, entered(bouts(folder / "cases"))))
    assert sorted(row[2] for row in own.rows) == sorted([*(row[2] for row in alone.rows), "my_score"])


def test_a_score_that_is_constant_stands_last(store, tmp_path):
    folder, records = store
    constant = scored(script(tmp_path, "def score(case):\n    return 1\n"), bouts(folder / "cases"))
    assert ladder(joined(records, constant), own="constant").rows[-1][2] == "constant"


def test_the_card_counts_what_is_stored(store, capsys):
    folder, _ = store
    options = [f"--{name}={folder / where}" for name, where in (("runs", "runs"), ("records", "records"))]
    main(["arena", "--pack", f"--arena={folder / 'packed'}", *options])
    assert capsys.readouterr().out.startswith("4 files, ")
    (row,) = [line for line in (folder / "packed" / "README.md").read_text().splitlines() if line.startswith("| emoji")]
    harmful = 4 * sum(round(harm * ROWS) > 0 for harm in HARM)
    assert row.split(" | ")[1:8] == ["200", "200", "200", "3", str(len(HARM)), "4", str(harmful)]
