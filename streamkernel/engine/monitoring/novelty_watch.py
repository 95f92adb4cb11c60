"""Detection of events unlike earlier ones, by a kernel novelty detector, without labels.

The detector learns a sample of the events in order. The position of an event alone decides whether it is in the
sample, so neither restarts nor batch sizes change it.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import structlog
from scipy.stats import betabinom

from streamkernel import learners, rules
from streamkernel.engine.monitoring.drift_watch import (
    ALARMS,
    FIRST,
    MOVED,
    Row,
    Scales,
    fields_of,
    moved_fields,
    scaled,
    scales_of,
)
from streamkernel.engine.telemetry.quality import WINDOW
from streamkernel.estimators.densities import KernelNoveltyDetector

HELD_OUT = WINDOW // 2
"""Number of events of a window that the detector does not learn."""

MEMORY = 2000
"""Number of events after which one that was learned has faded to 1/e."""

LEVELS = (0.5, 0.95, 0.99)
"""The levels of the quantiles of scores in metrics."""

log = structlog.get_logger("streamkernel")


def new_detector() -> KernelNoveltyDetector:
    """Return a detector that remembers about the last `MEMORY` events that it has learned."""
    nu = 0.5
    return KernelNoveltyDetector(nu=nu, learner=learners.DSG(rule=rules.DSG(), step_size=1.0 / (MEMORY * nu)))


class NoveltyScore(NamedTuple):
    """The score of an event, and whether it is novel; ``None`` while the detector starts."""

    score: float | None
    is_novel: bool | None


STARTING = NoveltyScore(None, None)


class NoveltySnapshot(NamedTuple):
    """Figures of the detector at one moment; any thread may read them.

    `alarms_raised` is the number of alarms since the start. `examined` and `novel` are the numbers of sampled events
    that were compared, and of novel ones among them. `recent` is the share of novel ones among the last `WINDOW` that
    were compared, ``None`` before the first, and `rate` its bound. `quantiles` are the quantiles of the scores of
    held-out events of the last full window, at `LEVELS`; empty before.
    """

    alarms_raised: int
    examined: int
    novel: int
    recent: float | None
    rate: float
    quantiles: Sequence[float]
    alarms: Sequence[Mapping[str, Any]]

    def rows(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return {**self._asdict(), "quantiles": list(self.quantiles), "alarms": list(self.alarms)}


class NoveltyWatch:
    """Scores events, and raises an alarm where too many of them are novel.

    Of the sampled events, every second one is learned, and the others are held out. After `WINDOW` of them, a copy of
    the detector scores the events held out in this window, and then each event of the next one. An event of that is
    novel if it is among the ``rate * (HELD_OUT + 1)`` largest of these scores and its own. The copy has learned none of
    these events. So if events are independent and their distribution does not change, the probability of that is at
    most `rate`, and the number of novel events in a window has a beta-binomial distribution. An alarm is raised when
    the number exceeds a limit that it exceeds with a probability of at most ``WINDOW / average_run_length``. `limit` is
    the largest number of novel events in a window without an alarm. `fields` are the inputs; ``None`` for the first
    ones of the stream. `most` is the maximum number of inputs. `every` is the sampling interval: 4 takes the first of
    every 4 events. `rate` is the share of novel events in a stream that does not change, at least 0.002.
    `average_run_length` is the number of sampled events, on average, for one false alarm.

    References
    ----------
    Laxhammar and Falkman, "Conformal prediction for distribution-independent anomaly detection in streaming vessel
    data", StreamKDD 2010.

    Examples
    --------
    >>> import random
    >>> generator = random.Random(1)
    >>> watch = NoveltyWatch()
    >>> for _ in range(3000):
    ...     novelty = watch.observe({"a": generator.gauss(0, 1)})
    >>> watch.observe({"a": 0.1}).is_novel, watch.observe({"a": 7.0}).is_novel
    (False, True)
    """

    def __init__(
        self,
        *,
        fields: Sequence[str] | None = None,
        most: int = 20,
        every: int = 1,
        rate: float = 0.01,
        average_run_length: float = 1_000_000.0,
    ) -> None:
        self._given, self._most, self._every, self._rate = fields, most, every, rate
        self._run_length = average_run_length
        self._largest = int(rate * (HELD_OUT + 1))
        tail = betabinom(WINDOW, self._largest, HELD_OUT + 1 - self._largest)
        self.limit = int(tail.isf(min(1.0, WINDOW / average_run_length)))  # exceeded at most that often
        self._predicted = self._examined = self._novel = self._novel_in_window = self._raised = 0
        self._sampled: list[tuple[int, Mapping[str, Any]]] = []  # numbers and features of events to be examined
        self._first: list[Row] = []
        self._scales: Scales = {}
        self._learning: KernelNoveltyDetector | None = None
        self._scoring: KernelNoveltyDetector | None = None  # its copy of the end of the last window
        self._usual: npt.NDArray[np.float64] = np.empty(0)  # the scores of events that it has not learned, sorted
        self._held_out: list[Row] = []  # in this window
        self._in_window = 0
        self._recent: deque[bool] = deque(maxlen=WINDOW)
        self._unusual: deque[Row] = deque(maxlen=FIRST)
        self._alarms: deque[dict[str, Any]] = deque(maxlen=ALARMS)

    def observe(self, x: Mapping[str, Any]) -> NoveltyScore:
        """Return the novelty of the next event, and learn or hold it out if it is in the sample."""
        self.fold()
        is_sampled = self._predicted % self._every == 0
        self._predicted += 1
        if is_sampled:
            return self._evaluate(x, self._predicted)
        return STARTING if self._scoring is None else self._score(scaled(x, self._scales))

    def add_all(self, xs: Sequence[Mapping[str, Any]]) -> None:
        """Add events whose scores are not wanted; they are examined later, as `observe` does each."""
        for place in range(-self._predicted % self._every, len(xs), self._every):
            self._sampled.append((self._predicted + place + 1, xs[place]))
        self._predicted += len(xs)

    def fold(self) -> None:
        """Examine the events that were added."""
        sampled, self._sampled = self._sampled, []
        for number, x in sampled:
            self._evaluate(x, number)

    @property
    def n_waiting(self) -> int:
        """Number of sampled events that are not examined yet."""
        return len(self._sampled)

    def snapshot(self) -> NoveltySnapshot:
        """Return the current figures."""
        self.fold()
        recent = sum(self._recent) / len(self._recent) if self._recent else None
        quantiles = np.quantile(self._usual, LEVELS).tolist() if len(self._usual) else []
        alarms = tuple(self._alarms)
        return NoveltySnapshot(self._raised, self._examined, self._novel, recent, self._rate, quantiles, alarms)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        self.fold()
        return {
            "setup": self._setup(),
            "counts": [self._predicted, self._examined, self._novel, self._novel_in_window, self._raised],
            "first": self._first,
            "scales": self._scales,
            "learning": self._learning,
            "scoring": self._scoring,
            "usual": self._usual,
            "held_out": self._held_out,
            "in_window": self._in_window,
            "recent": list(self._recent),
            "unusual": list(self._unusual),
            "alarms": list(self._alarms),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `state`, unless that was of another configuration."""
        if state["setup"] != self._setup():
            return
        self._sampled, counts = [], state["counts"]
        self._predicted, self._examined, self._novel, self._novel_in_window, self._raised = counts
        self._first, self._scales, self._usual = state["first"], state["scales"], state["usual"]
        self._learning, self._scoring = state["learning"], state["scoring"]
        self._held_out, self._in_window = state["held_out"], state["in_window"]
        self._recent, self._unusual = deque(state["recent"], WINDOW), deque(state["unusual"], FIRST)
        self._alarms = deque(state["alarms"], ALARMS)

    def _setup(self) -> list[Any]:
        fields = None if self._given is None else list(self._given)
        return [fields, self._most, self._every, self._rate, self._run_length]

    def _evaluate(self, x: Mapping[str, Any], number: int) -> NoveltyScore:
        """Return the novelty of a sampled event, and learn it or hold it out."""
        if not self._scales:
            self._collect_first(x)
            return STARTING
        row = scaled(x, self._scales)
        score = self._score(row)
        self._count_event(row, score, number)
        return score

    def _score(self, row: Row) -> NoveltyScore:
        if self._scoring is None:
            return STARTING
        score = self._scoring.score_one(row)
        return NoveltyScore(score, bool(score > self._usual[-self._largest]))

    def _collect_first(self, x: Mapping[str, Any]) -> None:
        """Collect the first sampled events; when there are enough, the detector learns them."""
        self._first.append({name: x[name] for name in self._given or list(x)[: self._most] if name in x})
        if len(self._first) < FIRST:
            return
        self._scales = scales_of(self._first, fields_of(self._first, self._given, self._most))
        if not self._scales:  # no event had a field
            self._first = []
            return
        self._first = [scaled(row, self._scales) for row in self._first]
        self._learning = new_detector()
        for row in self._first:
            self._learning.learn_one(row)

    def _count_event(self, row: Row, score: NoveltyScore, number: int) -> None:
        """Learn or hold out a sampled event of this number, and raise an alarm or end a window if it is time."""
        assert self._learning is not None
        if score.is_novel is not None:
            self._examined += 1
            self._recent.append(score.is_novel)
        if score.is_novel:
            self._novel += 1
            self._novel_in_window += 1
            self._unusual.append(row)
            if self._novel_in_window == self.limit + 1:
                self._raise(number)
        self._in_window += 1
        if self._in_window % 2:
            self._learning.learn_one(row)
        else:
            self._held_out.append(row)
        if self._in_window == WINDOW:
            self._scoring = copy.deepcopy(self._learning)
            self._usual = np.sort([self._scoring.score_one(one) for one in self._held_out])
            self._held_out, self._in_window, self._novel_in_window = [], 0, 0

    def _raise(self, number: int) -> None:
        """Record an alarm, with the fields in which the novel events of this window differ most."""
        self._raised += 1
        unusual = list(self._unusual)[-self._novel_in_window :]
        moved = moved_fields(self._first, unusual)[:MOVED]
        self._alarms.append({"event": number, "detector": "novelty", "moved": moved})
        names = [one["field"] for one in moved]
        log.warning("many events are novel", event_number=number, count=self._novel_in_window, fields=names)
