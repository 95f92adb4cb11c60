"""A million events: time an event and memory stay the same once the cap on features is reached."""

from __future__ import annotations

import statistics
import time

from rich.progress import track
from river.datasets import synth

from benchmarks.common import arguments, show
from streamkernel import KernelClassifier

PART = 10_000


def main() -> None:
    """Print time and memory by part of the stream, and the ratio of the late part to the early one."""
    options = arguments(__doc__, events=1_000_000)
    model = KernelClassifier()
    events = list(synth.RandomRBF(seed_model=1, seed_sample=2, n_classes=2, n_features=10).take(PART))
    times, sizes = [], []
    for _ in track(range(options.events // PART), description="events"):
        began = time.perf_counter()
        for x, y in events:
            model.predict_one(x)
            model.learn_one(x, y)
        times.append((time.perf_counter() - began) / PART)
        sizes.append(model._raw_memory_usage)
    tenth = len(times) // 10
    early, late = times[tenth - 1 : 2 * tenth - 1] or times[:1], times[-tenth:]
    rows = [
        ["time an event, first tenth to second", f"{1e6 * statistics.median(early):.1f} µs"],
        ["time an event, last tenth", f"{1e6 * statistics.median(late):.1f} µs"],
        ["ratio", f"{statistics.median(late) / statistics.median(early):.3f}"],
        ["memory at a tenth", f"{sizes[tenth - 1]:,} bytes"],
        ["memory at the end", f"{sizes[-1]:,} bytes"],
    ]
    show(f"{options.events:,} events, 10 fields, 1,024 features", ["", ""], rows)


if __name__ == "__main__":
    main()
