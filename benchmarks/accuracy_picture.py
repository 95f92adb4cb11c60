"""The stored results of ``benchmarks.accuracy``: how far each model is from the best, against its time an event.

Both are means over the ranked scenarios: distances in points (1/100 of accuracy or R², 50 at most), times geometric.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from benchmarks import race, store
from benchmarks.common import arguments
from benchmarks.models import BASELINES, MODELS, OURS
from benchmarks.rivals import moa
from benchmarks.scenarios import CLASSES, NUMBERS, RANKED, SCENARIOS

MOST = 50.0


def points(results: store.Results, task: str) -> dict[str, tuple[float, float]]:
    """Return mean time (µs) and mean distance from the best (points) of each model that has all results there are."""
    times: dict[str, list[float]] = {}
    behind: dict[str, list[float]] = {}
    names = [name for name, one in SCENARIOS.items() if (one.group, one.task) == (RANKED, task) and results.get(name)]
    for name in names:
        known = results[name]
        found = {model: known[model] for model in (*MODELS[task], *moa.LEARNERS[task]) if model in known}
        found = {model: result for model, result in found.items() if model not in BASELINES[task]}
        scores = {model: -np.inf if result.score is None else result.score for model, result in found.items()}
        for model, result in found.items():
            times.setdefault(model, []).append(1e6 * result.seconds / result.events)
            behind.setdefault(model, []).append(min(MOST, 100.0 * (max(scores.values()) - scores[model])))
    return {
        model: (float(np.exp(np.log(times[model]).mean())), float(np.mean(behind[model])))
        for model in times
        if len(times[model]) == len(names)
    }


def spread(labels: list[Annotation]) -> None:
    """Move labels up, the lowest first, until none covers another; a line leads from each to its point."""
    placed: list[Bbox] = []
    for label in sorted(labels, key=lambda label: label.xy[1]):
        box, (right, up) = Text.get_window_extent(label), label.xyann  # an annotation's extent has its line, too
        while any(box.overlaps(other) for other in placed):
            box, up = box.translated(0.0, box.height / 4), up + label.get_fontsize() / 4
        label.xyann = (right, up)
        placed.append(box)


def main() -> None:
    """Draw one panel for each task."""
    options = arguments(__doc__, results=store.path(), output=Path("figures/accuracy.png"))
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    labels: list[list[Annotation]] = []
    for axis, task in zip(figure.subplots(1, 2), (CLASSES, NUMBERS), strict=True):
        labels.append([])
        for model, (time, behind) in points(store.read(options.results), task).items():
            color = "#d55e00" if model == OURS[task] else "#0072b2"
            axis.plot(time, behind, "o", color=color)
            line = {"arrowstyle": "-", "color": color, "alpha": 0.4, "shrinkA": 0, "shrinkB": 0}
            place = {"textcoords": "offset points", "xytext": (8, 4), "fontsize": 8}
            labels[-1].append(axis.annotate(model, (time, behind), color=color, arrowprops=line, **place))
        axis.set(xscale="log", xlabel="time an event (µs)", ylabel="behind the best (points)", title=task)
        axis.margins(x=0.25, y=0.1)
    figure.draw_without_rendering()
    for of_task in labels:
        spread(of_task)
    race.save(figure, options.output)


if __name__ == "__main__":
    main()
