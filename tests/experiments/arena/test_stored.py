"""The committed arena: what is recomputed from its outputs equals the records."""

import pytest
import torch

from experiments.__main__ import main
from experiments.analysis.gate import kind
from experiments.analysis.replications import replication_title
from experiments.arena.card import card
from experiments.arena.cases import ARENA, OPEN, SEEDS, bouts
from experiments.engine.records import RECORDS, read_records
from trace.baselines import label_free

LIMIT_MB = 40
RELATIVE = 1e-5
"""Records keep six digits."""


@pytest.fixture(scope="module")
def stored():
    return bouts()


@pytest.fixture(scope="module")
def recorded():
    return {
        (replication_title(r["config"]), r["config"]["seed"], r["config"]["candidate"]["name"]): r["metrics"]
        for r in read_records(RECORDS / "gate.jsonl")
        if r["config"]["data"] in OPEN and r["config"]["seed"] < SEEDS and kind(r["config"]["candidate"]) == "plain"
    }


def test_every_update_of_every_open_replication_is_stored(stored, recorded):
    assert {(bout.title, bout.seed, name) for bout in stored for name in bout.names} == set(recorded)
    assert sum(path.stat().st_size for path in ARENA.iterdir()) < LIMIT_MB * 1e6


def test_truth_and_scores_are_those_of_the_records(stored, recorded):
    compared = set()
    for bout in stored:
        for (name, case), change in zip(bout.cases(), bout.error_change(), strict=True):
            metrics = recorded[bout.title, bout.seed, name]
            assert change == pytest.approx(metrics["error_change"], rel=RELATIVE, abs=1e-9)
            moved = (case.anchor_outputs.argmax(1) != case.anchor_new_outputs.argmax(1)).mean()
            assert moved == pytest.approx(metrics["anchor_disagreement"], rel=RELATIVE, abs=1e-9)
            found = label_free(
                {
                    "source": torch.from_numpy(case.anchor_new_outputs),
                    "target": torch.from_numpy(case.target_new_outputs),
                    "old_target": torch.from_numpy(case.target_outputs),
                    "target_labels": torch.from_numpy(case.target_labels),
                }
            )
            for score, value in found.items():
                assert value == pytest.approx(metrics[score], rel=RELATIVE, abs=1e-6), (bout.title, name, score)
            compared |= set(found)
    assert len(compared) >= 5, compared


def test_the_card_is_that_of_the_files(stored):
    assert (ARENA / "README.md").read_text("utf-8") == card(stored)


def test_a_score_is_ranked_on_all_of_them(stored, tmp_path, capsys):
    path = tmp_path / "my_score.py"
    path.write_text(
        "def score(case):\n    return (case.anchor_outputs.argmax(1) != case.anchor_new_outputs.argmax(1)).mean()\n"
    )
    main(["arena", str(path)])
    said = capsys.readouterr().out
    assert all(title in said for title in {bout.title for bout in stored})
