"""Manifests: incomplete, doubled and damaged records are refused with their file, or marked where that is allowed."""

import json
import shutil

import pytest

from experiments.__main__ import main
from experiments.commands.collect import collect
from experiments.engine.config import expand
from experiments.engine.manifests import VariantGrid, manifest_path, shortfall, write_manifest
from experiments.engine.records import RECORDS, read_records, write_records
from experiments.engine.store import RunDirectory

MAKERS = ("tables", "figures", "claims")
RUNS = len(read_records(RECORDS / "ridge.jsonl"))


@pytest.fixture
def folder(tmp_path):
    """The committed records of one experiment, with their manifest."""
    for path in RECORDS.glob("ridge.*"):
        shutil.copy(path, tmp_path)
    return tmp_path


def make(command, folder, *options):
    main([command, "--records", str(folder), "--output", str(folder / command), *options])


def lines(folder):
    return (folder / "ridge.jsonl").read_text().splitlines()


def rewrite(folder, kept):
    (folder / "ridge.jsonl").write_text("\n".join(kept) + "\n")


def test_every_committed_file_has_all_runs_of_its_grid():
    paths = sorted(RECORDS.glob("*.jsonl"))
    assert len(paths) >= 8
    for path in paths:
        assert shortfall(path, ["cpu"], incomplete=False) == ""
        said = json.loads(manifest_path(path).read_text())
        assert (said["experiment"], said["count"]) == (path.stem, len(read_records(path)))
        assert {name for grid in said["grids"].values() for name in grid["ids"]} == {
            record["run_id"] for record in read_records(path)
        }


def test_two_runs_of_a_grid_move_no_verdict_unseen(folder, tmp_path):
    """A store in which two runs are finished, collected."""
    two, runs = read_records(folder / "ridge.jsonl")[:2], tmp_path / "runs"
    for record in two:
        RunDirectory(runs / "ridge" / record["run_id"]).finish(record)
    (folder / "ridge.jsonl").unlink()
    collect(runs, folder)
    for command in MAKERS:
        with pytest.raises(SystemExit) as refused:
            make(command, folder)
        assert str(refused.value) == (
            f"ridge.jsonl holds 2 of the {RUNS} runs of config=cpu: `python -m experiments run ridge config=cpu` "
            "computes the others, then `collect`; --incomplete goes on with what is there, and marks what is made"
        )
        assert not list((folder / command).glob("*")), "nothing is made"
    make("tables", folder, "--incomplete")
    made = (folder / "tables" / "ridge-scaling.md").read_text()
    assert f"Incomplete: ridge.jsonl holds 2 of the {RUNS} runs of config=cpu." in made
    make("claims", folder, "--incomplete")
    assert f"Incomplete: ridge.jsonl holds 2 of the {RUNS}" in (folder / "claims" / "claims.md").read_text()


def test_an_incomplete_figure_says_so(folder, monkeypatch):
    from experiments.figures import style

    drawn = []
    monkeypatch.setattr("experiments.commands.figures.save", lambda figure, *_: drawn.append(figure))
    make("figures", folder, "--only", "slopes")
    kept = lines(folder)[:-1]
    rewrite(folder, kept)
    ids = json.loads(manifest_path(folder / "ridge.jsonl").read_text())["grids"]["cpu"]["ids"]
    write_manifest(folder / "ridge.jsonl", {"cpu": VariantGrid("cpu", ids)})
    make("figures", folder, "--only", "slopes", "--incomplete")
    whole, lacking = ([text.get_text() for text in figure.texts] for figure in drawn)
    assert [text for text in lacking if text not in whole] == [
        f"Incomplete: ridge.jsonl holds {RUNS - 1} of the {RUNS} runs of config=cpu."
    ]
    style.plt.close("all")


