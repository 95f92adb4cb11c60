"""A preprocessing step that reads some fields and passes the others through.

River's own ``Select`` raises an error for a record without the field, and its ``SelectType`` has no complement that
passes the other fields, so the two cannot be combined to do this.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from river import base

_TYPES: dict[str, tuple[type, ...]] = {"numbers": (int, float), "strings": (str,)}


class OnFields(base.Transformer):
    """A transformer limited to some of the fields.

    A field that the transformer creates replaces an untouched one of the same name. The transformer is not called for a
    record with none of its fields. `on` is ``"numbers"`` (``True`` and ``False`` are numbers), ``"strings"``, or the
    fields' names.

    Examples
    --------
    >>> from river import preprocessing
    >>> scaler = OnFields(preprocessing.MinMaxScaler(), "numbers")
    >>> scaler.learn_one({"size": 2, "colour": "red"})
    >>> scaler.learn_one({"size": 6, "colour": "blue"})
    >>> scaler.transform_one({"size": 3, "colour": "red"})
    {'colour': 'red', 'size': 0.25}
    >>> scaler.transform_one({"colour": "red"})
    {'colour': 'red'}
    """

    def __init__(self, transformer: base.Transformer, on: str | Sequence[str]) -> None:
        if isinstance(on, str) and on not in _TYPES:
            raise ValueError(f'Expected "numbers", "strings" or a list of field names, got {on!r}')
        self.transformer = transformer
        self.on = on

    @property
    def _supervised(self) -> bool:
        return bool(self.transformer._supervised)  # noqa: SLF001 - only River reads it, by the same name

    def learn_one(self, x: Mapping[Any, Any], y: Any = None) -> None:
        """Update the transformer with its fields of `x`, and with `y` if it learns from labels."""
        seen, _ = self._split(x)
        if seen:
            self.transformer.learn_one(seen, *([y] if _takes_target(type(self.transformer)) else []))

    def transform_one(self, x: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return the untouched fields and the transformer's output for its own."""
        seen, rest = self._split(x)
        if seen:
            rest.update(self.transformer.transform_one(seen))
        return rest

    def __str__(self) -> str:
        """Return the transformer's own name."""
        return str(self.transformer)

    def _split(self, x: Mapping[Any, Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
        seen: dict[Any, Any] = {}
        rest: dict[Any, Any] = {}
        if isinstance(self.on, str):
            types = _TYPES[self.on]
            for name, value in x.items():
                (seen if isinstance(value, types) else rest)[name] = value
        else:
            for name, value in x.items():
                (seen if name in self.on else rest)[name] = value
        return seen, rest


@functools.cache
def _takes_target(kind: type[base.Transformer]) -> bool:
    """Return whether a transformer may learn from targets."""
    return "y" in inspect.signature(kind.learn_one).parameters
