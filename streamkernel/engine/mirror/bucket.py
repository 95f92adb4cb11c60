"""The objects under one address of S3, Google Cloud Storage, Azure or a file system."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, BinaryIO
from urllib.parse import urlsplit

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
