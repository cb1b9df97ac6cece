"""A Verdict for people and programs: a few lines, plain text, Markdown, a record."""

from collections.abc import Mapping
from typing import Any

from ..diagnostic import Diagnostic
from ..escaping import markdown_text, one_line
from ..gate.intervals import Record
from ..gate.policy import WORST_FIRST, AnchorVerdict, Verdict, shown
from .brief import ScoreEnds, facts
from .text import aligned, markdown_table
from .words import continued, sentences

_OTHERS = 4
"""Rules and anchors beside the deciding one that the few lines list."""

_WORDS = {
    "accept": "ACCEPT the update",
    "reject": "REJECT the update",
    "inconclusive": "INCONCLUSIVE, do not release yet",
}


def headline(v: Verdict) -> str:
    """One sentence for whoever releases the update: the verdict and the one reason."""
    worst = _worst(v)
    where = "" if len(v.anchors) == 1 else f"on anchor {v.worst}, the worst of {len(v.anchors)}, "
    return f"{_WORDS[v.decision]}: {where}{continued(worst.reason)}"


def to_brief(v: Verdict, records: Mapping[str, Diagnostic | Record]) -> str:
    """For a terminal, at most `brief.LINES` lines: verdict, reason, next step, what was seen, and the other anchors.

    Args:
        records: the diagnostics that were judged, by anchor, or their records.
    """
    lead, first = _worst(v), _first(v) + what_was_seen(v, records[v.worst])
    others = [rule for rule in _counted(v) if rule != lead and (rule.anchor != v.worst or rule.decision != "accept")]
    others.sort(key=lambda rule: WORST_FIRST.index(rule.decision))
    rows = [
        [one_line(rule.anchor), rule.decision, rule.score, _ends(rule), f"limit {shown(rule.threshold, rule.score)}"]
        for rule in others[:_OTHERS]
    ]
    left = len(others) - len(rows)
    last = [f"  and {left} more"] if left else []
    last += [v.promise] if v.promise else []
    if sum(rule.role != "advisory" for rule in v.rules) > 1:
        last.append(f"All intervals hold together with {100 * v.confidence:g}% confidence.")
    last.append("All rules, intervals and assumptions: --verbose.")
    return "\n".join([*map(one_line, first), *(aligned(rows) if rows else []), *last])


def what_was_seen(v: Verdict, found: Diagnostic | Record) -> list[str]:
    """On the anchor that decides, a sentence each: the leading rule's ends stand in the headline already."""
    lead, record = _worst(v), found.estimates() if isinstance(found, Diagnostic) else found
    ends = {
        rule.score: ScoreEnds(hardest_hit=rule.hardest_hit if rule.decision == "reject" else rule.least_known)
        if rule.score == lead.score
        else ScoreEnds(rule.lower, rule.upper, rule.hardest_hit, rule.least_known)
        for rule in v.rules
        if rule.anchor == lead.anchor and rule.role != "advisory"
    }
    return [] if record.get("same_model") else facts(record, ends)


def to_text(v: Verdict) -> str:
    """The headline, what to do next, the table of rules and what it rests on, for a terminal."""
    rows = [[one_line(cell) for cell in row] for row in _rows(v)]
    blocks = [[one_line(line) for line in _first(v)], aligned(rows), [one_line(line) for line in _footer(v)]]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def to_markdown(v: Verdict, records: Mapping[str, Diagnostic | Record] | None = None) -> str:
    """The same for a pull request or a job's summary, with what was seen where the diagnostics are given."""
    decision, _, why = headline(v).partition(":")
    sentence = f"**{decision}**: {markdown_text(why)}"
    sentence += f"\n\n**Next**: {markdown_text(continued(then))}" if (then := _worst(v).next) else ""
    seen = what_was_seen(v, records[v.worst]) if records else []
    shown_facts, notes = ("\n".join(f"- {markdown_text(line)}" for line in lines) for lines in (seen, _footer(v)))
    parts = ["## TRACE gate", sentence, shown_facts, markdown_table(_rows(v)), notes]
    return "\n\n".join(part for part in parts if part)


def as_dict(v: Verdict) -> dict[str, Any]:
    """Plain values, with the headline and what to do next."""
    return {
        **v._asdict(),
        "headline": headline(v),
        "next": _worst(v).next,
        "anchors": {a.anchor: a._asdict() for a in v.anchors},
        "rules": [rule._asdict() for rule in v.rules],
    }


def _first(v: Verdict) -> list[str]:
    """The headline, and what to do next."""
    return [headline(v), *([f"Next: {continued(then)}"] if (then := _worst(v).next) else [])]


def _worst(v: Verdict) -> AnchorVerdict:
    return next(a for a in v.anchors if a.anchor == v.worst)


def _counted(v: Verdict) -> list[AnchorVerdict]:
    """The rules that decide; of guards, those that reject."""
    return [r for r in v.rules or v.anchors if r.role == "required" or (r.role == "guard" and r.decision == "reject")]


def _rows(v: Verdict) -> list[list[str]]:
    """Every rule on every anchor; of guards, those that reject."""
    rules = [rule for rule in v.rules or v.anchors if rule.role == "advisory" or rule in _counted(v)]
    scores = {rule.score for rule in rules}
    plain = len(scores) == 1 and all(rule.role == "required" for rule in rules)
    header = ["anchor", "decision", *(scores if plain else ("rule", "value")), "interval", "limit", "samples", "needed"]
    return [header, *(_row(rule, plain=plain) for rule in rules)]


def _row(rule: AnchorVerdict, *, plain: bool) -> list[str]:
    word = {"required": rule.decision, "advisory": f"({rule.decision})", "guard": rule.decision}[rule.role]
    return [
        rule.anchor,
        word,
        *([] if plain else [rule.score]),
        shown(rule.value, rule.score),
        _ends(rule),
        shown(rule.threshold, rule.score),
        f"{rule.size} {rule.sample}" if rule.sample else "",
        "" if rule.needed is None else str(rule.needed),
    ]


def _ends(rule: AnchorVerdict) -> str:
    return f"[{shown(rule.lower, rule.score)}, {shown(rule.upper, rule.score)}]"


def _footer(v: Verdict) -> list[str]:
    rules = v.rules or v.anchors
    lead = _worst(v)
    lines = [
        f"{rule.anchor}: {continued(rule.reason)}"
        for rule in rules
        if rule.role == "required" and rule.decision != "accept" and rule != lead
    ]
    if sum(rule.role != "advisory" for rule in rules) > 1:
        lines.append(f"All intervals that decide hold together with {100 * v.confidence:g}% confidence.")
    if any(rule.role == "advisory" for rule in rules):
        lines.append("Rules in parentheses are advisory: they decide nothing, and each interval holds alone.")
    if any(rule.role == "guard" for rule in rules) and all(r.decision != "reject" for r in rules if r.role == "guard"):
        lines.append("Labels on the anchor show no significant harm.")
    lines += sentences(note for rule in rules for note in rule.notes)
    if v.promise:
        lines.append(v.promise)
    return lines
