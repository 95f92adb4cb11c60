"""Model files: safetensors, with a JSON description in the header. Reading one executes nothing of its content."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from streamkernel import kernels, losses, rules, step_sizes, upkeep
from streamkernel.errors import ModelFileError
from streamkernel.features.directions import Directions
from streamkernel.features.rows import F64, Rows
from streamkernel.kernels.stationary import Stationary

FORMAT = "streamkernel"
VERSION = 3

Tensors = dict[str, Any]

_PARTS: dict[str, dict[str, Any]] = {
    parameter: {name: found for name in module.__all__ if dataclasses.is_dataclass(found := vars(module).get(name))}
    for parameter, module in (
        ("kernel", kernels),
        ("loss", losses),
        ("rule", rules),
        ("step", step_sizes),
        ("compaction", upkeep),
        ("polish", upkeep),
    )
}
"""The classes that may stand for a parameter in a description."""


class Portable:
    """A River estimator that can be told as its parameters, a JSON description and tensors."""

    def save(self, path: str | Path) -> None:
        """Write the model to one file: safetensors with a JSON description, no direction and no code.

        Parameters
        ----------
        path
            The file; it is replaced in one piece.
        """
        write(Path(path), "model", *describe(self))

    def _described(self) -> tuple[dict[str, Any], Tensors]:
        """Return what the model is apart from its parameters, JSON values and kernels, and what it has learned.

        Both are of one moment, and share nothing with the model.
        """
        raise NotImplementedError

    def _restore(self, description: Mapping[str, Any], tensors: Tensors) -> None:
        """Take over what a model with the same parameters described."""
        raise NotImplementedError

    def _get_params(self) -> dict[str, Any]:
        return super()._get_params()  # type: ignore[misc, no-any-return]  # River's

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickle keeps: the same as a model file."""
        description, tensors = self._described()
        return {"parameters": self._get_params(), "description": description, "tensors": tensors}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Rebuild the model from what pickle kept."""
        self.__init__(**state["parameters"])  # type: ignore[misc]
        self._restore(state["description"], state["tensors"])


def describe(model: Portable) -> tuple[dict[str, Any], Tensors]:
    """Return what `model` is, as JSON values and as tensors."""
    description, tensors = model._described()
    found = {"class": type(model).__name__, "parameters": model._get_params(), "state": description}
    return _encoded(found), tensors


def rebuild(description: Mapping[str, Any], tensors: Tensors, where: str) -> Any:
    """Return the model that :func:`describe` described.

    Raises
    ------
    ModelFileError
        If it is no model of this library, or its parts do not fit together.
    """
    import streamkernel

    estimators = (getattr(streamkernel, name) for name in streamkernel.__all__)
    classes = {c.__name__: c for c in estimators if isinstance(c, type) and issubclass(c, Portable)}
    found = description.get("class") if isinstance(description, dict) else None
    if not isinstance(found, str) or found not in classes:
        raise ModelFileError(f"Expected a model of class {' or '.join(classes)}, got {found!r} - in {where}")
    try:
        parameters, state = (_decoded(name, description[name]) for name in ("parameters", "state"))
        model = classes[found](**parameters)
        model._restore(state, tensors)
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        OverflowError,
        MemoryError,
        RecursionError,
    ) as error:
        raise ModelFileError(f"Expected the parts of a {found}, got {error} - in {where}") from error
    return model


def write(path: Path, kind: str, description: Mapping[str, Any], tensors: Tensors, mode: int = 0o666) -> None:
    """Write a file and make it durable; a reader finds the whole file, or the one before it. `mode` is as for `put`."""
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}  # safetensors does not
    text = json.dumps(description, default=lambda number: number.item())  # numpy's scalars
    header = {"format": FORMAT, "version": str(VERSION), "kind": kind, "description": text}
    header["checksum"] = _checksum(header, tensors)
    put(path, save(tensors, header), mode)


def put(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file beside `path`, make it durable, and put it in the place of `path`.

    Parameters
    ----------
    path
        The file. A symbolic link in its place is replaced, and none is followed.
    content
        What is to be in it.
    mode
        Its permissions, less those that the umask takes away.

    Raises
    ------
    OSError
        If it cannot be written, with the path; what was there is still there.
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
    """Put a file in the place of another one, durably."""
    old.replace(new)
    directory = os.open(new.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read(path: Path, *kinds: str) -> tuple[dict[str, Any], Tensors]:
    """Return the description and the tensors of a file of one of these kinds that :func:`write` wrote.

    Raises
    ------
    ModelFileError
        If the file is truncated, corrupt, of another version or of another kind.
    """
    if not path.is_file():
        raise FileNotFoundError(f"Expected a {kinds[0]} file, found none - at {path}")
    try:
        with safe_open(path, "np") as file:
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
            f"Expected a whole safetensors file, got a truncated or corrupt one ({error}) - at {path}"
        ) from error
    if header.pop("checksum", None) != _checksum(header, tensors):
        raise ModelFileError(f"Expected the content to match its checksum, got a corrupt file - at {path}")
    try:
        return json.loads(header["description"]), tensors
    except (KeyError, ValueError, RecursionError) as error:
        raise ModelFileError(f"Expected a JSON description, got {error!r} - at {path}") from error


def kernel_in(description: Mapping[str, Any], wanted: kernels.Kernel) -> kernels.Kernel:
    """Return the described kernel, if it is `wanted` with its pending bandwidths as numbers.

    Raises
    ------
    ValueError
        If it is another kernel; the sizes of its parts would not fit when the next bandwidth is taken.
    """
    found = description["kernel"]
    if not _is_with_bandwidths(found, wanted):
        raise ValueError(f"expected {wanted!r} with bandwidths as the kernel in use, got {found!r}")
    return found  # type: ignore[no-any-return]


def pack_examples(name: str, examples: Sequence[tuple[Rows, float | F64]]) -> Tensors:
    """Return examples with their targets, single ones or many, as tensors; their names are kept as hashes."""
    if not examples:
        return {f"{name}.targets": np.zeros(0)}
    rows = Rows.stack([row for row, _ in examples])
    return {
        f"{name}.targets": np.hstack([target for _, target in examples]).astype(np.float64),
        f"{name}.start": rows.start,
        f"{name}.hashes": rows.hashes.view(np.int64),
        f"{name}.readers": rows.readers,
        f"{name}.values": rows.values,
    }


def require_tensor(tensors: Mapping[str, Any], name: str, kind: Any, shape: tuple[int | None, ...]) -> Any:
    """Return the tensor of a name, if it is of the type and shape (``None`` for any length) and finite.

    Raises
    ------
    ValueError
        If it is not, or is missing.
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


