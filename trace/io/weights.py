"""Tensors of a weights file, and their copy into a network once every name and shape was compared."""

import io
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from .archives import file_kind
from .errors import MissingFileError, UserError, explain, require
from .opened import FileBytes, read_bytes


def read_weights(path: Path, *, remedy: str = "name an existing file") -> dict[str, Tensor]:
    """The tensors of a .safetensors or .pth file on the CPU, without unpickling anything else.

    ``remedy`` ends the sentence about an absent file.

    Raises:
        MissingFileError: where there is no such file.
        UserError: as `weights_of`.
    """
    try:
        return weights_of(read_bytes(path))
    except MissingFileError as error:
        raise MissingFileError(f"the weights {path} do not exist: {remedy}") from error


def weights_of(file: FileBytes) -> dict[str, Tensor]:
    """The tensors of a file that was read; torchvision's and timm's nesting below ``state_dict`` is undone.

    Raises:
        UserError: where it is damaged, or holds something else.
    """
    with (
        explain(
            f"{file.path} holds no readable weights",
            "fetch the file, or save the state_dict of the network and not the network itself",
        ),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", UserWarning)  # about files that are then refused
        if file_kind(file) == "safetensors":
            found = require("safetensors.torch", purpose=f"reading {file.path.name}").load(file.data)
        else:
            found = torch.load(io.BytesIO(file.data), map_location="cpu", weights_only=True)
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise UserError(f"{file.path} is no dictionary of tensors: save the model's state_dict")
    return found


def copy_weights(model: nn.Module, tensors: Mapping[str, Tensor], *, origin: str | Path, arch: str) -> None:
    """Load ``tensors`` into ``model``; old files may lack the counters of batch normalisation.

    Raises:
        UserError: with the first tensor of another name or shape; nothing is copied then.
    """
    own = model.state_dict()
    given = dict(tensors)
    remedy = "take the architecture that the file was saved from"
    for name, tensor in own.items():
        if name not in given and name.endswith("num_batches_tracked"):
            given[name] = tensor
        elif name not in given:
            raise UserError(f"{origin} has no tensor {name}, which {arch} needs: {remedy}")
        elif given[name].shape != tensor.shape:
            raise UserError(
                f"{name} has shape {list(given[name].shape)} in {origin} and {list(tensor.shape)} in {arch}: {remedy}"
            )
    if (unknown := next((name for name in given if name not in own), None)) is not None:
        raise UserError(f"{origin} has a tensor {unknown} that {arch} does not: {remedy}")
    model.load_state_dict(given)
