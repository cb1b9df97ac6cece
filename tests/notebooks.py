"""The notebooks and their outputs: `make notebooks` runs them all and stores what they print, draw and show.

What is stored depends on code, records and seeds alone: one thread, no times, no version of the kernel. Nothing is
stored where a notebook fails or says something on stderr.
"""

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def read(name: str) -> NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def executed(name: str, folder: Path) -> NotebookNode:
    """The notebook with new outputs, run in ``folder``."""
    notebook = read(name)
    metadata = notebook.metadata.copy()
    client = NotebookClient(
        notebook,
        timeout=180,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env={**os.environ, "OMP_NUM_THREADS": "1"})
    notebook.metadata = metadata
    return notebook


def main(names: list[str]) -> int:
    import matplotlib.font_manager  # noqa: F401 - builds its cache here, where it may say so

    for name in names or NAMES:
        notebook = executed(name, FOLDER)
        said = [
            output.text for cell in code_cells(notebook) for output in cell.outputs if output.get("name") == "stderr"
        ]
        if said:
            print(f"{name}: not stored, as it says on stderr: {said[0]}", file=sys.stderr)
            return 1
        nbformat.write(notebook, FOLDER / f"{name}.ipynb")
        print(f"{name}: {(FOLDER / f'{name}.ipynb').stat().st_size // 1024} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
