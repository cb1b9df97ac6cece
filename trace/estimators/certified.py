"""Certified Lipschitz constants of models: upper bounds that hold for all inputs, not only for those that were seen.

A torch module is followed layer by layer, or traced (`torch.fx`), and every operation multiplies the constant by its
own, in the Euclidean norm of a row's flattened values: exact singular values for linear layers, upper bounds for
convolutions, normalisation as it is in eval mode. Branches that meet add up. What is not known here makes the whole
constant unknown, with a sentence that names it; so does a model that is no module.

What is linear at a model's end is kept as a matrix, ``f(x) = M u(x) + b``: a chain of linear layers is exact, losses
use the rows of M (`Loss.composed_lipschitz`), and two models with the same u differ by ``(M~ - M) u(x)`` exactly.
"""

import functools
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate
from torch.nn import functional as F

from ..losses import Loss
from .convolution import convolution_norm, overlap, spectral_norm
from .gradient_quantile import Model, evaluation_mode

_WIDEST = 4096
"""Entries of a row up to which a factor for each of them is kept as a matrix."""
_ROWS = 3
"""Of the batch that is traced: more than one, to see what mixes rows."""


class Certificate(NamedTuple):
    """A Lipschitz constant that holds for all inputs; infinity where none is known, and ``reason`` says why."""

    value: float
    reason: str = ""


class Tail(NamedTuple):
    """A model as ``f(x) = M u(x) + b``, or the log softmax of that, with u Lipschitz."""

    scale: float
    """Lipschitz constant of u."""
    matrix: Tensor | None
    """M ``[C, k]`` in float64; None for the identity."""
    key: str
    """What u is: the same text for the same function."""
    log_probabilities: bool = False
    """f is the log softmax of ``M u(x) + b``, with M a matrix."""

    @property
    def lipschitz(self) -> float:
        """Of x -> f(x). The log softmax has the Jacobian ``I - 1 p^T`` of norm ``sqrt(C) |p|``, which ignores means."""
        if self.matrix is None:
            return self.scale
        if self.log_probabilities:
            return math.sqrt(len(self.matrix)) * spectral_norm(self._centred()) * self.scale
        return spectral_norm(self.matrix) * self.scale

    def loss_lipschitz(self, loss: Loss, num_outputs: int) -> float:
        """Of ``x -> ell(f(x), y)``, for any y."""
        matrix = torch.eye(num_outputs, dtype=torch.float64) if self.matrix is None else self.matrix
        return loss.composed_lipschitz(matrix, log_probabilities=self.log_probabilities) * self.scale

    def difference(self, new: "Tail") -> float:
        """Of ``f~ - f``; exact where both are linear in one u.

        Of two log softmaxes it is that of the centred difference, the only part that cross-entropy sees.
        """
        if self.log_probabilities and new.log_probabilities:
            return self._replace(matrix=self._centred(), log_probabilities=False).difference(
                new._replace(matrix=new._centred(), log_probabilities=False)
            )
        if self.key != new.key or self.log_probabilities or new.log_probabilities:
            return self.lipschitz + new.lipschitz
        change = _sum(new.matrix, self.matrix, -1.0)
        return 0.0 if change is None else spectral_norm(change) * self.scale

    def _centred(self) -> Tensor:
        assert self.matrix is not None
        return self.matrix - self.matrix.mean(dim=0)


class UnknownOperationError(Exception):
    """The model does something whose Lipschitz constant is not known here."""


def tail(model: Model, x: Tensor) -> Tail | str:
    """The model's linear end and the constant of what comes before it, or a sentence that says why they are unknown.

    Args:
        model: maps ``x [n, ...]`` to outputs ``[n, C]``; it is traced in eval mode.
        x: one or more rows; only their shape matters.
    """
    if not isinstance(model, nn.Module):
        return f"{getattr(model, '__name__', type(model).__name__)} is no torch module that could be looked into"
    rows = x[:1].expand(_ROWS, *x.shape[1:]).contiguous()
    with torch.no_grad(), evaluation_mode(model):
        try:
            return _through(model, _Traced(rows, Tail(1.0, None, "x"), "x")).tail
        except UnknownOperationError as error:
            return str(error)


