"""Accuracy on permanent scenarios, ours with no arguments beside River, Vowpal Wabbit and exact kernel machines.

What was measured goes into ``results/VERSION.json``. Rivals that stand there already are not run again without
--again; ours always are. A rival stops learning after --budget seconds of processor time, and its score over the events
so far is shown as "0.932 at 9,800"; the test of those with held-back events ends after a third of the budget, which is
shown as "0.850 of 4,200". The time of an event is that of predict_one and learn_one together, and of learn_one alone
where events are held back for a test. Before the first target nobody knows its scale, so that R² begins with the second
event. Ours stand first, the others in the order of their mean rank; "furthest" is the largest distance from the best on
a scenario, in points (1/100). Baselines and exact machines that have many rows at once are shown below, and take no
part in ranks.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.progress import Progress
from river import metrics
from sklearn.metrics import accuracy_score, r2_score

from benchmarks import store
from benchmarks.common import arguments, show
from benchmarks.models import BASELINES, MODELS, OURS, Size
from benchmarks.rivals.exact import MACHINES
from benchmarks.scenarios import CLASSES, DRIFTING, HELD_OUT, NUMBERS, RANKED, SCENARIOS, Event, Scenario
from benchmarks.store import Result

PART, WARM = 200, 600
Tick = Callable[[int], None]


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


def stream(
    make: Callable[[], Any], scenario: Scenario, events: Sequence[Event], budget: float, tick: Tick
) -> tuple[float, int, int, float]:
    """Return score, events learned and tested, and processor time of a model that goes through the events once.

    Another model goes through the first of them before, so that what has to be compiled is compiled.
    """
    metric: Any = metrics.Accuracy() if scenario.task == CLASSES else metrics.R2()
    first = make()

    def predict(model: Any, event: Event) -> None:
        x, y = event
        found = model.predict_one(x)
        if event is not events[0] or scenario.task == CLASSES:
            metric.update(y, found)

    def both(model: Any, event: Event) -> None:
        predict(model, event)
        model.learn_one(*event)

    stepped(events[:WARM], budget / 10, lambda event: both(first, event), lambda n: None)
    metric, model = metric.clone(), make()
    if not scenario.held_back:
        done, took = stepped(events, budget, lambda event: both(model, event), tick)
        tested = done
    else:
        training = events[: -scenario.held_back]
        done, took = stepped(training, budget, lambda event: model.learn_one(*event), tick)
        tested, _ = stepped(events[-scenario.held_back :], budget / 3, lambda event: predict(model, event), tick)
    return metric.get(), done, tested, took


def exact(scenario: str, events: Sequence[Event]) -> tuple[float, int, int, float]:
    """Return test score, rows learned and tested, and processor time of the machine that has many rows at once."""
    _, rows, prepare = MACHINES[scenario]
    X = np.array([list(x.values()) for x, _ in events])
    y = np.array([y for _, y in events])
    held_back = SCENARIOS[scenario].held_back
    fit = prepare(X[:-held_back], y[:-held_back])
    began = time.process_time()
    predict = fit()
    took = time.process_time() - began
    score = accuracy_score if SCENARIOS[scenario].task == CLASSES else r2_score
    return score(y[-held_back:], predict(X[-held_back:])), rows, held_back, took


def library(name: str) -> str:
    """Return the package a model is of, with its version."""
    if name in OURS.values():
        return store.path().stem
    package = "vowpalwabbit" if name.startswith("VW") else "scikit-learn" if "at once" in name else "river"
    return f"{package} {importlib.metadata.version(package)}"


def names(scenario: str) -> list[str]:
    """Return the models that apply to a scenario."""
    return [*MODELS[SCENARIOS[scenario].task], *([MACHINES[scenario][0]] if scenario in MACHINES else [])]


def measure(scenario: str, wanted: Sequence[str], folder: Path, budget: float, progress: Progress) -> Iterable[Any]:
    """Yield the name of each model that is wanted and its result, or why there is none."""
    try:
        events = SCENARIOS[scenario].events(folder)
    except FileNotFoundError as missing:
        yield from ((name, f"no file {missing.filename}") for name in wanted)
        return
    task = SCENARIOS[scenario].task
    size = Size(len(events[0][0]), len({y for _, y in events}) if task == CLASSES else 0)
    of = len(events) - SCENARIOS[scenario].held_back
    for name in wanted:
        row = progress.add_task(f"{scenario}: {name}", total=len(events))
        try:
            if name in MODELS[task]:
                found = stream(
                    lambda name=name: MODELS[task][name](size),
                    SCENARIOS[scenario],
                    events,
                    np.inf if name == OURS[task] else budget,
                    lambda n, row=row: progress.advance(row, n),
                )
            else:
                found = exact(scenario, events)
            score, done, tested, took = found
            number = float(score) if np.isfinite(score) else None
            yield name, Result(number, done, of, tested, round(took, 3), library(name), store.machine())
        except ModuleNotFoundError as missing:
            yield name, f"{missing.name} is not installed"
        progress.remove_task(row)


def cell(result: Result | None, scenario: Scenario) -> str:
    """Return what the table says of a result."""
    if result is None:
        return "-"
    score = "overflow" if result.score is None else f"{result.score:.4f}" if result.score > -10.0 else "< -10"
    lines = [score, f"{1e6 * result.seconds / result.events:,.0f} µs"]
    if result.events < result.of:
        lines.insert(1, f"at {result.events:,}")
    if result.tested < scenario.held_back:
        lines.insert(1, f"of {result.tested:,}")
    return "\n".join(lines)


def told(rank: float, there: pd.Series) -> str:
    """Return a mean rank, and over how many scenarios it is if they are not all."""
    return f"{rank:.1f}" + ("" if there.all() else f"\nin {there.sum()} of {len(there)}")


def ranks(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the mean rank of each model (row) over the scenarios (columns) it has a score on, and how far it was.

    Parameters
    ----------
    scores
        Of models on scenarios, minus infinity for an overflow; NaN where there is no result.
    """
    return pd.DataFrame(
        {"rank": scores.rank(ascending=False).mean(axis=1), "furthest": 100.0 * (scores.max() - scores).max(axis=1)}
    )


