"""The main loop: it predicts, learns and writes each event, and commits checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from streamkernel.connectors import CommitRefusedError, Event, Refusal
from streamkernel.connectors.kafka.clients import Headers
from streamkernel.engine.parts import EngineParts
from streamkernel.engine.record_batches import MOST, RecordBatches
from streamkernel.engine.record_processor import Step
from streamkernel.engine.refusals import refusal_of

POLL_SECONDS = 0.2
"""Seconds to wait for an event before checking the clock and the request to stop."""

WATCH_EVERY = 100
"""Number of events between two calls of a watcher."""


class Runner(Protocol):
    """Processes a stream with the components of a run."""

    def run(self, stopping: Callable[[], bool], watch: Callable[[], None]) -> None:
        """Process events until the stream ends and everything is durable, or until the run is stopped.

        Parameters
        ----------
        stopping
            Returns whether the run has to stop. Once true it stays true: a run leaves the rest of a poll alone then.
        watch
            Is called periodically, after events.
        """

    def close(self) -> None:
        """Release the runner's own resources."""


class StreamRunner:
    """Processes one event after the other, or several together where the results are the same.

    Parameters
    ----------
    parts
        The parts of the run.
    at_once
        Maximum number of events that are processed together, between two checks for a request to stop.
    headers_of
        Returns the headers of the prediction of an event; ``None`` if it has none.
    """

    def __init__(
        self, parts: EngineParts, at_once: int = MOST, headers_of: Callable[[Event], Headers] | None = None
    ) -> None:
        self._source, self._processor, self._outputs = parts.source, parts.processor, parts.outputs
        self._checkpointer, self._monitor, self._history = parts.checkpointer, parts.monitor, parts.monitor.history
        self._health, self._retries = parts.health, parts.retries
        self._batches, self._at_once = RecordBatches(parts.processor, parts.outputs, headers_of), at_once
        self._next_look = 0.0

    def run(self, stopping: Callable[[], bool], watch: Callable[[], None]) -> None:
        """Process events until the stream ends and everything is durable, or until the run is stopped."""
        while not stopping():
            self._health.turn()
            if self._checkpointer.is_uncertain and not self._checkpointer.recover(stopping):
                continue
            events = self._retries.ask(lambda: self._source.poll(POLL_SECONDS), stopping)
            self._check_brokers()
            if events is not None:
                self._health.watch(self._source, bool(events))
                self.process_all(events, stopping, watch)
                self.look()
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
                self._outputs.advance(event)
                checkpointer.advance(event.stream, event.resume)
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
                raise _out_of_memory(event) from error
            n = max(n, 1)
            now = clock()
            seconds += [(now - began) / n] * n
            done += n
            monitor.n_events += n
            if monitor.n_events // WATCH_EVERY > (monitor.n_events - n) // WATCH_EVERY:
                watch()
                now = clock()
            if now >= self._next_look:
                self.look()
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
        if self._outputs.is_repeating:
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
        self._outputs.advance(event)
        self._checkpointer.advance(event.stream, event.resume)
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

    def look(self) -> None:
        """Commit and publish, each if it is due, and set the time of the next check."""
        self._checkpointer.commit_if_due()
        self._monitor.refresh()
        self._next_look = time.perf_counter() + min(self._monitor.interval, self._checkpointer.seconds)

    def close(self) -> None:
        """Do nothing: the components belong to the engine."""

    def _check_brokers(self) -> None:
        """Report problems with brokers and topics that the source finds.

        Raises
        ------
        GaveUpError
            If that has lasted for longer than the user wants to wait.
        """
        error = self._retries.report(self._source.trouble)
        if error is not None:
            self._checkpointer.try_to_commit(last=True)
            raise error


def _out_of_memory(event: Event) -> MemoryError:
    return MemoryError(
        f"out of memory at the record of {event.stream} that ends at {event.resume}; the run has ended; give the "
        "process more memory or the model fewer features (max_features), and start it again: it resumes from the last "
        "checkpoint"
    )
