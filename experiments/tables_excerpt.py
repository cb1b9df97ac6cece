"""The published rows of the controlled experiments beside ours."""

from __future__ import annotations

import numpy as np

from .frame import Frame, size, synthetic_frame, where
from .published import EXCERPT, ExcerptRow
from .records import Record
from .table_text import MISSING, Table
from .tables_synthetic import spread


def combined_excerpt(records: list[Record]) -> Table:
    """The published rows, and ours in both readings of the columns that the paper leaves open."""
    frame = where(synthetic_frame(records), shared_draw=True)
    rows = []
    for published in EXCERPT:
        rows.append(_published(published))
        for model, name in (("logistic", "ours, logistic"), ("mlp", "ours, MLP")):
            if published.world != "blobs_shift" and model == "logistic":
                continue
            part = excerpt_part(frame, published, model)
            rows.append(_ours(published, part, name, squared=False))
            rows.append(_ours(published, part, f"{name}, squared, 1/n", squared=True))
    caption = (
        "The paper's rows beside ours: mean (standard deviation) over seeds at the smallest weight decay. Plain: "
        "model change is L_ell times the mean output distance, gradients are those of single losses. 'squared, 1/n': "
        "mean squared distance, shift terms over n, which fits the printed sizes. B is the sum without remainders."
    )
    header = ["world", "shift", "n", "row", "|Delta R|", "B OT", "B MMD", "EmpShift OT", "EmpShift MMD", "ModelChange",
              "G_Q / G_Q~"]  # fmt: skip
    return Table(caption, header, rows)


def excerpt_part(frame: Frame, row: ExcerptRow, model: str) -> Frame:
    """Our pairs of a published row: all seeds, the smallest weight decay."""
    part = where(frame, world=row.world, severity=row.severity, n=row.n, model=model)
    return where(part, weight_decay=part["weight_decay"].min()) if size(part) else part


def _published(row: ExcerptRow) -> list[str]:
    return [row.world, f"{row.severity:g}", str(row.n), "paper", f"{row.risk_change:.4f}", f"{row.bound_ot:.2f}",
            f"{row.bound_mmd:.2f}", f"{row.emp_shift_ot:.4f}", f"{row.emp_shift_mmd:.4f}", f"{row.model_change:.4f}",
            f"{row.gap_source:.4f} / {row.gap_target:.4f}"]  # fmt: skip


def _ours(row: ExcerptRow, part: Frame, name: str, *, squared: bool) -> list[str]:
    head = [row.world, f"{row.severity:g}", str(row.n), name]
    if not size(part):
        return head + [MISSING] * 7
    terms = excerpt_terms(part, squared=squared)
    cells = [spread(terms[column]) for column in
             ("risk_change", "bound_ot", "bound_mmd", "emp_shift_ot", "emp_shift_mmd", "model_change")]  # fmt: skip
    return [*head, *cells, f"{part['gap_source'].mean():.4f} / {part['gap_target'].mean():.4f}"]


def excerpt_terms(part: Frame, *, squared: bool) -> Frame:
    """The columns of the excerpt in one of the two readings."""
    scale = 1 / part["n"] if squared else np.ones(size(part))
    change = part["model_change_squared" if squared else "model_change"]
    shift = {form: part[f"emp_shift_{form}"] * scale for form in ("ot", "mmd")}
    return {
        "risk_change": part["abs_risk_change"],
        "model_change": change,
        **{f"emp_shift_{form}": shift[form] for form in shift},
        **{f"bound_{form}": part["gaps"] + change + shift[form] for form in shift},
    }
