"""Checks of arguments that several connectors share."""

from __future__ import annotations

import difflib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Mapping

from streamkernel.connectors.base import Position

BROKEN = "broken"


def unknown_name(expected: str, got: str, existing: Iterable[str]) -> ValueError:
    """Return the error for an unknown name, which lists the known ones and proposes the most similar one.

    Examples
    --------
    >>> raise unknown_name("a fruit of", "aple", ["apple", "pear"])
    Traceback (most recent call last):
    ValueError: Expected a fruit of apple, pear, got "aple" - did you mean "apple"?
    """
    names = {name.lower(): name for name in existing}
    near = difflib.get_close_matches(got.lower(), names, n=1, cutoff=0.5)
    hint = f' - did you mean "{names[near[0]]}"?' if near else ""
    return ValueError(f'Expected {expected} {", ".join(names.values())}, got "{got}"{hint}')


def position_of(stream: str, positions: Mapping[str, Position]) -> Position | None:
    """Return the position of a source's only stream, ``None`` if there are no positions at all.

    Raise a `ValueError` if all positions are of other streams: a new start would read every record twice.

    Examples
    --------
    >>> position_of("a.csv", {"a.csv": [120, 7]})
    [120, 7]
    >>> position_of("a.csv", {"b.csv": [120, 7]})
    Traceback (most recent call last):
    ValueError: Expected a position of "a.csv", got those of "b.csv"
    """
    if positions and stream not in positions:
        others = ", ".join(f'"{name}"' for name in positions)
        raise ValueError(f'Expected a position of "{stream}", got those of {others}')
    return positions.get(stream)


def is_broken(position: Position) -> bool:
    """Return whether nothing can be read after a position.

    Examples
    --------
    >>> is_broken([120, 7, "broken"]), is_broken([120, 7])
    (True, False)
    """
    return isinstance(position, (list, tuple)) and len(position) == 3 and position[2] == BROKEN


def is_count(value: object) -> bool:
    """Return whether a part of a position is valid: an integer of at least 0.

    Examples
    --------
    >>> is_count(3), is_count(-3), is_count(True), is_count("3")
    (True, False, False, False)
    """
    return type(value) is int and value >= 0


def is_place(position: Position) -> bool:
    """Return whether a position is one in a text: the number of bytes, the number of lines, and perhaps a note.

    Examples
    --------
    >>> is_place([120, 7]), is_place([120, 7, "broken"]), is_place([120, -7]), is_place(120)
    (True, True, False, False)
    """
    return isinstance(position, (list, tuple)) and len(position) in (2, 3) and all(map(is_count, position[:2]))


def not_utf8(error: UnicodeDecodeError, hint: str | None = None) -> str:
    r"""Return the reason why bytes cannot be read as text.

    `hint` is the encoding to propose, where one can be declared; it is UTF-16 if the bytes begin as such.

    Examples
    --------
    >>> try:
    ...     b"K\xf6ln".decode()
    ... except UnicodeDecodeError as error:
    ...     print(not_utf8(error, hint="latin-1"))
    Expected UTF-8, got byte 0xf6 as byte 2 of the record - did you mean encoding = "latin-1"?
    """
    byte = error.object[error.start]
    hint = hint and ("utf-16" if error.object[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) else hint)
    question = f' - did you mean encoding = "{hint}"?' if hint else ""
    return f"Expected UTF-8, got byte 0x{byte:02x} as byte {error.start + 1} of the record{question}"
