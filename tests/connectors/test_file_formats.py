"""The records of each file format, and how the format of a file is chosen."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
from reading import check_every_resume, chunks_of, errors, read_file, records, write

from streamkernel.connectors import FileSource
from streamkernel.connectors.csv_cells import number
from streamkernel.connectors.json_values import all_json_fields, json_fields

CSV = b'id,name,price\n1,Ann,2.5\n2,"Smith, ""Bob""",\n3,"two\nlines",-1e3\n'
CSV_RECORDS = [
    {"id": 1, "name": "Ann", "price": 2.5},
    {"id": 2, "name": 'Smith, "Bob"'},
    {"id": 3, "name": "two\nlines", "price": -1000.0},
]
JSONL = b'{"x": 1, "y": [1, {"z": null}]}\n\n{"x": 1.5, "s": "\xc3\xa9"}\n{}\n'
JSONL_RECORDS = [{"x": 1, "y": [1, {"z": None}]}, {"x": 1.5, "s": "é"}, {}]
SVMLIGHT = b"1 1:0.5 12:3 # first\n# a comment\n-1.5\n\n+2 3:-1e-2 4:+7\n"
SVMLIGHT_RECORDS = [{"label": 1, "1": 0.5, "12": 3}, {"label": -1.5}, {"label": 2, "3": -0.01, "4": 7}]

EXAMPLES = [
    ("csv", CSV, CSV_RECORDS),
    ("jsonl", JSONL, JSONL_RECORDS),
    ("svmlight", SVMLIGHT, SVMLIGHT_RECORDS),
]


@pytest.mark.parametrize("packing", ["", ".gz"])
@pytest.mark.parametrize(
    ("suffix", "data", "expected"),
    [
        (".csv", CSV, CSV_RECORDS),
        (".CSV", CSV, CSV_RECORDS),
        (".jsonl", JSONL, JSONL_RECORDS),
        (".ndjson", JSONL, JSONL_RECORDS),
        (".svm", SVMLIGHT, SVMLIGHT_RECORDS),
        (".svmlight", SVMLIGHT, SVMLIGHT_RECORDS),
        (".libsvm", SVMLIGHT, SVMLIGHT_RECORDS),
    ],
)
def test_the_suffix_determines_the_format(
    tmp_path: Path, suffix: str, packing: str, data: bytes, expected: list[dict[str, Any]]
) -> None:
    path = write(tmp_path / f"data{suffix}{packing}", data)
    events = check_every_resume(path)
    assert records(events) == expected
    assert errors(events) == [None] * len(expected)
    assert {event.stream for event in events} == {str(path)}


@pytest.mark.parametrize(("format", "data", "expected"), EXAMPLES)
def test_a_given_format_overrides_the_suffix(
    tmp_path: Path, format: str, data: bytes, expected: list[dict[str, Any]]
) -> None:
    assert records(read_file(write(tmp_path / "data.txt", data), format=format)) == expected
    assert records(read_file(write(tmp_path / "data.gz", data), format=format)) == expected


def test_events_keep_the_bytes_and_where_they_ended(tmp_path: Path) -> None:
    events = read_file(write(tmp_path / "a.csv", CSV))
    assert [event.raw for event in events] == [b"1,Ann,2.5", b'2,"Smith, ""Bob""",', b'3,"two\nlines",-1e3']
    assert [event.resume for event in events] == [[24, 2], [44, 3], [len(CSV), 5]]


@pytest.mark.parametrize(("format", "data", "expected"), EXAMPLES)
def test_a_last_line_without_newline_is_a_record(
    tmp_path: Path, format: str, data: bytes, expected: list[dict[str, Any]]
) -> None:
    path = write(tmp_path / "data", data.rstrip(b"\n"))
    events = check_every_resume(path, format=format)
    assert records(events) == expected
    assert events[-1].resume[0] == path.stat().st_size


@pytest.mark.parametrize(("format", "data", "expected"), EXAMPLES)
def test_lines_may_end_as_on_windows_and_a_file_begin_with_a_mark(
    tmp_path: Path, format: str, data: bytes, expected: list[dict[str, Any]]
) -> None:
    data = b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n").replace(b"two\r\n", b"two\n")
    path = write(tmp_path / "data", data)
    events = check_every_resume(path, format=format)
    assert records(events) == expected
    with chunks_of(1):
        assert read_file(path, format=format) == events


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl", "a.svm"])
@pytest.mark.parametrize("data", [b"", b"\n \n\r\n"])
def test_a_file_without_records_ends(tmp_path: Path, name: str, data: bytes) -> None:
    assert read_file(write(tmp_path / name, data)) == []
    assert read_file(write(tmp_path / "header.csv", b"a,b")) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("007", "007"),
        ("-01.5", "-01.5"),
        ("00", "00"),
        ("0", 0),
        ("-0.5", -0.5),
        ("0e3", 0.0),
        ("-12", -12),
        ("+12", 12),
        (" 3 ", 3),
        ("1.0", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("9" * 19, 10**19 - 1),
        ("9" * 20, 1e20),
        ("1_000", "1_000"),
        ("1_0.5", "1_0.5"),
        ("١٢", "١٢"),
        ("1٢", "1٢"),
        ("²", "²"),
        ("1²", "1²"),
        ("-", "-"),
        (".", "."),
        ("1,5", "1,5"),
        ("0x10", "0x10"),
        ("2024-01-31", "2024-01-31"),
        ("True", "True"),
        ("none", "none"),
        (" ", " "),
        ("inf", "inf"),
        ("-Infinity", "-Infinity"),
        ("12e4567", "12e4567"),
    ],
)
def test_a_cell_is_an_integer_or_a_float_or_a_text(text: str, value: float | str) -> None:
    assert number(text) == value
    assert type(number(text)) is type(value)


