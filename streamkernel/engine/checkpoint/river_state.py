"""River's objects as JSON values and back, exactly, without executing stored content.

Plain values are stored as they are, anything else as a table with one tag: ``{"tuple": [1, 2]}``. An object is stored
as the name of its class and its attributes, and only classes and functions from a fixed list can be named
(`allowlist.py`). Every list, table and object gets the next number at its first occurrence; further occurrences are
stored as ``{"ref": number}``, so shared objects are shared again.
"""

from __future__ import annotations

import collections
import math
import types
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from streamkernel.engine.checkpoint.allowlist import class_named, full_name, is_plain, name_of, object_named
from streamkernel.engine.checkpoint.codecs import BY_TAG, attributes, check_steps, is_attribute, kind_of

Json = Any
Hook = Callable[[Any], Any]

_MAPPINGS = {
    "dict": dict,
    "OrderedDict": collections.OrderedDict,
    "Counter": collections.Counter,
    "defaultdict": collections.defaultdict,
}
_TAG_OF_MAPPING = {kind: tag for tag, kind in _MAPPINGS.items()}

FREE, SHARED = 1_000_000, 100
"""Values that references may stand for, in total and for each value that is stored, with references in them followed:
to hash a tuple, or to show it, takes a step for each.
"""

DEEPEST = 1000
"""The depth of values with references followed: to hash a tuple, the stack has an entry for each tuple in it."""

LONG = 64
"""Characters of a text that count as a value."""

ALIKE = 100
"""Keys of one hash in a collection: to add one, each of them is compared."""

_UNFINISHED = object()


def encode(obj: Any, hook: Hook | None = None) -> Json:
    """Return an object as a JSON value.

    `hook` is called with every object that is not plain. Its result, unless ``None``, must be a JSON value, which is
    stored in place of the object. Raise `TypeError` if a part of the object cannot be stored; the message names it.

    Examples
    --------
    >>> from river import stats
    >>> encode(stats.Sum())
    {'class': 'river.stats.summing.Sum', 'state': {'sum': 0.0}}
    >>> encode({"f": print})
    Traceback (most recent call last):
    TypeError: at f: cannot store a builtin_function_or_method
    """
    encoder = _Encoder(hook)
    try:
        return encoder.value(obj)
    except RecursionError:
        raise TypeError(f"at {encoder.place()}: cannot store values that are nested so deeply") from None


def decode(value: Json, hook: Hook | None = None) -> Any:
    """Return the object that a JSON value encodes.

    Raise `ValueError` if the value was not made by `encode`, or names a class or function that is not allowed. `value`
    is the result of `encode`. `hook` is given what the hook of `encode` returned, and returns the object.

    Examples
    --------
    >>> from river import stats
    >>> mean = stats.Mean()
    >>> mean.update(3.5)
    >>> decode(encode(mean)).get()
    3.5
    >>> decode({"class": "subprocess.Popen", "state": {}})
    Traceback (most recent call last):
    ValueError: "subprocess.Popen" is not a class allowed in a checkpoint
    """
    try:
        return _Decoder(hook).value(value)
    except (ValueError, MemoryError):
        raise
    except Exception as error:  # of a constructor of Python, NumPy or River that was given other parts
        raise ValueError(f"Expected a value that was written by encode: {error}") from error


