"""Which bytes a file holds."""

import hashlib
from pathlib import Path


def sha256(path: Path) -> str:
    """Checksum of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