def certified_lipschitz(model: Model, x: Tensor) -> Certificate:
    """An upper bound on ``sup |f(x) - f(x')| / |x - x'|`` over all inputs; exact for chains of linear layers.

    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    >>> _ = model[0].weight.data.copy_(2 * torch.eye(2)), model[2].weight.data.copy_(torch.tensor([[3.0, 4.0]]))
    >>> round(certified_lipschitz(model, torch.zeros(1, 2)).value, 9)
    10.0
    """
    found = tail(model, x)
    return Certificate(math.inf, found) if isinstance(found, str) else Certificate(found.lipschitz)


@dataclass(frozen=True)
class _Traced:
    """A value on the way through a model."""

    value: Tensor
    tail: Tail
    digest: str
    """Of all that was done to the inputs so far."""

    @property
    def linear(self) -> Tail:
        """The tail, with what stands before a log softmax taken into u."""
        return Tail(self.tail.lipschitz, None, self.digest) if self.tail.log_probabilities else self.tail


@dataclass(frozen=True)
class _Step:
    """An operation on traced values: its name, its arguments, its result, and the digest of that."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Tensor
    digest: str

    @property
    def x(self) -> _Traced:
        return self.traced[0]

    @property
    def traced(self) -> list[_Traced]:
        found: list[_Traced] = []
        map_aggregate((self.args, self.kwargs), lambda a: found.append(a) if isinstance(a, _Traced) else None)
        return found

    def option(self, position: int, name: str) -> Any:
        return self.kwargs.get(name, self.args[position] if len(self.args) > position else None)

    def times(self, factor: float) -> Tail:
        """After an operation on x with this constant, whose result is a new u."""
        return Tail(self.x.tail.lipschitz * factor, None, self.digest)

    def diagonal(self, factors: Tensor) -> Tail:
        """After every entry of a row was multiplied by its own factor, ``factors`` of a row's shape."""
        known, factors = self.x.linear, _double(factors)
        if factors.ndim != 1 or (known.matrix is None and len(factors) > _WIDEST):
            return self.times(float(factors.abs().max()))
        return known._replace(matrix=torch.diag(factors) if known.matrix is None else factors[:, None] * known.matrix)


