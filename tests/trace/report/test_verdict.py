"""A verdict as text, Markdown and record."""

import json
import re

import pytest

from trace.gate.policy import Policy, decide
from trace.report.verdict import as_dict, headline, to_markdown, to_text
from trace.stats.betting import confidence_sequence, forecast

from ..gate.test_policy import counted, record

ENDS = confidence_sequence(counted(40, 400), 0.05)
LOWER, UPPER = (f"{100 * end:.3g}%" for end in ENDS[:2])
NEEDED = 400 + forecast(counted(40, 400), 0.12, 0.05).rows


@pytest.mark.parametrize(
    ("threshold", "expected", "then"),
    [
        (
            0.2,
            f"ACCEPT the update: the share of predictions on the anchor that change is at most {UPPER} with 95% "
            "confidence (10% seen); the limit is 20%.",
            "",
        ),
        (
            0.05,
            f"REJECT the update: the share of predictions on the anchor that change is at least {LOWER} with 95% "
            "confidence (10% seen); the limit is 5%. It cannot tell harm from help.",
            "Next: label held-out anchor rows (trace-shift label, or --anchor-test) and let them decide "
            "(labels: decide in the policy).",
        ),
        (
            0.12,
            "INCONCLUSIVE, do not release yet: the share of predictions on the anchor that change is between "
            f"{LOWER} and {UPPER} with 95% confidence (10% seen); the limit is 12%; about {NEEDED} anchor samples "
            "would decide, there are 400.",
            f"Next: add {NEEDED - 400} anchor samples that no model was trained on to those there are, and ask again.",
        ),
    ],
)
def test_headline(threshold, expected, then):
    verdict = decide({"photos": record(40)}, Policy(threshold))
    assert headline(verdict) == expected
    assert to_text(verdict).split("\n\n")[0] == "\n".join([expected, *([then] if then else [])])
    assert (f"**Next**: {then[6:]}" in to_markdown(verdict)) == bool(then)


def test_text_of_one_and_of_several_anchors():
    one = to_text(decide({"photos": record(40)}, Policy(0.2)))
    header, row = one.splitlines()[2:]
    assert header.split() == ["anchor", "decision", "anchor_disagreement", "interval", "limit", "samples", "needed"]
    assert row.split() == ["photos", "accept", "10%", f"[{LOWER},", f"{UPPER}]", "20%", "400", "anchor"]
    several = to_text(decide({"photos": record(40), "maps": record(90), "faxes": record(80)}, Policy(0.2)))
    assert several.startswith("INCONCLUSIVE, do not release yet: on anchor maps, the worst of 3, the share")
    assert "\nfaxes: the share of predictions on the anchor that change is between" in several
    assert several.endswith("All intervals that decide hold together with 95% confidence.")


def test_markdown_is_one_table():
    found = to_markdown(decide({"a|b": record(40), "c": record(9)}, Policy(0.2, promise="Promised.")))
    assert found.startswith("## TRACE gate\n\n**ACCEPT the update**: on anchor a\\|b, the worst of 2, the share")
    rows = [line for line in found.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    assert len(rows) == 4
    assert found.endswith("- All intervals that decide hold together with 95% confidence.\n- Promised.")


def test_record_is_plain():
    found = json.loads(json.dumps(as_dict(decide({"a": record(40)}, Policy(0.12))), allow_nan=False))
    assert found["decision"] == "inconclusive"
    assert found["anchors"]["a"]["needed"] == NEEDED
    assert found["next"].startswith(f"Add {NEEDED - 400} anchor samples")
    assert [rule["score"] for rule in found["rules"]] == ["anchor_disagreement"]
    assert found["headline"].startswith("INCONCLUSIVE")
