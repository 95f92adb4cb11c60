"""Processor time of an event in this checkout and in another, in turns: what a change of the code costs.

``--other PATH`` is the other checkout, with a ``.venv`` of its own. Each has a process that lives through all rounds;
a round is one pass over the events, and the ratio is the median over the rounds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.common import arguments, interleaved, ratio, show

HERE = Path(__file__).resolve().parents[1]
MEASURED = {
    "first order, 10 inputs, 1,024 features": (10, "learner(1024)"),
    "first order, 108 inputs, 1,024 features": (108, "learner(1024)"),
    "no arguments, 10 inputs": (10, "KernelClassifier()"),
}
WORKER = """
import sys, time
from threadpoolctl import threadpool_limits
from benchmarks.hot_path import learner, stream
from streamkernel import KernelClassifier
data = stream({inputs}, {events})
model = {model}
def took(job):
    began = time.process_time()
    job()
    return (time.process_time() - began) / len(data)
def both():
    for x, y in data:
        model.predict_one(x)
        model.learn_one(x, y)
def learn():
    for x, y in data:
        model.learn_one(x, y)
def predict():
    for x, _ in data:
        model.predict_one(x)
with threadpool_limits(1):
    for _ in range(3):
        both()
    for _ in sys.stdin:
        print(took(both), took(predict), took(learn), flush=True)
"""


class Worker:
    """A process of one checkout that times rounds."""

    def __init__(self, python: str, checkout: Path, inputs: int, model: str, events: int) -> None:
        code = WORKER.format(inputs=inputs, model=model, events=events)
        environment = os.environ | {"PYTHONPATH": str(checkout)}
        self._process = subprocess.Popen(
            [python, "-c", code],
            cwd=checkout,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def round(self) -> tuple[float, ...]:
        """Return the seconds of an event: predicted and learned, predicted, learned."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return tuple(float(one) for one in self._process.stdout.readline().split())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def main() -> None:
    """Print the medians."""
    options = arguments(__doc__, runs=30, events=2000, other="")
    if not options.other:
        raise SystemExit("expected the other checkout, got none; --other PATH names it")
    other = Path(options.other).resolve()
    rows = []
    for name, (inputs, model) in MEASURED.items():
        workers = [
            Worker(sys.executable, HERE, inputs, model, options.events),
            Worker(str(other / ".venv" / "bin" / "python"), other, inputs, model, options.events),
        ]
        found = interleaved(options.runs, *(worker.round for worker in workers))
        for worker in workers:
            worker.close()
        ours, theirs = (list(zip(*rounds, strict=True)) for rounds in found)
        for what, one, two in zip(("predict + learn", "predict", "learn"), ours, theirs, strict=True):
            medians = (f"{1e6 * statistics.median(column):.2f} µs" for column in (one, two))
            rows.append([f"{name}: {what}", *medians, f"{ratio(one, two):.3f}"])
    show("processor time of an event", ["", "this checkout", "the other", "this one over it"], rows)


if __name__ == "__main__":
    main()
