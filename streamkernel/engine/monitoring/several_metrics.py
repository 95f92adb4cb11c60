"""Quality of predictions by several metrics, as a confusion matrix, by class and by segment.

The callers collect predictions with their labels, which are evaluated many at a time. A metric that only counts pairs
of a label and a prediction is evaluated on all pairs. Other metrics cost as much as an event of a fast model: since the
start they are evaluated on every eighth label, and over the last `WINDOW` labels on all, when they are read.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from river.metrics.base import Metric

from streamkernel.engine.delayed_labels import plain
from streamkernel.engine.monitoring.kappa_t import KappaT
from streamkernel.engine.telemetry.quality import (
    SAMPLED,
    WINDOW,
    Pair,
    counts_pairs,
    takes_labels,
    update_metric,
    value,
)
from streamkernel.estimators.internals import read_several
from streamkernel.estimators.parameters import parameters_of

MOST_CLASSES = 20
"""Maximum number of classes with values of their own and rows in the confusion matrix, by number of labels."""

OTHER = "(other)"
"""The segment of all values without a segment of their own."""

LONGEST = 100
"""Maximum number of characters in the name of a segment or class; longer names are cut."""

Judged = tuple[Any, Any, Any, str | None]
"""A label, the prediction, the probabilities, which may be deferred, or ``None``, and the segment or ``None``."""

Item = TypeVar("Item")


class ClassQuality(NamedTuple):
    """The number of labels of a class, and the quality of its predictions; ``None`` for a ratio with denominator 0."""

    labels: int
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True)
class SeveralScores:
    """Values at one moment, immutable for any thread.

    `metrics` are empty metrics by name, and `since_start` their values. `judged` are the last `WINDOW` predictions with
    their labels. `confusions` counts pairs of a label and a prediction since the start; empty for numbers. `segments`
    are, by name, the labels in each segment and the values of the metrics since the start.
    """

    metrics: Mapping[str, Metric]
    since_start: Mapping[str, float]
    judged: Sequence[Judged]
    confusions: Mapping[tuple[Any, Any], int]
    segments: Mapping[str, tuple[int, Mapping[str, float]]] = field(default_factory=dict)

    @cached_property
    def recent(self) -> dict[str, float]:
        """The metrics over the last `WINDOW` labels."""
        return _values(_updated(self.metrics, self.judged))

    @cached_property
    def recent_by_segment(self) -> dict[str, dict[str, float]]:
        """The metrics over the labels of each segment among the last `WINDOW`."""
        by_segment = _by_segment(self.judged, self.judged, self.segments)
        return {name: _values(_updated(self.metrics, by_segment[name])) for name in self.segments if name in by_segment}

    @cached_property
    def recent_by_class(self) -> dict[str, ClassQuality]:
        """Precision, recall and F1 of each class over the last `WINDOW` labels."""
        return by_class(Counter((y, prediction) for y, prediction, *_ in self.judged) if self.confusions else {})

    def rows(self) -> dict[str, Any]:
        """Return the values as JSON values."""
        names, table = confusion_table(self.confusions)
        return {
            "metrics": {
                name: {"since start": self.since_start[name], "recent": self.recent[name]} for name in self.since_start
            },
            "confusion": {"classes": names, "counts": table},
            "classes": {name: one._asdict() for name, one in self.recent_by_class.items()},
            "segments": {
                name: {"labels": n, "since start": dict(values), "recent": self.recent_by_segment.get(name)}
                for name, (n, values) in self.segments.items()
            },
        }


class SeveralMetrics:
    """Evaluates predictions by several metrics, all together and in each segment.

    The segments are the most frequent values of a field among the first `WINDOW` labels, and one more for all other
    values. So their number is bounded, and a restart does not change them. `main` is the name of the key metric, which
    is evaluated elsewhere since the start, and here over the last labels and by segment. `most_segments` is the maximum
    number of named segments; ``None`` without segments. `classes` says whether predictions are classes, for which a
    confusion matrix is counted.

    Examples
    --------
    >>> from river import metrics
    >>> several = SeveralMetrics({"Accuracy": metrics.Accuracy(), "MacroF1": metrics.MacroF1()}, main="Accuracy")
    >>> several.fold([("a", "a", None, None), ("b", "a", None, None), ("b", "b", None, None)])
    >>> scores = several.snapshot()
    >>> scores.since_start, round(scores.recent["Accuracy"], 3)
    ({'MacroF1': 0.666...}, 0.667)
    >>> scores.recent_by_class["b"]
    ClassQuality(labels=2, precision=1.0, recall=0.5, f1=0.666...)
    """

    def __init__(
        self, metrics: Mapping[str, Metric], *, main: str, most_segments: int | None = None, classes: bool = True
    ) -> None:
        self._empty = {name: metric.clone() for name, metric in metrics.items()}
        self._main, self._most, self._classes = main, most_segments, classes
        self._metrics = {name: metric.clone() for name, metric in metrics.items() if name != main}
        self._confusions: Counter[tuple[Any, Any]] = Counter()
        self._recent: deque[Judged] = deque(maxlen=WINDOW)
        self._count = 0
        self._segments: dict[str, tuple[int, dict[str, Metric]]] = {}  # set when they are chosen

    @property
    def needs_probabilities(self) -> bool:
        """Whether a metric needs probabilities."""
        return not all(map(takes_labels, self._empty.values()))

    def fold(self, judged: Sequence[Judged]) -> None:
        """Evaluate predictions with their labels; the grouping into calls does not change the results."""
        if self._most is not None and not self._segments and self._count + len(judged) >= WINDOW:
            first = WINDOW - self._count
            self._add_judged(judged[:first])
            self._segments = self._chosen()
            judged = judged[first:]
        self._add_judged(judged)

    def snapshot(self) -> SeveralScores:
        """Return the current values."""
        segments = self._segments or ({} if self._most is None else self._chosen())
        by_segment = {name: (n, _values(metrics)) for name, (n, metrics) in segments.items()}
        return SeveralScores(
            self._empty, _values(self._metrics), tuple(self._recent), dict(self._confusions), by_segment
        )

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        recent = [one if self.needs_probabilities else (*one[:2], None, one[3]) for one in self._recent]
        columns: Iterable[Any] = zip(*_with_probabilities(recent), strict=True) if recent else ((), (), (), ())
        pairs = [[plain(y), plain(prediction), n] for (y, prediction), n in self._confusions.items()]
        return {
            "setup": self._setup(),
            "metrics": self._metrics,
            "confusions": pairs,
            "recent": [[plain(item) for item in column] for column in columns],
            "count": self._count,
            "segments": {name: [n, metrics] for name, (n, metrics) in self._segments.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`, unless that had different metrics or segments."""
        if state["setup"] != self._setup():
            return
        self._metrics, self._count = state["metrics"], state["count"]
        self._confusions = Counter({(y, prediction): n for y, prediction, n in state["confusions"]})
        self._recent = deque(zip(*state["recent"], strict=True), maxlen=WINDOW)
        self._segments = {name: (n, metrics) for name, (n, metrics) in state["segments"].items()}

    def _setup(self) -> list[Any]:
        return [[f"{name}: {parameters_of(metric)}" for name, metric in self._empty.items()], self._main, self._most]

    def _add_judged(self, judged: Sequence[Judged]) -> None:
        sampled, pairs = judged[-self._count % SAMPLED :: SAMPLED], _pairs(judged)
        if self.needs_probabilities:
            sampled = _with_probabilities(sampled)
        counts = _update(self._metrics, pairs, sampled)
        if self._classes:
            self._confusions.update({pair: n for pair, n in counts.items() if pair[1] is not None})
        if self._segments:
            self._segments = _with(self._segments, judged, pairs, sampled)
        self._recent.extend(judged)
        self._count += len(judged)

    def _chosen(self) -> dict[str, tuple[int, dict[str, Metric]]]:
        """Return the segments with the most of the first labels, with their metrics over these."""
        first = list(self._recent)
        names = [name for name, _ in Counter(one[3] or OTHER for one in first).most_common(self._most)]
        empty = {name: (0, _updated(self._empty, ())) for name in dict.fromkeys([*names, OTHER])}
        return _with(empty, first, _pairs(first), _with_probabilities(first[::SAMPLED]))


