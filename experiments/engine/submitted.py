"""The code of a submission, kept beside the arrays: a queued job runs what was submitted, whatever changes meanwhile.

A tree is kept once, under the digest of its files, with the commit it was made from and the difference to it.
"""

import hashlib
import json
import os
import secrets
import shutil
from pathlib import Path

from trace.io.writing import write_atomically

from .records import ROOT, SUBMITTED, git, provenance

FOLDERS = ("trace", "experiments", "configs", "slurm", "tests")
"""What is kept where there is no git to say what belongs to the tree."""
MOST_BYTES = 2**20
"""Of a file of code; larger ones are data."""


def keep_tree(folder: Path, root: Path = ROOT) -> Path:
    """Copy a tree's code below ``folder``, unless it is there already; returns the copy."""
    files = code_files(root)
    digest = code_digest(files, root)
    kept = folder / digest[:16]
    if kept.exists():
        return kept
    aside = folder / f".{kept.name}.{secrets.token_hex(8)}"
    try:
        for path in files:
            target = aside / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
        origin = provenance()
        said = {"code_digest": digest, "root": str(root), **{key: origin[key] for key in ("git_commit", "git_dirty")}}
        write_atomically(aside / "diff.patch", (git("diff", "HEAD", "--binary") or "") + "\n")
        write_atomically(aside / SUBMITTED, json.dumps(said, indent=1, sort_keys=True) + "\n")
        os.rename(aside, kept)
    except OSError:
        if not kept.exists():  # it does where another launcher was faster
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return kept


def code_files(root: Path = ROOT) -> list[Path]:
    """The files of a tree but for results and data: those that git has or would add."""
    listed = git("ls-files", "--cached", "--others", "--exclude-standard") if root == ROOT else None
    if listed is None:
        found = [path for name in FOLDERS for path in (root / name).rglob("*") if "__pycache__" not in path.parts]
    else:
        found = [root / line for line in listed.splitlines() if not line.startswith(("results/", "notebooks/"))]
    return sorted(path for path in found if path.is_file() and path.stat().st_size <= MOST_BYTES)


def code_digest(files: list[Path], root: Path = ROOT) -> str:
    """SHA-256 over names and contents."""
    total = hashlib.sha256()
    for path in files:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return total.hexdigest()
