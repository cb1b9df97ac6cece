"""Mistakes that a user can mend: the command line prints their sentence alone, anything else keeps its traceback."""

from trace.io.errors import MissingFileError, UserError

__all__ = ["MissingFileError", "MissingRecordsError", "UserError"]


class MissingRecordsError(UserError):
    """Records of a profile that was not run."""
