"""A state directory from its mirror, where there is none on this disk."""

from __future__ import annotations

from pathlib import Path

import structlog

from streamkernel import tensor_file
from streamkernel.engine.checkpoint.state_directory import PRIVATE, StateDirectory, StateDirectoryError
from streamkernel.engine.mirror.bucket import Bucket, DamagedError, MirrorError
from streamkernel.engine.mirror.manifests import Manifest, download, manifest_name, manifest_numbers, read

log = structlog.get_logger("streamkernel")


def begin(directory: StateDirectory, bucket: Bucket) -> int:
    """Restore a directory without checkpoints, compare one that has some, and return the newest number in the mirror.

    A directory with checkpoints needs no store at a start: the mirror only lags.

    Raises
    ------
    MirrorError
        If there is no checkpoint here and the store is unavailable, or all that it has are damaged: a new start would
        forget what was learned.
    StateDirectoryError
        If the mirror has a later checkpoint, or one of another directory.
    """
    own = directory.newest()
    try:
        numbers = manifest_numbers(bucket.names())
        manifest = read(bucket, numbers[-1]) if numbers and own else None
    except DamagedError as error:
        log.error("the newest checkpoint in the mirror is damaged", reason=str(error))
        return 0
    except MirrorError as error:
        if not own:
            raise
        log.error("the mirror is unavailable; starting from the state directory", reason=str(error))
        return 0
    if not own and numbers:
        return restore(directory, bucket)
    if manifest is not None:
        _compare(directory, manifest, bucket.address)
    return numbers[-1] if numbers else 0


def restore(directory: StateDirectory, bucket: Bucket) -> int:
    """Write the newest whole checkpoint of a mirror into an empty directory, and return its number.

    Its file comes last, so a crash before leaves a directory without checkpoints. Damaged ones after it no longer
    count.

    Raises
    ------
    MirrorError
        If there is none, or the store is unavailable.
    StateDirectoryError
        If the directory has checkpoints.
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
        _put(directory.path / "identity", manifest.identity)
        _put(directory.path / "restored", str(number))
        tensor_file.move(path, directory.path / f"checkpoint-{number:012d}.safetensors")
        log.info("restored from the mirror", number=number, bytes=manifest.size, mirror=bucket.address)
        return number
    found = "; ".join(problems.values()) or "none"
    raise MirrorError(f"Expected a whole checkpoint in the mirror, got {found} - at {bucket.address}")


def _compare(directory: StateDirectory, manifest: Manifest, address: str) -> None:
    if manifest.identity != directory.identity:
        raise StateDirectoryError(
            f"expected the mirror of this state directory, got that of another one - at {address}; give each state "
            "directory a mirror of its own"
        )
    if manifest.number > directory.newest():
        raise StateDirectoryError(
            f"expected at most checkpoint {directory.newest()} in the mirror, got {manifest.number} - at {address}; a "
            f"process elsewhere has continued from there. To continue from it, delete {directory.path}"
        )


def _put(path: Path, text: str) -> None:
    tensor_file.put(path, text.encode(), PRIVATE)
