"""The checkpoints under one address of S3, Google Cloud Storage, Azure or a file system, and their manifests."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import structlog
from pydantic import BaseModel, Field, ValidationError

from streamkernel.engine.checkpoint.state_directory import KEPT, PRIVATE, Checkpoint, described

SCHEMES = ("s3", "gs", "az", "file")

CONNECT, ANSWER, RETRIES = timedelta(seconds=5), timedelta(minutes=5), timedelta(seconds=20)
"""Limits of time: until a store accepts a connection, until it has answered a request, and of the library's retries."""

LONGEST_REASON = 300
"""Characters of an error of a store that are shown."""

_SIGNATURE = re.compile(r"(?i)\b(sig|signature|x-amz-[a-z-]+|token)=[^&\s\"']+")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_SECRET_NAME = re.compile(r"(?i)(secret|token|password|account_key|access_key|sas)")


class MirrorError(OSError):
    """A request to the store failed, or what the store has is not what was written."""


class DamagedError(MirrorError):
    """An object is missing, or is not what was written."""


class MirrorTakenError(MirrorError):
    """Another process writes to the same place."""


def check_address(address: str) -> str:
    """Return the address of a mirror.

    Raise `ValueError` if it is none, or has credentials in it, which are read from the environment.

    Examples
    --------
    >>> check_address("s3://bucket/fraud/one")
    's3://bucket/fraud/one'
    """
    parts = urlsplit(address)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("expected an address without credentials and options; they belong into the environment")
    if parts.scheme not in SCHEMES or not (parts.netloc or (parts.scheme == "file" and parts.path)):
        raise ValueError(f'expected "s3://BUCKET/PREFIX", or with gs, az or file, got "{address}"')
    return address.rstrip("/")


def library() -> Any:
    """Return the library that talks to object stores. Raise `ImportError` if it is not installed."""
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise ImportError(
            "Expected obstore, which state.mirror needs, got none; pip install 'streamkernel[objects]'"
        ) from error
    return obstore


class Bucket:
    """Objects under one prefix.

    Credentials and other settings come from the store's usual variables of the environment, or from the machine's role,
    such as ``AWS_ACCESS_KEY_ID``, ``GOOGLE_APPLICATION_CREDENTIALS`` or ``AZURE_STORAGE_ACCOUNT_KEY``. `ImportError` is
    raised if obstore is not installed; `MirrorError` if the address or the settings of the store are wrong. `address`
    is an address, such as ``s3://bucket/prefix``.
    """

    def __init__(self, address: str) -> None:
        self.address = check_address(address)
        self._obstore = library()
        self._errors = exceptions = self._obstore.exceptions
        options: dict[str, Any] = {}
        if self.address.startswith("file:"):
            options = {"mkdir": True}
        else:
            options = {
                "client_options": {"connect_timeout": CONNECT, "timeout": ANSWER, "allow_http": _allows_http()},
                "retry_config": {"max_retries": 4, "retry_timeout": RETRIES},
            }
        try:
            self._store = self._obstore.store.from_url(self.address, **options)
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise self._named(error) from None

    def names(self) -> list[str]:
        """Return the names of all objects, in order."""
        with self._translated():
            return sorted(str(entry["path"]) for part in self._obstore.list(self._store) for entry in part)

    def get(self, name: str) -> bytes:
        """Return an object."""
        with self._translated():
            return bytes(self._obstore.get(self._store, name).bytes())

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield an object in pieces."""
        with self._translated():
            for piece in self._obstore.get(self._store, name):
                yield bytes(piece)

    def put(self, name: str, file: BinaryIO) -> None:
        """Write an object, a large one in parts."""
        with self._translated():
            self._obstore.put(self._store, name, file)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object that does not exist, and return whether it did not.

        A store that cannot do this in one step is asked for the object first.
        """
        with self._translated():
            try:
                self._obstore.put(self._store, name, content, mode="create")
            except self._errors.AlreadyExistsError:
                return False
            except (self._errors.NotSupportedError, NotImplementedError):
                if name in self.names():
                    return False
                self._obstore.put(self._store, name, content)
            return True

    def delete(self, names: list[str]) -> None:
        """Delete objects; that one is gone already is no error."""
        with self._translated():
            for name in names:
                try:
                    self._obstore.delete(self._store, name)
                except FileNotFoundError:
                    continue

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise the errors of the library as a `MirrorError` that names the place and no secret."""
        try:
            yield
        except MirrorError:
            raise
        except FileNotFoundError as error:
            raise DamagedError(f"Expected an object, got none - at {self.address}: {reason(error)}") from None
        except (self._errors.BaseError, OSError, ValueError) as error:
            raise self._named(error) from None

    def _named(self, error: BaseException) -> MirrorError:
        text = reason(error)
        if "builder error" in text and not _allows_http():  # what the library says of http:// without the permission
            text += "; a server without TLS needs AWS_ALLOW_HTTP=true, AZURE_ALLOW_HTTP=true or GOOGLE_ALLOW_HTTP=true"
        return MirrorError(f"Expected an answer of the object store, got an error: {text} - at {self.address}")


def _allows_http() -> bool:
    """Return whether a store may be reached without TLS, as the store's own variables say."""
    names = [f"{store}_ALLOW_HTTP" for store in ("AWS", "AZURE", "GOOGLE")]
    return any(os.environ.get(name, "").lower() in ("true", "1") for name in names)


def reason(error: BaseException, environ: Mapping[str, str] = os.environ) -> str:
    """Return the first line of an error without secrets.

    Examples
    --------
    >>> reason(OSError("403 for ?sig=abc&x=1 with hunter22"), {"AWS_SECRET_ACCESS_KEY": "hunter22"})
    '403 for ?sig=...&x=1 with ...'
    """
    text = _SIGNATURE.sub(r"\1=...", (str(error) or type(error).__name__).strip())
    for name, value in environ.items():
        if len(value) >= 6 and _SECRET_NAME.search(name):
            text = text.replace(value, "...")
    code = _CODE.search(text)
    return text.splitlines()[0][:LONGEST_REASON] + (f" ({code[1]})" if code else "")


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
