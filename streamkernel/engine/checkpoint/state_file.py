"""The objects of a checkpoint as one file: models as tensors, the rest as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from streamkernel import tensor_file
from streamkernel.engine.checkpoint import river_state
from streamkernel.errors import ModelFileError
from streamkernel.estimators import model_file

T = TypeVar("T")


def write(path: Path, kind: str, value: Any, mode: int = 0o666) -> None:
    """Write a value to a file of some kind; `mode` is as for :func:`streamkernel.tensor_file.put`.

    Raise `TypeError` if a part of it cannot be stored; the message names the part; `ModelFileError` if the value could
    not be read again; the file is as before.
    """
    models: list[Any] = []
    tensors: dict[str, Any] = {}
    description = {"state": river_state.encode(value, hook=_collector(models, tensors))}
    described = []
    for i, model in enumerate(models):
        what, arrays = model_file.describe(model)
        described.append(what)
        tensors.update({f"{i}/{name}": array for name, array in arrays.items()})

    def read_again(text: Any, arrays: Mapping[str, Any], where: str) -> None:
        rebuild(text, arrays, where, type(value))

    tensor_file.write(path, kind, description | {"models": described}, tensors, mode, read_again)


def read(path: Path, kind: str) -> dict[str, Any]:
    """Return the table in a file that :func:`write` wrote. Raise `ModelFileError` if it cannot be read."""
    return rebuild(*tensor_file.read(path, kind), str(path), dict)


def rebuild(description: Any, tensors: Mapping[str, Any], where: str, kind: type[T]) -> T:
    """Return the value of a description and tensors that :func:`write` wrote, of the expected type.

    Raise `ModelFileError` if they do not fit together, or the value is of another type.
    """
    arrays: dict[str, Any] = {}
    by_model: dict[str, dict[str, Any]] = {}
    for name, array in tensors.items():
        model, slash, tensor = name.partition("/")
        (by_model.setdefault(model, {}) if slash else arrays)[tensor or model] = array

    def rebuild_place(place: Any) -> Any:
        if "array" in place:
            return arrays.pop(place["array"])
        i = int(place["model"])
        return model_file.rebuild(models.pop(i), by_model.get(str(i), {}), where)

    try:
        with tensor_file.enough_memory(where):
            models = dict(enumerate(description["models"]))  # each is built once: others refer to it
            value = river_state.decode(description["state"], hook=rebuild_place)
    except (KeyError, TypeError) as error:
        raise ModelFileError(f"Expected a readable state, got {error!r} - in {where}") from error
    except ModelFileError:
        raise
    except ValueError as error:
        raise ModelFileError(f"Expected a readable state, got {error} - in {where}") from error
    if not isinstance(value, kind):
        raise ModelFileError(f"Expected a {kind.__name__}, got a {type(value).__name__} - in {where}")
    return value


def _collector(models: list[Any], arrays: dict[str, Any]) -> Any:
    def hook(thing: object) -> dict[str, Any] | None:
        if isinstance(thing, model_file.Serializable):
            models.append(thing)
            return {"model": len(models) - 1}
        if type(thing) is np.ndarray and thing.ndim == 1 and thing.dtype in (np.float64, np.uint8):
            arrays[name := f"array {len(arrays)}"] = thing
            return {"array": name}
        return None

    return hook
