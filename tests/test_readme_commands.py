"""The README's commands, executed in a copy of the repository: as printed where that takes seconds, else small.

What a test cannot run says in its comment what it needs: a GPU, DomainNet, conda or the network.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.commands.reproduce import STEPS
from experiments.vision.fetch.npm import npm_command
from tests.experiments.vision.trees import DOMAINS, domainnet_tree
from tests.requirements import lacking

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PREFIX = "python -m experiments "
NEEDS = re.compile(r"needs (DomainNet|conda|a W&B login)")
STAND_IN = ("data emoji", "figures --only contact-sheet")
"""Executed as printed where the npm registry answers: the images are those of the committed records."""

SMALL = {
    "run": "config=smoke",
    "benchmark": "--profile smoke --records small-records",
}
"""What is added to a command that would take minutes."""

SETUP = 4
"""Minutes of `make setup`, which `make reproduce` begins with."""

IMAGES = ("embedding", "active", "gate", "anchoring")


def commands():
    """Every line of `python -m experiments` with its comment; those with placeholders left out."""
    lines = [line.removeprefix(PREFIX) for line in README.splitlines() if line.startswith(PREFIX)]
    return [line.partition("#")[::2] for line in lines if not re.search(r"\b(EXPERIMENT|DIR|NAME)\b", line)]


def executed():
    """Those that run here, in the README's order and each once; `reproduce` is its steps, which are among them."""
    plain = [command.strip() for command, comment in commands() if not NEEDS.search(comment)]
    return [line for line in dict.fromkeys(plain) if line not in ("reproduce", *STAND_IN)]


def small(line, data):
    """The command at a scale of seconds."""
    name, *rest = line.split()
    words = [name, *(word for word in rest if not word.startswith("config="))] if name == "run" else line.split()
    words += [] if "--dry-run" in line else SMALL.get(name, "").split()
    words += ["seed=1"] if "config=controls" in line else []  # another run than that of the gate's own line
    return [*words, f"data={data}"] if name == "run" and words[1] in IMAGES else words


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A git checkout of the working tree, small data in DomainNet's layout beside it, and the environment to run in."""
    folder = tmp_path_factory.mktemp("readme")
    checkout, page = folder / "checkout", folder / "small.yaml"
    ignored = shutil.ignore_patterns(
        ".git", ".venv", "runs", "images", "build", "__pycache__", ".*_cache", ".hypothesis"
    )
    shutil.copytree(ROOT, checkout, ignore=ignored)
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for command in (["init", "--quiet"], ["add", "."], [*identity, "commit", "--quiet", "--message", "copy"]):
        subprocess.run(["git", *command], cwd=checkout, check=True)
    domainnet_tree(folder / "tree", per_class=6)
    page.write_text(f"name: small\nroot: {folder / 'tree'}\ndomains: [{', '.join(DOMAINS)}]\n")
    return checkout, page, {**os.environ, "TRACE_DATA": str(folder / "data"), "WANDB_MODE": "offline"}


def test_every_command_runs(copy):
    checkout, page, environment = copy
    said = {}
    for line in executed():
        call = [sys.executable, "-m", "experiments", *small(line, page)]
        done = subprocess.run(call, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(call[1:])}\n{done.stdout}\n{done.stderr}"
        said[line] = done.stdout + done.stderr
    assert len(said) >= 15
    for line, text in said.items():
        if line.startswith("run ") and "--dry-run" not in line:
            assert re.search(r"[1-9]\d* computed", text), f"{line}: {text}"
    compared = {line.split()[0] for line in said["compare"].splitlines() if line.strip()}
    assert {line.split()[1] for line in said if line.startswith("run ") and "--dry-run" not in line} <= compared


def test_the_stand_in_is_built_and_shown(copy, tmp_path):
    registry = subprocess.run([*npm_command(), "ping"], capture_output=True, text=True, check=False)
    if registry.returncode:
        reason = "the npm registry does not answer, and the stand-in is made of its packages"
        lacking(reason, required_by="TRACE_REQUIRE_NPM")
    checkout, _, environment = copy
    for line in STAND_IN:
        assert line in [command.strip() for command, _ in commands()]
        call = [sys.executable, "-m", "experiments", *line.split()]
        done = subprocess.run(call, cwd=checkout, env={**environment, "TRACE_DATA": str(tmp_path)},
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert {len(list((tmp_path / "emoji-1" / name).rglob("*.png"))) for name in DOMAINS} == {1429}
    assert list((checkout / "results" / "images").glob("contact-sheet*.png"))


def test_steps_of_reproduce_and_recipes_of_make_are_commands_of_the_readme():
    printed = [command.strip() for command, _ in commands()]
    for step in STEPS:
        assert step.command in printed, f"the README does not show: {step.command}"
    for target in ("reproduce", "tables"):
        recipe = subprocess.run(["make", "--dry-run", "--old-file=setup", target],
                                cwd=ROOT, capture_output=True, text=True, check=True).stdout  # fmt: skip
        for line in re.findall(r"bin/python -m experiments (.*)", recipe):
            assert line in printed, line
