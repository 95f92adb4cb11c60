"""The objects of a checkpoint as one file: models as tensors, the rest as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from streamkernel import tensor_file
from streamkernel.engine.checkpoint import river_state
from streamkernel.errors import ModelFileError
from streamkernel.estimators import model_file


def write(path: Path, kind: str, value: Any, mode: int = 0o666) -> None:
    """Write a value to a file of some kind; `mode` is as for :func:`streamkernel.estimators.tensor_file.put`.

    Raises
    ------
    TypeError
        If a part of it cannot be stored; the message names the part.
    """
    models: list[Any] = []
    tensors: dict[str, Any] = {}
    description = {"state": river_state.encode(value, hook=_collector(models, tensors))}
    described = []
    for i, model in enumerate(models):
        what, arrays = model_file.describe(model)
        described.append(what)
        tensors.update({f"{i}/{name}": array for name, array in arrays.items()})
    tensor_file.write(path, kind, description | {"models": described}, tensors, mode)


def rebuild(description: Mapping[str, Any], tensors: Mapping[str, Any], where: str) -> Any:
    """Return the value of a description and tensors that :func:`write` wrote.

    Raises
    ------
    ModelFileError
        If they do not fit together.
    """

    def rebuild_place(place: Any) -> Any:
        if "array" in place:
            return tensors[place["array"]]
        i = int(place["model"])
        own = {name.split("/", 1)[1]: array for name, array in tensors.items() if name.startswith(f"{i}/")}
        return model_file.rebuild(description["models"][i], own, where)

    try:
        return river_state.decode(description["state"], hook=rebuild_place)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ModelFileError(f"Expected a readable state, got {error} - in {where}") from error


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
