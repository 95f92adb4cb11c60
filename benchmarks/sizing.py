"""The resources of a run: memory of its process, size and time of a checkpoint, events per second, by model and inputs.

Each row is a process of its own, which learns events as `streamkernel run` does, from memory and without a sink, and
then writes checkpoints. The memory is what the process holds at the end.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.progress import track
from river import linear_model, metrics

from benchmarks.common import InMemory, arguments, seconds, show
from benchmarks.hot_path import stream
from streamkernel import KernelClassifier
from streamkernel.connectors import Event
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint.state_directory import StateDirectory

MODELS: dict[str, dict[str, Any] | None] = {
    "River's LogisticRegression": None,
    "first order, 256 features": {"max_features": 256, "learner": "dsg"},
    "first order, 1,024 features": {"max_features": 1024, "learner": "dsg"},
    "first order, 4,096 features": {"max_features": 4096, "learner": "dsg"},
    "second order, 256 features": {"max_features": 256},
    "second order, 1,024 features": {"max_features": 1024},
    "no arguments": {},
}
SIZES = (10, 100)
WARM, SLICE = 2000, 64


class Repeated(InMemory):
    """Events again and again, until there were so many."""

    def __init__(self, events: list[Event], n: int) -> None:
        self._events, self._left = events, n

    def poll(self, timeout: float) -> list[Event] | None:
        """Return the next events."""
        self._left -= SLICE
        first = self._left % (len(self._events) - SLICE)
        return self._events[first : first + SLICE] if self._left >= 0 else None


def measured(name: str, d: int, n: int) -> dict[str, float]:
    """Return the memory and time of one model, measured in this process."""
    options = MODELS[name]
    model = linear_model.LogisticRegression() if options is None else KernelClassifier(**options)
    events = [Event("memory", i, b"", {**x, "y": y}) for i, (x, y) in enumerate(stream(d, 4096))]

    def taken(count: int) -> float:
        engine = Engine(model, Repeated(events, count), label="y", metric=metrics.Accuracy())
        return seconds(engine.run) / engine.outcomes["learned"]

    taken(WARM)  # compiles
    took = taken(n)
    with tempfile.TemporaryDirectory() as folder, StateDirectory(Path(folder)) as state:
        writes = [seconds(lambda: state.write({"model": model})) for _ in range(7)]
        size = max(path.stat().st_size for path in Path(folder).glob("checkpoint-*"))
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    features = getattr(model, "n_features", 0)
    memory = pages * os.sysconf("SC_PAGE_SIZE")
    return {
        "rate": 1.0 / took,
        "size": size,
        "write": statistics.median(writes),
        "memory": memory,
        "features": features,
    }


def main() -> None:
    """Print a row for every model and number of inputs."""
    options = arguments(__doc__, events=20_000, one="")
    if options.one:
        name, d = options.one.rsplit(":", 1)
        print(json.dumps(measured(name, int(d), options.events)))
        return
    rows = []
    for name, d in track([(name, d) for name in MODELS for d in SIZES], description="processes"):
        words = [sys.executable, "-m", "benchmarks.sizing", "--one", f"{name}:{d}", "--events", str(options.events)]
        found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        memory, size, write = found["memory"] / 1e6, found["size"] / 1e6, 1000 * found["write"]
        rate, features = found["rate"], int(found["features"])
        rows.append(
            [name, str(d), f"{features:,}", f"{rate:,.0f}", f"{memory:,.0f} MB", f"{size:.2f} MB", f"{write:.0f} ms"]
        )
    columns = ["model", "inputs", "features", "events/s", "memory", "checkpoint", "to write it"]
    show(f"after {options.events:,} events", columns, rows)


if __name__ == "__main__":
    main()
