"""Files of tensors with a JSON description: safetensors, durable, checked, and never executed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from streamkernel.errors import ModelFileError

FORMAT = "streamkernel"
VERSION = 1

Tensors = dict[str, Any]


def write(
    path: Path,
    kind: str,
    description: Mapping[str, Any],
    tensors: Tensors,
    mode: int = 0o666,
    rebuild: Callable[[Any, Tensors, str], Any] | None = None,
) -> None:
    """Write a file durably; a reader finds either the old or the new file.

    `mode` is as for :func:`put`. `rebuild` is the reader of a description, tensors and the name of their file; it is
    tried before the file is written. Raise a ModelFileError if a reader would refuse the content (what was there is
    still there), an OSError if the file cannot be written.
    """
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}  # safetensors does not
    text = json.dumps(description, default=lambda number: number.item())  # numpy's scalars
    if rebuild is not None:
        try:
            rebuild(json.loads(text), tensors, str(path))
        except ModelFileError as error:
            raise ModelFileError(f"nothing was written, because it could not be read again: {error}") from error
    header = {"format": FORMAT, "version": str(VERSION), "kind": kind, "description": text}
    header["checksum"] = checksum(header, tensors)
    put(path, save(tensors, header), mode)


def put(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file beside `path`, make it durable, and rename it to `path`.

    A symbolic link in its place is replaced, and none is followed. `mode` are its permissions, without the ones that
    the umask takes away. Raise an OSError with the path if it cannot be written; what was there is still there.
    """
    draft = path.with_name(f".{path.name}.draft")
    try:
        draft.unlink(missing_ok=True)  # of a process that was killed
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        move(draft, path)
    except OSError as error:
        error.filename = str(path)  # a full disk does not say which file is meant
        raise
    finally:
        draft.unlink(missing_ok=True)


def move(old: Path, new: Path) -> None:
    """Rename a file to another path, durably."""
    old.replace(new)
    directory = os.open(new.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def enough_memory(where: str) -> Iterator[None]:
    """Raise an error that names the file if it needs more memory than there is."""
    try:
        yield
    except MemoryError as error:
        raise ModelFileError(
            f"Expected enough memory to read the file, which may be whole, got {error!r} - in {where}"
        ) from error


def read(path: Path, *kinds: str) -> tuple[dict[str, Any], Tensors]:
    """Return the description and the tensors of a file that :func:`write` wrote as one of these kinds.

    Raise a ModelFileError if the file is truncated, corrupt, of another version or of another kind.
    """
    if not path.is_file():
        raise FileNotFoundError(f"Expected a {kinds[0]} file, found none - at {path}")
    path.open("rb").close()  # why a file cannot be opened is not in safetensors' error
    try:
        with enough_memory(str(path)), safe_open(path, "np") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise ModelFileError(f"Expected a {FORMAT} file, got another safetensors file - at {path}")
            if header.get("version") != str(VERSION):
                raise ModelFileError(
                    f"Expected format version {VERSION}, got {header.get('version')!r} - at {path}; "
                    "it was written by another release of streamkernel"
                )
            if header.get("kind") not in kinds:
                raise ModelFileError(f"Expected a {kinds[0]}, got a {header.get('kind')!r} - at {path}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, TypeError, AttributeError) as error:  # the last two: numbers that numpy does not have
        raise ModelFileError(
            f"Expected a complete safetensors file, got a truncated or corrupt one ({error}) - at {path}"
        ) from error
    try:
        with enough_memory(str(path)):
            if header.pop("checksum", None) != checksum(header, tensors):
                raise ModelFileError(f"Expected the content to match its checksum, got a corrupt file - at {path}")
            return json.loads(header["description"]), tensors
    except ModelFileError:
        raise
    except (KeyError, ValueError, RecursionError) as error:
        raise ModelFileError(f"Expected a JSON description, got {error!r} - at {path}") from error


def version_of(path: Path) -> str:
    """Return the version of the format that a file says it has, ``"?"`` if it says none."""
    try:
        with safe_open(path, "np") as file:
            return str((file.metadata() or {}).get("version", "?"))
    except SafetensorError:
        return "?"


def require_tensor(tensors: Mapping[str, Any], name: str, kind: Any, shape: tuple[int | None, ...]) -> Any:
    """Return a named tensor, if it has the type and shape (``None`` for any length) and is finite.

    Raise a ValueError if it is not, or is missing.
    """
    tensor = tensors.get(name)
    fits = (
        tensor is not None
        and tensor.dtype == kind
        and tensor.ndim == len(shape)
        and all(want in (None, got) for want, got in zip(shape, tensor.shape, strict=True))
        and bool(np.isfinite(tensor).all())
    )
    if not fits:
        got = "none" if tensor is None else f"{tensor.dtype} of shape {tensor.shape}"
        raise ValueError(f"expected finite {np.dtype(kind)} of shape {shape} as {name}, got {got}")
    return tensor


def checksum(header: Mapping[str, str], tensors: Tensors) -> str:
    """Return the checksum of a header and its tensors."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(header):
        digest.update(f"{name}={header[name]}\0".encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tensor.shape}\0".encode())
        digest.update(np.ascontiguousarray(tensor).data)
    return digest.hexdigest()
