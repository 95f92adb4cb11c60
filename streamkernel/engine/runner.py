"""The main loop: an event comes in, is predicted, learnt from and written out, and now and then all is made durable."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import structlog
from river import base, metrics

from connectors import CommitRefusedError, DeadLetters, Event, KafkaDeadLetters, Refusal, Sink, Source, Transactions
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.delayed_labels import Answer, DelayedLabels
from streamkernel.engine.durable import DurableLearner
from streamkernel.engine.learning import line_of, refusal_of
from streamkernel.engine.retrying import REPORT_SECONDS, asked
from streamkernel.engine.serving_copy import Publisher
from streamkernel.engine.telemetry.histogram import EVENT_BOUNDS, Durations
from streamkernel.engine.telemetry.snapshot import Numbers, of_model
from streamkernel.engine.telemetry.status import point_of

if TYPE_CHECKING:
    from streamkernel.engine.cluster_snapshot import ClusterNumbers

log = structlog.get_logger("streamkernel")

STALLED_SECONDS = 60.0
"""How long a source may give nothing though it has something, before that is told."""

ILL_SECONDS = 300.0
"""How long the main loop may take for one turn, before the process is said to be ill."""

DEAD_LETTERS, RAW_SHOWN = 8, 300
"""Dead letters that are shown, and bytes of each."""

FIRST_RECORDS = 100
"""Dead letters after which it is reported that there was nothing else."""

POLL_SECONDS = 0.2
"""How long to wait for an event before looking at the clock and at the request to stop."""

PUBLISH_SECONDS = 0.5
"""Time between two sets of numbers for those who look at a run, at least."""

FOLD_AT = 1000
"""Events that are judged and counted together, or a few more."""

WATCH_EVERY = 100
"""Events between two looks of a watcher."""


class Engine(DurableLearner):
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
    give_up_after
        Seconds in which brokers may be unavailable, or a topic missing, before the run ends with an error; by default
        it never does.
    setup
        What the run was set up with, as JSON values; a state directory that was written with another setup is refused.

    Raises
    ------
    ModelFileError
        If there are checkpoints and none is whole.
    StateDirectoryError
        If the state directory belongs to a run with another setup.

    Attributes
    ----------
    outcomes : dict
        Events by what became of them: learned, predicted, dead_letter, pending (had to wait for their label).
    refused : dict
        Dead letters by kind.
    numbers : Numbers
        What the run is doing; any thread may read it.
    last_dead_letters : deque of dict
        The last few of this process: when, from where, why, and how they begin.
    publisher : Publisher
        Copies of the model that others may ask, if they are wanted.
    history : History
        How the numbers of the run went.
    cluster : ClusterNumbers or None
        What the workers are doing, where there are some.

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
        give_up_after: float | None = None,
        setup: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            model,
            label=label,
            ignore=ignore,
            metric=metric,
            baseline=baseline,
            labels=labels,
            source=source,
            sink=sink,
            dead_letters=dead_letters,
            state=state,
            transactions=transactions,
            checkpoint_seconds=checkpoint_seconds,
            give_up_after=give_up_after,
            setup=setup,
        )
        self.last_dead_letters: deque[dict[str, Any]] = deque(maxlen=DEAD_LETTERS)
        self.publisher = Publisher()
        self.cluster: ClusterNumbers | None = None
        self._seconds = Durations(EVENT_BOUNDS)
        self._moved = time.monotonic()
        self._events = self._told = 0
        self._last_event = self._next_look = 0.0
        self._outlying, self._next_outlying = 0, 0.0
        self._publish()

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
            If the checkpoint that Kafka has as the last one is not whole.
        StateDirectoryError
            If Kafka and the state directory do not agree which checkpoint is the last.
        GaveUpError
            If brokers were unavailable for `give_up_after`.
        MemoryError
            If there is too little memory to process a record. It is no dead letter, and nothing is committed after it.
        """
        try:
            if self._checkpoint is not None and self.publisher.wanted:
                self.publisher.publish(self.model, self._examples, self.outcomes["learned"], self._checkpoint)
            if self._open(stopping):
                self._resume()
                self._publish()
                self._go_on(stopping, watch)
                self._try_to_commit(last=True)
                self._publish()
        except BaseException:
            self._in_doubt = True  # so that what is half done is not committed when the group is left
            raise
        finally:
            self.close()
        if watch is not None:
            watch(self)

    def _go_on(self, stopping: Callable[[], bool], watch: Callable[[Engine], None] | None) -> None:
        """Take in events until there are no more and all is durable, or we have to stop."""
        while not stopping():
            self.alive = time.monotonic()
            if self._in_doubt and not self._settle(stopping):
                continue
            events = asked(lambda: self.source.poll(POLL_SECONDS), stopping, self._count, self._give_up_after)
            self._heed()
            if events is not None:
                self._watchdog(bool(events))
                self._process_all(events, stopping, watch)
                self._look()
            elif self._try_to_commit(last=True):
                return

    def _process_all(
        self, events: Iterable[Event], stopping: Callable[[], bool], watch: Callable[[Engine], None] | None
    ) -> None:
        clock, seconds = time.perf_counter, self._seconds.new
        began = clock()
        for event in events:
            if self._in_doubt:
                return  # it is read again
            if event.is_position_only:
                self._positions[event.stream] = event.resume
                self._changed = True
                continue
            try:
                self._process(event)
            except CommitRefusedError as error:
                self._doubt(error)
                return
            except MemoryError as error:
                raise _out_of_memory(event) from error
            now = clock()
            seconds.append(now - began)
            self._events += 1
            if watch is not None and self._events % WATCH_EVERY == 0:
                watch(self)
                now = clock()
            if now >= self._next_look:
                self._look()
                now = clock()
            began = now
            if stopping():
                return
        if len(seconds) >= FOLD_AT:
            self._seconds.fold()
            self._quality.fold()

    def _look(self) -> None:
        """Commit and publish if it is time to, and say when to look again."""
        self._commit_if_due()
        self._report_outlying()
        now = time.time()
        if not 0.0 <= now - self.numbers.time < PUBLISH_SECONDS:
            self._publish()
        if not self._in_doubt and self.publisher.is_due(self.outcomes["learned"]):
            self.publisher.publish(self.model, self._examples, self.outcomes["learned"])
        self._next_look = time.perf_counter() + min(PUBLISH_SECONDS, self._every)

    def _report_outlying(self) -> None:
        """Report values of inputs that were far outside their range since the last report, at most once a minute."""
        ranges, now = self._examples.ranges, time.monotonic()
        new = ranges.n_outside - self._outlying
        if new and ranges.last is not None and now >= self._next_outlying:
            self._outlying, self._next_outlying = ranges.n_outside, now + REPORT_SECONDS
            name, value, low, high = ranges.last
            where = {"field": name, "value": value, "low": low, "high": high}
            log.warning("values are far outside the usual range of their field", count=new, **where)

    def _publish(self) -> None:
        """Tell those who look at the run what it is doing."""
        if self._events > self._told:
            self._told, self._last_event = self._events, time.time()
        model, examples = self.kernel_model, self._examples
        scales = None if model is None else model._state.scales
        names = {"kinds": len(examples.numbers), "ranges": len(examples.ranges)}
        self.numbers = Numbers(
            outcomes=dict(self.outcomes),
            refused=dict(self.refused),
            labels=self.labels,
            pending_labels=self.pending_labels,
            outlying_inputs=examples.ranges.n_outside,
            names=names if scales is None else names | {"scales": scales.n_names},
            names_refused={"kinds": examples.n_refused, "ranges": examples.ranges.n_refused},
            positions=dict(self._positions),
            scores=self._quality.scores(),
            model=None if model is None else of_model(model),
            events=self._seconds.histogram(),
            checkpoints=self.checkpoints.histogram(),
            last_event=self._last_event,
        )

    def ill(self) -> str:
        """Return why this process had better be started again, or nothing."""
        silent = time.monotonic() - self.alive
        return f"the main loop has not turned for {silent:.0f} s" if silent > ILL_SECONDS else ""

    def refused_all(self) -> str:
        """Return why no record was of any use so far, or nothing if one was, or there was none."""
        count, kinds = self.outcomes["dead_letter"], [kind for kind, n in self.refused.items() if n]
        if len(kinds) != 1 or self.outcomes["learned"] or self.outcomes["predicted"]:
            return ""
        last = f": {self.last_dead_letters[-1]['reason']}" if self.last_dead_letters else ""
        return f"every record so far was refused, {count:,} in all, for one kind of reason ({kinds[0]}){last}"

    def _watchdog(self, has_come: bool) -> None:
        """Report a source that has something to give and gives nothing."""
        now = time.monotonic()
        if has_come or not any(self.source.lag().values()):
            self._moved = now
        elif now - self._moved > STALLED_SECONDS:
            self._moved = now
            self._count("stalled")
            log.error("nothing comes though there is something to read", lag=sum(self.source.lag().values()))

    def _process(self, event: Event) -> None:
        try:
            step = self._step(event)
        except MemoryError:  # it says nothing of the record, and the model may be half changed
            raise
        except Exception as error:  # whatever a step of the pipeline raises, the stream goes on
            self._refuse(event, refusal_of(event, error))
        else:
            if step is not None:
                x, y, answers, is_new = step
                if is_new:
                    self._write(event, y, answers[0])
                self._judge(x, y, answers, is_new)
        self._positions[event.stream] = event.resume
        self._changed = True
        if self.history.is_due():
            self.history.add(point_of(self) | {"time": time.time(), "lag": float(sum(self.source.lag().values()))})

    def _write(self, event: Event, y: Any, answer: Answer) -> None:
        if self._sink is not None:
            key = None if self._labels is None else self._labels.key
            line = line_of(event, y, answer, self.outcomes["learned"], key)
            self._sink.write(line | {"member": self.member}, event.key)

    def _refuse(self, event: Event, refusal: Refusal) -> None:
        reason = refusal.reason
        self.outcomes["dead_letter"] += 1
        raw = event.raw[:RAW_SHOWN].decode(errors="replace")
        self.last_dead_letters.append({"time": time.time(), "stream": event.stream, "reason": reason, "raw": raw})
        self.refused[refusal.kind] += 1
        if self._dead_letters is not None:
            self._dead_letters.write(event, refusal, self.member)
        else:
            log.warning("dead letter", stream=event.stream, resume=event.resume, reason=reason)
        if self.outcomes["dead_letter"] == FIRST_RECORDS and (reason := self.refused_all()):
            log.error(reason)


def _out_of_memory(event: Event) -> MemoryError:
    return MemoryError(
        f"out of memory at the record of {event.stream} that ends at {event.resume}; the run has ended; give the "
        "process more memory or the model fewer features (max_features), and start it again: it resumes from the last "
        "checkpoint"
    )