class _Encoder:
    def __init__(self, hook: Hook | None) -> None:
        self._hook = hook
        self._path: list[str] = []
        self._met: dict[int, tuple[int, Any]] = {}  # the object is held, so that its id is not used again
        self._unfinished: set[int] = set()

    def place(self) -> str:
        return "".join(self._path).removeprefix(".") or "the top"

    def value(self, obj: Any) -> Json:
        kind = type(obj)
        if obj is None or kind is bool:
            return obj
        if kind is int:
            return obj if -(1 << 63) <= obj < 1 << 63 else {"int": hex(obj)}
        if kind is float:
            return obj if math.isfinite(obj) else {"float": repr(obj)}
        if kind is str:
            return obj if _is_unicode(obj) else {"str": _base64(obj.encode("utf-8", "surrogatepass"))}
        if kind is bytes:
            return {"bytes": _base64(obj)}
        name = name_of(obj)
        if name is not None:
            return {"name": name}
        if id(obj) in self._unfinished:
            raise TypeError(f"at {self.place()}: cannot store a {kind.__name__} that contains itself")
        if id(obj) in self._met:
            return {"ref": self._met[id(obj)][0]}
        self._met[id(obj)] = len(self._met), obj
        stored = self._hook(obj) if self._hook is not None else None
        return {"hook": stored} if stored is not None else self._container(obj, kind)

    def _container(self, obj: Any, kind: type) -> Json:
        if kind is list:
            return self._items(obj)
        if kind is set:
            return {"set": self._items(sorted(obj, key=repr))}  # so that equal states are equal text
        if kind is collections.deque:
            return {"deque": [obj.maxlen, self._items(obj)]}
        if kind is collections.defaultdict:
            return {"defaultdict": [self._part(".default_factory", obj.default_factory), self._pairs(obj)]}
        if kind in _TAG_OF_MAPPING:
            return {_TAG_OF_MAPPING[kind]: self._pairs(obj)}
        parts = kind_of(obj)
        if parts is not None:
            try:
                taken = parts.take_apart(obj)
            except TypeError as error:
                raise TypeError(f"at {self.place()}: {error}") from None
            self._unfinished.add(id(obj))
            stored = {parts.tag: self._items(taken)}
            self._unfinished.discard(id(obj))
            return stored
        name = name_of(kind)
        if name is None or not is_plain(kind):
            shown = kind.__name__ if kind.__module__ == "builtins" else full_name(kind)
            raise TypeError(f"at {self.place()}: cannot store a {shown}")
        state = {}
        for key, attribute in attributes(obj).items():
            if not is_attribute(key):
                raise TypeError(f"at {self.place()}: cannot store an attribute named {key!r}")
            state[key] = self._part(f".{key}", attribute)
        return {"class": name, "state": state}

    def _items(self, items: Iterable[Any]) -> list[Json]:
        return [self._part(f"[{i}]", item) for i, item in enumerate(items)]

    def _pairs(self, mapping: dict[Any, Any]) -> list[Json]:
        pairs = []
        for key, value in mapping.items():
            step = f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"
            pairs.append([self._part(step, key), self._part(step, value)])
        return pairs

    def _part(self, step: str, obj: Any) -> Json:
        self._path.append(step)
        stored = self.value(obj)
        self._path.pop()
        return stored


