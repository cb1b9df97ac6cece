"""Peak memory of one run, although several runs share a process."""

import resource
import sys

import torch

_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


def reset_peaks() -> bool:
    """Start again from what is in use now: CUDA's own count, and on Linux the process's, which is what it answers."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as switch:
            switch.write("5")
    except OSError:
        return False
    return True


def peak_bytes() -> int:
    """Most resident memory of this process since the reset; since its start where it cannot be reset."""
    found = status_bytes("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT if found is None else found


def status_bytes(key: str) -> int | None:
    """A size of this process, such as VmRSS, resident now; None where the system does not tell (not Linux)."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            (line,) = [line for line in status if line.startswith(f"{key}:")]
    except (OSError, ValueError):
        return None
    return int(line.split()[1]) * 1024


def gpu_peak_bytes() -> int | None:
    """Most GPU memory allocated since the reset; None without a GPU."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
