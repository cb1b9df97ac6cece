"""The answer in a few lines: what changes, how sure that is, why, and what to do next.

The ends of intervals lead and what was seen stands behind them, so that no number within its noise opens a sentence; a
term that is more than the loss allows opens none either.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..diagnostic import Diagnostic
from ..escaping import one_line
from ..estimators.labelled import Slices, slices_of_record
from ..gate.intervals import Record, gap, score_interval
from ..gate.policy import WORST_FIRST, Policy, decide, shown
from .words import STATEMENTS, TERMS, continued, drawn_form

LINES = 15
"""At most this many."""
_MORE = "All terms, intervals and assumptions: --verbose. A page with figures and examples: --html FILE."


class ScoreEnds(NamedTuple):
    """The interval of a score, and which class it is about where that is the worst; NaN where another line has it."""

    lower: float = math.nan
    upper: float = math.nan
    hardest_hit: str = ""
    least_known: str = ""


def diagnosis(d: Diagnostic) -> list[str]:
    """What is known about one anchor, a sentence a line."""
    if d.evidence.same_model:
        return ["The new model is the old one: nothing changes."]
    record, sure = d.estimates(), f"with {1 - d.settings.delta:.0%} confidence each, for any number of rows"
    found = facts(record, measured_ends(record, d.settings.delta))
    lines = [*found, *([f"Intervals hold {sure}."] if found else []), best_sentence(d), *why(d)]
    return [*lines, f"Next: {continued(next_step(d))}"]


def to_brief(anchors: Mapping[str, Diagnostic], cautions: Sequence[str] = ()) -> str:
    """For a terminal, at most `LINES` lines: all that is known of one anchor, or the leading fact of several.

    Args:
        cautions: what would make it wrong, or what a rerun costs, a sentence each.
    """
    if len(anchors) == 1:
        (d,) = anchors.values()
        return "\n".join(one_line(line) for line in [*cautions, *diagnosis(d), _MORE])
    ranked = sorted(anchors, key=lambda name: _severity(anchors[name]))
    lines = [f"{name}: {continued(diagnosis(anchors[name])[0])}" for name in ranked[: LINES - 3 - len(cautions)]]
    left = len(ranked) - len(lines)
    lines += [f"and {left} more anchors."] if left else []
    lines.append(f"Next, on anchor {ranked[0]}: {continued(next_step(anchors[ranked[0]]))}")
    return "\n".join(one_line(line) for line in [*cautions, *lines, _MORE])


def measured_ends(record: Record, delta: float) -> dict[str, ScoreEnds]:
    """Intervals of what an anchor's rows show, each alone, where rows are held out."""
    found = {}
    for score in ("anchor_disagreement", "error_change", "risk_change", "recall_drop", "class_disagreement"):
        interval = score_interval(record, score, delta=delta)
        if not math.isnan(interval.value) and not interval.on_training and math.isfinite(interval.upper):
            found[score] = ScoreEnds(interval.lower, interval.upper, interval.widest.most, interval.widest.which)
    return found


def facts(record: Record, ends: Mapping[str, ScoreEnds]) -> list[str]:
    """Predictions that change, the change of the error by labels, and the worst class, as far as they are known."""
    labelled, slices = record.get("labelled"), record.get("slices", {})
    lines = [_predictions(record, ends.get("anchor_disagreement", ScoreEnds()))]
    if labelled is not None:
        score = "error_change" if "class" in slices else "risk_change"
        lines.append(_change(labelled, score, ends.get(score, ScoreEnds())))
    if "class" in slices and "recall_drop" in ends:
        lines.append(_worst_class(slices_of_record(slices["class"]), ends["recall_drop"]))
    elif "predicted" in slices and "class_disagreement" in ends:
        lines.append(_worst_prediction(slices_of_record(slices["predicted"]), ends["class_disagreement"]))
    return [line for line in lines if line]


def _predictions(record: Record, end: ScoreEnds) -> str:
    value, n = record["anchor"]["disagreement"]["value"], record["anchor"]["num_samples"]
    if value is None or math.isnan(value):
        return ""
    changed = round(value * n)
    if "anchor" in record["reasons"]:
        return (
            f"Predictions change on {changed} of {n} anchor rows, which are not held out: nothing follows for new ones."
        )
    if math.isnan(end.upper):
        return f"Predictions change on {changed} of {n} held-out anchor rows."
    return f"{_at_most(end, 'anchor_disagreement')} of the predictions on the anchor change ({changed} of {n} seen)."


def _change(labelled: Mapping[str, Any], score: str, end: ScoreEnds) -> str:
    what, n = {"error_change": "error rate", "risk_change": "risk"}[score], labelled["num_samples"]
    seen = f"{n} labelled rows"
    if score == "error_change":
        seen += f": {labelled['negative_flips']} newly wrong, {labelled['positive_flips']} newly right"
    if math.isnan(end.upper):
        return f"Seen on {seen}." if score == "error_change" else ""
    if end.lower > 0:
        return f"The {what} rises by {_bare(end.lower, score)} to {_bare(end.upper, score)} ({seen})."
    if end.upper < 0:
        return f"The {what} falls by {_bare(-end.upper, score)} to {_bare(-end.lower, score)} ({seen})."
    ends = f"between {shown(end.lower, score)} and {shown(end.upper, score)}"
    return f"The change of the {what} is within chance: {ends} ({seen})."


