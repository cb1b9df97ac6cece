"""The ground the project stands on: pins, the installed wheel, the layout."""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

COMMAND_LINE = ("tool", "io", "__main__.py")
"""The only parts of the library that see paths and options."""


def pins():
    lines = (line.split("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines())
    return [Requirement(line) for line in lines if line]


def test_environment_repeats_the_pins():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, _, pip = environment["dependencies"]
    assert python == "python=3.11"
    assert pip["pip"] == [str(pin) for pin in pins()]


def test_every_pin_is_exact_and_satisfies_the_bounds():
    versions = {}
    for pin in pins():
        (spec,) = pin.specifier
        assert spec.operator == "=="
        versions[pin.name] = spec.version
    extras = PYPROJECT["project"]["optional-dependencies"]
    declared = [*PYPROJECT["project"]["dependencies"], *(line for lines in extras.values() for line in lines)]
    for line in declared:
        bound = Requirement(line)
        if bound.name == PYPROJECT["project"]["name"]:
            assert bound.extras == set(extras) - {"all"}
            continue
        assert bound.specifier.contains(versions[bound.name]), f"{line} refuses the pinned {versions[bound.name]}"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the unpacked wheel, built from a copy of the sources."""
    tmp = tmp_path_factory.mktemp("wheel")
    source = tmp / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "trace", source / "trace", ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp / "site")
    return tmp / "site"


def run_clean(site, code):
    """Run code in a new interpreter that sees the wheel and nothing of the repository."""
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=site.parent, env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_the_wheel_holds_every_module(site):
    for kind in ("*.py", "*.j2", "*.css"):
        installed = {p.relative_to(site / "trace_shift") for p in (site / "trace_shift").rglob(kind)}
        assert installed == {p.relative_to(ROOT / "trace") for p in (ROOT / "trace").rglob(kind)}
        assert installed


def test_every_module_imports_from_the_wheel_and_the_standard_trace_is_untouched(site):
    code = """
import importlib, pkgutil, trace, trace_shift
assert "Trace" in dir(trace) and "site" not in trace.__file__.split("/")[-2], trace.__file__
names = [m.name for m in pkgutil.walk_packages(trace_shift.__path__, "trace_shift.")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""
    assert int(run_clean(site, code)) >= 20


def test_the_wheel_diagnoses(site):
    code = """
import torch
from trace_shift import Sample, diagnose
from trace_shift.report import to_text
g = torch.Generator().manual_seed(0)
x = torch.randn(50, 2, generator=g)
s, t = Sample(x, (x[:, 0] > 0).long()), Sample(x + 1, (x[:, 0] > 0).long())
print(to_text(diagnose(lambda x: x, lambda x: 2 * x, s, t)))
"""
    assert "model change" in run_clean(site, code)


def test_the_wheel_brings_the_command(site, tmp_path):
    """As a new user has it: an empty folder, where ``trace`` is the standard library's."""
    (points,) = site.glob("trace_shift-*.dist-info/entry_points.txt")
    assert "trace-shift = trace_shift.tool.cli:main" in points.read_text()
    code = """
import numpy as np
g = np.random.default_rng(0)
for name in ("old", "new"):
    x = g.normal(size=(60, 3))
    np.savez(name, features=x, y=(x[:, 0] > 0).astype(int), logits=x[:, :2], new_logits=x[:, 1:])
"""
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}

    def run(*arguments):
        return subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    assert run("-c", code).returncode == 0
    samples = ("--source", "old.npz", "--target", "new.npz")
    done = run("-m", "trace_shift", "diagnose", *samples, "--json", "out.json", "--html", "page.html")
    assert done.returncode == 0, done.stderr
    assert "model change" in done.stdout
    assert done.stderr == ""
    assert (tmp_path / "out.json").exists()
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert page.count("<svg") == 3
    assert "--paper: #" in page
    wrong = run("-m", "trace_shift", "diagnose", "--source", "missing.npz", "--target", "new.npz")
    assert (wrong.returncode, wrong.stdout) == (3, "")
    assert wrong.stderr == "python -m trace_shift diagnose: missing.npz does not exist: check the path\n"


def test_the_library_sees_tensors_only():
    banned = {"wandb", "yaml", "omegaconf", "submitit", "argparse", "pathlib", "logging", "experiments"}
    for path in (ROOT / "trace").rglob("*.py"):
        if path.relative_to(ROOT / "trace").parts[0] in COMMAND_LINE:
            continue
        tree = ast.parse(path.read_text())
        names = {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        names |= {n.module.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
        assert not names & banned, f"{path} imports {names & banned}"
        calls = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        assert "print" not in calls, f"{path} prints"


def test_top_level():
    folders = {"trace", "experiments", "configs", "slurm", "notebooks", "results", "tests"}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert {Path(line).parts[0] for line in tracked.splitlines() if "/" in line} - {".ci", ".github"} <= folders
    assert all((ROOT / name).is_dir() for name in folders)


def test_setup_runs_once(tmp_path):
    """The real Makefile with an empty list of packages: the second call has nothing to do, a changed list has."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements.txt").write_text("")

    def make(*arguments):
        return subprocess.run(
            ["make", *arguments, f"PYTHON={sys.executable}"], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    assert make("setup").returncode == 0
    assert (tmp_path / ".venv" / "bin" / "python").exists()
    assert make("--question", "setup").returncode == 0
    later = (tmp_path / ".venv" / ".installed").stat().st_mtime + 10
    os.utime(tmp_path / "requirements.txt", (later, later))
    assert make("--question", "setup").returncode == 1
    assert (
        "Python 3.11 or newer is needed"
        in subprocess.run(
            ["make", "setup", "PYTHON=false"], cwd=tmp_path, capture_output=True, text=True, check=False
        ).stdout
    )


def test_citation_names_the_authors():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["preferred-citation"]["title"] == citation["title"]
    assert [a["family-names"] for a in citation["authors"]] == ["Anjidani", "Tehrani", "Mojahedian", "Yassaee"]
    assert citation["version"] == PYPROJECT["project"]["version"]


def test_a_command_starts_without_what_it_may_not_need():
    """POT takes as long to import as torch."""
    heavy = {"ot", "geomloss", "sklearn", "matplotlib", "jinja2", "PIL", "pandas"}
    code = f"import sys, trace, trace.report; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).strip() == "[]"
