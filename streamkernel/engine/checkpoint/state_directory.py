"""The state directory: each checkpoint is one file, the last three are kept, and Kafka may decide which one counts."""

from __future__ import annotations

import datetime as dt
import fcntl
import os
import uuid
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import structlog
from river import base

from streamkernel import tensor_file
from streamkernel.connectors import Participant
from streamkernel.connectors.owner import Owner
from streamkernel.engine.checkpoint import state_file
from streamkernel.errors import ModelFileError
from streamkernel.estimators import model_file

KEPT = 3
"""Checkpoints that are kept; a torn one falls back to the one before."""

PRIVATE = 0o600
"""Permissions of the files: learned state and refused records are private to the user."""

log = structlog.get_logger("streamkernel")


class StateDirectoryError(RuntimeError):
    """The state directory is in use by another process, or belongs to another run."""


class StateDirectory:
    """A directory of checkpoints, used by one process at a time.

    Only the user of the process can read its files. Symbolic links in it are not followed and pipes not opened, so
    another user with write access cannot make the process read or overwrite other files, or wait. `path` is the
    directory, or a symbolic link to it; if it is missing it is made, for its owner only. `StateDirectoryError` is
    raised if another process uses it, it cannot be written to, or one of its files is a symbolic link or a pipe.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as path, StateDirectory(Path(path)) as state:
    ...     state.write({"learned": 3})
    ...     state.read_newest()
    {'learned': 3, 'checkpoint': 1}
    """

    mirror: Participant | None = None
    """The participant that copies committed checkpoints, if there is one."""

    def __init__(self, path: Path) -> None:
        try:
            path.mkdir(0o700, parents=True, exist_ok=True)
        except FileExistsError:
            raise StateDirectoryError(f"Expected a directory, got a file or a link to nothing - at {path}") from None
        if not os.access(path, os.W_OK | os.X_OK):  # found now, not when the first checkpoint is due
            raise StateDirectoryError(
                f"the state directory cannot be written to; mount or choose another one - at {path}"
            )
        if path.stat().st_mode & 0o002:
            log.warning("every user of this machine can write to the state directory; use chmod o-w", path=str(path))
        self.path = path
        self.size: int | None = None  # of the last checkpoint that was written here
        self.least = 0  # a number that is taken elsewhere; the next checkpoint has a larger one
        self.session = uuid.uuid4().hex  # tells this process's checkpoints from a copy's, which have its numbers
        self._unlock = weakref.finalize(self, os.close, _lock_directory(path))
        self._owner = Owner(f"state directory {path}", self._unlock)  # a child would keep it locked

    @property
    def identity(self) -> str:
        """A unique and permanent name of this directory."""
        path = plain_file(self.path / "identity")
        if not path.exists():
            tensor_file.put(path, uuid.uuid4().hex.encode(), PRIVATE)
        return path.read_text()

    def write(self, state: Mapping[str, Any]) -> None:
        """Write a checkpoint.

        1. Encode the state; models and plain arrays become tensors. 2. Write a new file beside the others, flush it to
        disk, and rename it to its final name. 3. Only then delete the oldest checkpoint. 4. Queue it for the mirror.
        """
        number = self.prepare(state)
        self.promote(number)
        if self.mirror is not None:
            self.mirror.after_commit(number, {})

    def prepare(self, state: Mapping[str, Any]) -> int:
        """Write a checkpoint that is not committed yet, and return its number."""
        self._owner.check()
        number = max(self.newest(), self.least) + 1
        path = self.path / f"prepared-{number:012d}-{self.session}.safetensors"
        state_file.write(path, "checkpoint", dict(state), PRIVATE)
        return number

    def promote(self, number: int) -> None:
        """Commit a prepared checkpoint, and delete the oldest.

        Raise `OSError` if it cannot be written, also if it is missing, as where the directory was moved away.
        """
        self._owner.check()
        path = self.path / f"checkpoint-{number:012d}.safetensors"
        prepared = next(self.path.glob(f"prepared-{number:012d}-*.safetensors"), None)
        if prepared is None:
            raise FileNotFoundError(f"expected the prepared checkpoint {number}, found none - at {self.path}")
        tensor_file.move(prepared, path)
        self.size = path.stat().st_size
        for old in checkpoints(self.path)[:-KEPT]:
            old.unlink()

    def prepared(self) -> tuple[int, str] | None:
        """Return the number and the session of a checkpoint that was prepared, and neither promoted nor discarded."""
        files = sorted(self.path.glob("prepared-*-*.safetensors"))
        return (number_of(files[-1]), files[-1].stem.split("-", 2)[2]) if files else None

    def discard(self) -> None:
        """Delete a prepared checkpoint."""
        self._owner.check()
        for path in self.path.glob("prepared-*.safetensors"):
            path.unlink()

    def newest(self) -> int:
        """Return the number of the newest committed checkpoint, or 0."""
        files = checkpoints(self.path)
        return number_of(files[-1]) if files else 0

    def is_restored(self) -> bool:
        """Return whether the newest checkpoint was read from a mirror, and others may have been committed after it."""
        path = plain_file(self.path / "restored")
        return path.exists() and path.read_text() == str(self.newest())

    def read_newest(self) -> dict[str, Any] | None:
        """Return the newest intact state, with its number as "checkpoint", or ``None`` if none has ever been written.

        Raise `ModelFileError` if there are checkpoints, and none of them is whole.
        """
        return read_newest(self.path)

    def close(self) -> None:
        """Unlock the directory."""
        self._unlock()

    def __enter__(self) -> Self:
        """Return the directory."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the directory."""
        self.close()