def by_class(confusions: Mapping[tuple[Any, Any], int]) -> dict[str, ClassQuality]:
    """Return precision, recall and F1 of the classes with the most labels.

    Examples
    --------
    >>> by_class({("a", "a"): 3, ("a", "b"): 1})["a"]
    ClassQuality(labels=4, precision=1.0, recall=0.75, f1=0.857...)
    """
    labels: Counter[str] = Counter()
    predictions: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for (y, prediction), n in confusions.items():
        labels[text_of(y)] += n
        predictions[text_of(prediction)] += n
        right[text_of(y)] += n * (y == prediction)
    return {
        name: ClassQuality(
            n,
            right[name] / predictions[name] if predictions[name] else None,
            right[name] / n,
            2.0 * right[name] / (n + predictions[name]),
        )
        for name, n in labels.most_common(MOST_CLASSES)
    }


def confusion_table(confusions: Mapping[tuple[Any, Any], int]) -> tuple[list[str], list[list[int]]]:
    """Return the classes with the most labels, and a row for each with the counts of its predictions.

    Examples
    --------
    >>> confusion_table({(True, True): 3, (True, False): 1, (False, False): 2})
    (['true', 'false'], [[3, 1], [0, 2]])
    """
    labels: Counter[str] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    for (y, prediction), n in confusions.items():
        labels[text_of(y)] += n
        labels[text_of(prediction)] += 0
        counts[text_of(y), text_of(prediction)] += n
    names = [name for name, _ in labels.most_common(MOST_CLASSES)]
    if len(labels) > len(names):
        rest, kept = Counter[tuple[str, str]](), set(names)
        for (y, prediction), n in counts.items():
            rest[y if y in kept else OTHER, prediction if prediction in kept else OTHER] += n
        counts, names = rest, [*names, OTHER]
    return names, [[counts[y, prediction] for prediction in names] for y in names]