@pytest.mark.parametrize("options", [[], ["--incomplete"]])
@pytest.mark.parametrize("command", MAKERS)
def test_a_file_that_has_changed_is_refused(folder, command, options):
    whole = lines(folder)
    changed = {
        rf"\(2 lines, {RUNS} there\)": whole[:2],
        rf"\({RUNS} lines, {RUNS} there\)": [whole[0].replace('"seed": 0', '"seed": 1'), *whole[1:]],
    }
    for said, kept in changed.items():
        rewrite(folder, kept)
        with pytest.raises(SystemExit, match=rf"ridge\.jsonl is not what ridge\.manifest\.json describes {said}"):
            make(command, folder, *options)


@pytest.mark.parametrize("command", [*MAKERS, "collect"])
def test_doubled_lines_and_lines_that_are_no_records_are_named(folder, tmp_path, command):
    whole = lines(folder)
    faults = {
        r"ridge\.jsonl, line 5, is run [0-9a-f]{12} of line 2 again": [*whole[:4], whole[1], *whole[4:]],
        r"ridge\.jsonl, line 3, is not a record \(Expecting": [*whole[:2], whole[2][:40], *whole[3:]],
        r"ridge\.jsonl, line 1, is not a record \(it has no run_id\)": ["[]", *whole],
        rf"ridge\.jsonl, line {RUNS + 1}, is not a record": [*whole, "<<<<<<< HEAD"],
    }
    for said, kept in faults.items():
        rewrite(folder, kept)
        with pytest.raises(SystemExit, match=said):
            make(command, folder) if command != "collect" else main(
                ["collect", "--runs", str(tmp_path / "none"), "--records", str(folder)]
            )


def test_ends_of_lines_do_not_matter(folder):
    path = folder / "ridge.jsonl"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert shortfall(path, ["cpu"], incomplete=False) == ""


@pytest.mark.parametrize("text", ["", "[]", '{"grids": {}}', '{"count": 1, "digest": "a", "grids": [1]}', "{"])
def test_a_manifest_that_is_none_is_named(folder, text):
    manifest_path(folder / "ridge.jsonl").write_text(text)
    with pytest.raises(SystemExit, match=r"ridge\.manifest\.json is not a manifest"):
        make("tables", folder)


def test_records_without_a_manifest_are_refused_until_collect_writes_one(folder, tmp_path):
    before = (folder / "ridge.jsonl").read_bytes()
    manifest = manifest_path(folder / "ridge.jsonl")
    described = manifest.read_bytes()
    manifest.unlink()
    with pytest.raises(SystemExit, match=r"has no manifest to be compared with: `collect` writes one; --incomplete"):
        make("tables", folder)
    main(["collect", "--runs", str(tmp_path / "none"), "--records", str(folder)])
    assert manifest.read_bytes() == described
    assert (folder / "ridge.jsonl").read_bytes() == before


def test_another_profile_has_its_own_grid(tmp_path):
    paper = [{"run_id": f"p{i}", "profile": "paper"} for i in range(2)]
    path = tmp_path / "toy.jsonl"
    write_records([{"run_id": "c", "profile": "cpu"}, *paper], path)
    write_manifest(path, {"cpu": VariantGrid("cpu", ["c", "d"]), "paper": VariantGrid("paper", ["p0", "p1"])})
    assert shortfall(path, ["paper"], incomplete=False) == ""
    with pytest.raises(ValueError, match="holds 1 of the 2 runs of config=cpu"):
        shortfall(path, ["cpu", "paper"], incomplete=False)


def test_a_record_under_the_id_of_another_config_is_left_out(tmp_path, capsys):
    first, second = expand("ridge", ["config=cpu"])[:2]
    record = {"run_id": first.run_id, "profile": "cpu", "config": second.values, "metrics": {}}
    RunDirectory.of(first, tmp_path / "runs").finish(record)
    assert collect(tmp_path / "runs", tmp_path / "records") == {}
    assert f"ridge/{first.run_id} is left out: its config is that of another run" in capsys.readouterr().err
