"""Nested fields, envelopes of Debezium and rows of CSV become flat fields, or an error that says why not."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pytest

from streamkernel.connectors.formats import CsvRow, JsonLines, ValueDecoder, row_after
from streamkernel.connectors.json_values import DEEPEST, flatten, json_object
from streamkernel.connectors.kafka.clients import Partition, Record
from streamkernel.connectors.kafka.events import Events


def test_objects_have_the_path_as_name():
    nested = {"a": {"b": {"c": 1}, "d": None}, "e": [{"f": 2}, [3, "x"]], "g": {}}
    assert flatten(nested, 2) == {"a.b.c": 1, "a.d": None, "e.0.f": 2, "e.1.0": 3, "e.1.1": "x"}
    assert flatten(nested) == {"a.b.c": 1, "a.d": None, "e": [{"f": 2}, [3, "x"]]}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"a": [1, 2, 3]}, 'Expected a list of at most 2, got 3 - at field "a"'),
        ({"a": {"b": [1, 2, 3]}}, 'Expected a list of at most 2, got 3 - at field "a.b"'),
        ({"a": {"b": 1}, "a.b": 1}, 'Expected one value for each field, got two - at field "a.b"'),
        ({"a.b": 1, "a": {"b": 1}}, 'Expected one value for each field, got two - at field "a.b"'),
    ],
)
def test_values_that_cannot_be_flattened_are_refused_with_the_reason(record, message):
    with pytest.raises(ValueError, match="Expected") as error:
        flatten(record, 2)
    assert str(error.value) == message


def test_nesting_has_a_limit():
    record = {"x": 1}
    for _ in range(DEEPEST):
        record = {"a": record}
    assert flatten(record) == {"a." * DEEPEST + "x": 1}
    with pytest.raises(ValueError, match="nested at most 32 deep"):
        flatten({"a": record})
    with pytest.raises(ValueError, match="Expected"):
        JsonLines().parse(b'{"a":' * 900 + b"1" + b"}" * 900)


def test_values_of_logical_types_are_numbers():
    zone = dt.timezone(dt.timedelta(hours=2))
    found = flatten({
        "price": Decimal("12.50"), "day": dt.date(1970, 1, 3), "utc": dt.datetime(1970, 1, 1, 2, tzinfo=zone),
        "local": dt.datetime(1970, 1, 1, 1), "time": dt.time(1, 0, 1, 500_000), "for": dt.timedelta(minutes=2),
    })  # fmt: skip
    expected = {"price": 12.5, "day": 172_800.0, "utc": 0.0, "local": 3600.0, "time": 3601.5, "for": 120.0}
    assert found == expected


def test_json_of_files_is_flat_too():
    assert JsonLines().parse(b'{"a": {"b": 1}, "c": 2}') == {"a.b": 1, "c": 2}
    assert JsonLines().parse(b'{"a": "{{", "c": 2}') == {"a": "{{", "c": 2}


def changed(operation, after):
    return {"before": None, "after": after, "op": operation, "source": {"table": "t"}, "ts_ms": 1}


def test_the_row_after_a_change():
    for operation in "cur":
        assert row_after(changed(operation, {"id": 1})) == {"id": 1}
        assert row_after({"schema": {}, "payload": changed(operation, {"id": 1})}) == {"id": 1}
    for operation in "dtm":
        assert row_after(changed(operation, None)) is None
    for wrong in ({"payload": 1}, {"op": "c"}, {"op": "c", "after": 3}, {}, {"after": {"id": 1}}):
        with pytest.raises(ValueError, match="Expected an envelope of Debezium"):
            row_after(wrong)


def test_deletes_and_their_tombstones_only_move_the_position():
    events = Events(ValueDecoder(json_object, envelope="debezium"))
    values = [json.dumps(changed("c", {"n": {"x": 1}})).encode(), json.dumps(changed("d", None)).encode(), None, b"{}"]
    found = [events.of(Partition("t", 0), Record(n, b"k", value, ()), n + 1) for n, value in enumerate(values)]
    assert [event.record for event in found] == [{"n.x": 1}, None, None, None]
    assert [event.is_passed_over for event in found] == [False, True, True, False]
    assert [event.resume for event in found] == [1, 2, 3, 4]
    assert "Expected an envelope of Debezium" in found[3].error
    tombstone = Events().of(Partition("t", 0), Record(0, b"k", None, ()), 1)
    assert (tombstone.is_passed_over, tombstone.resume) == (True, 1)


def test_rows_of_csv():
    decode = ValueDecoder(CsvRow(["a", "b", "c"]))
    assert decode(b"1,,x") == {"a": 1, "c": "x"}
    assert decode(b"\xef\xbb\xbf1,2,x") == decode(b"1,2,x")
    assert decode(b'1.5,"two\nlines","say ""hi"""\r\n') == {"a": 1.5, "b": "two\nlines", "c": 'say "hi"'}
    for value, message in (
        (b"1,2", "Expected 3 fields, got 2"),
        (b"1,2,3\n4,5,6", "Expected one row of CSV, got 2"),
        (b"\xff,1,2", "Expected UTF-8, got byte 0xff as byte 1 of the record"),
        (b"", "Expected 3 fields, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            decode(value)
    with pytest.raises(ValueError, match='got "a" for columns 1, 2'):
        CsvRow(["a", "a"])
