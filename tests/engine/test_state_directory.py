"""Permissions of a state directory, and files that another user has put into it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE
from typing import Any

import pytest

from streamkernel import KernelRegressor, ModelFileError
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import StateDirectory, StateDirectoryError, checkpoints, read_newest
from streamkernel.engine.config.config import load_config
from streamkernel.engine.telemetry.observed import report

CONFIG = """
label = "y"
[source]
path = "events.jsonl"
[model]
type = "KernelRegressor"
max_features = 16
[sink]
predictions = "predictions.jsonl"
[state]
directory = "state"
"""


@pytest.fixture
def everybody_may_read() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "events.jsonl").write_text('{"a":1,"y":2}\n{"a":3,"y":4}\n{"secret":1}\n')
    (tmp_path / "config.toml").write_text(CONFIG)
    return tmp_path / "config.toml"


def mode(path: Path) -> int:
    return S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("everybody_may_read")
def test_a_state_directory_is_private(config: Path) -> None:
    state = config.parent / "state"
    engine_of(load_config(config)).run()
    StateDirectory(state).identity  # noqa: B018 - the property creates the file
    assert mode(state) == 0o700
    assert {path.name: mode(path) for path in state.iterdir()} == {
        "checkpoint-000000000001.safetensors": 0o600,
        "checkpoint-000000000002.safetensors": 0o600,
        "dead_letters.jsonl": 0o600,
        "identity": 0o600,
    }
    assert mode(config.parent / "predictions.jsonl") == 0o666  # predictions are for other users


def test_a_checkpoint_that_a_crash_left_prepared_is_deleted_by_the_next_run(config: Path) -> None:
    engine_of(load_config(config)).run()
    with StateDirectory(config.parent / "state") as state:
        state.prepare({"n": 1})
    engine_of(load_config(config)).run(stopping=lambda: True)
    assert not list((config.parent / "state").glob("prepared-*"))


@pytest.mark.parametrize("name", ["identity", "checkpoint-000000000007.safetensors"])
def test_links_in_a_state_directory_are_refused(tmp_path: Path, name: str) -> None:
    with StateDirectory(tmp_path / "state") as state:
        state.write({"n": 1})
    other = tmp_path / "other"
    other.write_bytes(checkpoints(tmp_path / "state")[0].read_bytes())
    (tmp_path / "state" / name).symlink_to(other)
    with StateDirectory(tmp_path / "state") as state, pytest.raises(StateDirectoryError, match=f"not followed.*{name}"):
        state.read_newest() if name != "identity" else state.identity


@pytest.mark.parametrize("name", ["identity", "restored", "checkpoint-000000000007.safetensors"])
def test_pipes_in_a_state_directory_are_refused(tmp_path: Path, name: str) -> None:
    """They would block."""
    with StateDirectory(tmp_path) as state:
        state.write({"n": 1})
        os.mkfifo(tmp_path / name)
        writer = os.open(tmp_path / name, os.O_RDWR)  # so that no one waits for a writer if the pipe is opened
        with pytest.raises(StateDirectoryError, match=f"a regular file.*{name}"):
            _ = (state.identity, state.is_restored(), state.read_newest())
        os.close(writer)


@pytest.mark.parametrize("name", [".identity.draft", ".prepared-000000000001.safetensors.draft"])
def test_links_at_the_path_of_a_temporary_file_are_replaced(tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    other.write_text("somebody else's")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / name).symlink_to(other)
    with StateDirectory(tmp_path / "state") as state:
        assert len(state.identity) == 32
        state.write({"n": 1})
        assert state.read_newest() == {"n": 1, "checkpoint": 1}
    assert other.read_text() == "somebody else's"


def test_dead_letters_in_a_state_directory_follow_no_link(config: Path) -> None:
    state, other = config.parent / "state", config.parent / "other"
    other.write_text('{"reason":"r","stream":"s","raw":"somebody else\'s"}\n')
    state.mkdir()
    (state / "dead_letters.jsonl").symlink_to(other)
    with pytest.raises(OSError, match="dead_letters") as raised:
        engine_of(load_config(config))
    assert raised.value.errno == errno.ELOOP
    config.write_text(CONFIG.replace("[state]", 'dead_letters = "link.jsonl"\n[state]'))
    (config.parent / "link.jsonl").symlink_to(other)  # the configuration names this path
    engine_of(load_config(config)).run()
    assert other.read_text().count("\n") == 2
    saved = read_newest(state)
    assert saved is not None
    assert "somebody" not in report(saved, state)


def test_a_directory_may_be_a_link_itself(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    with StateDirectory(tmp_path / "state") as state:
        state.write({"n": 1})
    assert len(checkpoints(tmp_path / "disk")) == 1


def test_a_world_writable_directory_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The warning is in the log as configured, possibly by an earlier test."""
    tmp_path.chmod(0o777)
    StateDirectory(tmp_path).close()
    assert "every user of this machine can write" in capsys.readouterr().out + caplog.text


