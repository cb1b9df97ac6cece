"""What several runs need, computed by whoever comes first and found by the others, by the content of its key.

A file is ``KIND/DIGEST.pt`` with the key, the value and their checksum; it appears whole, and one that was damaged is
computed again.
"""

import fcntl
import hashlib
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from trace.io.writing import replacement

Value = TypeVar("Value")


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
    with locked(path.with_suffix(".lock"), waiting=f"another process computes {kind} {name}"):
        content = path.read_bytes() if path.exists() else b""
        digest, payload = content[:64], content[64:]
        if digest == _digest(payload):
            return _value(payload, classes)
        if content:
            print(f"{path} was damaged and is computed again", file=sys.stderr)
        buffer = io.BytesIO()
        torch.save({"key": dict(key), "value": compute()}, buffer)
        payload = buffer.getvalue()
        value: Value = _value(payload, classes)
        with replacement(path) as aside:
            aside.write_bytes(_digest(payload) + payload)
        return value


def tensor_digest(*tensors: Tensor) -> str:
    """SHA-256 over types, shapes and bytes."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        total.update(tensor.contiguous().cpu().numpy().tobytes())
    return total.hexdigest()


@contextmanager
def locked(path: Path, *, waiting: str) -> Iterator[None]:
    """Hold a file; where another process holds it, say what it is waited for, and wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{waiting}, waiting for it", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _value(payload: bytes, classes: Sequence[type]) -> Any:
    """What the first run gets is what all others will read."""
    with torch.serialization.safe_globals(list(classes)):
        return torch.load(io.BytesIO(payload), weights_only=True)["value"]


def _digest(payload: bytes) -> bytes:
    return hashlib.sha256(payload).hexdigest().encode()
