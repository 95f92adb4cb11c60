"""A state directory whose checkpoints are copied to an object store."""

from __future__ import annotations

from pathlib import Path

from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.mirror.bucket import Bucket
from streamkernel.engine.mirror.mirror import Mirror
from streamkernel.engine.mirror.restoring import begin


class MirroredDirectory(StateDirectory):
    """A state directory with a mirror, from which it begins where it has no checkpoints.

    Parameters
    ----------
    path
        The directory.
    address
        The mirror, as ``s3://bucket/prefix``.

    Attributes
    ----------
    mirror : Mirror
        The thread that copies its checkpoints.

    Raises
    ------
    MirrorError
        If there is no checkpoint here, and none can be read there.
    StateDirectoryError
        If another process uses the directory, or the mirror is not that of this directory.
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
        if own := self.newest():
            self.mirror.after_commit(own, {})

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
