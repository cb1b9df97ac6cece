"""The experiments and the configs each of them has.

python -m experiments list
"""

import argparse
import ast
from pathlib import Path

from ..engine.config import CONFIGS, variants

HERE = Path(__file__).resolve().parents[1]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", type=Path, default=HERE, help="where the modules are (default: experiments/)")
    parser.add_argument("--configs", type=Path, default=CONFIGS, help="where their YAML files are (default: configs/)")


def main(arguments: argparse.Namespace) -> None:
    lines = [
        f"{name:12}{summary}\n{'':12}config: {', '.join(known) or 'defaults only'}"
        for name, summary, known in catalogue(arguments.folder, arguments.configs)
    ]
    print("\n".join(lines) or "no experiments yet: add a module with a dataclass Config and a function run")


def catalogue(folder: Path = HERE, configs: Path = CONFIGS) -> list[tuple[str, str, list[str]]]:
    """Name, first line of the docstring, and variants; read from the sources, nothing is imported."""
    found = []
    for path in sorted(folder.glob("[!_]*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        if {"Config", "run"} <= names:
            summary = (ast.get_docstring(tree) or "").split("\n")[0]
            found.append((path.stem, summary, variants(path.stem, configs=configs)))
    return found
