"""Checkpoints listed, migrated and deleted; and a state of 0.1 that continues, migrated or not, with the same bits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from river import metrics
from states import state_in
from typer.testing import CliRunner

from streamkernel import KernelClassifier, learners, rules, tensor_file
from streamkernel.cli import app
from streamkernel.connectors import DeadLetters, Event, FileSink
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint.maintenance import history, migrate, prune
from streamkernel.engine.checkpoint.state_directory import StateDirectory, StateDirectoryError, checkpoints, read_newest
from streamkernel.errors import ModelFileError

OF_0_1 = Path(__file__).parents[1] / "data" / "state_of_0.1"
"""A state after 200 events of the stream below, with `max_features = 64` and `rule = { type = "CDSG" }`."""

STREAM = "/srv/clicks/events.jsonl"


class Stream:
    """The stream of the state, which has learned 200 events of it; reading begins at the position in the state."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def seek(self, positions: Mapping[str, Any]) -> None:
        values = (((i * 37 % 101 - 50) / 25, (i * 53 % 89 - 44) / 22) for i in range(300))
        records: list[dict[str, Any]] = [{"a": a, "b": b, "y": a * b > 0} for a, b in values]
        offset, events = 0, []
        for line, record in enumerate(records, start=1):
            raw = json.dumps(record).encode()
            offset += len(raw) + 1
            events.append(Event(STREAM, [offset, line], raw, record))
        at = [event.resume for event in events].index(positions[STREAM])
        self.events = events[at + 1 :]

    def poll(self, timeout: float) -> Sequence[Event] | None:
        events, self.events = self.events, []
        return events or None

    def lag(self) -> Mapping[tuple[str, str], int]:
        return {}

    def close(self) -> None: ...


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OF_0_1, tmp_path / "state"))


def test_a_migrated_state_of_0_1_continues_as_an_unmigrated_one(old: Path, tmp_path: Path) -> None:
    new = Path(shutil.copytree(old, tmp_path / "migrated"))
    assert migrate(new) == [1, 2]
    assert migrate(new) == []
    assert {tensor_file.version_of(path) for path in checkpoints(old)} == {"3"}
    assert {tensor_file.version_of(path) for path in checkpoints(new)} == {str(tensor_file.VERSION)}
    lines = []
    for path in (old, new):
        saved = read_newest(path)
        assert saved is not None
        (tmp_path / f"{path.name}.jsonl").write_text(" " * saved["sink"])  # the predictions of version 0.1
        engine = Engine(
            KernelClassifier(max_features=64, learner=learners.DSG(rule=rules.CDSG())),
            Stream(),
            label="y",
            metric=metrics.Accuracy(),
            sink=FileSink(tmp_path / f"{path.name}.jsonl"),
            dead_letters=DeadLetters(FileSink(tmp_path / f"{path.name}.dead")),
            state=state_in(path),
            setup=saved["setup"],
        )
        engine.run()
        assert engine.outcomes["learned"] == 300
        lines.append((tmp_path / f"{path.name}.jsonl").read_text())
    assert lines[0] == lines[1]
    assert lines[0].count("\n") == 100


def test_nothing_is_migrated_if_a_checkpoint_is_damaged(old: Path) -> None:
    newest = checkpoints(old)[-1]
    newest.write_bytes(newest.read_bytes()[:-100])
    before = {path: path.read_bytes() for path in checkpoints(old)}
    with pytest.raises(ModelFileError, match="checkpoint-000000000002"):
        migrate(old)
    assert {path: path.read_bytes() for path in checkpoints(old)} == before
    ours, theirs = history(old)
    assert (ours.number, ours.learned, ours.problem) == (1, 0, "")
    assert (theirs.number, theirs.learned, "truncated" in theirs.problem) == (2, None, True)


def test_the_newest_checkpoints_stay(old: Path) -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        prune(old, 0)
    assert prune(old, 2) == []
    assert prune(old) == [1]
    assert [one.number for one in history(old)] == [2]
    content = checkpoints(old)[0].read_bytes()
    (old / "checkpoint-000000000003.safetensors").write_bytes(content[:-100])
    with pytest.raises(
        StateDirectoryError, match="nothing is deleted, because a checkpoint that would stay is damaged"
    ):
        prune(old)
    assert len(checkpoints(old)) == 2


def test_a_state_in_use_is_not_changed(old: Path) -> None:
    with StateDirectory(old):
        for change in (migrate, prune):
            with pytest.raises(StateDirectoryError, match="locked by another process"):
                change(old)
        assert [one.learned for one in history(old)] == [0, 200]


def test_the_commands_report_their_changes(old: Path, tmp_path: Path) -> None:
    def call(*words: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["state", *map(str, words)])
        return done.exit_code, done.output

    code, text = call("history", old)
    assert code == 0
    assert all(word in text for word in ("checkpoint", "3,560", "200"))
    assert call("migrate", old) == (0, "2 checkpoints written in today's format\n")
    assert call("migrate", old) == (0, "all checkpoints have today's format\n")
    assert call("prune", old, "--keep", 1) == (0, "1 checkpoint deleted\n")
    assert call("prune", old) == (0, "nothing to delete\n")
    for command in ("history", "migrate", "prune"):
        assert call(command, tmp_path / "none") == (
            2,
            f"streamkernel: Expected a state directory, found none - at {tmp_path / 'none'}\n",
        )
