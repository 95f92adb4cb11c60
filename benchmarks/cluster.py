"""Workers on a Ray cluster of this machine: events a second with two of them, over one, and over no cluster at all.

Files of JSON lines are learnt by engines of the same configuration: alone, with one worker, and with two, in turns.
Time counts from the second round on, when all workers are there and have read their code.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.progress import track

from benchmarks.common import arguments, show
from benchmarks.hot_path import stream
from streamkernel.cluster.assemble import cluster_engine_of
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config import Config

MODELS: dict[str, dict[str, Any]] = {
    "first order, 1,024 features": {"max_features": 1024, "second_order": False},
    "second order, 1,024 features": {"max_features": 1024},
    "no arguments": {},
}
INPUTS, FILES = 10, 8


def written(folder: Path, events: int) -> None:
    """Write a stream to files."""
    found = stream(INPUTS, events)
    for number in range(FILES):
        with (folder / f"part-{number}.jsonl").open("w") as file:
            for x, y in itertools.islice(found, events // FILES):
                file.write(json.dumps({**x, "y": y}) + "\n")


def rate(
    folder: Path, model: dict[str, Any], workers: int, round_events: int, predictions: bool
) -> tuple[float, float]:
    """Return events a second, and the part of the time that went into merging."""
    options = {name: value for name, value in model.items() if value is not False}
    if model.get("second_order") is False:  # TOML has no word for None, but a step says the same
        options["step"] = {"type": "Constant", "gamma": 0.25}
    with tempfile.TemporaryDirectory() as state:
        told: dict[str, Any] = {
            "label": "y",
            "source": {"path": str(folder / "part-*.jsonl")},
            "model": {"type": "KernelClassifier", **options},
            "state": {"directory": state},
            "cluster": {"workers": max(1, workers), "round_events": round_events},
        }
        if predictions:
            told["sink"] = {"predictions": str(Path(state, "predictions.jsonl"))}
        config = Config.model_validate(told)
        engine = cluster_engine_of(config, "local", lambda: workers) if workers else engine_of(config)
        seen: list[tuple[float, int]] = []
        engine.run(watch=lambda engine: seen.append((time.perf_counter(), engine.outcomes["learned"])))
        first = 2 if workers else len(seen) // 5
        (began, before), (ended, after) = seen[first], seen[-2]
        merging = sum(one.merge_seconds for one in engine.cluster.recent) if engine.cluster else 0.0
        return (after - before) / (ended - began), merging / (ended - seen[0][0])


def main() -> None:
    """Print events a second."""
    options = arguments(__doc__, events=80_000, round=4096, turns=3, predictions=False, only="")
    table = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written(folder, options.events)
        for title, model in MODELS.items():
            if options.only not in title:
                continue
            found: dict[int, list[tuple[float, float]]] = {0: [], 1: [], 2: []}
            for turn in track(range(options.turns), title):
                for workers in (0, 1, 2) if turn % 2 else (2, 1, 0):
                    found[workers].append(rate(folder, model, workers, options.round, options.predictions))
            alone, one, two = ([events for events, _ in found[workers]] for workers in (0, 1, 2))
            pairs = [b / a for a, b in zip(one, two, strict=True)]
            over = [b / a for a, b in zip(alone, two, strict=True)]
            rates = [f"{statistics.median(rates):,.0f}" for rates in (alone, one, two)]
            merging = statistics.median(part for _, part in found[2])
            row = [f"{statistics.median(pairs):.2f}", f"{statistics.median(over):.2f}", f"{merging:.1%}"]
            table.append([title, *rates, *row])
    head = ["model", "no cluster", "1 worker", "2 workers", "2 over 1", "2 over none", "merging"]
    show(f"Events a second, {options.events:,} events, rounds of {options.round:,} a worker", head, table)


if __name__ == "__main__":
    main()
