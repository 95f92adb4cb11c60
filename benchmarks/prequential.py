"""Models that go through the events of a scenario once: each event is predicted before it is learned, and timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from river import metrics

from benchmarks.scenarios import CLASSES, Event, Scenario

PART, WARM = 200, 600
Tick = Callable[[int], None]


class Found(NamedTuple):
    """The result of a model: its score, the events learned and tested, and the processor time of those learned."""

    score: float
    done: int
    tested: int
    took: float


def metric(task: str) -> Any:
    """Return the counter of a task's scores."""
    return metrics.Accuracy() if task == CLASSES else metrics.R2()


def score(scenario: Scenario, events: Sequence[Event], predictions: Iterable[Any]) -> float:
    """Return the score of predictions for the first of these events, or for those that are held back.

    Before the first target nobody knows its scale, so that R² begins with the second event.
    """
    counted = metric(scenario.task)
    tested = events[-scenario.held_back :] if scenario.held_back else events
    for event, found in zip(tested, predictions, strict=False):
        if event is not events[0] or scenario.task == CLASSES:
            counted.update(event[1], found)
    return float(counted.get())


def predicted(model: Any, events: Iterable[Event]) -> list[Any]:
    """Return the prediction of each event, made before it is learned."""
    predictions = []
    for x, y in events:
        predictions.append(model.predict_one(x))
        model.learn_one(x, y)
    return predictions


def whole_score(task: str, events: Sequence[Event], predictions: Sequence[Any]) -> float:
    """Return the accuracy or R² over all events, the first one among them."""
    targets, found = np.array([y for _, y in events]), np.array(predictions)
    if task == CLASSES:
        return float(np.mean(found == targets))
    return float(1.0 - np.sum((targets - found) ** 2) / np.sum((targets - targets.mean()) ** 2))


def stepped(events: Sequence[Event], budget: float, job: Callable[[Event], None], tick: Tick) -> tuple[int, float]:
    """Do a job for event after event until the budget is used; return for how many, and the processor time."""
    done, took = 0, 0.0
    while done < len(events) and took < budget:
        part = events[done : done + PART]
        began = time.process_time()
        for event in part:
            job(event)
        took += time.process_time() - began
        done += len(part)
        tick(len(part))
    return done, took


def stream(make: Callable[[], Any], scenario: Scenario, events: Sequence[Event], budget: float, tick: Tick) -> Found:
    """Return the result of a model after one pass over the events.

    Another model goes through the first of them before, so that what has to be compiled is compiled.
    """
    predictions: list[Any] = []
    first, model = make(), make()

    def both(model: Any, event: Event) -> None:
        predictions.append(model.predict_one(event[0]))
        model.learn_one(*event)

    stepped(events[:WARM], budget / 10, lambda event: both(first, event), lambda n: None)
    predictions.clear()
    if not scenario.held_back:
        done, took = stepped(events, budget, lambda event: both(model, event), tick)
        tested = done
    else:
        training = events[: -scenario.held_back]
        done, took = stepped(training, budget, lambda event: model.learn_one(*event), tick)
        tested, _ = stepped(
            events[-scenario.held_back :],
            budget / 3,
            lambda event: predictions.append(model.predict_one(event[0])),
            tick,
        )
    return Found(score(scenario, events, predictions), done, tested, took)
