"""A gate for model updates: rules, each a score with its interval against a limit, for one anchor or several."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Literal, NamedTuple

from ..checks import check_count, check_level
from ..diagnostic import Diagnostic
from ..losses import ZeroOne
from ..scores import GATE_SCORES
from ..stats.betting import forecast
from .intervals import Record, SampleName, ScoreInterval, labelling_interval, number, score_interval, tally_at
from .labelling import Labelling, LabellingState

Decision = Literal["accept", "reject", "inconclusive"]
WORST_FIRST: tuple[Decision, ...] = ("reject", "inconclusive", "accept")

Role = Literal["required", "advisory", "guard"]
"""Of a rule: it decides; it is shown; or it rejects what labels show to be harm, and nothing else."""

LABELS = ("guard", "decide")
"""What labels may do: refuse measured harm, or also overrule scores that cannot tell harm from help."""


class AnchorVerdict(NamedTuple):
    """What one rule says about one anchor."""

    anchor: str
    decision: Decision
    score: str
    """Name of the score, such as ``anchor_disagreement`` or ``trace_w``; higher predicts more harm."""
    value: float
    lower: float
    upper: float
    """The interval that decides, at the policy's confidence; NaN where none holds."""
    threshold: float
    """Accept where the whole interval lies at or below it, reject where it lies above."""
    needed: int | None
    """About how many samples would decide; None where the decision stands, or where no number would."""
    reason: str
    """One sentence for people."""
    sample: str = ""
    """Which sample ``needed`` counts: "anchor", "target", or "labels" of anchor rows that were told one by one."""
    size: int = 0
    """How many it has now."""
    notes: tuple[str, ...] = ()
    """What the interval takes for granted."""
    role: Role = "required"
    next: str = ""
    """What to do now, in a sentence; empty where there is nothing to do."""
    hardest_hit: str = ""
    """The class or group that changes most for sure, where the score is about the worst of them."""
    least_known: str = ""
    """The one that may change most."""


class Verdict(NamedTuple):
    """What the gate says about an update: reject if any anchor does, accept only if all do."""

    decision: Decision
    anchors: tuple[AnchorVerdict, ...]
    """Of each anchor the rule that decides there."""
    worst: str
    """The anchor that decides."""
    confidence: float = math.nan
    """All intervals that decide hold together with at least this probability."""
    promise: str = ""
    """What a calibrated threshold promises, in words; empty for one that was set by hand."""
    rules: tuple[AnchorVerdict, ...] = ()
    """Every rule on every anchor."""


@dataclass(frozen=True)
class Rule:
    """A limit on a score, which decides about an anchor or is shown beside what does."""

    score: str
    limit: float
    """Accept where the score lies at or below it."""
    anchor: str = ""
    """For this one alone; for every anchor if empty."""
    required: bool = True
    """It decides; otherwise it is shown and decides nothing."""
    unlabelled: str = ""
    """The score that stands in, with the same limit, where an anchor has no labels."""

    def __post_init__(self) -> None:
        for score in (self.score, *([self.unlabelled] if self.unlabelled else [])):
            if score not in GATE_SCORES:
                raise ValueError(f"score {score!r} is not known: use one of {', '.join(GATE_SCORES)}")
            check_limit(score, self.limit)
        if self.unlabelled and GATE_SCORES[self.score].kind != "labelled":
            raise ValueError(f"score {self.score} needs no labels: leave out its unlabelled {self.unlabelled}")


def check_limit(score: str, limit: float) -> None:
    """A limit that the score can be on either side of."""
    if not math.isfinite(limit):
        raise ValueError(f"threshold must be a finite number, got {limit}")
    known = GATE_SCORES[score]
    if known.units == "share" and not (-1.0 if known.signed else 0.0) < limit < 1:
        ends = "-1 and 1" if known.signed else "0 and 1"
        raise ValueError(
            f"threshold {limit:g} for {score}, a share, must lie strictly between {ends}: write 0.05 for 5%"
        )
    if limit < 0 and not known.signed:
        raise ValueError(f"threshold {limit:g} for {score}, which is never negative, would reject everything: raise it")


DEFAULT_RULES = (
    Rule("error_change", 0.05, unlabelled="anchor_disagreement"),
    Rule("recall_drop", 0.1, unlabelled="class_disagreement"),
)
"""The mean and the worst class: errors where there are labels, changed predictions elsewhere."""


