"""A model from whatever holds it: the loader is chosen by the name. What each kind can execute:

* ``net.pt``, ``net.ts``: TorchScript, a program for torch's own interpreter. It computes with tensors; one that uses
  files, custom classes or foreign operators needs ``--trust``.
* ``net.pt2``: torch.export, whose loader unpickles parts of the file. It can run anything and needs ``--trust``.
* ``timm:ARCH@weights``: timm's code; the weights are tensors alone (safetensors, or torch's ``weights_only``).
* ``model.skops``: scikit-learn; types beyond those skops knows are listed and need ``--trust``.
* ``model.pkl``, ``model.joblib``: a pickle, which can run anything. Needs ``--trust``.
* ``module:function``: your own code from the import path or the current folder; naming it is your word for it.
"""

import difflib
import importlib
import os
import re
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..estimators.gradient_quantile import Model, NoGradientError
from .errors import UserError, explain, first_line, require
from .images import Transform
from .weights import copy_weights, read_weights

_SUSPECT = re.compile(r"\b(save|from_file|classes)\b|\bops\s*\.\s*(?!(?:prim|aten|quantized)\b)(\w+)")
_SAVE = "save the model with torch.jit.script(model).save(path)"
_TRUST = "pass --trust if you know where the file comes from"

FORMATS = (
    "TorchScript (.pt, .ts), torch.export (.pt2), timm:ARCH@weights.safetensors, scikit-learn (.skops; .pkl or .joblib "
    "with --trust), or module:function"
)


class Loaded(NamedTuple):
    """A model and what its file says about it."""

    model: Model
    classes: tuple[str, ...] | None = None
    """Names by output, where the file holds them."""
    transform: Callable[[int | None], Transform] | None = None
    """Preprocessing of images at a size or at its own, where the model brings it."""
    columns: tuple[str, ...] | None = None
    """Columns of a table in the model's order, where it knows their names."""


class NamedModel(nn.Module):
    """A model that takes inputs of any precision and names itself when it fails."""

    def __init__(self, loaded: Loaded, name: str) -> None:
        super().__init__()
        self.inner, self.name = loaded.model, name
        self.classes, self.transform, self.columns = loaded.classes, loaded.transform, loaded.columns

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


class SavedOutputs(nn.Module):
    """In place of a model of which only the outputs were saved."""

    classes: tuple[str, ...] | None = None
    transform: Callable[[int | None], Transform] | None = None
    columns: tuple[str, ...] | None = None

    def __init__(self, option: str) -> None:
        super().__init__()
        self.option = option

    def forward(self, x: Tensor) -> Tensor:
        raise NoGradientError(f"{self.option} is not given, only its saved outputs: gradients need the model itself")

    def layer(self, name: str) -> nn.Module:
        raise UserError(f"--features {name} needs {self.option}: give the model, or use --features identity or saved")


AnyModel = NamedModel | SavedOutputs


def load_model(spec: str | None, option: str, *, trust: bool, device: torch.device) -> AnyModel:
    """The model behind ``spec``, in eval mode; without a spec, one that stands for saved outputs.

    Raises:
        UserError: for a missing or broken file, an unknown kind, or code that needs ``trust``.
    """
    if spec is None:
        return SavedOutputs(option)
    model = NamedModel(_load(spec, option, trust), f"{option} {spec}")
    for module in model.modules():  # an exported program refuses eval()
        module.training = False
    return model.requires_grad_(False).to(device)


def _load(spec: str, option: str, trust: bool) -> Loaded:
    path = Path(spec)
    if spec.startswith("timm:"):
        return load_timm(spec)
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", spec) and not path.exists():
        return _adapt(call_factory(spec), spec)
    if not path.is_file():
        raise UserError(f"{option} {spec} does not exist: a model is {FORMATS}")
    if (load := _LOADERS.get(path.suffix.lower())) is None:
        raise UserError(f"{option} {spec} is of no known kind: a model is {FORMATS}")
    return _adapt(load(path, trust=trust), spec)


def _adapt(found: object, spec: str) -> Loaded:
    """A module or function as it is, a scikit-learn estimator through its adapter."""
    if isinstance(found, nn.Module) or (callable(found) and not hasattr(found, "predict")):
        return Loaded(found)
    if not hasattr(found, "predict"):
        raise UserError(f"{spec} gives a {type(found).__name__}: a torch module or a scikit-learn estimator is needed")
    from ..adapters import from_sklearn  # scikit-learn takes seconds to import

    try:
        model = from_sklearn(found)
    except ValueError as error:
        raise UserError(f"{spec}: {error}") from error
    return Loaded(model, classes=model.classes, columns=model.columns)


