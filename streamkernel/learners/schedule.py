"""The schedule of structural changes of a model: frequent at first, later at fixed intervals."""

from __future__ import annotations

from typing import Any

from streamkernel.jit import inlined

EVERY = 8192
"""Number of examples between two checks in the long run."""


def is_due(n: int) -> bool:
    """Return whether a check is due after this many examples: at 2, 4, 8, ..., 8,192, and then at every 8,192.

    Examples
    --------
    >>> [n for n in range(40_000) if is_due(n)]
    [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 24576, 32768]
    """
    return n >= 2 and (n & (n - 1) == 0 or n % EVERY == 0)


compiled_is_due: Any = inlined(is_due)
"""For compiled code."""


def until_due(n: int) -> int:
    """Return the number of examples until the next check.

    Examples
    --------
    >>> [until_due(n) for n in (0, 1, 2, 3, 1000, 8192, 8193)]
    [2, 1, 2, 1, 24, 8192, 8191]
    """
    return 2 - n if n < 2 else min((1 << n.bit_length()) - n, EVERY - n % EVERY)


def last_due(n: int) -> int:
    """Return the number of examples at the last check, or 0.

    Examples
    --------
    >>> [last_due(n) for n in (0, 1, 2, 1000, 8192, 20_000)]
    [0, 0, 2, 512, 8192, 16384]
    """
    due = 2
    while 2 * due <= min(n, EVERY):
        due *= 2
    return 0 if n < 2 else max(due, n // EVERY * EVERY)


compiled_last_due: Any = inlined(last_due)
"""For compiled code."""
