"""What several runs need, computed by whoever comes first and found by the others, by the content of its key.

A file is ``KIND/DIGEST.pt`` with key and value, sealed by a checksum; it appears whole, the first one stays, one
that was damaged is computed again.
"""

import hashlib
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from .leases import leased, store_once

Value = TypeVar("Value")

_DIGEST = 64
"""Bytes of a checksum, which stand before what is sealed."""


def shared(
    folder: Path, kind: str, key: Mapping[str, Any], compute: Callable[[], Value], *, classes: Sequence[type] = ()
) -> Value:
    """The value that belongs to a key, from the store or computed now.

    Args:
        folder: the store, the same for all runs that share.
        kind: what it is, such as ``source-model``: the name of its folder.
        key: plain values, everything that decides the value.
        compute: makes tensors, plain values, and records of them.
        classes: of those records, which are read back; no other class is.
    """
    name = hashlib.sha256(json.dumps([kind, key], sort_keys=True).encode()).hexdigest()[:16]
    path = folder / kind / f"{name}.pt"
    payload = unsealed(path)
    if payload is None:
        with leased(path.with_suffix(".lease"), waiting=f"another process computes {kind} {name}"):
            payload = unsealed(path) or _computed(path, key, compute, classes)
    return _value(payload, classes)


def _computed(path: Path, key: Mapping[str, Any], compute: Callable[[], Any], classes: Sequence[type]) -> bytes:
    """Compute, store and read back: what the first run gets is what all others will read."""
    if path.exists():
        print(f"{path} was damaged and is computed again", file=sys.stderr)
        path.unlink()
    content = sealed({"key": dict(key), "value": compute()})
    _value(content[_DIGEST:], classes)
    store_once(path, content)
    return unsealed(path) or content[_DIGEST:]


def sealed(content: Mapping[str, Any]) -> bytes:
    """Tensors and plain values as bytes, behind their checksum."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    payload = buffer.getvalue()
    return _digest(payload) + payload


def unsealed(path: Path) -> bytes | None:
    """What was sealed in a file, for ``torch.load``; None where there is none, or its checksum is another."""
    content = path.read_bytes() if path.exists() else b""
    digest, payload = content[:_DIGEST], content[_DIGEST:]
    return payload if digest == _digest(payload) else None


def tensor_digest(*tensors: Tensor) -> str:
    """SHA-256 over types, shapes and bytes."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        total.update(tensor.contiguous().cpu().numpy().tobytes())
    return total.hexdigest()


def _value(payload: bytes, classes: Sequence[type]) -> Any:
    with torch.serialization.safe_globals(list(classes)):
        return torch.load(io.BytesIO(payload), weights_only=True)["value"]


def _digest(payload: bytes) -> bytes:
    return hashlib.sha256(payload).hexdigest().encode()
