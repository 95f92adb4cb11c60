"""A million events: time an event and memory stay the same once the cap on features is reached.

The model of 90,000 events is set aside. At the end it and the model of all events take the same events in turn, so
that a machine whose speed drifts does not count. Models have no arguments, so they learn by second-order steps;
``--first`` takes first-order ones.
"""

from __future__ import annotations

import copy

from rich.progress import track
from river.datasets import synth

from benchmarks.common import arguments, interleaved, ratio, seconds, show
from streamkernel import KernelClassifier

PART = 10_000
EARLY = 9


def main() -> None:
    """Print the ratio of the times of the late model to the early one, and the memory of both."""
    options = arguments(__doc__, events=1_000_000, runs=41, first=False)
    model = KernelClassifier(learner="dsg" if options.first else "newton", max_features=1024)
    events = list(synth.RandomRBF(seed_model=1, seed_sample=2, n_classes=2, n_features=10).take(PART))

    def take(learner: KernelClassifier) -> float:
        def job() -> None:
            for x, y in events:
                learner.predict_one(x)
                learner.learn_one(x, y)

        return seconds(job) / PART

    early = model
    for part in track(range(options.events // PART), description="events"):
        take(model)
        if part + 1 == EARLY:
            early = copy.deepcopy(model)
            size = model._raw_memory_usage
    times = interleaved(options.runs, lambda: take(early), lambda: take(model))[::-1]
    rows = [
        [f"time an event after {options.events:,} events", f"{1e6 * min(times[0]):.1f} µs at best"],
        [f"time an event after {EARLY * PART:,} events", f"{1e6 * min(times[1]):.1f} µs at best"],
        ["ratio, median of pairs", f"{ratio(*times):.3f}"],
        ["memory then", f"{size:,} bytes"],
        ["memory at the end", f"{model._raw_memory_usage:,} bytes"],
    ]
    show("10 fields, 1,024 features", ["", ""], rows)


if __name__ == "__main__":
    main()
