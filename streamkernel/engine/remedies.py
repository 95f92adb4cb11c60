"""Declarations that help with values that do not fit their field, as ends of reasons and of lines in the log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from streamkernel.engine.config.messages import to_key
from streamkernel.field_types.conversions import LONGEST_VECTOR


def declaration(name: str, kind: str) -> str:
    """Return the line that declares a field.

    Examples
    --------
    >>> declaration("user.age", "category")
    '[fields] "user.age" = "category"'
    """
    return f'[fields] {to_key(name)} = "{kind}"'


def for_text(name: str, text: str, placeholders: Sequence[str]) -> str:
    """Return the declaration that helps with a text in a field of numbers, whose usual texts may be placeholders.

    Examples
    --------
    >>> for_text("price", "NA", ["NA", "?"]), for_text("price", "x", ["NA", "?"]), for_text("price", "x", [])
    ('; if it means that there is no value, declare missing = ["NA", "?"]', '', '; to take it, declare [fields] price =
    "category"')
    """
    if text in placeholders:
        return f"; if it means that there is no value, declare missing = {_list(placeholders)}"
    return "" if placeholders else f"; to take it, declare {declaration(name, 'category')}"


def for_texts(name: str, placeholders: Sequence[str]) -> str:
    """Return the declaration that helps with a field that has both numbers and texts.

    Examples
    --------
    >>> for_texts("icd", [])
    'looks like codes; declare it: [fields] icd = "category"'
    >>> for_texts("price", ["NA"])
    'if "NA" means that there is no value, declare missing = ["NA"]; if it is a code, declare [fields] price =
    "category"'
    """
    if not placeholders:
        return f"looks like codes; declare it: {declaration(name, 'category')}"
    mean, are_codes = ("means", "it is a code") if len(placeholders) == 1 else ("mean", "they are codes")
    return (
        f"if {' and '.join(map(_text, placeholders))} {mean} that there is no value, declare missing = "
        f"{_list(placeholders)}; if {are_codes}, declare {declaration(name, 'category')}"
    )


def for_alike_texts(name: str, kind: str) -> str:
    """Return the declaration that helps with a field of categories whose texts are numbers or times.

    Examples
    --------
    >>> for_alike_texts("day", "time")
    'texts are times, but taken as categories; if they are no codes, declare [fields] day = "time"'
    """
    return f"texts are {kind}s, but taken as categories; if they are no codes, declare {declaration(name, kind)}"


def for_value(name: str, value: Any) -> str:
    """Return the declaration that helps with a value that is neither a number nor a text; nothing for an empty list.

    Examples
    --------
    >>> for_value("v", [1, 2.5]), for_value("tags", ["a"]), for_value("v", [])
    ('; to take it, declare [fields] v = "vector"', '; to leave it out, declare [fields] tags = "ignore"', '')
    """
    if isinstance(value, np.generic):
        value = value.item()
        if isinstance(value, (str, int, float)):
            return f"; to take it, declare {declaration(name, 'category' if isinstance(value, str) else 'number')}"
    items = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(items, (list, tuple)):
        if not items:
            return ""
        if len(items) <= LONGEST_VECTOR and all(item is None or type(item) in (int, float) for item in items):
            return f"; to take it, declare {declaration(name, 'vector')}"
    return f"; to leave it out, declare {declaration(name, 'ignore')}"


def _list(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, texts))}]"


def _text(text: str) -> str:
    """Return a text as TOML writes it, not shortened."""
    return json.dumps(text, ensure_ascii=not text.isprintable())