class _Certifier(fx.Interpreter):
    """Runs a traced model on `_Traced` values; constants stay what they are."""

    def __init__(self, model: fx.GraphModule) -> None:
        super().__init__(model)
        self.extra_traceback = False  # it would stand in the sentence that names what is unknown

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _after(self.fetch_attr(target), args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        home = getattr(target, "__module__", None) or "torch"
        if home.split(".")[0] not in ("torch", "_operator", "builtins"):
            raise UnknownOperationError(f"no Lipschitz constant is known for {target.__name__} of {home}")
        return _after(target, args, kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def method(first: Any, *rest: Any, **options: Any) -> Any:
            return getattr(first, target)(*rest, **options)

        method.__name__ = target
        return _after(method, args, kwargs)


def _through(model: nn.Module, x: _Traced) -> _Traced:
    """A value after a model: a layer of torch, a chain of models, or anything that can be traced."""
    if type(model) is nn.Sequential:
        return functools.reduce(lambda value, layer: _through(layer, value), model, x)
    if type(model).__module__.startswith("torch.nn."):
        found = _after(model, (x,), {})
    else:
        try:
            graph = fx.symbolic_trace(model)
        except Exception as error:  # anything that the model's own code may do with a proxy
            name = type(model).__name__
            raise UnknownOperationError(f"{name} cannot be traced ({type(error).__name__})") from error
        found = _Certifier(graph).run(x)
    if not isinstance(found, _Traced):
        raise UnknownOperationError(f"{type(model).__name__} does not return one tensor")
    return found


def _after(done: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a module, a function or a method gives: a traced value, or a constant."""
    plain_args, plain_kwargs = map_aggregate((args, kwargs), lambda a: a.value if isinstance(a, _Traced) else a)
    value = done(*plain_args, **plain_kwargs)
    name = type(done).__name__ if isinstance(done, nn.Module) else getattr(done, "__name__", str(done))
    step = _Step(name, args, kwargs, value, _digest(name, done, args, kwargs))
    if not step.traced or isinstance(value, int | torch.Size | torch.dtype | torch.device):
        return value
    if not isinstance(value, Tensor) or value.shape[:1] != (_ROWS,):
        raise UnknownOperationError(f"{name} mixes rows, or does not return one tensor")
    return _Traced(value, _module_tail(done, step) if isinstance(done, nn.Module) else _tail(step), step.digest)


def _tail(step: _Step) -> Tail:
    """After a function or a method: one of tensors, or that of a module of the same name."""
    name = step.name.strip("_").replace("_", "")
    if name in _FUNCTIONS:
        found = _FUNCTIONS[name](step)
    elif (kind := _BY_NAME.get(name)) is None or len(step.traced) > 1:
        found = None
    elif issubclass(kind, _DROPOUTS):
        training = step.option(2, "training")
        found = step.x.tail if training is False else None
    else:
        options = {key: value for key, value in step.kwargs.items() if key not in _IRRELEVANT}
        return _module_tail(kind(*step.args[1:], **options), step)
    if found is None:
        raise UnknownOperationError(f"no Lipschitz constant is known for {step.name}, as it is used in the model")
    return found


def _module_tail(module: nn.Module, step: _Step) -> Tail:
    kind = next((k for k in type(module).__mro__ if k in _MODULES and type(module).forward is k.forward), None)
    found = None if kind is None else _MODULES[kind](module, step)
    if found is None:
        raise UnknownOperationError(f"no Lipschitz constant is known for {module}".replace("\n", " "))
    return found if isinstance(found, Tail) else step.times(found)


def _digest(name: str, done: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Of an operation with all its options, parameters and arguments."""
    found = hashlib.sha256(name.encode())

    def add(part: Any) -> None:
        if isinstance(part, Tensor):
            found.update(f"{part.dtype}{tuple(part.shape)}".encode() + _double(part).numpy().tobytes())
        else:
            found.update((part.digest if isinstance(part, _Traced) else repr(part)).encode())

    if isinstance(done, nn.Module):
        map_aggregate({key: value for key, value in vars(done).items() if not key.startswith("_")}, add)
        map_aggregate(list(done.state_dict().values()), add)
    map_aggregate((args, kwargs), add)
    return found.hexdigest()


def _sum(a: Tensor | None, b: Tensor | None, sign: float) -> Tensor | None:
    """``a + sign b``, where None is the identity; None for two of them."""
    if a is None or b is None:
        if (known := a if b is None else b) is None:
            return None
        eye = torch.eye(known.shape[1], dtype=torch.float64)
        a, b = eye if a is None else a, eye if b is None else b
    return a + sign * b


def _double(values: Tensor) -> Tensor:
    return values.detach().cpu().double()


def _sizes(value: int | tuple[int, ...], dims: int) -> list[int]:
    return [value] * dims if isinstance(value, int) else list(value)


def _linear(module: Any, step: _Step) -> Tail | float:
    weight = _double(module.weight)
    if step.value.ndim != 2:
        return spectral_norm(weight)
    known = step.x.linear
    return known._replace(matrix=weight if known.matrix is None else weight @ known.matrix)


def _convolution(module: Any, step: _Step) -> float | None:
    dims, circular = module.weight.ndim - 2, module.padding_mode == "circular"
    if circular and not isinstance(module.padding, str):
        reach = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        if any(2 * p > r for p, r in zip(module.padding, reach, strict=True)):
            return None  # rows of the circular operator would occur twice
    if not circular and module.padding_mode != "zeros":
        return None
    stride = [1] * dims if circular else module.stride  # around a circle any two places of the kernel can meet
    return convolution_norm(module.weight, stride=stride, dilation=module.dilation, groups=module.groups)


def _batch_norm(module: Any, step: _Step) -> Tail | None:
    if module.running_var is None:
        return None
    factors = torch.rsqrt(_double(module.running_var) + module.eps)
    factors = factors if module.weight is None else factors * _double(module.weight)
    row = step.value.shape[1:]
    return step.diagonal(factors.view(-1, *[1] * (len(row) - 1)).expand(row))


def _standardisation(module: Any, step: _Step) -> float | None:
    """``c / sqrt(mean(c^2) + eps)`` for a centred row c: its slope is at most ``eps^-1/2``, which it has at c = 0."""
    if getattr(module, "running_var", None) is not None or not module.eps:
        return None
    return (1.0 if module.weight is None else float(_double(module.weight).abs().max())) / math.sqrt(module.eps)


def _max_pool(module: Any, step: _Step) -> float:
    """A maximum moves no further than the largest move in its window, and N windows share an entry: ``sqrt(N)``."""
    dims = step.value.ndim - 2
    sizes = (module.kernel_size, module.stride or module.kernel_size, module.dilation)
    return math.sqrt(overlap(*(_sizes(size, dims) for size in sizes)))


def _avg_pool(module: Any, step: _Step) -> float | None:
    """The mean over a box is a product of means along each axis, whose operators are small enough to write out."""
    if getattr(module, "divisor_override", None):
        return None
    shape = step.x.value.shape[2:]
    options = [_sizes(v, len(shape)) for v in (module.kernel_size, module.stride, module.padding)]
    flags = {"ceil_mode": module.ceil_mode, "count_include_pad": module.count_include_pad}
    return math.prod(
        spectral_norm(F.avg_pool1d(torch.eye(size, dtype=torch.float64)[:, None], *axis, **flags)[:, 0])
        for size, *axis in zip(shape, *options, strict=True)
    )


def _adaptive_avg_pool(module: Any, step: _Step) -> float:
    axes = zip(step.x.value.shape[2:], step.value.shape[2:], strict=True)
    return math.prod(
        spectral_norm(F.adaptive_avg_pool1d(torch.eye(size, dtype=torch.float64)[:, None], out)[:, 0])
        for size, out in axes
    )


def _softmax(module: Any, step: _Step) -> float | None:
    """The Jacobian ``diag(p) - p p^T`` has norm at most 1/2."""
    return 0.5 if (module.dim or 0) % step.value.ndim else None


def _log_softmax(module: Any, step: _Step) -> Tail | float | None:
    if not (axis := (module.dim or 0) % step.value.ndim):
        return None
    width, known = step.value.shape[axis], step.x.linear
    if step.value.ndim != 2 or width > _WIDEST:
        return math.sqrt(width)
    matrix = torch.eye(width, dtype=torch.float64) if known.matrix is None else known.matrix
    return known._replace(matrix=matrix, log_probabilities=True)


def _unchanged(_module: Any, step: _Step) -> Tail:
    return step.x.tail


def _slope(slope: float | Callable[[Any], float]) -> Callable[[Any, _Step], float]:
    """Of a function that acts on every entry."""
    return lambda module, _step: slope(module) if callable(slope) else slope


_IRRELEVANT = ("input", "inplace", "dtype", "_stacklevel")
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_Rule = Callable[[Any, _Step], Tail | float | None]
_MODULES: dict[type[nn.Module], _Rule] = {
    nn.Linear: _linear,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), _convolution),
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), _convolution),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), _batch_norm),
    **dict.fromkeys((nn.LayerNorm, nn.GroupNorm), _standardisation),
    **dict.fromkeys((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), _max_pool),
    **dict.fromkeys((nn.AvgPool1d, nn.AvgPool2d), _avg_pool),
    **dict.fromkeys((nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d), _adaptive_avg_pool),
    **dict.fromkeys((nn.Identity, *_DROPOUTS), _unchanged),
    nn.Flatten: lambda _module, step: _reshape(step),
    nn.Softmax: _softmax,
    nn.LogSoftmax: _log_softmax,
    **dict.fromkeys((nn.ReLU, nn.ReLU6, nn.Tanh, nn.Softplus, nn.Softsign, nn.LogSigmoid, nn.CELU), _slope(1.0)),
    nn.Hardtanh: _slope(1.0),
    nn.Sigmoid: _slope(0.25),
    nn.Hardsigmoid: _slope(0.1667),
    nn.Hardswish: _slope(1.5),
    nn.GELU: _slope(1.129),
    nn.SiLU: _slope(1.0999),
    nn.Mish: _slope(1.0885),
    nn.SELU: _slope(1.7581),
    nn.LeakyReLU: _slope(lambda m: max(1.0, abs(m.negative_slope))),
    nn.ELU: _slope(lambda m: max(1.0, abs(m.alpha))),
    nn.PReLU: _slope(lambda m: max(1.0, float(m.weight.abs().max()))),
}
"""What is known of a module: its constant, rounded up, or the tail after it; None where its options are not covered."""
_BY_NAME = {
    kind.__name__.lower(): kind
    for kind, rule in _MODULES.items()
    if rule not in (_linear, _convolution, _batch_norm, _standardisation) and kind is not nn.PReLU
}
"""Functions without parameters go by the name of their module: ``max_pool2d``, ``log_softmax``."""


