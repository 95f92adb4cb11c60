"""A file source resumes from any position: it yields exactly the remaining records."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from reading import check_every_resume, chunks_of, errors, read_file, records, write

from streamkernel.connectors import FileSource
from streamkernel.connectors.csv_cells import number
from streamkernel.connectors.json_values import flatten

CHUNKS = st.sampled_from([1, 7, 1 << 18])
NAMES = st.sampled_from(["csv", "csv.gz"])
CELLS = st.text(alphabet='a1 .,"\n\ré😀', max_size=6)
ROWS = st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=6)
NAME = st.text(st.characters(codec="utf-8", exclude_characters="."), max_size=4)  # two fields with one name are refused
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAME, inner, max_size=2),
    max_leaves=3,
)
JSON_RECORDS = st.lists(st.dictionaries(NAME, JSON_VALUES, max_size=3), max_size=6)
BLANKS = st.lists(st.sampled_from([b"", b"\n", b" \r\n\n"]), min_size=7, max_size=7)


@max_examples(60)
@given(rows=ROWS, blanks=BLANKS, ending=st.sampled_from(["\n", "\r\n"]), name=NAMES, chunk=CHUNKS)
def test_csv_continues_after_every_record(
    rows: list[tuple[str, ...]], blanks: list[bytes], ending: str, name: str, chunk: int
) -> None:
    data = blanks[0]
    for row, blank in zip([("x", "y", "z"), *rows], blanks, strict=False):
        text = io.StringIO(newline="")
        quoting = csv.QUOTE_ALL if "\r" in "".join(row) else csv.QUOTE_MINIMAL
        csv.writer(text, lineterminator=ending, quoting=quoting).writerow(row)
        data += text.getvalue().encode() + blank
    expected = [{name: number(cell) for name, cell in zip("xyz", row, strict=True) if cell} for row in rows]
    with TemporaryDirectory() as directory, chunks_of(chunk):
        events = check_every_resume(write(Path(directory, f"a.{name}"), data))
    assert records(events) == expected


@max_examples(50)
@given(rows=JSON_RECORDS, blanks=BLANKS, name=st.sampled_from(["jsonl", "ndjson.gz"]), chunk=CHUNKS)
def test_json_lines_continue_after_every_record(
    rows: list[dict[str, Any]], blanks: list[bytes], name: str, chunk: int
) -> None:
    lines = [json.dumps(row, ensure_ascii=False).encode() for row in rows]
    data = b"".join(blank + line + b"\n" for line, blank in zip(lines, blanks, strict=False))
    with TemporaryDirectory() as directory, chunks_of(chunk):
        events = check_every_resume(write(Path(directory, f"a.{name}"), data))
    assert records(events) == [flatten(row) for row in rows]
    assert [event.raw for event in events] == lines


@max_examples(200)
@given(
    data=st.text(alphabet='a1,"\n\r:# {}é\0', max_size=60).map(str.encode)
    | st.binary(max_size=30)
    | st.lists(st.sampled_from([b"1,2", b'1,"2', b'"', b"\n", b"\xff", b"1 1:2", b'{"a":1}', b" "])).map(b"".join),
    format=st.sampled_from(["csv", "jsonl", "svmlight"]),
    limit=st.sampled_from([1, 4, 10, 1 << 20]),
)
def test_arbitrary_bytes_neither_stop_a_source_nor_change_positions(data: bytes, format: str, limit: int) -> None:
    if format == "csv":
        data, limit = b"a,b\n" + data, max(limit, 4)
    with TemporaryDirectory() as directory:
        path = write(Path(directory, "a.txt"), data)
        events = check_every_resume(path, format=format, max_record_bytes=limit)
        for chunk in (1, 5):
            with chunks_of(chunk):
                assert read_file(path, format=format, max_record_bytes=limit) == events
    assert all((event.record is None) == bool(event.error) for event in events)
    offsets = [event.resume[0] for event in events]
    assert offsets == sorted(set(offsets))
    assert all(offset <= len(data) for offset in offsets)


@max_examples(200)
@given(data=st.text(alphabet='a1,"\n', max_size=40))
def test_csv_rows_match_the_csv_module(data: str) -> None:
    """Also rows over several lines, unless their lines look like rows: they do not fit, or have many delimiters."""
    expected = []
    try:
        for row in csv.reader(io.StringIO("a,b\n" + data, newline=""), strict=True):
            if any("\n" in cell for cell in row) and (len(row) != 2 or sum(cell.count(",") for cell in row) >= 8):
                expected.append(None)
                break
            expected.append(row)
    except csv.Error:
        expected.append(None)  # From here on it is for each to say where the next row begins.
    with TemporaryDirectory() as directory:
        events = read_file(write(Path(directory, "a.csv"), b"a,b\n" + data.encode()))
    found = [next(csv.reader([event.raw.decode()])) for event in events]
    if None in expected:
        expected = expected[: expected.index(None)]
        assert len(found) >= len([row for row in expected if row])
    assert found[: len([row for row in expected if row]) - 1] == [row for row in expected if row][1:]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_positions_lie_also_within_a_batch_and_a_chunk(tmp_path: Path, name: str) -> None:
    rows = [f'{row},"a\nb {row}"\n' for row in range(1500)]
    path = write(tmp_path / name, ("n,text\n" + "".join(rows)).encode())
    with chunks_of(4096):
        events = read_file(path)
        assert records(events) == [{"n": row, "text": f"a\nb {row}"} for row in range(1500)]
        for number in (1, 511, 512, 513, 1024, 1499, 1500):
            assert read_file(path, events[number - 1].resume) == events[number:]


@pytest.mark.parametrize("line", [b'{"x": 1}\n', b"[1]\n", b'{"x": 1234567}\n'])
def test_batches_are_bounded_for_any_content(tmp_path: Path, line: bytes) -> None:
    source = FileSource(write(tmp_path / "a.jsonl", line * 2000), max_record_bytes=10)
    sizes = []
    while (batch := source.poll(timeout=5)) is not None:
        sizes.append(len(batch))
    source.close()
    assert sum(sizes) == 2000
    assert max(sizes) < 1000


def test_no_positions_mean_the_start(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"x": 1}\n')
    source = FileSource(path)
    source.seek({})
    assert len(source.poll(timeout=1) or []) == 1


def test_positions_of_another_file_are_refused(tmp_path: Path) -> None:
    source = FileSource(write(tmp_path / "a.jsonl", b'{"x": 1}\n'))
    with pytest.raises(ValueError, match=r'Expected a position of ".*a\.jsonl", got those of "b\.jsonl"'):
        source.seek({"b.jsonl": [0, 0]})


@pytest.mark.parametrize("position", [7, "7", [7], [7, "1"], [-1, 0], [True, 0], {"offset": 7}, [1, 2, 3, 4]])
def test_an_invalid_position_is_rejected(tmp_path: Path, position: Any) -> None:
    with pytest.raises(ValueError, match=r"Expected a position \[offset, line\], got "):
        read_file(write(tmp_path / "a.jsonl", b'{"x": 1}\n' * 5), position)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl", "a.jsonl.gz"])
def test_a_file_that_is_shorter_than_the_position_is_refused(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, b'{"x": 1}\n' * 3)
    assert errors(read_file(path, [27, 3])) == []
    with pytest.raises(ValueError, match=r"Expected at least 28 bytes, got 27 - at .*it is not the file"):
        read_file(path, [28, 4])


def test_a_file_that_grew_continues_after_a_last_line_that_had_no_newline(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"x,y\n1,2")
    events = read_file(path)
    write(path, b"x,y\n1,2\n3,4\n")
    assert records(read_file(path, events[-1].resume)) == [{"x": 3, "y": 4}]
