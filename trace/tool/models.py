"""A model from whatever holds it: the loader is chosen by the name. What each kind can execute:

* ``net.pt``, ``net.ts``: TorchScript, a program for torch's own interpreter. It computes with tensors; one that uses
  files, custom classes or foreign operators needs ``--trust``.
* ``net.pt2``: torch.export, whose loader unpickles parts of the file. It can run anything and needs ``--trust``.
* ``timm:ARCH@weights``: timm's code; the weights are tensors alone (safetensors, or torch's ``weights_only``).
* ``model.skops``: scikit-learn; types beyond those skops knows are listed and need ``--trust``.
* ``model.pkl``, ``model.joblib``: a pickle, which can run anything. Needs ``--trust``.
* ``module:function``: your own code from the import path or the current folder; naming it is your word for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..estimators.lipschitz import Model, NoGradientError
from .errors import ToolError, first_line
from .estimator_files import load_pickle, load_skops
from .factories import call_factory
from .images import Transform
from .timm_models import load_timm
from .torch_files import load_exported, load_torchscript

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
            raise ToolError(
                f"{self.name} failed on inputs {list(x.shape)} of {own}: {first_line(error)}; give it the inputs it "
                "was made for"
            ) from error
        return rows.to(x.dtype) if isinstance(rows, Tensor) and rows.is_floating_point() else rows

    def layer(self, name: str) -> nn.Module:
        """The submodule of that name, whose outputs can be watched."""
        if isinstance(self.inner, torch.jit.ScriptModule):
            raise ToolError(
                f"{self.name} is TorchScript, whose layers cannot be watched: use --features identity or saved, or "
                "give the model as module:function"
            )
        modules = dict(self.inner.named_modules()) if isinstance(self.inner, nn.Module) else {}
        if not name or name not in modules:
            known = [key for key in modules if key]
            shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "") if known else "none"
            raise ToolError(f"{self.name} has no submodule {name!r}: name one of its own ({shown})")
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
        raise ToolError(f"--features {name} needs {self.option}: give the model, or use --features identity or saved")


AnyModel = NamedModel | SavedOutputs


def load_model(spec: str | None, option: str, *, trust: bool, device: torch.device) -> AnyModel:
    """The model behind ``spec``, in eval mode; without a spec, one that stands for saved outputs.

    Raises:
        ToolError: for a missing or broken file, an unknown kind, or code that needs ``trust``.
    """
    if spec is None:
        return SavedOutputs(option)
    model = NamedModel(_load(spec, option, trust), f"{option} {spec}")
    for module in model.modules():  # an exported program refuses eval()
        module.training = False
    return model.requires_grad_(False).to(device)


def _load(spec: str, option: str, trust: bool) -> Loaded:
    path = Path(spec)
    kind = path.suffix.lower()
    if spec.startswith("timm:"):
        model, transform = load_timm(spec)
        return Loaded(model, transform=transform)
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", spec) and not path.exists():
        return _adapted(call_factory(spec), spec)
    if not path.is_file():
        raise ToolError(f"{option} {spec} does not exist: a model is {FORMATS}")
    if kind in (".pt", ".ts", ".jit", ".torchscript", ".pth"):
        return Loaded(load_torchscript(path, trust=trust))
    if kind == ".pt2":
        return Loaded(load_exported(path, trust=trust))
    if kind == ".skops":
        return _adapted(load_skops(path, trust=trust), spec)
    if kind in (".pkl", ".pickle", ".joblib"):
        return _adapted(load_pickle(path, trust=trust), spec)
    raise ToolError(f"{option} {spec} is of no known kind: a model is {FORMATS}")


def _adapted(found: object, spec: str) -> Loaded:
    """A module or function as it is, a scikit-learn estimator through its adapter."""
    if isinstance(found, nn.Module) or (callable(found) and not hasattr(found, "predict")):
        return Loaded(found)
    if not hasattr(found, "predict"):
        raise ToolError(f"{spec} gives a {type(found).__name__}: a torch module or a scikit-learn estimator is needed")
    from ..adapters import from_sklearn  # scikit-learn takes seconds to import

    try:
        model = from_sklearn(found)
    except ValueError as error:
        raise ToolError(f"{spec}: {error}") from error
    return Loaded(model, classes=model.classes, columns=model.columns)