def load_torchscript(path: Path, *, trust: bool) -> nn.Module:
    """A TorchScript module on the CPU.

    Raises:
        UserError: where the file is no TorchScript, or its program uses files or foreign operators without ``trust``.
    """
    if (found := suspect_operations(path)) and not trust:
        raise UserError(
            f"{path} holds a program that uses {', '.join(found)}, so it can do more than compute: {_TRUST}"
        )
    with (
        explain(f"{path} is no TorchScript file", f"{_SAVE}, or name its code as module:function"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", FutureWarning)  # torch.export is to replace TorchScript
        return torch.jit.load(path, map_location="cpu")


def suspect_operations(path: Path) -> list[str]:
    """Names in a TorchScript program that reach beyond tensors: files, custom classes, operators of other libraries."""
    broken = (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError)
    with explain(f"{path} is no TorchScript file", _SAVE, *broken), zipfile.ZipFile(path) as archive:
        names = [entry.filename.lower() for entry in archive.infolist()]
        sources = [entry for entry in archive.infolist() if entry.filename.lower().endswith(".py")]
        text = "\n".join(archive.read(entry).decode("utf-8", errors="replace") for entry in sources)
    if not sources:
        raise UserError(
            f"{path} holds no TorchScript program; it may be a state_dict: {_SAVE}, or "
            "give timm:ARCH@FILE or module:function"
        )
    if len(set(names)) < len(names):  # torch may run another entry than the one that was read here
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{path} holds {twice} more than once, so it is not clear which is run: {_SAVE}")
    return sorted({match[1] or f"ops.{match[2]}" for match in _SUSPECT.finditer(text)})


def load_exported(path: Path, *, trust: bool) -> nn.Module:
    """The module of a torch.export file, which must have been exported with a dynamic first dimension.

    Raises:
        UserError: without ``trust``, or where the file cannot be read.
    """
    if not trust:
        raise UserError(
            f"{path} is read by torch.export.load, which unpickles parts of it and so can run code: {_TRUST}"
        )
    with explain(f"{path} is no readable torch.export file", "export it again"):
        return torch.export.load(path).module()


def check_architecture(arch: str) -> None:
    """Refuse a name that timm does not know, with some that it knows."""
    import timm

    if not timm.is_model(arch):
        similar = ", ".join(difflib.get_close_matches(arch, timm.list_models(), n=3)) or "timm.list_models() has all"
        raise UserError(f"timm knows no architecture {arch!r}: take another name ({similar})")


def load_timm(spec: str) -> Loaded:
    """The network, and its preprocessing of images at a size or at its own.

    Raises:
        UserError: for an unknown architecture, or weights that are missing or belong to another one.
    """
    arch, found, weights = spec.removeprefix("timm:").partition("@")
    if not found or not weights:
        raise UserError(f"{spec} names no weights: write timm:ARCH@weights.safetensors (or .pth)")
    timm = require("timm", purpose=spec)
    check_architecture(arch)
    tensors = read_weights(Path(weights))
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

    return Loaded(model, transform=transform)


def load_skops(path: Path, *, trust: bool) -> Any:
    """The estimator of a skops file, which names every type it holds before any is built.

    Raises:
        UserError: where the file cannot be read, or holds types that skops does not know, without ``trust``.
    """
    library = require("skops.io", purpose=f"reading {path.name}")
    with explain(f"{path} is no readable skops file", "save it with skops.io.dump"):
        unknown: list[str] = library.get_untrusted_types(file=path)
    if unknown and not trust:
        raise UserError(f"{path} holds types that skops does not know ({', '.join(unknown)}): {_TRUST}")
    with explain(f"{path} cannot be loaded", "use the scikit-learn version it was saved with"):
        return library.load(path, trusted=unknown)


def load_pickle(path: Path, *, trust: bool) -> Any:
    """The object of a pickle or joblib file.

    Raises:
        UserError: without ``trust``, or where the file cannot be read.
    """
    if not trust:
        raise UserError(
            f"{path} is a pickle, which can run any code when it is read: save the model with skops.io.dump, or "
            f"{_TRUST}"
        )
    import joblib

    with explain(f"{path} cannot be loaded", "save it again with joblib.dump"):
        return joblib.load(path)


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


_LOADERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys((".pt", ".ts", ".jit", ".torchscript", ".pth"), load_torchscript),
    ".pt2": load_exported,
    ".skops": load_skops,
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), load_pickle),
}
"""By suffix."""
