"""Parquet files as sources."""

from __future__ import annotations

import datetime as dt
import json
import math
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import check_every_resume, errors, read_file, records

from streamkernel.connectors import FileSource
from streamkernel.connectors.files.parquet import values_of


def write_rows(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def test_a_row_is_a_record_and_a_null_a_missing_field(tmp_path: Path) -> None:
    rows = [{"x": 1, "s": "é", "b": True, "f": 0.5}, {"x": None, "s": None, "b": False, "f": None}]
    events = check_every_resume(write_rows(tmp_path / "a.parquet", rows))
    assert records(events) == [rows[0], {"b": False}]
    assert [json.loads(event.raw) for event in events] == records(events)
    assert [event.resume for event in events] == [1, 2]
    assert {event.stream for event in events} == {str(tmp_path / "a.parquet")}


@pytest.mark.parametrize("groups", [1, 7, 512, 5000])
def test_reading_continues_after_every_row(tmp_path: Path, groups: int) -> None:
    count = 40 if groups == 1 else 1300
    path = write_rows(tmp_path / "a.parquet", [{"x": row} for row in range(count)], row_group_size=groups)
    events = read_file(path)
    assert records(events) == [{"x": row} for row in range(count)]
    for row in {*range(0, count, 97), 1, groups, 512, 513, count - 1, count} & set(range(count + 1)):
        assert read_file(path, row) == events[row:]


def test_lag_counts_rows(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.parquet", [{"x": row} for row in range(1300)])
    source = FileSource(path)
    key = (str(path), "0")
    assert source.lag() == {key: 1300}
    events = source.poll(timeout=0)
    assert events
    assert source.lag() == {key: 1300 - len(events)}
    source.close()
    source = FileSource(path)
    source.seek({str(path): 1000})
    assert source.lag() == {key: 300}
    source.close()


def test_values_that_json_does_not_have_are_shown(tmp_path: Path) -> None:
    row = {"x": float("inf"), "bytes": b"\xff", "list": [1, None], "nan": float("nan")}
    (event,) = check_every_resume(write_rows(tmp_path / "a.parquet", [row]))
    assert event.record == {"x": math.inf, "bytes": b"\xff", "list": [1, None]}
    assert event.raw == b"""{"x": Infinity, "bytes": "b'\\\\xff'", "list": [1, null]}"""


def test_a_value_that_python_cannot_hold_is_bytes_and_does_not_affect_others(tmp_path: Path) -> None:
    text = pa.array([b"good", b"\xff\xfe", b"fine"]).view(pa.string())
    pq.write_table(pa.table({"text": text, "x": [1, 2, 3]}), tmp_path / "a.parquet")
    events = check_every_resume(tmp_path / "a.parquet")
    assert records(events) == [{"text": "good", "x": 1}, {"text": b"\xff\xfe", "x": 2}, {"text": "fine", "x": 3}]


AT = dt.datetime(2024, 1, 31, 12, tzinfo=dt.UTC)
TYPES: dict[str, tuple[list[Any], Any, list[Any]]] = {
    "decimal": ([Decimal("1.50"), None], pa.decimal128(10, 2), [1.5, None]),
    "large decimal": ([Decimal("-1.5"), None], pa.decimal256(40, 1), [-1.5, None]),
    "seconds": ([AT.replace(tzinfo=None), None], pa.timestamp("s"), [AT.timestamp(), None]),
    "microseconds": ([AT, None], pa.timestamp("us", "Europe/Berlin"), [AT.timestamp(), None]),
    "nanoseconds": ([10**18 + 1, None], pa.timestamp("ns"), [(10**18 + 1) / 10**9, None]),
    "far years": ([10**12, -(10**12)], pa.timestamp("s"), [1e12, -1e12]),
    "date": ([dt.date(1970, 1, 3), None], pa.date32(), [172_800.0, None]),
    "date of milliseconds": ([dt.date(1970, 1, 3), None], pa.date64(), [172_800.0, None]),
    "time": ([dt.time(1, 0, 1, 500_000), None], pa.time64("us"), [3601.5, None]),
    "short time": ([dt.time(1, 0, 1), None], pa.time32("s"), [3601.0, None]),
    "duration": ([dt.timedelta(minutes=2), None], pa.duration("ns"), [120.0, None]),
    "dictionary": (["x", None], pa.dictionary(pa.int8(), pa.string()), ["x", None]),
    "uuid": ([UUID(int=7).bytes, None], pa.uuid(), [str(UUID(int=7)), None]),
    "half": ([np.float16(0.5), np.float16("nan")], pa.float16(), [0.5, None]),
    "nan": ([math.nan, 1.5], pa.float32(), [None, 1.5]),
    "null": ([None, None], pa.null(), [None, None]),
    "boolean": ([True, None], pa.bool_(), [True, None]),
    "view": (["x", None], pa.string_view(), ["x", None]),
}


@pytest.mark.parametrize("name", TYPES)
def test_a_column_has_the_values_that_other_formats_have_also_inside_of_others(name: str) -> None:
    values, kind, expected = TYPES[name]
    column = pa.array(values, kind)
    assert repr(values_of(column)) == repr(expected)
    lists = pa.ListArray.from_arrays(pa.array([0, 0, 2, 2]), column)
    structs = pa.StructArray.from_arrays([column], ["a"])
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2]), pa.array(["k", "l"]), column)
    for slice_of, rows in (
        (lists, [[], expected, []]),
        (structs, [{"a": value} for value in expected]),
        (maps, [{"k": expected[0]}, {"l": expected[1]}]),
        (pa.array([[{"a": 1}], None]), [[{"a": 1}], None]),
    ):
        assert repr(values_of(slice_of)) == repr(rows)
        assert repr(values_of(slice_of[1:])) == repr(rows[1:])


def test_a_damaged_row_group_is_reported_once_and_the_next_one_is_read(tmp_path: Path) -> None:
    rows = [{"x": f"text {row * 7919 % 10007}"} for row in range(3000)]
    options: dict[str, Any] = {"compression": "zstd", "use_dictionary": False}
    path = write_rows(tmp_path / "a.parquet", rows, row_group_size=1000, **options)
    start = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[start + 60 : start + 200] = bytes(140)
    path.write_bytes(data)
    events = read_file(path)
    assert records(events) == [*rows[:1000], None, *rows[2000:]]
    assert str(events[1000].error).startswith("Expected Parquet data, got an error: ")
    assert str(events[1000].error).endswith(" - at rows 1001 to 2000")
    for number in (600, 999, 1000, 1001, 1002, 2001):
        assert read_file(path, events[number - 1].resume) == events[number:]


def test_other_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"x,y\n1,2\n")
    with pytest.raises(ValueError, match=r"Expected a Parquet file, got an error: .* - at .*a\.parquet"):
        FileSource(path)


def test_duplicate_column_names_are_rejected(tmp_path: Path) -> None:
    table = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["x", "x", "y"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match='"x" for columns 1, 2 - at the schema of'):
        FileSource(tmp_path / "a.parquet")


def test_a_file_with_fewer_rows_than_the_position_is_refused(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.parquet", [{"x": 1}])
    assert errors(read_file(path, 1)) == []
    with pytest.raises(ValueError, match="Expected at least 2 rows, got 1"):
        read_file(path, 2)
    with pytest.raises(ValueError, match=r"Expected a number of rows as position, got \[1, 1\]"):
        read_file(path, [1, 1])


def test_without_pyarrow_the_error_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_rows(tmp_path / "a.parquet", [{"x": 1}])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'streamkernel\[parquet\]'"):
        FileSource(path)