@dataclass(frozen=True)
class Policy:
    """When to accept an update: one rule by ``threshold`` and ``score``, or any number of ``rules``.

    Without either, `DEFAULT_RULES`. An accept needs every required rule, on every anchor, and no harm that labels show:
    where anchor rows have labels and no required rule limits it, a significant rise of the error rate, or fall of a
    class's recall, is a reject.
    """

    threshold: float | None = None
    score: str = "anchor_disagreement"
    confidence: float = 0.95
    """Of all intervals that decide, together; rules, anchors and the parts of a score share what is left to 1."""
    min_source: int = 100
    min_target: int = 100
    """Smaller samples decide nothing, as far as the score looks at them."""
    anchors: tuple[str, ...] = ()
    """Anchors that must be there; any others are judged too."""
    promise: str = ""
    rules: tuple[Rule, ...] = ()
    labels: Literal["guard", "decide"] = "guard"
    """"decide": where labels show that harm stays within a rule's limit, they overrule a score that cannot tell."""
    looks: int = 1
    """How often fresh rows may be drawn to ask again; they share what confidence leaves to 1. Adding rows is free."""

    def __post_init__(self) -> None:
        if self.threshold is not None and self.rules:
            raise ValueError("threshold and rules exclude each other: make the threshold one of the rules")
        if self.threshold is None and self.score != Policy.score:
            raise ValueError(f"score {self.score} has no threshold: give one")
        if self.labels not in LABELS:
            raise ValueError(f"labels must be one of {', '.join(LABELS)}, got {self.labels!r}")
        check_level(self.confidence, "confidence")
        for name in ("min_source", "min_target", "looks"):
            check_count(getattr(self, name), name)
        if not any(rule.required for rule in self.all_rules):
            raise ValueError("no rule is required, so nothing would decide: make one of them required")

    @property
    def delta(self) -> float:
        """What confidence leaves to 1, as it is written: 0.05 for 0.95, which floats miss."""
        return float(1 - Fraction(repr(float(self.confidence))))

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """The threshold as a rule, the rules, or the default ones."""
        return (Rule(self.score, self.threshold),) if self.threshold is not None else self.rules or DEFAULT_RULES


def decide(
    diagnostics: Mapping[str, Diagnostic | Record],
    policy: Policy,
    *,
    look: int = 1,
    labellings: Mapping[str, Labelling] = MappingProxyType({}),
) -> Verdict:
    """Accept, reject or neither, from one diagnostic per anchor: a `Diagnostic`, or its record.

    A rule accepts where the whole interval of its score is at or below its limit, and rejects where it is above.
    Scores of training rows, the anchor's or the target's, decide nothing: their interval does not hold. Required rules
    and anchors share the failure probability, so that all intervals that decide hold at once with the policy's
    confidence.

    Args:
        look: which draw of fresh rows this is; rows that were added to earlier ones are the same draw.
        labellings: by anchor, labels of its rows that were told one by one. They answer for the change of the error
            rate, or of the risk, of that anchor; labels of the diagnostic itself may then only refuse.

    Raises:
        ValueError: without any anchor, without one that the policy asks for, or for a limit beyond the loss's range.
    """
    if not diagnostics:
        raise ValueError("there is no anchor to decide on: pass at least one diagnostic")
    asked = [*policy.anchors, *(rule.anchor for rule in policy.all_rules if rule.required and rule.anchor)]
    if absent := [name for name in dict.fromkeys(asked) if name not in diagnostics]:
        raise ValueError(
            f"the policy asks for anchor {', '.join(absent)}, the diagnostics have {', '.join(diagnostics)}: "
            "diagnose it too, or take it out of the policy"
        )
    records = {
        name: found.estimates() if isinstance(found, Diagnostic) else found for name, found in diagnostics.items()
    }
    if stray := next((name for name in labellings if name not in records), ""):
        raise ValueError(
            f"there are labels of anchor {stray}, the diagnostics have {', '.join(records)}: diagnose it too"
        )
    plans = {name: _plan(name, record, policy, labellings.get(name)) for name, record in records.items()}
    deciding = sum(step.role != "advisory" for plan in plans.values() for step in plan)
    shares = {"required": 1 / (policy.looks * deciding), "guard": 1 / (policy.looks * deciding), "advisory": 1.0}
    judged = []
    for name, plan in plans.items():
        if not any(step.role == "required" for step in plan):
            raise ValueError(f"no required rule of the policy is about anchor {name}: add one, or leave the anchor out")
        judged.append(_judge_anchor(name, records[name], plan, policy, shares, look))
    worst_of_each = tuple(_deciding(rules) for rules in judged)
    worst = _deciding(worst_of_each)
    rules = tuple(rule for rules in judged for rule in rules)
    return Verdict(worst.decision, worst_of_each, worst.anchor, policy.confidence, policy.promise, rules)


