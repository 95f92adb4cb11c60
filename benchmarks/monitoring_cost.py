"""The cost of monitoring besides the metric, in percent of the processor time per event.

The same records, in memory, go through engines in turn: without monitoring, and with each table of the configuration.
The times are the process's own, and the costs are medians over pairs of runs that follow each other.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.common import InMemory, arguments, interleaved, ratio, show
from benchmarks.metrics_cost import INPUTS, SLICE, records
from connectors import Event
from streamkernel import KernelClassifier
from streamkernel.engine import Engine
from streamkernel.engine.config.config import Config
from streamkernel.engine.config.monitoring import build_monitoring

MODELS: dict[str, tuple[dict[str, Any], int]] = {
    "default": ({}, 10),
    'learner = "dsg"': ({"learner": "dsg", "max_features": 1024}, 1),
}
"""Parameters of the model, and what the number of events is divided by."""

QUALITY = {"metrics": ["F1", "CohenKappa", "KappaT", "ROCAUC", "LogLoss"]}
DRIFT = {"scores": False}
SEGMENTS = {"field": "0", "most": 10}
TABLES: dict[str, dict[str, Any]] = {
    "nothing": {},
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


def job(settings: Config, wants_probabilities: bool, made: list[Event]) -> float:
    """Return the seconds of processor time that an event takes."""
    model, metric = settings.build_model(), settings.build_metric()
    running = Engine(model, InMemory(made, SLICE), label="y", metric=metric, monitoring=build_monitoring(settings))
    running.parts.processor.with_probabilities |= wants_probabilities
    began = time.process_time()
    running.run()
    took = time.process_time() - began
    assert running.outcomes["learned"] == len(made)
    return took / len(made)


def main() -> None:
    """Print the table."""
    options = arguments(__doc__, runs=11, events=60_000)
    rows = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        path.touch()
        for name, (model, divisor) in MODELS.items():
            made = records(KernelClassifier, options.events // divisor)
            jobs = [
                partial(job, config(path, model, tables), "probabilities" in tables, made) for tables in TABLES.values()
            ]
            jobs[-1]()  # compiles
            nothing, *others = interleaved(options.runs, *jobs)
            rows += [[name, "nothing", f"{1.0 / statistics.median(nothing):,.0f} events/s"]]
            rows += [
                ["", table, f"{100.0 * (ratio(found, nothing) - 1.0):.1f} %"]
                for table, found in zip(list(TABLES)[1:], others, strict=True)
            ]
    show(f"{INPUTS} inputs, medians of {options.runs} runs", ["model", "table", "cost"], rows)


if __name__ == "__main__":
    main()
