"""Peak memory of one run, although several runs share a process."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress

import torch

_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


def reset_peaks() -> None:
    """Start again from what is in use now, where the system can: Linux, and CUDA's own count."""
    with suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as switch:
        switch.write("5")
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def peak_bytes() -> int:
    """Most resident memory of this process since the reset; since its start where it cannot be reset."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            (line,) = [line for line in status if line.startswith("VmHWM:")]
    except (OSError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT
    return int(line.split()[1]) * 1024


def gpu_peak_bytes() -> int | None:
    """Most GPU memory allocated since the reset; None without a GPU."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
