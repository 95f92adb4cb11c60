"""The checkpoints in an object store: their manifests, read and checked, and their list."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import structlog
from pydantic import BaseModel, Field, ValidationError

from streamkernel.engine.checkpoint.state_directory import KEPT, PRIVATE, Checkpoint, described
from streamkernel.engine.mirror.bucket import Bucket, DamagedError, MirrorError, MirrorTakenError

log = structlog.get_logger("streamkernel")

VERSION = 1


class Manifest(BaseModel, frozen=True):
    """The description of a whole checkpoint in a mirror.

    `identity` is the name of the state directory that it comes from. `file` is the name of the object with its content.
    `written` is when it was copied, in UTC.
    """

    version: int = Field(default=VERSION, ge=1, le=VERSION)
    number: int = Field(ge=1)
    identity: str = Field(min_length=1, max_length=200)
    file: str = Field(pattern=r"^checkpoint-\d{12}-[0-9a-f]{16}\.safetensors$")
    size: int = Field(ge=1)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    written: dt.datetime


def manifest_numbers(names: list[str]) -> list[int]:
    """Return the numbers of the checkpoints that have a manifest, oldest first.

    Examples
    --------
    >>> manifest_numbers(["checkpoint-000000000002-0123456789abcdef.safetensors", "checkpoint-000000000001.json"])
    [1]
    """
    matches = (re.fullmatch(r"checkpoint-(\d{12})\.json", name) for name in names)
    return sorted(int(one[1]) for one in matches if one)


def read(bucket: Bucket, number: int) -> Manifest:
    """Return the manifest of a checkpoint.

    Raise `DamagedError` if there is none; `MirrorError` if the store is unavailable.
    """
    name = manifest_name(number)
    try:
        manifest = Manifest.model_validate_json(bucket.get(name))
    except ValidationError as error:
        raise DamagedError(
            f"Expected a manifest of version {VERSION}, got {error.errors()[0]['msg']} - at {bucket.address}/{name}"
        ) from None
    if manifest.number != number:
        raise DamagedError(
            f"Expected the manifest of {number}, got the manifest of {manifest.number} - at {bucket.address}/{name}"
        )
    return manifest


def upload(bucket: Bucket, path: Path, number: int, identity: str) -> None:
    """Copy a checkpoint in this order: its file, then its manifest, which only the first writer can create.

    After that older ones are deleted, so that as many stay as in a state directory. Raise `FileNotFoundError` if a
    newer checkpoint has replaced the file; `MirrorTakenError` if another process has written this checkpoint or a later
    one; `MirrorError` if the store is unavailable.
    """
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()
        _check_is_next(bucket, number, digest)
        file.seek(0)
        name = f"checkpoint-{number:012d}-{digest[:16]}.safetensors"
        bucket.put(name, file)
    now = dt.datetime.now(dt.UTC)
    manifest = Manifest(number=number, identity=identity, file=name, size=size, sha256=digest, written=now)
    if not bucket.create(manifest_name(number), manifest.model_dump_json().encode()):
        _check_is_next(bucket, number, digest)
    try:
        _prune(bucket)
    except MirrorError as error:
        log.warning("older checkpoints of the mirror could not be deleted", reason=str(error))


def download(bucket: Bucket, manifest: Manifest, path: Path) -> None:
    """Write a checkpoint to a new file, and flush it to disk.

    Raise `DamagedError` if it is not what was copied; `MirrorError` if the store is unavailable.
    """
    digest, size = hashlib.sha256(), 0
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, PRIVATE)) as file:
        for piece in bucket.stream(manifest.file):
            digest.update(piece)
            size += len(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    if (size, digest.hexdigest()) != (manifest.size, manifest.sha256):
        raise DamagedError(
            f"Expected {manifest.size:,} bytes with the SHA-256 {manifest.sha256}, got {size:,} with "
            f"{digest.hexdigest()} - at {bucket.address}/{manifest.file}"
        )


def _check_is_next(bucket: Bucket, number: int, digest: str) -> None:
    """Raise an error if there is a later checkpoint, or another one of this number."""
    newest = max(manifest_numbers(bucket.names()), default=0)
    if newest > number or (newest == number and read(bucket, number).sha256 != digest):
        raise MirrorTakenError(
            f"Expected no checkpoint after {number - 1}, got {newest}, which another process has written - at "
            f"{bucket.address}; give each process a mirror of its own"
        )


def _prune(bucket: Bucket) -> None:
    """Delete the manifests of older checkpoints, then the files before the newest that no manifest has."""
    names = bucket.names()
    numbers = manifest_numbers(names)
    bucket.delete([manifest_name(number) for number in numbers[:-KEPT]])
    kept = {read(bucket, number).file for number in numbers[-KEPT:]}
    files = [name for name in names if re.fullmatch(r"checkpoint-\d{12}-[0-9a-f]{16}\.safetensors", name)]
    bucket.delete([name for name in files if int(name.split("-")[1]) < numbers[-1] and name not in kept])


def manifest_name(number: int) -> str:
    """Return the name of the object that makes a checkpoint count."""
    return f"checkpoint-{number:012d}.json"


def history(address: str) -> Iterator[Checkpoint]:
    """Yield the checkpoints in a mirror, oldest first, each with the time at which it was copied.

    One at a time is on this disk, in a temporary folder. A run that goes on meanwhile may delete an older one, which
    then has that as its problem. Raise `ImportError` if obstore is not installed; `MirrorError` if the store is
    unavailable, or has no checkpoint there; `ValueError` if the address is none. `address` is an address, such as
    ``s3://bucket/prefix``.
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
