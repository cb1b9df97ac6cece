"""Whether rows extend earlier ones: a digest of rows in their order, which the first rows of a longer file have too."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch

from .errors import UserError
from .rows import Part

HELD_OUT = ("source_val", "target_val", "anchor_test")
"""Samples whose rows a gate decides by."""


def rows_digest(part: Part, count: int) -> str:
    """SHA-256 of the first ``count`` rows: inputs, labels, saved outputs, groups, with their shapes and types."""
    found = hashlib.sha256()
    tensors = {"x": part.sample.x, "y": part.sample.y, **dict(sorted(part.saved.items()))}
    for name, tensor in tensors.items():
        if tensor is not None:
            rows = tensor[:count].detach().cpu().contiguous()
            found.update(f"{name} {list(rows.shape)} {rows.dtype}\n".encode())
            found.update(rows.view(torch.uint8).numpy().data if rows.numel() else b"")
    found.update(repr(part.sample.group and part.sample.group[:count]).encode())
    return found.hexdigest()


def digests(parts: Mapping[str, Part]) -> dict[str, dict[str, Any]]:
    """Of every held-out sample: its number of rows and their digest."""
    return {
        name: {"rows": len(part.names), "sha256": rows_digest(part, len(part.names))}
        for name, part in parts.items()
        if name in HELD_OUT
    }


def extends(parts: Mapping[str, Part], earlier: Mapping[str, Any]) -> bool:
    """Whether every held-out sample begins with the rows that ``earlier``, of `digests`, saw of it.

    Raises:
        UserError: for digests that are none.
    """
    try:
        seen = {name: (int(entry["rows"]), str(entry["sha256"])) for name, entry in earlier.items()}
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise UserError("the earlier record holds no digests of its rows: make it with diagnose --json") from error
    return all(
        name in parts and len(parts[name].names) >= n and rows_digest(parts[name], n) == digest
        for name, (n, digest) in seen.items()
    )
