"""The TRACE diagnostic: every term of the bound on the anchor's risk change, and their sums.

    |Delta R| <= gaps + model change + shift penalty                      core: the B of the paper's tables
                 + label noise + validation error + population residual   full

(``cor:practical-trace``) in three forms that differ in the shift penalty alone:

* ``ot``: ``(L_Q + L_Q~) c_h W`` (``cor:practical-trace``);
* ``hybrid``: ``L_Q c_h W + B_Q~ MMD`` (``cor:mmd-empirical``);
* ``mmd``: ``B_Q~ MMD`` alone. The paper's tables show an MMD penalty of 0.0000 beside a positive transport term,
  which the hybrid form cannot give.

The formulas below are written once, for anything with ``+`` and ``*``: the numbers of a `Diagnostic`, the ends of a
gate's intervals, columns of stored records. Each reads what it needs by name from a mapping.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from torch import Generator, nn

from .estimators.anchor import AnchorTerm
from .estimators.gradient_quantile import Model
from .estimators.remainders import Budget, label_noise_remainder, mmd_remainder, validation_remainder, w1_remainder
from .evidence import Evidence, Known, Update, gather
from .features import FeatureMap, identity
from .losses import ClippedCrossEntropy, Loss
from .sample import Sample
from .settings import Settings
from .statements import Event, Statement, best, proxy_event, statements, value_of
from .stats.intervals import Interval

Form = Literal["ot", "mmd", "hybrid"]
FORMS: tuple[Form, ...] = ("ot", "mmd", "hybrid")

Values = Mapping[str, Any]
"""Parts of the bound by name: floats, arrays or columns of equal length."""

_NEEDS = {
    "emp_shift_ot": ("sensitivity_source", "sensitivity_target"),
    "emp_shift_mmd": ("rkhs_norm",),
    "emp_shift_hybrid": ("sensitivity_source", "rkhs_norm"),
    "population_ot": ("sensitivity_target",),
    "population_mmd": ("rkhs_norm",),
}


_DIRECT = (
    *("held_out_distance", "capped_change", "empirical", "wasserstein1_input", "jacobian_change"),
    *("largest_gradient_source", "largest_gradient_target", "certified_source", "certified_target", "certified_change"),
)
"""Evidence beside the corollary's, by its name in a record."""


