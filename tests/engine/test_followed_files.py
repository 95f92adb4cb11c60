"""Runs that follow a file which other programs rotate or write again: every row is learned once, and in order."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import load_config

CONFIG = """
label = "y"
[source]
path = "events.csv"
follow = true
[model]
type = "KernelRegressor"
max_features = 16
[sink]
predictions = "predictions.jsonl"
[state]
directory = "state"
"""
HEADER = "x,y\n"


def rows(first: int, end: int) -> str:
    return "".join(f"{n % 7},{n}\n" for n in range(first, end))


def export(path: Path, first: int, end: int) -> None:
    """Write all rows again, and rename the file to the name of the old one."""
    draft = path.with_suffix(".draft")
    draft.write_text(HEADER + rows(0, end))
    draft.replace(path)


def age(path: Path, second: int) -> None:
    """Set the time of a file, because the clock of a file system may be too coarse."""
    os.utime(path, ns=(0, 10**18 + second * 10**9))


def rotate_down(path: Path, first: int, end: int) -> None:
    """Rename files so that `.1` is the newest, and write the new rows to another file."""
    for number in range(5, 0, -1):
        old = path.with_name(f"{path.name}.{number}")
        if old.exists():
            old.rename(path.with_name(f"{path.name}.{number + 1}"))
    if path.exists():
        path.rename(path.with_name(f"{path.name}.1"))
    path.write_text(HEADER + rows(first, end))
    age(path, first)


def rotate_up(path: Path, first: int, end: int) -> None:
    """Rename the file so that the highest number is the newest, and write the new rows to another file."""
    if path.exists():
        path.rename(path.with_name(f"{path.name}.{1 + len(list(path.parent.glob(path.name + '.*')))}"))
    path.write_text(HEADER + rows(first, end))
    age(path, first)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("write", [export, rotate_down, rotate_up])
def test_every_row_is_learned_once(tmp_path: Path, write: Callable[[Path, int, int], None], restarts: bool) -> None:
    path, config = tmp_path / "events.csv", tmp_path / "run.toml"
    config.write_text(CONFIG)
    ends = [20, 45, 60, 61, 90]
    write(path, 0, ends[0])
    changes = list(pairwise(ends))

    def run(until: int) -> None:
        engine = engine_of(load_config(config))

        def stopping() -> bool:
            while not restarts and changes and engine.outcomes["predicted"] >= changes[0][0]:
                write(path, *changes.pop(0))
            return engine.outcomes["predicted"] >= until

        engine.run(stopping=stopping)

    while restarts and changes:
        run(changes[0][0])
        write(path, *changes.pop(0))
        if changes:  # and once more before the next run
            write(path, *changes.pop(0))
    run(ends[-1])
    lines = (tmp_path / "predictions.jsonl").read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == list(range(ends[-1]))
