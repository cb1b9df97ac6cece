"""Forgetting: failed runs by default, everything by --all, never what is being computed; all of it named."""

import pytest

from experiments.__main__ import main
from experiments.engine.run import execute
from experiments.engine.store import RunDirectory
from tests.experiments.toy import TOY, grid


@pytest.fixture
def store(tmp_path, counter):
    """A finished run, a failed one, and one that is held."""
    for run in (*grid(1), *grid(1, mode="fail")):
        execute(run, runs=tmp_path)
    (held,) = grid(1, mode="slow")
    with RunDirectory.of(held, tmp_path).claim():
        yield tmp_path


def states(store):
    return {mode: RunDirectory.of(grid(1, mode=mode)[0], store).path.exists() for mode in ("plain", "fail", "slow")}


@pytest.mark.parametrize("option", [[], ["--failed"]])
def test_a_failed_run_is_forgotten_and_named(store, option, capsys):
    main(["forget", TOY, "mode=plain,fail,slow", "--runs", str(store), *option])
    assert states(store) == {"plain": True, "fail": False, "slow": True}
    said = capsys.readouterr().out
    assert f"failed {grid(1, mode='fail')[0].run_id}: RuntimeError: seed 0 fails on purpose" in said
    assert "1 runs forgotten, 2 kept, of 3 in the grid" in said


def test_all_takes_finished_runs_but_none_that_is_computed_now(store, capsys):
    main(["forget", TOY, "mode=plain,fail,slow", "--all", "--runs", str(store)])
    assert states(store) == {"plain": False, "fail": False, "slow": True}
    assert f"done {RunDirectory.of(grid(1)[0], store).path}" in capsys.readouterr().out


def test_only_what_is_named_is_forgotten(store, capsys):
    main(["forget", TOY, "seed=1,2", "--all", "--runs", str(store)])
    assert states(store) == {"plain": True, "fail": True, "slow": True}
    assert "0 runs forgotten, 0 kept, of 2 in the grid" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="did you mean seed"):
        main(["forget", TOY, "sede=1", "--runs", str(store)])
