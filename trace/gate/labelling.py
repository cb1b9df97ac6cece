"""Which rows to label next, and whether the labels told so far decide ``Delta R <= limit``: valid at any moment.

Write ``D_i = ell(f~(x_i), y_i) - ell(f(x_i), y_i)`` and ``D_i in [lo_i, hi_i]`` for its range over all labels, known
before any label is. The centre ``c_i`` is 0 or the end nearest to it, the reach ``r_i = max(hi_i - c_i, c_i - lo_i)``.
Rows without reach need no label: for 0-1 loss these are all on which the two models agree.

- **The file at hand** (``scope="file"``): rows are drawn without replacement, each time with probability in proportion
  to ``r_i`` among those left, by exponential clocks (row i rings at ``E_i / r_i``). The sum of ``D_i - c_i`` over the
  file is bet on as in `pool_edges`, and what no label left can change is decided at once. For 0-1 loss this is a
  uniform order of the disagreements.
- **The population** (``scope="population"``): all rows in a random order are a stream of independent rows. A row's
  label is asked for with probability ``p_i = r_i / (M - |c_i|)``, M the loss's bound, by a coin drawn in advance;
  ``Z_i = c_i + (D_i - c_i) / p_i`` if it is, and ``c_i`` if not, has mean ``D_i`` and stays in ``[-M, M]``. For 0-1
  loss p is 1 on disagreements: the decision is that of betting on every row, and agreements are read without a label.

Order and coins are drawn once, from one seed, and labels take effect in that order only, whatever order they come in.
Accepting and rejecting have half of the error each, several candidates equal parts of it. Each side's wealth is a
supermartingale if the side is wrong (`trace.stats.betting`), so the decision may be looked at after every label, and
labelling may stop and go on at will. A row that nobody can label counts as ``hi_i`` against accepting and as ``lo_i``
against rejecting: either wealth only falls by it, whoever chooses such rows and when.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from ..checks import check_count, check_level, check_logits, check_paired
from ..hardware import doubled
from ..losses import Loss, ZeroOne
from ..stats.betting import (
    BETS,
    Forecast,
    Side,
    Tally,
    bisect,
    confidence_sequence,
    edges,
    forecast,
    merged,
    mixture,
    pool_edges,
    tally,
    total_of,
    wealth_path,
)
from ..stats.metrics import Array

Scope = Literal["file", "population"]
Outcome = Literal["accept", "reject", "undecided"]
Label = int | float | None
"""A class or a target; None where nobody can say."""
Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]

BLOCK = 65_536
"""Rows whose outputs are looked at in double precision at once."""

HORIZON = 20_000
"""Labels that a forecast for a file looks ahead."""


class Progress(NamedTuple):
    """Where one candidate stands after the labels that took effect; never changed, only followed by another."""

    decision: Outcome
    below: Array
    above: Array
    """Log-products of the bets ``[J]`` for accepting and for rejecting."""
    up: Array
    down: Array
    """``D_i`` of the labelled rows in the committed order ``[t]``; they differ where nobody could tell the label."""

    @property
    def position(self) -> int:
        """Labels that took effect."""
        return len(self.up)


@dataclass(frozen=True, eq=False)
class Course(ABC):
    """The rows that one candidate needs labels of, in the committed order, and what is known of them without."""

    rows: Rows
    least: Array
    most: Array
    centre: Array
    """``lo_i``, ``hi_i`` and ``c_i`` of these rows ``[T]``."""
    limit: float
    delta: float
    """Error of each side."""
    num_rows: int
    """N, of the whole file."""

    @abstractmethod
    def begun(self) -> Progress:
        """Before any label."""

    @abstractmethod
    def advanced(self, progress: Progress, up: Array, down: Array) -> Progress:
        """After the changes ``[k]`` of the next k rows; those beyond a decision take no effect."""

    @abstractmethod
    def interval(self, progress: Progress) -> tuple[float, float]:
        """Lower and upper end for ``Delta R``."""

    @abstractmethod
    def estimate(self, progress: Progress) -> float:
        """``Delta R`` without bias; NaN where nothing was seen."""

    @abstractmethod
    def outlook(self, progress: Progress) -> Forecast:
        """Labels to go if those to come are like those that came."""

    @property
    def enough(self) -> float:
        """Log-wealth that decides."""
        return math.log(1 / self.delta)

    def followed(
        self, progress: Progress, accept: Flags, reject: Flags, below: Array, above: Array, up: Array, down: Array
    ) -> Progress:
        """The progress after the first of the rows ``[k]`` that decides, or after all of them."""
        decided = np.flatnonzero(accept | reject)
        end = int(decided[0]) if len(decided) else len(accept) - 1
        decision: Outcome = "reject" if reject[end] else "accept" if accept[end] else "undecided"
        past = [np.concatenate(pair) for pair in ((progress.up, up[: end + 1]), (progress.down, down[: end + 1]))]
        return Progress(decision, below, above, *past)

    def fresh(self, accept: bool, reject: bool, below: Array, above: Array) -> Progress:
        """The progress before any label."""
        decision: Outcome = "reject" if reject else "accept" if accept else "undecided"
        return Progress(decision, below, above, np.zeros(0), np.zeros(0))


@dataclass(frozen=True, eq=False)
class FileCourse(Course):
    """Draws without replacement from the file: the statement is about the mean of its N rows."""

    weight: Array
    """What rows are drawn in proportion to ``[T]``."""
    fixed: float
    """Sum of the centres of all N rows."""

    @cached_property
    def left(self) -> Array:
        """Weights not drawn before each row ``[T]``."""
        return _sums_from(self.weight)[:-1]

    @cached_property
    def most_left(self) -> Array:
        """What all rows from each one on can add to the sum at most ``[T + 1]``."""
        return _sums_from(self.most - self.centre)

    @cached_property
    def least_left(self) -> Array:
        """The same at least."""
        return _sums_from(self.least - self.centre)

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Range of ``(D_i - c_i) / w_i``."""
        low, high = (self.least - self.centre) / self.weight, (self.most - self.centre) / self.weight
        return float(low.min(initial=0.0)), float(high.max(initial=0.0))

    def total(self, mean: float) -> float:
        """Sum of ``D_i - c_i`` in a file of this mean; exact where the centres are 0."""
        return float(total_of(mean, self.num_rows)) - self.fixed

    @cached_property
    def slack(self) -> float:
        """More than rounding does to these sums: a change that equals the limit is one that labels let pass."""
        return 1e-12 * (abs(self.total(self.limit)) + abs(self.fixed) + float(self.most_left[0] - self.least_left[0]))

    def estimate(self, progress: Progress) -> float:
        """Mean over the draws t of ``S_{t-1} + (D_t - c_t) W_t / w_t``, each without bias given those before."""
        t = progress.position
        if t == 0:
            return float("nan") if len(self.rows) else self.fixed / self.num_rows
        parts = (progress.up + progress.down) / 2 - self.centre[:t]
        totals = np.cumsum(parts) - parts + parts * self.left[:t] / self.weight[:t]
        return (self.fixed + float(totals.mean())) / self.num_rows

    def begun(self) -> Progress:
        total, none = self.total(self.limit), np.zeros(len(BETS))
        return self.fresh(total >= self.most_left[0] - self.slack, total < self.least_left[0] - self.slack, none, none)

    def advanced(self, progress: Progress, up: Array, down: Array) -> Progress:
        if progress.decision != "undecided" or len(up) == 0:
            return progress
        start, stop = progress.position, progress.position + len(up)
        rest_up, rest_down = (
            self.total(self.limit) - float((past - self.centre[:start]).sum()) for past in (progress.up, progress.down)
        )
        window = slice(start, stop)
        parts_up, parts_down = up - self.centre[window], down - self.centre[window]
        gains_below = self._gains("below", rest_up, parts_up, window)
        gains_above = self._gains("above", rest_down, parts_down, window)
        path_below, below = wealth_path(gains_below, progress.below)
        path_above, above = wealth_path(gains_above, progress.above)
        after = slice(start + 1, stop + 1)
        most, least = self.most_left[after] - self.slack, self.least_left[after] - self.slack
        accept = (path_below >= self.enough) | (rest_up - np.cumsum(parts_up) >= most)
        reject = (path_above >= self.enough) | (rest_down - np.cumsum(parts_down) < least)
        return self.followed(progress, accept, reject, below, above, up, down)

    def _gains(self, side: Side, rest: float, parts: Array, window: slice) -> Array:
        return pool_edges(rest, parts, self.weight[window], self.left[window], *self.ends, side, slack=self.slack)

    def interval(self, progress: Progress) -> tuple[float, float]:
        """Means that neither the wealth now nor the labels left refute, each searched between what is possible."""
        t = progress.position
        parts: dict[Side, Array] = {"below": progress.up - self.centre[:t], "above": progress.down - self.centre[:t]}
        lowest = (self.fixed + float(parts["above"].sum() + self.least_left[t])) / self.num_rows
        highest = (self.fixed + float(parts["below"].sum() + self.most_left[t])) / self.num_rows
        if t == 0 or lowest >= highest:
            return lowest, highest

        def refuted(mean: float, side: Side) -> bool:
            gains = self._gains(side, mean * self.num_rows - self.fixed, parts[side], slice(0, t))
            return float(mixture(np.log1p(gains[:, None] * BETS).sum(axis=0))) >= self.enough

        tolerance = 1e-9 * (highest - lowest)
        upper = bisect(lambda mean: refuted(mean, "below"), lowest, highest, tolerance)
        lower = bisect(lambda mean: refuted(mean, "above"), highest, lowest, tolerance)
        return min(lower, upper), max(lower, upper)

    def outlook(self, progress: Progress) -> Forecast:
        """The rows to come are known but for their labels: these repeat the past ones, as shares of the reach."""
        t, reach = progress.position, _reach(self.least, self.most, self.centre)
        window = slice(t, t + HORIZON)
        ahead = len(self.rows[window])
        past = ((progress.up + progress.down) / 2 - self.centre[:t]) / reach[:t] if t else np.zeros(1)
        change = self.centre[window] + np.resize(past, ahead) * reach[window]
        change = np.clip(change, self.least[window], self.most[window])
        then = self.advanced(progress, change, change)
        return Forecast(then.position - t, t == 0 or then.decision == "undecided")


