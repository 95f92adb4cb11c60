"""Cells and integers of fields that are codes or keys stay the texts that they are."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from reading import check_every_resume, read_file, records, write

from streamkernel.connectors import PartitionedFiles, first_records
from streamkernel.connectors.csv_table import Csv, CsvOptions
from streamkernel.connectors.formats import CsvRow, PassedOverError, ValueDecoder
from streamkernel.connectors.json_values import JsonFields, json_object
from streamkernel.connectors.kafka.clients import Partition, Record
from streamkernel.connectors.kafka.events import Events, key_reader

CODES = ["1E2", "100", "1.10", "1.1", "007", "7", "7.0", " 7", "1" * 25, "nan", "inf", "-0", "x"]
LONG = 123456789012345678901234567890


@pytest.mark.parametrize("options", [CsvOptions(), CsvOptions(";", ","), CsvOptions(encoding="utf-16")], ids=str)
def test_cells_of_text_columns_do_not_change(tmp_path: Path, options: CsvOptions) -> None:
    sign = options.delimiter or ","
    lines = ["n,code,m", *(f"{i},{code},{i}" for i, code in enumerate(CODES))]
    path = write(tmp_path / "a.csv", "\n".join([*lines, ""]).replace(",", sign).encode(options.encoding))
    options = CsvOptions(options.delimiter, options.decimal, options.encoding, texts=("code", "other"))
    wanted = [{"n": i, "code": code, "m": i} for i, code in enumerate(CODES)]
    assert records(check_every_resume(path, csv=options)) == wanted
    assert first_records(path, csv=options) == wanted
    source = PartitionedFiles(path, csv=options)
    assignments = source.plan({}, workers=1, events=100)
    assert [event.record for some in source.read(assignments[0]) for event in some if event.record] == wanted
    source.close()
    row = CsvRow(["n", "code", "m"], options)
    assert [row(line.replace(",", sign).encode(options.encoding)) for line in lines[1:]] == wanted


def test_rows_of_text_columns_are_read_alike_alone_and_together() -> None:
    alone, together = Csv(CsvOptions(texts=("a",))), Csv(CsvOptions(texts=("a",)))
    assert alone.parse(b"a,b") is together.parse(b"a,b") is None
    rows = [f"{code},{other}".encode() for code in [*CODES, ""] for other in ("1", "1.50", "x", "")]
    assert repr([alone.parse(row) for row in rows]) == repr(together.parse_all(rows))
    assert together.parse_all([b"1,2", b"1.0,3"]) == [{"a": "1", "b": 2}, {"a": "1.0", "b": 3}]


OBJECTS: list[tuple[dict[str, Any], str]] = [
    ({"id": LONG, "a": LONG}, str(LONG)),
    ({"a": 1.0, "id": -LONG}, str(-LONG)),
    ({"id": 10**20, "a": 2}, str(10**20)),
]


@pytest.mark.parametrize(("value", "digits"), OBJECTS)
def test_long_integers_of_json_keep_their_digits_where_these_count(
    tmp_path: Path, value: dict[str, Any], digits: str
) -> None:
    raw, plain = json.dumps(value).encode(), {"id": float(value["id"]), "a": float(value["a"])}
    read = JsonFields(texts=["id", "none"])
    assert read(raw) == plain | {"id": digits}
    assert read.read_all([raw, raw]) == [plain | {"id": digits}] * 2
    assert JsonFields()(raw) == plain
    path = write(tmp_path / "a.jsonl", raw + b"\n" + raw)
    assert records(read_file(path, csv=CsvOptions(texts=("id",)))) == [plain | {"id": digits}] * 2
    change = json.dumps({"op": "c", "after": value}).encode()
    assert ValueDecoder(json_object, envelope="debezium", texts=["id"])(change) == plain | {"id": digits}
    events = Events(JsonFields(texts=["id"]))
    runs = [(Partition("t", 0), [Record(0, None, raw, ())], [1])]
    assert events.of_all(runs) == [events.of(Partition("t", 0), Record(0, None, raw, ()), 1)]
    assert events.of_all(runs)[0].record == plain | {"id": digits}


def test_other_numbers_of_json_stay_numbers() -> None:
    read = JsonFields(texts=["id"])
    for number in ("7", "18446744073709551615", "1e30", "0.5", "-9223372036854775808"):
        assert read(b'{"id": %b}' % number.encode()) == {"id": json.loads(number)}
    assert read(b'{"user": {"id": 99999999999999999999}}') == {"user.id": 1e20}
    assert JsonFields(texts=["user.id"])(b'{"user": {"id": 99999999999999999999}}') == {"user.id": "9" * 20}
    assert JsonFields(4, ["ids.1"])(b'{"ids": [1, 99999999999999999999]}') == {"ids.0": 1, "ids.1": "9" * 20}


def test_long_integers_as_keys_of_records_keep_their_digits() -> None:
    read = key_reader("json")
    assert read(str(LONG).encode()) == str(LONG)
    assert (read(b"7"), read(b"1e30"), read(b'"7"')) == (7, 1e30, "7")


def notes(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_row_with_the_names_of_the_columns_is_a_header(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    options = CsvOptions(columns=("a", "town", "y"))
    for header in ("a,town,y\n", '"a","town","y"\r\n'):
        path = write(tmp_path / "a.csv", f"{header}1,Ulm,2\n".encode() * 2)
        caplog.clear()
        assert records(read_file(path, csv=options)) == [{"a": 1, "town": "Ulm", "y": 2}] * 2
        assert notes(caplog) == ["a row with the names of the columns is a header, and is left out"]
        check_every_resume(path, csv=options)
        assert records(read_file(path)) == [{"a": 1, "town": "Ulm", "y": 2}] * 2  # as of files that were joined
    row = CsvRow(["a", "town", "y"])
    with pytest.raises(PassedOverError):
        row(b"a,town,y\n")
    assert row(b"a,town,z\n") == {"a": "a", "town": "town", "y": "z"}


@pytest.mark.parametrize("end", ["", ","])
def test_a_comma_at_the_end_of_the_header_alone_adds_no_column(tmp_path: Path, end: str) -> None:
    rows = "".join(f"{i},x{end if i % 3 else ''}\n" for i in range(40))
    path = write(tmp_path / "a.csv", f"a,b,\n{rows}1,x,2\n1\n1,x,,\n".encode())
    events = check_every_resume(path)
    assert records(events) == [*({"a": i, "b": "x"} for i in range(40)), None, None, None]
    assert [event.error for event in events[40:]] == [
        'Expected nothing in column 3, which has no name, got "2" - at line 42',
        "Expected 3 fields, got 1 - at line 43",
        "Expected 3 fields, got 4 - at line 44",
    ]


def test_row_numbers_of_pandas_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}, index=[5, 7])
    path = tmp_path / "a.csv"
    for _ in range(3):  # each round trip adds a column
        frame.to_csv(path)
        caplog.clear()
        assert records(check_every_resume(path)) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
        frame = pd.read_csv(path)
    assert "the first column, which has row numbers and no name, is left out" in notes(caplog)
    assert 'the column "Unnamed: 0", which has row numbers, is left out' in notes(caplog)
    kept = read_file(path, csv=CsvOptions(texts=("Unnamed: 0",)))
    assert [record["Unnamed: 0"] for record in records(kept) if record] == ["5", "7"]


def test_an_index_of_pandas_in_parquet_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "a.parquet"
    pd.DataFrame({"a": [1, 2]}, index=[5, 7]).to_parquet(path)
    events = read_file(path)
    assert (records(events), [event.resume for event in events]) == ([{"a": 1}, {"a": 2}], [1, 2])
    assert notes(caplog) == ['the column "__index_level_0__", an index of pandas without a name, is left out']
    pd.DataFrame({"a": [1, 2]}, index=pd.Index([5, 7], name="n")).to_parquet(path)
    assert records(read_file(path)) == [{"a": 1, "n": 5}, {"a": 2, "n": 7}]


def test_bytes_that_are_not_utf8_have_one_text(tmp_path: Path) -> None:
    event = Events().of(Partition("t", 0), Record(0, None, b'{"x": "K\xf6ln"}', ()), 1)
    assert event.error == "Expected UTF-8, got byte 0xf6 as byte 9 of the record - at t:0, offset 0"
    row = Events(CsvRow(["x"])).of(Partition("t", 0), Record(0, None, b"K\xf6ln", ()), 1)
    text = 'Expected UTF-8, got byte 0xf6 as byte 2 of the record - did you mean encoding = "latin-1"?'
    assert row.error == f"{text} - at t:0, offset 0"
    (event,) = read_file(write(tmp_path / "a.csv", b"x\nK\xf6ln\n"))
    assert event.error == f"{text} - at line 2"
