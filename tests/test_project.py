"""The ground the project stands on: pins, the installed wheel, the layout."""

import ast
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

COMMAND_LINE = ("tool", "io", "__main__.py")
"""The only parts of the library that see paths and options."""


def pins():
    lines = (line.split("#")[0].strip() for line in (ROOT / "requirements.txt").read_text().splitlines())
    return [Requirement(line) for line in lines if line]


def locked():
    """The entries of the lock, each with the hashes of its files."""
    lines = [
        line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.lstrip().startswith("#")
    ]
    entries = "\n".join(lines).replace("\\\n", "").splitlines()
    return [(Requirement(entry.split("--hash=")[0]), entry.split("--hash=")[1:]) for entry in entries]


def test_the_lock_is_that_of_the_pins():
    versions = {}
    for entry, hashes in locked():
        (spec,) = entry.specifier
        assert spec.operator == "=="
        assert entry.url is None
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", value.strip()) for value in hashes), entry
        versions.setdefault(canonicalize_name(entry.name), set()).add(spec.version)
    for pin in pins():
        assert versions[canonicalize_name(pin.name)] == {spec.version for spec in pin.specifier}, f"{pin}: make lock"


def test_the_lock_is_closed():
    """Whatever an installed package of the lock needs here is in the lock, in a version that it takes."""
    here = {canonicalize_name(e.name): e for e, _ in locked() if e.marker is None or e.marker.evaluate()}
    installed = {canonicalize_name(package.name) for package in importlib.metadata.distributions()}
    needed = 0
    for name in here.keys() & installed:
        for line in importlib.metadata.requires(name) or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed += 1
                (spec,) = here[canonicalize_name(requirement.name)].specifier
                assert requirement.specifier.contains(spec.version, prereleases=True), f"{name} needs {line}"
    assert needed > len(here.keys() & installed)


def test_no_address_decides_where_packages_come_from():
    for name in ("requirements.txt", "requirements.lock", "environment.yml", "Makefile", ".ci/run", ".ci/fresh"):
        text = (ROOT / name).read_text()
        assert "://" not in text, name
    options = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if line.startswith("-")]
    assert options == []


def test_conda_installs_the_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["dependencies"] == ["python=3.11", "pip", {"pip": ["-r requirements.lock"]}]


def test_images_install_the_lock():
    """The files that both recipes copy exist, are let through to Docker, and are all that `make setup` reads."""
    docker, apptainer = ((ROOT / "slurm" / name).read_text() for name in ("Dockerfile", "trace.def"))
    (copied,) = re.findall(r"^COPY (.+) \./$", docker, re.MULTILINE)
    assert re.findall(r"^    (\S+) /opt/trace/\1$", apptainer, re.MULTILINE) == copied.split()
    allowed = (ROOT / "slurm" / "Dockerfile.dockerignore").read_text().split()
    assert allowed == ["*", *(f"!{name}" for name in copied.split())]
    assert all((ROOT / name).is_file() for name in copied.split())
    assert re.findall(r"^F(?:ROM|rom:) (\S+)$", docker + apptainer, re.MULTILINE) == ["python:3.11-slim"] * 2
    assert "RUN make setup OMIT=none\n" in docker
    assert "make --directory /opt/trace setup OMIT=none\n" in apptainer


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


def tiny_wheel(folder, name):
    """A package of one module, and its entry in a lock."""
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(f"{name}.py", "")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return f"{name}==1.0 \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def test_setup_installs_the_lock_once(tmp_path):
    """The real Makefile with a lock of two packages: hashes decide, triton is left out, a second call does nothing."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    lock = tmp_path / "requirements.lock"
    wanted, omitted = tiny_wheel(tmp_path, "petal"), tiny_wheel(tmp_path, "triton")
    local = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(tmp_path)}
    uv = Path(sys.executable).with_name("uv")

    def make(*arguments):
        command = ["make", *arguments, f"UV={uv}"]
        return subprocess.run(
            command, cwd=tmp_path, env={**os.environ, **local}, capture_output=True, text=True, check=False
        )

    right = f"PYTHON={sys.executable}"
    lock.write_text(f"{wanted[:-9]}deadbeef\n{omitted}")
    done = make("setup", right)
    assert done.returncode != 0
    assert "hash" in done.stderr.lower()
    lock.write_text(wanted + omitted)
    done = make("setup", right)
    assert done.returncode == 0, done.stderr
    (site,) = (tmp_path / ".venv" / "lib").glob("python*/site-packages")
    assert (site / "petal.py").exists()
    assert not (site / "triton.py").exists()
    assert (site / "petal-1.0.dist-info" / "INSTALLER").read_text().strip() == "uv"
    assert make("--question", "setup", right).returncode == 0
    lock.touch()
    assert make("setup", right, "OMIT=none").returncode == 0
    assert (site / "triton.py").exists()
    later = (tmp_path / ".venv" / ".installed").stat().st_mtime + 10
    os.utime(lock, (later, later))
    assert make("--question", "setup", right).returncode == 1
    assert "Python 3.11 or newer is needed" in make("setup", "PYTHON=false").stdout


def test_setup_takes_torch_from_the_index_that_is_named(tmp_path):
    """Its hashes are not those of the lock, so that the entry of the lock, here one that nobody has, is left out."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    page = tmp_path / "index" / "torch"
    page.mkdir(parents=True)
    entry = tiny_wheel(page, "torch")
    (page / "index.html").write_text("<a href='torch-1.0-py3-none-any.whl'>torch-1.0-py3-none-any.whl</a>")
    nowhere = entry.replace("torch", "nvidia-nowhere")
    (tmp_path / "requirements.lock").write_text(entry[:-9] + "deadbeef\n" + nowhere + tiny_wheel(tmp_path, "petal"))
    (tmp_path / "requirements.txt").write_text("torch==1.0     # tensors\npetal==1.0\n")
    local = {"PIP_CONFIG_FILE": os.devnull, "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(tmp_path)}
    chosen = [
        f"PYTHON={sys.executable}",
        f"UV={Path(sys.executable).with_name('uv')}",
        f"TORCH_INDEX={page.parent.as_uri()}",
    ]
    subprocess.run(["make", "setup", *chosen], cwd=tmp_path, env={**os.environ, **local}, check=True)
    (site,) = (tmp_path / ".venv" / "lib").glob("python*/site-packages")
    assert {path.stem for path in site.glob("[tp]*.py")} == {"torch", "petal"}


def test_citation_names_the_authors():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["preferred-citation"]["title"] == citation["title"]
    assert [a["family-names"] for a in citation["authors"]] == ["Anjidani", "Tehrani", "Mojahedian", "Yassaee"]
    assert citation["version"] == PYPROJECT["project"]["version"]


def test_a_command_starts_without_what_it_may_not_need():
    """POT takes as long to import as torch, timm longer."""
    heavy = {"ot", "geomloss", "sklearn", "scipy.stats", "matplotlib", "jinja2", "PIL", "pandas", "timm"}
    library = f"import sys, trace.tool.cli, trace.report; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", library], cwd=ROOT, text=True).strip() == "[]"
    study = "import sys, experiments.gate; print('timm' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", study], cwd=ROOT, text=True).strip() == "False"


def test_actions_are_pinned_by_digest():
    """A tag can be moved, a digest cannot; the tag stands beside it."""
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert {path.stem for path in workflows} >= {"site", "test"}
    for path in workflows:
        assert yaml.safe_load(path.read_text())["jobs"]
        for line in re.findall(r"uses: (.*)", path.read_text()):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line), f"{path.name}: {line}"
