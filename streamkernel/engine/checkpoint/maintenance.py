"""The checkpoints of a stopped run: listed, and deleted except for the newest."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from streamkernel import tensor_file
from streamkernel.engine.checkpoint.state_directory import (
    StateDirectory,
    StateDirectoryError,
    existing_checkpoints,
    number_of,
    read_checkpoint,
)
from streamkernel.errors import ModelFileError


class Checkpoint(NamedTuple):
    """One checkpoint of a state directory or of a mirror.

    Attributes
    ----------
    number : int
        Its number.
    written : datetime.datetime or None
        When its file was written, in UTC; ``None`` if that is unknown, as for a damaged manifest.
    format : str
        The version of its file format; empty for a file that a mirror does not have as it was copied.
    size : int
        The size of the file in bytes.
    learned : int or None
        Events that its model has learned; ``None`` for a damaged file.
    problem : str
        Why it cannot be read; empty if it can.
    """

    number: int
    written: dt.datetime | None
    format: str
    size: int
    learned: int | None
    problem: str


def history(path: Path) -> Iterator[Checkpoint]:
    """Yield the checkpoints in a directory, oldest first.

    Raise `FileNotFoundError` if there is no such directory, or no checkpoint in it.
    """
    for file in existing_checkpoints(path):
        yield described(file, dt.datetime.fromtimestamp(file.stat().st_mtime, dt.UTC))


def described(file: Path, written: dt.datetime) -> Checkpoint:
    """Return the entry of a checkpoint, from its file and the time at which that was written."""
    learned, problem = None, ""
    try:
        learned = int(read_checkpoint(file)["outcomes"]["learned"])
    except ModelFileError as error:
        problem = str(error)
    return Checkpoint(number_of(file), written, tensor_file.version_of(file), file.stat().st_size, learned, problem)


def prune(path: Path, keep: int = 1) -> list[int]:
    """Delete all checkpoints but the newest, and return the numbers of the deleted ones.

    `keep` are the checkpoints that stay, at least 1. Raise `FileNotFoundError` if there is no such directory, or no
    checkpoint in it; `StateDirectoryError` if a run uses the directory, or one that would stay is damaged: a run then
    continues from an older one.
    """
    if keep < 1:
        raise ValueError(f"Expected keep to be at least 1, got {keep}")
    files = existing_checkpoints(path)
    with StateDirectory(path):
        for file in files[-keep:]:
            try:
                read_checkpoint(file)
            except ModelFileError as error:
                raise StateDirectoryError(
                    f"nothing is deleted, because a checkpoint that would stay is damaged: {error}"
                ) from error
        for file in files[:-keep]:
            file.unlink()
    return [number_of(file) for file in files[:-keep]]
