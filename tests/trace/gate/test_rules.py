"""Policies of rules, and what labels may do: guard against harm, or decide."""

import math

import pytest
import torch

from trace import Sample, diagnose
from trace.gate import Labelling
from trace.gate.intervals import labelling_interval, score_interval
from trace.gate.policy import DEFAULT_RULES, Policy, Rule, decide
from trace.losses import ClippedCrossEntropy, SquaredError

RARE, COMMON = 60, 1000


def predicted(classes, width=3):
    """Logits of a model that is sure of these classes ``[n]``."""
    return 8.0 * torch.nn.functional.one_hot(classes, width).double()


def diagnosed(y, before, after, *, labelled=True, group=None):
    """An update by its predictions on held-out anchor rows with labels ``y [n]``; the rest is of no interest."""
    n = len(y)
    rows = torch.arange(n, dtype=torch.float64)[:, None]

    def old(x):
        return predicted(before[x[:, 0].long()])

    def new(x):
        return predicted(after[x[:, 0].long()])

    held = Sample(rows, y if labelled else None, group)
    return diagnose(old, new, Sample(rows + 0.25, y), Sample(rows + 0.5), source_val=held)


@pytest.fixture(scope="module")
def forgotten():
    """Labels and predictions of a model that forgets the rare class 2: recall 87% before, 0% after."""
    y = torch.cat([torch.arange(COMMON) % 2, torch.full((RARE,), 2)])
    before = y.clone()
    before[COMMON : COMMON + 8] = 0
    return y, before, torch.where(before == 2, 0, before)


@pytest.fixture(scope="module")
def improved():
    """An update that lifts accuracy from 70% to 95%."""
    y = torch.arange(1000) % 3
    rows = torch.arange(1000)
    wrong = (y + 1) % 3
    return y, torch.where(rows % 10 < 3, wrong, y), torch.where(rows % 20 < 1, wrong, y)


def judged(verdict, score):
    return next(rule for rule in verdict.rules if rule.score == score)


def test_a_forgotten_class_is_never_accepted_where_labels_show_it(forgotten):
    d = diagnosed(*forgotten)
    assert d.evidence.anchor.disagreement.value < 0.05
    verdict = decide({"a": d}, Policy(0.1))
    assert verdict.decision == "reject"
    assert judged(verdict, "anchor_disagreement").decision == "accept"
    (worst,) = verdict.anchors
    assert (worst.score, worst.role, worst.threshold) == ("recall_drop", "guard", 0.0)
    assert worst.value == pytest.approx(52 / 60)
    assert worst.reason.startswith("The largest fall of recall in any class is at least +")
    assert "(class 2)" in worst.reason
    assert worst.next == "Keep the old model, and train the new one on more rows of class 2."
    assert decide({"a": d}, Policy()).decision == "reject"


def test_without_labels_the_default_policy_sees_the_predicted_class(forgotten):
    d = diagnosed(*forgotten, labelled=False)
    assert decide({"a": d}, Policy(0.1)).decision == "accept"  # the mean alone
    verdict = decide({"a": d}, Policy())
    assert verdict.decision == "reject"
    assert [rule.score for rule in verdict.rules] == ["anchor_disagreement", "class_disagreement"]
    (worst,) = verdict.anchors
    assert worst.score == "class_disagreement"
    assert "(class 2). It cannot tell harm from help." in worst.reason


def test_help_is_rejected_only_by_who_cannot_see_it(improved):
    blind, seen = diagnosed(*improved, labelled=False), diagnosed(*improved)
    (found,) = decide({"a": blind}, Policy(0.05)).anchors
    assert found.decision == "reject"
    assert found.reason.endswith("the limit is 5%. It cannot tell harm from help.")
    assert found.next.startswith("Label held-out anchor rows (trace-shift label, or --anchor-test) and let them decide")
    (found,) = decide({"a": seen}, Policy(0.05)).anchors
    assert found.decision == "reject"
    assert (
        "It cannot tell harm from help, but labels can: the change of the anchor's error rate is at most -"
        in found.reason
    )
    assert "(labels: decide)" in found.next
    verdict = decide({"a": seen}, Policy(0.05, labels="decide"))
    assert verdict.decision == "accept"
    assert (
        "labels can tell harm from help and overrule it: the change of the anchor's error" in verdict.anchors[0].reason
    )
    assert decide({"a": seen}, Policy()).decision == "accept"


def test_labels_that_show_harm_overrule_nothing(improved):
    y, before, after = improved
    harmed = diagnosed(y, after, before)
    verdict = decide({"a": harmed}, Policy(0.05, labels="decide"))
    assert verdict.decision == "reject"
    assert verdict.anchors[0].score in ("error_change", "recall_drop")
    assert judged(verdict, "anchor_disagreement").decision == "reject"


