"""Numbers that are written as text, times as seconds since 1970, and texts that may mean that there is no value.

Numbers may have fractions, signs, percent, decimal commas and thousands. Times are numbers of a unit, texts in ISO
8601, and moments.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any, Literal, NamedTuple

import numpy as np

from streamkernel.errors import shorten
from streamkernel.features.rows import is_missing

LONGEST = 40
"""Largest number of characters of a text that is read as a number."""
POINT, UNKNOWN, COMMA, WHOLE = -1, 0, 1, 2
"""Notations by the sign before a fraction; each value of a field that shows one adds it to the field's evidence. In a
field of whole numbers either sign separates thousands.
"""
FEW, RARE = 20, 0.01
"""Numbers that are few texts, of which one may decide; and the share of many that does not."""
_STARTS = frozenset("0123456789+-.")
_SPACES = str.maketrans("\u00a0\u202f", "  ")
_PLAIN = re.compile(r"([+-]?)([0-9]*)(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_COMMA = re.compile(r"([+-]?)([0-9]+),([0-9]+)")
_ZEROS = re.compile(r"(\s*[+-]?)0+(?=[0-9])")
_GROUPS = re.compile(r"([+-]?)([1-9][0-9]{0,2}(?:([ ,.])[0-9]{3})(?:\3[0-9]{3})*)(?:([.,])([0-9]+))?")
MOST_DIGITS = 15
"""Digits of an integer that a float always keeps."""
_SHORT_EXPONENT = re.compile(r"[0-9]+[eE][0-9]+")
"""A form in which no program writes numbers by itself: these have a point or a sign."""
TimeUnit = Literal["s", "ms", "us", "ns"]
"""Units of numbers that are times."""
_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_MONTH_OR_YEAR = re.compile("[12][0-9]{3}(-(0[1-9]|1[0-2]))?")
_PER_SECOND: Mapping[TimeUnit, int] = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_FARTHEST = 10**11
"""Seconds, which are the year 5138; a larger number is of a smaller unit."""
_USUAL = 315_532_800, 4_102_444_800
"""Seconds, which are the years 1980 and 2100; a number outside is of another unit, if it is inside in that."""
_EARLIEST = -62_135_596_800
"""Seconds, which are the year 1."""


class NumberText(NamedTuple):
    """A text read as a number.

    `value` of 12 % is 0.12. A text is clear if it cannot be a code: it has a fraction, an exponent, a sign or a percent
    sign. `notation` is the sign before a fraction that it shows: `POINT`, `COMMA` or `UNKNOWN`; `other_value` is the
    number in the other notation, if that is another one: 1,234 is 1234 or 1.234. With `is_grouped` points or commas
    separate thousands.
    """

    value: float
    is_clear: bool
    notation: int = UNKNOWN
    other_value: float | None = None
    is_grouped: bool = False


@lru_cache(4096)
def read_number(text: str, notation: int = UNKNOWN) -> NumberText | None:
    """Return the number that a text is, or ``None`` if it is another text or a code.

    The notation of the field decides what 1,234 and 1.234 are: unless it is `COMMA`, they are 1234 and 1.234.

    Examples
    --------
    >>> [read_number(text).value for text in ("0.5", "0,5", "1,016.30", "1.016,30", "12 %", "-3", " 7 ")]
    [0.5, 0.5, 1016.3, 1016.3, 0.12, -3.0, 7.0]
    >>> [read_number(text) for text in ("red", "01234", "12e4567", "1.2.3")]
    [None, None, None, None]
    >>> read_number("1,234").value, read_number("1,234", COMMA).value, read_number("42").is_clear
    (1234.0, 1.234, False)
    """
    text = text.translate(_SPACES).strip()
    if not text or text[0] not in _STARTS or len(text) > LONGEST:
        return None
    number = text.removesuffix("%").rstrip()
    reading = _read(number, notation)
    if reading is None or not isfinite(reading.value):
        return None
    if number == text:
        return reading
    other = None if reading.other_value is None else reading.other_value / 100.0
    return reading._replace(value=reading.value / 100.0, is_clear=True, other_value=other)


def read_any_number(text: str, notation: int = UNKNOWN) -> NumberText | None:
    """Return the number that a text is where it can be no code, so that leading zeros do not matter.

    Examples
    --------
    >>> [read_any_number(text).value for text in ("007", "-00,5", "0.5", "12")]
    [7.0, -0.5, 0.5, 12.0]
    """
    return read_number(text, notation) or read_number(_ZEROS.sub(r"\1", text, count=1), notation)


def notation_of(evidence: int, n: int) -> int:
    """Return the notation of a field.

    `evidence` is the sum of the notations that its n texts that were numbers have shown.

    Examples
    --------
    >>> notation_of(1, 3) == COMMA, notation_of(1, 300) == UNKNOWN, notation_of(-150, 300) == POINT
    (True, True, True)
    """
    is_clear = abs(evidence) > (0 if n < FEW else max(1.0, RARE * n))
    return UNKNOWN if not is_clear else POINT if evidence < 0 else COMMA


def _read(text: str, notation: int) -> NumberText | None:
    groups = _GROUPS.fullmatch(text)
    if groups is not None:
        sign, digits, separator, fraction_sign, fraction = groups.groups()
        whole = re.sub("[ ,.]", "", digits)
        if fraction is not None:
            if fraction_sign == separator:
                return None
            notation = POINT if fraction_sign == "." else COMMA
            return NumberText(float(f"{sign}{whole}.{fraction}"), True, notation, is_grouped=separator != " ")
        if separator == " ":
            return NumberText(float(sign + whole), bool(sign))
        thousands, of_thousands = float(sign + whole), POINT if separator == "," else COMMA
        if digits.count(separator) > 1:
            return NumberText(thousands, True, of_thousands, is_grouped=True)
        fraction_of_three = float(text.replace(",", "."))
        if notation == WHOLE or of_thousands == (notation or POINT):
            return NumberText(thousands, True, UNKNOWN, fraction_of_three, is_grouped=True)
        return NumberText(fraction_of_three, True, UNKNOWN, thousands)
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


def why_codes(values: Iterable[tuple[str, float]]) -> str | None:
    """Return why the texts of a field look like codes, or ``None`` if they do not.

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


