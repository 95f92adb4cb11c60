"""Events per second of a run on a file, beside what its reader and its learner reach alone.

The jobs take turns, on the same records of 10 numbers and a label:

* *reader*: `FileSource`, polled to the end: read and parsed, nothing learned.
* *learner*: ``predict_one`` and ``learn_one`` of the same model in a loop over dictionaries in memory.
* *run*: the `Engine` on the file, with its metric and its counters. *with predictions*: it also writes a line for each
  event, with probabilities, to another file.

*/ both in turn* is the time of the reader and the learner together over that of the run: above 1, a run takes less
than the two in turn. The rates are of the process's own time, so that neighbours on the machine disturb less.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from river import metrics

from benchmarks.common import arguments, interleaved, processor_seconds, show
from benchmarks.hot_path import stream
from streamkernel import KernelClassifier
from streamkernel.connectors import FileSink, FileSource
from streamkernel.engine import Engine

INPUTS = 10
MODELS: dict[str, tuple[Mapping[str, Any], int]] = {
    "max_features=1024, learner='dsg'": ({"max_features": 1024, "learner": "dsg"}, 1),
    "max_features=1024": ({"max_features": 1024}, 20),
}
"""Arguments, and what the number of events is divided by."""


def files(folder: Path, data: list[tuple[dict[str, float], bool]]) -> dict[str, Path]:
    """Write the records in each format, and return the files."""
    table, lines = folder / "events.csv", folder / "events.jsonl"
    rows = [",".join(map(repr, [*x.values(), int(y)])) for x, y in data]
    table.write_text("\n".join([",".join([*data[0][0], "y"]), *rows]) + "\n")
    lines.write_bytes(b"".join(orjson.dumps({**x, "y": y}, option=orjson.OPT_APPEND_NEWLINE) for x, y in data))
    return {"CSV": table, "JSON lines": lines}


def read(path: Path) -> None:
    """Read a file to its end."""
    source = FileSource(path)
    while source.poll(0.2) is not None:
        pass


def learn(data: list[tuple[dict[str, float], bool]], options: Mapping[str, Any]) -> None:
    """Predict and learn."""
    model = KernelClassifier(**options)
    for x, y in data:
        model.predict_one(x)
        model.learn_one(x, y)


def run(path: Path, n: int, options: Mapping[str, Any], to: Path | None) -> None:
    """Read, predict, learn, and write if there is a file for it."""
    sink = None if to is None else FileSink(to)
    engine = Engine(KernelClassifier(**options), FileSource(path), label="y", metric=metrics.Accuracy(), sink=sink)
    engine.run()
    assert engine.outcomes["learned"] == n
    if to is not None:
        to.unlink()


def main() -> None:
    """Print a row for each model and format."""
    options = arguments(__doc__, runs=5, events=300_000)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model, (parameters, divisor) in MODELS.items():
            data = list(stream(INPUTS, options.events // divisor))
            n = len(data)
            learn(data[:600], parameters)  # compiles
            for form, path in files(folder, data).items():
                jobs = [
                    partial(read, path),
                    partial(learn, data, parameters),
                    partial(run, path, n, parameters, None),
                    partial(run, path, n, parameters, folder / "predictions.jsonl"),
                ]
                times = interleaved(options.runs, *(partial(processor_seconds, job) for job in jobs))
                share = statistics.median((a + b) / c for a, b, c, _ in zip(*times, strict=True))
                rates = [f"{n / statistics.median(took):,.0f}" for took in times]
                rows.append([model, form, f"{n:,}", *rates, f"{share:.2f}"])
    columns = ["KernelClassifier", "format", "events", "reader", "learner", "run", "with predictions", "/ both in turn"]
    show(f"{INPUTS} inputs, events/s, medians of {options.runs} runs", columns, rows)


if __name__ == "__main__":
    main()
