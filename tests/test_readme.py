"""The Python of every README runs as printed, its commands exist, and each is run by a test or says what it needs."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.__main__ import COMMANDS, main
from experiments.engine.registry import summaries
from tests.readmes import EVERYTHING, EXPERIMENTS, PAGES, ROOT, blocks, commands, marked

TOOL = "trace/tool/README.md"
WORLD = "trace/worlds/README.md"
LIBRARY = "trace/README.md"


def own_python():
    """The Python of each page, but for what is compared with files or executed in a folder of its own below."""
    found = {page: blocks(text, "python") for page, text in PAGES.items()}
    return {page: code for page, code in found.items() if code and page not in (TOOL, WORLD)}


def test_the_readmes_are_found():
    assert {"README.md", "results/README.md", TOOL, WORLD, LIBRARY, "slurm/README.md"} < set(PAGES)
    assert len(PAGES["README.md"].splitlines()) <= 200
    assert set(own_python()) >= {LIBRARY, "trace/training/README.md", "experiments/arena/README.md"}


@pytest.mark.parametrize("page", own_python())
def test_python_blocks_run(page, capsys):
    namespace: dict[str, object] = {}
    for block in own_python()[page]:
        exec(compile(block, page, "exec"), namespace)
    if page == LIBRARY:
        assert "covariate-shift penalty" in capsys.readouterr().out
        assert namespace["diagnostic"].bound_core() > abs(namespace["diagnostic"].risk_change) > 0
    if page == "trace/training/README.md":
        namespace["loss"].backward()
        assert namespace["model"].weight.grad.abs().sum() > 0


@pytest.fixture(scope="module")
def clinics(tmp_path_factory):
    """A folder with the models and tables that the README makes."""
    folder = tmp_path_factory.mktemp("clinics")
    (code,) = blocks(marked(TOOL, "tool"), "python")
    assert "skops.io.dump" in code
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
    return folder


def test_labels_decide_as_the_readme_shows(clinics):
    shown = marked(TOOL, "label")
    ((commands,), (printed,)) = blocks(shown, "bash"), blocks(shown, "")
    assert len(commands.splitlines()) + len(printed.splitlines()) <= 10
    ours = commands.replace("trace-shift", f"{sys.executable} -m trace").replace("python -c", f"{sys.executable} -c")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", ours], cwd=clinics, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, printed), done.stderr


def test_the_tool_does_what_the_readme_shows(tmp_path):
    """From an empty folder; `python -m trace` stands for the installed `trace-shift`."""
    form = r"\s*```python\n(.*?)```\s*```bash\n(.*?)```\s*prints\s*```\n(.*?)```\s*"
    code, commands, printed = re.fullmatch(form, marked(TOOL, "tool"), flags=re.DOTALL).groups()
    script = tmp_path / "commands.sh"
    script.write_text("set -e\n" + commands.replace("trace-shift", f"{sys.executable} -m trace"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for call in ([sys.executable, "-c", code], ["bash", str(script)]):
        done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert done.stdout == printed
    assert not re.search("penalty", printed.splitlines()[0])
    assert "<html" in (tmp_path / "d.html").read_text()


def targets():
    return re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


def test_make_targets_exist():
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", EVERYTHING, flags=re.MULTILINE))
    assert named >= {"test", "reproduce", "tables", "site", "docs"}
    assert named <= set(targets())


def test_every_command_is_run_by_a_test_or_says_what_it_needs():
    """Those of `experiments` by `test_readme_commands.py`, those of the tool above, as its own page shows them."""
    walked = [line for name in ("tool", "label") for line in "".join(blocks(marked(TOOL, name), "bash")).splitlines()]
    assert len(walked) == 6
    words = [sorted(line.split()) for line in walked]  # a page may have the options in another order
    for command in commands():
        page, line, _ = command
        known = sorted(line.split()) in words or line.startswith(EXPERIMENTS) or command.needs
        known |= line.startswith("make ") and line.split()[1] in targets()
        assert known or re.fullmatch(r"export [A-Z_]+=\S+", line), f"{page}: no test runs `{line}`"


def test_no_command_hides_in_another_block():
    """What looks like one stands in a block that the tests read."""
    words = ("python -m", "trace-shift ", "make ", "pip ", "conda ", "sbatch ", "$ ")
    for page, text in PAGES.items():
        others = "".join(blocks(text, "")).splitlines()
        assert [line for line in others if line.startswith(words)] == [], page


@pytest.mark.parametrize("command", sorted(set(re.findall(r"python -m experiments ([a-z]+)", EVERYTHING))))
def test_commands_exist(command):
    assert command in summaries(COMMANDS)


def run_lines():
    """Every `run` of the READMEs without placeholders."""
    lines = {command.line.removeprefix(EXPERIMENTS) for command in commands()}
    return sorted(line for line in lines if line.startswith("run ") and not re.search("EXPERIMENT|NAME", line))


@pytest.mark.parametrize("line", run_lines())
def test_every_run_expands_to_a_grid(line, capsys, tmp_path):
    """The runs themselves take minutes, or need DomainNet and a GPU: their grids are made here as the command would."""
    main([*shlex.split(line), "--runs", str(tmp_path), *([] if "--dry-run" in line else ["--dry-run"])])
    assert re.search(r"^[0-9a-f]{12} missing", capsys.readouterr().out, flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_links_to_files_exist(page):
    """Names in code that begin with a room, and links of Markdown, with the headings that they point to."""
    folder = ROOT / Path(page).parent
    for name in re.findall(r"`((?:results|configs|tests|trace|slurm|notebooks)/[a-z_./-]+\.\w+)`", PAGES[page]):
        assert (ROOT / name).exists() or (folder / name).exists(), name
    for name, heading in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]*))?\)", PAGES[page]):
        assert (folder / name).exists(), name
        if heading:
            titles = re.findall(r"^#+ (.*)$", (folder / name).read_text(), flags=re.MULTILINE)
            assert heading in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles], heading


def test_the_world_in_the_readme_is_the_whole_file():
    shown = marked(WORLD, "world")
    assert shown.strip() == f"```python\n{(ROOT / 'trace/worlds/scale_shift.py').read_text().strip()}\n```"
    assert blocks(PAGES[WORLD], "python") == blocks(shown, "python")
