"""Every notebook, run in a copy, says and shows what is committed with it."""

import html
import os
import re
import subprocess
import sys
from decimal import Decimal

import pytest

from tests.notebooks import FOLDER, NAMES, code_cells, executed, read

ROOT = FOLDER.parent
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]\d+)?(?!\w)")


def kinds(outputs):
    return [(output.output_type, output.get("name"), sorted(output.get("data", {}))) for output in outputs]


def visible(page):
    """The text of a page in a frame: without style, pictures and the versions that made it."""
    text = re.sub(r"(?s)<(style|svg)\b.*?</\1>|<[^>]*>", " ", html.unescape(page))
    return re.sub(r"\b(python|torch)\s+\d\S*", r"\1", html.unescape(text))


def texts(outputs):
    """What can be read in the outputs of a cell; of a picture, what stands for it."""
    shown = [output.get("data", {}) for output in outputs]
    plain = [output.get("text") or data["text/plain"] for output, data in zip(outputs, shown, strict=True)]
    return "\n".join([*plain, *(visible(data["text/html"]) for data in shown if "text/html" in data)])


def close(number, other):
    """Within 5% and two units of the last place that is printed: another processor rounds otherwise."""
    unit = 10.0 ** Decimal(number).as_tuple().exponent
    return abs(float(number) - float(other)) <= 0.05 * abs(float(number)) + 2 * unit


def differences(committed, found):
    """What the outputs of a cell do not share: their kinds, their words, or a number; empty where they agree."""
    if kinds(committed) != kinds(found):
        return [f"{kinds(committed)} became {kinds(found)}"]
    before, after = texts(committed), texts(found)
    words, new_words = (NUMBER.sub("#", text).split() for text in (before, after))
    if words != new_words:
        return [f"{' '.join(words)} became {' '.join(new_words)}"]
    pairs = zip(NUMBER.findall(before), NUMBER.findall(after), strict=True)
    return [f"{number} became {other}" for number, other in pairs if not close(number, other)]


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
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path


def test_all_are_listed():
    assert all(f"`{name}.ipynb`" in (FOLDER / "README.md").read_text() for name in NAMES)


def test_are_small():
    sizes = [(FOLDER / f"{name}.ipynb").stat().st_size for name in NAMES]
    assert max(sizes) < 1e6
    assert sum(sizes) < 1.5e6


@pytest.mark.parametrize("name", NAMES)
def test_is_committed_as_it_was_run(name):
    notebook = read(name)
    assert len(notebook.cells) <= 12
    assert {cell.cell_type for cell in notebook.cells} == {"markdown", "code"}
    assert all(cell.metadata == {} for cell in notebook.cells), "no times"
    assert notebook.metadata == read(NAMES[0]).metadata
    cells = code_cells(notebook)
    assert cells[0].source == code_cells(read(NAMES[0]))[0].source, "all begin with the same cell"
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), "make notebooks"
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs), "a picture in each"
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    assert not re.search(r"/(tmp|home|root|Users)/| at 0x", texts(outputs)), "no paths or addresses of a machine"


@pytest.mark.parametrize("name", NAMES)
def test_shows_what_is_committed(name, copy):
    committed, found = code_cells(read(name)), code_cells(executed(name, copy))
    new = {a.id: differences(a.outputs, b.outputs) for a, b in zip(committed, found, strict=True)}
    assert not any(new.values()), f"make notebooks, and look at what changed: { {k: v for k, v in new.items() if v} }"
    assert (copy / "build" / "gate_update.html").exists() == (name == "gate_update")


def test_differences_are_seen():
    """In a number, in a word, in the page that is shown, and where a picture is missing; not in a last place."""
    cells = {cell.id: cell.outputs for cell in code_cells(read("gate_update"))}
    printed, drawn, page = cells["gate-update-3"], cells["gate-update-5"], cells["gate-update-9"]

    def changed(outputs, old, new):
        text = str([dict(output) for output in outputs])
        assert old in text
        return [
            output.__class__(
                {**output, "text": output.text.replace(old, new)}
                if "text" in output
                else {**output, "data": {kind: data.replace(old, new) for kind, data in output.data.items()}}
            )
            for output in outputs
        ]

    assert differences(printed, printed) == differences(drawn, drawn) == differences(page, page) == []
    assert differences(printed, changed(printed, "16.0%", "16.1%")) == []
    assert differences(printed, changed(printed, "16.0%", "18.0%")) == ["16.0 became 18.0"]
    assert differences(printed, changed(printed, "+0.479", "-0.479")) == ["+0.479 became -0.479"]
    assert "hardly" in differences(printed, changed(printed, "changes", "hardly changes"))[0]
    assert "image/png" in differences(drawn, drawn[:1])[0]
    assert differences(page, changed(page, "limit 7%", "limit 70%")) == ["7 became 70"]


@pytest.mark.parametrize("folder", [".", "notebooks"])
def test_the_first_cell_finds_our_trace(folder, copy):
    """Even where the standard library's was imported before."""
    code = (
        f"import trace\n{code_cells(read('tour'))[0].source}\nimport trace.diagnostic\nprint(trace.diagnose.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=copy / folder, capture_output=True, text=True, check=True
    )
    assert done.stdout == "diagnose\n"
