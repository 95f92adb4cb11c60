"""The main loop: an event comes in, is predicted, learnt from and written out, and now and then all is made durable."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, cast

import structlog
from river import base, metrics

from connectors import (
    CommitRefused,
    DeadLetters,
    Event,
    GroupSource,
    KafkaDeadLetters,
    KafkaSource,
    Sink,
    Source,
    Transactions,
)
from streamkernel.engine.checkpoint import StateDirectory, check_setup
from streamkernel.engine.delayed_labels import Answer, DelayedLabels
from streamkernel.engine.learning import Learner
from streamkernel.engine.metrics import Durations
from streamkernel.engine.settling import asked, settled
from streamkernel.errors import InputError

log = structlog.get_logger("streamkernel")

STALLED_SECONDS = 60.0
"""How long a source may give nothing though it has something, before that is told."""

POLL_SECONDS = 0.2
"""How long to wait for an event before looking at the clock and at the request to stop."""

WATCH_EVERY = 100
"""Events between two looks of a watcher."""


INCIDENTS = ("rebalance", "commit_refused", "unreachable", "checkpoint_failed", "stalled")
"""What may happen to a run that goes on, by what it is counted as."""


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
    transactions
        What decides which checkpoint counts, if it is not this directory alone.
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
        dead_letters: DeadLetters | KafkaDeadLetters | None = None,
        baseline: base.Estimator | None = None,
        labels: DelayedLabels | None = None,
        state: StateDirectory | None = None,
        transactions: Transactions | None = None,
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
        self._transactions = transactions
        self.incidents = dict.fromkeys(INCIDENTS, 0)
        self._written: float | None = None
        self._changed = True
        self._in_doubt = False
        self._moved = time.monotonic()
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
        self._in_doubt = self._transactions is not None
        try:
            self._resume()
            while not stopping():
                if self._in_doubt and not self._settle(stopping):
                    continue
                events = self.source.poll(POLL_SECONDS)
                if events is None:
                    if self._try_to_commit(last=True):
                        break
                    continue
                self._watchdog(bool(events))
                self._process_all(events, stopping, watch)
                self._commit_if_due()
            self._try_to_commit(last=True)
        except BaseException:
            self._in_doubt = True  # so that what is half done is not committed when the group is left
            raise
        finally:
            self.close()
        if watch is not None:
            watch(self)

    def _process_all(
        self, events: Iterable[Event], stopping: Callable[[], bool], watch: Callable[[Engine], None] | None
    ) -> None:
        for event in events:
            if self._in_doubt:
                return  # it is read again
            began = time.perf_counter()
            try:
                self._process(event)
            except CommitRefused as error:
                self._doubt(error)
                return
            self.durations.observe(time.perf_counter() - began)
            self._events += 1
            if watch is not None and self._events % WATCH_EVERY == 0:
                watch(self)
            self._commit_if_due()
            if stopping():
                return

    def commit(self) -> None:
        """Make everything durable, in this order.

        1. Flush predictions and dead letters. In files their ends are positions; in topics nobody sees them yet.
        2. Prepare one checkpoint: model, metrics, counters, the source's positions, and the ends of 1.
        3. Commit one transaction of Kafka, if it is used: what was written in 1, the offsets read, and the number of 2.
        4. Let the checkpoint count.

        A crash before 3 leaves lines in files after the ends of the last checkpoint, which the restart cuts off, and an
        open transaction, which it voids; the same events are then read again. After a crash between 3 and 4, and where
        the answer to 3 is not known, Kafka is asked which number it has: :meth:`_settle`.

        Raises
        ------
        CommitRefused
            If Kafka did not do 3, or 1, or nobody knows.
        """
        if self._state is None:
            return
        sink = self._sink.flush() if self._sink else None
        dead_letters = self._dead_letters.flush() if self._dead_letters else None
        number = self._state.prepare(
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
        if self._transactions is not None:
            self._transactions.commit(number, self._positions)
        self._state.promote(number)
        if self._transactions is None and isinstance(self.source, KafkaSource):
            self.source.acknowledge(self._positions)
        self._written, self._changed = time.monotonic(), False

    def close(self) -> None:
        """Release the source, the sinks and the state directory."""
        for part in (self.source, self._sink, self._dead_letters, self._transactions, self._state):
            if part is not None:
                part.close()

    def _resume(self) -> None:
        if self._state is None:
            return
        if self._transactions is not None:  # it is asked first
            cast(GroupSource, self.source).listen(self._revoked, self._lost)
            return
        if isinstance(self.source, KafkaSource):
            self.source.listen(self._revoked, lambda streams: None)
        self._state.discard()
        saved = self._state.read_newest()
        if saved is None:
            self.commit()  # so that a crash before the next one knows where the sinks ended
            return
        self._load(saved)
        if self._positions:
            self.source.seek(self._positions)

    def _load(self, saved: Mapping[str, Any]) -> None:
        """Become what a checkpoint says."""
        check_setup(saved["setup"], self._setup)
        self.model, self.metric = saved["model"], saved["metric"]
        self.baseline, self.baseline_metric = saved["baseline"], saved["baseline_metric"]
        self.outcomes = saved["outcomes"]
        self._examples.numbers = set(saved["numbers"])
        if self._labels is not None and saved.get("labels") is not None:
            self._labels.restore(saved["labels"])
        self._positions = saved["positions"]
        self._written, self._changed = time.monotonic(), False
        for part, position in ((self._sink, saved["sink"]), (self._dead_letters, saved["dead_letters"])):
            if part is not None and position is not None:
                part.seek(position)
        log.info("resumed", learned=self.outcomes["learned"], positions=self._positions)

    def _settle(self, stopping: Callable[[], bool]) -> bool:
        """Go on from the checkpoint that counts; return whether it is known, which it is not if we have to stop."""
        state, source = cast(StateDirectory, self._state), cast(GroupSource, self.source)
        newest = asked(cast(Transactions, self._transactions).newest, stopping, self._count)
        if newest is None:
            return False
        saved = settled(state, newest)
        self._in_doubt = False
        if saved is None:
            self._changed = True
            return self._try_to_commit()
        self._load(saved)
        if 0 < saved["checkpoint"] < newest:
            source.rewind(self._positions)
        source.again(self._positions)
        return True

    def _revoked(self, streams: list[str]) -> None:
        """Commit what was done with streams before others get them."""
        self._count("rebalance")
        if not self._in_doubt and not self._try_to_commit():
            self._in_doubt = True
        for stream in streams:
            self._positions.pop(stream, None)

    def _lost(self, streams: list[str]) -> None:
        """Go back to the last commit: others have the streams and do again what was done since."""
        self._count("rebalance")
        self._in_doubt = True

    def _commit_if_due(self) -> None:
        if self._written is not None and time.monotonic() - self._written >= self._every:
            self._try_to_commit()

    def _try_to_commit(self, *, last: bool = False) -> bool:
        """Commit if something has changed, and return whether all is durable."""
        if self._in_doubt or self._state is None:
            return not self._in_doubt
        try:
            if self._changed:
                self.commit()
        except CommitRefused as error:
            self._doubt(error)
        except OSError as error:
            if last:
                raise
            self._count("checkpoint_failed")
            log.error("a checkpoint could not be written and is tried again later", reason=str(error))
        else:
            self._written = time.monotonic()
            return True
        self._written = time.monotonic()
        return False

    def _doubt(self, error: CommitRefused) -> None:
        self._in_doubt = True
        self._count("commit_refused")
        log.warning("a commit was refused or got no answer: back to the last one that counts", reason=str(error))

    def _watchdog(self, has_come: bool) -> None:
        """Report a source that has something to give and gives nothing."""
        now = time.monotonic()
        if has_come or not any(self.source.lag().values()):
            self._moved = now
        elif now - self._moved > STALLED_SECONDS:
            self._moved = now
            self._count("stalled")
            log.error("nothing comes though there is something to read", lag=sum(self.source.lag().values()))

    def _count(self, incident: str) -> None:
        self.incidents[incident] += 1

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
        self._changed = True

    def _write(self, event: Event, y: Any, answer: Answer) -> None:
        if self._sink is None:
            return
        prediction, probabilities = answer
        line = {"stream": event.stream, "resume": event.resume, "label": y, "prediction": prediction}
        if self._labels is not None and event.record is not None:
            line["key"] = event.record.get(self._labels.key)
        if probabilities is not None:
            line["probabilities"] = probabilities
        self._sink.write(line, event.key)

    def _refuse(self, event: Event, error: Exception) -> None:
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        self.outcomes["dead_letter"] += 1
        self.last_reason = reason
        if self._dead_letters is not None:
            self._dead_letters.write(event, reason)
        else:
            log.warning("dead letter", stream=event.stream, resume=event.resume, reason=reason)
