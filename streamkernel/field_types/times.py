"""Times as seconds since 1970: numbers of a unit, texts in ISO 8601, and moments."""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Any, Literal

import numpy as np

from streamkernel.errors import shorten
from streamkernel.features.rows import is_missing
from streamkernel.field_types.number_texts import read_number

TimeUnit = Literal["s", "ms", "us", "ns"]
"""Units of numbers that are times."""

_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_MONTH_OR_YEAR = re.compile("[12][0-9]{3}(-(0[1-9]|1[0-2]))?")
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

_FARTHEST = 10**11
"""Seconds, which are the year 5138; a larger number is of a smaller unit."""

_USUAL = 315_532_800, 4_102_444_800
"""Seconds, which are the years 1980 and 2100; a number outside is of another unit, if it is inside in that."""

_EARLIEST = -62_135_596_800
"""Seconds, which are the year 1."""


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
    streamkernel.field_types.times.TimeUnitError: Expected a time in seconds or ISO 8601, got 1700000000000, which
    looks like milliseconds
    """
    moment = moment_or_number(value)
    if isinstance(moment, dt.datetime):
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    wanted = f"{expected(unit)}, got {shorten(value)}"
    if moment is None:
        raise ValueError(wanted)
    if abs(moment) > _FARTHEST * _PER_SECOND[unit]:
        for other, per_second in _PER_SECOND.items():
            if abs(moment) <= _FARTHEST * per_second:
                raise TimeUnitError(f"{wanted}, which looks like {_NAMES[other]}", other)  # type: ignore[arg-type]
        raise TimeUnitError(wanted, None)
    if not _is_usual(moment / _PER_SECOND[unit]):
        for other, per_second in _PER_SECOND.items():
            if _is_usual(moment / per_second):
                raise TimeUnitError(f"{wanted}, which looks like {_NAMES[other]}", other)  # type: ignore[arg-type]
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
        return _read(value.strip())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if not isinstance(value, float) or math.isfinite(value) else None


def _is_usual(seconds: float) -> bool:
    return _USUAL[0] <= seconds < _USUAL[1]


def _read(text: str) -> dt.datetime | float | None:
    if _MONTH_OR_YEAR.fullmatch(text):
        return dt.datetime(int(text[:4]), int(text[5:] or 1), 1)
    if len(text) == len("20261124") or not text.isdecimal():  # ISO 8601 has years of four digits
        try:
            return dt.datetime.fromisoformat(text)
        except ValueError:
            pass
    number = None if "%" in text or "," in text else read_number(text)
    return None if number is None else number.value
