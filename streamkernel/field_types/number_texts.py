"""Numbers that are written as text: fractions, signs, percent, decimal commas and thousands."""

from __future__ import annotations

import re
from functools import lru_cache
from math import isfinite
from typing import NamedTuple

LONGEST = 40
"""Largest number of characters of a text that is read as a number."""

UNKNOWN, POINT, COMMA = 0, 1, 2
"""Notations that a field has shown before a fraction: none yet, a point or a comma."""

_STARTS = frozenset("0123456789+-.")
_SPACES = str.maketrans("\u00a0\u202f", "  ")
_PLAIN = re.compile(r"([+-]?)([0-9]*)(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_COMMA = re.compile(r"([+-]?)([0-9]+),([0-9]+)")
_GROUPS = re.compile(r"([+-]?)([1-9][0-9]{0,2}(?:([ ,.])[0-9]{3})(?:\3[0-9]{3})*)(?:([.,])([0-9]+))?")


class NumberText(NamedTuple):
    """A text read as a number.

    Attributes
    ----------
    value
        The number; 12 % is 0.12.
    is_clear
        Whether it cannot be a code: it has a fraction, an exponent, a sign or a percent sign.
    notation
        The sign before a fraction that it shows: `POINT`, `COMMA` or `UNKNOWN`.
    """

    value: float
    is_clear: bool
    notation: int = UNKNOWN


@lru_cache(4096)
def read_number(text: str, notation: int = UNKNOWN) -> NumberText | None:
    """Return the number that a text is, or ``None`` if it is another text, a code, or has two meanings.

    Parameters
    ----------
    text
        The text.
    notation
        The notation that other values of the field have shown; it decides what 1,234 and 1.234 are.

    Examples
    --------
    >>> [read_number(text).value for text in ("0.5", "0,5", "1,016.30", "1.016,30", "12 %", "-3", " 7 ")]
    [0.5, 0.5, 1016.3, 1016.3, 0.12, -3.0, 7.0]
    >>> [read_number(text) for text in ("red", "01234", "12e4567", "1,234", "1.2.3")]
    [None, None, None, None, None]
    >>> read_number("1,234", POINT).value, read_number("1,234", COMMA).value, read_number("42").is_clear
    (1234.0, 1.234, False)
    """
    text = text.translate(_SPACES).strip()
    if not text or text[0] not in _STARTS or len(text) > LONGEST:
        return None
    number = text.removesuffix("%").rstrip()
    found = _read(number, notation)
    if found is None or not isfinite(found.value):
        return None
    return found if number is text or number == text else NumberText(found.value / 100.0, True, found.notation)


def _read(text: str, notation: int) -> NumberText | None:
    groups = _GROUPS.fullmatch(text)
    if groups is not None:
        sign, digits, separator, fraction_sign, fraction = groups.groups()
        whole = re.sub("[ ,.]", "", digits)
        if fraction is not None:
            if fraction_sign == separator:
                return None
            return NumberText(float(f"{sign}{whole}.{fraction}"), True, POINT if fraction_sign == "." else COMMA)
        if separator == " ":
            return NumberText(float(sign + whole), bool(sign))
        of_thousands = POINT if separator == "," else COMMA
        if digits.count(separator) > 1:
            return NumberText(float(sign + whole), True, of_thousands)
        if notation == of_thousands:
            return NumberText(float(sign + whole), True)
        if separator == "," and notation != COMMA:
            return None
        return NumberText(float(text.replace(",", ".")), True)
    comma = _COMMA.fullmatch(text)
    if comma is not None:
        sign, digits, fraction = comma.groups()
        return None if _is_code(digits) else NumberText(float(f"{sign}{digits}.{fraction}"), True, COMMA)
    plain = _PLAIN.fullmatch(text)
    if plain is None:
        return None
    sign, digits, fraction, exponent = plain.groups()
    if _is_code(digits) or not (digits or (fraction or ".") != "."):
        return None
    return NumberText(float(text), bool(sign or fraction or exponent), POINT if fraction else UNKNOWN)


def _is_code(digits: str) -> bool:
    """Return whether leading zeros make it a code."""
    return len(digits) > 1 and digits[0] == "0"
