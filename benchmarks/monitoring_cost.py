"""The cost of monitoring besides the metric, in percent of the processor time per event.

Engines process the same records in turn, 512 at a time: one without monitoring, one with each table of the
configuration. The first half of the records is not timed, so that all detectors have started. The times are the
process's own, and the costs are medians over blocks of records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.common import InMemory, arguments, processor_seconds, ratio, show
from benchmarks.metrics_cost import INPUTS, SLICE, records
from connectors import Event
from streamkernel import KernelClassifier
from streamkernel.engine import Engine
from streamkernel.engine.config.config import Config
from streamkernel.engine.config.monitoring import build_monitoring
from streamkernel.engine.runner import StreamRunner

MODELS: dict[str, tuple[dict[str, Any], int]] = {
    "default": ({}, 12),
    'learner = "dsg"': ({"learner": "dsg", "max_features": 1024}, 1),
}
"""Parameters of the model, and what the number of events is divided by."""

QUALITY = {"metrics": ["F1", "CohenKappa", "KappaT", "ROCAUC", "LogLoss"]}
DRIFT = {"scores": False}
SEGMENT = "segment"
SEGMENTS = {"field": SEGMENT, "most": 10}
TABLES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "nothing again": {},
    "probabilities": {"probabilities": True},
    "monitoring": {"monitoring": {}},
    "drift": {"drift": DRIFT},
    "quality, five metrics": {"quality": QUALITY},
    "segments": {"segments": SEGMENTS},
    "all": {"monitoring": {}, "drift": DRIFT, "quality": QUALITY, "segments": SEGMENTS},
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


def process(engine: Engine, events: Sequence[Event]) -> None:
    """Process the events of one poll."""
    runner = engine.runner
    assert isinstance(runner, StreamRunner)
    runner.process_all(events, lambda: False, lambda: None)
    runner.look()


def costs(engines: Mapping[str, Engine], made: Sequence[Event], blocks: int) -> dict[str, list[float]]:
    """Return the seconds of processor time that each engine takes for each block of the second half of the events.

    The engines process each poll one after the other, so that all of them find the machine in the same state.
    """
    starts = range(0, len(made), SLICE)
    seconds = {name: np.zeros(len(starts)) for name in engines}
    for i, start in enumerate(starts):
        for name, running in engines.items():
            seconds[name][i] = processor_seconds(lambda running=running: process(running, made[start : start + SLICE]))
    middle = len(starts) // 2
    return {name: [float(part.sum()) for part in np.array_split(of[middle:], blocks)] for name, of in seconds.items()}


def main() -> None:
    """Print the table."""
    options = arguments(__doc__, runs=5, events=600_000)
    rows = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        path.touch()
        for name, (model, divisor) in MODELS.items():
            made = with_segments(records(KernelClassifier, options.events // divisor))
            engines = {
                table: engine(config(path, model, tables), "probabilities" in tables)
                for table, tables in TABLES.items()
            }
            found = costs(engines, made, options.runs)
            nothing, second = found["nothing"], len(made) - len(made) // SLICE // 2 * SLICE
            rows += [[name, "nothing", f"{second / sum(nothing):,.0f} events/s"]]
            rows += [
                ["", table, f"{100.0 * (ratio(took, nothing) - 1.0):.1f} %"] for table, took in list(found.items())[1:]
            ]
    show(f"{INPUTS} inputs, medians of {options.runs} blocks", ["model", "table", "cost"], rows)


if __name__ == "__main__":
    main()
