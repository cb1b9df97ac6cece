"""A verdict as text, Markdown and record."""

import json
import re

import pytest

from trace.gate.policy import Policy, decide
from trace.report.verdict import as_dict, headline, to_markdown, to_text

from ..gate.test_policy import record


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (
            0.2,
            "ACCEPT the update: the share of predictions on the anchor that change is 10%, at most 13.4% with 95% "
            "confidence; the limit is 20%.",
        ),
        (
            0.05,
            "REJECT the update: the share of predictions on the anchor that change is 10%, at least 7.24% with 95% "
            "confidence; the limit is 5%.",
        ),
        (
            0.12,
            "INCONCLUSIVE, do not release yet: the share of predictions on the anchor that change is 10%, between "
            "7.24% and 13.4% with 95% confidence; the limit is 12%; about 1135 anchor samples would decide, there "
            "are 400.",
        ),
    ],
)
def test_headline(threshold, expected):
    assert headline(decide({"photos": record(40)}, Policy(threshold))) == expected


def test_text_of_one_and_of_several_anchors():
    one = to_text(decide({"photos": record(40)}, Policy(0.2)))
    assert one.splitlines()[2:] == [
        "  anchor  decision  anchor_disagreement  interval        limit  samples     needed",
        "  photos  accept    10%                  [7.24%, 13.4%]  20%    400 anchor",
    ]
    several = to_text(decide({"photos": record(40), "maps": record(90), "faxes": record(80)}, Policy(0.2)))
    assert several.startswith("INCONCLUSIVE, do not release yet: on anchor maps, the worst of 3, the share")
    assert "\nfaxes: the share of predictions on the anchor that change is 20%" in several
    assert several.endswith("All intervals hold together with 95% confidence.")


def test_markdown_is_one_table():
    found = to_markdown(decide({"a|b": record(40), "c": record(9)}, Policy(0.2, promise="Promised.")))
    assert found.startswith("## TRACE gate\n\n**ACCEPT the update**: on anchor a|b, the worst of 2, the share")
    rows = [line for line in found.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    assert len(rows) == 4
    assert found.endswith("- All intervals hold together with 95% confidence.\n- Promised.")


def test_record_is_plain():
    found = json.loads(json.dumps(as_dict(decide({"a": record(40)}, Policy(0.12))), allow_nan=False))
    assert found["decision"] == "inconclusive"
    assert found["anchors"]["a"]["needed"] == 1135
    assert found["headline"].startswith("INCONCLUSIVE")
