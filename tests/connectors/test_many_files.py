"""A stream in many files, rotated or matched by a pattern, learned by processes that are killed repeatedly."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from cases import slow
from forked import Forked
from test_cli import CONFIG, call, events, newest, once, prepared, run_until, stop, wait_for_lines
from waiting import wait_for

from streamkernel.engine.checkpoint.state_directory import read_newest

PARTS = [events(n, seed=n) for n in (1500, 700, 1200, 600)]


def rotate(folder: Path, number: int) -> None:
    """Rename the file and the earlier rotated files, and create a new one."""
    for i in range(number, 1, -1):
        (folder / f"events.jsonl.{i - 1}").rename(folder / f"events.jsonl.{i}")
    (folder / "events.jsonl").rename(folder / "events.jsonl.1")
    (folder / "events.jsonl").write_text(PARTS[number])


def next_day(folder: Path, number: int) -> None:
    (folder / f"2026-0{number}").mkdir()
    (folder / f"2026-0{number}" / "events.jsonl").write_text(PARTS[number])


def lines(folder: Path) -> list[tuple[object, ...]]:
    found = map(json.loads, (folder / "predictions.jsonl").read_text().splitlines())
    return [(line["label"], line["prediction"], line["probabilities"]) for line in found]


@pytest.mark.parametrize(("path", "go_on"), [("events.jsonl", rotate), slow("2026-*/events.jsonl", next_day)])
def test_a_run_killed_between_files_learns_the_same_as_one_run_over_one_file(
    tmp_path: Path, path: str, go_on: Callable[[Path, int], None]
) -> None:
    whole = prepared(tmp_path / "whole", "".join(PARTS))
    assert call("run", once(whole)).exit_code == 0
    config = prepared(tmp_path / "parts", PARTS[0])
    config.write_text(CONFIG.replace('path = "events.jsonl"', f'path = "{path}"'))
    folder = config.parent
    if path != "events.jsonl":
        next_day(folder, 0)

    process = Forked(["run", config], folder / "log")
    wait_for(lambda: (folder / "state").exists() and (read_newest(folder / "state") or {}).get("positions"))
    assert stop(process, signal.SIGKILL) == -9
    go_on(folder, 1)
    go_on(folder, 2)
    process = Forked(["run", config], folder / "log")
    wait_for_lines(folder / "predictions.jsonl", 1800)
    assert stop(process, signal.SIGKILL) == -9
    process = Forked(["run", config], folder / "log")
    wait_for_lines(folder / "predictions.jsonl", 3000)
    go_on(folder, 3)  # while it runs
    wait_for_lines(folder / "predictions.jsonl", 3900)
    assert stop(process, signal.SIGKILL) == -9
    run_until(config, 4000)

    assert lines(folder) == lines(whole.parent)
    ours, theirs = newest(folder), newest(whole.parent)
    assert ours[1] == theirs[1]
    assert ours[0]["models"] == theirs[0]["models"]
    ours, theirs = read_newest(folder / "state"), read_newest(whole.parent / "state")
    assert ours["outcomes"] == theirs["outcomes"]
    assert repr(ours["metric"]) == repr(theirs["metric"])
    assert (folder / "dead_letters.jsonl").exists() is False
    assert (folder / "state" / "dead_letters.jsonl").read_bytes() == b""
