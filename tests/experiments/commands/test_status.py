"""Status: whole grids of the variants that have a run, and what is in none."""

import pytest

from experiments.__main__ import main
from experiments.commands.status import describe, grids_of
from experiments.engine.config import expand
from experiments.engine.store import RunDirectory
from tests.experiments.toy import TOY


@pytest.fixture
def configs(tmp_path):
    folder = tmp_path / "configs" / "toy"
    folder.mkdir(parents=True)
    (folder / "cpu.yaml").write_text('sweep: {mode: [plain, "*"], seed: [0, 1, 2]}\n')
    (folder / "paper.yaml").write_text("sweep: {seed: [0, 1]}\n")
    return tmp_path / "configs"


def finish(runs, store):
    for run in runs:
        RunDirectory.of(run, store).begin(run)
        RunDirectory.of(run, store).finish({"run_id": run.run_id, "config": run.values})


def lines(store, configs):
    return [describe(name, directories) for name, directories in grids_of(store / TOY, configs)]


def test_the_whole_grid_counts_not_the_folders_that_exist(tmp_path, configs):
    store = tmp_path / "runs"
    finish(expand(TOY, ["seed=1"], configs=configs), store)
    (line,) = lines(store, configs)
    assert line.startswith(f"{TOY} config=cpu [#############...")
    assert line.endswith("1 of 3 done, 2 missing")


def test_open_values_and_keys_of_ones_own(tmp_path, configs):
    store = tmp_path / "runs"
    finish(expand(TOY, ["mode=new", "seed=1"], configs=configs), store)
    finish(expand(TOY, ["layers=[3]", "seed=7"], configs=configs), store)
    finish(expand(TOY, ["config=paper"], configs=configs), store)
    told = [line.split(" [")[0] + line.split("]")[1] for line in lines(store, configs)]
    assert told == [
        f"{TOY} config=cpu 1 of 6 done, 5 missing",
        f"{TOY} config=paper 2 of 2 done",
        f"{TOY}, keys of one's own 1 of 1 done",
    ]


def test_the_command_of_a_variant(tmp_path, capsys):
    finish(expand("ridge", ["config=smoke", "angle=45"]), tmp_path)
    main(["status", "--runs", str(tmp_path)])
    assert (
        "ridge config=smoke [####################....................] 1 of 2 done, 1 missing"
        in capsys.readouterr().out
    )
    main(["status", "ridge", "config=smoke", "--runs", str(tmp_path)])
    assert "1 of 2 done, 1 missing" in capsys.readouterr().out
    main(["status", "ridge", "config=smoke", "angle=45", "--runs", str(tmp_path)])
    assert capsys.readouterr().out.startswith("ridge, 1 of the grid's 2 runs [####")
