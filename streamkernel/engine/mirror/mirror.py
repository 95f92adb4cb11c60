"""A thread that copies the newest checkpoint to an object store, while the run goes on."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from streamkernel.connectors import Participant
from streamkernel.engine.checkpoint.state_directory import checkpoints, number_of
from streamkernel.engine.mirror.bucket import Bucket, MirrorTakenError
from streamkernel.engine.mirror.manifests import upload
from streamkernel.engine.retrying import pause_after

LAST_SECONDS = 20.0
"""The longest time in seconds that the end of a run waits for the last checkpoint."""

log = structlog.get_logger("streamkernel")


class Mirror(Participant):
    """Copies the newest checkpoint of a directory; those that a newer one has replaced meanwhile are left out.

    Learning never waits for it. An upload that fails is tried again with the then newest checkpoint, after pauses that
    grow to half a minute.

    Parameters
    ----------
    bucket
        Where to.
    directory, identity
        The state directory, and its name.
    copied
        The newest checkpoint that is there already, 0 for none.

    Attributes
    ----------
    copied : int
        The number of the last checkpoint that is in the store.
    copies, failures : int
        Uploads of this process that succeeded, and that failed.
    """

    def __init__(self, bucket: Bucket, directory: Path, identity: str, copied: int) -> None:
        self.copied, self.copies, self.failures = copied, 0, 0
        self._bucket, self._directory, self._identity = bucket, directory, identity
        self._newest, self._behind_since = copied, None if copied else time.monotonic()
        self._is_closing = threading.Event()
        self._has_more = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)
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

    def _run(self) -> None:
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
