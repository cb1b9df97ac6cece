"""What a device can do: whether it has float64, and how much memory is free.

Samples stay where they are, and so does everything computed of them. Where float64 decides a result and the device has
none, such as ``mps``, that step is taken on the CPU.
"""

import functools
import os

import torch
from torch import Tensor

_UNKNOWN_BYTES = 2 * 2**30
"""What is taken to be free where nobody tells."""
_CGROUP = "/sys/fs/cgroup"


@functools.cache
def has_float64(device: torch.device) -> bool:
    """Whether tensors of a device can be float64."""
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (TypeError, RuntimeError):
        return False
    return True


def wide(device: torch.device) -> torch.dtype:
    """The widest dtype of a device, for sums and potentials: float64 but for devices that lack it."""
    return torch.float64 if has_float64(device) else torch.float32


def doubled(x: Tensor) -> Tensor:
    """``x`` in float64, on its device or, if that has none, on the CPU."""
    return x.double() if has_float64(x.device) else x.cpu().double()


def placed(x: Tensor, device: torch.device) -> Tensor:
    """``x`` on a device; float64 becomes float32 where the device has no other."""
    return x.to(device) if x.dtype != torch.float64 or has_float64(device) else x.float().to(device)


def free_bytes(device: torch.device) -> int:
    """Memory that one more allocation could get: of a GPU what torch keeps for reuse too, of the host its share of it.

    >>> free_bytes(torch.device("cpu")) > 0
    True
    """
    if device.type == "cuda":
        reusable = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reusable
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    return _host_bytes() if device.type == "cpu" else _UNKNOWN_BYTES


def _host_bytes() -> int:
    """What the system calls available, or what the limit of this process's group leaves, if less."""
    found = [_available()]
    limit, used = (_number(f"{_CGROUP}/memory.{name}") for name in ("max", "current"))
    if limit is not None and used is not None:
        found.append(max(0, limit - used))
    return min(found)


def _available() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            (line,) = [line for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return int(line.split()[1]) * 1024


def _number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None
