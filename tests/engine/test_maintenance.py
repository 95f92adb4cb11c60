"""Checkpoints are listed and deleted, and a stored state continues with the same bits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from stored_files import FOLDER, STATE, has_the_bits_of_the_files, run
from typer.testing import CliRunner

from streamkernel.cli import app
from streamkernel.engine.checkpoint.state_directory import (
    StateDirectory,
    StateDirectoryError,
    checkpoints,
    history,
    prune,
    read_newest,
)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STATE, tmp_path / "state"))


def test_a_stored_state_continues_with_the_same_bits(old: Path, tmp_path: Path) -> None:
    expected = json.loads((FOLDER / "expected.json").read_text())["state"]["predictions"]
    saved = read_newest(old)
    assert saved is not None
    (tmp_path / "predictions.jsonl").write_text(" " * saved["sink"])  # the predictions of the first 200 events
    found = run(old, tmp_path)
    if has_the_bits_of_the_files():
        assert found == expected
    assert [one["prediction"] for one in found] == [one["prediction"] for one in expected]


def test_a_damaged_checkpoint_is_listed_with_its_problem(old: Path) -> None:
    newest = checkpoints(old)[-1]
    newest.write_bytes(newest.read_bytes()[:-100])
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
        with pytest.raises(StateDirectoryError, match="locked by another process"):
            prune(old)
        assert [one.learned for one in history(old)] == [0, 200]


def test_the_commands_report_their_changes(old: Path, tmp_path: Path) -> None:
    def call(*words: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["state", *map(str, words)])
        return done.exit_code, done.output

    code, text = call("history", old)
    assert code == 0
    size = checkpoints(old)[0].stat().st_size
    assert all(word in text for word in ("checkpoint", f"{size:,}", "200"))
    assert call("prune", old, "--keep", 1) == (0, "1 checkpoint deleted\n")
    assert call("prune", old) == (0, "nothing to delete\n")
    for command in ("history", "prune"):
        assert call(command, tmp_path / "none") == (
            2,
            f"streamkernel: Expected a state directory, found none - at {tmp_path / 'none'}\n",
        )
