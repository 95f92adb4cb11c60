"""The lengths of vectors: each field has the length of most of its values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

MOST_VOTES = 32
"""The largest number of votes for the length of a field: as many vectors of other lengths in succession change it."""


class VectorLengths:
    """The length of the vectors in each field, by a vote in which a newer vector weighs more.

    Examples
    --------
    >>> lengths = VectorLengths()
    >>> for length in (3, 2, 2, 2, 5):
    ...     lengths.count("v", length)
    >>> lengths.of("v")
    2
    """

    def __init__(self) -> None:
        self._votes: dict[str, list[int]] = {}

    def of(self, name: str) -> int | None:
        """Return the length of the vectors in a field, or ``None`` if there has been none."""
        return self._votes[name][0] if name in self._votes else None

    def count(self, name: str, length: int, n: int = 1) -> None:
        """Count n vectors of a field."""
        vote = self._votes.setdefault(name, [length, 0])
        vote[1] = min(vote[1] + n, MOST_VOTES) if length == vote[0] else vote[1] - n
        if vote[1] <= 0:
            vote[:] = length, 1

    def state(self) -> dict[str, list[int]]:
        """Return the length of each field, and the votes for it."""
        return {name: list(vote) for name, vote in sorted(self._votes.items())}

    def restore(self, votes: Mapping[str, Sequence[int]], names: Collection[str]) -> None:
        """Replace the lengths of some fields, and forget others."""
        self._votes = {name: list(votes[name]) for name in names if name in votes}

    def join(self, votes: Mapping[str, Sequence[int]], names: Collection[str]) -> None:
        """Continue with the length here or elsewhere, for each field the one with more votes."""
        self.restore(self._votes | {n: v for n, v in votes.items() if v[1] > self._votes.get(n, (0, 0))[1]}, names)