def check_setup(saved: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise an error that names the first difference if a state was written with another setup.

    Topics may be added at the end: the number of the committed checkpoint is stored with the offsets of the first
    topic. Raise `StateDirectoryError` if they differ.

    Examples
    --------
    >>> check_setup({"label": "a"}, {"label": "b"})
    Traceback (most recent call last):
        ...
    streamkernel.engine.checkpoint.state_directory.StateDirectoryError: Expected the setup the state directory was
    made with, label = 'a', got 'b'; take another state.directory for another setup
    """
    for key in sorted(saved.keys() | now.keys()):
        before, after = saved.get(key), now.get(key)
        if key == "source.topics" and before and after:
            if after[: len(before)] == before:
                continue
            hint = "add topics at the end, or take"
        else:
            hint = "take"
        if after != before:
            raise StateDirectoryError(
                f"Expected the setup the state directory was made with, {key} = {before!r}, "
                f"got {after!r}; {hint} another state.directory for another setup"
            )


def number_of(path: Path) -> int:
    """Return the number of a checkpoint.

    Examples
    --------
    >>> number_of(Path("state/checkpoint-000000000012.safetensors"))
    12
    """
    return int(path.stem.split("-")[1])


def checkpoints(path: Path) -> list[Path]:
    """Return the checkpoints in a directory, oldest first."""
    return sorted(path.glob("checkpoint-*.safetensors"))


def existing_checkpoints(path: Path) -> list[Path]:
    """Return the checkpoints in a directory, oldest first; raise a FileNotFoundError if there is none."""
    if not path.is_dir():
        raise FileNotFoundError(f"Expected a state directory, found none - at {path}")
    files = checkpoints(path)
    if not files:
        raise FileNotFoundError(f"Expected a checkpoint, found none - in {path}")
    return files


def read_newest(path: Path) -> dict[str, Any] | None:
    """Return the newest intact state in a directory; see :meth:`StateDirectory.read_newest`."""
    files = checkpoints(path)
    errors = []
    for file in reversed(files):
        try:
            return read_checkpoint(file) | {"checkpoint": number_of(file)}
        except ModelFileError as error:
            if isinstance(error.__cause__, MemoryError):  # the file may be whole
                raise
            errors.append(str(error))
            log.error("a checkpoint is damaged; trying the one before it", file=str(file), reason=str(error))
    if files:
        raise ModelFileError(f"Expected an intact checkpoint, found none in {path}: " + "; ".join(errors))
    return None


def _lock_directory(path: Path) -> int:
    """Return a descriptor that holds the lock on a directory while it is open; a lock file could be deleted."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(directory)
        if isinstance(error, BlockingIOError):
            problem = "is locked by another process; stop it or choose another directory"
        else:
            problem = f"cannot be locked ({error.strerror}); some network file systems cannot, so use a local disk"
        raise StateDirectoryError(f"the state directory {problem} - at {path}") from None
    return directory


def plain_file(path: Path) -> Path:
    """Return the path of a file in a state directory, which may be missing.

    Raise `StateDirectoryError` for a symbolic link, which leads elsewhere, and for a pipe, which would block.
    """
    if path.is_symlink():
        raise StateDirectoryError(f"a symbolic link in a state directory is not followed; delete it - at {path}")
    if path.exists() and not path.is_file():
        raise StateDirectoryError(f"Expected a regular file in a state directory, got another kind - at {path}")
    return path


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the state in the file of a checkpoint. Raise `ModelFileError` if it cannot be read."""
    return state_file.read(plain_file(path), "checkpoint")


def recover_newest(state: StateDirectory, newest: int, session: str) -> dict[str, Any] | None:
    """Return the newest checkpoint that is committed and intact, or ``None`` if there has never been one.

    `state` is the directory. What was prepared there counts now, or is gone. `newest` is the number that Kafka has, 0
    for none. `session` is the session that committed it. A process with a copy of the directory prepares checkpoints of
    the same numbers. Raise `StateDirectoryError` if Kafka has a checkpoint that was never in this directory, or has
    forgotten whether a prepared one counts; `ModelFileError` if there are checkpoints and none is whole.
    """
    prepared, committed = state.prepared(), state.newest()
    if prepared is not None and not newest and committed:
        number = f"{prepared[0]:012d}"
        raise StateDirectoryError(
            f"Expected a record in Kafka of whether checkpoint {prepared[0]} is committed, got none: Kafka deletes it "
            f"after offsets.retention.minutes - at {state.path}; if the last predictions are visible with "
            f"read_committed, rename prepared-{number}-... to checkpoint-{number}.safetensors, else delete it"
        )
    if prepared == (newest, session):
        state.promote(newest)
        log.info("promoting a prepared checkpoint", number=newest)
    elif prepared is not None:
        log.info("discarding a prepared checkpoint", number=prepared[0])
    state.discard()
    state.least = newest
    if newest > state.newest() and state.is_restored():
        log.warning(
            "events since the restored checkpoint are learned again; what topics have of them is not written again",
            number=state.newest(),
            newest=newest,
        )
        return state.read_newest()
    if newest > state.newest():
        raise StateDirectoryError(
            f"Expected checkpoint {newest}, the last one committed in Kafka, got {state.newest()} - at {state.path}; "
            "it is an older copy of a state directory"
        )
    saved = state.read_newest()
    if newest < state.newest() and (saved is None or saved.get("exchanged_after") != newest):
        log.warning("Kafka has no record of the newest checkpoint; resuming from it", has=newest, number=state.newest())
    if saved is not None and saved["checkpoint"] < newest:
        log.error(
            "events since an older checkpoint are learned again; without a group their predictions are written twice",
            number=saved["checkpoint"],
            newest=newest,
        )
    return saved


def read_model(path: Path) -> Any:
    """Return the model or the pipeline in a file, or that in the newest whole checkpoint of a state directory.

    Raise `ModelFileError` if there is no readable model; `FileNotFoundError` if there is no such file, or no checkpoint
    in the directory.
    """
    if path.is_dir():
        checkpoint = read_newest(path)
        if checkpoint is None:
            raise FileNotFoundError(f"Expected a state directory with a checkpoint, got none - at {path}")
        if not isinstance(checkpoint.get("model"), base.Base):
            raise ModelFileError(f"Expected a checkpoint of a run, got one without a model - in {path}")
        return checkpoint["model"]
    description, tensors = tensor_file.read(path, "model", "pipeline")
    if not isinstance(description, dict) or "models" not in description:
        return model_file.rebuild(description, tensors, str(path))
    return state_file.rebuild(description, tensors, str(path), base.Base)


class Checkpoint(NamedTuple):
    """One checkpoint of a state directory or of a mirror.

    `written` is when its file was written, in UTC; ``None`` if that is unknown, as for a damaged manifest. `format` is
    the version of its file format; empty for a file that a mirror does not have as it was copied. `size` is the size of
    the file in bytes. `learned` are events that its model has learned; ``None`` for a damaged file. `problem` says why
    it cannot be read; empty if it can.
    """

    number: int
    written: dt.datetime | None
    format: str
    size: int
    learned: int | None
    problem: str


def history(path: Path) -> Iterator[Checkpoint]:
    """Yield the checkpoints in a directory, oldest first; raise a FileNotFoundError if there is none."""
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
