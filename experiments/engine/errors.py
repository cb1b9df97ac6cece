"""Mistakes that a user can mend: the command line prints their sentence alone, anything else keeps its traceback."""

from __future__ import annotations


class UserError(ValueError):
    """One sentence that names the culprit and the remedy."""


class MissingFileError(UserError, FileNotFoundError):
    """A file that another command has to write first."""


class MissingRecordsError(UserError):
    """Records of a profile that was not run."""
