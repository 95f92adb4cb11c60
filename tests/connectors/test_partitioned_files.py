"""Files that several processes read together: every event once, in rounds of any size, and reproducibly."""

from __future__ import annotations

import gzip
import json
import pickle
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from reading import chunks_of, read_all, records, write

from streamkernel.connectors import Event, FileSource, PartitionedFiles, WorkAssignment
from streamkernel.connectors.files import readers
from streamkernel.connectors.files.readers import inner_position


class Workers:
    """A driver and workers that share no state, like separate processes."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path, self.options = path, options
        self.driver = PartitionedFiles(path, **options)
        self.sources: dict[int, PartitionedFiles] = {}
        self.positions: dict[str, Any] = {}

    def plan(self, workers: int, events: int) -> list[WorkAssignment] | None:
        return self.driver.plan(json.loads(json.dumps(self.positions)), workers, events)

    def read(self, worker: int, assignment: WorkAssignment) -> list[Event]:
        source = self.sources.setdefault(worker, PartitionedFiles(self.path, **self.options))
        return [event for events in source.read(pickle.loads(pickle.dumps(assignment))) for event in events]

    def round(self, workers: int, events: int) -> list[list[Event]] | None:
        """Return the events that each worker read in a round, without markers; None if there was no round."""
        assignments = self.plan(workers, events)
        if assignments is None:
            return None
        found = [self.read(worker, assignment) for worker, assignment in enumerate(assignments)]
        for assignment, those in zip(assignments, found, strict=True):
            assert sum(not event.is_position_only for event in those) <= assignment.events <= events
            assert {event.stream for event in those} <= assignment.begin.keys()
            self.positions |= {event.stream: event.resume for event in those}
        return [[event for event in those if not event.is_position_only] for those in found]

    def rest(self, workers: int, events: int) -> list[Event]:
        found: list[Event] = []
        while (those := self.round(workers, events)) is not None:
            found += [event for one in those for event in one]
        return found

    def close(self) -> None:
        for source in (self.driver, *self.sources.values()):
            source.close()


def as_of_one_process(events: Iterable[Event]) -> list[Event]:
    return [event._replace(resume=inner_position(event.resume)) for event in events]


def by_stream(events: Iterable[Event]) -> dict[str, list[Event]]:
    found = defaultdict(list)
    for event in as_of_one_process(events):
        found[event.stream].append(event)
    return dict(found)


def numbers(begin: int, end: int) -> bytes:
    return b"".join(b'{"n": %d}\n' % n for n in range(begin, end))


def names(events: Iterable[Event]) -> list[str]:
    return [Path(event.stream).name for event in events]


def every_format(folder: Path) -> Path:
    write(folder / "a.csv", b"n,x\n" + b"".join(b"%d,a\n" % n for n in range(40)))
    write(folder / "b.csv.gz", b"x,n\n" + b"".join(b"b,%d\n" % n for n in range(1300)))
    write(folder / "c.csv", b"n,x\n")
    write(folder / "d.jsonl.gz", numbers(0, 30))
    write(folder / "e.jsonl", numbers(0, 1100))
    write(folder / "f.svm", b"1 7:1\n")
    pq.write_table(pa.table({"n": range(1200)}), folder / "g.parquet", row_group_size=500)
    write(folder / "h.jsonl", b"")
    return folder / "*.*"


@pytest.mark.parametrize(("workers", "events"), [(1, 64), (2, 1000), (3, 7), (8, 513), (2, 10_000)])
def test_every_format_is_read_as_by_one_process(tmp_path: Path, workers: int, events: int) -> None:
    pattern = every_format(tmp_path)
    run = Workers(pattern)
    assert by_stream(run.rest(workers, events)) == by_stream(read_all(FileSource(pattern)))
    assert {Path(name).name[0]: position for name, position in run.positions.items()} == {
        path.name[0]: {"done": place, "size": path.stat().st_size}
        for path, place in zip(
            sorted(tmp_path.iterdir()),
            [
                [200 - 6, 41],
                [4 + sum(len(f"b,{n}\n") for n in range(1300)), 1301],
                None,
                [len(numbers(0, 30)), 30],
                [len(numbers(0, 1100)), 1100],
                [6, 1],
                1200,
            ],
            strict=False,
        )
    }
    run.close()


ROWS = st.lists(st.sampled_from([b"1", b"2", b"", b"bad,row", b'"q', b'r"']), max_size=6)
FILES = st.fixed_dictionaries(
    {},
    optional={
        "a.csv": st.tuples(st.sampled_from([b"a", b"a,a", b"a,b"]), ROWS),
        "b.csv.gz": st.tuples(st.sampled_from([b"a", b"a,a"]), ROWS),
        "c.jsonl": st.tuples(st.just(b'{"n": 0}'), st.lists(st.sampled_from([b'{"n": 1}', b"{", b""]), max_size=9)),
        "d[1].csv": st.tuples(st.just(b"a"), ROWS),
        "e.parquet": st.tuples(st.just(b"junk"), ROWS),
        "f.csv": st.tuples(st.just(b"a"), ROWS),
    },
)


@given(
    files=FILES,
    late=FILES,
    cut=st.booleans(),
    sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6)), min_size=1, max_size=8),
    chunk=st.sampled_from([3, 1 << 18]),
)
def test_every_event_is_read_once_in_any_rounds(
    files: dict[str, Any], late: dict[str, Any], cut: bool, sizes: list[tuple[int, int]], chunk: int
) -> None:
    """Workers come and go, files appear between rounds; every assignment that is read again yields the same events."""
    with TemporaryDirectory() as folder, chunks_of(chunk):
        write(Path(folder, "0.csv"), b"a\n1\n")
        for name, (head, rows) in files.items():
            path = write(Path(folder, name), b"\n".join([head, *rows]))
            if cut and path.suffix == ".gz":
                path.write_bytes(path.read_bytes()[:-9])
        run, events = Workers(Path(folder, "*")), []
        for number in range(10_000):
            if number == 2:
                for name, (head, rows) in late.items():
                    write(Path(folder, f"{name[0]}-late{name[1:]}"), b"\n".join([head, *rows]))
            workers, most = sizes[number % len(sizes)]
            for worker, assignment in enumerate(run.plan(workers, most) or []):
                before = run.read(worker, assignment)
                afresh = Workers(run.path)
                assert run.read(worker, assignment) == afresh.read(0, assignment) == before
                afresh.close()
            found = run.round(workers, most)
            if found is None and number > 2:
                break
            events += [event for one in found or [] for event in one]
        assert by_stream(events) == by_stream(read_all(FileSource(run.path)))
        assert run.round(3, 5) is None
        assert set(run.driver.lag(run.positions).values()) <= {0}
        run.close()


class Folder:
    """A folder in which files appear and the last one in order is written to; no two records have the same number."""

    SUFFIXES = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".svm", ".parquet")

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        self.rows: dict[str, int] = {}

    def add(self, letter: str, suffix: str, rows: int) -> None:
        """Make a file, if there is none of this letter; rows may be none."""
        if not any(name.startswith(letter) for name in self.rows):
            self.rows[letter + suffix] = 0
            head = {".csv": b"n\n", ".parquet": b"", ".gz": gzip.compress(b"n\n" if ".csv" in suffix else b"\n")}
            Path(self.path, letter + suffix).write_bytes(head.get(Path(letter + suffix).suffix, b"\n"))
            self.write_to(letter + suffix, rows)

    def grow(self, rows: int) -> None:
        """Write to the last file."""
        self.write_to(max(self.rows), rows)

    def write_to(self, name: str, rows: int) -> None:
        path, new = self.path / name, range(self.count, self.count + rows)
        self.count += rows
        if path.suffix == ".parquet":
            old = pq.read_table(path)["n"].to_pylist() if path.stat().st_size else []
            pq.write_table(pa.table({"n": pa.array([*old, *new], pa.int64())}), path, row_group_size=3)
            return
        line = {".jsonl": b'{"n": %d}\n', ".svm": b"%d 7:1\n"}.get(Path(name.removesuffix(".gz")).suffix, b"%d\n")
        data = b"".join(line % n for n in new)
        with path.open("ab") as file:
            file.write(gzip.compress(data) if path.suffix == ".gz" and rows else data)


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(Folder.SUFFIXES), st.integers(0, 6)), st.integers(0, 4)
    ),
    max_size=2,
)
TURNS = st.lists(
    st.tuples(CHANGES, st.one_of(st.integers(0, 9), st.tuples(st.integers(1, 4), st.integers(1, 5)))), max_size=12
)


@max_examples(200)
@given(
    files=st.lists(st.tuples(st.sampled_from("bde"), st.sampled_from(Folder.SUFFIXES), st.integers(0, 9)), min_size=1),
    turns=TURNS,
    is_one=st.booleans(),
)
def test_one_process_and_several_take_turns_and_read_each_event_once(
    files: list[Any], turns: list[Any], is_one: bool
) -> None:
    """Each time from positions alone; before it, files appear, before those that are there too, or the last one grows.

    A turn is of one process for so many events, or a round of workers with so many each.
    """
    with TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamkernel.connectors.files.text.BATCH_EVENTS", 1)
        patch.setattr("streamkernel.connectors.files.parquet.BATCH_ROWS", 1)
        folder, positions, events = Folder(Path(path)), dict[str, Any](), list[Event]()
        for file in files[: 1 if is_one else None]:
            folder.add(*file)
        where = Path(path, next(iter(folder.rows)) if is_one else "*")
        for changes, turn in [*turns, ([], 10**9), ([], (2, 5)), ([], 10**9)]:
            for change in changes:
                if isinstance(change, int):
                    folder.grow(change)
                elif not is_one:
                    folder.add(*change)
            found = one_process(where, positions, turn) if isinstance(turn, int) else several(where, positions, *turn)
            events += [event for event in found if not event.is_position_only]
            positions |= json.loads(json.dumps({event.stream: event.resume for event in found}))
        assert [event.error for event in events if event.error] == []
        told = [(event.record or {}).get("label", (event.record or {}).get("n")) for event in events]
        assert sorted(told) == list(range(folder.count))


def one_process(path: Path, positions: dict[str, Any], most: int) -> list[Event]:
    source, events = FileSource(path), list[Event]()
    source.seek(positions)
    while len(events) < most and (batch := source.poll(timeout=1)) is not None:
        events += batch
    source.close()
    return events


def several(path: Path, positions: dict[str, Any], workers: int, most: int) -> list[Event]:
    run = Workers(path)
    run.positions = positions
    events = [
        event
        for worker, assignment in enumerate(run.plan(workers, most) or [])
        for event in run.read(worker, assignment)
    ]
    run.close()
    return events


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".jsonl.gz", ".parquet"])
@pytest.mark.parametrize("is_one", [True, False])
def test_additions_to_the_last_file_are_read(tmp_path: Path, suffix: str, is_one: bool) -> None:
    """In the same run and in the next one; and a finished file is not planned again."""
    folder = Folder(tmp_path)
    folder.add("b", suffix, 0)
    path, count = tmp_path / f"b{suffix}", 0
    run = Workers(path if is_one else tmp_path / "*")
    for number, rows in enumerate((0, 2, 0, 3, 2)):
        if number == 3:
            run.close()
            positions, run = run.positions, Workers(run.path)
            run.positions = positions
        folder.grow(rows)
        found = run.rest(2, 2)  # A round of two events ends before the end of the file is met.
        assert [event.record and event.record["n"] for event in found] == list(range(count, count + rows))
        count += rows
        assert run.positions[str(path)]["size"] == path.stat().st_size
        assert run.plan(2, 2) is None
        assert run.driver.lag(run.positions) == {}
        folder.grow(1)
        count += 1
        assert run.plan(2, 2) is not None
        added = path.stat().st_size - run.positions[str(path)]["size"]
        assert run.driver.lag(run.positions) == {(str(path), "0"): added}
        assert len(run.rest(2, 2)) == 1
        assert run.driver.lag(run.positions) == {}
    run.close()


@given(cuts=st.lists(st.integers(0, 100), min_size=1, max_size=12), first=st.integers(0, 30))
def test_lines_that_are_written_in_pieces_are_read_whole(cuts: list[int], first: int) -> None:
    """As long as there are other files to read."""
    text = numbers(0, 12)
    with TemporaryDirectory() as name:
        (Path(name) / "a.jsonl").write_bytes(numbers(100, 200))
        last = Path(name) / "b.jsonl"
        last.write_bytes(text[:first])
        run, found = Workers(Path(name, "*")), list[Event]()
        for cut in [*sorted(cuts), len(text)]:
            last.write_bytes(text[: max(first, cut)])
            found += [event for events in run.round(2, 3) or [] for event in events]
        found += run.rest(2, 3)
        run.close()
    assert [event.error for event in found if event.error] == []
    assert sorted(event.record["n"] for event in found if event.record) == [*range(12), *range(100, 200)]


def test_additions_to_earlier_files_are_not_read(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", numbers(0, 2))
    run = Workers(tmp_path / "*")
    run.rest(2, 2)
    write(tmp_path / "a.jsonl", numbers(0, 3))
    assert run.plan(2, 2) is None
    source = FileSource(run.path)
    source.seek(run.positions)
    assert read_all(source) == []
    run.close()


@pytest.mark.parametrize("by_one", [True, False])
def test_the_last_file_is_continued_before_a_later_one_is_started(tmp_path: Path, by_one: bool) -> None:
    """Otherwise the positions would not show that the file is unfinished."""
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", numbers(0, 9))
    run = Workers(tmp_path / "*")
    if by_one:
        run.positions = {event.stream: event.resume for event in read_all(FileSource(tmp_path / "b.jsonl"))}
    else:
        run.round(2, 9)
        run.round(2, 9)
        run.positions.pop(str(tmp_path / "a.jsonl"))
    write(tmp_path / "b.jsonl", numbers(0, 12))
    write(tmp_path / "c.jsonl", numbers(0, 5))
    assert [[Path(name).name for name in assignment.begin] for assignment in run.plan(2, 4) or []] == [
        ["b.jsonl", "c.jsonl"],
        ["a.jsonl"],
    ]
    assert [event.record and event.record["n"] for event in run.rest(2, 2) if "b.jsonl" in event.stream] == [9, 10, 11]
    run.close()


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
@pytest.mark.parametrize("most", [1, 2, 3, 9])
@pytest.mark.parametrize("is_afresh", [True, False])
def test_an_assignment_ends_where_the_file_did_when_it_was_planned(
    tmp_path: Path, name: str, most: int, is_afresh: bool
) -> None:
    """A partial line there is a record, and the rest of it, written later, is in the next plan."""
    head, half, rest = {
        "a.jsonl": (b'{"n": 0}\n', b'{"n": ', b'1}\n{"n": 2}\n'),
        "a.csv": (b'n\n0\n', b'"1', b'2"\n2\n'),
    }[name]  # fmt: skip
    path = write(tmp_path / name, head + half)
    run = Workers(path)
    events = run.read(0, (run.plan(1, 1) or [])[0])
    run.positions |= {event.stream: event.resume for event in events}
    (assignment,) = run.plan(1, most) or []
    assert assignment.end == {str(path): len(head + half)}
    before = run.read(0, assignment)
    write(path, head + half + rest)
    if is_afresh:
        run.sources.popitem()[1].close()
    assert run.read(0, assignment) == before == Workers(path).read(1, assignment)
    assert [(event.raw, event.record) for event in before if not event.is_position_only] == [(half, None)]
    assert ("done" in before[-1].resume) == (most > 1)
    run.positions |= {event.stream: event.resume for event in before}
    assert run.driver.lag(run.positions) == {(str(path), "0"): 0} or most > 1
    assert [event.raw for event in run.rest(1, most)] == rest.splitlines()
    assert run.positions == {
        str(path): {"done": [len(head + half + rest), 4 + name.count("csv")], "size": path.stat().st_size}
    }
    run.close()


def test_a_file_deleted_before_it_was_started_is_reported(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", numbers(0, 2))
    run = Workers(tmp_path / "*")
    (assignment,) = run.plan(1, 9) or []
    (tmp_path / "b.jsonl").unlink()
    *_, told, end = run.read(0, assignment)
    assert told == Event(
        str(tmp_path / "b.jsonl"),
        {"late": [0, 0, "broken"]},
        b"",
        error=f"Expected a file, found no file - at {tmp_path / 'b.jsonl'}",
    )
    assert end.resume == {"done": [0, 0, "broken"], "size": 18}
    run.positions = {str(tmp_path / "a.jsonl"): {"done": [18, 2], "size": 18}, told.stream: end.resume}
    write(tmp_path / "b.jsonl", numbers(0, 3))
    assert run.plan(1, 9) is None
    run.positions[told.stream] = told.resume
    assert run.plan(1, 9) is None
    run.close()


@pytest.mark.parametrize("follow", [True, False])
def test_one_file_is_continued_by_one_process(tmp_path: Path, follow: bool) -> None:
    path = write(tmp_path / "a.jsonl", numbers(0, 4))
    for position in ({"late": [18, 2]}, {"done": [18, 2], "size": 18}):
        source = FileSource(path, follow=follow)
        source.seek({str(path): position})
        assert records(source.poll(timeout=1) or []) == [{"n": 2}, {"n": 3}]
        source.close()
    source = FileSource(path)
    source.seek({str(path): {"done": None, "size": 1}})
    assert len(read_all(source)) == 4


def test_finished_files_may_be_deleted(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / f"{name}.jsonl", numbers(0, 2))
    run = Workers(tmp_path / "*")
    run.positions = {event.stream: event.resume for event in read_all(FileSource(run.path))[:5]}
    for name in "ab":
        (tmp_path / f"{name}.jsonl").unlink()
    assert records(run.rest(2, 3)) == [{"n": 1}]
    (tmp_path / "c.jsonl").unlink()
    write(tmp_path / "d.jsonl", numbers(5, 6))
    source = FileSource(run.path)
    source.seek(run.positions)
    assert records(read_all(source)) == [{"n": 5}]
    run.close()


def test_files_are_assigned_in_turn_in_the_order_of_their_names(tmp_path: Path) -> None:
    for number, name in enumerate("edcba"):
        write(tmp_path / f"{name}.jsonl", numbers(0, 2 + number))
    run = Workers(tmp_path / "*.jsonl")
    first = run.round(2, 7)
    assert first is not None
    assert list(map(names, first)) == [["a.jsonl"] * 6 + ["c.jsonl"], ["b.jsonl"] * 5 + ["d.jsonl"] * 2]
    assert [record["n"] for record in records(first[1]) if record] == [0, 1, 2, 3, 4, 0, 1]
    second = run.round(2, 7)  # Of c, d and e.
    assert second is not None
    assert list(map(names, second)) == [["c.jsonl"] * 3 + ["e.jsonl"] * 2, ["d.jsonl"]]
    assert run.round(2, 7) is None
    run.close()


def test_an_assignment_has_no_more_files_than_events(tmp_path: Path) -> None:
    for number in range(9):
        write(tmp_path / f"{number}.csv", b"n\n")  # There is no event in them.
    run = Workers(tmp_path / "*.csv")
    assert [len(assignment.begin) for assignment in run.plan(2, 3) or []] == [3, 3]
    assert [run.round(2, 3) for _ in range(3)] == [[[], []], [[], []], None]
    run.close()


def test_workers_without_a_file_have_nothing_to_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", numbers(0, 2))
    assert PartitionedFiles(path).plan({}, 3, 5) == [
        WorkAssignment({str(path): None}, {str(path): 18}, 5),
        WorkAssignment({}, {}, 0),
        WorkAssignment({}, {}, 0),
    ]


def test_a_file_that_appears_is_in_the_next_plan(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", numbers(0, 4))
    run = Workers(tmp_path / "*.jsonl")
    run.round(2, 2)
    write(tmp_path / "a.jsonl", numbers(4, 6))
    found = run.round(2, 2)
    assert found is not None
    assert [as_of_one_process(events) for events in found] == [
        read_all(FileSource(tmp_path / "a.jsonl")),
        read_all(FileSource(tmp_path / "b.jsonl"))[2:],
    ]
    assert run.rest(2, 2) == []
    run.close()


def test_a_file_that_is_read_in_many_rounds_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_file = readers.file_reader
    monkeypatch.setattr(readers, "file_reader", lambda path, *rest: opened.append(path) or open_file(path, *rest))
    for name in "ab":
        write(tmp_path / f"{name}.csv.gz", b"n\n" + b"1\n" * 1000)
    run = Workers(tmp_path / "*.gz")
    assert len(run.rest(2, 10)) == 2000
    assert sorted(opened) == [tmp_path / "a.csv.gz", tmp_path / "b.csv.gz"]
    run.close()


def test_unreadable_records_are_reported_once(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", b"junk")
    write(tmp_path / "b.text", b"junk")
    write(tmp_path / "c.jsonl", numbers(0, 9))
    for name in "de":
        write(tmp_path / f"{name}.jsonl", numbers(0, 9))
    run = Workers(tmp_path / "*")
    first = run.round(1, 4)
    assert first is not None
    said = [event.error for event in first[0] if event.error]
    for part, error in zip(("a Parquet file", "a file name that ends in"), said, strict=True):
        assert f"Expected {part}" in str(error)
    (tmp_path / "c.jsonl").unlink()  # It was begun,
    (tmp_path / "d.jsonl").unlink()  # and this one was not.
    run.close()
    run.sources.clear()
    told, *others = run.rest(1, 4)
    assert names(others) == ["e.jsonl"] * 9
    assert told.error == (
        f"Expected the rest of a file that was read up to [18, 2], found no file - at {tmp_path / 'c.jsonl'}"
    )


def test_one_file_is_read_like_a_pattern(tmp_path: Path) -> None:
    write(tmp_path / "a1.csv", b"x\n1\n")
    path = write(tmp_path / "a[1].csv", b"x,x\n2,3\n")
    run = Workers(path)
    header, row = run.rest(2, 9)
    assert (header.stream, header.raw, row.raw) == (str(path), b"x,x", b"2,3")
    assert "distinct names of columns" in str(header.error)
    run.close()


def test_indivisible_sources_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Expected a file or a pattern to divide, got standard input"):
        PartitionedFiles("-", format="csv")
    with pytest.raises(FileNotFoundError, match=r"a\.csv"):
        PartitionedFiles(tmp_path / "a.csv")
    with pytest.raises(FileNotFoundError, match="Expected files that match, found none"):
        PartitionedFiles(tmp_path / "*.csv")
    with pytest.raises(ValueError, match="Expected a format of csv, jsonl"):
        PartitionedFiles(write(tmp_path / "a.csv", b""), format="cvs")
    with pytest.raises(ValueError, match=r'Expected a position of ".*a.csv", got those of "b.csv"'):
        PartitionedFiles(tmp_path / "a.csv").plan({"b.csv": [0, 0]}, 2, 2)


def test_it_continues_where_one_process_stopped(tmp_path: Path) -> None:
    for name in "bc":
        write(tmp_path / f"{name}.jsonl", numbers(0, 600))
    source = FileSource(tmp_path / "*.jsonl")
    before = [*(source.poll(1) or []), *(source.poll(1) or []), *(source.poll(1) or [])]
    write(tmp_path / "a.jsonl", numbers(0, 600))
    while names(before[-1:]) != ["a.jsonl"]:
        before += source.poll(1) or []
    source.close()
    assert before[-1].resume == {"late": [len(numbers(0, 512)), 512]}
    run = Workers(tmp_path / "*.jsonl")
    run.positions = {event.stream: event.resume for event in before}
    after = run.rest(2, 100)
    assert names(after) == ["a.jsonl"] * 88
    assert [record and record["n"] for record in records(after)] == list(range(512, 600))
    run.close()


def test_lag_is_counted_by_file(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    for path in (plain, packed):
        write(path, numbers(0, 10))
    run = Workers(tmp_path / "*")
    assert run.driver.lag({}) == {}
    run.round(2, 4)
    sizes = {(str(plain), "0"): 90, (str(packed), "0"): packed.stat().st_size}
    assert run.driver.lag({}) == sizes
    assert run.driver.lag(run.positions) == sizes | {(str(plain), "0"): 54}
    run.rest(2, 4)
    assert set(run.driver.lag(run.positions).values()) <= {0}
    run.close()


def test_a_file_that_was_cut_is_reported_though_it_has_grown_again_since(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", numbers(0, 1))
    run = Workers(path)
    run.positions = {str(path): {"late": [18, 2]}}
    (assignment,) = run.plan(1, 9) or []
    write(path, numbers(0, 3))
    told, end = run.read(0, assignment)
    assert "Expected at least 18 bytes, got 9" in str(told.error)
    assert end.resume == {"done": [0, 0, "broken"], "size": 9}
    run.close()
