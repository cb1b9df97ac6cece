"""Every notebook runs from beginning to end, in a copy, and is committed without outputs."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
NAMES = ["tour", "add_world", "gate_update", "read_results"]
EXPECTED = {
    "tour": "of the predictions on the anchor change",
    "add_world": "the core bound held",
    "gate_update": "labels: on this file of 400 rows the risk changes by at most 0.02",
    "read_results": "moons_warp",
}
"""Words that the notebook prints."""


def read(name):
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)


@pytest.fixture(scope="module")
def fonts(tmp_path_factory):
    """matplotlib's folder with its font cache: on a busy machine building one is said on stderr."""
    folder = tmp_path_factory.mktemp("mpl")
    build = [sys.executable, "-c", "import matplotlib.font_manager"]
    subprocess.run(build, env={**os.environ, "MPLCONFIGDIR": str(folder)}, check=True, capture_output=True)
    return folder


@pytest.fixture
def copy(tmp_path, monkeypatch, fonts):
    """A folder that looks like the root, in which notebooks may write."""
    for name in ("trace", "experiments", "results"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("notebooks", "home"):
        (tmp_path / name).mkdir()
    for variable, folder in (("IPYTHONDIR", "ipython"), ("JUPYTER_RUNTIME_DIR", "jupyter")):
        monkeypatch.setenv(variable, str(tmp_path / "home" / folder))
    monkeypatch.setenv("MPLCONFIGDIR", str(fonts))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path


def test_all_are_tested():
    assert sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb")) == sorted(NAMES)
    assert all(f"`{name}.ipynb`" in (ROOT / "notebooks" / "README.md").read_text() for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_is_short_and_has_no_outputs(name):
    cells = read(name).cells
    assert len(cells) <= 12
    for cell in cells:
        assert cell.cell_type in ("markdown", "code")
        if cell.cell_type == "code":
            assert cell.outputs == [], f"{name}: clear the outputs"
            assert cell.execution_count is None, f"{name}: clear the outputs"
    assert cells[1] == {**read(NAMES[0]).cells[1], "id": cells[1].id}, "all begin with the same cell"


@pytest.mark.parametrize("name", NAMES)
def test_runs(name, copy):
    notebook = read(name)
    client = NotebookClient(notebook, timeout=180, kernel_name="python3", resources={"metadata": {"path": str(copy)}})
    client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert EXPECTED[name] in "".join(output.text for output in outputs if output.output_type == "stream")
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == (name in ("tour", "read_results"))
    assert (copy / "build" / "gate_update.html").exists() == (name == "gate_update")


@pytest.mark.parametrize("folder", [".", "notebooks"])
def test_the_first_cell_finds_our_trace(folder, copy):
    """Even where the standard library's was imported before."""
    code = f"import trace\n{read('tour').cells[1].source}\nimport trace.diagnostic\nprint(trace.diagnose.__name__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=copy / folder, capture_output=True, text=True, check=True
    )
    assert done.stdout == "diagnose\n"