def scaled(scale: Any, distance: Any) -> Any:
    """``scale max(distance, 0)``, the form of every shift term.

    NaN stays, and ``0 * inf = 0``: an unknown but finite factor of nothing is nothing. Columns give an array.

    >>> float(scaled(2.0, -1e-4)), float(scaled(0.0, math.inf)), float(scaled(math.nan, 0.0))
    (0.0, 0.0, nan)
    """
    positive = np.maximum(distance, 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        product = scale * positive
    return np.where(np.isnan(product) & ~np.isnan(scale) & ~np.isnan(positive), 0.0, product)[()]


def model_change(v: Values) -> Any:
    """``L_ell M_l2`` (``prop:model_change_bound``)."""
    return v["lipschitz_loss"] * v["output_distance"]


def emp_shift(v: Values, form: Form) -> Any:
    """``(L_Q + L_Q~) c_h W`` (ot), ``B_Q~ MMD`` (mmd) or ``L_Q c_h W + B_Q~ MMD`` (hybrid)."""
    if form == "ot":
        return scaled(v["c_h"] * (v["sensitivity_source"] + v["sensitivity_target"]), v["transport"])
    kernel = scaled(v["rkhs_norm"], v["mmd"])
    return kernel if form == "mmd" else scaled(v["c_h"] * v["sensitivity_source"], v["transport"]) + kernel


def bound_core(v: Values, form: Form) -> Any:
    """Gaps + model change + shift penalty, from these terms."""
    return v["gap_source"] + v["gap_target"] + v["model_change"] + v[f"emp_shift_{form}"]


def bound_full(v: Values, form: Form) -> Any:
    """`bound_core` and all remainders."""
    population = v["population_ot" if form == "ot" else "population_mmd"]
    return bound_core(v, form) + v["label_noise"] + v["validation_error"] + population


@dataclass(frozen=True)
class Diagnostic:
    """All terms, in units of the loss. A term that could not be computed is NaN, and ``reasons`` says why.

    ``reasons`` also holds what was computed but needs care. ``gap_*`` are validation gaps, ``emp_shift_*`` is the shift
    penalty in each form, and ``label_noise``, ``validation_error`` and ``population_*`` are the remainders.
    """

    gap_source: float
    gap_target: float
    model_change: float
    """``L_ell M_l2``."""
    emp_shift_ot: float
    emp_shift_mmd: float
    emp_shift_hybrid: float
    label_noise: float
    validation_error: float
    population_ot: float
    population_mmd: float
    budget: Budget
    """Failure probability of each event behind ``bound_full``."""
    evidence: Evidence
    settings: Settings
    reasons: dict[str, str]

    def shift_penalty(self, form: Form = "ot") -> float:
        """The covariate-shift penalty in one of the forms."""
        return float(getattr(self, f"emp_shift_{form}"))

    def core_terms(self, form: Form = "ot") -> dict[str, float]:
        """The four terms of ``bound_core``."""
        return {
            "gap_source": self.gap_source,
            "gap_target": self.gap_target,
            "model_change": self.model_change,
            "emp_shift": self.shift_penalty(form),
        }

    def remainders(self, form: Form = "ot") -> dict[str, float]:
        """The statistical terms that ``bound_full`` adds."""
        return {
            "label_noise": self.label_noise,
            "validation_error": self.validation_error,
            "population": self.population_ot if form == "ot" else self.population_mmd,
        }

    def bound_core(self, form: Form = "ot") -> float:
        """Gaps + model change + shift penalty."""
        return float(bound_core(vars(self), form))

    def bound_full(self, form: Form = "ot") -> float:
        """``bound_core`` and all remainders."""
        return float(bound_full(vars(self), form))

    def statements(self) -> tuple[Statement, ...]:
        """All that is known about ``|Delta R|``: these bounds and others, which of them are valid, which vacuous."""
        bounds = {f"bound_{form}": self.bound_core(form) for form in FORMS}
        bounds |= {f"bound_full_{form}": self.bound_full(form) for form in FORMS}
        return statements(self.evidence, self.settings, bounds, 1 - self.budget.total)

    def best(self) -> Statement | None:
        """The smallest valid statement; None where there is none, as for an unbounded loss without further rows."""
        return best(self.statements())

    def proxy_events(self) -> dict[str, Event]:
        """Whether ``L^(q) >= L_x`` is known to hold or to fail, for Q ("source") and Q~ ("target")."""
        return {
            side: proxy_event(
                *(
                    value_of(getattr(self.evidence, f"{name}_{side}"))
                    for name in ("sensitivity", "largest_gradient", "certified")
                )
            )
            for side in ("source", "target")
        }

    def attribution(self, form: Form = "ot") -> dict[str, float]:
        """Each core term's share of ``bound_core``; NaN where the sum is NaN or 0."""
        total = self.bound_core(form)
        return {name: term / total if total else math.nan for name, term in self.core_terms(form).items()}

    @property
    def risk_change(self) -> float:
        """The true signed change on the anchor test sample; NaN without one."""
        return math.nan if self.evidence.risk_change is None else self.evidence.risk_change.value

    def tightness(self, form: Form = "ot", *, full: bool = False) -> float:
        """Bound over ``|Delta R|`` (``app:metrics``); NaN where the change is unknown or 0."""
        change = abs(self.risk_change)
        bound = self.bound_full(form) if full else self.bound_core(form)
        return bound / change if change else math.nan

    def intervals(self) -> dict[str, Interval]:
        """Confidence sequences of the anchor's means, each alone at ``1 - settings.delta``: the gate's own."""
        e = self.evidence
        terms = {f"anchor_{name}": term for name, term in e.anchor._asdict().items() if isinstance(term, AnchorTerm)}
        if e.labelled is not None:
            terms |= {"risk_change": e.labelled.risk, "error_change": e.labelled.error}
        return {name: term.interval(self.settings.delta) for name, term in terms.items() if term.tally is not None}

    def as_dict(self) -> dict[str, Any]:
        """One record of plain values: `estimates`, `statements` and `best`, and the ends of `intervals`."""
        ends = {name: (found.lower, found.upper) for name, found in self.intervals().items()}
        known = self.statements()
        return {
            **self.estimates(),
            "statements": {each.name: {k: v for k, v in _plain(each).items() if k != "name"} for each in known},
            "best": _plain(best(known)),
            "intervals": {"level": 1 - self.settings.delta, **ends},
        }

    def estimates(self) -> dict[str, Any]:
        """The paper's column names, every estimate behind them with its tally, settings and reasons."""
        e, shift = self.evidence, self.evidence.shift
        return {
            "risk_change": self.risk_change,
            **{f"bound_{form}": self.bound_core(form) for form in FORMS},
            **{f"bound_full_{form}": self.bound_full(form) for form in FORMS},
            **{f"tightness_{form}": self.tightness(form) for form in FORMS},
            **{name: term for name, term in vars(self).items() if isinstance(term, float)},
            "attribution": {form: self.attribution(form) for form in FORMS},
            "proxy_events": self.proxy_events(),
            "output_distance": _plain(e.output_distance),
            **{name: _plain(getattr(e, name)) for name in _DIRECT},
            "sensitivity_source": _plain(e.sensitivity_source),
            "sensitivity_target": _plain(e.sensitivity_target),
            "rkhs_norm": _plain(e.rkhs_norm),
            "gaps": {"source": _plain(e.gap_source), "target": _plain(e.gap_target)},
            "transport": _plain(shift.transport),
            "floor": _plain(shift.floor),
            "target_floor": _plain(shift.target_floor),
            "mmd": _plain(shift.mmd),
            "anchor": _plain(e.anchor),
            "risk_change_details": _plain(e.risk_change),
            "labelled": _plain(e.labelled),
            "slices": {name: _plain(found) for name, found in e.slices.items()},
            "same_model": e.same_model,
            "lipschitz_loss": e.lipschitz,
            "loss_bound": e.loss_bound,
            "loss_range": e.loss_range,
            "sizes": dict(e.sizes),
            "budget": {**_plain(self.budget), "total": self.budget.total},
            "settings": asdict(self.settings),
            "reasons": dict(self.reasons),
        }

    def columns(self) -> dict[str, float]:
        """Every number of `estimates` but the settings, by its path: words joined by ``_``, a last ``value`` left out.

        So ``output_distance`` and ``output_distance_squared``, ``transport``, ``anchor_worst_label``,
        ``anchor_worst_label_deviation``. An estimate that is not available is NaN; a flag is 0 or 1.
        """
        return dict(_flat({**self.estimates(), "settings": {}}, ()))


def diagnose(
    model: Model,
    new_model: Model,
    source: Sample,
    target: Sample,
    *,
    source_val: Sample | None = None,
    target_val: Sample | None = None,
    loss: Loss | None = None,
    feature_map: FeatureMap = identity,
    gradient_at: tuple[nn.Module, nn.Module] | None = None,
    anchor_test: Sample | None = None,
    settings: Settings | None = None,
    generator: Generator | None = None,
    known: Known | None = None,
) -> Diagnostic:
    """Attribute the risk change on the source when ``new_model`` replaces ``model`` (``cor:practical-trace``).

    Args:
        model, new_model: Q and Q~, mapping inputs ``[n, ...]`` to outputs ``[n, C]``. Modules are run in eval mode and
            given back as they were.
        source, target: the training samples S and S~; labels may be missing on the target.
        source_val, target_val: held-out splits V and V~. Without them the gaps are not available, and sensitivities and
            anchor terms come from the training samples.
        loss: `ClippedCrossEntropy` by default.
        feature_map: h, from inputs to ``[n, k]``: `features.identity`, `features.layer_features`, any callable.
        gradient_at: a submodule of each model, to take sensitivities in feature space instead of in the inputs.
        anchor_test: a labelled sample of the source, for the true change and the tightness.
        settings: every number that decides the result.
        generator: for the same-distribution floors of the transport distance, which are not measured without it, and
            for the subsampling of very large samples.
        known: what many calls share, such as the shift that all candidates have in common; it is not computed again.

    Raises:
        ValueError: for bad input; the message names the argument and the remedy.
    """
    settings = settings or Settings()
    update = Update((model, new_model), loss or ClippedCrossEntropy(), settings, feature_map, gradient_at)
    samples = {
        "source": source,
        "target": target,
        "source_val": source_val,
        "target_val": target_val,
        "anchor_test": anchor_test,
    }
    present = {name: sample for name, sample in samples.items() if sample is not None}
    return assemble(gather(update, present, known or Known(), generator), settings)


def assemble(evidence: Evidence, settings: Settings) -> Diagnostic:
    """Terms and bounds from evidence: arithmetic only."""
    e, s = evidence, settings
    reasons = dict(e.reasons)
    delta_eta = (s.delta, s.eta)
    budget = Budget.union(*delta_eta) if s.remainders == "corrected" else Budget.paper(*delta_eta)
    names = ("gap_source", "gap_target", "output_distance", "sensitivity_source", "sensitivity_target", "rkhs_norm")
    v = {name: value_of(getattr(e, name)) for name in names}
    v |= {"transport": e.shift.transport.value, "mmd": e.shift.mmd.value, "c_h": s.c_h, "lipschitz_loss": e.lipschitz}
    if not math.isfinite(e.lipschitz):
        v["lipschitz_loss"] = math.nan
        reasons["model_change"] = "the loss has no finite Lipschitz constant in the outputs"
    label_noise = validation_error = math.nan
    if not math.isfinite(e.loss_bound):
        reasons["label_noise"] = reasons["validation_error"] = "the loss is unbounded"
    else:
        label_noise = label_noise_remainder(e.sizes["source"], e.sizes["target"], e.loss_bound, budget.label_noise)
        if "source_val" in e.sizes and "target_val" in e.sizes:
            sizes = (e.sizes["source_val"], e.sizes["target_val"])
            levels = (budget.source_validation, budget.target_validation)
            validation_error = validation_remainder(*sizes, e.loss_bound, *levels)
        else:
            reasons["validation_error"] = "needs both validation splits"
    n, m = (min(e.sizes[name], s.mmd_samples) for name in ("source", "target"))  # rows that entered the MMD
    for term, estimates in _NEEDS.items():
        if missing := [f"{name}: {reasons[name]}" for name in estimates if name in reasons]:
            reasons[term] = "; ".join(missing)
    return Diagnostic(
        gap_source=v["gap_source"],
        gap_target=v["gap_target"],
        model_change=model_change(v),
        emp_shift_ot=float(emp_shift(v, "ot")),
        emp_shift_mmd=float(emp_shift(v, "mmd")),
        emp_shift_hybrid=float(emp_shift(v, "hybrid")),
        label_noise=label_noise,
        validation_error=validation_error,
        population_ot=v["sensitivity_target"] * s.c_h * _population_w1(e, s, budget.population),
        population_mmd=v["rkhs_norm"] * mmd_remainder(n, m, budget.population, s.mmd_constant),
        budget=budget,
        evidence=e,
        settings=s,
        reasons=reasons,
    )


def _population_w1(e: Evidence, s: Settings, delta: float) -> float:
    """``eps_n + eps~_n~`` (``eq:w1-triangle``); the corollary prints the first summand only."""
    sizes = [e.sizes["source"]] + ([e.sizes["target"]] if s.remainders == "corrected" else [])
    return sum(w1_remainder(n, e.shift.dim, delta, s.w1_constant) for n in sizes)


def _plain(value: Any) -> Any:
    """An estimate as a dict of plain values."""
    return {key: _plain(entry) for key, entry in value._asdict().items()} if hasattr(value, "_asdict") else value


def _flat(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    """Names and values of all numbers in a record."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _flat(entry, path if key == "value" else (*path, key))
    elif value is None or isinstance(value, int | float):
        yield "_".join(path), math.nan if value is None else float(value)
