"""Where what is fetched stands."""

import os
from pathlib import Path


def data_home() -> Path:
    """Of data sets, packages and features: ``$TRACE_DATA``, or ``~/.cache/trace``."""
    return Path(os.environ.get("TRACE_DATA") or "~/.cache/trace").expanduser()
