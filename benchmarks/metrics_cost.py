"""What an event pays for all that is told of a run, in percent of its time.

The same records, in memory, go through engines that differ in what they tell, in turn:

* *nothing*: no metric, no histogram, no numbers for readers; events are predicted, learnt and counted.
* *River's metric*: also `metric.update(y, prediction)` at every event, as in `river.evaluate`.
* *all*: the engine as it is.

The times are the process's own, so that neighbours on the machine disturb less, and the costs are medians over pairs
of runs that follow each other. A scrape is timed by itself: one every second takes so much of a second.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from river import metrics

from benchmarks.common import InMemory, arguments, interleaved, ratio, seconds, show
from benchmarks.hot_path import stream
from connectors import Event
from streamkernel import KernelClassifier, KernelRegressor
from streamkernel.engine.runner import Engine
from streamkernel.engine.telemetry.prometheus import EngineCollector

INPUTS, SLICE, SCRAPES = 10, 512, 100
FIRST = {"max_features": 1024, "learner": "dsg"}
MODELS: dict[str, tuple[type, Mapping[str, Any], type, int]] = {
    "KernelClassifier, first order, 1,024 features": (KernelClassifier, FIRST, metrics.Accuracy, 1),
    "KernelRegressor, first order, 1,024 features": (KernelRegressor, FIRST, metrics.MAE, 1),
    "KernelClassifier()": (KernelClassifier, {}, metrics.Accuracy, 10),
}
"""Class, arguments, metric, and what the number of events is divided by."""


class Silent(Engine):
    """An engine that tells nothing."""

    def _publish(self) -> None:
        if not hasattr(self, "numbers"):
            super()._publish()  # the loop compares its time

    def _judge(self, x: dict[str, Any], y: Any, answers: Any, is_new: bool) -> None:
        self.outcomes["predicted"] += is_new
        self.outcomes["learned"] += 1
        self._examples.learnt(x)

    def _process_all(self, events: Iterable[Event], stopping: Any, watch: Any) -> None:
        for event in events:
            self._process(event)
            self._events += 1
            if time.perf_counter() >= self._next_look:  # a checkpoint may be due
                self._look()
            if stopping():
                return


class Judged(Silent):
    """An engine that judges each prediction by a River metric."""

    def _judge(self, x: dict[str, Any], y: Any, answers: Any, is_new: bool) -> None:
        self.outcomes["predicted"] += is_new
        self.outcomes["learned"] += 1
        self._examples.learnt(x)
        prediction = answers[0][0]
        if prediction is not None:
            self._quality.metric.update(y, prediction)


def records(kind: type, n: int) -> list[Event]:
    """Return `n` events with labels for a class of models."""
    labelled = ((x, y if kind is KernelClassifier else float(y) + x["0"]) for x, y in stream(INPUTS, n))
    return [Event("memory", i, b"", x | {"y": y}) for i, (x, y) in enumerate(labelled, start=1)]


def job(kind: type[Engine], model: Callable[[], Any], made: list[Event], metric: type) -> float:
    """Return the seconds of processor time that an event takes."""
    running = kind(model(), InMemory(made, SLICE), label="y", metric=metric())
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
        jobs = [partial(job, found, partial(kind, **options), made, metric) for found in (Silent, Judged, Engine)]
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
