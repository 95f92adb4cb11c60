"""Tables as text: how they are written, and a parser of their rows."""

from __future__ import annotations

import codecs
import csv
import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import takewhile
from typing import Any

from streamkernel.connectors.base import not_utf8
from streamkernel.connectors.csv_cells import check_names, comma_number, comma_numbers, number, numbers, rows_of_numbers
from streamkernel.connectors.record_splitters import LineCutter, QuotedCutter

log = logging.getLogger(__name__)

DELIMITERS = (",", ";", "\t", "|")
DECIMALS = (".", ",")


@dataclass(frozen=True, slots=True)
class CsvOptions:
    r"""How a table is written.

    Parameters
    ----------
    delimiter : "," or ";" or "\t" or "|" or None, default None
        The character between two cells; by default a tab in files that end in ``.tsv``, and a comma in others.
    decimal : "." or ",", default "."
        The decimal sign. If it is a comma, points may separate thousands.
    encoding : str, default "utf-8"
        The encoding, one of Python's for text.
    columns : tuple of str, default ()
        The names of the columns, where no header has them.
    texts : tuple of str, default ()
        The names of columns whose cells stay the texts that they are, such as ``1E2``, ``1.10`` and ``007``.

    Raises
    ------
    ValueError
        If one of them is another value.

    Examples
    --------
    >>> CsvOptions(delimiter=";", decimal=",", encoding="latin-1").delimiter
    ';'
    """

    delimiter: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    columns: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value, values in (
            ("delimiter", self.delimiter or ",", DELIMITERS),
            ("decimal", self.decimal, DECIMALS),
        ):
            if value not in values:
                raise ValueError(f"Expected a {name} of {', '.join(map(json.dumps, values))}, got {json.dumps(value)}")
        check_encoding(self.encoding)
        check_names(self.columns)

    @property
    def is_rewritten(self) -> bool:
        """Whether the bytes have to be rewritten as UTF-8 before they can be split into rows."""
        return not _has_plain_signs(self.encoding, "".join(DELIMITERS))


def check_encoding(encoding: str) -> str:
    """Return the name of an encoding, or raise a `ValueError` if it is not one of Python's for text.

    Examples
    --------
    >>> check_encoding("utf-9")
    Traceback (most recent call last):
    ValueError: Expected a text encoding of Python, such as "latin-1", got "utf-9"
    """
    try:
        "a".encode(encoding)
        return encoding
    except (LookupError, ValueError):
        raise ValueError(f'Expected a text encoding of Python, such as "latin-1", got "{encoding}"') from None


@cache
def _has_plain_signs(encoding: str, delimiters: str) -> bool:
    """Return whether delimiters, quotes and line ends are their ASCII bytes, which no other character contains."""
    signs = f'{delimiters}"\r\n'
    others = "".join(map(chr, (*range(128, 0xD800), *range(0xE000, 0x10000)))).encode(encoding, "ignore")
    return signs.encode(encoding) == signs.encode() and not {*signs.encode()} & {*others}


PLAIN = CsvOptions()
"""Commas, decimal points, UTF-8 and a header."""

_UNNAMED = re.compile(r"Unnamed: 0(\.[0-9]+)?")
"""Names that pandas gives to a first column without one, also if it has written and read it several times."""


