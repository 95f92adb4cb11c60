"""The longest label: each later prediction of a classifier contains all of them."""

from __future__ import annotations

from typing import Any

from streamkernel.errors import LabelError

LONGEST_LABEL = 1_000
"""Largest number of characters of a label."""


def check_length(y: Any, name: str) -> None:
    """Raise an error for a label that is too long.

    Examples
    --------
    >>> check_length("yes", "y")
    >>> check_length("y" * 2_000, "y")
    Traceback (most recent call last):
    streamkernel.errors.LabelError: Expected a label of at most 1,000 characters, got 2,000 - at field "y"
    """
    if isinstance(y, str) and len(y) > LONGEST_LABEL:
        raise LabelError(
            f'Expected a label of at most {LONGEST_LABEL:,} characters, got {len(y):,} - at field "{name}"'
        )
