"""A list that grows at its end and shrinks at its start, as immutable values that share their items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Log(Generic[T]):
    """A range of the items of a list; longer logs share the list.

    Appending can be repeated: an item from an interrupted attempt is replaced.

    Examples
    --------
    >>> log = Log([]).plus("a").plus("b")
    >>> [*log.plus("c").without(1)], [*log]
    (['b', 'c'], ['a', 'b'])
    """

    items: list[T]
    first: int = 0
    last: int = 0

    @classmethod
    def of(cls, items: list[T]) -> Log[T]:
        """Return a log of some items."""
        return cls([*items], 0, len(items))

    def plus(self, item: T) -> Log[T]:
        """Return the log with an item added."""
        if len(self.items) > self.last:
            self.items[self.last] = item
        else:
            self.items.append(item)
        return Log(self.items, self.first, self.last + 1)

    def without(self, n: int) -> Log[T]:
        """Return the log without its first items."""
        first = self.first + n
        if 2 * first <= self.last:
            return Log(self.items, first, self.last)
        return Log(self.items[first : self.last], 0, self.last - first)

    def __len__(self) -> int:
        return self.last - self.first

    def __getitem__(self, i: int) -> T:
        return self.items[self.first + i]

    def __iter__(self) -> Iterator[T]:
        return (self.items[i] for i in range(self.first, self.last))  # no copy: some readers want the first alone
