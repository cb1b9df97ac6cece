"""A model from whatever holds it: the loader is chosen by what the file holds. What each kind can execute:

* scikit-learn by skops: types beyond those skops knows are listed and need ``--trust``. scikit-learn's own trees and
  forests need none: their nodes are checked.
* ``timm:ARCH@weights``: timm's code; the weights are tensors alone (safetensors, or torch's ``weights_only``).
* TorchScript, torch.export, pickles and joblib: programs, or files whose loader unpickles parts of them. They can run
  anything and need ``--trust``.
* a state dict: tensors alone, for the network of ``--arch module:function``, which is code and needs ``--trust``.
* ``module:function``: your own code from the import path or the current folder; naming it is your word for it.
"""

import difflib
import importlib
import io
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..estimators.gradient_quantile import Model, NoGradientError
from ..hardware import has_float64
from .archives import file_kind
from .errors import UserError, explain, first_line, require
from .images import Transform
from .opened import FileBytes, read_bytes
from .trees import load_estimator
from .weights import copy_weights, weights_of

_TRUST = "pass --trust if you know where the file comes from"
_SAFE = "save the model with skops.io.dump, or its state_dict for timm:ARCH@FILE"

FORMATS = (
    "scikit-learn (skops), timm:ARCH@weights.safetensors, module:function, or with --trust TorchScript, torch.export, "
    "a state dict (with --arch), pickle or joblib"
)


class NamedModel(nn.Module):
    """A model that takes inputs of any precision and names itself when it fails."""

    def __init__(
        self,
        inner: Any,
        name: str,
        *,
        classes: tuple[str, ...] | None = None,
        transform: Callable[[int | None], Transform] | None = None,
        columns: tuple[str, ...] | None = None,
        sha256: str = "",
        arch: str | None = None,
    ) -> None:
        """
        Args:
            classes: names by output, where the file holds them.
            transform: preprocessing of images at a size or at its own, where the model brings it.
            columns: those of a table in the model's order, where it knows their names.
            sha256: of the file; empty for code.
            arch: what made the network, for a state dict.
        """
        super().__init__()
        self.inner, self.name = inner, name
        self.classes, self.transform, self.columns = classes, transform, columns
        self.sha256, self.arch = sha256, arch

    def forward(self, x: Tensor) -> Tensor:
        own = next((p.dtype for p in self.parameters() if p.is_floating_point()), x.dtype)
        try:
            rows = self.inner(x.to(own))
        except NoGradientError:
            raise
        except Exception as error:
            raise UserError(
                f"{self.name} failed on inputs {list(x.shape)} of {own}: {first_line(error)}; give it the inputs it "
                "was made for"
            ) from error
        return rows.to(x.dtype) if isinstance(rows, Tensor) and rows.is_floating_point() else rows

    def layer(self, name: str) -> nn.Module:
        """The submodule of that name, whose outputs can be watched."""
        if isinstance(self.inner, torch.jit.ScriptModule):
            raise UserError(
                f"{self.name} is TorchScript, whose layers cannot be watched: use --features identity or saved, or "
                "give the model as module:function"
            )
        modules = dict(self.inner.named_modules()) if isinstance(self.inner, nn.Module) else {}
        if not name or name not in modules:
            known = [key for key in modules if key]
            shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "") if known else "none"
            raise UserError(f"{self.name} has no submodule {name!r}: name one of its own ({shown})")
        return modules[name]


class SavedOutputs(NamedModel):
    """In place of a model of which only the outputs were saved; its name is that of the option."""

    def forward(self, x: Tensor) -> Tensor:
        raise NoGradientError(f"{self.name} is not given, only its saved outputs: gradients need the model itself")

    def layer(self, name: str) -> nn.Module:
        raise UserError(f"--features {name} needs {self.name}: give the model, or use --features identity or saved")


def load_model(
    spec: str | None, option: str, *, trust: bool, device: torch.device, arch: str | None = None
) -> NamedModel:
    """The model behind ``spec``, in eval mode; without a spec, one that stands for saved outputs.

    ``arch`` names the function that makes the network of a state dict, ``module:function``.

    Raises:
        UserError: for a missing or broken file, an unknown kind, or code that needs ``trust``.
    """
    if spec is None:
        return SavedOutputs(None, option)
    inner, about = _load(spec, option, trust, arch)
    model = NamedModel(inner, f"{option} {spec}", **about)
    for module in model.modules():  # an exported program refuses eval()
        module.training = False
    if any(p.dtype == torch.float64 for p in model.state_dict().values()) and not has_float64(device):
        raise UserError(f"{model.name} computes in float64, which {device} does not have: use --device cpu")
    return model.requires_grad_(False).to(device)


def _load(spec: str, option: str, trust: bool, arch: str | None) -> tuple[Model, dict[str, Any]]:
    """A model and what its file says about it."""
    path = Path(spec)
    if spec.startswith("timm:"):
        return load_timm(spec)
    if _FUNCTION.fullmatch(spec) and not os.path.exists(path):
        return _adapt(call_factory(spec), spec)
    if not os.path.exists(path):
        raise UserError(f"{option} {spec} does not exist: a model is {FORMATS}")
    file = read_bytes(path)
    kind = file_kind(file)
    if kind in ("weights", "safetensors") or (kind == "pickle" and arch is not None):
        return load_state(file, arch, trust=trust), {"sha256": file.sha256, "arch": arch}
    if kind == "skops":
        found: Any = load_estimator(file, trust=trust, remedy=_TRUST)
    elif kind in _PROGRAMS:
        why, load = _PROGRAMS[kind]
        if not trust:
            raise UserError(f"{option} {spec} is {why}, so it can run any code: {_SAFE}, or {_TRUST}")
        with explain(f"{spec} cannot be loaded", "save it again"), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch.export is to replace TorchScript
            found = load(io.BytesIO(file.data))
    else:
        raise UserError(f"{option} {spec} is of no known kind: a model is {FORMATS}")
    inner, about = _adapt(found, spec)
    return inner, {**about, "sha256": file.sha256}