@dataclass(frozen=True, eq=False)
class StreamCourse(Course):
    """The file as a stream of independent rows, some of them with labels: the statement is about their population."""

    probability: Array
    """Of asking for the label of these rows ``[T]``."""
    place: Rows
    """Their places in the stream ``[T]``."""
    free: Array
    """Centres of the whole stream ``[N]``, what a row without a label counts as; empty where all are 0."""
    bound: float
    """M: all values lie in ``[-M, M]``."""

    @cached_property
    def stops(self) -> Rows:
        """Places between which rows are free ``[T + 2]``: before the first, the labelled rows, behind the last."""
        return np.concatenate([[-1], self.place, [self.num_rows]])

    def _values(self, changes: Array, start: int = 0) -> Array:
        """``Z_i`` of labelled rows."""
        window = slice(start, start + len(changes))
        z = self.centre[window] + (changes - self.centre[window]) / self.probability[window]
        return np.clip(z, -self.bound, self.bound)

    def _logs(self, values: Array, side: Side) -> Array:
        return np.log1p(edges(values, self.limit, self.bound if side == "below" else -self.bound)[..., None] * BETS)

    def _free_logs(self, first: int, last: int, side: Side) -> Array:
        """Sums over each of the runs ``first, ..., last - 1`` of free rows, ``[last - first, J]``; run 0 is first."""
        stops = self.stops[first : last + 1]
        if len(self.free) == 0:
            sums: Array = (np.diff(stops) - 1)[:, None] * self._logs(np.zeros(1), side)
            return sums
        logs = self._logs(self.free[stops[0] + 1 : stops[-1]], side)
        logs[stops[1:-1] - stops[0] - 1] = 0.0
        sums = np.concatenate([np.zeros((1, len(BETS))), np.cumsum(logs, axis=0)])
        ends = stops - stops[0] - 1
        return sums[ends[1:]] - sums[np.maximum(ends[:-1], 0)]

    def begun(self) -> Progress:
        if not -self.bound <= self.limit < self.bound:
            return self.fresh(self.limit >= self.bound, self.limit < -self.bound, *np.zeros((2, len(BETS))))
        below, above = self._free_logs(0, 1, "below")[0], self._free_logs(0, 1, "above")[0]
        accept, reject = bool(mixture(below) >= self.enough), bool(mixture(above) >= self.enough)
        return self.fresh(accept, reject, below, above)

    def advanced(self, progress: Progress, up: Array, down: Array) -> Progress:
        if progress.decision != "undecided" or len(up) == 0:
            return progress
        below, last_below = self._path("below", up, progress.position, progress.below)
        above, last_above = self._path("above", down, progress.position, progress.above)
        accept, reject = below >= self.enough, above >= self.enough
        return self.followed(progress, accept, reject, last_below, last_above, up, down)

    def _path(self, side: Side, changes: Array, start: int, products: Array) -> tuple[Array, Array]:
        """The largest log-wealth from each labelled row until the next one ``[k]``, and all products after the last.

        Between two of them it is looked at once, behind the free rows.
        """
        own = self._logs(self._values(changes, start), side)
        free = self._free_logs(start + 1, start + 1 + len(changes), side)
        sums = products + np.cumsum(np.stack([own, free], axis=1).reshape(-1, len(BETS)), axis=0)
        return mixture(sums).reshape(-1, 2).max(axis=1), sums[-1]

    def _tally(self, progress: Progress, changes: Array) -> Tally:
        """All values of the stream up to the next row that wants a label."""
        t, end = progress.position, int(self.stops[progress.position + 1])
        rows = tally(self._values(changes), -self.bound, self.bound)
        if len(self.free):
            return merged(rows, tally(np.delete(self.free[:end], self.place[:t]), -self.bound, self.bound))
        return merged(rows, Tally(-self.bound, self.bound, (0.0,), (float(end - t),))) if end > t else rows

    def interval(self, progress: Progress) -> tuple[float, float]:
        upper = confidence_sequence(self._tally(progress, progress.up), self.delta, "below").upper
        return confidence_sequence(self._tally(progress, progress.down), self.delta, "above").lower, upper

    def estimate(self, progress: Progress) -> float:
        return self._tally(progress, (progress.up + progress.down) / 2).mean

    def outlook(self, progress: Progress) -> Forecast:
        """Rows to go by `forecast`, and labels for as large a share of them as in the file."""
        rows = self._tally(progress, (progress.up + progress.down) / 2)
        more, at_least = forecast(rows, self.limit, 2 * self.delta)
        return Forecast(math.ceil(more * len(self.rows) / self.num_rows), at_least or progress.position == 0)


