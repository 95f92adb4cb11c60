"""Formats of records: text in files, by their suffixes, and the bytes of one value."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from streamkernel.connectors.base import unknown_name
from streamkernel.connectors.csv_cells import number
from streamkernel.connectors.csv_table import PLAIN, Csv, CsvOptions
from streamkernel.connectors.json_values import JsonFields, flatten, object_with_digits, with_digits
from streamkernel.connectors.record_splitters import LineCutter, Quotes, quoted_line

Fields: TypeAlias = dict[str, Any]

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".svmlight": "svmlight",
    ".svm": "svmlight",
    ".libsvm": "svmlight",
    ".parquet": "parquet",
}

WITHOUT_ROW = ("d", "t", "m")
"""Operations after which there is no row: delete, truncate, message."""


class TextFormat(Protocol):
    """A parser of single records, by default lines without a header."""

    @property
    def cutter(self) -> Callable[[int], LineCutter]:
        """The splitter of bytes into records of this format, which takes the longest record's size."""
        return LineCutter

    @property
    def ready(self) -> bool:
        """Whether records can be read; a header has to be read first."""
        return True

    def parse(self, raw: bytes) -> Fields | None:
        """Return the fields, or ``None`` for bytes without any; raise a `ValueError` with the reason."""


class JsonLines(TextFormat):
    """JSON objects, one per line; the fields of a nested object have the path to them as names.

    `max_list_length` is the largest length of a list whose items become fields, as for
    :func:`~streamkernel.connectors.json_values.flatten`. `texts` are the fields in which integers beyond 64 bits are
    texts, as for :class:`~streamkernel.connectors.json_values.JsonFields`.

    Examples
    --------
    >>> JsonLines().parse(b'{"x": 1.5, "y": true, "z": {"a": 2}}')
    {'x': 1.5, 'y': True, 'z.a': 2}
    >>> JsonLines(max_list_length=4).parse(b'{"x": NaN, "sizes": [3, 5]}')
    {'x': nan, 'sizes.0': 3, 'sizes.1': 5}
    >>> JsonLines().parse(b'[1.5, true]')
    Traceback (most recent call last):
    ValueError: Expected a JSON object, got an array
    """

    def __init__(self, max_list_length: int = 0, texts: Iterable[str] = ()) -> None:
        self._fields = JsonFields(max_list_length, texts)

    def parse(self, raw: bytes) -> Fields:
        """Return the fields of one line."""
        return self._fields(raw)

    def parse_all(self, rows: Sequence[bytes]) -> list[Fields] | None:
        """Return the fields of lines as :meth:`parse` does for each, faster; ``None`` if one must be parsed alone."""
        return self._fields.read_all(rows)


class AllZeros(dict[str, Any]):
    """A record of a sparse format that has no features because each is 0, which is an example like any other."""


class SvmLight(TextFormat):
    """``label index:value ... # comment``, as svmlight and libsvm write it; ``qid:value`` is the field ``"qid"``.

    Examples
    --------
    >>> SvmLight().parse(b'-1 1:0.5 7:2 # from the east')
    {'label': -1, '1': 0.5, '7': 2}
    >>> SvmLight().parse(b'-1 qid:3 1:0.5')
    {'label': -1, 'qid': 3, '1': 0.5}
    >>> SvmLight().parse(b'-1 1:0.5 7=2')
    Traceback (most recent call last):
    ValueError: Expected index:value, got "7=2"
    """

    def parse(self, raw: bytes) -> Fields | None:
        """Return the fields of one line, the label as ``"label"``, or ``None`` for a comment line."""
        tokens = raw.decode().partition("#")[0].split()
        if not tokens:
            return None
        label = number(tokens[0])
        if type(label) is str:
            raise ValueError(f'Expected a number as label, got "{label}"')
        record: Fields = {"label": label}
        for token in tokens[1:]:
            index, _, text = token.partition(":")
            value = number(text) if text else text
            if type(value) is str or not (index == "qid" or (index.isdecimal() and index.isascii())):
                raise ValueError(f'Expected index:value, got "{token}"')
            if index in record:
                raise ValueError(f'Expected every index once, got "{token}" after "{index}:{record[index]}"')
            record[index] = value
        return record if record.keys() - {"label", "qid"} else AllZeros(record)


