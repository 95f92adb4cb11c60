"""The cost of intervals and explanations: for an event of a run with `coverage` or `explain`, and for `/predict`.

The same records, in memory, go through engines in turn. Times are the process's own; ratios are medians over pairs of
runs that follow each other.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from river import metrics

from benchmarks.common import InMemory, arguments, interleaved, processor_seconds, ratio, show
from benchmarks.metrics_cost import SLICE, records
from streamkernel import KernelClassifier, KernelRegressor
from streamkernel.connectors import Event
from streamkernel.engine import Engine

MODELS: dict[str, tuple[type, Mapping[str, Any], type]] = {
    "KernelClassifier()": (KernelClassifier, {}, metrics.Accuracy),
    "KernelRegressor()": (KernelRegressor, {}, metrics.MAE),
    "KernelRegressor, first order": (KernelRegressor, {"learner": "dsg"}, metrics.MAE),
}
ADDITIONS: dict[str, Mapping[str, Any]] = {"neither": {}, "coverage": {"coverage": 0.9}, "explain": {"explain": 3}}


def engine_after(model: Callable[[], Any], made: list[Event], metric: type, options: Mapping[str, Any]) -> Engine:
    """Return an engine that has learned all records."""
    running = Engine(model(), InMemory(made, SLICE), label="y", metric=metric(), **options)
    running.publisher.wanted = True
    running.run()
    return running


def job(*parts: Any) -> float:
    """Return the seconds of processor time that an event takes."""
    began = time.process_time()
    running = engine_after(*parts)
    return (time.process_time() - began) / running.outcomes["learned"]


def answers(published: Any, made: list[Event], explained: bool) -> float:
    """Return the seconds of processor time that an answer takes."""
    asked = [event.record for event in made[:50]]
    published.answer(asked[0], explained=explained)
    return processor_seconds(lambda: [published.answer(x, explained=explained) for x in asked]) / len(asked)


def main() -> None:
    """Print both tables."""
    options = arguments(__doc__, runs=5, events=2000)
    events, questions = [], []
    for name, (kind, given, metric) in MODELS.items():
        made = records(kind, options.events)
        parts = partial(kind, **given), made, metric
        job(*parts, ADDITIONS["explain"])  # compiles
        plain, *others = interleaved(options.runs, *(partial(job, *parts, more) for more in ADDITIONS.values()))
        events.append(
            [name, f"{1e6 * statistics.median(plain):.0f} µs"]
            + [
                f"{1e6 * statistics.median(b - a for a, b in zip(plain, other, strict=True)):+.0f} µs, "
                f"{ratio(other, plain):.2f}"
                for other in others
            ]
        )
        running = engine_after(*parts, {})
        running.parts.monitor.publish_model()
        without, with_it = (answers(running.publisher.newest, made, explained) for explained in (False, True))
        questions.append([name, f"{1e6 * without:.0f} µs", f"{1e6 * with_it:.0f} µs"])
    show(f"an event of {options.events:,}, 10 inputs", ["model", *ADDITIONS], events)
    show("an answer of /predict", ["model", "prediction", "explain=true"], questions)


if __name__ == "__main__":
    main()
