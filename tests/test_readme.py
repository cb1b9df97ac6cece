"""The README's Python runs as printed, and its commands exist."""

import re
from pathlib import Path

import pytest

from experiments.__main__ import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def test_python_blocks_run(capsys):
    namespace: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 4
    for block in blocks[1:3]:
        exec(compile(block, "README.md", "exec"), namespace)
    page = capsys.readouterr().out
    assert "covariate-shift penalty" in page
    assert namespace["diagnostic"].bound_core() > abs(namespace["diagnostic"].risk_change) > 0


def test_make_targets_exist():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for target in re.findall(r"^make ([a-z]+)", README, flags=re.MULTILINE):
        assert target in targets


@pytest.mark.parametrize("command", sorted(set(re.findall(r"python -m experiments ([a-z]+)", README))))
def test_commands_exist(command):
    assert command in COMMANDS


def test_links_to_files_exist():
    for name in re.findall(r"`((?:results|configs|tests|trace|slurm)/[a-z_./-]+\.\w+)`", README):
        assert (ROOT / name).exists(), name


def test_the_world_in_the_readme_is_the_whole_file():
    shown = README.split("<!-- world:begin -->")[1].split("<!-- world:end -->")[0]
    assert shown.strip() == f"```python\n{(ROOT / 'trace/worlds/scale_shift.py').read_text().strip()}\n```"
