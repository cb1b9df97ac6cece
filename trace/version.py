"""Which release of the library this is."""

from importlib import metadata


def own_version() -> str:
    """The installed package's version; a source tree has none.

    >>> own_version()
    'from its source tree'
    """
    if not __name__.startswith("trace_shift"):
        return "from its source tree"
    try:
        return metadata.version("trace-shift")
    except metadata.PackageNotFoundError:
        return "not installed as a package"
