"""Several threads for predictions of many rows."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

LEAST_ROWS = 64
"""Smallest number of rows per thread: starting one costs about as much as predicting for a few."""

_num_threads = 1


def set_num_threads(n: int) -> None:
    """Let `predict_many`, `predict_proba_many` and the like use up to `n` threads, in this process.

    One is the default. The predictions have the same bits with any number. Learning is sequential, in one thread.

    Parameters
    ----------
    n : int
        Threads, 1 or more.

    Raises
    ------
    ValueError
        If `n` is not 1 or more.

    Examples
    --------
    >>> import streamkernel
    >>> streamkernel.set_num_threads(2)
    >>> streamkernel.set_num_threads(1)
    """
    global _num_threads
    if not isinstance(n, int) or n < 1:
        raise ValueError(f"Expected 1 thread or more, got {n!r}")
    _num_threads = n


def first_unusable(n: int, evaluate: Callable[[int, int], int]) -> int:
    """Evaluate rows 0 to n in one part per thread; return the first unusable row, or -1.

    `evaluate` evaluates the rows from one to before another, and returns the first unusable of those, or -1.

    Examples
    --------
    >>> first_unusable(3, lambda first, last: -1), first_unusable(3, lambda first, last: 1)
    (-1, 1)
    """
    parts = max(1, min(_num_threads, n // LEAST_ROWS))
    if parts == 1:
        return evaluate(0, n)
    bounds = [n * part // parts for part in range(parts + 1)]
    with ThreadPoolExecutor(parts) as pool:
        found = list(pool.map(evaluate, bounds[:-1], bounds[1:]))
    return next((first + row for first, row in zip(bounds[:-1], found, strict=True) if row >= 0), -1)
