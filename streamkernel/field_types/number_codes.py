"""Numbers whose texts look like codes, because they do not survive as numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_DIGITS = 15
"""Digits of an integer that a float always keeps."""

_SHORT_EXPONENT = re.compile(r"[0-9]+[eE][0-9]+")
"""A form in which no program writes numbers by itself: these have a point or a sign."""


def why_codes(values: Iterable[tuple[str, float]]) -> str | None:
    """Return why the texts of a field look like codes, or ``None`` if they do not.

    Parameters
    ----------
    values
        Texts and the numbers as which they are read.

    Examples
    --------
    >>> why_codes([("1.1", 1.1), ("1.10", 1.1)]), why_codes([("0.5", 0.5), ("2e-05", 2e-05), ("-0.0", -0.0), ("0", 0)])
    ('1.1 and 1.10 are one number', None)
    >>> why_codes([("7E3", 7000.0)]), why_codes([("1234567890123456789", 1234567890123456789)])
    ('7E3 is read as 7000.0', '1234567890123456789 has more than 15 digits')
    """
    first: dict[float, str] = {}
    for text, number in values:
        digits = text.strip()
        if _SHORT_EXPONENT.fullmatch(digits):
            return f"{digits} is read as {number}"
        if number and first.setdefault(number, digits) != digits:
            return f"{first[number]} and {digits} are one number"
        if digits.lstrip("+-").isdecimal() and len(digits.lstrip("+-")) > MOST_DIGITS:
            return f"{digits} has more than {MOST_DIGITS} digits"
    return None