def text_of(value: Any) -> str:
    """Return a label or the value of a field as a name, of bounded length.

    Examples
    --------
    >>> text_of(True), text_of("spam"), text_of(3)
    ('true', 'spam', '3')
    """
    kind = type(value)
    text = value if kind is str else str(value).lower() if kind is bool else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def texts_of(values: Sequence[Any]) -> list[str]:
    """Return `text_of` each value, computed once for equal values of types that have one text for them.

    Examples
    --------
    >>> texts_of([3, "spam", 3]), texts_of([True, 1, 1.0])
    (['3', 'spam', '3'], ['true', '1', '1.0'])
    """
    types = set(map(type, values))
    if not (types <= {int, str} or types <= {bool, str}):  # 1, True and 1.0 are equal, and so are 0.0 and -0.0
        return [text_of(value) for value in values]
    texts = {value: text_of(value) for value in set(values)}
    return [texts[value] for value in values]


def _with_probabilities(judged: Sequence[Judged]) -> list[Judged]:
    """Return predictions with labels whose probabilities are no longer deferred."""
    read = read_several([one[2] for one in judged])
    return [(y, prediction, p, segment) for (y, prediction, _, segment), p in zip(judged, read, strict=True)]


def _with(
    segments: Mapping[str, tuple[int, dict[str, Metric]]],
    judged: Sequence[Judged],
    pairs: Sequence[Pair],
    sampled: Sequence[Judged],
) -> dict[str, tuple[int, dict[str, Metric]]]:
    """Return the segments after more predictions with labels; their metrics are changed."""
    all_of, some_of = _by_segment(pairs, judged, segments), _by_segment(sampled, sampled, segments)
    for name, metric in all_of.items():
        _update(segments[name][1], metric, some_of.get(name, []))
    return {name: (n + len(all_of.get(name, ())), metrics) for name, (n, metrics) in segments.items()}


def _pairs(judged: Sequence[Judged]) -> list[Pair]:
    return [(one[0], one[1]) for one in judged]


def _by_segment(items: Sequence[Item], judged: Sequence[Judged], segments: Mapping[str, Any]) -> dict[str, list[Item]]:
    """Return items of predictions with labels, by the segments of these."""
    parts: dict[str | None, list[Item]] = {name: [] for name in segments}
    other = parts.get(OTHER, [])
    for item, one in zip(items, judged, strict=True):
        parts.get(one[3], other).append(item)
    return {name: parts[name] for name in segments if parts[name]}


def _updated(metrics: Mapping[str, Metric], judged: Sequence[Judged]) -> dict[str, Metric]:
    updated = {name: metric.clone() for name, metric in metrics.items()}
    _update(updated, _pairs(judged), _with_probabilities(judged))
    return updated


def _update(metrics: Mapping[str, Metric], pairs: Sequence[Pair], sampled: Sequence[Judged]) -> Counter[Pair]:
    """Update metrics, each with predictions or probabilities as it needs; slow ones with the sample only.

    The result counts the pairs of a label and a prediction.
    """
    counts = Counter(pairs)
    for metric in metrics.values():
        if isinstance(metric, KappaT):
            metric.update_many(pairs, counts)
        elif counts_pairs(metric):
            update_metric(metric, counts)
        else:
            place = 1 if takes_labels(metric) else 2
            update_metric(metric, [(one[0], one[place]) for one in sampled])
    return counts


def _values(metrics: Mapping[str, Metric]) -> dict[str, float]:
    return {name: value(metric) for name, metric in metrics.items()}
