"""Model files: safetensors, with a JSON description in the header. Reading one executes nothing of its content."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from streamkernel import kernels, losses, rules, steps
from streamkernel.errors import ModelFileError
from streamkernel.features import Directions, Rows

if TYPE_CHECKING:
    from streamkernel.estimator import KernelModel

FORMAT = "streamkernel"
VERSION = 1

Tensors = dict[str, Any]

_PARTS = {
    name: getattr(module, name) for module in (kernels, losses, rules, steps) for name in module.__all__
}


def save(model: KernelModel, path: Path) -> None:
    """Write `model` to `path` in one piece."""
    description, tensors = describe(model)
    write(path, "model", description, tensors)


def load(path: str | Path) -> KernelModel:
    """Read a model that was written by its ``save``.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    KernelModel
        The classifier or regressor; its predictions, and what it learns next, have the same bits as the original's.

    Raises
    ------
    ModelFileError
        If the file is truncated or corrupt, is of another format version, or holds no model.
    FileNotFoundError
        If there is no such file.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from streamkernel import KernelClassifier, load
    >>> model = KernelClassifier()
    >>> model.learn_one({"x": 1.0}, "yes")
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     model.save(pathlib.Path(directory) / "model.safetensors")
    ...     twin = load(pathlib.Path(directory) / "model.safetensors")
    >>> twin.predict_one({"x": 1.0})
    'yes'
    """
    return rebuild(*read(Path(path), "model"), where=str(path))


def describe(model: KernelModel) -> tuple[dict[str, Any], Tensors]:
    """Return what `model` is, as JSON values and as tensors."""
    parameters = {name: _encoded(value) for name, value in model._get_params().items()}
    return {
        "class": type(model).__name__,
        "parameters": parameters,
        "state": model._description(),
    }, model._tensors()


def rebuild(description: Mapping[str, Any], tensors: Tensors, where: str) -> KernelModel:
    """Return the model that :func:`describe` described.

    Raises
    ------
    ModelFileError
        If it is no model of this library, or its parts do not fit together.
    """
    from streamkernel import KernelClassifier, KernelRegressor

    classes: dict[str, type[KernelModel]] = {c.__name__: c for c in (KernelClassifier, KernelRegressor)}
    found = description.get("class")
    if found not in classes:
        raise ModelFileError(f"Expected a model of class {' or '.join(classes)}, got {found!r} - in {where}")
    try:
        model = classes[found](**{name: _decoded(value) for name, value in description["parameters"].items()})
        model._restore(description["state"], tensors)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ModelFileError(f"Expected the parts of a {found}, got {error} - in {where}") from error
    return model


def write(path: Path, kind: str, description: Mapping[str, Any], tensors: Tensors) -> None:
    """Write a file beside `path`, make it durable, and put it in the place of `path`."""
    text = orjson.dumps(description)
    header = {"format": FORMAT, "version": str(VERSION), "kind": kind, "description": text.decode()}
    header["checksum"] = _checksum(header, tensors)
    draft = path.with_name(f".{path.name}.draft")
    try:
        save_file(tensors, draft, header)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read(path: Path, kind: str) -> tuple[dict[str, Any], Tensors]:
    """Return the description and the tensors of a file that :func:`write` wrote.

    Raises
    ------
    ModelFileError
        If the file is truncated, corrupt, of another version or of another kind.
    """
    if not path.is_file():
        raise FileNotFoundError(f"Expected a {kind} file, found none - at {path}")
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
            if header.get("kind") != kind:
                raise ModelFileError(f"Expected a {kind}, got a {header.get('kind')!r} - at {path}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ModelFileError(
            f"Expected a whole safetensors file, got a truncated or corrupt one ({error}) - at {path}"
        ) from error
    if header.pop("checksum", None) != _checksum(header, tensors):
        raise ModelFileError(f"Expected the content to match its checksum, got a corrupt file - at {path}")
    return orjson.loads(header["description"]), tensors


def pack_examples(name: str, examples: Sequence[tuple[Rows, float]]) -> Tensors:
    """Return examples with their targets as tensors; their names are kept as hashes."""
    if not examples:
        return {f"{name}.targets": np.zeros(0)}
    rows = Rows.stack([row for row, _ in examples])
    return {
        f"{name}.targets": np.array([target for _, target in examples]),
        f"{name}.start": rows.start,
        f"{name}.hashes": rows.hashes.view(np.int64),
        f"{name}.values": rows.values,
    }


def unpack_examples(
    name: str, tensors: Mapping[str, Any], directions: Directions
) -> list[tuple[Rows, float]] | None:
    """Return what :func:`pack_examples` packed under `name`; ``None`` if nothing was."""
    targets = tensors.get(f"{name}.targets")
    if targets is None or not len(targets):
        return None if targets is None else []
    rows = directions.restored(
        tensors[f"{name}.start"], tensors[f"{name}.hashes"].view(np.uint64), tensors[f"{name}.values"]
    )
    return [(rows.part(i, i + 1), float(target)) for i, target in enumerate(targets)]


def _checksum(header: Mapping[str, str], tensors: Tensors) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(header):
        digest.update(f"{name}={header[name]}\0".encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tensor.shape}\0".encode())
        digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()


def _encoded(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {"type": type(value).__name__, **dataclasses.asdict(value)}  # type: ignore[arg-type]
    return value


def _decoded(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    found = _PARTS.get(value.get("type", ""))
    if not dataclasses.is_dataclass(found):
        raise ValueError(f"a part of unknown type {value.get('type')!r}")
    return found(**{name: part for name, part in value.items() if name != "type"})  # type: ignore[operator]
