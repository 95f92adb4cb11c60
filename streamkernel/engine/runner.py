"""The components of a run, each of which owns its state, and the loop over its events."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from streamkernel.connectors import CommitRefusedError, Event, Refusal, Source
from streamkernel.connectors.kafka.clients import Headers
from streamkernel.engine.checkpointer import Checkpointer
from streamkernel.engine.health import Health, Retries
from streamkernel.engine.outputs import Outputs
from streamkernel.engine.record_processor import RecordProcessor, Step
from streamkernel.engine.seen_inputs import LARGEST
from streamkernel.engine.telemetry.dead_letters import refusal_of
from streamkernel.engine.telemetry.monitor import Monitor
from streamkernel.estimators.classifier import KernelClassifier
from streamkernel.estimators.internals import answers_of, deferred_answers, predict_and_learn

CREATED = 10_000
"""Number of new containers after which Python looks for garbage among them; Python's own is 700, or 2,000."""

FEWEST, MOST = 8, 512
"""Records in a batch, at first and at most."""

QUICK_SECONDS = 0.25
"""Batches become larger while they take less: a request to stop waits for the end of one."""

POLL_SECONDS = 0.2
"""Seconds to wait for an event before checking the clock and the request to stop."""

WATCH_EVERY = 100
"""Number of events between two calls of a watcher."""


@dataclass(frozen=True)
class EngineParts:
    """The components of a run."""

    source: Source
    processor: RecordProcessor
    outputs: Outputs
    checkpointer: Checkpointer
    health: Health
    retries: Retries
    monitor: Monitor

    def close(self) -> None:
        """Release the source, the sinks, the transactions and the state directory, in this order, also after errors."""
        with ExitStack() as stack:
            for part in (self.checkpointer, self.outputs, self.source):
                stack.callback(part.close)


def collect_rarely() -> None:
    """Look for garbage less often, and never among the objects that exist now.

    The records of a poll are thousands of containers, none of which is garbage: they are freed when nothing refers to
    them any more. Only cycles have to be looked for, and an engine makes few. The setting holds for the process, so
    only commands call this.
    """
    gc.freeze()
    gc.set_threshold(CREATED)


class RecordBatches:
    """Predicts, learns, writes and evaluates the next records together, up to one that needs more.

    Such are dead letters, records with a new label or a new field, and all records of a model that is not learned from
    in compiled calls of several; they are processed one by one. Where a batch ends early the next ones are shorter, and
    where none is possible many records pass before the next attempt, so that attempts cost next to nothing. `processor`
    and `outputs` are the model with its quality, and the sinks. `headers_of` returns the headers of the prediction of
    an event; ``None`` if it has none.
    """

    def __init__(
        self, processor: RecordProcessor, outputs: Outputs, headers_of: Callable[[Event], Headers] | None = None
    ) -> None:
        self._processor, self._outputs, self._headers_of = processor, outputs, headers_of
        self._size, self._pause, self._to_pass = FEWEST, 1, 0

    def process(self, events: Sequence[Event], first: int, most: int) -> int:
        """Process events from `first` on, `most` at most; return how many, which may be none."""
        if self._to_pass > 0:
            self._to_pass -= 1
            return 0
        batch, began = events[first : first + min(self._size, most)], time.perf_counter()
        done = self._process(batch)
        if time.perf_counter() - began >= QUICK_SECONDS:
            self._size = FEWEST
        elif done == len(batch):
            self._size = min(max(self._size, 2 * done), MOST)
        else:
            self._size = max(FEWEST, done)
        if done < len(batch):  # the next one needs more
            self._pause = 1 if done >= FEWEST else min(2 * self._pause, MOST)
            self._to_pass = self._pause
        return done

    def _process(self, events: Sequence[Event]) -> int:
        processor = self._processor
        model, examples = processor.learned_alone, processor.examples
        if model is None:
            return 0
        xs, ys = examples.split_plain(event.record for event in events)
        if not xs or not xs[0] or not xs[0].keys() <= examples.numbers:
            return 0
        labels = processor.known(ys)
        scores, values = predict_and_learn(model, xs[: len(labels)], labels, LARGEST)
        done = len(scores)
        if done:
            if processor.defers_probabilities and isinstance(model, KernelClassifier):
                answers = deferred_answers(model, scores)
            else:
                answers = answers_of(model, scores, with_probabilities=processor.with_probabilities)
            labels = labels[:done]
            if self._outputs.predictions is not None:
                more = processor.observe_all(xs[:done])
                keys = [event.key for event in events[:done]]
                headers = None if self._headers_of is None else list(map(self._headers_of, events[:done]))
                self._outputs.write_all(processor.lines(events, labels, answers, more), keys, headers)
            processor.judge_all(xs[:done], values, labels, answers)
        return done


class Runner(Protocol):
    """Processes a stream with the components of a run."""

    def run(self, stopping: Callable[[], bool], watch: Callable[[], None]) -> None:
        """Process events until the stream ends and everything is durable, or until the run is stopped.

        `stopping` returns whether the run has to stop. Once true it stays true: a run leaves the rest of a poll alone
        then. `watch` is called periodically, after events.
        """

    def close(self) -> None:
        """Release the runner's own resources."""


