"""False alarms of `[drift]` and `[novelty]` on streams that do not change, per million sampled events.

Rows of independent inputs pass the detectors with the defaults of the configuration, except a lower
`average_run_length`, so that there is something to count.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.common import arguments, show
from streamkernel.engine.monitoring.drift_watch import DriftWatch
from streamkernel.engine.monitoring.novelty_watch import NoveltyWatch
from streamkernel.engine.pipelines import NO_ANSWER

RUN_LENGTH = 20_000.0
Draw = Callable[[np.random.Generator, int], "np.ndarray[tuple[int, int], np.dtype[np.float64]]"]
STREAMS: dict[str, Draw] = {
    "normal, 2 inputs": lambda rng, n: rng.normal(size=(n, 2)),
    "normal, 20 inputs": lambda rng, n: rng.normal(size=(n, 20)),
    "Student, 2 degrees, 5 inputs": lambda rng, n: rng.standard_t(2, size=(n, 5)),
    "exponential, 5 inputs": lambda rng, n: rng.exponential(size=(n, 5)),
    "0 or 1, 5 inputs": lambda rng, n: rng.integers(2, size=(n, 5)).astype(np.float64),
}


def main() -> None:
    """Print the table."""
    options = arguments(__doc__, events=100_000)
    rows = []
    for name, draw in STREAMS.items():
        found = draw(np.random.default_rng(0), options.events)
        xs = [{f"x{j}": value for j, value in enumerate(row)} for row in found.tolist()]
        watch = DriftWatch(every=1, average_run_length=RUN_LENGTH)
        watch.add_all(xs, [NO_ANSWER] * len(xs))
        novelty = NoveltyWatch(average_run_length=RUN_LENGTH)
        for x in xs:
            novelty.observe(x)
        last = novelty.snapshot()
        counts = {**watch.snapshot().counts, "novelty": last.alarms_raised}
        share = f"{100.0 * last.novel / last.examined:.2f} %"
        rows.append([name, *(f"{1e6 * counts[of] / len(xs):,.0f}" for of in ("kernel", "adwin", "novelty")), share])
    bound = f"at most {1e6 / RUN_LENGTH:,.0f} by the bound"
    columns = ["stream", f"kernel, {bound}", "adwin", f"novelty, {bound}", "novel events, at most 1 %"]
    show(f"{options.events:,} events", columns, rows)


if __name__ == "__main__":
    main()
