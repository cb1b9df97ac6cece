"""What all policies share: rows of a pool, and which of them are left."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import check_count, check_samples


class Selection(NamedTuple):
    """Rows of a pool, and how close to the source they are."""

    indices: Tensor
    """``[count]``, int64, in the order chosen, on the device of the pool."""
    objective: float
    """What was minimised, for these rows: MMD^2 or the exact transport cost; NaN for a random choice."""
    history: tuple[float, ...] = ()
    """`mmdmin`: the objective after each pick. `w1min`: after the greedy search, then after each sweep. Ends with
    ``objective``."""


def check_features(source: Tensor, pool: Tensor) -> None:
    """Both are samples of one space, and their squared distances are finite."""
    check_samples(source, pool, "source", "pool")
    for x, name in ((source, "source"), (pool, "pool")):
        if not bool(torch.isfinite(4 * torch.linalg.vector_norm(x, dim=1).max().square())):
            raise ValueError(f"squared distances overflow {x.dtype} (see the rows of {name}): rescale the features")


def rows_left(pool_size: int, count: int, chosen: Tensor | None, device: torch.device) -> Tensor:
    """Which rows are left after those of earlier rounds, ``[pool_size]``."""
    check_count(count, "count")
    earlier = torch.empty(0, dtype=torch.long) if chosen is None else chosen
    if not isinstance(earlier, Tensor) or earlier.ndim != 1 or earlier.dtype not in (torch.int32, torch.int64):
        raise ValueError("chosen must be an integer tensor of shape [c]: pass the indices of an earlier Selection")
    if len(earlier) and not (int(earlier.min()) >= 0 and int(earlier.max()) < pool_size):
        raise ValueError(
            f"chosen holds rows {int(earlier.min())} to {int(earlier.max())}, but the pool has rows "
            f"0 to {pool_size - 1}: pass indices into this pool"
        )
    available = torch.ones(pool_size, dtype=torch.bool, device=device)
    available[earlier.to(device, torch.long)] = False
    if (left := int(available.sum())) != pool_size - len(earlier):
        raise ValueError("chosen holds a row more than once: pass each row of the pool once")
    if count > left:
        raise ValueError(f"count is {count}, but the pool has {left} rows left: ask for fewer or enlarge the pool")
    return available
