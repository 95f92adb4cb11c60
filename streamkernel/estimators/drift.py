"""The kernel drift detector."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self

import numpy as np
from river import base

from streamkernel import learners, rules, tensor_file
from streamkernel.documentation import documented
from streamkernel.errors import InputError, is_real
from streamkernel.estimators import model_file
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.model import Model
from streamkernel.estimators.model_file import describe_model, restore_model
from streamkernel.features import example_tensors, numeric_names
from streamkernel.features.directions import Directions
from streamkernel.features.rows import F64, Rows
from streamkernel.first_order.expansion import FirstOrderLearner
from streamkernel.kernels import Gaussian, Kernel
from streamkernel.locking import OwnedLock, locked, on_copy
from streamkernel.upkeep.tasks import Log

OLD_AND_NEW = np.array([0.0, 1.0])

AT_ONCE = 64
"""Maximum number of pairs in a compiled call: other threads wait for it, about a millisecond."""


class PairsJournal(NamedTuple):
    """Pairs that are being learned: after an interruption it decides what to complete.

    `pairs` are an old and a new event each, and `joining` the event after each pair, which joins the window; some may
    be missing. `statistics` are the evidence before the first pair and after each. The model had been offered `offered`
    examples before.
    """

    pairs: Rows
    joining: list[Rows]
    statistics: F64
    offered: int


class SeenEvents(NamedTuple):
    """The state of a detector, which is replaced in one assignment.

    `model` is a classifier of old against new events, and `waiting` are the events in the window, which the next one
    joins if `waits` is true. `statistic` is the evidence M_n; `drift_detected` says whether the last event raised an
    alarm.
    """

    model: Model
    waiting: Log[Rows]
    waits: bool = True
    statistic: float = 0.0
    drift_detected: bool = False
    journal: PairsJournal | None = None


@documented()
class KernelDriftDetector(model_file.Serializable, base.DriftDetector):
    """Detects changes of the joint distribution of a stream.

    It also detects changes that leave the distribution of each feature unchanged. Every other event is stored in the
    window. Each of the others is compared with the oldest stored event x°, which is `window` events older. A
    kernel logistic regression f learns to distinguish new events from old ones, so it estimates the logarithm of the
    ratio of their densities; after one window the weight of a pair has fallen to 1/e. Before f learns a pair, it bets
    on which of the two is new:

        L_n = 2 / (1 + exp(f(x°) - f(x))),    M_n = (M_{n-1} + 1) L_n,    alarm where M_n ≥ ½ `average_run_length`.

    While the distribution does not change, the events of a pair are exchangeable given all earlier pairs, because no
    event is in two pairs. So E[L_n | earlier pairs] = 1 and M_n - n is a martingale; by optional stopping, the
    expected number of pairs, of two events each, until an alarm is at least the bound on M_n. This holds for any
    distribution and any f. It requires independent, or at least exchangeable, events: a slow trend is a drift, and is
    reported as one.

    After an alarm the detector restarts with an empty window at the next event. A change is detected within the
    `window` events after it, or not at all.

    Parameters
    ----------
    kernel : Kernel or None, default None
        The kernel; by default a Gaussian of half the median distance between the first events. Features should be
        on comparable scales.
    average_run_length : float, default 100000.0
        A lower bound on the expected number of events until a false alarm.
    window : int, default 1000
        The distance of compared events, in events; half as many are stored. There is no alarm during the first
        `window` events. Subtle changes need a longer window.
    max_features : int, default 512
        The largest number of random features of f.

    Attributes
    ----------
    drift_detected : bool
        Whether the last event raised an alarm.
    statistic : float
        The evidence M_n.

    References
    ----------
    Shin, Ramdas and Rinaldo, "E-detectors: A Nonparametric Framework for Sequential Change Detection",
    arXiv:2203.03532, 2022.
    Dai et al., "Scalable Kernel Methods via Doubly Stochastic Gradients", NeurIPS 2014, section 4.

    Examples
    --------
    >>> import random
    >>> from streamkernel import KernelDriftDetector
    >>> detector, generator = KernelDriftDetector(), random.Random(2)
    >>> for t in range(6000):  # after 4000 events the second feature turns its sign; its distribution is the same
    ...     a, b = generator.gauss(0.0, 1.0), generator.gauss(0.0, 1.0)
    ...     detector.update({"a": a, "b": 0.6 * b + 0.8 * (a if t < 4000 else -a)})
    ...     if detector.drift_detected:
    ...         print(t)
    4061
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        average_run_length: float = 100_000.0,
        window: int = 1000,
        max_features: int = 512,
        seed: int = 0,
    ) -> None:
        if not (is_real(average_run_length) and 2.0 <= average_run_length < math.inf):
            raise ValueError(f"Expected average_run_length >= 2, got {average_run_length!r}")
        if not isinstance(window, (int, np.integer)) or window < 2:
            raise ValueError(f"Expected window >= 2, got {window!r}")
        self.average_run_length = average_run_length
        self.window = window
        self.kernel = kernel
        self.max_features = max_features
        self.seed = seed
        self._lock = OwnedLock()
        super().__init__()
        self._reset()

    def _reset(self) -> None:
        super()._reset()
        self._seen = SeenEvents(self._new_model(), Log([]))

    def _new_model(self) -> Model:
        """Return the model of an untrained classifier of old against new events."""
        return KernelClassifier(
            self.kernel or Gaussian("median", median_factor=0.5),
            learner=learners.DSG(rule=rules.DSG(), step_size=1.0),
            max_features=self.max_features,
            l2=1.0 / self.window,
            seed=self.seed,
        )._model

    @property
    def statistic(self) -> float:
        """The evidence M_n."""
        return self._seen.statistic

    @property
    def drift_detected(self) -> bool:
        """Whether the last event raised an alarm."""
        return self._seen.drift_detected

    def update(self, x: Mapping[Hashable, Any]) -> None:  # type: ignore[override]  # River's take one number
        """Process the next event and set :attr:`drift_detected`.

        Parameters
        ----------
        x : dict
            The features by name: numbers, or strings as indicators. A name that is missing counts as 0.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string; names the field. The detector does not change then.
        """
        directions = self._seen.model.learner.directions
        row = directions.row(x)
        if not directions.plan.usable(row):
            directions.plan.check(x)
        self._see([row], directions)

    def update_many(self, xs: Sequence[Mapping[Hashable, Any]]) -> int:
        """Process the next events in order, up to the first that raises an alarm, with the same bits as by `update`.

        Parameters
        ----------
        xs : sequence of dict
            The features of each, as for :meth:`update`.

        Returns
        -------
        int
            The number of processed events.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string; names the field. The events before are processed.

        Examples
        --------
        >>> detector = KernelDriftDetector(window=20)
        >>> detector.update_many([{"a": float(i % 7)} for i in range(100)]), detector.drift_detected
        (100, False)
        """
        done = 0
        while done < len(xs):
            directions = self._seen.model.learner.directions
            rows = _usable_rows(directions, xs[done : done + 2 * AT_ONCE])
            if rows:
                done += self._see(rows, directions)
            else:
                self.update(xs[done])
                done += 1
            if self.drift_detected:
                break
        return done

    @locked()
    def _see(self, rows: list[Rows], directions: Directions) -> int:
        """Process events, which `directions` have read, up to the first alarm or another bandwidth; return how many."""
        self._recover()
        if self._seen.drift_detected:
            self._seen = SeenEvents(self._new_model(), Log([]))
        done = 0
        while done == 0 or (done < len(rows) and not self._seen.drift_detected):
            seen = self._seen
            directions_in_use = seen.model.learner.directions
            if done and directions_in_use.plan is not directions.plan:
                break
            if directions.store is not directions_in_use.store:
                rows, directions = [directions_in_use.adopt_rows(row) for row in rows], directions_in_use
            if not seen.waits and 2 * len(seen.waiting) >= self.window:
                done += self._compare(seen, rows[done:])
                continue
            waiting = seen.waiting.plus(rows[done]) if seen.waits else seen.waiting
            self._seen = seen._replace(waiting=waiting, waits=not seen.waits)
            done += 1
        return done

    def _compare(self, seen: SeenEvents, rows: list[Rows]) -> int:
        """Bet on every other one of these events and an old one, and learn them; return the number of processed events.

        The events between them join the window.
        """
        model, learner, is_plain = seen.model, seen.model.learner, seen.model.state.is_plain
        assert isinstance(learner, FirstOrderLearner)
        n = min((len(rows) + 1) // 2, len(seen.waiting), AT_ONCE) if is_plain else 1
        joining = rows[1 : 2 * n : 2] if is_plain else []  # the bandwidth decides whether an event can be used
        pairs = Rows.stack([row for i in range(n) for row in (seen.waiting[i], rows[2 * i])])
        statistics, offered = np.full(n + 1, seen.statistic), learner.n_offered
        self._seen = seen._replace(journal=PairsJournal(pairs, joining, statistics, offered))
        try:
            if is_plain:
                learner.bet_on_pairs(pairs, 0.5 * self.average_run_length, statistics)
            if model.learner.n_offered == offered:  # the bandwidth is still unknown, or there is an error to raise
                pair = pairs.part(0, 2)
                if not learner.directions.plan.usable(pair.part(0, 1)):  # it was read with another bandwidth
                    self._seen = seen._replace(waiting=seen.waiting.without(1))
                    return 0
                old, new = model.scores_of(pair)[:, 0].tolist()
                statistics[1] = (seen.statistic + 1.0) * (1.0 + math.tanh(0.5 * (new - old)))
                model.learn_rows(pair, OLD_AND_NEW, model.learner.directions, numeric_names.NONE)
        finally:
            n = self._recover()
        return len(self._seen.waiting) - len(seen.waiting) + 2 * n

    def _recover(self) -> int:
        """Complete the changes that follow from the learned examples; requires the lock. Return the number of pairs.

        Raise an InputError if the new event of the last pair cannot be learned; it and the old one are dropped.
        """
        seen = self._seen
        if seen.journal is None:
            return 0
        pairs, joining, statistics, offered = seen.journal
        model, refused = seen.model, None
        model.complete()
        taken = model.learner.n_offered - offered
        if not 0 <= taken <= 2 * (len(statistics) - 1):  # another bandwidth changed how many examples can be used
            taken = 2
        n, half = divmod(taken, 2)
        if half:
            try:
                last = pairs.part(2 * n + 1, 2 * n + 2)
                model.learn_rows(last, OLD_AND_NEW[1:], model.learner.directions, numeric_names.NONE)
                n += 1
            except InputError as error:
                refused = error
        statistic = float(statistics[n])
        is_drift = n > 0 and statistic >= 0.5 * self.average_run_length
        waiting, joined = seen.waiting.without(n + (refused is not None)), joining[: n - is_drift]
        for row in joined:
            waiting = waiting.plus(row)
        self._seen = SeenEvents(model, waiting, len(joined) < n, statistic, is_drift)
        if refused is not None:
            raise refused
        return n

    def _completed_copy(self) -> Self:
        """Return a copy that shares nothing that an event changes, after the events in progress or before them."""
        seen = self._seen
        twin = self._twin(_lock=OwnedLock(), _seen=seen._replace(model=seen.model._completed_copy()))
        with suppress(InputError):  # the call in progress raises it
            twin._recover()
        return twin

    @locked(inside=on_copy)
    def _describe(self) -> tuple[dict[str, Any], tensor_file.Tensors]:
        self._recover()
        seen = self._seen
        model, tensors = describe_model(seen.model)
        waiting = example_tensors.pack_examples("waiting", [(row, 0.0) for row in seen.waiting])
        description = {
            "model": model,
            "statistic": seen.statistic,
            "drift_detected": seen.drift_detected,
            "waits": seen.waits,
        }
        return description, tensors | waiting

    def _restore(self, description: Mapping[str, Any], tensors: tensor_file.Tensors) -> None:
        model = self._new_model()
        restore_model(model, description["model"], tensors)
        waiting = example_tensors.unpack_examples("waiting", tensors, model.learner.directions) or []
        if 2 * len(waiting) > self.window + 1:
            raise ValueError(f"expected half of the window of {self.window} events as waiting, got {len(waiting)}")
        statistic = float(description["statistic"])
        if not 0.0 <= statistic < math.inf:
            raise ValueError(f"expected a statistic of at least 0, got {statistic!r}")
        rows = Log.of([row for row, _ in waiting])
        self._seen = SeenEvents(model, rows, bool(description["waits"]), statistic, bool(description["drift_detected"]))


def _usable_rows(directions: Directions, xs: Sequence[Mapping[Hashable, Any]]) -> list[Rows]:
    """Return the first events, up to one that cannot be used, as `directions` read them."""
    rows: list[Rows] = []
    for x in xs:
        try:
            row = directions.row(x)
        except (ValueError, TypeError, AttributeError):  # `update` raises it again
            break
        if not directions.plan.usable(row):
            break
        rows.append(row)
    return rows
