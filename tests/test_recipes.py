"""The recipes of CONTRIBUTING.md, carried out as printed in a copy of the project: nothing else is edited there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.engine.records import read_records

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(?:python|yaml)\n# (\S+?)(?:, in (\w+))?\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
RECIPES = BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text())
SWEEP = "run synthetic config=smoke world=petals details=true wandb=off --launcher polite --niceness 0"
FLOOR = "run floor wandb=off"
IMAGES = "config=smoke data=shapes source=filled target=outline wandb=off"


def follow(recipe, folder):
    """Write a file, or the last entry of a mapping that stands in one."""
    path, place, code = recipe
    if place:
        before, opening, after = re.split(rf"(^{place}\b[^\n]*{{\n)", (folder / path).read_text(), flags=re.MULTILINE)
        entries, closing, rest = after.partition("\n}\n")
        code = f"{before}{opening}{entries}\n{code.rstrip()}{closing}{rest}"
    else:
        assert not (folder / path).exists(), f"{path} is taken"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(code)


COMMANDS = """
import sys
from experiments.__main__ import main
for line in sys.argv[1:]:
    print(f"$ {line}")
    main(line.split())
"""


class Copy:
    """The project with all recipes carried out."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("trace", "experiments", "configs"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        (folder / "README.md").write_text("<!-- glance:begin -->\n<!-- glance:end -->\n")
        for recipe in RECIPES:
            if recipe[1] != "Config":
                follow(recipe, folder)

    def call(self, *arguments):
        """What Python prints, on both streams together."""
        environment = {**os.environ, "TRACE_DATA": str(self.folder / "data"), "OMP_NUM_THREADS": "1"}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        command = [sys.executable, "-u", *arguments]
        done = subprocess.run(command, cwd=self.folder, env=environment, check=False, **streams)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def experiments(self, *lines):
        """What each of some commands of `python -m experiments` prints; one process for all, which starts slowly."""
        said = re.split(r"^\$ .*\n", self.call("-c", COMMANDS, *lines), flags=re.MULTILINE)[1:]
        return dict(zip(lines, said, strict=True))

    def table(self, label):
        """The rows of a table, as lists of cells."""
        lines = (self.folder / "results" / "tables" / f"{label}.md").read_text().splitlines()
        return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return Copy(tmp_path_factory.mktemp("recipes"))


@pytest.fixture(scope="module")
def printed(copy):
    """The copy after everything was run, collected, tabled and drawn."""
    copy.said = copy.experiments(
        SWEEP,
        "data shapes --images",
        f"run active {IMAGES} policy=farthest",
        f"run gate {IMAGES}",
        FLOOR,
        "collect --all --records trial",
        "tables --profile smoke --records trial --readme README.md",
        "tables --records trial --output results/tables",
        "figures --profile smoke --records trial --only score-scatter attribution gate-forest active-rounds",
        "figures --records trial --only floor",
        "claims --records trial --output results",
    )
    return copy


def test_every_kind_of_change_has_a_recipe():
    """Each in the room where its like live."""
    rooms = ("trace/worlds", "trace/selection", "experiments", "configs/floor", "experiments/analysis")
    made = ("tables", "figures", "claims", "claims/rules", "benchmarks", "commands")
    rooms += tuple(f"experiments/{name}" for name in made)
    rooms += ("experiments/vision/datasets", "experiments/engine/launchers")
    assert {str(Path(path).parent) for path, place, _ in RECIPES if not place} == set(rooms)
    places = [("trace/scores.py", "SCORES"), ("trace/baselines.py", "BASELINES"), ("experiments/floor.py", "Config")]
    assert [(path, place) for path, place, _ in RECIPES if place] == places


def test_the_code_is_clean(copy):
    files = [path for path, place, _ in RECIPES if place != "Config" and path.endswith(".py")]
    copy.call("-m", "ruff", "check", *files)
    copy.call("-m", "ruff", "format", "--check", *files)


def test_a_world_is_swept_and_stands_in_tables_and_figures(printed):
    assert "2 computed" in printed.said[SWEEP]
    for record in read_records(printed.folder / "trial" / "synthetic.jsonl"):
        for portrait in record["metrics"]["mlp"]["portraits"].values():
            assert set(portrait["source"]["y"]) == {0, 1, 2}
            assert len(portrait["new_margins"]) == 2
    rows = [row for row in printed.table("rank-power") if row[0] == "petals"]
    assert {tuple(row[1:3]) for row in rows} == {("mlp", "labels invariant")}
    assert "TRACE-Proxy, OT" in [row[3] for row in rows]
    assert "petals" in (printed.folder / "README.md").read_text()
    for name in ("score-scatter", "attribution"):
        assert (printed.folder / "results" / "figures" / f"{name}.png").stat().st_size > 10_000


@pytest.mark.parametrize("label", ["shift factor", "entropy on target"])
def test_a_score_stands_in_the_tables_of_the_gate(printed, label):
    for table, column in (("gate-tau-main", 1), ("gate-tau", 3), ("gate-paired", 2)):
        rows = [row for row in printed.table(table) if row[column] == label]
        assert rows, table
        assert not any("nan" in cell for row in rows for cell in row)
    assert (printed.folder / "results" / "figures" / "gate-forest.png").exists()


def test_a_gate_decides_by_a_new_score(printed):
    assert re.search(r"shift_factor +shift factor of TRACE-W", printed.call("-m", "trace", "gate", "--help"))


def test_a_policy_runs_and_stands_in_the_tables(printed):
    (record,) = read_records(printed.folder / "trial" / "active.jsonl")
    assert record["config"]["policy"] == "farthest"
    assert len(set(record["metrics"]["selected"])) == 8
    assert [row[2] for row in printed.table("active-terms") if row[1] == "farthest"] == ["4", "8"]
    assert {row[1] for row in printed.table("trace-domainnet-combined") if row[0] == "farthest"} >= {"1", "2"}


def test_an_experiment_has_its_table_figure_and_claim(printed):
    assert "12 computed" in printed.said[FLOOR]
    assert [row[:2] for row in printed.table("floor")[2:]] == [
        [d, n] for d in ("2", "20") for n in ("50", "100", "200")
    ]
    for suffix in ("pdf", "png"):
        assert (printed.folder / "results" / "figures" / f"floor.{suffix}").stat().st_size > 1_000
    (line,) = [
        line for line in (printed.folder / "results" / "claims.md").read_text().splitlines() if "falls as" in line
    ]
    assert "4 of 4 steps fall | 12 | reproduced" in line


def test_a_command_and_a_benchmark_are_files(copy):
    named, measured = copy.experiments("worlds", "benchmark --case moons --profile smoke").values()
    assert re.search(r"^petals +severity, num_classes$", named, flags=re.MULTILINE)
    assert re.search(r"\| two moons \| 90 rows \| scikit-learn \|", measured)
