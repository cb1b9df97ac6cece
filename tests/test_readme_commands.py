"""The commands of every README, executed in a copy of the repository: as printed where that takes seconds, else small.

What a test cannot run says in its comment what it needs: a GPU, DomainNet, conda or the network.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from experiments.commands.reproduce import STEPS
from experiments.engine.leases import leased
from experiments.fetch.npm import npm_command
from tests import readmes
from tests.experiments.vision.trees import DOMAINS, domainnet_tree
from tests.readmes import EXPERIMENTS, ROOT
from tests.requirements import lacking

STAND_IN = ("data emoji", "figures --only contact-sheet")
"""Executed as printed where the npm registry answers: the images are those of the committed records."""

SMALL = {
    "run": "config=smoke",
    "benchmark": "--profile smoke --records small-records",
}
"""What is added to a command that would take minutes."""

AFTER = dict.fromkeys(("compare", "collect", "status active"), "run ridge config=smoke seed=9 wandb=off")
"""What a command reads; runs of the lines above are those of other tests."""

LOGGED = "ridge"
"""Logs to W&B, offline, as all of them would; a run waits two seconds for it."""

IMAGES = ("embedding", "active", "gate", "anchoring", "labels")


def commands():
    """Every command of `python -m experiments`, on any page, those with placeholders left out."""
    own = [c._replace(line=c.line.removeprefix(EXPERIMENTS)) for c in readmes.commands() if EXPERIMENTS in c.line]
    return [command for command in own if not re.search(r"\b(EXPERIMENT|DIR|NAME)\b", command.line)]


def executed():
    """Those that run here, in their order and each once; `reproduce` is its steps, which are among them."""
    plain = [command.line for command in commands() if not command.needs]
    return [line for line in dict.fromkeys(plain) if line not in ("reproduce", *STAND_IN)]


def small(line, data):
    """The command at a scale of seconds."""
    name, *rest = line.split()
    words = [name, *(word for word in rest if not word.startswith("config="))] if name == "run" else line.split()
    words += [] if "--dry-run" in line else SMALL.get(name, "").split()
    second = name == "run" and ("config=controls" in line or "labels config=acs" in line)
    words += ["seed=1"] if second else []  # another run than that of the experiment's first line
    words += ["test_size=1000"] if "world=" in line else []
    words += ["wandb=off"] if name == "run" and words[1] != LOGGED else []
    return [*words, f"data={data}"] if name == "run" and words[1] in IMAGES else words


class Checkout(NamedTuple):
    """A git checkout of the working tree, and what its commands need."""

    folder: Path
    data: Path
    """Of small images in DomainNet's layout."""
    environment: dict[str, str]

    def call(self, *words, **environment):
        """The command's output; its failure is the test's."""
        done = subprocess.run(
            [sys.executable, "-m", "experiments", *words],
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    """One for all workers of a test run: whoever comes first makes it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "readme"
    copy, page, whole = folder / "checkout", folder / "small.yaml", folder / "whole"
    with leased(folder / "lease", waiting="another worker makes the checkout"):
        if not whole.exists():
            make_checkout(copy)
            domainnet_tree(folder / "tree", per_class=6)
            page.write_text(f"name: small\nroot: {folder / 'tree'}\ndomains: [{', '.join(DOMAINS)}]\n")
            whole.touch()
    return Checkout(copy, page, {**os.environ, "TRACE_DATA": str(folder / "data"), "WANDB_MODE": "offline"})


def make_checkout(folder):
    ignored = (".git", ".venv", "runs", "images", "build", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*ignored))
    author = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for command in (["init", "--quiet"], ["add", "."], [*author, "commit", "--quiet", "--message", "copy"]):
        subprocess.run(["git", *command], cwd=folder, check=True)


def test_the_readmes_show_all_kinds_of_commands():
    assert len(executed()) >= 15
    assert {line.split()[0] for line in executed()} >= {"run", "compare", "collect", "status", "tables", "figures"}


def cases():
    """Those that need the same runs stay on one worker."""
    together = pytest.mark.xdist_group("reads runs")
    return [pytest.param(line, marks=together) if line in AFTER else line for line in executed()]


@pytest.mark.parametrize("line", cases())
def test_a_command_runs(checkout, line):
    """Every one by itself and in any order: what reads runs has some of its own."""
    if line in AFTER:
        checkout.call(*AFTER[line].split())
    said = checkout.call(*small(line, checkout.data))
    if line.startswith("run ") and "--dry-run" not in line:
        assert re.search(r"[1-9]\d* computed", said), said
    if line == "compare":
        assert "ridge" in {row.split()[0] for row in said.splitlines() if row.strip()}


def test_the_stand_in_is_built_and_shown(checkout, tmp_path):
    registry = subprocess.run([*npm_command(), "ping"], capture_output=True, text=True, check=False)
    if registry.returncode:
        reason = "the npm registry does not answer, and the stand-in is made of its packages"
        lacking(reason, required_by="TRACE_REQUIRE_NPM")
    for line in STAND_IN:
        assert line in [command.line for command in commands()]
        checkout.call(*line.split(), TRACE_DATA=str(tmp_path))
    assert {len(list((tmp_path / "emoji-1" / name).rglob("*.png"))) for name in DOMAINS} == {1429}
    assert list((checkout.folder / "results" / "images").glob("contact-sheet*.png"))


def test_steps_of_reproduce_and_recipes_of_make_are_commands_of_a_readme():
    printed = [command.line for command in commands()]
    for step in STEPS:
        assert step.command in printed, f"no README shows: {step.command}"
    for target in ("reproduce", "tables"):
        call = ["make", "--dry-run", "--old-file=setup", target]
        recipe = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for line in re.findall(r"bin/python -m experiments (.*)", recipe):
            assert line in printed, line