def _worst_class(found: Slices, end: ScoreEnds) -> str:
    hit, unknown = (_of(found, name) for name in (end.hardest_hit, end.least_known or end.hardest_hit))
    if hit is None or unknown is None:
        return ""
    if math.isnan(end.upper):
        return f"The recall of class {hit.name} goes from {hit.before:.0%} to {hit.after:.0%} in {hit.rows} rows."
    if end.lower > 0:
        return (
            f"The recall of class {hit.name} falls by at least {_bare(end.lower, 'recall_drop')} "
            f"(from {hit.before:.0%} to {hit.after:.0%} in {hit.rows} rows)."
        )
    return (
        f"No class loses recall beyond chance; least is known about class {unknown.name} ({unknown.rows} rows), whose "
        f"recall falls by at most {_bare(end.upper, 'recall_drop')}."
    )


def _worst_prediction(found: Slices, end: ScoreEnds) -> str:
    lower, upper = (shown(each, "class_disagreement") for each in (end.lower, end.upper))
    next_to_nothing = end.lower < end.upper / 50
    row = _of(found, end.least_known if next_to_nothing else end.hardest_hit)
    if row is None:
        return ""
    if math.isnan(end.upper):
        return f"What the old model calls {row.name} is called otherwise now on {row.changed} of {row.rows} rows."
    much = f"At most {upper}" if next_to_nothing else f"At least {lower}"
    return f"{much} of what the old model calls {row.name} is called otherwise now ({row.changed} of {row.rows} seen)."


class _Row(NamedTuple):
    """One class, of `Slices`."""

    name: str
    rows: int
    changed: int
    before: float
    after: float


def _of(found: Slices, name: str) -> _Row | None:
    """The class that ``class NAME`` names."""
    i = next((i for i, each in enumerate(found.names) if name == f"class {each}"), None)
    if i is None:
        return None
    n, right = found.rows[i], found.right[i] if found.right else 0
    now = right - found.worse[i] + found.better[i] if found.right else 0
    return _Row(found.names[i], n, found.changed[i], *((count / n if n else math.nan) for count in (right, now)))


def _at_most(end: ScoreEnds, score: str) -> str:
    lower, upper = (shown(each, score) for each in (end.lower, end.upper))
    return f"At most {upper}" if end.lower < end.upper / 50 else f"Between {lower} and {upper}"


def _bare(value: float, score: str) -> str:
    """Without its sign, which the words have."""
    return shown(abs(value), score).lstrip("+")


def best_sentence(d: Diagnostic) -> str:
    """The smallest valid statement about the risk."""
    best, most = d.best(), d.evidence.loss_range
    if best is None:
        return "Nothing bounds the change of the anchor's risk: the loss is unbounded."
    if best.vacuous:
        return f"No bound says anything about the anchor's risk: it changes by at most {most:.3g} by the loss alone."
    sure = "" if best.level == 1 else f", with {best.level:.0%} confidence"
    said = f"{best.value:.2g} by {STATEMENTS[best.name]}{sure}"
    return f"The anchor's risk changes by at most {said}; the loss allows {most:.3g}."


def why(d: Diagnostic) -> list[str]:
    """The largest term that says something, and those that do not as they are more than the loss allows."""
    form = drawn_form(d)
    terms = {name: value for name, value in d.core_terms(form).items() if not math.isnan(value)}
    vacuous = [name for name, value in terms.items() if value >= d.evidence.loss_range]
    telling = telling_terms(d)
    lines = []
    if telling:
        name = max(telling, key=lambda each: telling[each])
        lines.append(f"Why: the {TERMS[name].name} is the largest term that says something, {telling[name]:.2g}.")
    if vacuous:
        names = " and the ".join(TERMS[name].name for name in vacuous)
        verb = "is" if len(vacuous) == 1 else "are"
        lines.append(f"The {names} {verb} more than the loss allows and say{'s' * (verb == 'is')} nothing.")
    return lines


def telling_terms(d: Diagnostic) -> dict[str, float]:
    """Core terms that are less than the loss allows and stand out of their noise.

    Noise is what held-out rows leave open of a gap, two standard errors of the model change, and of the shift penalty
    what its distance would be without any shift.
    """
    e, form, record = d.evidence, drawn_form(d), d.estimates()
    shift, moved = e.shift, e.output_distance
    far = (shift.floor is None or shift.transport.value > shift.floor.value) if form != "mmd" else True
    seen = {
        "gap_source": e.gap_source is not None and gap("source", "anchor", record, d.settings.delta).lower > 0,
        "gap_target": e.gap_target is not None and gap("target", "target", record, d.settings.delta).lower > 0,
        "model_change": not moved.value <= 2 * moved.standard_error,
        "emp_shift": far and (form == "ot" or shift.mmd.squared > 2 * shift.mmd.standard_error),
    }
    return {
        name: value for name, value in d.core_terms(form).items() if seen[name] and 0 < value < d.evidence.loss_range
    }


def next_step(d: Diagnostic) -> str:
    """What to do, in a sentence: what the gate's default policy asks for, else what lowers the largest telling term."""
    if d.evidence.same_model:
        return "There is nothing to do."
    if not d.evidence.slices:
        return "Limit the change of the risk in a policy (score: risk_change with labels), and ask the gate."
    (lead,) = decide({"anchor": d}, Policy()).anchors
    if lead.decision == "accept":
        return "Ask the gate with limits of your own: its default policy accepts."
    advice = f"For the gate's default policy, {continued(lead.next)}"
    if lead.decision == "reject" and (telling := telling_terms(d)):
        advice += f" {TERMS[max(telling, key=lambda each: telling[each])].advice}"
    return advice


def _severity(d: Diagnostic) -> tuple[int, float]:
    if d.evidence.same_model or not d.evidence.slices:
        return len(WORST_FIRST), 0.0
    return WORST_FIRST.index(decide({"anchor": d}, Policy()).decision), -d.evidence.anchor.disagreement.value
