"""Parquet files as sources."""

from __future__ import annotations

import datetime
import decimal
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import check_every_resume, errors, read_file, records

from connectors import FileSource


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


def test_values_that_json_does_not_have_are_kept_and_shown(tmp_path: Path) -> None:
    row = {
        "when": datetime.datetime(2024, 1, 31),
        "price": decimal.Decimal("1.50"),
        "bytes": b"\xff",
        "list": [1, None],
        "nested": {"a": 1},
        "nan": float("nan"),
    }
    (event,) = read_file(write_rows(tmp_path / "a.parquet", [row]))
    assert event.record is not None
    assert {name: event.record[name] for name in row if name != "nan"} == {
        name: value for name, value in row.items() if name != "nan"
    }
    assert json.loads(event.raw)["price"] == "Decimal('1.50')"


def test_one_unrepresentable_row_does_not_affect_others(tmp_path: Path) -> None:
    text = pa.array([b"good", b"\xff\xfe", b"fine"]).view(pa.string())
    pq.write_table(pa.table({"text": text, "x": [1, 2, 3]}), tmp_path / "a.parquet")
    events = check_every_resume(tmp_path / "a.parquet")
    assert records(events) == [{"text": "good", "x": 1}, None, {"text": "fine", "x": 3}]
    assert "codec can't decode byte 0xff" in str(events[1].error)
    assert str(events[1].error).endswith(" - at row 2")


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