@dataclass(frozen=True)
class LabellingState:
    """What the labels told so far say about one candidate."""

    decision: Outcome
    """"accept": ``Delta R <= limit``; "reject": ``Delta R > limit``. It stays, whatever is told later."""
    spent: int
    """Labels told, for all candidates together."""
    exhausted: bool
    """Undecided, and no row left to ask for: the population needs more rows, or too many could not be labelled."""
    limit: float
    confidence: float
    """Of the decisions about all candidates together, at any time."""
    scope: Scope
    course: Course
    progress: Progress

    @cached_property
    def _ends(self) -> tuple[float, float]:
        lower, upper = self.course.interval(self.progress)
        if self.decision == "accept":
            return min(lower, self.limit), min(upper, self.limit)
        return (max(lower, self.limit), max(upper, self.limit)) if self.decision == "reject" else (lower, upper)

    @property
    def lower(self) -> float:
        """Lower end of the interval for ``Delta R``; each end fails with half of the candidate's error."""
        return self._ends[0]

    @property
    def upper(self) -> float:
        """Its upper end."""
        return self._ends[1]

    @cached_property
    def estimate(self) -> float:
        """``Delta R`` by the labels so far, no further than the interval; NaN before the first."""
        return float(np.clip(self.course.estimate(self.progress), self.lower, self.upper))

    @cached_property
    def _outlook(self) -> Forecast:
        return Forecast(0, False) if self.decision != "undecided" else self.course.outlook(self.progress)

    @property
    def forecast(self) -> int:
        """About how many labels are to go, if those to come are like those that came."""
        return self._outlook.rows

    @property
    def at_least(self) -> bool:
        """The forecast is a lower one: there is too little to go by, or the change is on the limit."""
        return self._outlook.at_least

    def in_words(self) -> str:
        """The decision, what it is about, and what is left to do."""
        n = self.course.num_rows
        about = f"this file of {n} rows" if self.scope == "file" else f"the population that {n} rows were drawn from"
        where, after = f"between {self.lower:.4g} and {self.upper:.4g}", f"after {self.spent} labels: on {about}"
        if self.decision != "undecided":
            verb = "at most" if self.decision == "accept" else "more than"
            return (
                f"{self.decision.capitalize()} {after} the risk changes by {verb} {self.limit:g} ({where}), with "
                f"{100 * self.confidence:g}% confidence however often one looked."
            )
        more = f"{'at least' if self.at_least else 'about'} {self.forecast} more labels would decide"
        if self.exhausted:
            more = "too many rows could not be labelled" if self.scope == "file" else "collect more rows"
        return f"Undecided {after} the risk changes by {where}, and the limit is {self.limit:g}: {more}."


