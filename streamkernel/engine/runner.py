"""The main loop: an event comes in, is predicted, learnt from and written out, and now and then all is made durable."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, cast

import structlog
from river import base, compose, metrics

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
from streamkernel.engine.checkpoint import StateDirectory, StateDirectoryError
from streamkernel.engine.examples import Examples
from streamkernel.engine.metrics import Durations
from streamkernel.engine.settling import asked, settled
from streamkernel.errors import InputError
from streamkernel.estimator import KernelModel

log = structlog.get_logger("streamkernel")

STALLED_SECONDS = 60.0
"""How long a source may give nothing though it has something, before that is told."""

POLL_SECONDS = 0.2
"""How long to wait for an event before looking at the clock and at the request to stop."""

WATCH_EVERY = 100
"""Events between two looks of a watcher."""


INCIDENTS = ("rebalance", "commit_refused", "unreachable", "checkpoint_failed", "stalled")
"""What may happen to a run that goes on, by what it is counted as."""


class Engine:
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
        Events by what became of them: learned, predicted, dead_letter, pending.
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
        state: StateDirectory | None = None,
        transactions: Transactions | None = None,
        checkpoint_seconds: float = 30.0,
        setup: Mapping[str, Any] | None = None,
    ) -> None:
        self.model: Any = model
        self.source = source
        self.metric = metric
        self.baseline: Any = baseline
        self.baseline_metric = metric.clone() if baseline is not None else None
        self.outcomes = {"learned": 0, "predicted": 0, "dead_letter": 0, "pending": 0}
        self.durations = Durations()
        self.last_reason = ""
        self._sink = sink
        self._dead_letters = dead_letters
        self._state = state
        self._every = checkpoint_seconds
        self._setup = dict(setup or {})
        self._positions: dict[str, Any] = {}
        asked = sink is not None or not getattr(metric, "requires_labels", True)
        self._probabilities = asked and isinstance(model, base.Classifier)
        self._examples = Examples(label, ignore, numeric_label=isinstance(model, base.Regressor))
        self._transactions = transactions
        self.incidents = dict.fromkeys(INCIDENTS, 0)
        self._written: float | None = None
        self._changed = True
        self._in_doubt = False
        self._moved = time.monotonic()
        self._events = 0

    @property
    def kernel_model(self) -> KernelModel | None:
        """The kernel model at the end of the pipeline, if it is one of ours."""
        last = self.model._last_step if isinstance(self.model, compose.Pipeline) else self.model
        return last if isinstance(last, KernelModel) else None

    @property
    def checkpoint_age(self) -> float | None:
        """Seconds since the last checkpoint was durable."""
        return None if self._written is None else time.monotonic() - self._written

    def quality(self) -> dict[str, float]:
        """Return the prequential metric of the model, and that of the baseline, by name."""
        found = {type(self.metric).__name__: float(self.metric.get())}
        baseline = self.baseline_metric
        if baseline is not None:
            found[f"{type(baseline).__name__} (baseline)"] = float(baseline.get())
        return found

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
            if event.record is None:
                raise InputError(event.error or "Expected a record, got none")
            x, y = self._examples.split(event.record)
            prediction, probabilities = self._predict(self.model, x)
            self.model.learn_one(x, y)
        except Exception as error:  # whatever a step of the pipeline raises, the stream goes on
            self._refuse(event, error)
        else:
            self._examples.learnt(x)
            self.outcomes["predicted"] += 1
            self.outcomes["learned"] += 1
            self._judge(self.metric, y, prediction, probabilities)
            if self._sink is not None:
                line = {"stream": event.stream, "resume": event.resume, "label": y, "prediction": prediction}
                self._sink.write(line if probabilities is None else line | {"probabilities": probabilities}, event.key)
            if self.baseline is not None:
                self._compare(x, y)
        self._positions[event.stream] = event.resume
        self._changed = True

    def _compare(self, x: dict[str, Any], y: Any) -> None:
        """Let the baseline predict and learn; one that cannot is dropped, and the stream goes on."""
        try:
            self._judge(self.baseline_metric, y, *self._predict(self.baseline, x))
            self.baseline.learn_one(x, y)
        except Exception as error:
            log.warning("the baseline failed and is dropped", reason=f"{type(error).__name__}: {error}")
            self.baseline = self.baseline_metric = None

    def _predict(self, model: Any, x: dict[str, Any]) -> tuple[Any, dict[Any, float] | None]:
        """Return the prediction, and the probabilities of the labels where somebody asks for them."""
        if not self._probabilities:
            return model.predict_one(x), None
        probabilities = model.predict_proba_one(x)
        return max(probabilities, key=probabilities.get, default=None), probabilities

    @staticmethod
    def _judge(metric: Any, y: Any, prediction: Any, probabilities: dict[Any, float] | None) -> None:
        if prediction is not None:
            metric.update(y, prediction if probabilities is None or metric.requires_labels else probabilities)

    def _refuse(self, event: Event, error: Exception) -> None:
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        self.outcomes["dead_letter"] += 1
        self.last_reason = reason
        if self._dead_letters is not None:
            self._dead_letters.write(event, reason)
        else:
            log.warning("dead letter", stream=event.stream, resume=event.resume, reason=reason)


def check_setup(saved: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse a state that was made with another setup, naming the first difference.

    Raises
    ------
    StateDirectoryError
        If they differ.

    Examples
    --------
    >>> check_setup({"label": "a"}, {"label": "b"})
    Traceback (most recent call last):
        ...
    streamkernel.engine.checkpoint.StateDirectoryError: Expected the setup the state directory was made with,
    label = 'a', got 'b'; take another state.directory for another setup
    """
    for key in sorted(saved.keys() | now.keys()):
        if saved.get(key) != now.get(key):
            raise StateDirectoryError(
                f"Expected the setup the state directory was made with, {key} = {saved.get(key)!r}, "
                f"got {now.get(key)!r}; take another state.directory for another setup"
            )