class Csv:
    """Rows of cells under a header line, quoted as spreadsheets do.

    A cell is an integer, a float or a string, the first that fits; an empty cell is a missing field. First columns
    without a name, or with the name that pandas gives them then, ``Unnamed: 0``, have row numbers, and are left out; so
    is a last one without a name and with no values. A row with the names of the columns is a header, wherever it is.
    `options` says how the table is written. `is_rewritten` says whether its bytes have been rewritten as UTF-8.
    `is_silent` says whether nothing is written to the log.

    Examples
    --------
    >>> table = Csv()
    >>> table.parse(b'age,name,city')
    >>> table.parse(b'31,"Smith, Ann",')
    {'age': 31, 'name': 'Smith, Ann'}
    >>> table.parse(b'31,Ann')
    Traceback (most recent call last):
    ValueError: Expected 3 fields, got 2
    """

    def __init__(self, options: CsvOptions = PLAIN, *, is_rewritten: bool = False, is_silent: bool = False) -> None:
        self._delimiter, self._decimal, self._encoding = options.delimiter or ",", options.decimal, options.encoding
        self._codec = "utf-8" if is_rewritten else codecs.lookup(options.encoding).name
        self._is_silent = is_silent
        self._texts = frozenset(options.texts)
        self._n_index, self._has_end, self._has_told = 0, False, False
        point = {",": "."} if self._decimal == "," != self._delimiter else {}
        signs = {self._delimiter: ",", **point}
        self._plain_signs = bytes.maketrans("".join(signs).encode(), "".join(signs.values()).encode())
        self._no_sign = "." if self._decimal == "," else "," if self._delimiter != "," else '"'
        self._names: Sequence[str] = ()
        self._widths: tuple[int, ...] = ()  # The numbers of cells that a row may have.
        self._header = b""
        if options.columns:
            self._set_names(options.columns)

    @property
    def cutter(self) -> Callable[[int], LineCutter]:
        """The splitter of bytes into rows."""
        return partial(QuotedCutter, delimiter=self._delimiter.encode(), widths=lambda: self._widths)

    @property
    def ready(self) -> bool:
        """Whether the header has been read."""
        return bool(self._names)

    @property
    def names(self) -> Sequence[str]:
        """The names in the header."""
        return self._names

    def parse_all(self, rows: Sequence[bytes]) -> list[dict[str, Any]] | None:
        """Return the fields of rows as :meth:`parse` does for each, faster; ``None`` if one must be parsed alone."""
        names, delimiter = self._names, self._delimiter.encode()
        joined = delimiter.join(rows)
        if not names or b'"' in joined or b"\r" in joined or self._header in rows:
            return None
        if self._has_end and self._header + delimiter in rows:
            return None
        width, *others = {row.count(delimiter) + 1 for row in rows}
        if others or width not in self._widths:
            return None
        if (plain_rows := self._rows_of_numbers(rows, joined)) is not None:
            return [dict(zip(names, row, strict=False)) for row in plain_rows]  # each has as many
        try:
            cells = joined.decode(self._codec).split(self._delimiter)
        except UnicodeDecodeError:
            return None
        first, end = self._n_index, self._n_index + len(names)
        if not all(all(map(_counts_rows, cells[i::width])) for i in range(first)):
            return None
        if width > end and any(cells[end::width]):
            return None
        read = numbers if self._decimal == "." else comma_numbers
        columns = [
            cells[i::width] if name in self._texts else read(cells[i::width]) for i, name in enumerate(names, first)
        ]
        if "" not in cells:
            return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return [
            {name: cell for name, cell in zip(names, row, strict=True) if cell != ""}
            for row in zip(*columns, strict=True)
        ]

    def _rows_of_numbers(self, rows: Sequence[bytes], joined: bytes) -> list[list[int | float]] | None:
        """Return rows if all their cells are plain numbers."""
        if self._n_index or self._has_end or self._has_texts or self._no_sign.encode() in joined:
            return None
        if self._delimiter != ",":
            rows = b"\n".join(rows).translate(self._plain_signs).split(b"\n")
            joined = b",".join(rows)
        return rows_of_numbers(rows, joined)

    def parse(self, raw: bytes) -> dict[str, Any] | None:
        """Return the fields of one row, or ``None`` for a header."""
        cells = _split(self._decode(raw), self._delimiter)
        names, widths = self._names, self._widths
        if not names:
            self._read_header(cells, is_quoted=b'"' in raw)
            return None
        if len(cells) not in widths:
            raise ValueError(f"Expected {widths[-1]} fields, got {len(cells)}")
        first, end = self._n_index, self._n_index + len(names)
        values = cells[first:end]
        if values == names:
            self._tell_header()
            return None
        if len(values) < len(cells):
            self._check_nameless(cells, first, end)
        read, texts = number if self._decimal == "." else comma_number, self._texts
        return {name: cell if name in texts else read(cell) for name, cell in zip(names, values, strict=True) if cell}

    def _check_nameless(self, cells: list[str], first: int, end: int) -> None:
        """Raise an error if a cell outside of the named columns is neither a row number nor empty."""
        for i, cell in enumerate(cells[:first], start=1):
            if not _counts_rows(cell):
                raise ValueError(f'Expected a row number in column {i}, which has no name, got "{cell}"')
        if any(cells[end:]):
            raise ValueError(f'Expected nothing in column {end + 1}, which has no name, got "{cells[end]}"')

    def _decode(self, raw: bytes) -> str:
        try:
            return raw.decode(self._codec)
        except UnicodeDecodeError as error:
            if self._codec != "utf-8":
                got = f"byte 0x{raw[error.start]:02x} as byte {error.start + 1} of the record"
            elif self._encoding == "utf-8":
                raise ValueError(not_utf8(error, hint="latin-1")) from None
            else:
                got = "bytes that are none"
            raise ValueError(f"Expected {self._encoding}, got {got}") from None

    def _read_header(self, cells: list[str], *, is_quoted: bool) -> None:
        others = [sign for sign in DELIMITERS if len(cells) == 1 and not is_quoted and sign in cells[0]]
        if others:
            raise ValueError(
                f"Expected columns between {json.dumps(self._delimiter)}, got one column {json.dumps(cells[0])} - did "
                f"you mean delimiter = {json.dumps(others[0])}?"
            )
        index = [*takewhile(self._is_index, enumerate(cells[:-1]))]
        n_index = len(index)
        has_end = len(cells) > 1 + n_index and not cells[-1]
        names = check_names(cells[n_index : len(cells) - has_end], first=1 + n_index)
        self._n_index, self._has_end = n_index, has_end
        self._set_names(names)
        for _, name in index:
            which, and_no_name = (f'column "{name}"', "") if name else ("first column", " and no name")
            self._tell(f"the {which}, which has row numbers{and_no_name}, is left out")
        if has_end:
            self._tell("the last column, which has neither a name nor values, is left out")

    def _is_index(self, column: tuple[int, str]) -> bool:
        """Return whether a column, with those before it, has the row numbers of pandas."""
        i, name = column
        return (i == 0 and not name) or (_UNNAMED.fullmatch(name) is not None and name not in self._texts)

    def _set_names(self, names: Sequence[str]) -> None:
        self._names = list(names)
        width = self._n_index + len(names)
        self._widths = (width, width + 1) if self._has_end else (width,)
        self._has_texts = not self._texts.isdisjoint(names)
        self._header = self._delimiter.join(names).encode(self._codec, "replace")

    def _tell_header(self) -> None:
        if not self._has_told:
            self._has_told = True
            self._tell("a row with the names of the columns is a header, and is left out")

    def _tell(self, note: str) -> None:
        if not self._is_silent:
            log.info(note)


def _counts_rows(cell: str) -> bool:
    return cell.isdecimal() and cell.isascii()


def _split(text: str, delimiter: str) -> list[str]:
    """Split a row into its cells."""
    text = text.removesuffix("\r")
    if '"' not in text and "\r" not in text:
        return text.split(delimiter)
    if len(text) > csv.field_size_limit():  # How long a record may be is not for the csv module to say.
        csv.field_size_limit(len(text))
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True))
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            raise ValueError("Expected closing quotes, got none that end a cell") from None
        if "new-line" in str(error):
            raise ValueError(r'Expected "\n" or "\r\n" between rows, got "\r" alone') from None
        raise ValueError(f"Expected a row of CSV, got an error: {error}") from None
