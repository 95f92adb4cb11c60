"""The cost of `[telemetry]` in microseconds of processor time per record, by what the trace of a record says.

Two engines process the same records in turn, 512 at a time, and write their predictions to a topic that keeps nothing:
one without the table, and one with it. They learn first-order, as a cost that does not depend on the learner is a
larger part then. The first half is not timed. Spans are made, queued and encoded as for a collector, and then dropped.
The costs are medians over pairs of engines.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from river import metrics

from benchmarks.common import InMemory, arguments, processor_seconds, show
from benchmarks.metrics_cost import FIRST, INPUTS, SLICE, records
from benchmarks.monitoring_cost import process
from streamkernel import KernelClassifier
from streamkernel.connectors import Event, KafkaSink
from streamkernel.connectors.kafka import Options, Writer
from streamkernel.engine import Engine
from streamkernel.engine.otel import TracedRunner, Tracing
from streamkernel.engine.runner import EngineParts, collect_rarely

PERIODS: dict[str, int | None] = {
    "no trace": None,
    "not sampled": 0,
    "1 in 1,000 sampled": 1000,
    "1 in 100 sampled": 100,
    "all sampled": 1,
}
"""Of the records with a trace, one in this number is sampled; none if it is 0. `None` is no trace."""


class Dropped(SpanExporter):
    """Encodes spans, and drops them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        encode_spans(spans).SerializePartialToString()
        return SpanExportResult.SUCCESS


class Nowhere(Writer):
    """A writer of records that reads them, and drops them."""

    def __init__(self) -> None:
        super().__init__(Options("nowhere:9092"))

    def send_all(self, topic: str, values: Any, keys: Any, headers: Iterable[Any] | None = None) -> None:
        for _ in values:
            pass


def traced(made: Sequence[Event], period: int | None) -> list[Event]:
    """Return the events with a header of their trace."""
    if period is None:
        return list(made)
    flags = [b"01" if period and i % period == 0 else b"00" for i in range(len(made))]
    return [
        one._replace(headers=(("traceparent", b"00-%032x-%016x-%b" % (i + 1, i + 1, of)),))
        for i, (one, of) in enumerate(zip(made, flags, strict=True))
    ]


def engine(has_table: bool) -> Engine:
    """Return an engine whose events come from elsewhere."""

    def runner(parts: EngineParts) -> TracedRunner:
        return TracedRunner(parts, Tracing(Dropped(), Resource.create(), 0.0))

    more: dict[str, Any] = {"runner": runner} if has_table else {}
    sink = KafkaSink(Nowhere(), "predictions")
    classifier, source = KernelClassifier(**FIRST), InMemory([], SLICE)
    return Engine(classifier, source, label="y", metric=metrics.Accuracy(), sink=sink, **more)


def cost(made: Sequence[Event]) -> float:
    """Return the microseconds of a record with the table, less those without."""
    engines, seconds = [engine(False), engine(True)], np.zeros(2)
    for i, start in enumerate(range(0, len(made), SLICE)):
        for j in (0, 1) if i % 2 else (1, 0):
            took = processor_seconds(partial(process, engines[j], made[start : start + SLICE]))
            seconds[j] += took * (start >= len(made) // 2)
    engines[1].runner.close()
    return float(seconds[1] - seconds[0]) / (len(made) - len(made) // 2) * 1e6


def main() -> None:
    """Print the table."""
    options = arguments(__doc__, runs=5, events=100_000)
    made = records(KernelClassifier, options.events)
    by_period = {text: traced(made, period) for text, period in PERIODS.items()}
    collect_rarely()
    rounds = [[cost(given) for given in by_period.values()] for _ in range(options.runs)]
    medians = [f"{statistics.median(found):.1f}" for found in zip(*rounds, strict=True)]
    rows = list(zip(PERIODS, medians, strict=True))
    show(f"{INPUTS} inputs, medians of {options.runs} runs", ["records", "µs per record"], rows)


if __name__ == "__main__":
    main()
