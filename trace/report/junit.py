"""A Verdict as JUnit XML, which CI systems show beside their tests: one test per anchor."""

from xml.etree import ElementTree

from ..escaping import one_line
from ..gate.policy import Verdict


def to_junit(v: Verdict) -> str:
    """One suite; an anchor that is not accepted is a failure of the type of its decision."""
    failed = [a for a in v.anchors if a.decision != "accept"]
    suite = ElementTree.Element(
        "testsuite", name="TRACE gate", tests=str(len(v.anchors)), failures=str(len(failed)), errors="0", skipped="0"
    )
    for anchor in v.anchors:
        case = ElementTree.SubElement(suite, "testcase", classname=f"gate.{anchor.score}", name=one_line(anchor.anchor))
        reason = one_line(anchor.reason)
        if anchor.decision == "accept":
            ElementTree.SubElement(case, "system-out").text = reason
        else:
            ElementTree.SubElement(case, "failure", type=anchor.decision, message=reason).text = reason
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'
