"""Features of images, computed once and kept on disk.

A folder per key (images, architecture, weights, size, layer, preprocessing, precision, method) holds ``rows.npy``, the
key in clear, and how many rows are written with their checksum. Rows are appended, so an interrupted extraction goes on
where it stopped. Whatever does not agree with its key, its size or its checksum is computed again, with a line
that says so.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from trace.io.errors import explain
from trace.io.writing import write_atomically

from ..engine.errors import UserError
from ..engine.leases import leased
from ..engine.progress import batch_progress_bar
from .backbone import Backbone, folded
from .batches import Pictures, in_order
from .images import ImageSet, digest
from .precision import extraction_dtype, mixed_precision
from .rowfile import RowFile

Layer = Literal["penultimate", "maps"]

METHOD = "batch normalisation folded"
"""How the network is evaluated: what moves the last digits gets another name here, and caches are made anew."""

CPU_IMAGES = 4
"""At once through the network and a core: activations of 64 images leave its cache and take 1.7 times as long."""


def features(
    image_set: ImageSet,
    backbone: Backbone,
    *,
    cache: Path,
    batch_size: int = 64,
    workers: int = 0,
    device: str | torch.device = "cpu",
    layer: Layer = "penultimate",
) -> Tensor:
    """The features of all images in their order, memory-mapped; writing into them leaves the file alone.

    Args:
        backbone: on ``device``.
        workers: processes that read images ahead of a GPU. On a CPU every core reads and computes its own images.
        layer: ``penultimate``: pooled features ``[n, dim]``, float32, not normalised (``app:common-impl``).
            ``maps``: input of the last block ``[n, C, H, W]``, float16 (19 kB an image for EfficientNet-Lite0). All
            layers before it are frozen with their batch-norm statistics, so training the last block on maps is
            training it on the images, up to the rounding to 11 bits, which is the same for every model.

    Raises:
        UserError: for images that cannot be read, a full disk, or maps beyond the range of float16.
    """
    if not image_set.paths:
        raise UserError(
            f"{image_set.name} has no image of {image_set.domain} {image_set.split}: fetch or prepare it again"
        )
    network = backbone.model if layer == "penultimate" else backbone.trunk()
    key = cache_key(image_set, backbone, layer=layer, device=device)
    short = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    folder = cache / f"{image_set.name}-{layer}-{short}"
    waiting = f"{folder.name}: another process extracts these features"
    remedy = "free space or permissions, then call again; what is extracted is kept"
    with (
        explain(f"the cache {folder} cannot be written", remedy, OSError),
        leased(folder / "lease", waiting=waiting),
    ):
        row = _run(network, torch.zeros(1, 3, backbone.spec.size, backbone.spec.size), device)[0]
        shape = (len(image_set.paths), *row.shape)
        rows = RowFile(folder / "rows.npy", shape, np.dtype("float32" if layer == "penultimate" else "float16"))
        _begin(folder, key, rows)
        if rows.done < len(image_set.paths):
            pictures = Pictures.of(image_set, backbone, workers=workers)
            _extract(pictures, network, rows, batch_size=batch_size, device=device, label=folder.name)
        return torch.from_numpy(rows.mapped())


def cache_key(image_set: ImageSet, backbone: Backbone, *, layer: Layer, device: str | torch.device) -> dict[str, Any]:
    """Everything that decides the numbers, up to the order in which a device adds them."""
    return {
        "images": digest(image_set),
        "arch": backbone.spec.arch,
        "weights": backbone.digest,
        "size": backbone.spec.size,
        "layer": layer,
        "transform": repr(backbone.transform),
        "precision": "float32" if extraction_dtype(device) is None else "autocast",
        "method": METHOD,
    }


def _begin(folder: Path, key: dict[str, Any], rows: RowFile) -> None:
    """Find the rows that are whole, or start anew."""
    path, text = folder / "key.json", json.dumps(key, sort_keys=True, indent=1) + "\n"
    fault = "its key is another" if path.exists() and path.read_text(encoding="utf-8") != text else rows.resume()
    if fault is not None:
        print(f"the cache {folder} is computed again: {fault}", file=sys.stderr)
        rows.clear()
    write_atomically(path, text, sync=False)


def _extract(
    pictures: Pictures, network: nn.Module, rows: RowFile, *, batch_size: int, device: str | torch.device, label: str
) -> None:
    started, before, total = time.monotonic(), rows.done, len(pictures)
    batches = in_order(total, batch_size, start=before)
    outputs = _on_cores if torch.device(device).type == "cpu" else _on_device
    for found in batch_progress_bar(outputs(pictures, network, batches, device), total, label, "image", done=before):
        rows.append(_narrowed(found, rows.dtype))
    seconds = time.monotonic() - started
    print(f"{label}: {total - before} images in {seconds:.0f} s, {(total - before) / seconds:.1f} images/s")


def _on_device(
    pictures: Pictures, network: nn.Module, batches: list[Tensor], device: str | torch.device
) -> Iterator[Tensor]:
    """Outputs of each batch, by a GPU that several processes feed."""
    fast = folded(network, _noise(pictures).to(device))
    return (_run(fast, x, device) for x in pictures.stream(batches))


def _on_cores(
    pictures: Pictures, network: nn.Module, batches: list[Tensor], device: str | torch.device
) -> Iterator[Tensor]:
    """Outputs of each batch, by one thread a core that reads a few images and runs them through the network.

    Each of them computes alone, so the numbers do not depend on how many there are.
    """
    in_turn = replace(pictures, workers=0)
    fast = folded(network, _noise(pictures))

    def part(numbers: Tensor) -> Tensor:
        return _run(fast, next(in_turn.stream([numbers])), device)

    with _one_thread_each(), ThreadPoolExecutor(_num_cores()) as cores:
        for batch in batches:
            yield torch.cat(list(cores.map(part, batch.split(CPU_IMAGES))))


def _noise(pictures: Pictures) -> Tensor:
    """Two inputs of the network, of the size of the pictures."""
    size = pictures.transform(Image.new("RGB", (8, 8))).shape[1:]
    return torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))


def _num_cores() -> int:
    """That this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _one_thread_each() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@torch.inference_mode()
def _run(network: nn.Module, x: Tensor, device: str | torch.device) -> Tensor:
    """Outputs of one batch in float32 on the CPU; half precision inside on a GPU."""
    x = x.to(device=device, memory_format=torch.channels_last, non_blocking=True)
    with mixed_precision(device, extraction_dtype(device)):
        return network(x).float().cpu().contiguous()


def _narrowed(outputs: Tensor, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    found = outputs.contiguous().numpy()
    if dtype == np.float16 and np.abs(found).max(initial=0.0) > np.finfo(np.float16).max:
        raise UserError("the maps exceed the range of float16: fine-tune the head or the full network instead")
    return found.astype(dtype, copy=False)