def load_state(file: FileBytes, arch: str | None, *, trust: bool) -> nn.Module:
    """The network that ``arch``, ``module:function``, makes, with the tensors of a state dict.

    Raises:
        UserError: without ``arch`` or ``trust``, or where network and tensors do not belong together.
    """
    if arch is None:
        raise UserError(
            f"{file.path} holds tensors and no network that could be read: name the function that makes it with --arch "
            "module:function, or give timm:ARCH@FILE"
        )
    if not _FUNCTION.fullmatch(arch):
        raise UserError(f"--arch {arch} names no function: write module:function")
    if not trust:
        raise UserError(f"--arch {arch} is code, which makes the network of {file.path}: pass --trust to run it")
    tensors = weights_of(file)
    network = call_factory(arch)
    if not isinstance(network, nn.Module):
        raise UserError(f"--arch {arch} gives a {type(network).__name__}: a torch module is needed")
    copy_weights(network, tensors, origin=file.path, arch=arch)
    return network


def _adapt(found: object, spec: str) -> tuple[Model, dict[str, Any]]:
    """A module or function as it is, a scikit-learn estimator through its adapter."""
    if isinstance(found, nn.Module) or (callable(found) and not hasattr(found, "predict")):
        return found, {}
    if not hasattr(found, "predict"):
        raise UserError(f"{spec} gives a {type(found).__name__}: a torch module or a scikit-learn estimator is needed")
    from ..adapters import from_sklearn  # scikit-learn takes seconds to import

    try:
        model = from_sklearn(found)
    except ValueError as error:
        raise UserError(f"{spec}: {error}") from error
    return model, {"classes": model.classes, "columns": model.columns}


def check_architecture(arch: str) -> None:
    """Refuse a name that timm does not know, with some that it knows."""
    import timm

    if not timm.is_model(arch):
        similar = ", ".join(difflib.get_close_matches(arch, timm.list_models(), n=3)) or "timm.list_models() has all"
        raise UserError(f"timm knows no architecture {arch!r}: take another name ({similar})")


def load_timm(spec: str) -> tuple[nn.Module, dict[str, Any]]:
    """The network, and its preprocessing of images at a size or at its own.

    Raises:
        UserError: for an unknown architecture, or weights that are missing or belong to another one.
    """
    arch, found, weights = spec.removeprefix("timm:").partition("@")
    if not found or not weights:
        raise UserError(f"{spec} names no weights: write timm:ARCH@weights.safetensors (or .pth)")
    timm = require("timm", purpose=spec)
    check_architecture(arch)
    file = read_bytes(Path(weights))
    tensors = weights_of(file)
    with torch.random.fork_rng(devices=[]):
        head = timm.create_model(arch, pretrained=False).pretrained_cfg.get("classifier")
        names = [head] if isinstance(head, str) else list(head or ())
        rows = next((len(tensors[f"{name}.weight"]) for name in names if f"{name}.weight" in tensors), None)
        if rows is None:
            raise UserError(
                f"{weights} has no tensor {names[0] if names else 'classifier'}.weight, {arch}'s classifier"
            )
        model: nn.Module = timm.create_model(arch, pretrained=False, num_classes=rows)
    copy_weights(model, tensors, origin=weights, arch=arch)

    def transform(size: int | None) -> Transform:
        config = timm.data.resolve_data_config({} if size is None else {"input_size": (3, size, size)}, model=model)
        return timm.data.create_transform(**config, is_training=False)

    return model, {"transform": transform, "sha256": file.sha256}


def call_factory(spec: str) -> Any:
    """What ``function()`` returns; the module is looked for in the current folder first, as ``python -m`` does.

    Naming code to run is the user's word for it, so no further trust is asked for.

    Raises:
        UserError: where module or function are missing, or one of them fails.
    """
    module_name, _, function_name = spec.partition(":")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or ".").split(".")[0] == module_name.split(".")[0]:
            raise UserError(f"{spec}: there is no module {module_name} here or on the import path") from error
        raise UserError(f"{spec}: {module_name} cannot be imported ({first_line(error)})") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UserError(f"{spec}: {module_name} has no function {function_name}")
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise UserError(f"{spec}: {function_name}() failed ({first_line(error)})") from error


def _unpickled(file: io.BytesIO) -> Any:
    import joblib

    return joblib.load(file)


_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_PROGRAMS: dict[str, tuple[str, Callable[[io.BytesIO], Any]]] = {
    "TorchScript": ("TorchScript, a program", lambda file: torch.jit.load(file, map_location="cpu")),
    "torch.export": ("read by torch.export, which unpickles", lambda file: torch.export.load(file).module()),
    "pickle": ("a pickle, which its reader carries out", _unpickled),
}
"""What can run code: what it is, and its loader."""