class StreamRunner:
    """Processes one event after the other, or several together where the results are the same.

    `at_once` is the maximum number of events that are processed together, between two checks for a request to stop.
    `headers_of` returns the headers of the prediction of an event; ``None`` if it has none.
    """

    def __init__(
        self, parts: EngineParts, at_once: int = MOST, headers_of: Callable[[Event], Headers] | None = None
    ) -> None:
        self._source, self._processor, self._outputs = parts.source, parts.processor, parts.outputs
        self._checkpointer, self._monitor, self._history = parts.checkpointer, parts.monitor, parts.monitor.history
        self._health, self._retries = parts.health, parts.retries
        self._batches, self._at_once = RecordBatches(parts.processor, parts.outputs, headers_of), at_once
        self._next_check = 0.0

    def run(self, stopping: Callable[[], bool], watch: Callable[[], None]) -> None:
        """Process events until the stream ends and everything is durable, or until the run is stopped."""
        while not stopping():
            self._health.turn()
            if self._checkpointer.is_uncertain and not self._checkpointer.recover(stopping):
                continue
            events = self._retries.ask(lambda: self._source.poll(POLL_SECONDS), stopping)
            if (error := self._retries.report(self._source.trouble)) is not None:
                self._checkpointer.try_to_commit(last=True)
                raise error
            if events is not None:
                self._health.watch(self._source, bool(events))
                self.process_all(events, stopping, watch)
                self.commit_and_publish()
            elif self._checkpointer.try_to_commit(last=True):
                return

    def process_all(self, events: Sequence[Event], stopping: Callable[[], bool], watch: Callable[[], None]) -> None:
        """Process the events of one poll."""
        checkpointer, monitor = self._checkpointer, self._monitor
        clock, seconds = time.perf_counter, monitor.event_seconds.new
        began, done = clock(), 0
        while done < len(events):
            if checkpointer.is_uncertain:
                return  # it is read again
            event, n = events[done], 1
            if event.is_position_only:
                self._processor.outcomes["passed_over"] += event.is_passed_over
                self._advance(event)
                done += 1
                continue
            try:
                n = self.process_together(events, done) if self._at_once > 1 else 0
                if n == 0:
                    self.process(event)
            except CommitRefusedError as error:
                checkpointer.mark_refused(error)
                return
            except MemoryError as error:
                raise MemoryError(
                    f"out of memory at the record of {event.stream} that ends at {event.resume}; the run has ended; "
                    "give the process more memory or the model fewer features (max_features), and start it again: it "
                    "resumes from the last checkpoint"
                ) from error
            n = max(n, 1)
            now = clock()
            seconds += [(now - began) / n] * n
            done += n
            monitor.n_events += n
            if monitor.n_events // WATCH_EVERY > (monitor.n_events - n) // WATCH_EVERY:
                watch()
                now = clock()
            if now >= self._next_check:
                self.commit_and_publish()
                now = clock()
            began = now
            if stopping():
                break
        try:
            self._outputs.write_gathered()
        except CommitRefusedError as error:
            checkpointer.mark_refused(error)
        monitor.fold()

    def process_together(self, events: Sequence[Event], first: int, most: float = math.inf) -> int:
        """Predict, learn and write the next events in one compiled call, up to one that needs more; return how many."""
        if self._source.is_repeating:
            return 0  # some have been written, and some have not
        most = min(most, self._at_once, self._history.until_due(), self._processor.until_due)
        n = self._batches.process(events, first, int(most))
        if n:
            self._checkpointer.advance_all({event.stream: event.resume for event in events[first : first + n]})
            if self._history.is_due(n):
                self._monitor.add_point()
        return n

    def process(self, event: Event) -> None:
        """Predict, learn and write one event."""
        processor = self._processor
        try:
            step = processor.process(event)
        except MemoryError:  # it says nothing of the record, and the model may be half changed
            raise
        except Exception as error:  # whatever a step of the pipeline raises, the stream goes on
            self.refuse(event, refusal_of(event, error))
        else:
            if step is not None:
                self.finish(event, step)
        self._advance(event)
        if self._history.is_due():
            self._monitor.add_point()

    def finish(self, event: Event, step: Step) -> None:
        """Write the prediction of an event if it is new, and evaluate it."""
        processor, (x, y, answers, is_new) = self._processor, step
        if is_new and self._outputs.predictions is not None:
            more = processor.observe(x)
            if self._outputs.has_prediction(event):
                self.write(event, processor.line(event, y, answers[0], more))
        processor.judge(x, y, answers, is_new)

    def write(self, event: Event, line: dict[str, Any]) -> None:
        """Write the prediction of an event, soon."""
        self._outputs.gather(line, event.key)

    def refuse(self, event: Event, refusal: Refusal) -> None:
        """Write an event that could not be processed as a dead letter."""
        self._outputs.refuse(event, refusal)

    def commit_and_publish(self) -> None:
        """Commit and publish, each if it is due, and set the time of the next check."""
        self._checkpointer.commit_if_due()
        self._monitor.refresh()
        self._next_check = time.perf_counter() + min(self._monitor.interval, self._checkpointer.seconds)

    def close(self) -> None:
        """Do nothing: the components belong to the engine."""

    def _advance(self, event: Event) -> None:
        """Record that an event is processed."""
        if self._source.is_repeating:
            self._source.advance(event)
        self._checkpointer.advance(event.stream, event.resume)
