"""Files that several processes read together: every event once, whatever the rounds are like, and twice the same."""

from __future__ import annotations

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
from hypothesis import given
from hypothesis import strategies as st
from reading import chunks_of, read_all, records, write

from connectors import DividedFiles, Event, FileSource, Share, shared_files


class Workers:
    """A driver and workers, as if each were a process of its own."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path, self.options = path, options
        self.driver = DividedFiles(path, **options)
        self.sources: dict[int, DividedFiles] = {}
        self.positions: dict[str, Any] = {}

    def plan(self, workers: int, events: int) -> list[Share] | None:
        return self.driver.plan(json.loads(json.dumps(self.positions)), workers, events)

    def read(self, worker: int, share: Share) -> list[Event]:
        source = self.sources.setdefault(worker, DividedFiles(self.path, **self.options))
        return [event for events in source.read(pickle.loads(pickle.dumps(share))) for event in events]

    def round(self, workers: int, events: int) -> list[list[Event]] | None:
        """Return the events that each worker read in a round, without marks; none if there was no round."""
        shares = self.plan(workers, events)
        if shares is None:
            return None
        found = [self.read(worker, share) for worker, share in enumerate(shares)]
        for share, those in zip(shares, found, strict=True):
            assert sum(not event.is_mark for event in those) <= share.events <= events
            assert {event.stream for event in those} <= share.begin.keys()
            self.positions |= {event.stream: event.resume for event in those}
        return [[event for event in those if not event.is_mark] for those in found]

    def rest(self, workers: int, events: int) -> list[Event]:
        found: list[Event] = []
        while (those := self.round(workers, events)) is not None:
            found += [event for one in those for event in one]
        return found

    def close(self) -> None:
        for source in (self.driver, *self.sources.values()):
            source.close()


def by_stream(events: Iterable[Event]) -> dict[str, list[Event]]:
    found = defaultdict(list)
    for event in events:
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
        "a": {"done": [200 - 6, 41]},
        "b": {"done": [4 + sum(len(f"b,{n}\n") for n in range(1300)), 1301]},
        "c": {"done": None},
        "d": {"done": [len(numbers(0, 30)), 30]},
        "e": {"done": [len(numbers(0, 1100)), 1100]},
        "f": {"done": [6, 1]},
        "g": {"done": 1200},
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
def test_every_event_is_read_once_whatever_the_rounds_are_like(
    files: dict[str, Any], late: dict[str, Any], cut: bool, sizes: list[tuple[int, int]], chunk: int
) -> None:
    """Workers come and go, files appear between rounds; and every share that is read again has the same events."""
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
            for worker, share in enumerate(run.plan(workers, most) or []):
                before = run.read(worker, share)
                afresh = Workers(run.path)
                assert run.read(worker, share) == afresh.read(0, share) == before
                afresh.close()
            found = run.round(workers, most)
            if found is None and number > 2:
                break
            events += [event for one in found or [] for event in one]
        assert by_stream(events) == by_stream(read_all(FileSource(run.path)))
        assert run.round(3, 5) is None
        run.close()


def test_files_are_dealt_out_in_turn_in_the_order_of_their_names(tmp_path: Path) -> None:
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


def test_a_share_has_no_more_files_than_events(tmp_path: Path) -> None:
    for number in range(9):
        write(tmp_path / f"{number}.csv", b"n\n")  # There is not one event in them.
    run = Workers(tmp_path / "*.csv")
    assert [len(share.begin) for share in run.plan(2, 3) or []] == [3, 3]
    assert [run.round(2, 3) for _ in range(3)] == [[[], []], [[], []], None]
    run.close()


def test_workers_without_a_file_have_nothing_to_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", numbers(0, 2))
    assert DividedFiles(path).plan({}, 3, 5) == [Share({str(path): None}, {}, 5), Share({}, {}, 0), Share({}, {}, 0)]


def test_a_file_that_appears_is_in_the_next_plan(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", numbers(0, 4))
    run = Workers(tmp_path / "*.jsonl")
    run.round(2, 2)
    write(tmp_path / "a.jsonl", numbers(4, 6))
    assert run.round(2, 2) == [
        read_all(FileSource(tmp_path / "a.jsonl")),
        read_all(FileSource(tmp_path / "b.jsonl"))[2:],
    ]
    assert run.rest(2, 2) == []
    run.close()


def test_a_file_that_is_read_in_many_rounds_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_file = shared_files.file_reader
    monkeypatch.setattr(shared_files, "file_reader", lambda path, *rest: opened.append(path) or open_file(path, *rest))
    for name in "ab":
        write(tmp_path / f"{name}.csv.gz", b"n\n" + b"1\n" * 1000)
    run = Workers(tmp_path / "*.gz")
    assert len(run.rest(2, 10)) == 2000
    assert sorted(opened) == [tmp_path / "a.csv.gz", tmp_path / "b.csv.gz"]
    run.close()


def test_what_cannot_be_read_is_told_once(tmp_path: Path) -> None:
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
    assert "a name of its own" in str(header.error)
    run.close()


def test_what_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Expected a file or a pattern to divide, got standard input"):
        DividedFiles("-", format="csv")
    with pytest.raises(FileNotFoundError, match=r"a\.csv"):
        DividedFiles(tmp_path / "a.csv")
    with pytest.raises(FileNotFoundError, match="Expected files that match, found none"):
        DividedFiles(tmp_path / "*.csv")
    with pytest.raises(ValueError, match="Expected a format of csv, jsonl"):
        DividedFiles(write(tmp_path / "a.csv", b""), format="cvs")
    with pytest.raises(ValueError, match=r'Expected a position of ".*a.csv", got those of "b.csv"'):
        DividedFiles(tmp_path / "a.csv").plan({"b.csv": [0, 0]}, 2, 2)


def test_it_goes_on_where_one_process_stopped(tmp_path: Path) -> None:
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


def test_what_waits_is_counted_by_file(tmp_path: Path) -> None:
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
