"""The cost of monitoring besides the metric, in percent of the processor time per event.

Two engines process the same records in turn, 512 at a time: one without monitoring, and one with a table of the
configuration. The first half of the records is not timed. Before it, `begin` passes enough records to the monitoring
to start all detectors: the kernel detector knows its bandwidth after 1,510 sampled ones. The times are the process's
own, and the costs are medians over pairs of engines. As two engines without a table differ by some percent,
too, the share of the time that is spent in calls of the monitoring stands beside. The probabilities that tables read
are computed in these calls; those in the row of probabilities are computed with each prediction, as a sink needs them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.common import InMemory, arguments, processor_seconds, show
from benchmarks.metrics_cost import INPUTS, SLICE, records
from streamkernel import KernelClassifier
from streamkernel.connectors import Event
from streamkernel.engine import Engine
from streamkernel.engine.config.config import Config
from streamkernel.engine.config.monitoring import DRIFT_EVERY, build_monitoring
from streamkernel.engine.runner import StreamRunner, collect_rarely

MODELS: dict[str, tuple[dict[str, Any], int]] = {
    "default": ({}, 8),
    'learner = "dsg"': ({"learner": "dsg", "max_features": 1024}, 1),
}
"""Parameters of the model, and what the number of events is divided by."""

EARLIER = 1600
"""Number of records in the sample of drift detection that the monitoring receives before the engine does."""

QUALITY = {"metrics": ["F1", "CohenKappa", "KappaT", "ROCAUC", "LogLoss"]}
DRIFT = {"scores": False}  # those of a model that has just begun change, so that the detectors would start again
SEGMENT = "segment"
SEGMENTS = {"field": SEGMENT, "most": 10}
TABLES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "probabilities": {"probabilities": True},
    "monitoring": {"monitoring": {}},
    "drift": {"drift": DRIFT},
    "quality, five metrics": {"quality": QUALITY},
    "segments": {"segments": SEGMENTS},
    "novelty": {"novelty": {}},
    "all": {"monitoring": {}, "drift": DRIFT, "novelty": {}, "quality": QUALITY, "segments": SEGMENTS},
}


def config(path: Path, model: dict[str, Any], tables: dict[str, Any]) -> Config:
    """Return a configuration with a model of classes and these tables."""
    source = {"path": str(path), "format": "jsonl"}
    more = {name: table for name, table in tables.items() if name != "probabilities"}
    return Config.model_validate(
        {"label": "y", "source": source, "model": {"type": "KernelClassifier", **model}, **more}
    )


def with_segments(made: Sequence[Event]) -> list[Event]:
    """Return the events with a field of twelve values."""
    return [event._replace(record={**(event.record or {}), SEGMENT: i * 7 % 12}) for i, event in enumerate(made)]


def engine(settings: Config, wants_probabilities: bool) -> Engine:
    """Return an engine whose events come from elsewhere."""
    model, metric = settings.build_model(), settings.build_metric()
    found = Engine(model, InMemory([], SLICE), label="y", metric=metric, monitoring=build_monitoring(settings))
    found.parts.processor.with_probabilities |= wants_probabilities
    return found


def begin(engine: Engine, made: Sequence[Event]) -> None:
    """Pass records to the monitoring, with answers that do not come from the model."""
    monitoring, records = engine.parts.processor.monitoring, [event.record or {} for event in made]
    if monitoring is None:
        return
    xs = [{name: value for name, value in record.items() if name != "y"} for record in records]
    answer, done, first_order = (True, {True: 0.7, False: 0.3}), 0, engine.model.learner == "dsg"
    while done < EARLIER * DRIFT_EVERY[first_order]:
        at = done % len(xs)
        part = xs[at : at + int(min(SLICE, monitoring.until_due))]
        monitoring.add_all(part, [bool(i % 3) for i in range(len(part))], [answer] * len(part))
        if monitoring.until_due <= 0:
            monitoring.end_windows(engine.model)
        monitoring.fold()
        done += len(part)


def process(engine: Engine, events: Sequence[Event]) -> None:
    """Process the events of one poll."""
    runner = engine.runner
    assert isinstance(runner, StreamRunner)
    runner.process_all(events, lambda: False, lambda: None)
    runner.commit_and_publish()


def costs(make: Callable[[str], Engine], table: str, made: Sequence[Event]) -> float:
    """Return the processor time of the second half of the events with a table, over that without.

    Two engines process each poll one after the other, so that both find the machine in the same state.
    """
    engines, seconds = [make("nothing"), make(table)], np.zeros(2)
    begin(engines[1], made)
    collect_rarely()  # as a run does when its engine is built
    for i, start in enumerate(range(0, len(made), SLICE)):
        for j in (0, 1) if i % 2 else (1, 0):
            took = processor_seconds(partial(process, engines[j], made[start : start + SLICE]))
            seconds[j] += took * (start >= len(made) // 2)
    return float(seconds[1] / seconds[0])


def share(engine: Engine, made: Sequence[Event]) -> float:
    """Return the share of the time of the second half of the events that calls of the monitoring take.

    Its clock is that of the wall, because reading the processor's takes longer than a call.
    """
    begin(engine, made)
    collect_rarely()
    inside = [0.0, 0.0]  # seconds, and 1.0 within a call
    monitoring = engine.parts.processor.monitoring
    for name in ("add", "add_all", "observe", "observe_all", "look", "fold", "snapshot"):
        if monitoring is not None:
            setattr(monitoring, name, partial(timed, getattr(monitoring, name), inside))
    half = len(made) // 2 // SLICE * SLICE
    for start in range(0, half, SLICE):
        process(engine, made[start : start + SLICE])
    inside[0] = 0.0
    rest = [made[start : start + SLICE] for start in range(half, len(made), SLICE)]
    began = time.perf_counter()
    for part in rest:
        process(engine, part)
    return inside[0] / (time.perf_counter() - began)


def timed(call: Callable[..., Any], inside: list[float], *given: Any, **named: Any) -> Any:
    """Call a function, and add its time unless the caller is timed."""
    if inside[1]:
        return call(*given, **named)
    inside[1], began = 1.0, time.perf_counter()
    try:
        return call(*given, **named)
    finally:
        inside[0], inside[1] = inside[0] + time.perf_counter() - began, 0.0


def main() -> None:
    """Print the table."""
    options = arguments(__doc__, runs=5, events=300_000)
    rows = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        path.touch()
        for name, (model, divisor) in MODELS.items():
            made = with_segments(records(KernelClassifier, options.events // divisor))
            collect_rarely()

            def make(table: str, model: dict[str, Any] = model) -> Engine:
                return engine(config(path, model, TABLES[table]), table == "probabilities")

            speed = len(made) / processor_seconds(lambda make=make, made=made: process(make("nothing"), made))
            rows.append([name, "nothing", f"{speed:,.0f} events/s", ""])
            rounds = [[costs(make, table, made) for table in TABLES] for _ in range(options.runs)]
            for table, found in zip(TABLES, zip(*rounds, strict=True), strict=True):
                inside = statistics.median(share(make(table), made) for _ in range(options.runs))
                cost = statistics.median(found) - 1.0
                rows.append(["", table, f"{100.0 * cost:.1f} %", f"{100.0 * inside:.1f} %"])
    columns = ["model", "table", "cost", "time in its calls"]
    show(f"{INPUTS} inputs, medians of {options.runs} runs", columns, rows)


if __name__ == "__main__":
    main()
