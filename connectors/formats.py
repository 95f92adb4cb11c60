"""Text formats: parsers from the bytes of a record to fields, and formats by the suffix of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

from streamkernel.connectors.checks import unknown_name
from streamkernel.connectors.csv_cells import number
from streamkernel.connectors.csv_table import Csv
from streamkernel.connectors.json_values import JsonFields
from streamkernel.connectors.record_splitters import LineCutter

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


class TextFormat(Protocol):
    """A parser of single records."""

    @property
    def cutter(self) -> Callable[[int], LineCutter]:
        """The splitter of bytes into records of this format, which takes the longest record's size."""

    @property
    def ready(self) -> bool:
        """Whether records can be read; a header has to be read first."""

    def parse(self, raw: bytes) -> Fields | None:
        """Return the fields, or ``None`` for bytes without any; raise a `ValueError` with the reason."""


class JsonLines:
    """JSON objects, one per line; the fields of a nested object have the path to them as names.

    Parameters
    ----------
    max_list_length
        The largest length of a list whose items become fields, as for
        :func:`~streamkernel.connectors.json_values.flatten`.
    texts
        The fields in which integers beyond 64 bits are texts, as for
        :class:`~streamkernel.connectors.json_values.JsonFields`.

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

    cutter: ClassVar[type[LineCutter]] = LineCutter
    ready = True

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


class SvmLight:
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

    cutter: ClassVar[type[LineCutter]] = LineCutter
    ready = True

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


class Headless:
    """Lines of a table without column names, none of which is a record.

    Parameters
    ----------
    reason
        The problem of the header.

    Examples
    --------
    >>> Headless("Expected a name, got none").parse(b"1,2")
    Traceback (most recent call last):
    ValueError: Expected a name, got none
    """

    cutter: ClassVar[type[LineCutter]] = LineCutter
    ready = True

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def parse(self, raw: bytes) -> Fields:
        """Raise the error that names the reason."""
        raise ValueError(self._reason)


TEXT_FORMATS: dict[str, type[TextFormat]] = {"csv": Csv, "jsonl": JsonLines, "svmlight": SvmLight}
FORMATS = (*TEXT_FORMATS, "parquet")


def format_of(path: Path) -> str:
    """Return the format for a file name.

    Parameters
    ----------
    path
        The file; ``.gz`` at the end of a text file's name does not count.

    Returns
    -------
    str
        ``"csv"``, ``"jsonl"``, ``"svmlight"`` or ``"parquet"``.

    Raises
    ------
    ValueError
        If the name says nothing.

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