def _reshape(step: _Step) -> Tail:
    """Rows stay rows, in the same order of entries."""
    flat = step.value.ndim == 2 and step.x.value.ndim == 2
    return step.x.tail if flat or step.x.tail.matrix is None else step.times(1.0)


def _rearranged(step: _Step) -> Tail | None:
    dims = [d for a in step.args[1:] for d in (a if isinstance(a, list | tuple) else [a])]
    keeps_rows = dims[0] == 0 if step.name == "permute" else 0 not in dims
    return step.times(1.0) if keeps_rows and not step.kwargs else None


def _selected(step: _Step) -> Tail | None:
    index = step.args[1]
    whole = isinstance(index, tuple) and index[:1] == (slice(None),) and all(isinstance(i, int | slice) for i in index)
    return step.times(1.0) if whole else None


def _added(sign: float) -> Callable[[_Step], Tail | None]:
    def added(step: _Step) -> Tail | None:
        if step.option(2, "alpha") not in (None, 1) or any(x.value.shape != step.value.shape for x in step.traced):
            return None
        if len(step.traced) == 1:
            minus = sign < 0 and not isinstance(step.args[0], _Traced)
            return step.times(1.0) if minus else step.x.linear
        (a, b), (old, new) = step.traced, (x.linear for x in step.traced)
        if old.key == new.key and (total := _sum(old.matrix, new.matrix, sign)) is not None:
            return old._replace(matrix=total)
        return Tail(a.tail.lipschitz + b.tail.lipschitz, None, step.digest)

    return added