def tables(results: store.Results, wanted: Sequence[str]) -> None:
    """Print what is known of these scenarios."""
    for group in (RANKED, DRIFTING, HELD_OUT):
        for task in (CLASSES, NUMBERS):
            columns = [s for s in wanted if (SCENARIOS[s].group, SCENARIOS[s].task) == (group, task) and results.get(s)]
            if not columns:
                continue
            known = pd.DataFrame(
                {s: {name: -np.inf if r.score is None else r.score for name, r in results[s].items()} for s in columns}
            )
            order = ranks(known.loc[[name for name in MODELS[task] if name in known.index.difference(BASELINES[task])]])
            order = order.sort_values("rank", kind="stable")
            ours = [name for name in order.index if name == OURS[task]]
            ranked = [*ours, *order.index.difference(ours, sort=False)]
            others = [name for name in [*BASELINES[task], *(m for m, _, _ in MACHINES.values())] if name in known.index]
            rows = [
                [
                    name,
                    told(order["rank"][name], known.loc[name].notna()) if name in ranked else "",
                    min(f"{order['furthest'][name]:.1f}", "> 1000", key=len) if name in ranked else "",
                    *(cell(results[s].get(name), SCENARIOS[s]) for s in columns),
                ]
                for name in [*ranked, *dict.fromkeys(others)]
            ]
            heads = [f"{s}\n{SCENARIOS[s].measure}\n{max(r.of for r in results[s].values()):,}" for s in columns]
            show(f"{group}, {task}", ["model", "mean\nrank", "furthest\n(points)", *heads], rows)


def chosen(given: str, known: Iterable[str], also: dict[str, Iterable[str]]) -> list[str]:
    """Return the names that are asked for: all, groups of them, or parts of names between commas."""
    parts = given.split(",")
    return [
        name
        for name in known
        if any(part == "all" or (name in also[part] if part in also else part in name) for part in parts)
    ]


def main() -> None:
    """Run what is asked for and not known yet, store it after every model, and print all that is known of it."""
    options = arguments(
        __doc__, data=True, scenarios="all", models="all", budget=180.0, again=False, results=store.path()
    )
    groups = {group.replace(" ", "-"): [s for s in SCENARIOS if SCENARIOS[s].group == group]
              for group in (RANKED, DRIFTING, HELD_OUT)}  # fmt: skip
    wanted = chosen(options.scenarios, SCENARIOS, groups)
    results = store.read(options.results) if options.results.exists() else store.newest()
    missing: dict[str, str] = {}
    with Progress(transient=True) as progress:
        whole = progress.add_task("scenarios", total=len(wanted))
        for scenario in wanted:
            known = results.setdefault(scenario, {})
            asked = chosen(options.models, names(scenario), {"ours": OURS.values(), "none": []})
            new = [name for name in asked if options.again or name in OURS.values() or name not in known]
            for name, found in measure(scenario, new, options.data, options.budget, progress) if new else ():
                if isinstance(found, Result):
                    known[name] = found
                    store.write(results, options.results)
                else:
                    missing[f"{scenario}, {name}"] = found
            progress.advance(whole)
    tables(results, wanted)
    if missing:
        show("Not run", ["scenario and model", "reason"], [list(one) for one in missing.items()])


if __name__ == "__main__":
    main()
