"""A model that is made smaller while it runs: features, prequential accuracy, and how long events wait.

For each stream, with first- and with second-order steps, one model as it is and one that is pruned every 8,192
events learn the same events side by side. Told are the accuracy of both from the first swap on and over all, their
features at the end, and the time of an event at the end (predict and learn), each the median of 2,000.

Then events come at an even pace while a job is made and swapped in. An event's delay is the time from when it was due
until it was learned; the largest and the 99.9 % quantile of both models are told. Both have 1,024 features at most, so
that the plain one can follow.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import arguments
from benchmarks.scenarios import SCENARIOS
from streamkernel import KernelClassifier
from streamkernel.upkeep import Pruning

EVERY = 8192
ORDERS: dict[str, dict[str, Any]] = {"first": {"learner": "dsg"}, "second": {}}
LAST = 2000


def events_of(name: str, data: Path) -> list[tuple[dict[str, float], Any]]:
    """Return the events of a stream."""
    return [*SCENARIOS[name].events(data)]


def side_by_side(events: list[Any], options: dict[str, Any]) -> None:
    """Print what both models are worth on one stream."""
    models = (
        KernelClassifier(**options),
        KernelClassifier(pruning=Pruning(every=EVERY), **options),
    )
    hits, seconds, since = np.zeros((len(events), 2)), np.zeros((len(events), 2)), None
    most = 0
    for i, (x, y) in enumerate(events):
        for j in (0, 1) if i % 2 else (1, 0):
            began = time.perf_counter()
            hits[i, j] = models[j].predict_one(x) == y
            models[j].learn_one(x, y)
            seconds[i, j] = time.perf_counter() - began
        if since is None and models[1].n_prunings:
            since, most = i, models[0].n_features
    after = hits[since or 0 :].mean(axis=0)
    medians = np.median(seconds[-LAST:], axis=0) * 1e6
    plain, small = (model.n_features for model in models)
    print(
        f"  accuracy {hits[:, 0].mean():.4f} plain, {hits[:, 1].mean():.4f} smaller; after the swap {after[0]:.4f}, "
        f"{after[1]:.4f}; features at the swap {most:,}, at the end {plain:,} and {small:,} "
        f"(x {most / small:.1f}); event {medians[0]:.0f} and {medians[1]:.0f} us (x {medians[0] / medians[1]:.2f})",
        flush=True,
    )


def delays(events: list[Any], options: dict[str, Any], pace: float) -> None:
    """Print how long events wait while a job is made and swapped in."""
    found = []
    for more in ({}, {"pruning": Pruning(every=EVERY)}):
        model = KernelClassifier(**options, **more)
        stream = itertools.cycle(events)
        for x, y in itertools.islice(stream, EVERY):  # the job begins 256 events later
            model.learn_one(x, y)
        count = EVERY // 2 + 1500
        waits, start = np.empty(count), time.perf_counter()
        for i, (x, y) in enumerate(itertools.islice(stream, count)):
            due = start + i / pace
            time.sleep(max(0.0, due - time.perf_counter()))
            model.predict_one(x)
            model.learn_one(x, y)
            waits[i] = time.perf_counter() - due
        assert model.n_prunings == bool(more)
        found.append((waits.max() * 1e3, np.quantile(waits, 0.999) * 1e3))
    (most, usual), (most_smaller, usual_smaller) = found
    print(
        f"  at {pace:,.0f} events/s: largest delay {most:.1f} ms plain, {most_smaller:.1f} ms with pruning; "
        f"99.9 % {usual:.1f} and {usual_smaller:.1f} ms",
        flush=True,
    )


def main() -> None:
    """Run it."""
    told = arguments(__doc__, data=True, streams="elec2,rbf_moving", pace=500.0)
    for name in told.streams.split(","):
        events = events_of(name, told.data)
        for order, options in ORDERS.items():
            print(f"{name}, {order} order, {len(events):,} events", flush=True)
            side_by_side(events, options)
        for order, options in {"first": ORDERS["first"], "second": {"max_features": 1024}}.items():
            print(f"{name}, {order} order, at most 1,024 features", flush=True)
            delays(events, options, told.pace)


if __name__ == "__main__":
    main()
