"""Streams that never repeat themselves: memory, size of the model and events a second while new things keep coming.

Each row is a process of its own: a model that predicts and learns every event, or an engine that also writes
predictions, dead letters and checkpoints. Memory is that of the process, without files that are mapped; `growth` is
from half of the events to all of them. Wide events have 2,000 names each; there are one in 200 as many of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.progress import Progress
from river import metrics

from benchmarks.common import InMemory, arguments, show
from streamkernel import InputError, KernelClassifier, KernelRegressor
from streamkernel.connectors import DeadLetters, Event, FileSink
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint.state_directory import StateDirectory

MODELS: dict[str, Callable[[], Any]] = {
    "classifier": KernelClassifier,
    "first order": lambda: KernelClassifier(learner="dsg"),
    "regressor": KernelRegressor,
    "engine": KernelClassifier,
    "engine, first order": lambda: KernelClassifier(learner="dsg"),
}
KINDS = ("steady", "new names", "new strings", "long strings", "new labels", "wide")
WIDTH, WIDE_SHARE, LONG = 2000, 200, 10_000
SLICE, MARKS = 64, (0.1, 0.5, 1.0)

Example = tuple[dict[str, Any], Any]


def examples(kind: str, n: int) -> Iterator[Example]:
    """Yield events; the class is known from two inputs that every event has."""
    rng = random.Random(0)
    for i in range(n):
        a, b = rng.random(), rng.random()
        x: dict[str, Any] = {"a": a, "b": b, "c": rng.random()}
        y: Any = "up" if a > b else "down"
        if kind == "new names":
            x |= {f"name {i} {j}": rng.random() for j in range(4)}
        elif kind == "new strings":
            x |= {"user": f"user {i}", "page": f"page {i}"}
        elif kind == "long strings":
            x |= {f"{i} ".ljust(LONG, "n"): rng.random(), "page": f"{i} ".ljust(LONG, "v")}
        elif kind == "new labels" and i % 2:
            y = f"label {i}"
        elif kind == "wide":
            x |= {f"name {i} {j}": rng.random() for j in range(WIDTH)}
        yield x, y


def resident() -> int:
    """Return the bytes that belong to this process alone."""
    _, pages, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (pages - shared) * os.sysconf("SC_PAGE_SIZE")


def observed(data: Iterator[Example], n: int, memory: list[int]) -> Iterator[Example]:
    """Yield the events, note memory at each of the marks, and print how far it is."""
    for i, event in enumerate(data, start=1):
        yield event
        if i in [round(mark * n) for mark in MARKS]:
            memory.append(resident())
        if i % max(1, n // 100) == 0:
            print(i, flush=True)


class Stream(InMemory):
    """A source of events that are made when they are read."""

    def __init__(self, data: Iterator[Example]) -> None:
        self._events = (Event("stream", i, b"", {**x, "y": y}) for i, (x, y) in enumerate(data, start=1))

    def poll(self, timeout: float) -> list[Event] | None:
        """Return the next event, one at a time, so that memory is noted between two of them."""
        event = next(self._events, None)
        return None if event is None else [event]


def learned(model: Any, data: Iterator[Example]) -> int:
    """Predict and learn; return how many events were refused."""
    refused = 0
    for x, y in data:
        model.predict_one(x)
        try:
            model.learn_one(x, y)
        except InputError:
            refused += 1
    return refused


def measured(name: str, kind: str, n: int) -> dict[str, float]:
    """Run one model on one kind of events in this process, and return the figures of its row."""
    is_engine = name.startswith("engine")
    is_number = name == "regressor"
    memory: list[int] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path, model = Path(folder), MODELS[name]()
        data: Iterator[Example] = examples(kind, n)
        if is_number:
            data = ((x, x["a"] - x["b"]) for x, _ in data)
        data = observed(data, n, memory)
        began = time.perf_counter()
        if is_engine:
            engine = Engine(
                model,
                Stream(data),
                label="y",
                metric=metrics.Accuracy(),
                sink=FileSink(path / "predictions.jsonl"),
                dead_letters=DeadLetters(FileSink(path / "dead_letters.jsonl")),
                state=stack.enter_context(StateDirectory(path / "state")),
                checkpoint_seconds=10.0,
            )
            engine.run()
            refused, saved = engine.outcomes["dead_letter"], max((path / "state").glob("checkpoint-*"))
        else:
            refused, saved = learned(model, data), path / "model"
        took = time.perf_counter() - began
        if not is_engine:
            model.save(saved)
        size = saved.stat().st_size
    return {"memory": memory, "rate": n / took, "refused": refused, "size": size}  # type: ignore[dict-item]


def watched(name: str, kind: str, n: int, progress: Progress) -> dict[str, Any]:
    """Run one model on one kind of events in a process of its own, show progress, and return the figures."""
    task = progress.add_task(f"{name}, {kind}", total=n)
    words = [sys.executable, "-m", "benchmarks.bounded_memory", "--one", f"{name}:{kind}", "--events", str(n)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found = json.loads(line)
            if isinstance(found, dict):
                return found
            progress.update(task, completed=found)
    raise RuntimeError(f"expected a result for {name}, {kind}; the process ended with {process.returncode}")


def main() -> None:
    """Print a row for every model and kind of events."""
    options = arguments(__doc__, events=300_000, models=";".join(MODELS), kinds=";".join(KINDS), one="")
    if options.one:
        name, kind = options.one.split(":")
        print(json.dumps(measured(name, kind, options.events)))
        return
    rows = []
    with Progress() as progress:
        for name in options.models.split(";"):
            for kind in options.kinds.split(";"):
                if name == "regressor" and kind == "new labels":
                    continue  # every target is a new number
                n = max(10, options.events // (WIDE_SHARE if kind == "wide" else 1))
                found = watched(name, kind, n, progress)
                memory = found["memory"]
                rows.append(
                    [
                        name,
                        kind,
                        f"{n:,}",
                        *(f"{value / 1e6:,.0f}" for value in memory),
                        f"{(memory[2] - memory[1]) / 1e6:+,.1f}",
                        f"{found['refused']:,}",
                        f"{found['size'] / 1e6:.2f}",
                        f"{found['rate']:,.0f}",
                    ]
                )
    marks = [f"MB at {100 * mark:.0f} %" for mark in MARKS]
    columns = ["model", "events that have", "events", *marks, "growth, MB", "refused", "file, MB", "events/s"]
    show("memory of a process over its stream", columns, rows)


if __name__ == "__main__":
    main()
