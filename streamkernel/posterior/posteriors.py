"""The interface of posteriors of f given the examples, and their common functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from streamkernel import tensor_file
from streamkernel.features.rows import F64, Rows

_CHUNK = 64
"""Rows whose features are in memory at once."""


class Posterior(Protocol):
    """The posterior of f, with y = f(x) + e, e ~ N(0, σ²)."""

    @property
    def noise(self) -> float:
        """σ²."""

    @property
    def examples(self) -> int:
        """Number of examples learned or buffered for a batch."""

    @property
    def of_targets(self) -> tuple[int, int]:
        """Numbers of predictions that were bounded, and of targets that did not extend the range in full."""

    def learn(self, rows: Rows, y: F64) -> None:
        """Learn from `rows` in order."""

    def mean(self, rows: Rows) -> F64:
        """Return the mean of f(x) for each row, in the range of the targets and of the prior mean."""

    def variance(self, rows: Rows) -> F64:
        """Return the variance of f(x) for each row."""

    def tensors(self) -> dict[str, Any]:
        """Return the learned state."""

    def restore(self, tensors: Mapping[str, Any]) -> None:
        """Restore the result of `tensors`; raises a ValueError if it does not fit."""


def pieces(rows: Rows) -> Iterator[tuple[slice, Rows]]:
    """Yield parts of rows, few enough for their features to be in memory at once."""
    n = len(rows.start) - 1
    for first in range(0, n, _CHUNK):
        last = min(first + _CHUNK, n)
        yield slice(first, last), rows.part(first, last)


def join(parts: Iterator[F64]) -> F64:
    """Return the results for parts of rows as one array."""
    return np.concatenate([np.zeros(0), *parts])


def read_count(tensors: Mapping[str, Any]) -> int:
    """Return the counter that was saved; raises a ValueError if there is none."""
    (found,) = tensor_file.require_tensor(tensors, "count", np.int64, (1,))
    if not 0 <= found < 1 << 53:  # it may be a float in memory
        raise ValueError(f"expected a count, got {found}")
    return int(found)
