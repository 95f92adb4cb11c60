"""Rounds of replicas that learn apart and are merged: prequential accuracy against workers and the length of a round.

The events of a round are dealt out to the workers in turn. Each predicts an event, then learns it, and knows nothing of
the others' until the round ends; then all of them go on from the merged model. It is simulated in one process, so this
is what rounds cost in accuracy, not what they gain in time (`benchmarks.merge_cost` has the time of a merge). The first
256 events, which decide bandwidths and scales, are learned by one model. "alone" is the same model without rounds, on
the same events in the same order. The spread is that of replicas at the end of a round about their mean, in units of
its size. A round that the events do not fill ends with them.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks import race
from benchmarks.common import arguments, show
from benchmarks.scenarios import SCENARIOS
from streamkernel import KernelClassifier
from streamkernel.estimators import model_merging
from streamkernel.kernels import bandwidth

ORDERS: dict[str, dict[str, Any]] = {"first": {"learner": "dsg"}, "second": {}}
COLORS = {1: "#009e73", 2: "#0072b2", 4: "#e69f00", 8: "#d55e00"}


def learn(model: KernelClassifier, events: list[Any]) -> int:
    """Predict and learn events one by one, and return how many were predicted right."""
    right = 0
    for x, y in events:
        right += model.predict_one(x) == y
        model.learn_one(x, y)
    return right


def alone(events: list[Any], options: dict[str, Any]) -> float:
    """Return the prequential accuracy of one model."""
    return learn(KernelClassifier(**options), events) / len(events)


def in_rounds(events: list[Any], options: dict[str, Any], workers: int, length: int) -> tuple[float, float]:
    """Return the prequential accuracy of rounds of so many events a worker, and the median spread of the replicas."""
    model, at = KernelClassifier(**options), bandwidth.FIRST
    right, spreads = learn(model, events[:at]), []
    while at < len(events):
        end = min(len(events), at + workers * length)
        root, told, parts = model_merging.summarize(model), pickle.dumps(model), []
        for worker in range(workers):
            replica = pickle.loads(told)
            replica._model.divide(worker, workers)
            right += learn(replica, events[at + worker : end : workers])
            parts.append(model_merging.summarize(replica))
        spreads.append(model_merging.spread_of(parts))
        model_merging.merge_into(model, parts, root)
        at = end
    return right / len(events), float(np.median(spreads))


def numbers(text: str) -> list[int]:
    """Return the numbers that an option names."""
    return [int(part) for part in text.split(",")]


def main() -> None:
    """Print a table for each stream and order, and draw them."""
    told = arguments(
        __doc__,
        data=True,
        streams="a9a,elec2,random_rbf,rbf_moving",
        workers="1,2,4,8",
        lengths="250,1000,3000",
        events=12_000,
        output=Path("figures/rounds_accuracy.png"),
    )
    streams, workers, lengths = told.streams.split(","), numbers(told.workers), numbers(told.lengths)
    figure = Figure(figsize=(3.2 * len(streams), 6.0), layout="constrained")
    axes = figure.subplots(len(ORDERS), len(streams), squeeze=False)
    for column, name in enumerate(streams):
        events = SCENARIOS[name].events(told.data)[: told.events]
        for axis, (order, options) in zip(axes[:, column], ORDERS.items(), strict=True):
            single, rows = alone(events, options), []
            for count in workers:
                found = [in_rounds(events, options, count, length) for length in lengths]
                rows.append([f"{count}", *(f"{accuracy:.4f} ({spread:.2f})" for accuracy, spread in found)])
                points = [accuracy for accuracy, _ in found]
                axis.plot(lengths, points, marker=".", color=COLORS.get(count), label=f"{count} workers")
            axis.axhline(single, color="black", linestyle=":", label="alone")
            axis.set(
                xscale="log", xlabel="events a worker and round", ylabel="accuracy", title=f"{name}, {order} order"
            )
            axis.set_xticks(lengths, [f"{length:,}" for length in lengths])
            axis.set_xticks([], minor=True)
            title = f"{name}, {order} order, {len(events):,} events: accuracy (spread); alone {single:.4f}"
            show(title, ["workers", *(f"rounds of {length:,}" for length in lengths)], rows)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(workers) + 1)
    race.save(figure, told.output)


if __name__ == "__main__":
    main()
