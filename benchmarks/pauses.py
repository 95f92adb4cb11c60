"""The processor time of single events while a model grows: the mean, and the longest ones of a thousand.

kin40k, 36,000 events learned and 4,000 to test on. The models take turns event by event: the default learner, the first
order, and an adaptive random forest of 10 trees. Of times of one thread the processor's count, since others use the
machine. ``--other PATH`` adds the default learner of another checkout, with a ``.venv`` of its own, after them. It
takes about five minutes.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from river import forest
from threadpoolctl import threadpool_limits

from benchmarks.common import arguments, show
from benchmarks.scenarios import SCENARIOS
from streamkernel import KernelRegressor

PARTS = [(3_000, 4_000), (20_000, 36_000)]
MODELS: dict[str, Callable[[], Any]] = {
    "KernelRegressor()": KernelRegressor,
    'KernelRegressor(learner="dsg")': partial(KernelRegressor, learner="dsg"),
    "ARFRegressor(10)": partial(forest.ARFRegressor, 10, seed=1),
}


def measure(models: dict[str, Any], data: Path) -> list[list[str]]:
    """Return a row of figures for each model."""
    scenario = SCENARIOS["kin40k"]
    events = scenario.events(data)
    learned, tested = events[: -scenario.held_back], events[-scenario.held_back :]
    took = np.empty((len(models), len(learned)))
    for i, (x, y) in enumerate(learned):
        for k, model in enumerate(models.values()):
            began = time.process_time_ns()
            model.learn_one(x, y)
            took[k, i] = (time.process_time_ns() - began) / 1e6
    targets, rows = np.array([y for _, y in tested]), []
    for (name, model), own in zip(models.items(), took, strict=True):
        row = [name]
        for first, last in PARTS:
            part = own[first:last]
            row += [f"{part.mean():.3f}", f"{np.median(part):.3f}"]
            row += [f"{np.quantile(part, 0.99):.2f}", f"{np.quantile(part, 0.999):.2f}"]
        off = targets - [model.predict_one(x) for x, _ in tested]
        rows.append([*row, f"{1.0 - np.mean(off**2) / targets.var():.4f}"])
    return rows


def elsewhere(other: Path, data: Path) -> list[str]:
    """Return the row of the default learner of another checkout."""
    code = f"import pathlib, runpy; print(*runpy.run_path({__file__!r})['one'](pathlib.Path({str(data)!r})), sep='|')"
    ran = subprocess.run(
        [other / ".venv" / "bin" / "python", "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": str(other)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [f"the same of {other.name}", *ran.stdout.strip().split("|")[1:]]


def one(data: Path) -> list[str]:
    """Return the row of the default learner."""
    with threadpool_limits(1):
        return measure({"KernelRegressor()": KernelRegressor()}, data)[0]


def main() -> None:
    """Print the table."""
    options = arguments(__doc__, data=True, other="")
    with threadpool_limits(1):
        rows = measure({name: make() for name, make in MODELS.items()}, options.data)
    if options.other:
        rows.append(elsewhere(Path(options.other), options.data))
    columns = [
        f"{first:,} to {last:,}: {what}" for first, last in PARTS for what in ("mean", "median", "99 %", "99.9 %")
    ]
    show("learn_one, ms of processor time", ["model", *columns, "test R²"], rows)


if __name__ == "__main__":
    main()
