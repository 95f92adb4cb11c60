"""A checkpoint while a hundred thousand predictions wait for their labels: time to write and to read, and size.

Beside it what the same rows take as JSON text and in pickle, which keeps everything and can run what it reads.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamkernel.engine.checkpoint import river_state
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.engine.pipelines import NO_ANSWER


def filled(n: int, features: int) -> DelayedLabels:
    """Return a store with `n` rows of numbers, each with a prediction of two labels."""
    rng = random.Random(0)
    labels = DelayedLabels("id", max_pending=n)
    for i in range(n):
        x = {f"feature {j}": rng.gauss(0, 1) for j in range(features)}
        p = rng.random()
        answers = ("yes" if p > 0.5 else "no", {"yes": p, "no": 1 - p}), NO_ANSWER
        labels.wait(labels.arrive({"id": f"order {i:09}"}), x, answers, f"events.jsonl at [{i * 200}, {i}]")
    return labels


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    labels = filled(options.rows, options.features)
    rows = list(map(list, labels._waiting.values()))
    print(f"{options.rows:,} rows of {options.features} numbers, medians of {options.repeats}")
    with tempfile.TemporaryDirectory() as folder, StateDirectory(Path(folder)) as state:
        write = seconds(lambda: state.write({"labels": labels.state()}), options.repeats)
        read = seconds(lambda: labels.restore((state.read_newest() or {})["labels"]), options.repeats)
        size = max(path.stat().st_size for path in Path(folder).glob("*.safetensors"))
    show("checkpoint: columns as tensors, on disk", write, read, size)
    text = json.dumps(river_state.encode(rows))
    write = seconds(lambda: json.dumps(river_state.encode(rows)), 1)
    show("JSON of River's state, in memory", write, seconds(lambda: river_state.decode(json.loads(text)), 1), len(text))
    data = pickle.dumps(rows)
    write = seconds(lambda: pickle.dumps(rows), options.repeats)
    show("pickle, in memory", write, seconds(lambda: pickle.loads(data), options.repeats), len(data))


def show(name: str, write: float, read: float, size: int) -> None:
    """Print one line."""
    print(f"{name:<42} write {write:5.2f} s   read {read:5.2f} s   {size / 1e6:6.1f} MB")


if __name__ == "__main__":
    main()
