"""A rehearsal of both studies, on the CPU, on a small tree: every stage, with what the whole grid asks of it."""

import re

import pytest

from experiments.__main__ import main

pytestmark = pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation:RuntimeWarning")

SMALL = ["arch=test_efficientnet", "weights=none", "device=cpu", "workers=0", "size=32", "--rehearse", "0.1"]


STAGE = r"(.{24}) *([\d,]+) of ([\d,]+) \w+ in +[\d.]+ s, all of it in +[\d.]+ h"


def rehearsed(capsys, tmp_path, *arguments):
    """Done and asked for, by stage, and the last line."""
    main(["run", *arguments, *SMALL, "--runs", str(tmp_path / "runs")])
    assert not (tmp_path / "runs").exists()
    *lines, total = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("small-")]
    stages = [re.fullmatch(STAGE, line) for line in lines]
    found = {match[1].strip(): int(match[3].replace(",", "")) for match in stages if match}
    disk = [line for line in lines if line.endswith("on disk")]
    assert len(found) + len(disk) == len(lines)
    return found, total


def test_the_gate(tree, capsys, tmp_path):
    found, total = rehearsed(capsys, tmp_path, "gate", "config=paper", f"data={tree['data']}", "source_epochs=7")
    train, val, target_val, test = 18, 6, 6, 24
    assert found == {
        "features, penultimate": 4 * 24,
        "Q, full": train * 7 * 4,
        "updates, full": found["updates, full"],
        "updates, full, distilled": round(4 * 5 * train * (1 + 0.5 + 0.25 + 0.1)),
        "looks of updates, full": found["looks of updates, full"],
        "gradients in images": 80 * (val + target_val),
        "under all labels": 160,
        "distances": train,
        "diagnosis": train,
    }
    held_out = val + target_val + 2 * test + train
    assert found["looks of updates, full"] == 4 * 96 + 80 * held_out + 3 * (64 * 5 + 16 * 2)
    assert total.startswith("80 runs: ")
    assert "no GPU" in total


def test_active_selection(tree, capsys, tmp_path):
    options = ["config=paper-head", f"data={tree['data']}", "batch=3", "rounds=2", "seed=0"]
    found, total = rehearsed(capsys, tmp_path, "active", *options)
    assert set(found) == {
        *("features, penultimate", "Q, head", "updates, head", "distances", "distances of rounds", "diagnosis"),
        *("selection, mmdmin", "selection, random", "selection, w1min"),
    }
    assert found["updates, head"] == 6 * 5 * (3 + 6)
    assert total.startswith("6 runs: ")


def test_what_cannot_be_rehearsed_says_so(tmp_path):
    with pytest.raises(SystemExit, match="ridge has no rehearsal: --dry-run says"):
        main(["run", "ridge", "config=smoke", "--rehearse", "--runs", str(tmp_path)])
