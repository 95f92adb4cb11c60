"""Accuracy on permanent scenarios, ours with no arguments beside River, MOA, Vowpal Wabbit and exact kernel machines.

Results are written to ``results/VERSION.json``. Rivals with a result in this file are run again only with --again; ours
are always run. A rival stops learning after --budget seconds of processor time, and its score over the events until
then is shown as "0.932 at 9,800"; the test of those with held-back events ends after a third of the budget, which is
shown as "0.850 of 4,200". The time of an event is that of predict_one and learn_one together, and of learn_one alone
where events are held back for a test. The scale of the targets is unknown before the first one, so R² begins with the
second event. A table of fewer than 2,000 rows is learned in ten random orders: scores and times are their means, and
"±" is the standard deviation from one order to the next. ``--add package.module:Class`` adds a River class of yours,
called with no arguments, under its name. Ours are first, the others in the order of their mean rank;
"furthest" is the largest distance from the best on a scenario, in points (1/100). Baselines and exact machines, which
learn many rows at once, are shown below and have no rank.
"""

from __future__ import annotations

import importlib.metadata
import pkgutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from rich.progress import Progress
from river import base
from sklearn.metrics import accuracy_score, r2_score

from benchmarks import prequential, store
from benchmarks.accuracy_tables import tables
from benchmarks.common import arguments, show
from benchmarks.models import MODELS, OURS, Size
from benchmarks.prequential import Found, Tick
from benchmarks.rivals import moa
from benchmarks.rivals.exact import MACHINES
from benchmarks.scenarios import CLASSES, GROUPS, NUMBERS, SCENARIOS, Event, filled, with_binary_labels
from benchmarks.store import Result


def exact(scenario: str, events: Sequence[Event]) -> Found:
    """Return test score, rows learned and tested, and processor time of a machine that learns many rows at once."""
    _, rows, prepare = MACHINES[scenario]
    X = np.array([list(x.values()) for x, _ in events])
    y = np.array([y for _, y in events])
    held_back = SCENARIOS[scenario].held_back
    fit = prepare(X[:-held_back], y[:-held_back])
    began = time.process_time()
    predict = fit()
    took = time.process_time() - began
    score = accuracy_score if SCENARIOS[scenario].task == CLASSES else r2_score
    return Found(score(y[-held_back:], predict(X[-held_back:])), rows, held_back, took)


def library(name: str, task: str, jar: Path | None) -> str:
    """Return the package of a model, with its version."""
    if name in OURS.values():
        return store.path().stem
    if name in moa.LEARNERS[task]:
        return moa.library(moa.jar(jar))
    package = "vowpalwabbit" if name.startswith("VW") else "scikit-learn" if "at once" in name else "river"
    return f"{package} {importlib.metadata.version(package)}"


def names(scenario: str) -> list[str]:
    """Return the models that apply to a scenario."""
    task = SCENARIOS[scenario].task
    machine = [MACHINES[scenario][0]] if scenario in MACHINES else []
    return [*MODELS[task], *moa.LEARNERS[task], *machine]


def once(
    scenario: str, name: str, events: Sequence[Event], folder: Path, jar: Path | None, budget: float, tick: Tick
) -> Found:
    """Return the result of a model on the events of a scenario."""
    one = SCENARIOS[scenario]
    if name in MODELS[one.task]:
        given, limit = (events, np.inf) if name == OURS[one.task] else (with_binary_labels(filled(events)), budget)
        size = Size(len(given[0][0]), len({y for _, y in given}) if one.task == CLASSES else 0)
        return prequential.stream(lambda: MODELS[one.task][name](size), one, given, limit, tick)
    if name in moa.LEARNERS[one.task]:
        file = one.file(folder) if one.file else None
        return moa.run(moa.LEARNERS[one.task][name], moa.jar(jar), one, events, file, budget, tick)
    return exact(scenario, events)


def joined(found: Sequence[Found], of: int, library: str) -> Result:
    """Return the result of one order of the events, or of several: means, and the score of each."""
    scores = [float(one.score) for one in found]
    return Result(
        float(np.mean(scores)) if np.isfinite(scores).all() else None,
        min(one.done for one in found),
        of,
        min(one.tested for one in found),
        round(float(np.mean([one.took for one in found])), 3),
        library,
        store.machine(),
        tuple(scores) if len(scores) > 1 else (),
    )


def measure(
    scenario: str, wanted: Sequence[str], folder: Path, jar: Path | None, budget: float, progress: Progress
) -> Iterator[tuple[str, Result | str]]:
    """Yield the name and the result of each requested model, or the reason for a missing result."""
    one = SCENARIOS[scenario]
    try:
        orders = [one.events(folder, order) for order in range(one.orders)]
    except FileNotFoundError as missing:
        yield from ((name, f"no file {missing.filename}") for name in wanted)
        return
    of = len(orders[0]) - one.held_back
    for name in wanted:
        row = progress.add_task(f"{scenario}: {name}", total=len(orders) * len(orders[0]))
        try:
            found = [
                once(scenario, name, events, folder, jar, budget, lambda n, row=row: progress.advance(row, n))
                for events in orders
            ]
            yield name, joined(found, of, library(name, one.task, jar))
        except ModuleNotFoundError as missing:
            yield name, f"{missing.name} is not installed"
        except moa.MoaError as failed:
            yield name, str(failed)
        progress.remove_task(row)


def known(result: Result | None, scenario: str) -> bool:
    """Return whether there is a result, with as many orders as the scenario has."""
    return result is not None and max(1, len(result.orders)) == SCENARIOS[scenario].orders


def chosen(given: str, known: Iterable[str], also: dict[str, Iterable[str]]) -> list[str]:
    """Return the requested names; the argument is "all", groups, or parts of names, separated by commas."""
    parts = given.split(",")
    return [
        name
        for name in known
        if any(part == "all" or (name in also[part] if part in also else part in name) for part in parts)
    ]


def add(path: str) -> None:
    """Add a River class to the models of its task, by its name."""
    model = pkgutil.resolve_name(path)
    MODELS[CLASSES if issubclass(model, base.Classifier) else NUMBERS][model.__name__] = lambda size: model()


def main() -> None:
    """Run the requested models without a result, store each result, and print all of them."""
    given = {"scenarios": "all", "models": "all", "add": "", "budget": 180.0, "again": False, "results": store.path()}
    options = arguments(__doc__, data=True, moa=Path(), **given)
    if options.add:
        add(options.add)
    groups = {group.replace(" ", "-"): [s for s in SCENARIOS if SCENARIOS[s].group == group] for group in GROUPS}
    wanted = chosen(options.scenarios, SCENARIOS, groups)
    results = store.read(options.results) if options.results.exists() else store.newest()
    missing: dict[str, str] = {}
    with Progress(transient=True) as progress:
        whole = progress.add_task("scenarios", total=len(wanted))
        for scenario in wanted:
            there = results.setdefault(scenario, {})
            asked = chosen(options.models, names(scenario), {"ours": OURS.values(), "none": []})
            new = [
                name for name in asked if options.again or name in OURS.values() or not known(there.get(name), scenario)
            ]
            for name, found in (
                measure(scenario, new, options.data, options.moa, options.budget, progress) if new else ()
            ):
                if isinstance(found, Result):
                    there[name] = found
                    store.write(results, options.results)
                else:
                    missing[f"{scenario}, {name}"] = found
            progress.advance(whole)
    tables(results, wanted)
    if missing:
        show("Not run", ["scenario and model", "reason"], [list(one) for one in missing.items()])


if __name__ == "__main__":
    main()
