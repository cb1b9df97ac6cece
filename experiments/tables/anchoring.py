"""The table `anchoring`: what each method leaves of the anchor's risk change at equal target accuracy, from records."""

from pandas import DataFrame

from ..analysis.anchoring import (
    METHODS,
    PENALTIES,
    TOLERANCE,
    TRIVIAL,
    anchoring_frame,
    at_equal_accuracy,
    lower_penalties,
    lowest,
    studies,
)
from ..analysis.cells import interval, spread
from ..analysis.summary import mean_interval
from ..engine.records import Record
from .table import Table, table


@table("anchoring", "anchoring")
def anchoring(records: list[Record]) -> Table:
    """One line for each study and method; differences are paired over seeds."""
    found = studies(anchoring_frame(records))
    caption = (
        "Anchor-aware training at equal target accuracy: of every method, by seed, the most restrained update whose "
        f"error on the target's validation split is at most {100 * TOLERANCE:g} point above the plain fine-tune's. "
        "Target error is that on the test split, Delta R the change on the anchor's; means over seeds with standard "
        "deviations or 95% intervals of Student's t, differences paired by seed. The certificate is the upper end of "
        "the 95% interval of the worst-label bound on held-out anchor inputs. "
    )
    about = ["study", "method", "needs of the anchor", "strength", "target error [%]", "minus plain [p.p.]"]
    risk = ["Delta R [nats]", "|Delta R| [nats]", "minus plain"]
    error = ["Delta error [p.p.]", "|Delta error| [p.p.]", "minus plain"]
    return Table(
        caption=caption + " ".join(summary(title, part) for title, part in found),
        header=[*about, *risk, *error, "certificate [nats]"],
        rows=[_row(title, part, method) for title, part in found for method in METHODS],
    )


def summary(title: str, part: DataFrame) -> str:
    """What the records say of one study, in two sentences."""
    trivial = {column: lowest(part, TRIVIAL, column) for column in ("abs_risk_change", "abs_error_change")}
    moved_less, by_error = trivial.values()
    means = {
        name: float(at_equal_accuracy(part, name)["abs_risk_change"].mean())
        for name in ("plain", *PENALTIES, moved_less)
    }
    left = ", ".join(f"{means[kind]:.3f} ({METHODS[kind].title})" for kind in PENALTIES)
    helped = len(lower_penalties(part, "plain", "abs_risk_change"))
    against = [f"{len(lower_penalties(part, other, column))} of {len(PENALTIES)}" for column, other in trivial.items()]
    return (
        f"{title}: {helped} of {len(PENALTIES)} penalties lower |Delta R| (interval below 0), from "
        f"{means['plain']:.3f} nats to {left}. The best way of only moving less ({METHODS[moved_less].title}) leaves "
        f"{means[moved_less]:.3f}; {against[0]} penalties leave less |Delta R| than it, and {against[1]} less "
        f"|Delta error| than the best by that measure ({METHODS[by_error].title})."
    )


def _row(title: str, part: DataFrame, method: str) -> list[str]:
    own, plain = at_equal_accuracy(part, method), at_equal_accuracy(part, "plain")
    about = METHODS[method]
    kept = own.loc[own["method"] == method, "strength"]
    strength = f"{kept.median():.3g}" if method != "plain" and len(kept) else ""

    def against(column: str, scale: float, form: str) -> str:
        return "" if method == "plain" else interval(mean_interval(scale * (own[column] - plain[column])), form)

    return [
        *(title, about.title, about.needs, strength),
        *(spread(100 * own["target_error"]), against("target_error", 100, "{:.1f}")),
        *(spread(own["risk_change"]), interval(mean_interval(own["abs_risk_change"]))),
        against("abs_risk_change", 1, "{:.3f}"),
        *(spread(100 * own["error_change"]), interval(mean_interval(100 * own["abs_error_change"]), "{:.1f}")),
        *(against("abs_error_change", 100, "{:.1f}"), spread(own["anchor_upper"])),
    ]
