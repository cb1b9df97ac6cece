"""Files appear whole or not at all, and JSON is strict."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from .errors import ToolError


def write(path: str, text: str) -> None:
    """Replace a file in one step; ``-`` is the standard output."""
    if path == "-":
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        return
    file = Path(path)
    if file.is_dir():
        raise ToolError(f"{path} is a folder: name a file to write")
    if not file.parent.is_dir():
        raise ToolError(f"the folder of {path} does not exist: make it first")
    descriptor, aside = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with open(descriptor, "w", encoding="utf-8") as out:
            out.write(text if text.endswith("\n") else text + "\n")
        os.chmod(aside, 0o644)
        os.replace(aside, file)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def strict_json(value: Any) -> str:
    """JSON as the standard has it: NaN and infinity become null.

    >>> strict_json({"a": float("nan"), "b": (1, 2.5)}).split()
    ['{', '"a":', 'null,', '"b":', '[', '1,', '2.5', ']', '}']
    """
    return json.dumps(_plain(value), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
