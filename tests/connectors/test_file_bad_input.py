"""Records that cannot be parsed are reported with their position, and the next record is read."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import socket
import tracemalloc
from pathlib import Path

import pytest
from reading import check_every_resume, chunks_of, errors, read_file, records, write

from streamkernel.connectors import FileSource

LATIN_1 = ' - did you mean encoding = "latin-1"?'


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"[1, 2]", "Expected a JSON object, got an array"),
        (b'"text"', "Expected a JSON object, got a string"),
        (b"12", "Expected a JSON object, got a number"),
        (b"1.5", "Expected a JSON object, got a number"),
        (b"true", "Expected a JSON object, got a boolean"),
        (b"null", "Expected a JSON object, got null"),
        (b'{"x": 1', "Expected valid JSON, got unexpected end of data in column 8"),
        (b'{"x": nan}', "Expected valid JSON, got .* in column 7"),
        (b'{"x": 1} {"x": 2}', "Expected valid JSON, got .* in column 10"),
        (b'{"x": "\xff\xfe"}', "Expected UTF-8, got byte 0xff as byte 8 of the record"),
        (b"[" * 5000, "Expected valid JSON, got .*"),
    ],
)
def test_bad_json_lines(tmp_path: Path, line: bytes, error: str) -> None:
    path = write(tmp_path / "a.jsonl", b'{"x": 1}\n' + line + b'\n{"x": 2}\n')
    good, bad, last = check_every_resume(path)
    assert (good.record, bad.record, last.record) == ({"x": 1}, None, {"x": 2})
    assert re.fullmatch(f"{error} - at line 2", str(bad.error))
    assert bad.raw == line


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"1,2", "Expected 3 fields, got 2"),
        (b"1,2,3,4", "Expected 3 fields, got 4"),
        (b'1,"2"2,3', "Expected a row of CSV, got an error: ',' expected after '\"'"),
        (b'1,"2"2,"3', "Expected a row of CSV, got an error: ',' expected after '\"'"),
        (b"1,2\r3,4", r'Expected "\n" or "\r\n" between rows, got "\r" alone'),
        (b"1,\xff,3", "Expected UTF-8, got byte 0xff as byte 3 of the record" + LATIN_1),
        (b'1,"\n\xff",3', "Expected UTF-8, got byte 0xff as byte 5 of the record" + LATIN_1),
    ],
)
def test_bad_rows_of_csv(tmp_path: Path, line: bytes, error: str) -> None:
    path = write(tmp_path / "a.csv", b"a,b,c\n1,2,3\n" + line + b"\n4,5,6\n")
    good, bad, last = check_every_resume(path)
    assert (good.record, bad.record) == ({"a": 1, "b": 2, "c": 3}, None)
    assert bad.error == f"{error} - at line 3"
    assert bad.raw == line
    assert last.record == {"a": 4, "b": 5, "c": 6}


@pytest.mark.parametrize("ending", [b"", b"\n", b"\n3,4\n"])
def test_a_quote_that_stays_open_costs_its_line(tmp_path: Path, ending: bytes) -> None:
    events = check_every_resume(write(tmp_path / "a.csv", b'a,b\n1,2\n3,"4' + ending))
    assert records(events)[:2] == [{"a": 1, "b": 2}, None]
    assert events[1].error == "Expected closing quotes, got none that end a cell - at line 3"
    assert (events[1].raw, events[1].resume[0]) == (b'3,"4', 12 + bool(ending))
    assert records(events)[2:] == ([{"a": 3, "b": 4}] if ending[1:] else [])


def test_a_quote_that_stays_open_past_the_limit_costs_its_line(tmp_path: Path) -> None:
    rows = b"".join(b"%d\n" % row for row in range(10, 50))
    path = write(tmp_path / "a.csv", b'a\n"2\n' + rows)
    events = check_every_resume(path, max_record_bytes=31)
    assert (events[0].raw, events[0].error) == (b'"2', "Expected closing quotes, got none that end a cell - at line 2")
    assert records(events[1:]) == [{"a": row} for row in range(10, 50)]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"one 1:2", 'Expected a number as label, got "one"'),
        (b"1 2", 'Expected index:value, got "2"'),
        (b"1 2:", 'Expected index:value, got "2:"'),
        (b"1 :2", 'Expected index:value, got ":2"'),
        (b"1 x:2", 'Expected index:value, got "x:2"'),
        (b"1 2:x", 'Expected index:value, got "2:x"'),
        (b"1 2:3:4", 'Expected index:value, got "2:3:4"'),
        (b"1 -2:3", 'Expected index:value, got "-2:3"'),
        (b"1 2:3 2:4", 'Expected every index once, got "2:4" after "2:3"'),
        (b"1 2:\xff", "Expected UTF-8, got byte 0xff as byte 5 of the record"),
    ],
)
def test_bad_svmlight_lines(tmp_path: Path, line: bytes, error: str) -> None:
    path = write(tmp_path / "a.svm", b"1 1:1\n" + line + b"\n0 1:2\n")
    events = check_every_resume(path)
    assert records(events) == [{"label": 1, "1": 1}, None, {"label": 0, "1": 2}]
    assert events[1].error == f"{error} - at line 2"
    assert events[1].raw == line


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize(
    ("header", "error"),
    [
        (b"x,y,x,z,y", r'got "x" for columns 1, 3 and "y" for columns 2, 5 - at the header of .*a\.csv'),
        (b"x,,y,,", "got none for columns 2, 4 - at the header"),
        (b",x,,x", 'got none for column 3 and "x" for columns 2, 4'),
        (b"x,\xff", "Expected UTF-8, got byte 0xff"),
        (b'x,"y', "Expected closing quotes, got none that end a cell - at the header"),
        (b"x,y\r1,2\r", r'Expected "\\n" or "\\r\\n" between rows'),
        (b"x" * 101, "Expected at most 100 bytes in a record, got 101 - at the header"),
    ],
)
def test_a_bad_header_is_an_error_at_the_first_poll(tmp_path: Path, name: str, header: bytes, error: str) -> None:
    source = FileSource(write(tmp_path / name, header), max_record_bytes=100)
    with pytest.raises(ValueError, match=error):
        source.poll(timeout=1)


@pytest.mark.parametrize("chunk", [1, 100, 1 << 18])
@pytest.mark.parametrize("size", [101, 1023, 1024, 1025, 5000])
@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_a_line_that_is_too_long_is_skipped(tmp_path: Path, format: str, size: int, chunk: int) -> None:
    good = b"x\n1\n" if format == "csv" else b'{"x": 1}\n'
    for ending in (b"", b"\n", b"\n" + good.splitlines()[-1]):
        path = write(tmp_path / "a", good + b"z" * 100 + b"\n" + b"y" * size + ending)
        with chunks_of(chunk):
            events = check_every_resume(path, format=format, max_record_bytes=100)
        assert events[0].record == {"x": 1}
        assert "at most" not in str(events[1].error)
        assert (
            events[2].error == f"Expected at most 100 bytes in a record, got {size} - at line {3 + (format == 'csv')}"
        )
        assert events[2].raw == b"y" * min(size, 1024)
        assert records(events[3:]) == ([{"x": 1}] if len(ending) > 1 else [])


def test_a_line_that_is_too_long_is_not_held_in_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv.gz", b'a,b\n1,"' + b"x" * (30 << 20) + b"\n3,4\n")
    tracemalloc.start()
    events = read_file(path, max_record_bytes=1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert errors(events) == [
        f"Expected at most 1000 bytes in a record, got {3 + (30 << 20)} - at line 2",
        None,
    ]
    assert peak < 4 << 20


@pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.gz"])
def test_a_truncated_gzip_file_ends_at_the_damage(tmp_path: Path, name: str) -> None:
    data = b"".join(b'%d,"%d\n"\n' % (row, row) for row in range(5))
    data = b"x,y\n" + data if "csv" in name else b"".join(b'{"x": %d}\n' % (row * 7919) for row in range(5))
    whole = read_file(write(tmp_path / f"whole-{name}", data))
    compressed = gzip.compress(data)
    seen = set()
    for size in range(2, len(compressed)):
        path = tmp_path / name
        path.write_bytes(compressed[:size])
        events = check_every_resume(path)
        assert events[:-1] == [
            type(event)(str(path), event.resume, event.raw, event.record) for event in whole[: len(events) - 1]
        ]
        assert str(events[-1].error).startswith("Expected gzip data, got an error: Compressed file ended before")
        assert events[-1].resume[2:] == ["broken"]
        seen.add(len(events))
    assert len(seen) > 3
    path.write_bytes(compressed)
    assert len(read_file(path, events[-1].resume)) == len(whole) - len(events) + 1


def test_other_damage_to_a_gzip_file_is_reported_too(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    compressed = bytearray(gzip.compress(b'{"x": 1}\n{"x"'))
    compressed[-6] ^= 1
    path.write_bytes(compressed)
    good, bad = check_every_resume(path)
    assert good.record == {"x": 1}
    assert (bad.raw, bad.resume) == (b'{"x"', [9, 1, "broken"])
    assert re.fullmatch("Expected gzip data, got an error: CRC check failed .* - at line 2", str(bad.error))
    path.write_bytes(b"not gzip at all")
    assert "Not a gzipped file" in str(errors(read_file(path)))
    path.write_bytes(gzip.compress(b'{"x": 1}\n') + gzip.compress(b'{"x": 2}\n'))
    assert records(read_file(path)) == [{"x": 1}, {"x": 2}]


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(("kind", "text"), [("pipe", "a pipe, which"), ("socket", "a socket"), ("device", "a device")])
def test_only_regular_files_are_read(tmp_path: Path, kind: str, text: str, follow: bool) -> None:
    """A pipe blocks until somebody writes to it, and `/dev/zero` does not end."""
    path = tmp_path / "a.jsonl"
    with contextlib.ExitStack() as stack:
        if kind == "pipe":
            os.mkfifo(path)
            stack.callback(os.close, os.open(path, os.O_RDWR))  # so that nothing blocks if it is opened after all
        elif kind == "socket":
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(str(path))
        else:
            path.symlink_to("/dev/zero")
        with pytest.raises(OSError, match=f"Expected a regular file, got {text}"):
            FileSource(path, follow=follow)
        write(tmp_path / "b.jsonl", b'{"x": 1}\n')
        assert records(read_file(tmp_path / "*.jsonl")) == [{"x": 1}]


def test_a_followed_file_that_becomes_a_pipe_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"x": 1}\n')
    source = FileSource(path, follow=True)
    assert records(source.poll(1.0) or []) == [{"x": 1}]
    path.unlink()
    os.mkfifo(path)
    reader = os.open(path, os.O_RDWR)
    assert source.poll(0.5) == []
    path.unlink()
    write(path, b'{"x": 2}\n')
    found = [event for _ in range(4) for event in source.poll(0.5) or []]
    assert records(found) == [{"x": 2}]
    os.close(reader)
    source.close()
