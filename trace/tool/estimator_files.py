"""scikit-learn estimators from skops files, and from pickles that somebody trusts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .errors import ToolError, first_line, require


def load_skops(path: Path, *, trust: bool) -> Any:
    """The estimator of a skops file, which names every type it holds before any is built.

    Raises:
        ToolError: where the file cannot be read, or holds types that skops does not know, without ``trust``.
    """
    library = require("skops.io", purpose=f"reading {path.name}")
    try:
        unknown: list[str] = library.get_untrusted_types(file=path)
    except Exception as error:
        raise ToolError(
            f"{path} is no readable skops file ({first_line(error)}): save it with skops.io.dump"
        ) from error
    if unknown and not trust:
        raise ToolError(
            f"{path} holds types that skops does not know ({', '.join(unknown)}): pass --trust if you know where the "
            "file comes from"
        )
    try:
        return library.load(path, trusted=unknown)
    except Exception as error:
        raise ToolError(
            f"{path} cannot be loaded ({first_line(error)}): use the scikit-learn version it was saved with"
        ) from error


def load_pickle(path: Path, *, trust: bool) -> Any:
    """The object of a pickle or joblib file.

    Raises:
        ToolError: without ``trust``, or where the file cannot be read.
    """
    if not trust:
        raise ToolError(
            f"{path} is a pickle, which can run any code when it is read: save the model with skops.io.dump, or pass "
            "--trust if you know where the file comes from"
        )
    import joblib

    try:
        return joblib.load(path)
    except Exception as error:
        raise ToolError(f"{path} cannot be loaded ({first_line(error)}): save it again with joblib.dump") from error
