"""The table `anchoring`: what each method leaves of the anchor's risk change at equal target accuracy, from records."""

from __future__ import annotations

import numpy as np

from ..analysis.anchoring import (
    METHODS,
    PENALTIES,
    TOLERANCE,
    TRIVIAL,
    anchoring_frame,
    at_equal_accuracy,
    difference,
    lowest,
    studies,
)
from ..analysis.cells import interval, spread
from ..analysis.frame import Frame, mean_interval
from ..engine.records import Record
from .table import Table, table


@table("anchoring", "anchoring")
def anchoring(records: list[Record]) -> Table:
    """One line for each study and method; differences are paired over seeds."""
    found = studies(anchoring_frame(records))
    rows = [_row(title, part, method) for title, part in found for method in METHODS]
    caption = (
        "Anchor-aware training at equal target accuracy: of every method, by seed, the most restrained update whose "
        f"error on the target's validation split is at most {100 * TOLERANCE:g} point above the plain fine-tune's. "
        "Target error is that on the test split, Delta R the change on the anchor's; means over seeds with standard "
        "deviations or 95% bootstrap intervals, differences paired by seed. The certificate is the upper end of the "
        "95% interval of the worst-label bound on held-out anchor inputs. "
    )
    header = ["study", "method", "needs of the anchor", "strength", "target error [%]", "minus plain [p.p.]",
              "Delta R [nats]", "|Delta R| [nats]", "minus plain", "Delta error [p.p.]", "|Delta error| [p.p.]",
              "minus plain", "certificate [nats]"]  # fmt: skip
    return Table(caption + " ".join(summary(title, part) for title, part in found), header, rows)


def summary(title: str, part: Frame) -> str:
    """What the records say of one study, in two sentences."""
    trivial = {column: lowest(part, TRIVIAL, column) for column in ("abs_risk_change", "abs_error_change")}
    helped = [METHODS[kind].title for kind in PENALTIES if difference(part, kind, "plain", "abs_risk_change").upper < 0]
    means = {
        name: float(at_equal_accuracy(part, name)["abs_risk_change"].mean())
        for name in ("plain", *PENALTIES, trivial["abs_risk_change"])
    }
    left = ", ".join(f"{means[kind]:.3f} ({METHODS[kind].title})" for kind in PENALTIES)
    verdict = f"{len(helped)} of {len(PENALTIES)} penalties lower |Delta R| (interval below 0)"
    against = [_against(part, trivial[column], column) for column in trivial]
    return (
        f"{title}: {verdict}, from {means['plain']:.3f} nats to {left}. The best way of only moving less "
        f"({METHODS[trivial['abs_risk_change']].title}) leaves {means[trivial['abs_risk_change']]:.3f}; {against[0]} "
        f"penalties leave less |Delta R| than it, and {against[1]} less |Delta error| than the best by that measure "
        f"({METHODS[trivial['abs_error_change']].title})."
    )


def _against(part: Frame, other: str, column: str) -> str:
    """How many penalties leave less than another method, the interval being below 0."""
    fewer = [kind for kind in PENALTIES if difference(part, kind, other, column).upper < 0]
    return f"{len(fewer)} of {len(PENALTIES)}"


def _row(title: str, part: Frame, method: str) -> list[str]:
    own = at_equal_accuracy(part, method)
    about = METHODS[method]
    kept = own["strength"][own["method"] == method]
    strength = f"{np.median(kept):.3g}" if method != "plain" and len(kept) else ""

    def against(column: str, scale: float, form: str) -> str:
        plain = at_equal_accuracy(part, "plain")[column]
        return "" if method == "plain" else interval(mean_interval(scale * (own[column] - plain)), form)

    return [
        title, about.title, about.needs, strength,
        spread(100 * own["target_error"]), against("target_error", 100, "{:.1f}"),
        spread(own["risk_change"]), interval(mean_interval(own["abs_risk_change"])),
        against("abs_risk_change", 1, "{:.3f}"),
        spread(100 * own["error_change"]), interval(mean_interval(100 * own["abs_error_change"]), "{:.1f}"),
        against("abs_error_change", 100, "{:.1f}"), spread(own["anchor_upper"]),
    ]  # fmt: skip
