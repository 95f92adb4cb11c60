"""The cost of challengers: events per second of a run without them, and with one and two as a share of that.

The same records, in memory, go through engines in turn. The times are the process's own, so that neighbours on the
machine disturb less, and the shares are medians over runs that follow each other. Each challenger has the features of
the champion and another seed. A run without challengers is also compared with itself, which shows the noise.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from river import metrics

from benchmarks.common import InMemory, arguments, interleaved, ratio, show
from benchmarks.hot_path import stream
from streamkernel import KernelClassifier
from streamkernel.connectors import Event
from streamkernel.engine import Engine
from streamkernel.engine.roles import Candidate

INPUTS, SLICE, MOST = 10, 512, 2
FIRST = {"max_features": 1024, "learner": "dsg"}
MODELS: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], int]] = {
    "first order, 1,024 features | the same": (FIRST, FIRST, 1),
    "`KernelClassifier()` | the same": ({}, {}, 10),
    "`KernelClassifier()` | first order, 1,024 features": ({}, FIRST, 10),
}
"""Arguments of the champion and of each challenger, and what the number of events is divided by."""


def job(champion: Mapping[str, Any], other: Mapping[str, Any], events: list[Event], n: int) -> float:
    """Return the seconds of processor time that an event takes with `n` challengers."""
    candidates = [Candidate("model", {}, partial(KernelClassifier, **champion))]
    candidates += [Candidate(f"other {i}", {}, partial(KernelClassifier, **other, seed=i)) for i in range(1, n + 1)]
    source = InMemory(events, SLICE)
    run = Engine(candidates[0].build(), source, label="y", metric=metrics.Accuracy(), candidates=candidates)
    began = time.process_time()
    run.run()
    took = time.process_time() - began
    assert all(model.judged == len(events) for model in run.snapshot.challengers.models)
    return took / len(events)


def measured(runs: int, events: int) -> list[list[str]]:
    """Return a row for each champion with its challengers."""
    rows = []
    for name, (champion, other, divisor) in MODELS.items():
        made = [
            Event("memory", i, b"", x | {"y": y}) for i, (x, y) in enumerate(stream(INPUTS, events // divisor), start=1)
        ]
        jobs = [partial(job, champion, other, made, n) for n in (0, *range(MOST + 1))]
        jobs[-1]()  # compiles
        none, again, *more = interleaved(runs, *jobs)
        shares = [f"{ratio(none, times):.2f}" for times in (again, *more)]
        rows.append([*name.split(" | "), f"{1.0 / statistics.median(none):,.0f}", *shares])
    return rows


def main() -> None:
    """Print the table."""
    options = arguments(__doc__, runs=11, events=20_000)
    columns = ["champion", "challengers", "none, events/s", "none again", "1", "2"]
    show(f"{INPUTS} inputs, medians of {options.runs} runs", columns, measured(options.runs, options.events))


if __name__ == "__main__":
    main()
