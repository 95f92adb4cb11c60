"""Distributions of fields in windows of rows, compared with a reference window.

The first rows are the reference. When a window is full, its fields are summarized and the next one begins, so memory is
bounded, quantiles are exact, and a summary depends on the number of its rows only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkernel.engine.monitoring.several_metrics import OTHER, text_of
from streamkernel.engine.seen_inputs import InputRanges

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BINS = 10
MOST_CANDIDATES = 200
"""Maximum number of candidate fields to summarize: the first ones of the stream."""

MOST_VALUES, SHOWN_VALUES = 1000, 20
"""Number of texts of a field that are stored from the reference window, and of texts with a share of their own."""

NEW, MISSING = "(new)", "(missing)"

Floats = npt.NDArray[np.float64]


class FieldSummary(NamedTuple):
    """The values of a field in one window.

    `missing` is the share of rows without the field. `new` is the share of texts that were not in the reference window;
    ``None`` for numbers, and if that window had too many different texts. `outside` is the share of numbers far outside
    the usual range in the reference window, as `InputRanges` learns it. `mean`, `deviation` and `quantiles`, at
    `QUANTILES`, are ``None`` without numbers. `shares` are for texts: the shares of the most frequent ones in the
    reference window, of all others, and of new ones. `change` is the population stability index, Σ (p - q) log(p/q)
    over the shares p in this window and q in the reference.
    """

    missing: float
    new: float | None
    outside: float | None
    mean: float | None
    deviation: float | None
    quantiles: tuple[float, ...] | None
    shares: Mapping[str, float]
    change: float


class _Field(NamedTuple):
    """The bins, texts and usual range of a field in the reference window."""

    values: tuple[str, ...] | None  # texts, the most frequent first; None for numbers
    is_complete: bool  # whether these are all texts
    edges: tuple[float, ...]  # of the bins of numbers
    limits: tuple[float, float] | None  # of the usual range
    expected: tuple[float, ...]  # counts in the bins


class FieldWindows:
    """Summarizes fields of rows in windows of equal size.

    `window` is the number of rows in a window. `fields` are the fields; ``None`` to choose from the fields of the
    reference window. `most` is the maximum number of fields to choose. `names` are the fields, once the reference
    window is full. `reference` and `last` are the summaries of the reference window and of the last full one, by field;
    empty before.

    Examples
    --------
    >>> windows = FieldWindows(100)
    >>> windows.add([{"age": 20 + i % 50, "town": "Graz"} for i in range(100)])
    >>> windows.complete()
    >>> windows.add([{"age": 40 + i % 50, "town": "Linz"} for i in range(100)])
    >>> windows.complete()
    >>> windows.reference["age"].mean, windows.last["age"].mean, windows.last["town"].new
    (44.5, 64.5, 1.0)
    >>> {name: round(one.change, 1) for name, one in windows.last.items()}
    {'age': 1.7, 'town': 10.4}
    """

    def __init__(self, window: int, fields: Sequence[str] | None = None, most: int = 20) -> None:
        self._window, self._given, self._most = window, None if fields is None else list(fields), most
        self.names: list[str] = list(fields or ())
        self.reference: dict[str, FieldSummary] = {}
        self.last: dict[str, FieldSummary] = {}
        self._fields: dict[str, _Field] = {}
        self._columns: dict[str, list[Any]] = {name: [] for name in self.names}  # the rows of the incomplete window
        self._n = 0

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows; they must fit into the window."""
        if not self._fields and self._given is None:
            self._find(rows)
        for name, column in self._columns.items():
            column += [row.get(name) for row in rows]
        self._n += len(rows)

    def complete(self, important: Callable[[], Iterable[str]] = tuple) -> None:
        """Summarize the full window; at the first one, choose the fields: the important ones, and the first."""
        if not self._fields:
            self._choose_fields(important())
        self.last = {name: _summary(self._columns[name], of) for name, of in self._fields.items()}
        self.reference = self.reference or self.last
        self._columns, self._n = {name: [] for name in self.names}, 0

    @property
    def setup(self) -> list[Any]:
        """The options, as plain values."""
        return [self._window, self._given, self._most]

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {
            "n": self._n,
            "columns": {name: _packed(column) for name, column in self._columns.items()},
            "fields": {name: tuple(of) for name, of in self._fields.items()},
            "reference": {name: tuple(of) for name, of in self.reference.items()},
            "last": {name: tuple(of) for name, of in self.last.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`, from the same setup."""
        self._n, self._columns = state["n"], {name: _unpacked(column) for name, column in state["columns"].items()}
        self.names = list(self._columns)
        self._fields = {name: _Field(*of) for name, of in state["fields"].items()}
        self.reference = {name: FieldSummary(*of) for name, of in state["reference"].items()}
        self.last = {name: FieldSummary(*of) for name, of in state["last"].items()}

    def _find(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add the new fields of these rows, up to the maximum."""
        columns = self._columns
        for row in rows:
            if not row.keys() <= columns.keys():
                for name in row:
                    if name not in columns and len(columns) < MOST_CANDIDATES:
                        columns[name] = [None] * self._n
        self.names = list(columns)

    def _choose_fields(self, important: Iterable[str]) -> None:
        if self._given is None:
            first = dict.fromkeys(field for name in important if (field := _field_of(name, self._columns)) is not None)
            chosen = {*list(first)[: max(1, self._most // 2)]}
            chosen |= {*[name for name in self.names if name not in chosen][: self._most - len(chosen)]}
            self.names = [name for name in self.names if name in chosen]
        self._fields = {name: _known(self._columns[name]) for name in self.names}


def _field_of(name: str, fields: Iterable[str]) -> str | None:
    """Return the field from which a model's input is derived: the same name, or its prefix for encoders."""
    return next((field for field in fields if name == field or name.startswith(f"{field}_")), None)


def _known(column: Sequence[Any]) -> _Field:
    """Return the bins of a field and its usual range, from the reference window."""
    texts = Counter(text_of(value) for value in column if isinstance(value, str))
    if texts:
        values = tuple(name for name, _ in texts.most_common(MOST_VALUES))
        field = _Field(values, len(values) == len(texts), (), None, ())
        return field._replace(expected=_counts_of_texts(_texts(column), field))
    numbers = _numbers(column)
    there = numbers[~np.isnan(numbers)]
    edges = np.unique(np.quantile(there, np.arange(1, BINS) / BINS)) if len(there) else np.empty(0)
    ranges = InputRanges()
    for value in there.tolist():
        ranges.learn({"": value})
    field = _Field(None, True, tuple(edges.tolist()), ranges.limits.get(""), ())
    return field._replace(expected=_counts_of_numbers(np.sort(there), len(column), field))


def _summary(column: Sequence[Any], field: _Field) -> FieldSummary:
    """Return the summary of a full window of one field."""
    n = len(column)
    if field.values is not None:
        texts = _texts(column)
        counts = _counts_of_texts(texts, field)
        names = [*field.values[:SHOWN_VALUES], OTHER, NEW, MISSING]
        shares = {name: count / n for name, count in zip(names, counts, strict=True)}
        new = counts[-2] / n if field.is_complete else None
        return FieldSummary(counts[-1] / n, new, None, None, None, None, shares, _stability(counts, field))
    numbers = _numbers(column)
    there = np.sort(numbers[~np.isnan(numbers)])
    change = _stability(_counts_of_numbers(there, n, field), field)
    if not len(there):
        return FieldSummary(1.0, None, None, None, None, None, {}, change)
    low, high = field.limits or (-np.inf, np.inf)
    n_usual = int(there.searchsorted(high, side="right") - there.searchsorted(low))
    quantiles = np.interp(np.array(QUANTILES) * (len(there) - 1), np.arange(len(there)), there)
    return FieldSummary(
        (n - len(there)) / n,
        None,
        (len(there) - n_usual) / len(there),
        float(there.mean()),
        float(there.std()),
        tuple(quantiles.tolist()),
        {},
        change,
    )


def _numbers(column: Sequence[Any]) -> Floats:
    """Return a column as numbers, NaN for missing values."""
    try:
        return np.array(column, np.float64)
    except (TypeError, ValueError):
        return np.array([np.nan if isinstance(value, str) else value for value in column], np.float64)


def _packed(column: Sequence[Any]) -> Any:
    """Return a column as an array if it has no texts, which is smaller and faster in a checkpoint."""
    return list(column) if any(isinstance(value, str) for value in column) else _numbers(column)


def _unpacked(column: Any) -> list[Any]:
    if isinstance(column, list):
        return column
    return [None if math.isnan(value) else value for value in column.tolist()]


def _texts(column: Sequence[Any]) -> list[str | None]:
    return [None if value is None else text_of(value) for value in column]


def _counts_of_texts(texts: Sequence[str | None], field: _Field) -> tuple[float, ...]:
    """Return the counts of each displayed text, of the reference's other texts, of new ones, and of missing values."""
    counts, values = Counter(texts), field.values or ()
    shown = [counts[value] for value in values[:SHOWN_VALUES]]
    other = sum(counts[value] for value in values[SHOWN_VALUES:])
    return (*shown, other, len(texts) - sum(shown) - other - counts[None], counts[None])


def _counts_of_numbers(there: Floats, n: int, field: _Field) -> tuple[float, ...]:
    """Return the counts of sorted numbers in each bin, and of the values of `n` that are missing."""
    ends = there.searchsorted(np.array(field.edges), side="right")
    return (*np.diff(ends, prepend=0, append=len(there)).tolist(), n - len(there))


def _stability(counts: Sequence[float], field: _Field) -> float:
    """Return the population stability index of counts against the reference's counts, with half a row more in each."""
    p, q = np.array(counts) + 0.5, np.array(field.expected) + 0.5
    p, q = p / p.sum(), q / q.sum()
    return float(((p - q) * np.log(p / q)).sum())
