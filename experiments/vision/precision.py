"""Half precision inside the network on a GPU; on other devices nothing changes."""

from contextlib import AbstractContextManager, nullcontext

import torch


def training_dtype(device: str | torch.device) -> torch.dtype | None:
    """bfloat16 where a GPU has it; None, float32 throughout, elsewhere: float16 would lose small gradients."""
    on_gpu = torch.device(device).type == "cuda"
    return torch.bfloat16 if on_gpu and torch.cuda.is_bf16_supported() else None


def extraction_dtype(device: str | torch.device) -> torch.dtype | None:
    """float16 on a GPU, whose 11 bits serve features better than bfloat16's 8."""
    return torch.float16 if torch.device(device).type == "cuda" else None


def mixed_precision(device: str | torch.device, dtype: torch.dtype | None) -> AbstractContextManager[object]:
    """Autocast to a dtype, or nothing."""
    return nullcontext() if dtype is None else torch.autocast(torch.device(device).type, dtype=dtype)
