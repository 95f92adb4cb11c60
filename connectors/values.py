"""Decoders of values: the bytes of one record become its fields."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from streamkernel.connectors.csv_table import PLAIN, Csv, CsvOptions
from streamkernel.connectors.json_values import flatten, object_with_digits, with_digits
from streamkernel.connectors.record_splitters import Quotes, quoted_line

WITHOUT_ROW = ("d", "t", "m")
"""Operations after which there is no row: delete, truncate, message."""


def row_after(envelope: Mapping[str, Any]) -> Any:
    """Return the row after a change, ``None`` if there is none.

    Parameters
    ----------
    envelope
        The value of a record: the envelope itself, or an object with the envelope as ``payload`` beside its schema.

    Raises
    ------
    ValueError
        If it is no envelope.

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

    Parameters
    ----------
    read : callable
        Returns an object for bytes, or raises a `ValueError` with the reason.
    envelope : "debezium" or None, default None
        The envelope around the fields. Changes without a row afterwards raise `PassedOverError`.
    max_list_length : int, default 0
        The largest length of a list whose items become fields, as for
        :func:`~streamkernel.connectors.json_values.flatten`.
    texts : sequence of str, default ()
        The fields in which integers of JSON beyond 64 bits are texts, where `read` reads JSON.
    zones : dict of str to str or None, default None
        The zones of times without one, by field; by default UTC.

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

    def _fields(self, found: Any) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise ValueError(f"Expected a record with fields, got {type(found).__name__}")
        if self._has_envelope:
            found = row_after(found)
            if found is None:
                raise PassedOverError("a change without a row afterwards")
        return flatten(found, self._max_list_length, self._zones)


class CsvRow:
    r"""One row of CSV, whose columns have names that are known before.

    Parameters
    ----------
    columns : sequence of str
        The names of the columns.
    options : CsvOptions
        How the row is written.

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