def test_deleting_files_does_not_unlock_a_directory(tmp_path: Path) -> None:
    with StateDirectory(tmp_path) as state:
        state.write({"n": 1})
        for path in tmp_path.iterdir():
            path.unlink()
        code = (
            "import pathlib; from streamkernel.engine.checkpoint import state_directory as found;"
            "found.StateDirectory(pathlib.Path.cwd())"
        )
        words = [sys.executable, "-c", code]
        other = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "locked by another process; stop it or choose another directory" in other.stderr
        with pytest.raises(StateDirectoryError, match="locked"):
            StateDirectory(tmp_path)
    StateDirectory(tmp_path).close()


def test_a_full_disk_is_reported_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with StateDirectory(tmp_path) as state:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/identity'"):
            state.identity  # noqa: B018
        with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/prepared-"):
            state.write({"n": 1})
    assert not list(tmp_path.iterdir())


def test_a_read_only_directory_is_rejected_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StateDirectory(tmp_path / "state") as state:
        state.write({"n": 1})
    (tmp_path / "state").chmod(0o500)
    if os.geteuid() == 0:  # root can write unless the file system is mounted read-only
        monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(StateDirectoryError, match=r"cannot be written to.*state"):
        StateDirectory(tmp_path / "state")
    assert read_newest(tmp_path / "state") == {"n": 1, "checkpoint": 1}


def refuse(*_: Any) -> None:
    raise ValueError("expected other tensors")


def test_a_checkpoint_that_could_not_be_read_again_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The good ones stay, though the oldest would have been deleted."""
    with StateDirectory(tmp_path) as state:
        for n in range(3):
            state.write({"n": n})
        monkeypatch.setattr(KernelRegressor, "_restore", refuse)
        with pytest.raises(ModelFileError, match=r"^nothing was written, because it could not be read again: .*other"):
            state.write({"model": KernelRegressor()})
        assert state.read_newest() == {"n": 2, "checkpoint": 3}
        assert [path.name[-13:-12] for path in checkpoints(tmp_path)] == ["1", "2", "3"]
        assert state.prepared() is None


def test_a_run_whose_checkpoint_could_not_be_read_again_ends_with_an_error(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KernelRegressor, "_restore", refuse)
    with pytest.raises(ModelFileError, match="nothing was written"):
        engine_of(load_config(config)).run()


def test_a_checkpoint_for_which_there_is_no_memory_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run would continue from an older one, and learn the events after it again."""

    def none(*_: Any) -> None:
        raise MemoryError

    with StateDirectory(tmp_path) as state:
        state.write({"n": 1})
        state.write({"model": KernelRegressor()})
        monkeypatch.setattr(KernelRegressor, "_restore", none)
        with pytest.raises(ModelFileError, match=r"^Expected enough memory"):
            state.read_newest()
