"""MOA's learners, run by MOA's command line: Java reads events from a file and writes a prediction for each.

Each event is predicted before it is learned, from the first one on (``EvaluatePrequential``). An event that is held
back for a test has no target in the file, so MOA only predicts it. Scores are computed from the predictions as for all
others. MOA gets the classes in advance; its predictions of numbers have three decimals. Processor time is as MOA
reports it, for the thread that predicts, learns and reads the events; it excludes Java's other threads, such as the
garbage collector.

Ensembles have 30 trees instead of 10 to 100; everything else has MOA's defaults. Neighbours have scaled inputs, trees
raw ones: with scaled ones SOKNL is worse on most streams, the others are about the same. MOA's own files
(``benchmarks.moa_streams``) are read as they are.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import importlib.util
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from river.preprocessing import StandardScaler

from benchmarks import arff
from benchmarks.prequential import Found, Tick, score
from benchmarks.scenarios import CLASSES, NUMBERS, Event, Scenario, filled

ROWS, LOOK = 20, 0.5
STOPPED = (-signal.SIGKILL, -signal.SIGXCPU, 128 + signal.SIGKILL, 128 + signal.SIGXCPU)
EVENTS, PREDICTIONS, PROGRESS = "events.arff", "predictions.txt", "progress.csv"


class Learner(NamedTuple):
    """MOA's text for a learner, and whether it gets scaled inputs."""

    text: str
    scaled: bool = False


LEARNERS: dict[str, dict[str, Learner]] = {
    CLASSES: {
        "MOA SRP(30)": Learner("meta.StreamingRandomPatches -s 30"),
        "MOA ARF(30)": Learner("meta.AdaptiveRandomForest -s 30"),
        "MOA LeveragingBag(30)": Learner("meta.LeveragingBag -s 30"),
        "MOA SGBT(30)": Learner("meta.StreamingGradientBoostedTrees -s 30"),
        "MOA SAMkNN": Learner("lazy.SAMkNN", scaled=True),
    },
    NUMBERS: {
        "MOA SOKNL(30)": Learner("meta.SelfOptimisingKNearestLeaves -s 30"),
        "MOA ARFRegressor(30)": Learner("meta.AdaptiveRandomForestRegressor -s 30"),
        "MOA SGBR(30)": Learner("meta.StreamingGradientBoostedRegression -s 30"),
    },
}  # fmt: skip


class MoaError(Exception):
    """MOA ended without a result."""


def jar(given: Path | None = None) -> Path:
    """Return the path of MOA's jar: the given one, or that of the package ``capymoa``."""
    if shutil.which("java") is None:
        raise ModuleNotFoundError(name="java")
    if given is not None and given.name:
        return given.resolve(strict=True)
    capymoa = importlib.util.find_spec("capymoa")
    for folder in (capymoa.submodule_search_locations or []) if capymoa else []:
        if (path := Path(folder) / "jar" / "moa.jar").exists():
            return path
    raise ModuleNotFoundError(name="MOA (capymoa, or --moa PATH)")


def java(moa: Path, task: str) -> list[str]:
    """Return the command that runs a task in one thread."""
    return ["java", "-XX:+UseSerialGC", "-XX:ActiveProcessorCount=1", "-cp", str(moa), "moa.DoTask", task]


@functools.cache
def library(moa: Path) -> str:
    """Return MOA's name and version as it reports them."""
    said = subprocess.run(java(moa, "EvaluatePrequential -i 1"), capture_output=True, text=True, check=False)
    version = re.search(r"Version:\s+(\S+)", said.stdout + said.stderr)
    return f"MOA {version[1]}" if version else "MOA"


def scaled(events: Sequence[Event], learned: int) -> list[Event]:
    """Return the events with inputs as River's scaler has them after each; it learns the first of them."""
    scaler, found = StandardScaler(), []
    for i, (x, y) in enumerate(filled(events)):
        if i < learned:
            scaler.learn_one(x)
        found.append((scaler.transform_one(x), y))
    return found


