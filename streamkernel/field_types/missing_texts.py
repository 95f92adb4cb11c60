"""Texts that may mean that there is no value, and the declaration of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from streamkernel.field_types.number_texts import LONGEST


def is_marker(value: Any) -> bool:
    """Return whether a value is a short text without a digit, which may mean that there is no value.

    Examples
    --------
    >>> [is_marker(value) for value in ("n/a", "NaT", "-", "V45", 0, "x" * 100)]
    [True, True, True, False, False, False]
    """
    return isinstance(value, str) and len(value) <= LONGEST and not any(map(str.isdecimal, value))


def missing_declaration(texts: Sequence[str]) -> str:
    """Return the line that declares texts to be missing values.

    Examples
    --------
    >>> missing_declaration(["NA", "?"])
    'missing = ["NA", "?"]'
    """
    return f"missing = [{', '.join(map(as_toml, texts))}]"


def if_missing(texts: Sequence[str]) -> str:
    """Return the end of an error about a text that may mean that there is no value.

    Examples
    --------
    >>> if_missing(["NA", "?"])
    '; if it means that there is no value, declare missing = ["NA", "?"]'
    """
    return f"; if it means that there is no value, declare {missing_declaration(texts)}"


def as_toml(text: str) -> str:
    """Return a text as TOML writes it, not shortened."""
    return json.dumps(text, ensure_ascii=not text.isprintable())
