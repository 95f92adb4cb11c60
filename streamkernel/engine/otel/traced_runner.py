"""The main loop with spans for the records whose trace is sampled; all others are processed as without."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.trace import SpanContext

from streamkernel.connectors import Event, Refusal
from streamkernel.engine.delayed_labels import Key
from streamkernel.engine.otel.tracing import Trace, Tracing, carried
from streamkernel.engine.parts import EngineParts
from streamkernel.engine.record_processor import Step
from streamkernel.engine.runner import StreamRunner

MOST_PENDING = 10_000
"""Largest number of traced records whose label has not arrived, to which that of the label is linked."""


class TracedRunner(StreamRunner):
    """A :class:`StreamRunner` that processes a record alone if its trace is sampled, and makes its spans.

    Parameters
    ----------
    parts
        The parts of the run.
    tracing
        Decides which records are traced.
    """

    def __init__(self, parts: EngineParts, tracing: Tracing) -> None:
        super().__init__(parts, headers_of=carried)
        self._tracing = tracing
        self._trace: Trace | None = None  # of the event that is processed now
        self._sampled: deque[tuple[int, Event]] = deque()
        self._pending: OrderedDict[Key, SpanContext] = OrderedDict()
        self._topic = parts.outputs.predictions.topic if parts.outputs.predictions else None
        self._processor.is_timed = True

    def process_all(self, events: Sequence[Event], stopping: Callable[[], bool], watch: Callable[[], None]) -> None:
        """Process the events of one poll."""
        self._sampled = self._tracing.sampled(events)
        super().process_all(events, stopping, watch)

    def process_together(self, events: Sequence[Event], first: int, most: float = math.inf) -> int:
        """Process the next events in one compiled call, up to the next one that is traced."""
        if self._sampled:
            most = min(most, self._sampled[0][0] - first)
        return super().process_together(events, first, most) if most > 0 else 0

    def process(self, event: Event) -> None:
        """Process one event, with spans if it is traced."""
        if not self._sampled or self._sampled[0][1] is not event:
            super().process(event)
            return
        self._sampled.popleft()
        self._processor.predicted_at = 0
        trace = self._trace = self._tracing.begin(event)
        try:
            super().process(event)
        finally:
            self._trace = None
            trace.end()

    def finish(self, event: Event, step: Step) -> None:
        """Write and evaluate a prediction after the spans of how it was made and learned."""
        if self._trace is not None:
            now, predicted = time.time_ns(), self._processor.predicted_at
            _, y, _, is_new = step
            if predicted:
                self._trace.part("predict", self._trace.began, predicted)
            if y is not None:
                self._trace.part("learn", predicted or self._trace.began, now)
            self._link(self._trace, event, is_pending=y is None, is_label=not is_new)
        super().finish(event, step)

    def write(self, event: Event, line: dict[str, Any]) -> None:
        """Write a prediction with the headers of its trace."""
        if self._trace is None:
            self._outputs.gather(line, event.key, carried(event))
            return
        with self._trace.writing(self._topic) as headers:
            self._outputs.write_all([line], [event.key], [headers])

    def refuse(self, event: Event, refusal: Refusal) -> None:
        """Write a dead letter."""
        if self._trace is not None:
            self._trace.fail(refusal)
        super().refuse(event, refusal)

    def close(self) -> None:
        """Send the spans that are left."""
        self._tracing.close()

    def _link(self, trace: Trace, event: Event, *, is_pending: bool, is_label: bool) -> None:
        """Link the trace of a label that came later to that of its features."""
        labels = self._processor.labels
        if labels is None or event.record is None or not (is_pending or is_label):
            return
        key = labels.key_of(event.record)
        if is_pending:
            self._pending[key] = trace.context
            if len(self._pending) > MOST_PENDING:
                self._pending.popitem(last=False)
        elif is_label and (context := self._pending.pop(key, None)) is not None:
            trace.link(context)