def test_a_required_rule_on_labels_says_how_much_harm_is_tolerated(improved):
    """Its limit takes the place of the guard's 0."""
    y, _, before = improved
    after = torch.where(torch.arange(1000) % 25 == 1, (y + 1) % 3, before)  # 4% more errors
    d = diagnosed(y, before, after)
    assert decide({"a": d}, Policy(0.2)).decision == "reject"
    tolerant = Policy(rules=(Rule("error_change", 0.1), Rule("recall_drop", 0.2)))
    verdict = decide({"a": d}, tolerant)
    assert verdict.decision == "accept"
    assert {rule.role for rule in verdict.rules} == {"required"}


def test_advisory_rules_are_shown_and_decide_nothing(improved):
    d = diagnosed(*improved)
    rules = (Rule("error_change", 0.02), Rule("recall_drop", 0.1), Rule("anchor_disagreement", 0.05, required=False))
    verdict = decide({"a": d}, Policy(rules=rules))
    assert verdict.decision == "accept"
    shown = judged(verdict, "anchor_disagreement")
    assert (shown.decision, shown.role) == ("reject", "advisory")
    alone = score_interval(d, "anchor_disagreement", delta=0.05)
    assert (shown.lower, shown.upper) == (alone.lower, alone.upper)
    shared = score_interval(d, "error_change", delta=0.025)
    assert judged(verdict, "error_change")[4:6] == (shared.lower, shared.upper)


def test_rules_and_anchors_and_guards_share_the_error(improved):
    d, blind = diagnosed(*improved), diagnosed(*improved, labelled=False)
    verdict = decide({"seen": d, "blind": blind}, Policy(0.5))
    assert [(rule.anchor, rule.score, rule.role) for rule in verdict.rules] == [
        ("seen", "anchor_disagreement", "required"),
        ("seen", "error_change", "guard"),
        ("seen", "recall_drop", "guard"),
        ("blind", "anchor_disagreement", "required"),
    ]
    expected = score_interval(blind, "anchor_disagreement", delta=0.05 / 4)
    assert verdict.rules[3][4:6] == (expected.lower, expected.upper)


def test_a_rule_for_one_anchor(improved):
    d = diagnosed(*improved, labelled=False)
    rules = (Rule("anchor_disagreement", 0.5), Rule("class_disagreement", 0.1, anchor="b"))
    verdict = decide({"a": d, "b": d}, Policy(rules=rules))
    assert [(a.anchor, a.decision) for a in verdict.anchors] == [("a", "accept"), ("b", "reject")]
    with pytest.raises(ValueError, match="the policy asks for anchor b, the diagnostics have a"):
        decide({"a": d}, Policy(rules=rules))
    with pytest.raises(ValueError, match="no required rule of the policy is about anchor a"):
        decide({"a": d, "b": d}, Policy(rules=rules[1:]))


def test_what_a_required_rule_lacks_is_never_an_accept(improved):
    d = diagnosed(*improved, labelled=False)
    for score in ("error_change", "risk_change", "recall_drop", "group_error_rise", "tail_loss_rise", "trace_mmd"):
        verdict = decide({"a": d}, Policy(rules=(Rule("anchor_disagreement", 0.5), Rule(score, 0.5))))
        assert verdict.decision == "inconclusive"
        assert verdict.anchors[0].score == score
        assert "is not available (" in verdict.anchors[0].reason
        assert verdict.anchors[0].next == "Give what is missing, or take the rule out of the policy."


def test_groups_are_judged_by_the_worst(improved):
    """Of two groups one loses what the other gains."""
    y = torch.arange(1200) % 3
    rows, wrong = torch.arange(1200), (y + 1) % 3
    before, after = (
        torch.where((rows % 10 == 0) & (rows % 2 == 0) & part, wrong, y) for part in (rows < 600, rows >= 600)
    )
    group = tuple("first" if row < 600 else "second" for row in range(1200))
    for labelled, score in ((True, "group_error_rise"), (False, "group_disagreement")):
        d = diagnosed(y, before, after, labelled=labelled, group=group)
        policy = Policy(rules=(Rule("group_error_rise", 0.02, unlabelled="group_disagreement"),))
        verdict = decide({"a": d}, policy)
        found = judged(verdict, score)
        assert (found.decision, found.value) == ("reject", 0.1)
        if labelled:
            assert "(group second)" in found.reason
            assert d.evidence.labelled.error.value == 0.0


