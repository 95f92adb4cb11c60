"""The kernel drift detector."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from river import base

from streamkernel import learners, rules, tensor_file
from streamkernel.estimators import model_file
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.features import example_tensors, numeric_names
from streamkernel.features.rows import Rows
from streamkernel.kernels import Gaussian, Kernel
from streamkernel.learners.append_log import Log
from streamkernel.locking import locked

OLD_AND_NEW = np.array([0.0, 1.0])


class KernelDriftDetector(model_file.Serializable, base.DriftDetector):
    """Says when events stop to look like those before them, in any way that a kernel machine can tell.

    It sees changes of the joint distribution that leave each feature by itself as it was. Every other event waits
    in the window; each of the others is compared with the event x° that has waited longest, which is older by `window`
    events. A kernel logistic regression f learns to tell new events from old ones, so it estimates the logarithm of the
    ratio of their densities; a window later a pair has faded to 1/e. Before f learns a pair, it bets on which of the
    two is the new one:

        L_n = 2 / (1 + exp(f(x°) - f(x))),    M_n = (M_{n-1} + 1) L_n,    alarm where M_n ≥ ½ `average_run_length`.

    While the distribution stays the same, the events of a pair could as well be exchanged, whatever the pairs before
    were, because no event is in two pairs. So E[L_n | the pairs before] = 1 and M_n - n is a martingale; by optional
    stopping the expected number of pairs, of two events each, until an alarm is at least the bound on M_n. This
    holds for any distribution and any f. It needs events that are independent, or at least exchangeable: a slow
    trend is a drift, and is reported as one.

    After an alarm the detector starts again with an empty window at the next event; a change is noticed within the
    `window` events after it, or not at all.

    Parameters
    ----------
    kernel
        The kernel; by default a Gaussian of half the median distance between the first events. Features should be
        on comparable scales.
    average_run_length
        The least expected number of events until a false alarm.
    window
        By how many events the compared ones are apart; half as many are kept. There is no alarm before as many have
        been seen. A subtle change needs a longer one.
    max_features
        Random features of f.
    seed
        Seed of the random features.

    Attributes
    ----------
    drift_detected : bool
        Whether the last event raised an alarm.
    statistic : float
        The evidence M_n.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

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
        if isinstance(average_run_length, str) or not 2.0 <= average_run_length < math.inf:
            raise ValueError(f"Expected average_run_length >= 2, got {average_run_length!r}")
        if not isinstance(window, (int, np.integer)) or window < 2:
            raise ValueError(f"Expected window >= 2, got {window!r}")
        self.average_run_length = average_run_length
        self.window = window
        self.kernel = kernel
        self.max_features = max_features
        self.seed = seed
        self._lock = Lock()
        super().__init__()
        self._reset()

    def _reset(self) -> None:
        super()._reset()
        self._seen = _Seen(self._new_model(), Log([]))

    def _new_model(self) -> KernelClassifier:
        return KernelClassifier(
            self.kernel or Gaussian("median", median_factor=0.5),
            learner=learners.DSG(rule=rules.DSG(), step_size=1.0),
            max_features=self.max_features,
            l2=1.0 / self.window,
            seed=self.seed,
        )

    @property
    def statistic(self) -> float:
        """The evidence M_n."""
        return self._seen.statistic

    @property
    def drift_detected(self) -> bool:
        """Whether the last event raised an alarm."""
        return self._seen.drift_detected

    def update(self, x: Mapping[Hashable, Any]) -> None:  # type: ignore[override]  # River's take one number
        """Take the next event; :attr:`drift_detected` says whether it raised an alarm.

        Parameters
        ----------
        x
            The features by name: numbers, or strings as indicators. A name that is missing counts as 0.

        Raises
        ------
        InputError
            If a value is neither a finite number nor a string; names the field.
            The detector is as it was before.
        """
        directions = self._seen.model._learner.directions
        row = directions.row(x)
        directions.plan.check(x)
        self._see(row)

    @locked
    def _see(self, row: Rows) -> None:
        """See one event."""
        self._recover()
        seen = self._seen
        row = seen.model._learner.directions.adopt_rows(row)
        if seen.drift_detected:
            seen = _Seen(self._new_model(), Log([]))
            row = seen.model._learner.directions.adopt_rows(row)
        if seen.waits:
            self._seen = seen._replace(waiting=seen.waiting.plus(row), waits=False)
        elif 2 * len(seen.waiting) < self.window:
            self._seen = seen._replace(waits=True)
        else:
            self._compare(seen, Rows.stack([seen.waiting[0], row]))

    def _compare(self, seen: _Seen, pair: Rows) -> None:
        """Bet on which event of a pair of an old and a new one is which, and learn it."""
        model = seen.model
        old, new = model._scores_of(pair)[:, 0].tolist()
        statistic = (seen.statistic + 1.0) * (1.0 + math.tanh(0.5 * (new - old)))
        after = seen._replace(
            waiting=seen.waiting.without(1),
            waits=True,
            statistic=statistic,
            drift_detected=statistic >= 0.5 * self.average_run_length,
        )
        self._seen = seen._replace(journal=(pair, model._learner.n_offered, after))
        try:
            model._learn(pair, OLD_AND_NEW, model._learner.directions, numeric_names.NONE)
        finally:
            self._recover()

    def _recover(self) -> None:
        """Make the changes that follow from what the model has learned; with the lock."""
        journal = self._seen.journal
        if journal is None:
            return
        pair, offered, after = journal
        model = after.model
        model._complete()
        learned = model._learner.n_offered - offered
        if learned == 1:
            model._learn(pair.part(1, 2), OLD_AND_NEW[1:], model._learner.directions, numeric_names.NONE)
        self._seen = after if learned else self._seen._replace(journal=None)

    @locked
    def _describe(self) -> tuple[dict[str, Any], tensor_file.Tensors]:
        self._recover()
        seen = self._seen
        model, tensors = seen.model._describe()
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
        model._restore(description["model"], tensors)
        waiting = example_tensors.unpack_examples("waiting", tensors, model._learner.directions) or []
        if 2 * len(waiting) > self.window + 1:
            raise ValueError(f"expected half of the window of {self.window} events as waiting, got {len(waiting)}")
        statistic = float(description["statistic"])
        if not 0.0 <= statistic < math.inf:
            raise ValueError(f"expected a statistic of at least 0, got {statistic!r}")
        rows = Log.of([row for row, _ in waiting])
        self._seen = _Seen(model, rows, bool(description["waits"]), statistic, bool(description["drift_detected"]))


class _Seen(NamedTuple):
    """All that a detector has learned; it is replaced in one assignment.

    Attributes
    ----------
    model
        What tells old events from new ones.
    waiting
        The events in the window.
    waits
        Whether the next event joins them.
    statistic
        The evidence M_n.
    drift_detected
        Whether the last event raised an alarm.
    journal
        A pair that is being learned, examples that the model had been offered before, and the state after it.
    """

    model: KernelClassifier
    waiting: Log[Rows]
    waits: bool = True
    statistic: float = 0.0
    drift_detected: bool = False
    journal: tuple[Rows, int, Any] | None = None