class Headless(TextFormat):
    """Lines of a table without column names, for a reason, none of which is a record.

    Examples
    --------
    >>> Headless("Expected a name, got none").parse(b"1,2")
    Traceback (most recent call last):
    ValueError: Expected a name, got none
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def parse(self, raw: bytes) -> Fields:
        """Raise the error that names the reason."""
        raise ValueError(self._reason)


TEXT_FORMATS: dict[str, type[TextFormat]] = {"csv": Csv, "jsonl": JsonLines, "svmlight": SvmLight}
FORMATS = (*TEXT_FORMATS, "parquet")


def format_of(path: Path) -> str:
    """Return the format for a file name.

    `path` is the file; ``.gz`` at the end of a text file's name does not count. Raise `ValueError` if the name says
    nothing. The result is ``"csv"``, ``"jsonl"``, ``"svmlight"`` or ``"parquet"``.

    Examples
    --------
    >>> format_of(Path("a.csv")), format_of(Path("a.ndjson.gz"))
    ('csv', 'jsonl')
    >>> format_of(Path("a.jsonk"))
    Traceback (most recent call last):
    ValueError: Expected a file name that ends in .csv, .tsv, .jsonl, .ndjson, .svmlight, .svm, .libsvm, .parquet,
    got ".jsonk" - did you mean ".jsonl"?
    """
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise unknown_name("a file name that ends in", suffix or path.name, SUFFIXES)
    return SUFFIXES[suffix]


def suffix_of(path: Path) -> str:
    """Return the suffix that tells the format, in small letters.

    Examples
    --------
    >>> suffix_of(Path("a.TSV.gz"))
    '.tsv'
    """
    compressed = path.suffix.lower() == ".gz"
    return (Path(path.stem) if compressed else path).suffix.lower()


def row_after(envelope: Mapping[str, Any]) -> Any:
    """Return the row after a change, ``None`` if there is none.

    `envelope` is the value of a record: the envelope itself, or an object with the envelope as ``payload`` beside its
    schema. Raise `ValueError` if it is no envelope.

    Examples
    --------
    >>> row_after({"before": None, "after": {"id": 7}, "op": "c"})
    {'id': 7}
    >>> row_after({"schema": {}, "payload": {"before": {"id": 7}, "after": None, "op": "d"}}) is None
    True
    >>> row_after({"id": 7})
    Traceback (most recent call last):
    ValueError: Expected an envelope of Debezium with "op" and "after", got an object with "id"
    """
    payload = envelope.get("payload")
    change = payload if isinstance(payload, dict) and "op" not in envelope else envelope
    operation, row = change.get("op"), change.get("after")
    if operation in WITHOUT_ROW:
        return None
    if operation is None or not isinstance(row, dict):
        names = ", ".join(f'"{name}"' for name in list(change)[:5]) or "no fields"
        raise ValueError(f'Expected an envelope of Debezium with "op" and "after", got an object with {names}')
    return row


VALUE_FORMATS = ("json", "csv", "avro", "protobuf", "json-schema")
"""Formats of values; those after the first two have their schemas in a registry."""


class PassedOverError(Exception):
    """A record has nothing to learn from and is no error: a tombstone, a deletion, or a header of CSV."""


class ValueDecoder:
    """Converts the object that a reader returns for the bytes of a value to flat fields.

    A change in an `envelope` without a row afterwards raises `PassedOverError`. `max_list_length` is the largest length
    of a list whose items become fields. `texts` are the fields in which integers of JSON beyond 64 bits are texts,
    where `read` reads JSON. `zones` are the zones of times without one, by field; by default UTC.

    Examples
    --------
    >>> from streamkernel.connectors.json_values import json_object
    >>> decode = ValueDecoder(json_object, envelope="debezium")
    >>> decode(b'{"op": "u", "before": null, "after": {"id": 7, "size": {"x": 2.5}}}')
    {'id': 7, 'size.x': 2.5}
    """

    def __init__(
        self,
        read: Callable[[bytes], Any],
        *,
        envelope: str | None = None,
        max_list_length: int = 0,
        texts: Sequence[str] = (),
        zones: Mapping[str, str] | None = None,
    ) -> None:
        self._read, self._max_list_length, self._texts, self._zones = read, max_list_length, texts, zones
        self._has_envelope = envelope is not None

    def __call__(self, value: bytes) -> dict[str, Any]:
        """Return the fields of a value."""
        fields = self._fields(self._read(value))
        return with_digits(fields, self._texts, lambda: self._fields(object_with_digits(value)))

    def _fields(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"Expected a record with fields, got {type(value).__name__}")
        if self._has_envelope:
            value = row_after(value)
            if value is None:
                raise PassedOverError("a change without a row afterwards")
        return flatten(value, self._max_list_length, self._zones)


class CsvRow:
    r"""One row of CSV, whose columns have names that are known before.

    Examples
    --------
    >>> CsvRow(["age", "town"])(b'31,"Ulm, old town"\n')
    {'age': 31, 'town': 'Ulm, old town'}
    """

    def __init__(self, columns: Sequence[str], options: CsvOptions = PLAIN) -> None:
        options = replace(options, columns=tuple(columns))
        self._delimiter = (options.delimiter or ",").encode()
        self._encoding = options.encoding if options.is_rewritten else None
        self._table = Csv(options, is_rewritten=options.is_rewritten)

    def __call__(self, value: bytes) -> dict[str, Any]:
        """Return the fields of a row."""
        text = value if self._encoding is None else value.decode(self._encoding).encode()
        row = text.removeprefix(BOM_UTF8).removesuffix(b"\n").removesuffix(b"\r")
        *lines, _ = row.split(b"\n")
        n_rows, is_quoted = 1, False
        for line in lines:
            is_quoted = quoted_line(line, is_quoted, self._delimiter).quotes is Quotes.OPEN
            n_rows += not is_quoted
        if n_rows > 1:
            raise ValueError(f"Expected one row of CSV, got {n_rows:,}")
        fields = self._table.parse(row)
        if fields is None:
            raise PassedOverError("a header")
        return fields