class Labelling:
    """Asks for the labels that decide whether an update raises the anchor's risk by at most ``limit``.

    Args:
        outputs: of the old model on the anchor rows ``[N, C]``; the rows must be independent of the models for
            ``scope="population"``, and may be anything for ``scope="file"``.
        new_outputs: of the new model on the same rows, or a sequence of those of several candidates: labels are shared,
            and all decisions hold together with the confidence.
        limit: tolerated rise of the mean loss.
        loss: any with a finite bound; 0-1 loss by default.
        scope: "file", a statement about these N rows, or "population", about what they were drawn from.
        generator: of the order, which is drawn here and never again.

    >>> g = torch.Generator().manual_seed(0)
    >>> y = torch.randint(2, (500,), generator=g)
    >>> old, new = torch.eye(2)[y], torch.eye(2)[y]
    >>> new[:60] = 1 - new[:60]
    >>> labelling = Labelling(old, new, limit=0.02, generator=g)
    >>> while len(rows := labelling.next_rows(1)):
    ...     labelling.tell(rows, y[rows])
    >>> labelling.state.decision, labelling.state.spent
    ('reject', 10)
    """

    def __init__(
        self,
        outputs: Tensor,
        new_outputs: Tensor | Sequence[Tensor],
        *,
        limit: float,
        loss: Loss | None = None,
        confidence: float = 0.95,
        scope: Scope = "file",
        generator: Generator,
    ) -> None:
        if not isinstance(generator, Generator):
            raise ValueError(f"generator must be a torch Generator, got {type(generator).__name__}: the order is drawn")
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        self._begin(outputs, new_outputs, limit, loss or ZeroOne(), confidence, scope, seed)

    def _begin(
        self,
        outputs: Tensor,
        new_outputs: Tensor | Sequence[Tensor],
        limit: float,
        loss: Loss,
        confidence: float,
        scope: Scope,
        seed: int,
    ) -> None:
        candidates = (new_outputs,) if isinstance(new_outputs, Tensor) else tuple(new_outputs)
        if not candidates:
            raise ValueError("new_outputs is empty: pass the outputs of at least one candidate")
        if scope not in get_args(Scope):
            raise ValueError(f"scope must be 'file' or 'population', got {scope!r}")
        if not math.isfinite(limit):
            raise ValueError(f"limit must be a finite number, got {limit}")
        delta = (1 - check_level(confidence, "confidence")) / (2 * len(candidates))
        for new in candidates:
            check_paired(outputs, new)
        if loss.classification:
            check_logits(outputs, "outputs")
        if not math.isfinite(loss.bound(outputs.shape[1])):
            raise ValueError(f"{type(loss).__name__} is unbounded, so no number of labels decides: give it a limit")
        self.outputs, self.candidates, self.loss = outputs, candidates, loss
        self.limit, self.confidence, self.scope, self.seed = float(limit), confidence, scope, seed
        ranges = [change_ranges(outputs, new, loss) for new in candidates]
        bound = loss.bound(outputs.shape[1])
        self.clock, self.courses = (
            file_courses(ranges, self.limit, delta, seed)
            if scope == "file"
            else stream_courses(ranges, self.limit, delta, bound, seed)
        )
        self.labels: dict[int, Label] = {}
        self.progress = tuple(course.begun() for course in self.courses)
        self._needed = _any_of(self.courses, len(outputs))

    def next_rows(self, k: int) -> Tensor:
        """The next k rows of the committed order ``[<= k]`` that need a label and have none; none once all is decided.

        They stay the next ones until they are told: what a crash or a lost sheet leaves open is asked for again.
        """
        check_count(k, "k")
        wanted: set[int] = set()
        for course, progress in zip(self.courses, self.progress, strict=True):
            if progress.decision == "undecided":
                ahead = course.rows[progress.position : k + len(self.labels)].tolist()
                wanted.update([row for row in ahead if row not in self.labels][:k])
        found = np.fromiter(wanted, np.int64, len(wanted))
        return torch.from_numpy(found[np.argsort(self.clock[found])][:k])

    def tell(self, rows: Tensor | Sequence[int], labels: Tensor | Sequence[Label]) -> None:
        """Labels of rows, in any order; None, -1 for a class, or NaN for a target, where nobody can say.

        Rows that need no label are left out. The same label may be told again, another one may not.

        Raises:
            ValueError: for rows or labels that cannot be, or a label that was told otherwise; nothing is then told.
        """
        told = self._checked(rows, labels)
        self.labels.update(told)
        self.progress = tuple(
            self._followed(course, progress, new)
            for course, progress, new in zip(self.courses, self.progress, self.candidates, strict=True)
        )

    def _followed(self, course: Course, progress: Progress, new_outputs: Tensor) -> Progress:
        if progress.decision != "undecided":
            return progress
        start = progress.position
        ahead = course.rows[start : len(self.labels)].tolist()
        run = list(takewhile(self.labels.__contains__, ahead))
        if not run:
            return progress
        window = slice(start, start + len(run))
        labels = [self.labels[row] for row in run]
        unknown = np.array([label is None for label in labels])
        change = self._changes(new_outputs, run, [0 if label is None else label for label in labels])
        change = np.clip(change, course.least[window], course.most[window])
        up, down = np.where(unknown, course.most[window], change), np.where(unknown, course.least[window], change)
        return course.advanced(progress, up, down)

    def _changes(self, new_outputs: Tensor, rows: list[int], labels: list[Any]) -> Array:
        """``D_i`` of rows with labels."""
        index = torch.tensor(rows, device=self.outputs.device)
        old, new = doubled(self.outputs[index]), doubled(new_outputs[index])
        y = torch.tensor(labels, dtype=torch.long if self.loss.classification else torch.float64, device=old.device)
        return (self.loss(new, y) - self.loss(old, y)).detach().cpu().numpy()

    def _checked(self, rows: Tensor | Sequence[int], labels: Tensor | Sequence[Label]) -> dict[int, Label]:
        """What is told about rows that need it."""
        index = rows.tolist() if isinstance(rows, Tensor) else list(rows)
        values = labels.tolist() if isinstance(labels, Tensor) else list(labels)
        if len(index) != len(values):
            raise ValueError(f"{len(index)} rows but {len(values)} labels: tell one label per row")
        told: dict[int, Label] = {}
        for row, value in zip(index, values, strict=True):
            if not _whole(row) or not 0 <= row < len(self.outputs):
                raise ValueError(f"rows holds {row!r}, but there are rows 0 to {len(self.outputs) - 1}: pass next_rows")
            label = self._label(int(row), value)
            before = told.get(int(row), self.labels.get(int(row), label))
            if before != label:
                raise ValueError(f"row {row} was labelled {before} before and is {label} now: a label stays as told")
            if self._needed[int(row)]:
                told[int(row)] = label
        return told

    def _label(self, row: int, value: Any) -> Label:
        if value is None:
            return None
        if self.loss.classification:
            if not _whole(value) or not -1 <= value < self.outputs.shape[1]:
                raise ValueError(
                    f"row {row} has label {value!r}, classes are 0 to {self.outputs.shape[1] - 1}: "
                    "pass None or -1 where nobody can say"
                )
            return None if value == -1 else int(value)
        target, limit = float(value), getattr(self.loss, "limit", math.inf)
        if math.isnan(target):
            return None
        if abs(target) > limit:
            raise ValueError(f"row {row} has target {target:g}, beyond limit={limit:g}: raise limit or rescale it")
        return target

    @property
    def states(self) -> tuple[LabellingState, ...]:
        """One state per candidate."""
        return tuple(
            LabellingState(
                progress.decision,
                len(self.labels),
                progress.decision == "undecided" and progress.position == len(course.rows),
                self.limit,
                self.confidence,
                self.scope,
                course,
                progress,
            )
            for course, progress in zip(self.courses, self.progress, strict=True)
        )

    @property
    def state(self) -> LabellingState:
        """The state of the only candidate."""
        if len(self.candidates) > 1:
            raise ValueError(f"there are {len(self.candidates)} candidates: use states, one for each")
        return self.states[0]

    def judged(self, *, limit: float, confidence: float) -> "Labelling":
        """The same labels in the same order, against another limit or at another confidence: valid for each alone."""
        record = {**self.as_record(), "limit": limit, "confidence": confidence}
        return Labelling.resumed(record, self.outputs, self.candidates, loss=self.loss)

    def as_record(self) -> dict[str, Any]:
        """All that is needed to go on later, in plain values; outputs and order by their SHA-256."""
        return {
            "seed": self.seed,
            "limit": self.limit,
            "confidence": self.confidence,
            "scope": self.scope,
            "loss": _loss_record(self.loss),
            "outputs": digest(self.outputs),
            "new_outputs": [digest(new) for new in self.candidates],
            "order": hashlib.sha256(b"".join(course.rows.tobytes() for course in self.courses)).hexdigest(),
            "rows": list(self.labels),
            "labels": list(self.labels.values()),
        }

    @classmethod
    def resumed(
        cls,
        record: Mapping[str, Any],
        outputs: Tensor,
        new_outputs: Tensor | Sequence[Tensor],
        *,
        loss: Loss | None = None,
    ) -> "Labelling":
        """The labelling that `as_record` was taken of, from the same outputs.

        Raises:
            ValueError: for other outputs, another loss, an order that this machine does not draw, or no such record.
        """
        candidates = (new_outputs,) if isinstance(new_outputs, Tensor) else tuple(new_outputs)
        found = cls.__new__(cls)
        try:
            limit, confidence, seed = float(record["limit"]), float(record["confidence"]), int(record["seed"])
            named = {name: record[name] for name in ("outputs", "new_outputs", "loss", "order", "rows", "labels")}
            scope = record["scope"]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is no record of a labelling ({error!r}): begin a new one") from error
        if named["outputs"] != digest(outputs) or named["new_outputs"] != [digest(new) for new in candidates]:
            raise ValueError("the labelling was begun with other models or rows: pass the same outputs, or begin anew")
        if named["loss"] != _loss_record(loss or ZeroOne()):
            raise ValueError(f"the labelling was begun with the loss {named['loss']}: pass the same one, or begin anew")
        found._begin(outputs, new_outputs, limit, loss or ZeroOne(), confidence, scope, seed)
        if named["order"] != found.as_record()["order"]:
            raise ValueError("the seed draws another order here than it did: go on where the labelling was begun")
        found.tell(named["rows"], named["labels"])
        return found