def unpack_examples(name: str, tensors: Mapping[str, Any], directions: Directions) -> list[tuple[Rows, float]] | None:
    """Return what :func:`pack_examples` packed under `name`; ``None`` if nothing was.

    Raises
    ------
    ValueError
        If the tensors do not fit together.
    """
    if f"{name}.targets" not in tensors:
        return None
    targets = require_tensor(tensors, f"{name}.targets", np.float64, (None,))
    if not len(targets):
        return []
    start = require_tensor(tensors, f"{name}.start", np.int64, (len(targets) + 1,))
    values = require_tensor(tensors, f"{name}.values", np.float64, (None,))
    hashes = require_tensor(tensors, f"{name}.hashes", np.int64, (len(values),))
    readers = require_tensor(tensors, f"{name}.readers", np.int64, (len(values),))
    if start[0] != 0 or start[-1] != len(values) or (np.diff(start) < 0).any():
        raise ValueError(f"expected rows that follow each other as {name}.start, got {start.tolist()[:9]}")
    rows = directions.restore_rows(start, hashes.view(np.uint64), readers, values)
    return [(rows.part(i, i + 1), float(target)) for i, target in enumerate(targets)]


def _is_with_bandwidths(found: Any, wanted: Any) -> bool:
    if not isinstance(wanted, kernels.Kernel) or type(found) is not type(wanted):
        return bool(found == wanted)
    if isinstance(wanted, Stationary) and isinstance(found, Stationary) and wanted.is_pending:
        return bool(found.pending(wanted.multiple) == wanted)
    names = [field.name for field in dataclasses.fields(wanted)]  # type: ignore[arg-type]  # all kernels are
    return all(_is_with_bandwidths(getattr(found, name), getattr(wanted, name)) for name in names)


def _checksum(header: Mapping[str, str], tensors: Tensors) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(header):
        digest.update(f"{name}={header[name]}\0".encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tensor.shape}\0".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def _encoded(value: Any) -> Any:
    """Return a kernel, a loss, a rule or a step as a table with its ``type``, and JSON values as they are."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: _encoded(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, dict):
        return {name: _encoded(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_encoded(item) for item in value]
    if callable(value):
        raise ValueError(f"Expected a transform by its name in a model that is written to a file, got {value!r}")
    return value


def _decoded(name: str, value: Any) -> Any:
    """Return what :func:`_encoded` told of the parameter called `name`."""
    if not isinstance(value, dict):
        return value
    if "type" not in value:
        return {key: _decoded(key, part) for key, part in value.items()}
    found = _PARTS.get(name, _PARTS["kernel"]).get(str(value.get("type")))
    if found is None:
        raise ValueError(f"a {name} of unknown type {value.get('type')!r}")
    return found(**{key: _decoded(key, part) for key, part in value.items() if key != "type"})


def pack_hashes(name: str, hashes: Iterable[int]) -> Tensors:
    """Return a set of hashes as a tensor; nothing if there is none."""
    found = np.array(sorted(hashes), np.uint64).view(np.int64)
    return {name: found} if len(found) else {}


def unpack_hashes(name: str, tensors: Mapping[str, Any]) -> frozenset[int]:
    """Return what :func:`pack_hashes` returned.

    Raises
    ------
    ValueError
        If the tensor does not fit.
    """
    if name not in tensors:
        return frozenset()
    return frozenset(require_tensor(tensors, name, np.int64, (None,)).view(np.uint64).tolist())
