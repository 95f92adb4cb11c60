"""Workers on a Ray cluster of this machine: events a second with two of them, over one, and over no cluster at all.

Files of JSON lines are learned by engines of the same configuration: alone, with one worker, and with two, in turns.
Time counts from the second round on, when all workers are there and have read their code.

"2 apart" is what the cores allow: the rates of two runs at once that have nothing to do with each other, over one.

The speed of more workers, each with a core, is simulated from the measurements. With R workers, a round of L
events each takes L·t + S + R·M + R·D + C: t is the time of an event with one worker, S + R·M that of merging one or
two replicas; R·D + C that of all else that workers wait for (planning, sending, judging, writing, a checkpoint).
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import track

from benchmarks.common import arguments, show
from benchmarks.hot_path import stream
from streamkernel.cluster.assemble import cluster_engine_of
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import Config

MODELS: dict[str, dict[str, Any]] = {
    "first order, 1,024 features": {"max_features": 1024, "learner": "dsg"},
    "second order, 1,024 features": {"max_features": 1024},
    "no arguments": {},
}
INPUTS, FILES = 10, 8
SIMULATED = [1, 2, 4, 8, 16, 32]
"""Numbers of workers."""


class Rates(NamedTuple):
    """The measurements of a run.

    Parameters
    ----------
    events
        Events a second.
    event, merge, other
        Seconds of an event of a worker; of merging in a round, and of what else workers waited for.
    """

    events: float
    event: float = 0.0
    merge: float = 0.0
    other: float = 0.0


def written(folder: Path, events: int) -> None:
    """Write a stream to files."""
    found = stream(INPUTS, events)
    for number in range(FILES):
        with (folder / f"part-{number}.jsonl").open("w") as file:
            for x, y in itertools.islice(found, events // FILES):
                file.write(json.dumps({**x, "y": y}) + "\n")


def rate(folder: Path, model: dict[str, Any], workers: int, events_per_round: int, predictions: bool) -> Rates:
    """Return how fast a run is, and where its time goes."""
    with tempfile.TemporaryDirectory() as state:
        told: dict[str, Any] = {
            "label": "y",
            "source": {"path": str(folder / "part-*.jsonl")},
            "model": {"type": "KernelClassifier", **model},
            "state": {"directory": state},
            "cluster": {"workers": max(1, workers), "events_per_round": events_per_round},
        }
        if predictions:
            told["sink"] = {"predictions": str(Path(state, "predictions.jsonl"))}
        config = Config.model_validate(told)
        engine = cluster_engine_of(config, "local", lambda: workers) if workers else engine_of(config)
        seen: list[tuple[float, int]] = []
        engine.run(watch=lambda engine: seen.append((time.perf_counter(), engine.outcomes["learned"])))
        first, last = (2, -3) if workers else (len(seen) // 5, -2)  # it is told once more at the end of all
        (began, before), (ended, after) = seen[first], seen[last]
        events = (after - before) / (ended - began)
        if not workers:
            return Rates(events)
        assert engine.cluster is not None
        rounds = engine.cluster.recent[first + 1 : -1]  # without the last one, which is shorter
        learning = statistics.mean(max(one.seconds) for one in rounds)
        merging = statistics.mean(one.merge_seconds for one in rounds)
        event = sum(sum(one.seconds) for one in rounds) / sum(sum(one.events) for one in rounds)
        return Rates(events, event, merging, (ended - began) / len(rounds) - learning - merging)


def apart(folder: Path, model: dict[str, Any], events_per_round: int, predictions: bool) -> float:
    """Return events a second of two runs at once, each without a cluster."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        runs = [pool.submit(rate, folder, model, 0, events_per_round, predictions) for _ in range(2)]
        return sum(run.result().events for run in runs)


def simulated(one: Rates, two: Rates, length: int) -> list[str]:
    """Return events a second over those of one worker, for more and more of them with cores of their own."""
    per_replica = max(0.0, two.merge + two.other - one.merge - one.other)
    rates = []
    for workers in SIMULATED:
        took = length * one.event + one.merge + one.other + (workers - 1) * per_replica
        rates.append(workers * length / took)
    return [f"{rate / rates[0]:.2f}" for rate in rates]


def main() -> None:
    """Print events a second."""
    options = arguments(__doc__, events=80_000, round=4096, turns=3, predictions=False, only="")
    table, more = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written(folder, options.events)
        for title, model in MODELS.items():
            if options.only not in title:
                continue
            found: dict[int, list[Rates]] = {0: [], 1: [], 2: []}
            both = []
            for turn in track(range(options.turns), title):
                for workers in (0, 1, 2) if turn % 2 else (2, 1, 0):
                    found[workers].append(rate(folder, model, workers, options.round, options.predictions))
                both.append(apart(folder, model, options.round, options.predictions) / found[0][-1].events)
            alone, one, two = ([run.events for run in found[workers]] for workers in (0, 1, 2))
            pairs = [b / a for a, b in zip(one, two, strict=True)]
            over = [b / a for a, b in zip(alone, two, strict=True)]
            rates = [f"{statistics.median(rates):,.0f}" for rates in (alone, one, two)]
            table.append([title, *rates, *(f"{statistics.median(ratios):.2f}" for ratios in (pairs, over, both))])
            middle = {count: Rates(*map(statistics.median, zip(*runs, strict=True))) for count, runs in found.items()}
            seconds = [f"{1e6 * middle[1].event:.1f}", f"{1e6 * middle[2].event:.1f}"]
            waited = [f"{1e3 * part:.1f}" for count in (1, 2) for part in (middle[count].merge, middle[count].other)]
            more.append([title, *seconds, *waited, *simulated(middle[1], middle[2], options.round)])
    head = ["model", "no cluster", "1 worker", "2 workers", "2 over 1", "2 over none", "2 apart"]
    show(f"Events a second, {options.events:,} events, rounds of {options.round:,} a worker", head, table)
    head = ["model", "event, µs, 1", "2", "merge, ms, 1", "rest, 1", "merge, 2", "rest, 2"]
    head += [f"{count} over 1" for count in SIMULATED]
    show("Where the time of a round goes with 1 and 2 workers, and what more with their own cores would do", head, more)


if __name__ == "__main__":
    main()