class TimeUnitError(ValueError):
    """A number that is a time in another unit than its own.

    `unit` is the unit that the number seems to have, if there is one.
    """

    def __init__(self, message: str, unit: TimeUnit | None) -> None:
        super().__init__(message)
        self.unit = unit


def seconds_since_1970(value: Any, unit: TimeUnit = "s", zone: dt.tzinfo = dt.UTC) -> float:
    """Return a time in seconds since 1970.

    The value is a number, a text in ISO 8601 or with a number, or a date or moment of Python, pandas or NumPy; `zone`
    is for a time without an offset. Raise a TimeUnitError if it is a number of another unit (too large, or outside 1980
    to 2100 and inside in the other unit), a ValueError if it is no time, or one before the year 1.

    Examples
    --------
    >>> seconds_since_1970("1970-01-01T01:00+01:00"), seconds_since_1970(1_700_000_000_000, "ms")
    (0.0, 1700000000.0)
    >>> seconds_since_1970(1_700_000_000_000)
    Traceback (most recent call last):
        ...
    streamkernel.field_types.number_texts.TimeUnitError: Expected a time in seconds or ISO 8601, got 1700000000000,
    which looks like milliseconds
    """
    moment = moment_or_number(value)
    if isinstance(moment, dt.datetime):
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    wanted = f"{expected(unit)}, got {shorten(value)}"
    if moment is None:
        raise ValueError(wanted)
    is_far = abs(moment) > _FARTHEST * _PER_SECOND[unit]  # also an integer beyond all floats
    if is_far or not _is_usual(moment / _PER_SECOND[unit]):
        for other, per_second in _PER_SECOND.items():
            if abs(moment) <= _FARTHEST * per_second if is_far else _is_usual(moment / per_second):
                raise TimeUnitError(f"{wanted}, which looks like {_NAMES[other]}", other)
        if is_far:
            raise TimeUnitError(wanted, None)
    if (seconds := moment / _PER_SECOND[unit]) < _EARLIEST:
        raise ValueError(f"Expected a time in the years 1 to 9999, got {shorten(value)}")
    return seconds


def expected(unit: TimeUnit) -> str:
    """Return the beginning of an error about a value that is no time.

    Examples
    --------
    >>> expected("ms")
    'Expected a time in milliseconds or ISO 8601'
    """
    return f"Expected a time in {_NAMES[unit]} or ISO 8601"


def moment_or_number(value: Any) -> dt.datetime | float | None:
    """Return the moment or the number that a value is or has as text, or ``None``; a month or a year is its first day.

    Examples
    --------
    >>> moment_or_number("2026-11-24 06:00"), moment_or_number("1700000000"), moment_or_number("noon")
    (datetime.datetime(2026, 11, 24, 6, 0), 1700000000.0, None)
    """
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]")
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, dt.datetime):
        return None if is_missing(value) else value
    if isinstance(value, dt.date):
        return dt.datetime.combine(value, dt.time())
    if isinstance(value, str):
        return _read_moment(value.strip())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if not isinstance(value, float) or math.isfinite(value) else None


def _is_usual(seconds: float) -> bool:
    return _USUAL[0] <= seconds < _USUAL[1]


def _read_moment(text: str) -> dt.datetime | float | None:
    if _MONTH_OR_YEAR.fullmatch(text):
        return dt.datetime(int(text[:4]), int(text[5:] or 1), 1)
    if len(text) == len("20261124") or not text.isdecimal():  # ISO 8601 has years of four digits
        try:
            return dt.datetime.fromisoformat(text)
        except ValueError:
            pass
    number = None if "%" in text or "," in text else read_number(text)
    return None if number is None else number.value


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
