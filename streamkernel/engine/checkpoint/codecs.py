"""Codecs of objects: the parts from which an object is restored, or its attributes."""

from __future__ import annotations

import datetime as dt
import functools
import math
import operator
import random
import types
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from river import base, compose
from river.imblearn.hard_sampling import Triplet
from river.utils import VectorDict

from streamkernel.engine.checkpoint.allowlist import COMPILED, full_name, method, name_of, wrapped_model
from streamkernel.errors import is_count
from streamkernel.field_types import Fields

T = TypeVar("T")

_DTYPE_KINDS = "biufcmMUS"
MOST_EMPTY_ROWS = 1 << 20
"""Rows of an array without entries, which take no memory until they become a list."""
_BIT_GENERATORS = {
    kind.__name__: kind
    for kind in (np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64)
}

_CACHES = {name: value for name, value in vars(compose.Pipeline()).items() if name != "steps"}


class Codec(NamedTuple):
    """How objects of one type are stored."""

    tag: str
    take_apart: Callable[[Any], Sequence[Any]]
    put_together: Callable[..., Any]


def kind_of(obj: Any) -> Codec | None:
    """Return the codec of an object, or ``None`` if it has none.

    Examples
    --------
    >>> kind = kind_of(np.arange(3.0))
    >>> kind.tag, kind.put_together(*kind.take_apart(np.arange(3.0)))
    ('array', array([0., 1., 2.]))
    """
    return _BY_TYPE.get(np.generic if isinstance(obj, np.generic) else type(obj))


def attributes(obj: Any) -> dict[str, Any]:
    """Return the attributes of an instance that are stored.

    Examples
    --------
    >>> from river import preprocessing
    >>> list(attributes(preprocessing.Normalizer(order=1)))
    ['order']
    """
    slots = [name for kind in type(obj).__mro__ for name in vars(kind).get("__slots__", ())]
    state = {name: getattr(obj, name) for name in slots if is_attribute(name) and hasattr(obj, name)}
    state.update(getattr(obj, "__dict__", {}))
    if type(obj) is compose.Pipeline:  # it caches results of its steps, which are computed again
        state = {"steps": obj.steps, **_CACHES}
    return state


def check_steps(made: Any) -> None:
    """Raise a TypeError if the parts of a pipeline, a union or a wrapper are not objects of River or of ours."""
    parts: Any = {}
    if isinstance(made, compose.Pipeline):
        parts = made.steps
        vars(made).update(_CACHES)
    elif isinstance(made, compose.TransformerUnion):
        parts = made.transformers
    elif isinstance(made, base.Wrapper):
        parts = {"": wrapped_model(made)}
    for name, part in parts.items():
        if not (isinstance(name, str) and isinstance(part, base.Base)):
            raise TypeError(f"Expected River's objects in a {type(made).__name__}, got a {type(part).__name__}")


def is_attribute(name: str) -> bool:
    """Return whether a file may set an attribute of this name; names such as ``__class__`` it may not."""
    return name.isidentifier() and not (name.startswith("__") and name.endswith("__"))


def require(kind: type[T], part: Any) -> T:
    """Return a part, or raise a TypeError for one of another type, which a constructor might read without end."""
    if type(part) is not kind:
        raise TypeError(f"Expected a {kind.__name__}, got a {type(part).__name__}")
    return part


def _array_parts(array: np.ndarray[Any, Any]) -> Sequence[Any]:
    order: Literal["C", "F"] = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    return _dtype(array.dtype.str).str, list(array.shape), order, array.tobytes(order)


def _array(dtype: str, shape: list[int], order: Any, data: bytes) -> np.ndarray[Any, Any]:
    kind = _dtype(dtype)
    if not all(is_count(n, 0) for n in require(list, shape)):
        raise ValueError(f"Expected the shape of an array, got {shape}")
    if kind.itemsize == 0 and shape:  # NumPy makes it 1
        raise ValueError(f"Expected entries that take memory in an array, got {dtype}")
    if (size := math.prod(shape) * kind.itemsize) != len(data):
        raise ValueError(f"Expected {size} bytes of an array, got {len(data)}")
    if not size and math.prod(filter(None, shape)) > MOST_EMPTY_ROWS:
        raise ValueError(f"Expected an array with entries, got the shape {shape}")
    return np.ndarray(shape, kind, bytearray(data) or None, order=order).copy(order="K")


def _dtype(name: str) -> np.dtype[Any]:
    dtype = np.dtype(require(str, name))
    if dtype.kind not in _DTYPE_KINDS:
        raise TypeError(f"cannot store an array of dtype {name}")
    return dtype


