"""All files that match a pattern as one source: their order, restarts at any position, and files that appear later."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from reading import chunks_of, errors, read_all, records, write

from streamkernel.connectors import Event, FileSource
from streamkernel.connectors.files.readers import matches


def numbers(begin: int, end: int) -> bytes:
    return b"".join(b'{"n": %d}\n' % n for n in range(begin, end))


def found(events: list[Event]) -> list[Any]:
    return [None if record is None else record["n"] for record in records(events)]


def positions_after(events: list[Event]) -> dict[str, Any]:
    """Return the positions that the engine stores: the last one of each stream."""
    kept: dict[str, Any] = json.loads(json.dumps({event.stream: event.resume for event in events}))
    return kept


def source_after(pattern: Path, events: list[Event], **options: Any) -> FileSource:
    source = FileSource(pattern, **options)
    if events:
        source.seek(positions_after(events))
    return source


def test_every_format_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "empty.csv").mkdir()
    write(tmp_path / "b" / "1.csv", b"n,x\n3,a\n")
    write(tmp_path / "b" / "2.csv.gz", b"x,n\nb,4\n")  # Each file has a header of its own,
    write(tmp_path / "b" / "3.csv", b"")  # except for an empty one.
    write(tmp_path / "b" / "4.svm", b"1 7:1\n")
    write(tmp_path / "a.jsonl", numbers(0, 3))
    write(tmp_path / ".hidden.jsonl", numbers(90, 91))
    pq.write_table(pa.table({"n": [5, 6]}), tmp_path / "c.parquet")
    events = read_all(FileSource(tmp_path / "**" / "*.*"))
    expected: list[Any] = [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3, "x": "a"}, {"x": "b", "n": 4}, {"label": 1, "7": 1}]
    assert records(events) == [*expected, {"n": 5}, {"n": 6}]
    assert [event.stream for event in events] == [
        str(tmp_path / name) for name in ["a.jsonl"] * 3 + ["b/1.csv", "b/2.csv.gz", "b/4.svm"] + ["c.parquet"] * 2
    ]
    for number in range(1, len(events) + 1):
        assert read_all(source_after(tmp_path / "**" / "*.*", events[:number])) == events[number:]


@max_examples(100)
@given(
    contents=st.lists(
        st.lists(st.sampled_from([b"1", b"2", b"", b"bad,row", b'"q', b'r"']), max_size=4), min_size=1, max_size=4
    ),
    headers=st.lists(st.sampled_from([b"a", b"b", b"a,a"]), min_size=4, max_size=4),
    names=st.permutations(["a.csv", "b.csv.gz", "c.csv", "d.csv.gz"]),
    chunk=st.sampled_from([3, 1 << 18]),
)
def test_it_continues_after_every_record(
    contents: list[list[bytes]], headers: list[bytes], names: list[str], chunk: int
) -> None:
    with TemporaryDirectory() as folder, chunks_of(chunk):
        for name, header, rows in zip(names, headers, contents, strict=False):
            write(Path(folder, name), b"\n".join([header, *rows]))
        pattern = Path(folder, "*.csv*")
        events = read_all(FileSource(pattern))
        alone = []
        for name, header in sorted(zip(names[: len(contents)], headers, strict=False)):
            if header != b"a,a":
                alone += read_all(FileSource(Path(folder, name)))
        assert [event for event in events if "distinct names" not in str(event.error)] == alone
        for number in range(1, len(events) + 1):
            assert read_all(source_after(pattern, events[:number])) == events[number:]


@max_examples(100)
@given(
    names=st.permutations([f"{letter}.jsonl" for letter in "abcdef"]),
    come=st.lists(st.integers(0, 12), min_size=6, max_size=6).map(sorted),
    stops=st.sets(st.integers(1, 11)),
    follow=st.booleans(),
)
def test_files_that_appear_at_any_time_are_read_once(
    names: list[str], come: list[int], stops: set[int], follow: bool
) -> None:
    """One event is handed on at a time; before it, files come and the source may be started again."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamkernel.connectors.files.text.BATCH_EVENTS", 1)
        patch.setattr("streamkernel.connectors.files.readers.LOOK_PAUSE", 0)
        whole, parted = (
            run(Path(folder, "whole"), names, come, set(), follow),
            run(Path(folder, "parts"), names, come, stops, follow),
        )
        assert sorted(whole) == sorted(parted) == [(name, n) for name in sorted(names) for n in (0, 1)]
        for name in names:
            assert [n for stream, n in parted if stream == name] == [0, 1]
        if not follow or names == sorted(names):
            assert whole == parted