class PlannedRule(NamedTuple):
    """A rule, what it may do, and the labels that were told for it, if any."""

    rule: Rule
    role: Role
    labelling: Labelling | None = None


def _plan(anchor: str, record: Record, policy: Policy, labelling: Labelling | None) -> list[PlannedRule]:
    """The rules that concern an anchor, as its labels allow, and guards for the harm that labels could show."""
    labelled = record.get("labelled") is not None
    told = "" if labelling is None else _told_score(anchor, record, labelling)
    plan: list[PlannedRule] = []
    for rule in policy.all_rules:
        if rule.anchor in ("", anchor):
            score = rule.unlabelled if rule.unlabelled and not labelled and rule.score != told else rule.score
            _check_reach(record, score, rule.limit)
            role: Role = "required" if rule.required else "advisory"
            plan.append(PlannedRule(Rule(score, rule.limit, anchor), role, labelling if score == told else None))
    required = {step.rule.score: step.rule.limit for step in plan if step.role == "required"}
    guards: list[str] = []
    if labelled:
        guards = ["error_change", "recall_drop"] if "class" in record.get("slices", {}) else ["risk_change"]
        others = [GATE_SCORES[score].with_labels for score in required if GATE_SCORES[score].kind != "labelled"]
        guards += [score for score in others if score == "group_error_rise" or policy.labels == "decide"]
    silent = [score for score in dict.fromkeys(guards) if score not in required or score == told]
    plan += [PlannedRule(Rule(score, required.get(score, 0.0), anchor), "guard") for score in silent]
    return [
        *plan,
        *([PlannedRule(Rule(told, 0.0, anchor), "guard", labelling)] if told and told not in required else []),
    ]


def _told_score(anchor: str, record: Record, labelling: Labelling) -> str:
    """The score that a labelling answers for."""
    if isinstance(labelling.loss, ZeroOne):
        return "error_change"
    bounds = labelling.loss.bound(labelling.outputs.shape[1]), number(record, "loss_bound")
    if not math.isclose(*bounds):
        raise ValueError(
            f"the labels of anchor {anchor} are for a loss of at most {bounds[0]:.4g}, the diagnostic for one of at "
            f"most {bounds[1]:.4g}: label with the diagnostic's loss"
        )
    return "risk_change"


def _check_reach(record: Record, score: str, limit: float) -> None:
    """A limit that the loss, or the clipped outputs, can exceed."""
    of_loss = GATE_SCORES[score].units == "loss"
    path = ("anchor", "worst_label", "tally") if of_loss else ("output_distance", "tally")
    if not of_loss and score != "held_out_distance":
        return
    if (rows := tally_at(record, *path)) is not None and limit >= rows.high:
        raise ValueError(
            f"threshold {limit:g} for {score} is not below {rows.high:.4g}, the largest value that there can be: it "
            "promises nothing, lower it"
        )


def _judge_anchor(
    anchor: str,
    record: Record,
    plan: list[PlannedRule],
    policy: Policy,
    shares: Mapping[str, float],
    look: int,
) -> list[AnchorVerdict]:
    if record.get("same_model"):
        why = "The new model is the old one: nothing changes."
        return [
            AnchorVerdict(anchor, "accept", rule.score, 0.0, 0.0, 0.0, rule.limit, None, why, role=role)
            for rule, role, _ in plan
        ]
    found = [_interval(record, step, policy.delta * shares[step.role]) for step in plan]
    heard = [(step, interval) for step, interval in zip(plan, found, strict=True) if step.role != "advisory"]
    heard.sort(key=lambda pair: pair[0].labelling is not None)
    by_labels = {s.rule.score: interval for s, interval in heard if GATE_SCORES[s.rule.score].kind == "labelled"}
    return [
        _judge(step.rule, step.role, interval, by_labels, policy, look)
        for step, interval in zip(plan, found, strict=True)
    ]


def _interval(record: Record, step: PlannedRule, delta: float) -> ScoreInterval:
    if step.labelling is not None:
        return labelling_interval(step.labelling, step.rule.limit, delta=delta)
    return score_interval(record, step.rule.score, delta=delta)


