"""Column names and cell values of a CSV table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isinf

import orjson

INTEGER_DIGITS = 19
"""More digits than this may not fit 64 bits, and become a float, as they do in JSON."""

_FITS = 9 * 10**18
"""Numbers up to this size are the same in JSON, where an integer of as many digits may be another one or a float."""

_NUMBERS = {int, float}

_OF_NUMBERS, _DIGITS_AS_0 = b"0123456789+-.eE,", bytes.maketrans(b"123456789", b"000000000")
_TOO_LONG = b"," + b"0" * INTEGER_DIGITS, b"-" + b"0" * INTEGER_DIGITS
"""The beginnings of cells, with all digits as 0, that may be integers beyond `_FITS`."""

_PLAIN_STARTS = frozenset("0123456789-")
_DIGITS = frozenset("0123456789")
_NUMBER_STARTS = _DIGITS | frozenset("+-.nN \t")

_OF_THOUSANDS = re.compile(r"\s*[+-]?[1-9][0-9]{0,2}(\.[0-9]{3})+(,[0-9]*)?\s*")


def number(text: str) -> int | float | str:
    """Return a text as a number if it is one, and unchanged otherwise.

    Codes stay texts: a number would lose the zero of ``01234`` and all of ``12e4567``. `text` is the text, which is not
    empty. The result is an integer, or else a finite float or ``nan``, or else the text.

    Examples
    --------
    >>> number("12"), number("-3"), number("1e3"), number("nan"), number("0.5")
    (12, -3, 1000.0, nan, 0.5)
    >>> number("01234"), number("12e4567"), number("inf"), number("1_000"), number("3 km")
    ('01234', '12e4567', 'inf', '1_000', '3 km')
    """
    first = text[0]
    if first not in _NUMBER_STARTS:
        return text
    if text.isdecimal() and text.isascii() and len(text) <= INTEGER_DIGITS:
        return int(text) if first != "0" or text == "0" else text
    try:
        value = float(text)
    except ValueError:
        return text
    if "_" in text or isinf(value) or not text.isascii():
        return text
    if first < "1":
        digits = text if first == "0" else text.lstrip("+- \t")
        if digits[0] == "0" and digits[1:2] in _DIGITS:
            return text
    if value.is_integer():
        digits = text.strip().lstrip("+-")
        if digits.isdecimal() and len(digits) <= INTEGER_DIGITS:
            return int(text)
    return value


def comma_number(text: str) -> int | float | str:
    """Return a text as a number if it is one with a decimal comma, and unchanged otherwise.

    Points may separate thousands. Other texts with points, such as dates, are no numbers.

    Examples
    --------
    >>> comma_number("0,5"), comma_number("-1.234.567,8"), comma_number("1.234"), comma_number("31.12.2025")
    (0.5, -1234567.8, 1234, '31.12.2025')
    """
    if "." in text and _OF_THOUSANDS.fullmatch(text) is None:
        return text
    value = number(text.replace(".", "").replace(",", "."))
    return text if isinstance(value, str) else value


def numbers(texts: Sequence[str]) -> list[int | float | str]:
    """Read a column of cells, each as `number` does, in a tenth of the time.

    `texts` are the cells; an empty one does not change. The result is the value of each cell.

    Examples
    --------
    >>> numbers(["12", "1e3", "0.5"]), numbers(["yes", "no", "yes", "1"])
    ([12, 1000.0, 0.5], ['yes', 'no', 'yes', 1])
    """
    if (column := _plain_numbers(texts)) is not None:
        return column
    cells = {*texts}
    plain = [text for text in cells if text[:1] in _PLAIN_STARTS]
    by_text: dict[str, int | float | str] = {text: number(text) if text else text for text in cells.difference(plain)}
    by_text.update(zip(plain, _plain_numbers(plain) or map(number, plain), strict=True))
    return [by_text[text] for text in texts]


def _plain_numbers(texts: Sequence[str]) -> list[int | float | str] | None:
    """Return the numbers if all cells are numbers of JSON, and `number` reads each of them so."""
    try:
        values = orjson.loads(f"[{','.join(texts)}]")
    except orjson.JSONDecodeError:
        return None
    if (
        0 < len(values) == len(texts)
        and {*map(type, values)} <= _NUMBERS
        and min(values) > -_FITS
        and max(values) < _FITS
    ):
        return values  # type: ignore[no-any-return]
    return None


def comma_numbers(texts: Sequence[str]) -> list[int | float | str]:
    """Read a column of cells, each as `comma_number` does; an empty one does not change."""
    by_text = {text: comma_number(text) if text else text for text in {*texts}}
    return [by_text[text] for text in texts]


def rows_of_numbers(rows: Sequence[bytes], joined: bytes) -> list[list[int | float]] | None:
    """Read rows whose cells are plain numbers, each as `number` does; ``None`` if one may be something else.

    Examples
    --------
    >>> rows_of_numbers([b"1,0.5", b"2,-1e3"], b"1,0.5,2,-1e3"), rows_of_numbers([b"1,", b"2,x"], b"1,,2,x")
    ([[1, 0.5], [2, -1000.0]], None)
    """
    if joined.translate(None, _OF_NUMBERS):
        return None
    starts = b",%b" % joined.translate(_DIGITS_AS_0)
    if any(start in starts for start in _TOO_LONG):
        return None
    try:
        return orjson.loads(b"[[%b]]" % b"],[".join(rows))  # type: ignore[no-any-return]
    except orjson.JSONDecodeError:
        return None


def check_names(names: Sequence[str], first: int = 1) -> Sequence[str]:
    """Return the names of a table's columns from a number on, or raise a `ValueError` if one is empty or repeated.

    Examples
    --------
    >>> check_names(["x", "", "y", "x"])
    Traceback (most recent call last):
    ValueError: Expected distinct names of columns, got none for column 2 and "x" for columns 1, 4
    """
    columns: dict[str, list[int]] = {}
    for column, name in enumerate(names, start=first):
        columns.setdefault(name, []).append(column)
    faults = [_fault(name, numbers) for name, numbers in columns.items() if not name or len(numbers) > 1]
    if faults:
        faults.sort(key=lambda fault: not fault.startswith("none"))
        raise ValueError(f"Expected distinct names of columns, got {' and '.join(faults)}")
    return names


def _fault(name: str, columns: Sequence[int]) -> str:
    where = f"column{'s' if len(columns) > 1 else ''} {', '.join(map(str, columns))}"
    return f'"{name}" for {where}' if name else f"none for {where}"
