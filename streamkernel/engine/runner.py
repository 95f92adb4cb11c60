"""The main loop: an event comes in, is predicted, learnt from and written out, and now and then all is made durable."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import structlog
from river import base, metrics

from connectors import DeadLetters, Event, Sink, Source
from streamkernel.engine.checkpoint import StateDirectory, check_setup
from streamkernel.engine.delayed_labels import Answer, DelayedLabels
from streamkernel.engine.learning import Learner
from streamkernel.engine.metrics import Durations
from streamkernel.errors import InputError

log = structlog.get_logger("streamkernel")

POLL_SECONDS = 0.2
"""How long to wait for an event before looking at the clock and at the request to stop."""

WATCH_EVERY = 100
"""Events between two looks of a watcher."""


class Engine(Learner):
    """Runs a stream of events through a model: predict, learn, write, and make durable.

    Parameters
    ----------
    model
        A River classifier or regressor, or a pipeline that ends in one.
    source
        Where events come from.
    label
        The field to predict.
    ignore
        Fields to leave out.
    metric
        A River metric of the prequential predictions: each is made before its event is learnt.
    sink
        Where predictions go.
    dead_letters
        Where events go that cannot be learnt from; without it they are counted and logged only.
    baseline
        Another River model that learns the same events, to compare with.
    labels
        What joins features with the label that comes in another record; without it each record has both.
    state
        The directory of checkpoints; without one nothing survives the process.
    checkpoint_seconds
        Time between two checkpoints.
    setup
        What the run was set up with, as JSON values; a state directory that was written with another setup is refused.

    Attributes
    ----------
    outcomes : dict
        Events by what became of them: learned, predicted, dead_letter, pending (had to wait for their label).
    last_reason : str
        Why the last dead letter of this process is one.

    Examples
    --------
    >>> from river import metrics
    >>> from connectors import DatasetSource
    >>> from streamkernel import KernelClassifier
    >>> source = DatasetSource("Phishing", label="phishing")
    >>> engine = Engine(KernelClassifier(), source, label="phishing", metric=metrics.Accuracy())
    >>> engine.run()
    >>> engine.outcomes["learned"]
    1250
    """

    def __init__(
        self,
        model: base.Estimator,
        source: Source,
        *,
        label: str,
        ignore: Collection[str] = (),
        metric: metrics.base.Metric,
        sink: Sink | None = None,
        dead_letters: DeadLetters | None = None,
        baseline: base.Estimator | None = None,
        labels: DelayedLabels | None = None,
        state: StateDirectory | None = None,
        checkpoint_seconds: float = 30.0,
        setup: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            model,
            label=label,
            ignore=ignore,
            metric=metric,
            baseline=baseline,
            labels=labels,
            with_probabilities=sink is not None,
        )
        self.source = source
        self.durations = Durations()
        self.last_reason = ""
        self._sink = sink
        self._dead_letters = dead_letters
        self._state = state
        self._every = checkpoint_seconds
        self._setup = dict(setup or {})
        self._positions: dict[str, Any] = {}
        self._written: float | None = None
        self._events = 0

    @property
    def checkpoint_age(self) -> float | None:
        """Seconds since the last checkpoint was durable."""
        return None if self._written is None else time.monotonic() - self._written

    def run(
        self,
        stopping: Callable[[], bool] = lambda: False,
        watch: Callable[[Engine], None] | None = None,
    ) -> None:
        """Go on from the last checkpoint until the stream ends or `stopping` says so.

        Parameters
        ----------
        stopping
            Asked after every event.
        watch
            Called after every hundredth event, and once at the end.

        Raises
        ------
        ModelFileError
            If there are checkpoints and none is whole.
        StateDirectoryError
            If the state directory belongs to a run with another setup.
        """
        self._resume()
        try:
            while not stopping():
                events = self.source.poll(POLL_SECONDS)
                if events is None:
                    break
                for event in events:
                    began = time.perf_counter()
                    self._process(event)
                    self.durations.observe(time.perf_counter() - began)
                    self._events += 1
                    if watch is not None and self._events % WATCH_EVERY == 0:
                        watch(self)
                    self._commit_if_due()
                    if stopping():
                        break
                self._commit_if_due()
            self.commit()
        finally:
            self.close()
        if watch is not None:
            watch(self)

    def commit(self) -> None:
        """Make everything durable, in this order.

        1. Flush predictions and dead letters to disk; their ends are positions.
        2. Write one checkpoint: model, metrics, counters, the source's positions, and the ends of 1.

        A crash before 2 leaves lines after the ends of the last checkpoint; the restart cuts them off and writes
        the same lines again.
        """
        if self._state is None:
            return
        sink = self._sink.flush() if self._sink else None
        dead_letters = self._dead_letters.flush() if self._dead_letters else None
        self._state.write(
            {
                "setup": self._setup,
                "model": self.model,
                "metric": self.metric,
                "baseline": self.baseline,
                "baseline_metric": self.baseline_metric,
                "outcomes": self.outcomes,
                "numbers": sorted(self._examples.numbers),
                "labels": None if self._labels is None else self._labels.state(),
                "positions": self._positions,
                "sink": sink,
                "dead_letters": dead_letters,
            }
        )
        self._written = time.monotonic()

    def close(self) -> None:
        """Release the source, the sinks and the state directory."""
        for part in (self.source, self._sink, self._dead_letters, self._state):
            if part is not None:
                part.close()

    def _resume(self) -> None:
        if self._state is None:
            return
        saved = self._state.read_newest()
        if saved is None:
            self.commit()  # so that a crash before the next one knows where the sinks ended
            return
        check_setup(saved["setup"], self._setup)
        self.model, self.metric = saved["model"], saved["metric"]
        self.baseline, self.baseline_metric = saved["baseline"], saved["baseline_metric"]
        self.outcomes = saved["outcomes"]
        self._examples.numbers = set(saved["numbers"])
        if self._labels is not None and saved.get("labels") is not None:
            self._labels.restore(saved["labels"])
        self._positions = saved["positions"]
        self._written = time.monotonic()
        if self._positions:
            self.source.seek(self._positions)
        for part, position in ((self._sink, saved["sink"]), (self._dead_letters, saved["dead_letters"])):
            if part is not None and position is not None:
                part.seek(position)
        log.info("resumed", learned=self.outcomes["learned"], positions=self._positions)

    def _commit_if_due(self) -> None:
        if self._written is not None and time.monotonic() - self._written >= self._every:
            self.commit()

    def _process(self, event: Event) -> None:
        try:
            step = self._step(event)
        except Exception as error:  # whatever a step of the pipeline raises, the stream goes on
            self._refuse(event, error)
        else:
            if step is not None:
                x, y, answers, is_new = step
                if is_new:
                    self._write(event, y, answers[0])
                self._judge(x, y, answers, is_new)
        self._positions[event.stream] = event.resume

    def _write(self, event: Event, y: Any, answer: Answer) -> None:
        if self._sink is None:
            return
        prediction, probabilities = answer
        line = {"stream": event.stream, "resume": event.resume, "label": y, "prediction": prediction}
        if self._labels is not None and event.record is not None:
            line["key"] = event.record.get(self._labels.key)
        if probabilities is not None:
            line["probabilities"] = probabilities
        self._sink.write(line)

    def _refuse(self, event: Event, error: Exception) -> None:
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        self.outcomes["dead_letter"] += 1
        self.last_reason = reason
        if self._dead_letters is not None:
            self._dead_letters.write(event, reason)
        else:
            log.warning("dead letter", stream=event.stream, resume=event.resume, reason=reason)
