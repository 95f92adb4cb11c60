"""Patterns of a configuration file that match in linear time.

Python's own ``re`` backtracks: ``(a+)+$`` takes years on thirty letters. RE2 does not.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any


def tokens(text: str, pattern: str) -> Iterator[str]:
    r"""Yield the first group of each match, or the whole match of a pattern without groups.

    It replaces ``tokenize_using_regex_pattern`` of River's vectorizers.

    Examples
    --------
    >>> list(tokens("über 40 Gräser", r"[\pL\pN]+")), list(tokens("a=1 b=2", r"([a-z])="))
    (['über', '40', 'Gräser'], ['a', 'b'])
    """
    for match in compiled(pattern).finditer(text):
        yield match[1] if match.lastindex else match.group()


@functools.lru_cache(64)
def compiled(pattern: str) -> Any:
    """Return a pattern compiled by RE2.

    Raise `ValueError` if RE2 refuses it: references to groups and looking around take more than linear time;
    `ImportError` if RE2 is not installed.
    """
    try:
        import re2
    except ImportError:
        raise ImportError("a pattern needs RE2; pip install 'streamkernel[patterns]'") from None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        text = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise ValueError(text) from None
