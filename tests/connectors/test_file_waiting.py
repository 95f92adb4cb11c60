"""Files that grow, and standard input: when a source waits, and how long."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from reading import errors, read_all, records, write
from waiting import LIMIT

from streamkernel.connectors import Event, FileSource

LINES = [b'{"n": %d, "text": "\xc3\xa9"}\n' % n for n in range(300)]


@pytest.fixture
def stdin() -> Iterator[BinaryIO]:
    """Replace standard input by a pipe, and return its other end."""
    saved = os.dup(0)
    there, here = os.pipe()
    os.dup2(there, 0)
    os.close(there)
    with os.fdopen(here, "wb", buffering=0) as writer:
        yield writer
    os.dup2(saved, 0)
    os.close(saved)


def in_background(task: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=task)
    thread.start()
    return thread


def write_halves(write: Callable[[bytes], Any], data: bytes) -> None:
    """Write in pieces that end anywhere, also within a character."""
    for at in range(0, len(data), 37):
        write(data[at : at + 37])
        if at % 5 == 0:
            time.sleep(0.001)


def poll_for(source: FileSource, count: int) -> list[Event]:
    events: list[Event] = []
    while len(events) < count:
        batch = source.poll(timeout=LIMIT)
        assert batch
        events += batch
    return events


def check_waits(source: FileSource, seconds: float) -> None:
    begin = time.monotonic()
    assert source.poll(timeout=seconds) == []
    assert seconds <= time.monotonic() - begin


def test_following_waits_for_whole_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b"")
    source = FileSource(path, follow=True)
    check_waits(source, 0.05)
    with path.open("ab", buffering=0) as file:
        writer = in_background(lambda: write_halves(file.write, b"".join(LINES)))
        events = poll_for(source, len(LINES))
        writer.join()
        assert [event.raw + b"\n" for event in events] == LINES
        assert errors(events) == [None] * len(LINES)
        file.write(b'{"n": ')
        check_waits(source, 0.05)
        assert source.lag() == {(str(path), "0"): 6}
        assert source.poll(timeout=0) == []
        file.write(b"7}\n")
        assert records(source.poll(timeout=LIMIT) or []) == [{"n": 7}]
    source.close()


def test_following_waits_for_closing_quotes_and_continues_at_the_same_position(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"")
    source = FileSource(path, follow=True)
    assert source.poll(timeout=0) == []
    with path.open("ab", buffering=0) as file:
        for piece in (b"x,", b'y\n1,"a', b'\nb"'):
            file.write(piece)
            assert source.poll(timeout=0.03) == []
        file.write(b'\n2,"c\n')
        (event,) = source.poll(timeout=LIMIT) or []
        assert event.record == {"x": 1, "y": "a\nb"}
        file.write(b'"')
        assert source.poll(timeout=0.03) == []
        source.close()
        source = FileSource(path, follow=True)
        source.seek({str(path): event.resume})
        assert source.poll(timeout=0.03) == []
        file.write(b"\n")
        assert records(source.poll(timeout=LIMIT) or []) == [{"x": 2, "y": "c\n"}]
    source.close()


def test_an_oversized_line_may_arrive_in_pieces(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b"")
    source = FileSource(path, follow=True, max_record_bytes=100)
    with path.open("ab", buffering=0) as file:
        for _ in range(5):
            file.write(b"x" * 1000)
            assert source.poll(timeout=0) == []
        file.write(b'\n{"x": 1}\n')
    long, good = poll_for(source, 2)
    assert (long.error, long.raw) == (
        "Expected at most 100 bytes in a record, got 5000 - at line 1",
        b"x" * 1024,
    )
    assert good.record == {"x": 1}
    source.close()


def test_without_following_the_end_is_final(tmp_path: Path) -> None:
    source = FileSource(write(tmp_path / "a.jsonl", b'{"x": 1}\n'))
    assert len(source.poll(timeout=0) or []) == 1
    assert source.poll(timeout=60) is None
    assert source.poll(timeout=60) is None
    source.close()


@pytest.mark.parametrize(
    ("name", "kind"), [("a.csv.gz", "a compressed one"), ("a.parquet", "Parquet"), ("-", "standard input")]
)
def test_compressed_files_cannot_be_followed(tmp_path: Path, name: str, kind: str) -> None:
    path = name if name == "-" else write(tmp_path / name, b"")
    with pytest.raises(ValueError, match=f"to follow, got {kind} - "):
        FileSource(path, format="csv" if name == "-" else None, follow=True)


@pytest.mark.parametrize(
    ("format", "data", "expected"),
    [
        ("jsonl", b'{"x": 1}\n{"x": 2}', [{"x": 1}, {"x": 2}]),
        ("csv", b'x,y\n1,"a\nb"\n2,', [{"x": 1, "y": "a\nb"}, {"x": 2}]),
        ("svmlight", b"1 1:2\n0", [{"label": 1, "1": 2}, {"label": 0}]),
    ],
)
def test_standard_input_is_read_in_every_text_format(
    stdin: BinaryIO, format: str, data: bytes, expected: list[dict[str, Any]]
) -> None:
    stdin.write(data)
    stdin.close()
    source = FileSource("-", format=format)
    assert source.lag() == {("-", "0"): 0}
    events = read_all(source)
    assert records(events) == expected
    assert events[-1].resume[0] == len(data)
    assert {event.stream for event in events} == {"-"}


def test_a_run_waits_for_standard_input_and_loses_nothing(stdin: BinaryIO) -> None:
    source = FileSource("-", format="jsonl")
    assert source.poll(timeout=0) == []
    check_waits(source, 0.05)
    stdin.write(b'{"n": ')
    check_waits(source, 0.05)
    stdin.write(b"1}\n")
    assert records(source.poll(timeout=LIMIT) or []) == [{"n": 1}]
    writer = in_background(lambda: write_halves(stdin.write, b"".join(LINES)))
    events = poll_for(source, len(LINES))
    writer.join()
    assert [event.raw + b"\n" for event in events] == LINES
    stdin.close()
    assert source.poll(timeout=LIMIT) is None
    source.close()


def test_on_standard_input_a_position_only_restores_the_numbers(stdin: BinaryIO) -> None:
    stdin.write(b"x,y\n1,2\nbad\n")
    stdin.close()
    source = FileSource("-", format="csv")
    source.seek({"-": [1000, 50]})
    good, bad = read_all(source)
    assert (good.record, good.resume) == ({"x": 1, "y": 2}, [1008, 52])
    assert (bad.error, bad.resume) == ("Expected 2 fields, got 1 - at line 53", [1012, 53])


def test_standard_input_may_be_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"x,y\n1,2\n3,4\n")
    program = "from streamkernel.connectors import FileSource as S; s = S('-', 'csv'); print(len(s.poll(5)), s.poll(5))"
    with path.open("rb") as file:
        done = subprocess.run([sys.executable, "-c", program], stdin=file, capture_output=True, check=True)
    assert done.stdout == b"2 None\n"


def test_standard_input_requires_a_format() -> None:
    with pytest.raises(ValueError, match="Expected a format for standard input, one of csv, jsonl, svmlight, got"):
        FileSource("-")
    with pytest.raises(ValueError, match="Expected a file, got standard input"):
        FileSource("-", format="parquet")
