"""Every hostile file of `attacks.py` meets the tool: no code runs, nothing wrong is accepted, one sentence is said."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .attacks import ATTACKS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def outcomes():
    """All of them in one process, which forks for each: half of the time is spent on importing torch once."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.trace.attacks", "--json"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return {each["name"]: each for each in json.loads(done.stdout)}


@pytest.mark.parametrize("name", ATTACKS)
def test_the_attack_is_held(outcomes, name):
    assert outcomes[name]["held"], outcomes[name]["why"]