def _scalar(dtype: str, data: bytes) -> Any:
    return _array(dtype, [], "C", data)[()]


def _random(state: tuple[Any, ...]) -> random.Random:
    made = random.Random()
    made.setstate(require(tuple, state))
    return made


def _random_state(state: dict[str, Any]) -> np.random.RandomState:
    made = np.random.RandomState(_bit_generator(state))
    made.set_state(state)
    return made


def _bit_generator(state: Any) -> np.random.BitGenerator:
    kind = _BIT_GENERATORS.get(require(dict, state)["bit_generator"])
    if kind is None:
        raise ValueError(f"Expected a bit generator of NumPy, got {state['bit_generator']!r}")
    made = kind()
    made.state = state
    return made


def _partial(function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> functools.partial[Any]:
    if name_of(function) is None:
        raise TypeError(f"Expected an allowed function in a partial, got a {type(function).__name__}")
    return functools.partial(function, *require(tuple, args), **require(dict, keywords))


def _vector(values: Any, factory: Any, mask: Any) -> VectorDict[Any, Any]:
    return VectorDict(require(dict, values), factory, None if mask is None else require(list, mask))


def _method_parts(bound: types.MethodType) -> Sequence[Any]:
    try:
        is_listed = method(bound.__self__, bound.__name__) == bound
    except ValueError:
        is_listed = False
    if not is_listed:
        raise TypeError(f"cannot store the method {bound.__qualname__}")
    return bound.__self__, bound.__name__


def _time_parts(moment: dt.datetime) -> Sequence[Any]:
    text = moment.isoformat()
    if moment.fold or type(moment.tzinfo) not in (type(None), dt.timezone):
        raise TypeError(f"cannot store the time zone of {text}")
    return (text,)


def _compiled_parts(obj: Any) -> Sequence[Any]:
    arguments = tuple(obj.__getnewargs__()) if hasattr(obj, "__getnewargs__") else ()
    return full_name(type(obj)), arguments, obj.__getstate__()


def _restore_compiled(name: str, arguments: tuple[Any, ...], state: bytes) -> Any:
    if name not in COMPILED:
        raise ValueError(f'"{name}" is not a class allowed in a checkpoint')
    least = [min(one, 1) if type(one) is int else one for one in require(tuple, arguments)]
    try:
        made = COMPILED[name](*least)  # a window has memory for as many values as it is long
        made.__setstate__(state)
        whole = _compiled_parts(made) == (name, arguments, state)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        whole = False
    if not whole:
        raise ValueError(f"Expected the {len(state)} bytes that a {name} wrote, got others")
    return made


_KINDS: list[tuple[type, Codec]] = [
    (tuple, Codec("tuple", list, lambda *items: items)),
    (frozenset, Codec("frozenset", lambda members: sorted(members, key=repr), lambda *items: frozenset(items))),
    (range, Codec("range", lambda r: (r.start, r.stop, r.step), range)),
    (dt.datetime, Codec("datetime", _time_parts, dt.datetime.fromisoformat)),
    (dt.date, Codec("date", lambda day: (day.isoformat(),), dt.date.fromisoformat)),
    (dt.timedelta, Codec("timedelta", lambda d: (d.days, d.seconds, d.microseconds), dt.timedelta)),
    (np.ndarray, Codec("array", _array_parts, _array)),
    (np.generic, Codec("scalar", lambda x: (_dtype(x.dtype.str).str, x.tobytes()), _scalar)),
    (random.Random, Codec("Random", lambda rng: (rng.getstate(),), _random)),
    (np.random.RandomState, Codec("RandomState", lambda rng: (rng.get_state(legacy=False),), _random_state)),
    (
        np.random.Generator,
        Codec(
            "Generator",
            lambda rng: (rng.bit_generator.state,),
            lambda state: np.random.Generator(_bit_generator(state)),
        ),
    ),
    (functools.partial, Codec("partial", lambda p: (p.func, p.args, p.keywords), _partial)),
    (operator.itemgetter, Codec("itemgetter", lambda get: get.__reduce__()[1], operator.itemgetter)),
    (Fields, Codec("Fields", lambda fields: (fields.state(),), Fields.of_state)),
    (types.MethodType, Codec("method", _method_parts, method)),
    (Triplet, Codec("Triplet", list, Triplet)),
    (VectorDict, Codec("VectorDict", lambda v: v.__reduce__()[1][:3], _vector)),
    *((kind, Codec("compiled", _compiled_parts, _restore_compiled)) for kind in COMPILED.values()),
]
_BY_TYPE = dict(_KINDS)
BY_TAG = {kind.tag: kind for _, kind in _KINDS}