def change_ranges(outputs: Tensor, new_outputs: Tensor, loss: Loss) -> tuple[Array, Array]:
    """``lo_i`` and ``hi_i`` of every row ``[N]``, in double precision, a block of rows at a time."""
    ends = [
        torch.stack(loss.change_range(doubled(outputs[i : i + BLOCK]), doubled(new_outputs[i : i + BLOCK])))
        for i in range(0, len(outputs), BLOCK)
    ]
    least, most = torch.cat(ends, dim=1).detach().cpu().numpy()
    return least, most


def digest(outputs: Tensor) -> str:
    """SHA-256 of a tensor's shape, dtype and entries."""
    entries = outputs.detach().cpu().contiguous().numpy()
    head = f"{list(outputs.shape)} {outputs.dtype}".encode()
    return hashlib.sha256(head + entries.tobytes()).hexdigest()


def uniforms(seed: int, stream: int, n: int) -> Array:
    """n numbers in (0, 1), the same on every machine: numpy keeps the raw bits of a bit generator for good."""
    raw = np.random.PCG64([seed, stream]).random_raw(n)
    return ((raw >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def file_courses(
    ranges: Sequence[tuple[Array, Array]], limit: float, delta: float, seed: int
) -> tuple[Array, tuple[Course, ...]]:
    """When each row's clock rings ``[N]``, and one course per candidate; the largest reach of all draws the rows."""
    centres = [_centre(least, most) for least, most in ranges]
    reaches = [_reach(*ends, centre) for ends, centre in zip(ranges, centres, strict=True)]
    weight = np.maximum.reduce(reaches)
    n = len(weight)
    clock = np.full(n, np.inf)
    np.divide(-np.log(uniforms(seed, 0, n)), weight, out=clock, where=weight > 0)
    drawn = np.flatnonzero(weight)
    order = drawn[np.argsort(clock[drawn], kind="stable")]
    courses = []
    for (least, most), centre, reach in zip(ranges, centres, reaches, strict=True):
        rows = order[reach[order] > 0]
        known = (rows, least[rows], most[rows], centre[rows], limit, delta, n)
        courses.append(FileCourse(*known, weight=weight[rows], fixed=float(centre.sum())))
    return clock, tuple(courses)


def stream_courses(
    ranges: Sequence[tuple[Array, Array]], limit: float, delta: float, bound: float, seed: int
) -> tuple[Array, tuple[Course, ...]]:
    """When each row comes ``[N]``, and one course per candidate; the largest probability of all asks for labels."""
    centres = [_centre(least, most) for least, most in ranges]
    reaches = [_reach(*ends, centre) for ends, centre in zip(ranges, centres, strict=True)]
    chances = [
        np.divide(reach, bound - np.abs(centre), out=np.zeros(len(reach)), where=reach > 0)
        for reach, centre in zip(reaches, centres, strict=True)
    ]
    probability = np.minimum(np.maximum.reduce(chances), 1.0)
    n = len(probability)
    clock, asked = uniforms(seed, 0, n), uniforms(seed, 1, n) < probability
    order = np.argsort(clock, kind="stable")
    courses = []
    for (least, most), centre, reach in zip(ranges, centres, reaches, strict=True):
        place = np.flatnonzero((asked & (reach > 0))[order])
        rows, free = order[place], centre[order] if centre.any() else np.zeros(0)
        known = (rows, least[rows], most[rows], centre[rows], limit, delta, n)
        courses.append(StreamCourse(*known, probability[rows], place, free, bound))
    return clock, tuple(courses)


def _centre(least: Array, most: Array) -> Array:
    return np.clip(0.0, least, most)


def _reach(least: Array, most: Array, centre: Array) -> Array:
    return np.maximum(most - centre, centre - least)


def _sums_from(values: Array) -> Array:
    """Sums of the entries from each one on, and 0 behind the last ``[T + 1]``."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)


def _any_of(courses: Sequence[Course], n: int) -> Flags:
    """Rows ``[n]`` that a candidate needs a label of."""
    found = np.zeros(n, dtype=bool)
    for course in courses:
        found[course.rows] = True
    return found


def _whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | np.integer)


def _loss_record(loss: Loss) -> dict[str, Any]:
    return {"name": type(loss).__name__, **vars(loss)}