def _deciding(rules: Sequence[AnchorVerdict]) -> AnchorVerdict:
    """The worst of those that decide; a guard counts only where it rejects.

    Of rejects those by labels come first, which can tell harm; limits of different units are compared in multiples.
    """
    counted = [v for v in rules if v.role == "required" or (v.role == "guard" and v.decision == "reject")]
    decision = min((v.decision for v in counted), key=WORST_FIRST.index)

    def severity(v: AnchorVerdict) -> tuple[bool, float, float]:
        end = v.lower if decision == "reject" else v.upper
        excess = (end - v.threshold) / max(abs(v.threshold), 1e-3)
        told = decision == "reject" and GATE_SCORES[v.score].kind == "labelled"
        return told, _or_infinite(excess), _or_infinite(v.value)

    return max((v for v in counted if v.decision == decision), key=severity)


def _judge(
    rule: Rule,
    role: Role,
    found: ScoreInterval,
    by_labels: Mapping[str, ScoreInterval],
    policy: Policy,
    look: int,
) -> AnchorVerdict:
    t, sample, size = rule.limit, found.widest.sample, found.widest.size
    value, lower, upper, limit = (shown(x, rule.score) for x in (found.value, found.lower, found.upper, t))
    sure = f"with {100 * policy.confidence:g}% confidence ({value} seen); the limit is {limit}"
    where = found.widest.most if found.lower > t else found.widest.which
    least: dict[SampleName, int] = {"anchor": policy.min_source, "target": policy.min_target}
    small = next((kind for kind, rows in found.sizes.items() if rows < least[kind]), None)
    decision: Decision = "inconclusive"
    needed: int | None = None
    then = ""
    if found.labels is not None and math.isnan(found.value):
        value = "not labelled yet"
    if math.isnan(found.value) and found.labels is None:
        why = f"not available ({found.reason})"
        then = "give what is missing, or take the rule out of the policy"
    elif found.on_training:
        why = f"not known: {value} on rows that are not held out and say nothing about new ones ({found.on_training})"
        then = "give anchor rows that no model was trained on (source_val, --source-val)"
        found = found._replace(lower=math.nan, upper=math.nan)
    elif found.on_target_training:
        why = f"not known: {value} on rows that are not held out and say nothing about new ones "
        why += f"({found.on_target_training})"
        then = "give target rows that no model was trained on (target_val, --target-val)"
        found = found._replace(lower=math.nan, upper=math.nan)
    elif look > policy.looks and role != "advisory" and found.labels is None:
        why = f"not known: these rows are draw {look}, and the policy plans {policy.looks}, so its error is spent"
        then = "add rows to the earlier ones instead of drawing fresh ones (--previous), or plan more looks"
        found = found._replace(lower=math.nan, upper=math.nan)
    elif small and role != "guard":
        sample, size, needed = small, found.sizes[small], least[small]
        why = f"not known: the policy asks for at least {needed} {sample} samples and there are {size}"
        then = f"collect {needed - size} more {sample} rows"
    elif found.upper <= t:
        decision, why = "accept", f"at most {upper} {sure}"
    elif found.lower > t:
        decision, why = "reject", f"at least {lower} {sure}"
        why += f" ({where})" if where else ""
        then = "keep the old model" + (f", and train the new one on more rows of {where}" if where else "")
    else:
        why = f"between {lower} and {upper} {sure}"
        why += f" ({found.reason})" if found.reason else ""
        then = "raise the limit or judge by another score: no number of rows is known that would decide this one"
        if found.labels is not None:
            why, needed, then = _labels_to_go(why, found.labels)
        elif (forecasted := _needed(found, t)) is not None:
            needed, at_least = forecasted
            which = f"rows of {where}" if found.widest.most else f"{where} {sample} samples".strip()
            size = size if found.widest.rows is None else found.widest.rows.n
            why += f"; {'at least' if at_least else 'about'} {rounded(needed)} {which} would decide, there are {size}"
            then = (
                f"add {rounded(needed - size)} {which} that no model was trained on to those there are, and ask again"
            )
    if role == "required" and GATE_SCORES[rule.score].kind != "labelled":
        decision, why, then = _heard(rule, decision, why, then, by_labels, policy)
    return AnchorVerdict(
        rule.anchor,
        decision,
        rule.score,
        found.value,
        found.lower,
        found.upper,
        t,
        needed if decision == "inconclusive" else None,
        f"The {GATE_SCORES[rule.score].meaning} is {why}.",
        sample if found.labels is None else "labels",
        size,
        found.notes,
        role,
        f"{then[:1].upper()}{then[1:]}." if then else "",
        found.widest.most,
        found.widest.which if found.widest.most else "",
    )


