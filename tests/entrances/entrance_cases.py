"""Streams as people have them, and which of their records become dead letters, wherever they arrive."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

Row = dict[str, Any]

N = 240
"""Records in a stream."""

LATE = 150
"""The number of a record that comes when types are decided."""


class Case(NamedTuple):
    """A stream, and what is right.

    Parameters
    ----------
    name : str
        Name of the test.
    rows : list of dict
        The records, each with its number as ``id``, an input ``a``, and ``y``.
    refused : set of int
        Numbers of the records that become dead letters.
    missing : tuple, default ()
        Markers of missing values.
    fields : dict, default {}
        Declared types.
    ignore : tuple, default ()
        Fields that are no inputs.
    is_alike : bool, default True
        Whether predictions are the same at all entrances. They are not where a cell of CSV or a text of Parquet may be
        a number or a code, until there are values enough to decide.
    in_python : set of int, optional
        Numbers of the records that the estimators refuse, if not the same.
    """

    name: str
    rows: list[Row]
    refused: set[int]
    missing: tuple[str | int, ...] = ()
    fields: Mapping[str, str] = MappingProxyType({})
    ignore: tuple[str, ...] = ()
    is_alike: bool = True
    in_python: set[int] | None = None

    @property
    def refused_in_python(self) -> set[int]:
        """Numbers of the records that the estimators refuse."""
        return self.refused if self.in_python is None else self.in_python


def stream(change: Callable[[int, Row, random.Random], None]) -> list[Row]:
    """Return records of two labels, each changed by `change`."""
    generator, rows = random.Random(5), []
    for i in range(N):
        a = generator.gauss(0, 1)
        row: Row = {"id": i, "a": a, "y": "no" if a < 0 else "yes"}
        change(i, row, generator)
        rows.append(row)
    return rows


def values(name: str, usual: Callable[[random.Random], Any], rare: dict[int, Any]) -> list[Row]:
    """Return a stream with one more field, which has other values in some records."""

    def change(i: int, row: Row, generator: random.Random) -> None:
        row[name] = rare.get(i, usual(generator))

    return stream(change)


def _number(generator: random.Random) -> float:
    return generator.gauss(0, 1)


def _plan(generator: random.Random) -> str:
    return generator.choice(["basic", "pro"])


def _hash(generator: random.Random) -> str:
    return f"{generator.randrange(50) * 2654435761 % 2**32:08x}"


def _number_code(generator: random.Random) -> str:
    """Return a code of which others are the same number."""
    return generator.choice(["1.1", "1.10", "12E5", "1200000", "007", "7", "7.0"])


def _long_code(generator: random.Random) -> int:
    """Return an integer that no float and no 64 bits can hold."""
    return 10**30 + generator.randrange(5)


def _told_by(name: str, code: Callable[[random.Random], Any]) -> list[Row]:
    """Return a stream in which a field alone tells the label."""

    def change(_: int, row: Row, generator: random.Random) -> None:
        row[name] = code(generator)
        row["y"] = "yes" if hash_of(row[name]) else "no"

    return stream(change)


def hash_of(code: Any) -> int:
    """Return 0 or 1 for the text of a code."""
    return sum(str(code).encode()) % 2


def _dollars(generator: random.Random) -> str:
    return f"{generator.randrange(100, 5000):,}"


def _euros(generator: random.Random) -> str:
    return f"{generator.uniform(100, 5000):,.2f}".translate(str.maketrans(",.", ".,"))


def _second(generator: random.Random) -> int:
    return 1_700_000_000 + generator.randrange(10**6)


def _truth(generator: random.Random) -> Any:
    return generator.choice([True, "true", "True"])


def _order(generator: random.Random) -> Row:
    """Return an object with a field that is refused wherever it is an input."""
    return {"code": _hash(generator), "item": {"sizes": [1, 2]}}


def _percent(generator: random.Random) -> str:
    return f"{generator.uniform(0, 100):.1f}%"


def _spaced(generator: random.Random) -> str:
    """Return a number with narrow spaces between thousands."""
    return f"{generator.uniform(1e3, 5e6):,.2f}".translate(str.maketrans(",.", "\u202f,"))


def _moment(generator: random.Random) -> str:
    return f"2026-11-{generator.randrange(1, 29):02}T06:30:00{generator.choice(['Z', '+02:00', ''])}"


def _word_of_number(generator: random.Random) -> str:
    return generator.choice(["low", "high", "inf", "nan", "NA", "true"])


def _odd_text(generator: random.Random) -> str:
    return generator.choice(["a\nb", "ü😀", 'say "x", y', " x ", "=1+1", "a\tb", "\\N"])


def _without_b(i: int, row: Row, generator: random.Random) -> None:
    if i % 7 != 3:
        row["b"] = generator.gauss(0, 1)


def _without_inputs(i: int, row: Row, _: random.Random) -> None:
    if i in (5, LATE):
        row["a"] = None


def _twin(i: int, row: Row, _: random.Random) -> None:
    """Add a category, and in one record a number with the name of its indicator."""
    row["plan"] = "pro"
    if i == LATE:
        row["plan=pro"] = 1.0


CASES = [
    Case("a number among texts", values("plan", _plan, {0: 3, LATE: 3}), set()),
    Case("a text among numbers", values("b", _number, {LATE: "oops"}), {LATE}),
    Case("a text first", values("b", _number, {0: "oops"}), set()),
    Case("missing values", values("b", _number, {3: None, 9: math.nan, LATE: math.nan, LATE + 5: None}), set()),
    Case("markers of missing values", values("b", _number, {9: "NA", LATE: -200, LATE + 1: "NA"}), set(), ("NA", -200)),
    Case("hashes", values("code", _hash, {}), set(), is_alike=False),
    Case("hashes that are declared", values("code", _hash, {}), set(), fields={"code": "category"}),
    Case("codes that are numbers", _told_by("code", _number_code), set(), fields={"code": "category"}),
    Case("codes of many digits", _told_by("code", _long_code), set(), fields={"code": "category"}),
    Case("a text in a declared number", values("b", _number, {0: "x", LATE: "y"}), {0, LATE}, fields={"b": "number"}),
    Case("numbers as text", values("b", lambda generator: repr(_number(generator)), {}), set()),
    Case("declared numbers with thousands apart", values("b", _dollars, {}), set(), fields={"b": "number"}),
    Case("declared numbers with points and commas", values("b", _euros, {}), set(), fields={"b": "number"}),
    Case("a time in another unit", values("t", _second, {LATE: 1_700_000_000_000}), {LATE}, fields={"t": "time"}),
    Case("truth as a value and as text", values("c", _truth, {}), set(), fields={"c": "category"}),
    Case("an empty label", values("y", _plan, {LATE: ""}), {LATE}, in_python=set()),
    Case("an ignored field", values("c", _number, {3: "x", 9: math.inf, LATE: "1e999"}), set(), ignore=("c",)),
    Case("a field of a declared identifier", values("c", _hash, {3: 12}), set(), fields={"c": "identifier"}),
    Case("an ignored object", values("c", _order, {3: {"code": "12"}, LATE: None}), set(), ignore=("c",)),
    Case("an object declared to be ignored", values("c", _order, {LATE: None}), set(), fields={"c": "ignore"}),
    Case("infinity", values("b", _number, {LATE: math.inf}), {LATE}),
    Case("a long label", values("y", _plan, {LATE: "x" * 2000}), {LATE}, in_python=set()),
    Case("rare codes among numbers", values("b", _number, {LATE: "V45", LATE + 7: "E950"}), {LATE, LATE + 7}),
    Case("words that are numbers", values("c", _word_of_number, {}), set(), fields={"c": "category"}),
    Case("percent", values("b", _percent, {}), set()),
    Case("spaces between thousands", values("b", _spaced, {}), set()),
    Case("an absent field", stream(_without_b), set()),
    Case("a text for no time", values("t", _moment, {3: "None", LATE: "NaT"}), {3, LATE}, fields={"t": "time"}),
    Case("a marker of no time", values("t", _moment, {LATE: "NaT"}), set(), ("NaT",), fields={"t": "time"}),
    Case("missing values alone", stream(_without_inputs), {5, LATE}, in_python=set()),
    Case("odd labels", values("y", _odd_text, {}), set()),
    Case("odd texts", values("c", _odd_text, {}), set()),
    Case("a text of 300 kB", values("c", _plan, {LATE: "x" * 300_000}), set()),
    Case("a number with the name of a category", stream(_twin), {LATE}),
    Case("a number that is too large", values("b", _number, {7: -1e308, LATE: 1e308}), {7, LATE}),
]
