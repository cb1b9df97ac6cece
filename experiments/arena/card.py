"""The data card of the arena, from the stored cases."""

from collections.abc import Sequence
from pathlib import Path

from ..tables.table import Table, to_markdown
from .cases import SCALARS, Bout

LICENCES = {
    "acs": "American Community Survey of the US Census, public; as packed by nannyml (Apache-2.0)",
    "emoji": "Fluent Emoji (MIT), Noto Emoji (Apache-2.0), OpenMoji (CC-BY-SA-4.0)",
}
"""Of every data set in the arena: what its outputs come from."""
WORDS = Path(__file__).with_suffix(".md")
"""The card's prose, with places for what is counted."""


def card(bouts: Sequence[Bout]) -> str:
    """Markdown: what is stored, how it reads, and what it does not cover."""
    rows = []
    for title in dict.fromkeys(bout.title for bout in bouts):
        own = [bout for bout in bouts if bout.title == title]
        anchor, target = own[0].arrays["q_anchor"], own[0].arrays["q_target"]
        sizes = [len(anchor), len(target), len(own[0].arrays["test_y"]), anchor.shape[1], len(own[0].names), len(own)]
        harmful = sum(change > 0 for bout in own for change in bout.error_change())
        rows.append([title, *(f"{size:,}" for size in (*sizes, harmful)), LICENCES[title.split(",")[0]]])
    counts = ["anchor rows", "target rows", "test rows", "classes", "updates", "seeds", "updates that raise the error"]
    table = Table("", ["replication", *counts, "licence"], rows)
    return WORDS.read_text("utf-8").format(
        table=to_markdown(table).strip(), scalars=len(SCALARS), names=", ".join(f"`{s}`" for s in SCALARS)
    )
