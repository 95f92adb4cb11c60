"""A table of field names in which a name stands for the fields inside it, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

MOST_NAMES, LONGEST_NAME = 100_000, 160
"""Largest number of looked up names that are kept, and of characters in one."""


class ByPath(dict[Any, bool]):
    """Whether each field is meant, by its name or by the nearest object around it; a name that is not meant is false.

    `names` are meant with the fields inside, `single` without them.

    Examples
    --------
    >>> ignored = ByPath({"user": True, "user.age": False})
    >>> [ignored[name] for name in ("user", "user.town.zip", "user.age", "user.age.unit", "users", "size")]
    [True, True, False, False, False, False]
    """

    def __init__(self, names: Mapping[Any, bool], single: Iterable[Any] = ()) -> None:
        super().__init__(dict.fromkeys(single, True) | dict(names))
        self._names, self._single = dict(names), tuple(single)
        self._around = sorted(
            ((f"{name}.", is_meant) for name, is_meant in names.items()), key=lambda around: -len(around[0])
        )

    def __deepcopy__(self, memo: object) -> Self:
        """Return this table, whose answers stay as they are."""
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        """Return the table without looked up names, for another process or a file."""
        return type(self), (self._names, self._single)

    def __missing__(self, name: Any) -> bool:
        """Return the value of the nearest object around a field, and keep it."""
        if not isinstance(name, str):
            return False
        is_meant = next((value for path, value in self._around if name.startswith(path)), False)
        if len(self) < MOST_NAMES and len(name) <= LONGEST_NAME:
            self[name] = is_meant
        return is_meant
