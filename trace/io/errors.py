"""Mistakes that a user can mend, and packages that a user can install."""

import difflib
import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class UserError(ValueError):
    """One sentence that names the culprit and the remedy: a command line prints it alone, without a traceback."""


class MissingFileError(UserError, FileNotFoundError):
    """A file that is not where it was named, or that another command has to write first."""


_DISTRIBUTIONS = {"PIL": "pillow", "yaml": "PyYAML", "mlflow": "mlflow-skinny"}
"""What to install for a package of another name."""


def require(module: str, *, purpose: str) -> Any:
    """Import an optional package, or a module of it, when it is first needed.

    Raises:
        UserError: where it is not installed, with what to install.
    """
    package = module.split(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise
        name = _DISTRIBUTIONS.get(package, package)
        raise UserError(f"{purpose} needs the package {name}: pip install {name}") from error


@contextmanager
def explain(culprit: str, remedy: str, *errors: type[Exception]) -> Iterator[None]:
    """Make a UserError, ``CULPRIT (what happened): REMEDY``, of ``errors``, or of any; one that is a UserError stays.

    >>> with explain("page.csv is no table", "save it again", KeyError):
    ...     {}["label"]
    Traceback (most recent call last):
    trace.io.errors.UserError: page.csv is no table (KeyError: 'label'): save it again
    """
    kinds = errors or (Exception,)
    try:
        yield
    except UserError:
        raise
    except kinds as error:
        raise UserError(f"{culprit} ({first_line(error)}): {remedy}") from error


def suggestion(word: str, known: Iterable[str], otherwise: str, *, cutoff: float) -> str:
    """A remedy for a word that is not known: the one that was meant, if any is nearly the same, or ``otherwise``.

    >>> suggestion("treshold", ["score", "threshold"], "see --help", cutoff=0.5)
    'did you mean threshold?'
    """
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f"did you mean {near[0]}?" if near else otherwise


def first_line(error: BaseException) -> str:
    """The type of an exception and the line of its message that says what happened."""
    if not (lines := [line.strip() for line in str(error).splitlines() if line.strip()]):
        return type(error).__name__
    # TorchScript puts the traceback of its own source before the message.
    line = lines[-1] if "TorchScript" in lines[0] else lines[0]
    kind = type(error).__name__
    return line if line.startswith(f"{kind}: ") else f"{kind}: {line}"
