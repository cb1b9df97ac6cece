"""A pretended accelerator: tensors that say they live on a device of their own, compute on the CPU, and never mix.

`torch.device(NAME)` exists once this module is imported. An operation on its tensors and those of the CPU is refused
as CUDA refuses it, every copy off the device is counted, and float64 can be switched off, as on ``mps``. Values are
those of the CPU in every digit. Nothing is drawn on it: random numbers come from the CPU and are moved.
"""

import math
from contextlib import contextmanager

import torch
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

from trace.hardware import has_float64

NAME = "pretend"


class Backend(_DummyBackendModule):
    """Without random numbers of its own: `torch.random.fork_rng` keeps an empty state."""

    def get_rng_state(self, device):
        return torch.empty(0, dtype=torch.uint8)

    def set_rng_state(self, state, device):
        assert len(state) == 0


_setup_privateuseone_for_python_backend(NAME, Backend())

_COPIES = ("aten::_to_copy", "aten::copy_", "aten::_copy_from")
_ANSWERS = ("aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::_unique2")
"""What the host waits for: a number, a truth, or how many there are."""
_INDEXED = ("aten::index.Tensor", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put")
"""CUDA takes row numbers and masks from the CPU here, and moves them."""


class Meter:
    """What has left the device, and what it has."""

    transfers = 0
    has_float64 = True
    most_rows = math.inf
    """Of a convolution's input, before memory runs out."""


@contextmanager
def counted(most):
    """Refuse more copies off the device than a stage may make."""
    before = Meter.transfers
    yield
    made = Meter.transfers - before
    assert made <= most, f"{made} copies off the device, at most {most} are expected"


@contextmanager
def without_float64():
    """The device as one that has no float64."""
    has_float64.cache_clear()
    Meter.has_float64 = False
    try:
        yield
    finally:
        Meter.has_float64 = True
        has_float64.cache_clear()


@contextmanager
def short_of_memory(rows):
    """The device with memory for convolutions of this many rows."""
    Meter.most_rows = rows
    try:
        yield
    finally:
        Meter.most_rows = math.inf


class OnDevice(torch.Tensor):
    """A tensor of the pretended device around one of the CPU."""

    @staticmethod
    def __new__(cls, inner):
        if inner.dtype == torch.float64 and not Meter.has_float64:
            raise TypeError(f"Cannot convert a {NAME} Tensor to float64 dtype as the framework doesn't support float64")
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device(NAME, 0),
        )
        made.inner = inner
        return made

    def __repr__(self):
        return f"{NAME}({self.inner!r})"

    def tolist(self):
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return computed(operation, args, kwargs or {})


def computed(operation, args, kwargs):
    """The operation on the CPU, its tensors on the device again."""
    name = operation.name()
    if torch.is_inference_mode_enabled() and operation._can_decompose():
        return operation.decompose(*args, **kwargs)
    if name in _COPIES:
        return copied(name, args, kwargs)
    Meter.transfers += name in _ANSWERS
    if name.startswith("aten::convolution") and len(args[0]) > Meter.most_rows:
        raise torch.OutOfMemoryError(f"{NAME} out of memory")
    if not name.startswith(_INDEXED):
        refuse_strangers(name, (args, kwargs))
    schema = operation._schema
    inner_args, inner_kwargs = tree_map(inner, (args, kwargs))
    if "device" in inner_kwargs:
        inner_kwargs["device"] = torch.device("cpu")
    found = operation(*inner_args, **inner_kwargs)
    written = [
        value
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
        for value in [args[position] if position < len(args) else kwargs.get(argument.name)]
        if value is not None
    ]
    if written and len(schema.returns) > 0:
        return written[0] if len(schema.returns) == 1 else tuple(written)
    return tree_map(outer, found)


def copied(name, args, kwargs):
    if name == "aten::_to_copy":
        (x,) = args
        device = torch.device(kwargs.get("device") or x.device)
        rest = {key: value for key, value in kwargs.items() if key != "device"}
        if device.type == "cpu":
            Meter.transfers += isinstance(x, OnDevice)
            return torch.ops.aten._to_copy(inner(x), **rest)
        return OnDevice(torch.ops.aten._to_copy(inner(x), **rest))
    to, of = (args[0], args[1]) if name == "aten::copy_" else (args[1], args[0])
    Meter.transfers += isinstance(of, OnDevice) and not isinstance(to, OnDevice)
    inner(to).copy_(inner(of))
    return to


def refuse_strangers(name, values):
    """Tensors of the CPU beside those of the device; ones without dimensions may come from the CPU."""
    tensors = [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
    if any(isinstance(t, OnDevice) for t in tensors) and any(not isinstance(t, OnDevice) and t.ndim for t in tensors):
        raise RuntimeError(f"Expected all tensors to be on the same device, but {name} found {NAME} and cpu")


def inner(value):
    return value.inner if isinstance(value, OnDevice) else value


def outer(value):
    return OnDevice(value) if isinstance(value, torch.Tensor) and not isinstance(value, OnDevice) else value


def _made(operation):
    def make(*args, device=None, pin_memory=None, layout=None, **kwargs):
        return OnDevice(operation(*args, **kwargs))

    return make


_LIBRARY = torch.library.Library("aten", "IMPL", "PrivateUse1")
for _name in (
    "empty.memory_format",
    "empty_strided",
    "arange",
    "arange.start",
    "arange.start_step",
    "linspace",
    "logspace",
    "full",
    "eye",
    "triu_indices",
):
    _packet, _, _overload = _name.partition(".")
    _LIBRARY.impl(_name, _made(getattr(getattr(torch.ops.aten, _packet), _overload or "default")))
_LIBRARY.impl("_copy_from", lambda of, to, non_blocking=False: copied("aten::_copy_from", (of, to), {}))