def run(folder: Path, names: list[str], come: list[int], stops: set[int], follow: bool) -> list[tuple[str, int]]:
    folder.mkdir()
    write(folder / "0.jsonl", b"\n")
    events: list[Event] = []
    source = FileSource(folder / "*.jsonl", follow=follow)
    waiting = list(zip(come, names, strict=True))
    idle, stopped = 0, set[int]()
    while len(events) < 12:
        while waiting and (waiting[0][0] <= len(events) or idle > 3):
            write(folder / waiting.pop(0)[1], numbers(0, 2))
            idle = 0
        if len(events) in stops - stopped:
            stopped.add(len(events))
            source.close()
            source = source_after(folder / "*.jsonl", events, follow=follow)
        batch = source.poll(timeout=0)
        if batch is None:  # The end of all that were there; a next run reads what has come since.
            source.close()
            source = source_after(folder / "*.jsonl", events)
        idle = 0 if batch else idle + 1
        assert idle < 50
        events += batch or []
    source.close()
    return [(Path(event.stream).name, (event.record or {})["n"]) for event in events]


def test_a_late_file_is_read_while_the_last_one_is_waited_for(tmp_path: Path) -> None:
    last = write(tmp_path / "b.jsonl", numbers(0, 2) + b'{"n": ')
    source = FileSource(tmp_path / "*.jsonl", follow=True)
    events = poll_all(source)
    late = write(tmp_path / "a.jsonl", numbers(10, 12))
    events += poll_all(source)
    with last.open("ab") as file:
        file.write(b"2}\n" + numbers(3, 4))
    assert source.lag() == {(str(last), "0"): 18}
    events += poll_all(source)
    assert found(events) == [0, 1, 10, 11, 2, 3]
    assert [event.resume for event in events[2:4]] == [{"late": [10, 1]}, {"late": [20, 2]}]
    source.close()
    for number in range(1, 7):
        source = source_after(tmp_path / "*.jsonl", events[:number], follow=True)
        rest = poll_all(source)
        assert sorted(found(rest)) == sorted(found(events[number:]))
        assert [event for event in rest if event.stream != str(late)] == [
            event for event in events[number:] if event.stream != str(late)
        ]
        source.close()


def poll_all(source: FileSource) -> list[Event]:
    events: list[Event] = []
    while batch := (source.poll(timeout=0.02) or source.poll(timeout=0.02)):
        events += batch
    return events


