"""The checkpoints in a mirror: each is read and compared with its hash, and nothing is changed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from streamkernel.engine.checkpoint.maintenance import Checkpoint, described
from streamkernel.engine.mirror.bucket import Bucket, DamagedError, MirrorError
from streamkernel.engine.mirror.manifests import download, manifest_numbers, read


def history(address: str) -> Iterator[Checkpoint]:
    """Yield the checkpoints in a mirror, oldest first, each with the time at which it was copied.

    One at a time is on this disk, in a temporary folder. A run that goes on meanwhile may delete an older one, which
    then has that as its problem.

    Parameters
    ----------
    address
        As ``s3://bucket/prefix``.

    Raises
    ------
    ImportError
        If obstore is not installed.
    MirrorError
        If the store is unavailable, or has no checkpoint there.
    ValueError
        If the address is none.
    """
    bucket = Bucket(address)
    numbers = manifest_numbers(bucket.names())
    if not numbers:
        raise MirrorError(f"Expected a mirror, got no checkpoint - at {bucket.address}")
    for number in numbers:
        with tempfile.TemporaryDirectory(prefix="streamkernel-") as folder:
            yield _checkpoint(bucket, number, Path(folder) / f"checkpoint-{number:012d}.safetensors")


def _checkpoint(bucket: Bucket, number: int, path: Path) -> Checkpoint:
    written, size = None, 0
    try:
        manifest = read(bucket, number)
        written, size = manifest.written, manifest.size
        download(bucket, manifest, path)
    except DamagedError as error:
        return Checkpoint(number, written, "", size, None, str(error))
    return described(path, written)
