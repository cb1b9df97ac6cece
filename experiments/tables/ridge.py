"""Table `ridge-scaling`, from stored records alone."""

from collections.abc import Callable
from functools import partial

from pandas import DataFrame

from ..analysis import ridge as reading
from ..analysis.cells import MISSING
from ..analysis.ridge import TOLERANCE, Spread, agrees, middle_half
from ..engine.records import Record
from .table import Table, table

ORDERS: tuple[tuple[str, str, float | None], ...] = (
    ("shift penalty of the new model, L_x W1", "shift_penalty", 1.0),
    ("weight difference, |Delta w|", "weight_change", 2.0),
    ("model change, E|Delta w.x|", "model_change", 2.0),
    ("its Cauchy-Schwarz bound, |Delta w| E|x|", "model_change_bound", 2.0),
    ("E|x| on the target", "mean_norm", 0.0),
    ("exact COSP", "cosp", None),
    ("risk change, |Delta R|", "risk_change", 1.0),
    ("core bound", "bound", 1.0),
    ("core bound over |Delta R|", "tightness", 0.0),
)
"""Row, curve, and the order that the paper states for small shifts."""


@table("ridge-scaling", "ridge")
def ridge_scaling(records: list[Record]) -> Table:
    """Orders of every term of the bound, small and large shifts, closed form and samples, beside the paper's."""
    closed, finite = reading.closed_forms(records), reading.samples(records)
    moved, diagnosed = reading.with_change(closed), reading.diagnostics(finite)
    rows = [_slope_row(title, partial(reading.closed_slope, closed, name), order) for title, name, order in ORDERS]
    rows += [
        ["Delta R below 0", "not given", _negative(moved, 0, 0.1), _negative(moved, 10, float("inf")), "-"],
        ["Delta R over its limit", "not given", *_ends(moved, _over_limit), "-"],
        ["core bound over |Delta R|, size", "constant", *_ends(moved, reading.tightness), "-"],
        _slope_row("|Delta R|, fits to separate samples", partial(reading.refit_slope, finite, "fresh")),
        _slope_row(
            "|Delta R|, fits to one sample and its copy moved by mu", partial(reading.refit_slope, finite, "shared")
        ),
        ["core bound over |Delta R|, diagnostic", "constant", *_diagnostic(diagnosed, _median_tightness), "-"],
        ["|Delta R| <= core bound, diagnostic", "holds", *_diagnostic(diagnosed, _share_held), _all_held(diagnosed)],
    ]
    return Table(
        caption=_caption(reading.closed_parts(records), closed, moved, finite),
        header=["quantity", "paper", "|mu| <= 0.1", "|mu| >= 10", "agreement"],
        rows=rows,
    )


def _caption(drawn: list[Record], closed: list[Record], moved: list[Record], finite: list[Record]) -> str:
    worst = f"{reading.worst_error(drawn):.1f}" if drawn else MISSING
    n = finite[0]["config"]["n"] if finite else MISSING
    q = closed[0]["config"]["q"] if closed else MISSING
    return (
        "Ridge regression under a mean shift: log-log slopes in |mu|, unless a row says otherwise. Closed forms: "
        f"median over {len(closed)} problems (penalty, dimension, angle) with the widest ends of their 95% intervals; "
        f"{len(closed) - len(moved)} of them have mu orthogonal to w*, where nothing changes. Ratios stand at the "
        f"smallest and at the largest shift, with quartiles. Samples of n = {n}: median and quartiles over "
        f"{len(finite)} runs. The {q}-quantile of the gradient stands in for L_x. Agreement is within {TOLERANCE} of "
        f"the paper's order. Draws differ from the closed forms by {worst} standard errors at most."
    )


def _slope_row(title: str, slope: Callable[[str], Spread], order: float | None = None) -> list[str]:
    small, large = slope("small"), slope("large")
    verdict = "-" if order is None else _verdict(small, order)
    return [title, "not given" if order is None else f"{order:.0f}", _shown(small), _shown(large), verdict]


def _verdict(slope: Spread, order: float) -> str:
    return MISSING if not slope.num_records else "agrees" if agrees(slope, order) else "disagrees"


def _shown(spread: Spread, form: str = "{:z.3f}") -> str:
    return spread.text(form) if spread.num_records else MISSING


def _negative(moved: list[Record], low: float, high: float) -> str:
    signs = [
        change < 0
        for r in moved
        for m, change in zip(r["shifts"], r["curves"]["risk_change"], strict=True)
        if low <= m <= high
    ]
    return f"{sum(signs)} of {len(signs)} points" if signs else MISSING


def _ends(moved: list[Record], value: Callable[[Record, int], float]) -> list[str]:
    return [_shown(middle_half(value(r, i) for r in moved), "{:.3g}") for i in (0, -1)]


def _over_limit(r: Record, i: int) -> float:
    return float(r["curves"]["risk_change"][i] / r["risk_change_limit"])


def _diagnostic(rows: DataFrame, cell: Callable[[DataFrame], str]) -> list[str]:
    if rows.empty:
        return [MISSING, MISSING]
    regimes = rows[rows["shift"] <= 0.1], rows[rows["shift"] >= 10]
    return [MISSING if chosen.empty else cell(chosen) for chosen in regimes]


def _median_tightness(rows: DataFrame) -> str:
    return _shown(middle_half(rows["tightness"]), "{:.3g}")


def _share_held(rows: DataFrame) -> str:
    return f"{rows['holds'].sum()} of {len(rows)}"


def _all_held(rows: DataFrame) -> str:
    return MISSING if rows.empty else "agrees" if rows["holds"].all() else "disagrees"
