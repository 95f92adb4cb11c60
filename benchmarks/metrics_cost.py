"""The cost of a run's metrics, in percent of the time per event.

The same records, in memory, go through engines whose loops differ in what they tell, in turn:

* *nothing*: no metric, no histogram, no numbers for readers; events are predicted, learned and counted.
* *River's metric*: also `metric.update(y, prediction)` at every event, as in `river.evaluate`.
* *all*: the engine as it is.

The times are the process's own, so that neighbours on the machine disturb less, and the costs are medians over pairs
of runs that follow each other. A scrape is timed by itself: one every second takes so much of a second.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from river import metrics

from benchmarks.common import InMemory, arguments, interleaved, ratio, seconds, show
from benchmarks.hot_path import stream
from streamkernel import KernelClassifier, KernelRegressor
from streamkernel.connectors import Event
from streamkernel.engine import Engine
from streamkernel.engine.runner import EngineParts, StreamRunner
from streamkernel.engine.telemetry.monitor import PUBLISH_SECONDS
from streamkernel.engine.telemetry.status import EngineCollector

INPUTS, SLICE, SCRAPES = 10, 512, 100
FIRST = {"max_features": 1024, "learner": "dsg"}
MODELS: dict[str, tuple[type, Mapping[str, Any], type, int]] = {
    "KernelClassifier, first order, 1,024 features": (KernelClassifier, FIRST, metrics.Accuracy, 1),
    "KernelRegressor, first order, 1,024 features": (KernelRegressor, FIRST, metrics.MAE, 1),
    "KernelClassifier()": (KernelClassifier, {}, metrics.Accuracy, 10),
}
"""Class, arguments, metric, and what the number of events is divided by."""


class Silent(StreamRunner):
    """A loop that tells nothing."""

    def __init__(self, parts: EngineParts) -> None:
        super().__init__(parts)
        self.processor, self.monitor, self.next_look = parts.processor, parts.monitor, 0.0
        parts.processor.judge = self.judge  # type: ignore[method-assign]
        parts.monitor.interval = math.inf

    def judge(self, x: dict[str, Any], y: Any, answers: Any, is_new: bool) -> None:
        """Count an event."""
        processor = self.processor
        processor.outcomes["predicted"] += is_new
        processor.outcomes["learned"] += 1
        processor.examples.ranges.learn(x)

    def process_all(self, events: Iterable[Event], stopping: Any, watch: Any) -> None:
        """Process the events of one poll, and take no time."""
        for event in events:
            self.process(event)
            self.monitor.n_events += 1
            if time.perf_counter() >= self.next_look:  # a checkpoint may be due
                self.commit_and_publish()
                self.next_look = time.perf_counter() + PUBLISH_SECONDS
            if stopping():
                return


class Judged(Silent):
    """A loop that judges each prediction by a River metric."""

    def judge(self, x: dict[str, Any], y: Any, answers: Any, is_new: bool) -> None:
        """Count an event and judge its prediction."""
        super().judge(x, y, answers, is_new)
        prediction = answers[0][0]
        if prediction is not None:
            self.processor.quality.metric.update(y, prediction)


def records(kind: type, n: int) -> list[Event]:
    """Return `n` events with labels for a class of models."""
    labelled = ((x, y if kind is KernelClassifier else float(y) + x["0"]) for x, y in stream(INPUTS, n))
    return [Event("memory", i, b"", x | {"y": y}) for i, (x, y) in enumerate(labelled, start=1)]


def job(loop: type[StreamRunner], model: Callable[[], Any], made: list[Event], metric: type) -> float:
    """Return the seconds of processor time that an event takes."""
    running = Engine(model(), InMemory(made, SLICE), label="y", metric=metric(), runner=loop)
    began = time.process_time()
    running.run()
    took = time.process_time() - began
    assert running.outcomes["learned"] == len(made)
    return took / len(made)


def measured(runs: int, events: int) -> list[list[str]]:
    """Return a row for each model."""
    rows = []
    for name, (kind, options, metric, divisor) in MODELS.items():
        made = records(kind, events // divisor)
        jobs = [partial(job, found, partial(kind, **options), made, metric) for found in (Silent, Judged, StreamRunner)]
        jobs[-1]()  # compiles
        nothing, river, everything = interleaved(runs, *jobs)
        registry, running = (
            CollectorRegistry(),
            Engine(kind(**options), InMemory(made, SLICE), label="y", metric=metric()),
        )
        running.run()
        registry.register(EngineCollector(running))
        scrape = seconds(lambda registry=registry: [generate_latest(registry) for _ in range(SCRAPES)]) / SCRAPES
        rows.append(
            [
                name,
                f"{1.0 / statistics.median(nothing):,.0f}",
                f"{1.0 / statistics.median(everything):,.0f}",
                f"{100.0 * (ratio(river, nothing) - 1.0):.1f} %",
                f"{100.0 * (ratio(everything, nothing) - 1.0):.1f} %",
                f"{100.0 * (ratio(everything, river) - 1.0):.1f} %",
                f"{1e3 * scrape:.1f} ms",
            ]
        )
    return rows


def main() -> None:
    """Print the table."""
    options = arguments(__doc__, runs=21, events=60_000)
    columns = ["model", "nothing, events/s", "all", "River's metric costs", "all costs", "all over River's", "a scrape"]
    show(f"{INPUTS} inputs, medians of {options.runs} runs", columns, measured(options.runs, options.events))


if __name__ == "__main__":
    main()
