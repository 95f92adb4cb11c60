"""A first-order model whose coefficients are solved on recent events from time to time, beside one that is left alone.

Every 8,192 events the coefficients are solved on the last 8,192, to a gap of 1e-4, and the result is swapped in 4,096
events later. kin40k and Friedman stand still, Elec2 moves. Told is the prequential error from the first swap on: of the
squared error, in units of the targets' variance, or of wrong classes; and the gap that was certified last.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common import arguments, show
from benchmarks.scenarios import NUMBERS, SCENARIOS
from streamkernel import KernelClassifier, KernelRegressor
from streamkernel.upkeep import Refit

TASK = Refit(every=8192, window=8192)


def errors(events: list[Any], model: Any, *, is_number: bool) -> np.ndarray:
    """Return the error of each prediction, made before its event is learned."""
    found = np.empty(len(events))
    for i, (x, y) in enumerate(events):
        predicted = model.predict_one(x)
        found[i] = (predicted - y) ** 2 if is_number else predicted != y
        model.learn_one(x, y)
    return found


def main() -> None:
    """Run it."""
    told = arguments(__doc__, data=True, streams="kin40k,friedman,elec2", events=40_000)
    rows = []
    for name in told.streams.split(","):
        scenario = SCENARIOS[name]
        events = [event for event, _ in zip(scenario.events(told.data), range(told.events), strict=False)]
        is_number = scenario.task == NUMBERS
        kind: Any = KernelRegressor if is_number else KernelClassifier
        plain, refitted = kind(learner="dsg"), kind(learner="dsg", refit=TASK)
        pair = [errors(events, model, is_number=is_number) for model in (plain, refitted)]
        first = 256 + TASK.every + TASK.every // 2
        unit = np.var([y for _, y in events[first:]]) if is_number else 1.0
        a, b = (found[first:].mean() / unit for found in pair)
        rows.append((name, f"{len(events):,}", f"{a:.4f}", f"{b:.4f}", f"{b / a:.2f}", f"{refitted.gap:.1e}"))
    show("Error after the first swap", ("stream", "events", "plain", "refitted", "ratio", "gap"), rows)


if __name__ == "__main__":
    main()