class _Decoder:
    """Decodes a value whose size and depth are limited also with each reference followed, before anything is hashed."""

    def __init__(self, hook: Hook | None) -> None:
        self._hook = hook
        self._met: list[Any] = []
        self._sizes: list[tuple[int, int]] = []  # of what was met: parts and depth, each reference followed
        self._size, self._room = 0, FREE
        self._depths = [0]  # of the deepest value so far in each value that is being decoded

    def value(self, value: Json) -> Any:
        if isinstance(value, list):
            made: list[Any] = []
            number, before = self._begin_value(made, len(value))
            made.extend(map(self.value, value))
            self._end_value(number, before)
            return made
        if isinstance(value, str):
            self._count_parts(len(value) // LONG)
            return value
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if not isinstance(value, dict):
            raise ValueError(f"Expected a JSON value, got a {type(value).__name__}")
        if value.keys() == {"class", "state"}:
            return self._instance(value["class"], value["state"])
        if len(value) != 1:
            raise ValueError(f"Expected a table with one tag, got the keys {', '.join(map(repr, value)) or 'none'}")
        (tag, content), *_ = value.items()
        return self._decode_tagged(tag, content)

    def _count_parts(self, parts: int) -> None:
        """Count parts that the file has, each of which gives room for others."""
        self._size += parts
        self._room += parts * SHARED

    def _count_shared(self, parts: int) -> None:
        """Count parts that the file does not have: of a reference, or of a range."""
        self._size += parts
        self._room -= parts
        if self._room < 0:
            raise ValueError(f"Expected at most {FREE} values, and {SHARED} for each that is stored, got more")

    def _begin_value(self, made: Any, parts: int) -> tuple[int, int]:
        """Return the number of a value, and the size so far."""
        number, before = len(self._met), self._size
        self._met.append(made)
        self._sizes.append((1, 1))  # also for a reference to itself
        self._depths.append(0)
        self._count_parts(parts + 1)
        return number, before

    def _end_value(self, number: int, before: int) -> None:
        depth = self._depths.pop() + 1
        self._sizes[number] = self._size - before, depth
        self._depths[-1] = max(self._depths[-1], depth)

    def _decode_tagged(self, tag: str, content: Json) -> Any:
        if tag in ("int", "str", "bytes") and isinstance(content, str):
            self._count_parts(len(content) // LONG)
        if tag == "int":
            return int(content, 16)
        if tag == "float" and content in ("nan", "inf", "-inf"):
            return float(content)
        if tag == "str":
            return b64decode(content, validate=True).decode("utf-8", "surrogatepass")
        if tag == "bytes":
            return b64decode(content, validate=True)
        if tag == "name":
            return object_named(content)
        if tag == "ref":
            return self._reference(content)
        number, before = self._begin_value(_UNFINISHED, len(content) if isinstance(content, list) else 1)
        made = self._numbered(number, tag, content)
        self._met[number] = made
        self._end_value(number, before)
        return made

    def _numbered(self, number: int, tag: str, content: Json) -> Any:
        if tag == "hook" and self._hook is not None:
            return self._hook(content)
        codec = BY_TAG.get(tag)
        if codec is None and tag not in (*_MAPPINGS, "set", "deque"):
            raise ValueError(f'Expected a known tag, got "{tag}"')
        if not isinstance(content, list):
            raise ValueError(f'Expected a list of parts of "{tag}", got a {type(content).__name__}')
        if tag in ("set", "deque"):
            return self._collection(number, content, is_deque=tag == "deque")
        if codec is None:
            return self._mapping(number, tag, content)
        made = codec.put_together(*(self._keys(content) if tag == "frozenset" else map(self.value, content)))
        if isinstance(made, range):
            self._count_shared(len(made))
        return made

    def _reference(self, number: Json) -> Any:
        if type(number) is not int or not 0 <= number < len(self._met) or self._met[number] is _UNFINISHED:
            raise ValueError(f"Expected a reference to an earlier value, got {number!r}")
        size, depth = self._sizes[number]
        if len(self._depths) + depth > DEEPEST:
            raise ValueError(f"Expected values in at most {DEEPEST} others, got more")
        self._depths[-1] = max(self._depths[-1], depth)
        self._count_shared(size)
        return self._met[number]

    def _keys(self, content: Json) -> Iterator[Any]:
        """Yield values to be hashed; a set of thousands of one hash takes long."""
        alike: collections.Counter[int] = collections.Counter()
        for stored in content:
            key = self.value(stored)
            if type(key) is not str:  # whose hashes cannot be chosen
                alike[one := hash(key)] += 1
                if alike[one] > ALIKE:
                    raise ValueError(f"Expected at most {ALIKE} keys of one hash, got more")
            yield key

    def _collection(self, number: int, content: Json, is_deque: bool) -> Any:
        if is_deque:
            length, content = content
            queue: collections.deque[Any] = collections.deque(maxlen=length)
            self._met[number] = queue
            queue.extend(map(self.value, content))
            return queue
        members: set[Any] = set()
        self._met[number] = members
        members.update(self._keys(content))
        return members

    def _mapping(self, number: int, tag: str, content: Json) -> Any:
        made: Any = _MAPPINGS[tag]()
        self._met[number] = made
        if tag == "defaultdict":
            factory, content = content
            made.default_factory = self.value(factory)
            if made.default_factory is not None and not callable(made.default_factory):
                raise ValueError(f"Expected the factory of a defaultdict, got a {type(made.default_factory).__name__}")
        self._count_parts(len(content))
        values = (value for _, value in content)
        for key in self._keys(key for key, _ in content):
            made[key] = self.value(next(values))
        return made

    def _instance(self, name: Json, state: Json) -> Any:
        kind = class_named(name)
        made: Any = object.__new__(kind)
        number, before = self._begin_value(made, len(state))
        for key, value in state.items():
            if not is_attribute(key):
                raise ValueError(f"Expected the name of an attribute, got {key!r}")
            slot = getattr(kind, key, None)
            if isinstance(slot, types.MemberDescriptorType):
                slot.__set__(made, self.value(value))
            else:
                made.__dict__[key] = self.value(value)
        check_steps(made)
        self._end_value(number, before)
        return made


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")
