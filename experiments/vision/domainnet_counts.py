"""How many images the cleaned version of DomainNet has, by domain and split."""

from __future__ import annotations

_COUNTS = {
    "real": (120_906, 52_041),
    "painting": (50_416, 21_850),
    "sketch": (48_212, 20_916),
    "clipart": (33_525, 14_604),
    "infograph": (36_023, 15_582),
    "quickdraw": (120_750, 51_750),
}
EXPECTED = {
    (domain, split): count
    for domain, counts in _COUNTS.items()
    for split, count in zip(("train", "test"), counts, strict=True)
}