@pytest.mark.parametrize("text", ["nan", "NaN", "-nan"])
def test_a_cell_with_the_text_nan_is_nan(text: str) -> None:
    assert math.isnan(number(text))


def test_an_empty_cell_is_a_missing_field(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'a,b,c\n,,\n"",1,\n')
    assert records(read_file(path)) == [{}, {"b": 1}]


def test_long_quoted_cells_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'a,b\n1,"' + b"x" * 300_000 + b'"\n')
    assert records(read_file(path)) == [{"a": 1, "b": "x" * 300_000}]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_lag_is_the_amount_after_the_last_event(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, b'{"x": 1}\n' * 5000)
    source = FileSource(path)
    lags = [source.lag()[str(path), "0"]]
    assert lags == [path.stat().st_size]
    while events := source.poll(timeout=5):
        lags.append(source.lag()[str(path), "0"])
        assert 0 < len(events) < 1000
        if name == "a.jsonl":
            assert lags[-1] == 9 * 5000 - events[-1].resume[0]
    assert lags[-1] == 0
    assert all(lag > 0 for lag in lags[:-1])
    source.close()


def test_an_unknown_suffix_names_the_known_ones_and_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsnl", b"")
    with pytest.raises(ValueError, match=r'\.csv, \.tsv, .*\.parquet, got "\.jsnl" - did you mean "\.jsonl"\?'):
        FileSource(path)
    with pytest.raises(ValueError, match=r'got "\.json" - did you mean "\.jsonl"'):
        FileSource(write(tmp_path / "a.json.gz", b""))
    with pytest.raises(ValueError, match=r'got "noname"$'):
        FileSource(write(tmp_path / "noname", b""))


def test_an_unknown_format_names_the_known_ones_and_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"")
    with pytest.raises(ValueError, match='of csv, jsonl, svmlight, parquet, got "svmligth" - did you mean "svmlight"'):
        FileSource(path, format="svmligth")


def test_a_file_that_is_missing_or_a_directory_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.csv"):
        FileSource(tmp_path / "nothing.csv")
    with pytest.raises(FileNotFoundError, match=r"nothing\.parquet"):
        FileSource(tmp_path / "nothing.parquet")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(IsADirectoryError, match=r"folder\.csv"):
        FileSource(tmp_path / "folder.csv")


def test_the_record_limit_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Expected max_record_bytes of at least 1, got 0"):
        FileSource(write(tmp_path / "a.csv", b""), max_record_bytes=0)


def test_json_values_that_are_parsed_as_one_have_the_fields_of_each() -> None:
    """Pieces that are no values of their own must not become some together."""
    rng = random.Random(4)
    values = [b'{"a":1,"b":"x"}', b' {"a":1}', b'{"a":2} ', b'{"a":[1', b'2]}', b'{"a":1},{"a":2}', b"{}", b"1", b"",
              b'{"a":"', b'"}', b'{"a":"{"}', b'{"a":{"b":1}}', b'{"a":1}]', b'[{"a":1}', b'{"a":1},5',
              b'{"a":1,"a":2}', b'{"a":"\xff"}', b'{"a":1', b"}"]  # fmt: skip
    together = 0
    for _ in range(20_000):
        some = rng.choices(values, k=rng.randrange(1, 5))
        found = all_json_fields(some)
        if found is not None:
            assert found == list(map(json_fields, some))
            together += 1
    assert together > 200


@pytest.mark.parametrize(
    ("raw", "fields"),
    [
        (b'{"a": NaN, "b": "NaN", "c": {"d": -Infinity}}', {"a": math.nan, "b": "NaN", "c.d": -math.inf}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'\xef\xbb\xbf{"a": NaN, "b": "\\"NaN\\\\"}', {"a": math.nan, "b": '"NaN\\'}),
        (b'{"a": NaN, "b": 18446744073709551616}', {"a": math.nan, "b": 2.0**64}),
        (b'{"a": -%b, "b": "1e999", "c": 2e999}' % (b"9" * 400), {"a": -math.inf, "b": "1e999", "c": math.inf}),
    ],
)
def test_json_as_python_writes_it_is_read(raw: bytes, fields: dict[str, object]) -> None:
    assert repr(json_fields(raw)) == repr(fields)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'{"a": -NaN}', "Expected valid JSON"),
        (b'{"a": 1NaN}', "Expected valid JSON"),
        (b'{"a": 01e999}', "leading zero"),
        (b'{"a": 1e999,}', "trailing comma"),
        (b'{"a": NaN, b}', "a string key in column 12"),
        (b'{"a": NaN, "b": "\\ud83d"}', "surrogate"),
        (b'{"a": "NaN"', "unexpected end of data"),
        (b'{"a": NaN, "b": ' + b"[" * 2000 + b"]" * 2000 + b"}", "Expected valid JSON"),
        (b'{"a": "NaN' + b'\\"' * 100_000, "unexpected end of data"),
        (b"NaN", "got a number"),
    ],
)
def test_other_json_stays_refused(raw: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        json_fields(raw)
