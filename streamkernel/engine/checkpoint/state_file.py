"""The objects of a checkpoint as one file: models as tensors, rows as a few arrays, the rest as JSON values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, compress
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
            if (array := arrays.pop(place["array"])).ndim != 1:
                raise ValueError(f"Expected an array of one dimension, got the shape {array.shape}")
            return array
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


_OTHER, _FLOAT, _TABLE = range(3)
_KINDS: dict[type, int] = {float: _FLOAT, dict: _TABLE}


def pack(rows: Iterable[Sequence[Any]], width: int) -> dict[str, Any]:
    """Return rows as arrays.

    The items of all rows form one sequence, and the values of all their tables another one. The floats of a sequence
    are stored in an array, its other values in a JSON text, and the names of tables once. The result is the width, and
    arrays of bytes and floats. An item is ``None``, a bool, an integer, a float, a string or a table of such.

    Examples
    --------
    >>> packed = pack([(7, {"age": 31.5, "town": "Ulm"}), ("x", {"age": float("inf"), "town": None})], width=2)
    >>> unpack(packed)
    [(7, {'age': 31.5, 'town': 'Ulm'}), ('x', {'age': inf, 'town': None})]
    """
    line = list(chain.from_iterable(rows))
    tables = [item for item in line if type(item) is dict]
    names: dict[tuple[Any, ...], int] = {}
    numbers = [names.setdefault((*table, *map(type, table)), len(names)) for table in tables]  # True is no 1
    return {
        "width": width,
        "items": _pack_line(line),
        "values": _pack_line(list(chain.from_iterable(map(dict.values, tables)))),
        "tables": _as_bytes([[both[: len(both) // 2] for both in names], numbers]),
    }


def unpack(packed: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return the rows that :func:`pack` packed. Raise `ValueError` if the parts do not fit together."""
    try:
        names, numbers = json.loads(packed["tables"].tobytes())
        values = iter(_unpack_line(packed["values"], []))
        tables = [dict(zip(names[number], values, strict=False)) for number in numbers]
        line = iter(_unpack_line(packed["items"], tables))
        return list(zip(*[line] * packed["width"], strict=True))
    except (LookupError, TypeError, StopIteration) as error:
        raise ValueError(f"Expected rows that were packed here, got {error!r}") from error


def _pack_line(line: list[Any]) -> dict[str, Any]:
    kinds = np.fromiter((_KINDS.get(kind, _OTHER) for kind in map(type, line)), np.uint8, len(line))
    return {
        "kinds": kinds,
        "floats": np.fromiter(compress(line, (kinds == _FLOAT).tolist()), np.float64),
        "others": _as_bytes(list(compress(line, (kinds == _OTHER).tolist()))),
    }


def _unpack_line(packed: Mapping[str, Any], tables: list[Any]) -> list[Any]:
    others = json.loads(packed["others"].tobytes())
    by_kind = [iter(values) for values in (others, packed["floats"].tolist(), tables)]
    return [next(by_kind[kind]) for kind in packed["kinds"].tolist()]


def _as_bytes(value: Any) -> Any:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)
