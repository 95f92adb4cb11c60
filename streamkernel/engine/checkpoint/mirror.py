"""A state directory whose newest checkpoint is copied to an object store by a thread, and restored from it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from streamkernel import tensor_file
from streamkernel.connectors import Participant
from streamkernel.engine.checkpoint.bucket import (
    Bucket,
    DamagedError,
    Manifest,
    MirrorError,
    MirrorTakenError,
    download,
    manifest_name,
    manifest_numbers,
    read,
    upload,
)
from streamkernel.engine.checkpoint.state_directory import (
    PRIVATE,
    StateDirectory,
    StateDirectoryError,
    checkpoints,
    number_of,
)
from streamkernel.engine.health import pause_after


class MirroredDirectory(StateDirectory):
    """A state directory with a mirror, from which it begins where it has no checkpoints.

    `address` is the mirror, as ``s3://bucket/prefix``. `mirror` is the thread that copies its checkpoints.
    `MirrorError` is raised if there is no checkpoint here, and none can be read there; `StateDirectoryError` if another
    process uses the directory, or the mirror is another directory's.
    """

    mirror: Mirror

    def __init__(self, path: Path, address: str) -> None:
        super().__init__(path)
        try:
            bucket = Bucket(address)
            copied = begin(self, bucket)  # first: it may restore the identity
            self.mirror = Mirror(bucket, path, self.identity, copied)
        except BaseException:
            super().close()
            raise
        if newest := self.newest():
            self.mirror.after_commit(newest, {})

    def close(self) -> None:
        """Copy the last checkpoint, and unlock the directory."""
        if self._owner.is_here:
            self.mirror.close()
        super().close()


def open_state(path: Path | None, mirror: str | None) -> StateDirectory | None:
    """Return the state directory of a run, with its mirror, if it has them."""
    if path is None:
        return None
    return StateDirectory(path) if mirror is None else MirroredDirectory(path, mirror)


def begin(directory: StateDirectory, bucket: Bucket) -> int:
    """Restore a directory without checkpoints, compare one that has some, and return the newest number in the mirror.

    A directory with checkpoints needs no store at a start: the mirror only lags. Raise `MirrorError` if there is no
    checkpoint here and the store is unavailable, or all that it has are damaged: a new start would forget what was
    learned; `StateDirectoryError` if the mirror has a later checkpoint, or one of another directory.
    """
    newest = directory.newest()
    try:
        numbers = manifest_numbers(bucket.names())
        manifest = read(bucket, numbers[-1]) if numbers and newest else None
    except DamagedError as error:
        log.error("the newest checkpoint in the mirror is damaged", reason=str(error))
        return 0
    except MirrorError as error:
        if not newest:
            raise
        log.error("the mirror is unavailable; starting from the state directory", reason=str(error))
        return 0
    if not newest and numbers:
        return restore(directory, bucket)
    if manifest is not None:
        _compare(directory, manifest, bucket.address)
    return numbers[-1] if numbers else 0


def restore(directory: StateDirectory, bucket: Bucket) -> int:
    """Write the newest whole checkpoint of a mirror into an empty directory, and return its number.

    Its file comes last, so a crash before leaves a directory without checkpoints. Damaged ones after it no longer
    count. Raise `MirrorError` if there is none, or the store is unavailable; `StateDirectoryError` if the directory has
    checkpoints.
    """
    if directory.newest():
        raise StateDirectoryError(f"expected no checkpoints where a mirror is restored - at {directory.path}")
    for left in directory.path.glob("restoring-*"):  # by a crash
        left.unlink()
    problems: dict[int, str] = {}
    for number in reversed(manifest_numbers(bucket.names())):
        path = directory.path / f"restoring-{number:012d}.safetensors"
        try:
            manifest = read(bucket, number)
            download(bucket, manifest, path)
        except DamagedError as error:
            path.unlink(missing_ok=True)
            problems[number] = str(error)
            log.error("a checkpoint in the mirror is damaged; trying the one before it", reason=str(error))
            continue
        bucket.delete([manifest_name(damaged) for damaged in problems])
        tensor_file.put(directory.path / "identity", manifest.identity.encode(), PRIVATE)
        tensor_file.put(directory.path / "restored", str(number).encode(), PRIVATE)
        tensor_file.move(path, directory.path / f"checkpoint-{number:012d}.safetensors")
        log.info("restored from the mirror", number=number, bytes=manifest.size, mirror=bucket.address)
        return number
    faults = "; ".join(problems.values()) or "none"
    raise MirrorError(f"Expected a whole checkpoint in the mirror, got {faults} - at {bucket.address}")


def _compare(directory: StateDirectory, manifest: Manifest, address: str) -> None:
    if manifest.identity != directory.identity:
        raise StateDirectoryError(
            f"expected the mirror of this state directory, got the mirror of another one - at {address}; give each "
            "state directory a mirror of its own"
        )
    if manifest.number > directory.newest():
        raise StateDirectoryError(
            f"expected at most checkpoint {directory.newest()} in the mirror, got {manifest.number} - at {address}; a "
            f"process elsewhere has continued from there. To continue from it, delete {directory.path}"
        )


LAST_SECONDS = 20.0
"""The longest time in seconds that the end of a run waits for the last checkpoint."""

log = structlog.get_logger("streamkernel")


class Mirror(Participant):
    """Copies the newest checkpoint of a directory; checkpoints that a newer one has replaced meanwhile are left out.

    Learning never waits for it. An upload that fails is tried again with the then newest checkpoint, after pauses that
    grow to half a minute. `identity` is the name of the state directory. `copied` is the number of the last checkpoint
    that is in the store, 0 for none. `copies` and `failures` are uploads of this process that succeeded or failed.
    """

    def __init__(self, bucket: Bucket, directory: Path, identity: str, copied: int) -> None:
        self.copied, self.copies, self.failures = copied, 0, 0
        self._bucket, self._directory, self._identity = bucket, directory, identity
        self._newest, self._behind_since = copied, None if copied else time.monotonic()
        self._is_closing = threading.Event()
        self._has_more = threading.Event()
        self._thread = threading.Thread(target=self._copy_checkpoints, name="mirror", daemon=True)
        self._thread.start()

    @property
    def lag_checkpoints(self) -> int:
        """The number of committed checkpoints after the last one in the store."""
        return max(0, self._newest - self.copied)

    @property
    def lag_seconds(self) -> float:
        """The seconds since the oldest commit that a loss of the disk would undo; 0 for none."""
        since = self._behind_since
        return 0.0 if since is None else time.monotonic() - since

    def after_commit(self, number: int, positions: Mapping[str, Any], deadline: float = math.inf) -> None:
        """Queue a committed checkpoint for upload."""
        if self._behind_since is None:
            self._behind_since = time.monotonic()
        self._newest = number
        self._has_more.set()

    def close(self, seconds: float = LAST_SECONDS) -> None:
        """Copy the last checkpoint, but wait no longer than this for it."""
        self._is_closing.set()
        self._has_more.set()
        self._thread.join(seconds)
        if self.lag_checkpoints:
            log.warning("the last checkpoint is not in the mirror", number=self._newest, mirrored=self.copied)

    def _copy_checkpoints(self) -> None:
        failed = 0  # in a row
        while True:
            self._has_more.wait()
            self._has_more.clear()
            if self._newest <= self.copied:
                if self._is_closing.is_set():
                    return
                continue
            try:
                self._copy()
                failed = 0
            except MirrorTakenError as error:
                self.failures += 1
                log.error("the mirror belongs to another process; no more checkpoints are copied", reason=str(error))
                return
            except Exception as error:  # whatever a store does, the run goes on
                self.failures += 1
                failed += 1
                log.error("a checkpoint could not be copied to the mirror; retrying", reason=str(error), failed=failed)
                if self._is_closing.is_set():
                    return
                self._is_closing.wait(pause_after(failed - 1))
                self._has_more.set()
            if self._is_closing.is_set():
                self._has_more.set()  # what came last, or the end

    def _copy(self) -> None:
        began = time.monotonic()
        while True:
            path = checkpoints(self._directory)[-1]
            number = number_of(path)
            try:
                upload(self._bucket, path, number, self._identity)
                break
            except FileNotFoundError:
                if path == checkpoints(self._directory)[-1]:
                    raise
        self.copied, self.copies = number, self.copies + 1
        self._behind_since = None if self._newest <= number else began
        log.debug("checkpoint mirrored", number=number, seconds=round(time.monotonic() - began, 3))