def _labels_to_go(why: str, labels: LabellingState) -> tuple[str, int | None, str]:
    """Why labels do not decide, how many would, and what to do."""
    if labels.exhausted:
        lacking = "too many rows could not be labelled" if labels.scope == "file" else "all rows are used"
        return f"{why}; {lacking}", None, "collect more anchor rows that no model was trained on, and label those"
    more = f"{'at least' if labels.at_least else 'about'} {labels.forecast}"
    needed = labels.spent + labels.forecast
    return f"{why}; {more} more labels would decide", needed, f"label {more} more rows (trace-shift label)"


def _heard(
    rule: Rule,
    decision: Decision,
    why: str,
    then: str,
    by_labels: Mapping[str, ScoreInterval],
    policy: Policy,
) -> tuple[Decision, str, str]:
    """What labels make of the decision of a score that cannot tell harm from help."""
    name = GATE_SCORES[rule.score].with_labels
    if decision == "accept":
        return decision, why, then
    comparable = GATE_SCORES[name].units == GATE_SCORES[rule.score].units
    tolerated = rule.limit if comparable else 0.0
    if (found := by_labels.get(name)) is not None and found.upper <= tolerated:
        change = f"the {GATE_SCORES[name].meaning} is at most {shown(found.upper, name)}"
        change += f" ({shown(found.value, name)} seen)"
        if policy.labels == "decide":
            return "accept", f"{why}; labels can tell harm from help and overrule it: {change}", ""
        if decision == "reject":
            why += f". It cannot tell harm from help, but labels can: {change}"
            return decision, why, "if labels may decide, say so in the policy (labels: decide)"
    if decision == "reject":
        why += ". It cannot tell harm from help"
        rows = "more held-out anchor rows" if by_labels else "held-out anchor rows"
        then = f"label {rows} (trace-shift label, or --anchor-test) and let them decide (labels: decide in the policy)"
    return decision, why, then


def _needed(found: ScoreInterval, threshold: float) -> tuple[int, bool] | None:
    """Samples that would decide, and whether that is the least; None where no number would, or beyond 1e9.

    Of a mean by the growth of its wealth, otherwise `rows_by_width`, or those at which the interval is finite.
    """
    part = found.widest
    if part.thinned:
        return None
    if found.alone and part.rows is not None:
        ahead = forecast(part.rows, threshold, part.spent)
        return (part.rows.n + ahead.rows, ahead.at_least) if ahead.rows < 10**9 else None
    below = found.value <= threshold
    radius = found.upper - found.value if below else found.value - found.lower
    if math.isinf(radius):
        return (part.least, True) if part.least > part.size else None
    if found.open_below and not below:
        return None
    return rows_by_width(part.size, radius, threshold - found.value)


def rows_by_width(n: int, radius: float, gap: float) -> tuple[int, bool] | None:
    """Rows at which an interval's end, ``radius`` off at n and as ``n^-1/2``, clears a limit at ``gap``; None over 1e9.

    A value nearer to the limit than a quarter of the radius is taken to be that far off, and the number is the least.

    >>> rows_by_width(400, 0.02, 0.01), rows_by_width(400, 0.02, 0.0)
    ((1600, False), (6400, True))
    """
    least = radius / 4
    if radius == 0 or (needed := n * (radius / max(abs(gap), least)) ** 2) >= 1e9:
        return None
    return max(n + 1, math.ceil(needed - 1e-9)), abs(gap) < least


def rounded(rows: int) -> str:
    """A number of rows for people: from 10,000 on rounded up to two digits, as no forecast knows more.

    >>> rounded(1234), rounded(123456)
    ('1234', '130,000')
    """
    if rows < 10_000:
        return str(rows)
    unit = 10 ** (len(str(rows)) - 2)
    return f"{-(-rows // unit) * unit:,}"


def shown(value: float, score: str) -> str:
    """A score for people, in percent where it is a share, with its sign where it can have both.

    >>> shown(0.0123, "anchor_disagreement"), shown(3e-7, "anchor_disagreement"), shown(0.02, "error_change")
    ('1.23%', '0%', '+2%')
    """
    if math.isnan(value):
        return "n/a"
    known = GATE_SCORES[score]
    if known.units == "share":
        percent = round(100 * value, 3)
        return f"{percent:{'+' if known.signed and percent else ''}.3g}%"
    return f"{value:{'+' if known.signed and value else ''}.4g}"


def _or_infinite(value: float) -> float:
    return math.inf if math.isnan(value) else value
