"""Text and JSON files, whole."""

import json
from pathlib import Path
from typing import Any

from .errors import MissingFileError, UserError


def read_json(path: Path, kind: str, maker: str) -> dict[str, Any]:
    """A JSON object of the given format."""
    try:
        record = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON ({error}): make it with {maker}") from error
    if not isinstance(record, dict) or record.get("format") != kind:
        raise UserError(f"{path} is not of the format {kind}: make it with {maker}")
    return record


def read_text(path: Path) -> str:
    """A text file whole."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise MissingFileError(f"{path} does not exist: check the path") from error
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder: name a file") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text in UTF-8: check the path, or convert it") from error
