"""TorchScript and torch.export files, and what they may execute.

A TorchScript file holds a program in a language of its own, which torch's interpreter runs; unlike a pickle it cannot
import Python. It can read and write files (``torch.save``, ``torch.from_file``) and call operators of other libraries,
so its source is looked through for these before anything is loaded. A torch.export file is a graph, but
``torch.export.load`` unpickles parts of it and evaluates expressions, so it is code like any pickle.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from pathlib import Path

import torch
from torch import nn

from .errors import ToolError, first_line

_SUSPECT = re.compile(r"\b(save|from_file|classes)\b|\bops\s*\.\s*(?!(?:prim|aten|quantized)\b)(\w+)")
_SAVE = "save the model with torch.jit.script(model).save(path)"
_TRUST = "pass --trust if you know where the file comes from"


def load_torchscript(path: Path, *, trust: bool) -> nn.Module:
    """A TorchScript module on the CPU.

    Raises:
        ToolError: where the file is no TorchScript, or its program uses files or foreign operators without ``trust``.
    """
    found = suspect_operations(path)
    if found and not trust:
        raise ToolError(
            f"{path} holds a program that uses {', '.join(found)}, so it can do more than compute: {_TRUST}"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch.export is to replace TorchScript
            return torch.jit.load(path, map_location="cpu")
    except Exception as error:
        raise ToolError(
            f"{path} is no TorchScript file ({first_line(error)}): {_SAVE}, or name its code as module:function"
        ) from error


def suspect_operations(path: Path) -> list[str]:
    """Names in a TorchScript program that reach beyond tensors: files, custom classes, operators of other libraries."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [entry.filename.lower() for entry in archive.infolist()]
            sources = [entry for entry in archive.infolist() if entry.filename.lower().endswith(".py")]
            text = "\n".join(archive.read(entry).decode("utf-8", errors="replace") for entry in sources)
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:
        raise ToolError(f"{path} is no TorchScript file ({first_line(error)}): {_SAVE}") from error
    if not sources:
        raise ToolError(
            f"{path} holds no TorchScript program; it may be a state_dict: {_SAVE}, or "
            "give timm:ARCH@FILE or module:function"
        )
    if len(set(names)) < len(names):  # torch may run another entry than the one that was read here
        twice = next(name for name in names if names.count(name) > 1)
        raise ToolError(f"{path} holds {twice} more than once, so it is not clear which is run: {_SAVE}")
    return sorted({match[1] or f"ops.{match[2]}" for match in _SUSPECT.finditer(text)})


def load_exported(path: Path, *, trust: bool) -> nn.Module:
    """The module of a torch.export file, which must have been exported with a dynamic first dimension.

    Raises:
        ToolError: without ``trust``, or where the file cannot be read.
    """
    if not trust:
        raise ToolError(
            f"{path} is read by torch.export.load, which unpickles parts of it and so can run code: {_TRUST}"
        )
    try:
        return torch.export.load(path).module()
    except Exception as error:
        raise ToolError(f"{path} is no readable torch.export file ({first_line(error)}): export it again") from error