def test_the_end_of_a_file_is_its_end_once_there_is_a_later_one(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", b"")
    source = FileSource(tmp_path / "*.jsonl", follow=True)
    assert poll_all(source) == []
    with first.open("ab") as file:
        file.write(b'{"n": 0}\n{"n": 1}')
    events = poll_all(source)
    second = write(tmp_path / "b.jsonl", b"")  # No process writes to it yet.
    events += poll_all(source)
    assert found(events) == [0]
    assert source.lag() == {(str(first), "0"): 8}
    write(second, numbers(2, 3))
    assert found(events + poll_all(source)) == [0, 1, 2]
    source.close()


@pytest.mark.parametrize("name", ["a[1].csv", "a*.csv", "a?.csv"])
def test_the_path_of_an_existing_file_is_not_a_pattern(tmp_path: Path, name: str) -> None:
    write(tmp_path / "a1.csv", b"x\n1\n")
    assert records(read_all(FileSource(tmp_path / name))) == [{"x": 1}]
    path = write(tmp_path / name, b"x\n2\n")
    events = read_all(FileSource(path))
    assert (records(events), events[0].stream, events[0].resume) == ([{"x": 2}], str(path), [4, 2])


def test_no_match_is_an_error_unless_following(tmp_path: Path) -> None:
    pattern = tmp_path / "*" / "*.jsonl"
    with pytest.raises(FileNotFoundError, match="Expected files that match, found none") as caught:
        FileSource(pattern)
    assert caught.value.filename == str(pattern)
    source = FileSource(pattern, follow=True)
    assert source.poll(timeout=0.01) == []
    (tmp_path / "x").mkdir()
    write(tmp_path / "x" / "1.jsonl", numbers(0, 1))
    assert found(source.poll(timeout=5) or []) == [0]
    source.close()


def test_a_file_that_cannot_be_read_stops_no_other(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", b"junk")
    write(tmp_path / "b.text", b"junk")
    write(tmp_path / "c.jsonl.gz", numbers(0, 9)).write_bytes((tmp_path / "c.jsonl.gz").read_bytes()[:-9])
    write(tmp_path / "d.csv", b"n,n\n1,2\n")
    write(tmp_path / "e.jsonl", numbers(9, 10))
    events = read_all(FileSource(tmp_path / "*"))
    said = [str(error) for error in errors(events) if error]
    for part in ("a Parquet file", "a file name that ends in", "gzip data", *["distinct names of columns"] * 2):
        assert f"Expected {part}" in said.pop(0)
    assert said == []
    assert [event.resume for event in events[:2]] == [[0, 0, "broken"]] * 2
    assert found(events)[-1] == 9
    for number in range(1, len(events) + 1):
        assert read_all(source_after(tmp_path / "*", events[:number])) == events[number:]


def test_names_without_a_known_suffix_are_rejected_if_there_are_no_others(tmp_path: Path) -> None:
    write(tmp_path / "a.text", b"")
    with pytest.raises(ValueError, match=r'Expected a file name that ends in .csv, .*, got ".text"'):
        FileSource(tmp_path / "*")
    assert read_all(FileSource(tmp_path / "*", format="csv")) == []


def test_a_deleted_unfinished_file_is_reported_once(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / f"{name}.jsonl", numbers(0, 2))
    events = read_all(FileSource(tmp_path / "*.jsonl"))[:3]
    (tmp_path / "a.jsonl").unlink()  # It was finished,
    (tmp_path / "b.jsonl").unlink()  # and this one was not.
    told, *rest = read_all(source_after(tmp_path / "*.jsonl", events))
    assert told.error == (
        f"Expected the rest of a file that was read up to [9, 1], found no file - at {tmp_path / 'b.jsonl'}"
    )
    assert found(rest) == [0, 1]
    assert read_all(source_after(tmp_path / "*.jsonl", [*events, told])) == rest


def test_a_followed_file_that_is_cut_is_reported_and_the_next_one_is_read(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", numbers(0, 2))
    source = FileSource(tmp_path / "*.jsonl", follow=True)
    assert found(poll_all(source)) == [0, 1]
    write(tmp_path / "a.jsonl", b"")
    assert "Expected at least 18 bytes, got 0" in str(poll_all(source)[0].error)
    write(tmp_path / "b.jsonl", numbers(2, 3))
    assert found(poll_all(source)) == [2]
    source.close()


def test_positions_of_other_files_only_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", numbers(0, 2))
    source = FileSource(tmp_path / "*.jsonl")
    with pytest.raises(ValueError, match=r'Expected a position of ".*jsonl", got those of "b.csv"'):
        source.seek({"b.csv": [0, 0]})
    source.seek({"b.csv": [0, 0], str(tmp_path / "a.jsonl"): [9, 1]})
    assert found(read_all(source)) == [1]


def test_lag_is_counted_by_file(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", numbers(0, 600))
    source = FileSource(tmp_path / "*.jsonl")
    events = source.poll(timeout=1) or []
    size = len(numbers(0, 600))
    assert source.lag() == {
        (str(tmp_path / "a.jsonl"), "0"): size - events[-1].resume[0],
        (str(tmp_path / "b.jsonl"), "0"): size,
    }
    read_all(source)
    assert source.lag() == {}


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("/a/b/c.csv", "/a/**", True),
        ("/a/b/c.csv", "/**/c.*", True),
        ("/a/c.csv", "/a/**/c.csv", True),
        ("/a/b/c.csv", "/a/?.csv", False),
        ("/a[1]/c.csv", "/a[[]1]/*.csv", True),
        ("/a/c.csv.1", "/a/*.csv", False),
    ],
)
def test_matching_of_names_agrees_with_files(name: str, pattern: str, expected: bool) -> None:
    assert matches(Path(name), Path(pattern)) is expected