def times(lines: Sequence[str]) -> dict[int, float]:
    """Return MOA's processor time after numbers of events, from the lines of its table."""
    rows = csv.DictReader(lines)
    return {
        int(float(row["learning evaluation instances"])): float(row["evaluation time (cpu seconds)"]) for row in rows
    }


def predicted(lines: Sequence[str], labels: Sequence[object]) -> list[object]:
    """Return the predictions from MOA's lines, each beside its target: indices of labels, or numbers."""
    first = (line.split(",")[0].split(":")[-1] for line in lines)
    if not labels:
        return [float(text) for text in first]
    return [labels[place] if place >= 0 else None for place in map(int, first)]


def run(
    learner: Learner,
    moa: Path,
    scenario: Scenario,
    events: Sequence[Event],
    file: Path | None,
    budget: float,
    tick: Tick,
) -> Found:
    """Return the result of a learner after one pass over the events.

    Parameters
    ----------
    learner
        Which one.
    moa
        The file of MOA's classes.
    scenario
        How it is measured.
    events
        All events, those for the test at the end.
    file
        A file of MOA with the same events, which is read instead of a new one.
    budget
        Seconds of processor time, after which Java is stopped; the result until then is returned.
    tick
        Called with the number of further processed events.
    """
    learned = len(events) - scenario.held_back
    labels = sorted({y for _, y in events}, key=str) if scenario.task == CLASSES else []
    every = max(1, learned // ROWS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if file is None:
            given = scaled(events, learned) if learner.scaled else events
            arff.write(folder / EVENTS, given, labels, scenario.held_back)
        else:
            labels = arff.labels(file)
            (folder / EVENTS).symlink_to(file.resolve())
        kind = "Regression" if scenario.task == NUMBERS else ""
        task = (
            f"EvaluatePrequential{kind} -l ({learner.text}) -s (ArffFileStream -f {EVENTS})"
            f" -e Basic{kind or 'Classification'}PerformanceEvaluator -f {every} -o {PREDICTIONS} -d {PROGRESS}"
        )
        said = watched(java(moa, task), folder, budget, tick)
        lines, table = ((folder / name).read_text().splitlines() if (folder / name).exists() else []
                        for name in (PREDICTIONS, PROGRESS))  # fmt: skip
    known = {done: took for done, took in times(table).items() if done <= min(learned, len(lines))}
    done = max(known, default=0)
    if not done or (scenario.held_back and len(lines) <= learned):
        raise MoaError(said or "out of time")
    whole = len(lines) >= learned  # the last row is less than one interval before the last event
    found = predicted(lines[learned:] if scenario.held_back else lines if whole else lines[:done], labels)
    value = score(scenario, events, found)
    return Found(value, learned if whole else done, len(found), known[done])


def watched(command: Sequence[str], folder: Path, budget: float, tick: Tick) -> str:
    """Run a command until it ends or its processor time is used up; return its error output, if any."""
    limit = f"{budget:.0f}" if np.isfinite(budget) else "unlimited"
    seen = 0
    with (
        (folder / "said.txt").open("w") as said,
        subprocess.Popen(
            ["sh", "-c", 'ulimit -t "$0" && exec "$@"', limit, *command], cwd=folder, stdout=said, stderr=said
        ) as process,
    ):
        try:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK)
                if (folder / PREDICTIONS).exists():
                    lines = (folder / PREDICTIONS).read_bytes().count(b"\n")
                    tick(lines - seen)
                    seen = lines
        finally:
            process.kill()
    if process.returncode in STOPPED:
        return ""
    text = (folder / "said.txt").read_text()
    wrong = re.search(r"^\S*(?:Exception|Error)\b.*|^Exception.*", text, re.MULTILINE)
    return wrong[0] if wrong else ""
