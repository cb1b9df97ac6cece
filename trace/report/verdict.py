"""A Verdict for people and programs: plain text, Markdown, a record."""

from typing import Any

from ..gate.policy import shown
from ..gate.verdict import Verdict
from .text import aligned, markdown_table
from .words import sentences

_WORDS = {
    "accept": "ACCEPT the update",
    "reject": "REJECT the update",
    "inconclusive": "INCONCLUSIVE, do not release yet",
}


def headline(v: Verdict) -> str:
    """One sentence for whoever releases the update."""
    worst = next(a for a in v.anchors if a.anchor == v.worst)
    where = "" if len(v.anchors) == 1 else f"on anchor {v.worst}, the worst of {len(v.anchors)}, "
    return f"{_WORDS[v.decision]}: {where}{_continued(worst.reason)}"


def to_text(v: Verdict) -> str:
    """The headline, the table of anchors and what it rests on, for a terminal."""
    return "\n\n".join([headline(v), "\n".join(aligned(_rows(v))), *(["\n".join(_footer(v))] if _footer(v) else [])])


def to_markdown(v: Verdict) -> str:
    """The same for a pull request or a job's summary."""
    decision, _, why = headline(v).partition(":")
    sentence = f"**{decision}**:{why}"
    notes = "\n".join(f"- {line}" for line in _footer(v))
    return "\n\n".join(["## TRACE gate", sentence, markdown_table(_rows(v)), *([notes] if notes else [])])


def as_dict(v: Verdict) -> dict[str, Any]:
    """Plain values, with the headline."""
    return {**v._asdict(), "headline": headline(v), "anchors": {a.anchor: a._asdict() for a in v.anchors}}


def _continued(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _rows(v: Verdict) -> list[list[str]]:
    rows = [["anchor", "decision", v.anchors[0].score, "interval", "limit", "samples", "needed"]]
    for a in v.anchors:
        interval = f"[{shown(a.lower, a.score)}, {shown(a.upper, a.score)}]"
        samples, needed = f"{a.size} {a.sample}", "" if a.needed is None else str(a.needed)
        rows.append(
            [a.anchor, a.decision, shown(a.value, a.score), interval, shown(a.threshold, a.score), samples, needed]
        )
    return rows


def _footer(v: Verdict) -> list[str]:
    lines = [f"{a.anchor}: {_continued(a.reason)}" for a in v.anchors if a.decision != "accept" and a.anchor != v.worst]
    if len(v.anchors) > 1:
        lines.append(f"All intervals hold together with {100 * v.confidence:g}% confidence.")
    lines += sentences(note for a in v.anchors for note in a.notes)
    if v.promise:
        lines.append(v.promise)
    return lines