def test_rows_of_the_class_that_is_least_known_are_asked_for(forgotten):
    y, before, _ = forgotten
    d = diagnosed(y, before, before)
    (found,) = decide({"a": d}, Policy()).anchors
    assert (found.decision, found.score) == ("inconclusive", "recall_drop")
    assert f"about {found.needed} rows of class 2 would decide, there are 60" in found.reason
    assert found.next.startswith(f"Add {found.needed - 60} rows of class 2 that no model was trained on")
    more = torch.full((found.needed - 60,), 2)
    extended = diagnosed(torch.cat([y, more]), torch.cat([before, more]), torch.cat([before, more]))
    assert decide({"a": extended}, Policy()).decision == "accept"


def test_the_same_model_twice_changes_nothing():
    """Whatever the samples say, and however few they are."""
    g = torch.Generator().manual_seed(0)
    model = torch.nn.Linear(2, 2)
    source, target = (Sample(torch.randn(20, 2, generator=g) + shift, torch.arange(20) % 2) for shift in (0.0, 3.0))
    d = diagnose(model, model, source, target, source_val=source, target_val=target)
    for policy in (Policy(), Policy(0.001), Policy(1e-6, "trace_w"), Policy(1e-6, "bound_ot")):
        verdict = decide({"a": d}, policy)
        assert verdict.decision == "accept"
        assert all((rule.value, rule.lower, rule.upper) == (0.0, 0.0, 0.0) for rule in verdict.rules)
        assert verdict.anchors[0].reason == "The new model is the old one: nothing changes."


def test_regression_is_guarded_by_its_risk():
    x = torch.linspace(-1, 1, 400, dtype=torch.float64)[:, None]
    held = Sample(x, x[:, 0])
    d = diagnose(
        lambda x: x,
        lambda x: x + 0.9,
        Sample(x + 1e-3, x[:, 0]),
        Sample(x),
        source_val=held,
        loss=SquaredError(limit=2.0),
    )
    verdict = decide({"a": d}, Policy(15.0, "anchor_worst_label"))
    assert (verdict.decision, verdict.anchors[0].score) == ("reject", "risk_change")
    assert verdict.anchors[0].value == pytest.approx(0.81)


def test_limits_beyond_the_loss_promise_nothing(improved):
    d = diagnosed(*improved)
    largest = d.evidence.loss_bound
    for score in ("anchor_worst_label", "bound_ot", "bound_mmd", "risk_change", "tail_loss_rise"):
        with pytest.raises(
            ValueError, match=f"for {score} is not below {largest:.4g}, the largest value.*promises nothing"
        ):
            decide({"a": d}, Policy(math.ceil(largest), score))
    with pytest.raises(ValueError, match=r"for held_out_distance is not below 34\.64"):
        decide({"a": d}, Policy(35.0, "held_out_distance"))


def test_fresh_rows_spend_error_and_added_ones_do_not(improved):
    d = diagnosed(*improved, labelled=False)
    once, thrice = Policy(0.5), Policy(0.5, looks=3)
    assert decide({"a": d}, once, look=1).decision == "accept"
    verdict = decide({"a": d}, once, look=2)
    assert verdict.decision == "inconclusive"
    assert "these rows are draw 2, and the policy plans 1, so its error is spent" in verdict.anchors[0].reason
    assert "--previous" in verdict.anchors[0].next
    (found,) = decide({"a": d}, thrice, look=3).anchors
    expected = score_interval(d, "anchor_disagreement", delta=0.05 / 3)
    assert (found.decision, found.lower, found.upper) == ("accept", expected.lower, expected.upper)


def test_the_default_rules_are_about_the_mean_and_the_worst_class():
    assert [(rule.score, rule.unlabelled) for rule in DEFAULT_RULES] == [
        ("error_change", "anchor_disagreement"),
        ("recall_drop", "class_disagreement"),
    ]
    assert Policy().all_rules == DEFAULT_RULES
    assert Policy(0.05, "trace_w").all_rules == (Rule("trace_w", 0.05),)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "errors", "limit": 0.1}, "score 'errors' is not known: use one of"),
        ({"score": "error_change", "limit": 0.1, "unlabelled": "disagreement"}, "score 'disagreement' is not known"),
        ({"score": "trace_w", "limit": 0.1, "unlabelled": "trace_mmd"}, "score trace_w needs no labels: leave out"),
        ({"score": "error_change", "limit": -0.1, "unlabelled": "anchor_disagreement"}, "strictly between 0 and 1"),
        ({"score": "recall_drop", "limit": math.nan}, "must be a finite number"),
    ],
)
def test_bad_rules(options, message):
    with pytest.raises(ValueError, match=message):
        Rule(**options)


# --- labels that are told one by one ---