def _multiplied(step: _Step) -> Tail | None:
    """By constants: ``c x``, ``x / c``."""
    divides = step.name in ("truediv", "div", "itruediv")
    constants = [a for a in step.args if not isinstance(a, _Traced)]
    if len(step.traced) > 1 or len(constants) != 1 or step.kwargs or step.x.value.shape != step.value.shape:
        return None
    factors = torch.as_tensor(constants[0], dtype=torch.float64).cpu()
    if divides and not isinstance(step.args[0], _Traced):
        return None
    if factors.ndim == step.value.ndim and len(factors) != 1:
        return None  # a factor for every row of the batch
    factors = factors[0] if factors.ndim == step.value.ndim else factors
    return step.diagonal((1 / factors if divides else factors).expand(step.value.shape[1:]))


def _averaged(power: float) -> Callable[[_Step], Tail | None]:
    """Means over d entries have the constant ``d^-1/2``, sums ``d^1/2``."""

    def averaged(step: _Step) -> Tail | None:
        dim, shape = step.option(1, "dim"), step.x.value.shape
        axes = {d % len(shape) for d in ([dim] if isinstance(dim, int) else dim or [0])}
        return None if 0 in axes else step.times(math.prod(shape[a] for a in axes) ** power)

    return averaged


def _joined(step: _Step) -> Tail | None:
    if not (step.option(1, "dim") or 0) % step.value.ndim:
        return None
    return Tail(math.hypot(*(x.tail.lipschitz for x in step.traced)), None, step.digest)


_FUNCTIONS: dict[str, Callable[[_Step], Tail | None]] = {
    **dict.fromkeys(("contiguous", "clone", "detach", "double", "float", "to"), lambda step: step.x.tail),
    **dict.fromkeys(("flatten", "view", "reshape", "squeeze", "unsqueeze"), _reshape),
    **dict.fromkeys(("permute", "transpose"), _rearranged),
    **dict.fromkeys(("add", "iadd"), _added(1.0)),
    **dict.fromkeys(("sub", "isub"), _added(-1.0)),
    **dict.fromkeys(("mul", "imul", "div", "truediv", "itruediv"), _multiplied),
    **dict.fromkeys(("cat", "concat"), _joined),
    "neg": lambda step: step.times(1.0),
    "mean": _averaged(-0.5),
    "sum": _averaged(0.5),
    "getitem": _selected,
}
"""The tail after a function of tensors; None where it is not covered."""
