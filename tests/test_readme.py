"""The README's Python runs as printed, and its commands exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.__main__ import COMMANDS, main
from experiments.engine.registry import summaries

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def test_python_blocks_run(capsys):
    namespace: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    tool, *own, world = blocks
    assert "skops.io.dump" in tool
    assert world in (ROOT / "trace/worlds/scale_shift.py").read_text()
    for block in own:
        exec(compile(block, "README.md", "exec"), namespace)
    page = capsys.readouterr().out
    assert "covariate-shift penalty" in page
    assert namespace["diagnostic"].bound_core() > abs(namespace["diagnostic"].risk_change) > 0


@pytest.fixture(scope="module")
def clinics(tmp_path_factory):
    """A folder with the models and tables that the README makes."""
    folder = tmp_path_factory.mktemp("clinics")
    shown = README.split("<!-- tool:begin -->")[1].split("```python\n")[1].split("```")[0]
    subprocess.run([sys.executable, "-c", shown], cwd=folder, check=True)
    return folder


def test_labels_decide_as_the_readme_shows(clinics):
    shown = README.split("<!-- label:begin -->")[1].split("<!-- label:end -->")[0]
    commands, printed = re.findall(r"```\n(.*?)```", shown, flags=re.DOTALL)
    assert len(commands.splitlines()) + len(printed.splitlines()) <= 10
    ours = commands.replace("trace-shift", f"{sys.executable} -m trace").replace("python -c", f"{sys.executable} -c")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", ours], cwd=clinics, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, printed), done.stderr


def test_the_tool_does_what_the_readme_shows(tmp_path):
    """From an empty folder; `python -m trace` stands for the installed `trace-shift`."""
    shown = README.split("<!-- tool:begin -->")[1].split("<!-- tool:end -->")[0]
    block = r"```\n(.*?)```\s*"
    found = re.fullmatch(r"\s*```python\n(.*?)```\s*" + block + r"prints\s*" + block, shown, flags=re.DOTALL)
    code, commands, printed = found.groups()
    script = tmp_path / "commands.sh"
    script.write_text("set -e\n" + commands.replace("trace-shift", f"{sys.executable} -m trace"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for call in ([sys.executable, "-c", code], ["bash", str(script)]):
        done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert done.stdout == printed
    assert not re.search("penalty", printed.splitlines()[0])
    assert "<html" in (tmp_path / "d.html").read_text()


def test_make_targets_exist():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for target in re.findall(r"^make ([a-z]+)", README, flags=re.MULTILINE):
        assert target in targets


@pytest.mark.parametrize("command", sorted(set(re.findall(r"python -m experiments ([a-z]+)", README))))
def test_commands_exist(command):
    assert command in summaries(COMMANDS)


def run_lines():
    """Every `run` of the README without placeholders, up to its comment."""
    lines = re.findall(r"^python -m experiments (run .*?)(?:\s+#.*)?$", README, flags=re.MULTILINE)
    return sorted({line for line in lines if "EXPERIMENT" not in line and "NAME" not in line})


@pytest.mark.parametrize("line", run_lines())
def test_every_run_expands_to_a_grid(line, capsys, tmp_path):
    """The runs themselves take minutes, or need DomainNet and a GPU: their grids are made here as the command would."""
    main([*line.split(), "--runs", str(tmp_path), *([] if "--dry-run" in line else ["--dry-run"])])
    assert re.search(r"^[0-9a-f]{12} missing", capsys.readouterr().out, flags=re.MULTILINE)


def test_links_to_files_exist():
    for name in re.findall(r"`((?:results|configs|tests|trace|slurm)/[a-z_./-]+\.\w+)`", README):
        assert (ROOT / name).exists(), name


def test_the_world_in_the_readme_is_the_whole_file():
    shown = README.split("<!-- world:begin -->")[1].split("<!-- world:end -->")[0]
    assert shown.strip() == f"```python\n{(ROOT / 'trace/worlds/scale_shift.py').read_text().strip()}\n```"