def told(y, before, after, count, *, limit=0.05, loss=None, scope="file"):
    """A labelling of these rows that ``count`` labels were told of."""
    labelling = Labelling(
        predicted(before),
        predicted(after),
        limit=limit,
        loss=loss,
        scope=scope,
        generator=torch.Generator().manual_seed(0),
    )
    if len(rows := labelling.next_rows(max(count, 1))[:count]):
        labelling.tell(rows, y[rows])
    return labelling


def test_labels_answer_in_place_of_changed_predictions(improved):
    """25 points better, 35% of the predictions change: without labels a reject, with a few an accept."""
    d = diagnosed(*improved, labelled=False)
    policy = Policy(rules=(Rule("error_change", 0.05, unlabelled="anchor_disagreement"),))
    assert decide({"a": d}, policy).decision == "reject"
    waiting = decide({"a": d}, policy, labellings={"a": told(*improved, 1)})
    assert waiting.decision == "inconclusive"
    rule = waiting.rules[0]
    assert (rule.score, rule.sample, rule.size) == ("error_change", "labels", 1)
    assert rule.needed > 1
    assert f"abel about {rule.needed - 1} more rows" in rule.next or f"abel at least {rule.needed - 1}" in rule.next
    verdict = decide({"a": d}, policy, labellings={"a": told(*improved, 60)})
    assert verdict.decision == "accept"
    assert "the labels speak of the 1000 rows at hand" in verdict.rules[0].notes[0]


def test_labels_are_judged_at_the_rule_s_limit_and_share(improved):
    """Whatever they were asked for with; two rules have half of the error each."""
    labelling = told(*improved, 40, limit=-0.2)
    rules = (Rule("error_change", 0.02), Rule("class_disagreement", 0.6))
    verdict = decide({"a": diagnosed(*improved, labelled=False)}, Policy(rules=rules), labellings={"a": labelling})
    rule = verdict.rules[0]
    expected = labelling_interval(labelling, 0.02, delta=0.025)
    assert (rule.lower, rule.upper, rule.value) == (expected.lower, expected.upper, expected.value)


def test_harm_that_told_labels_show_is_refused(improved):
    """The update undone: 25 points worse. A rule about changed predictions alone would accept it."""
    y, before, after = improved
    harmful = (y, after, before)
    policy = Policy(threshold=0.5)
    assert decide({"a": diagnosed(*harmful, labelled=False)}, policy).decision == "accept"
    verdict = decide({"a": diagnosed(*harmful, labelled=False)}, policy, labellings={"a": told(*harmful, 60)})
    assert verdict.decision == "reject"
    assert verdict.anchors[0].score == "error_change"


def test_told_labels_overrule_where_labels_decide(improved):
    d = diagnosed(*improved, labelled=False)
    labellings = {"a": told(*improved, 60, limit=0.0)}
    assert decide({"a": d}, Policy(threshold=0.1), labellings=labellings).decision == "reject"
    verdict = decide({"a": d}, Policy(threshold=0.1, labels="decide"), labellings=labellings)
    assert verdict.decision == "accept"
    assert "overrule" in verdict.rules[0].reason


def test_labels_of_the_diagnostic_itself_may_still_refuse(improved):
    """Told labels of a better update do not hide what the anchor's own labels show of this one."""
    y, before, after = improved
    policy = Policy(rules=(Rule("error_change", 0.05),))
    verdict = decide({"a": diagnosed(y, after, before)}, policy, labellings={"a": told(*improved, 60)})
    assert verdict.decision == "reject"
    assert [rule.decision for rule in verdict.rules if rule.role == "required"] == ["accept"]


def test_told_labels_of_another_loss_or_anchor_are_refused(improved):
    d = diagnosed(*improved, labelled=False)
    policy = Policy(rules=(Rule("risk_change", 1.0),))
    same = told(*improved, 5, limit=1.0, loss=ClippedCrossEntropy())
    assert decide({"a": d}, policy, labellings={"a": same}).rules[0].sample == "labels"
    with pytest.raises(ValueError, match="the labels of anchor a are for a loss of at most"):
        decide({"a": d}, policy, labellings={"a": told(*improved, 5, loss=ClippedCrossEntropy(2.0))})
    with pytest.raises(ValueError, match="there are labels of anchor b, the diagnostics have a"):
        decide({"a": d}, policy, labellings={"b": same})


def test_rows_that_are_used_up_ask_for_others(improved):
    y, before, after = (rows[:120] for rows in improved)
    labelling = told(y, before, after, 120, limit=-0.245, scope="population")
    assert labelling.state.exhausted
    policy = Policy(rules=(Rule("error_change", -0.245),))
    rule = decide({"a": diagnosed(y, before, after, labelled=False)}, policy, labellings={"a": labelling}).rules[0]
    assert rule.decision == "inconclusive"
    assert (rule.needed, rule.next) == (
        None,
        "Collect more anchor rows that no model was trained on, and label those.",
    )
