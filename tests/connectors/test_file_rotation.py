"""Files that are rotated while they are followed: no line is lost or read twice, also across restarts."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from reading import chunks_of, errors, records, write

from streamkernel.connectors import Event, FileSource
from streamkernel.connectors.files.bytestreams import FileBytes
from streamkernel.connectors.files.following import HEAD_BYTES, Fingerprint, find, rotated_files

LOST = "found neither the file nor a copy of it: data after that byte may be lost"


class Log:
    """A log as a program and logrotate write it, and a source that follows it and can be restarted."""

    def __init__(self, folder: Path, header: bytes = b"", start: str = "0") -> None:
        self.path = write(folder / ("app.csv" if header else "app.jsonl"), b"")
        self.header = header
        self.generations = [b""]
        self.events: list[Event] = []
        self.source = FileSource(self.path, follow=True)
        self.days = 0

    def write(self, data: bytes) -> None:
        if self.header and not self.generations[-1]:
            data = self.header + data
        self.generations[-1] += data
        with self.path.open("ab") as file:
            file.write(data)

    def rename(self, by_date: bool = False) -> None:
        """Rotate as logrotate's `create` does."""
        self.path.rename(self._rotated_name(by_date))
        self.path.touch()
        self.generations.append(b"")

    def copy_and_cut(self, by_date: bool = False) -> None:
        """Rotate as logrotate's `copytruncate` does."""
        shutil.copyfile(self.path, self._rotated_name(by_date))
        os.truncate(self.path, 0)
        self.generations.append(b"")

    def rename_upwards(self) -> None:
        """Rotate as libraries do whose first file is the oldest."""
        self.path.rename(self.path.with_name(f"{self.path.name}.{len(self.generations)}"))
        self.path.touch()
        self.generations.append(b"")
        for age, file in enumerate([self.path, *sorted(self.path.parent.glob("*.[0-9]"), reverse=True)]):
            os.utime(file, ns=(0, 10**18 - age * 10**9))  # the clock of a file system may be too coarse

    def poll(self) -> list[Event]:
        events = self.source.poll(timeout=0)
        assert events is not None
        self.events += events
        return events

    def start_again(self) -> None:
        self.source.close()
        self.source = FileSource(self.path, follow=True)
        if self.events:
            self.source.seek({str(self.path): json.loads(json.dumps(self.events[-1].resume))})

    def drain(self) -> None:
        while any(self.poll() for _ in range(20)):  # One poll may read no more than a few bytes.
            pass

    def expected(self) -> list[bytes]:
        """Return all lines, with partial ones at the end of old files; that of the newest may still be completed."""
        *old, last = [g.removeprefix(self.header) for g in self.generations if g] or [b""]
        pieces = [piece for generation in old for piece in generation.split(b"\n")]
        return [piece for piece in [*pieces, *last.split(b"\n")[:-1]] if piece]

    def _rotated_name(self, by_date: bool) -> Path:
        if by_date:
            self.days += 1
            return self.path.with_name(f"{self.path.name}-202601{self.days:02}")
        for number in range(len(self.generations), 0, -1):
            old = self.path.with_name(f"{self.path.name}.{number}")
            if old.exists():
                old.rename(self.path.with_name(f"{self.path.name}.{number + 1}"))
        return self.path.with_name(f"{self.path.name}.1")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 60)),
        st.tuples(st.sampled_from(["rename", "cut", "poll", "drain", "again"]), st.just(0)),
    ),
    max_size=30,
)


@max_examples(300)
@given(
    steps=STEPS, by_date=st.booleans(), header=st.sampled_from([b"", b"n,text\n"]), chunk=st.sampled_from([5, 1 << 18])
)
def test_every_line_is_read_once_and_in_order(
    steps: list[tuple[str, int]], by_date: bool, header: bytes, chunk: int
) -> None:
    lines = b"".join(b"%d,a %d\n" % (n, n) if header else b'{"n":%d}\n' % n for n in range(300))
    with TemporaryDirectory() as folder, chunks_of(chunk):
        log = Log(Path(folder), header)
        for step, size in steps:
            if step == "write":
                piece, lines = lines[:size], lines[size:]
                log.write(piece)
            elif step == "rename":
                log.rename(by_date)
            elif step == "cut":
                log.drain()  # Lines written to a file before it was first opened cannot be missed.
                log.copy_and_cut(by_date)
            elif step == "poll":
                log.poll()
            elif step == "drain":
                log.drain()
            elif log.events:
                log.start_again()
        log.drain()
        assert [event.raw for event in log.events] == log.expected()
        assert not [event.error for event in log.events if LOST in str(event.error)]
        log.start_again()
        if log.events:
            events = len(log.events)
            log.drain()
            assert len(log.events) == events
        log.source.close()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("rotate", [Log.rename, Log.copy_and_cut])
def test_an_incomplete_last_line_of_a_rotated_file_is_a_record(
    tmp_path: Path, rotate: Callable[[Log], None], again: bool
) -> None:
    log = Log(tmp_path)
    log.write(b'{"n": 1}\n{"n": 2}')
    log.drain()
    rotate(log)
    log.write(b'{"n": 3}\n')
    if again:
        log.start_again()
    log.drain()
    assert records(log.events) == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert [event.resume[:2] for event in log.events] == [[9, 1], [17, 2], [9, 1]]
    log.source.close()


def test_an_old_file_is_left_only_once_the_new_one_is_written_to(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(b'{"n": 1}\n')
    log.drain()
    log.rename()
    log.drain()
    with (tmp_path / "app.jsonl.1").open("ab") as writer:  # It has not been signalled yet to open the new one.
        writer.write(b'{"n": 2}\n')
    assert records(log.poll()) == [{"n": 2}]
    log.write(b'{"n": 3}\n')
    assert log.source.lag() == {(str(log.path), "0"): 9}
    log.drain()
    assert records(log.events)[2:] == [{"n": 3}]
    assert log.source.lag() == {(str(log.path), "0"): 0}
    log.source.close()


def test_a_file_that_is_deleted_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(b'{"n": 1}\n')
    log.drain()
    log.write(b'{"n": 2}\n')
    log.path.unlink()
    assert records(log.poll()) == [{"n": 2}]
    assert log.poll() == []
    write(log.path, b'{"n": 3}\n')
    log.drain()
    assert records(log.events) == [{"n": 1}, {"n": 2}, {"n": 3}]
    log.source.close()


@pytest.mark.parametrize("gone", ["deleted", "compressed", "cut", "missing"])
def test_lost_data_is_reported_once_and_the_new_file_is_read(tmp_path: Path, gone: str) -> None:
    log = Log(tmp_path)
    log.write(b'{"n": 1}\n{"n": 2}\n')
    log.drain()
    log.write(b'{"n": 3}\n')
    log.rename()
    old = tmp_path / "app.jsonl.1"
    if gone == "compressed":
        write(tmp_path / "app.jsonl.1.gz", old.read_bytes())
    if gone == "cut":
        os.truncate(old, 9)
    else:
        old.unlink()
    if gone == "missing":
        log.path.rename(tmp_path / "app.jsonl.2")
    else:
        log.write(b'{"n": 4}\n')
    log.start_again()
    (told,) = log.poll()
    assert told.error == f"Expected the rest of a file that was read up to byte 18, {LOST} - at {log.path}"
    log.start_again()
    if gone == "missing":
        assert log.poll() == []
        log.write(b'{"n": 4}\n')
    log.drain()
    assert records(log.events) == [{"n": 1}, {"n": 2}, None, {"n": 4}]
    log.source.close()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("size", [0, 9])
def test_a_file_that_is_cut_without_a_copy_is_read_from_its_start_and_reported(
    tmp_path: Path, size: int, again: bool
) -> None:
    log = Log(tmp_path)
    log.write(b'{"n": 1}\n{"n": 2}\n')
    log.drain()
    os.truncate(log.path, size)
    log.write(b'{"n": 3}\n' * 5)
    if again:
        log.start_again()
    log.drain()
    assert errors(log.events)[2:3] == [
        f"Expected the rest of a file that was read up to byte 18, {LOST} - at {log.path}"
    ]
    assert records(log.events)[3:] == [{"n": 1}] * (size // 9) + [{"n": 3}] * 5
    log.source.close()


def test_a_retracted_incomplete_line_is_not_a_rotation(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(b'{"n": 1}\n{"n": ')
    log.drain()
    os.truncate(log.path, 9)
    log.drain()
    log.write(b'{"n": 2}\n')
    log.drain()
    assert records(log.events) == [{"n": 1}, {"n": 2}]
    log.source.close()


def test_a_position_without_a_fingerprint_refers_to_the_current_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b'{"n": 1}\n{"n": 2}\n')
    for position in ([9, 1], [9, 1, "broken"]):
        source = FileSource(path, follow=True)
        source.seek({str(path): position})
        assert records(source.poll(timeout=0) or []) == [{"n": 2}]
        source.close()
    source = FileSource(path, follow=True)
    source.seek({str(path): [19, 3]})
    (told,) = source.poll(timeout=0) or []
    assert LOST in str(told.error)
    assert records(source.poll(timeout=0) or []) == [{"n": 1}, {"n": 2}]
    source.close()


def test_without_following_the_position_of_another_file_is_refused(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(b'{"n": 1}\n{"n": 2}\n')
    log.drain()
    log.source.close()
    positions = {str(log.path): log.events[0].resume}
    source = FileSource(log.path)
    source.seek(positions)
    assert records(source.poll(timeout=0) or []) == [{"n": 2}]
    source.close()
    log.rename()
    log.write(b'{"n": 3}\n' * 9)
    source = FileSource(log.path)
    with pytest.raises(ValueError, match=r"Expected the file that was followed, got another one"):
        source.seek(positions)
    source.close()


def test_a_header_without_names_in_a_later_file_makes_its_lines_unreadable(tmp_path: Path) -> None:
    log = Log(tmp_path, header=b"x,y\n")
    log.write(b"1,2\n")
    log.drain()
    log.rename()
    log.header = b""
    log.write(b"3,3\n4,4\n")
    log.drain()
    log.start_again()
    log.write(b"5,5\n")
    log.drain()
    assert [event.raw for event in log.events] == [b"1,2", b"3,3", b"4,4", b"5,5"]
    assert all("Expected distinct names of columns" in str(error) for error in errors(log.events)[1:])
    log.rename()
    log.write(b"x,y\n6,7\n")
    log.drain()
    assert log.events[-1].record == {"x": 6, "y": 7}
    log.source.close()


def test_the_first_file_must_be_there_or_have_been_rotated(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with pytest.raises(FileNotFoundError):
        FileSource(path, follow=True)
    write(tmp_path / "a.jsonl.1", b'{"n": 1}\n')
    source = FileSource(path, follow=True)
    assert source.poll(timeout=0.01) == []
    assert source.lag() == {(str(path), "0"): 0}
    write(path, b'{"n": 2}\n')
    assert records(source.poll(timeout=1) or []) == [{"n": 2}]
    source.close()


@pytest.mark.parametrize("position", [7, [7], [-1, 0], [7, 1, 2], [7, 1, "7-8"], [7, 1, "a-8-x"], [1, 2, 3, 4]])
def test_an_invalid_position_is_rejected(tmp_path: Path, position: Any) -> None:
    path = write(tmp_path / "a.jsonl", b'{"n": 1}\n')
    for follow in (False, True):
        source = FileSource(path, follow=follow)
        with pytest.raises(ValueError, match=r"Expected (a position \[offset, line|inode-size-digest)"):
            source.seek({str(path): position})
        source.close()


def test_rotated_files_are_distinguished_from_others_and_ordered(tmp_path: Path) -> None:
    names = ["a.log.10", "a.log.9", "a.log.1", "a.log-20260101", "a.log-20260102-17", "a.log.2026-02-03"]
    names += ["a.log.2026-02-03.2", "a.log.2026-02-03.10", "a.log.2026-03"]
    for name in [*names, "a.log", "a.log.1.gz", "a.log.bak", "b.log.1", "a.log.1x"]:
        write(tmp_path / name, b"")
    assert [file.name for file in rotated_files(tmp_path / "a.log")] == names


def test_a_fingerprint_finds_only_its_file_under_another_name(tmp_path: Path) -> None:
    data = bytes(range(256)) * 8
    path = write(tmp_path / "a.log", data)
    marks = {size: Fingerprint.of(path.stat().st_ino, data[:size]) for size in (0, 7, HEAD_BYTES)}
    path.rename(tmp_path / "a.log.old")
    write(path, b"other")
    for fingerprint in marks.values():
        assert find(path, fingerprint, 5) == tmp_path / "a.log.old"
        assert find(path, fingerprint, len(data) + 1) is None
    write(tmp_path / "a.log.old", b"x" * len(data))  # The same inode with other bytes is another file.
    write(tmp_path / "a.log.copy", data)
    assert find(path, marks[7], 5) == find(path, marks[HEAD_BYTES], 2000) == tmp_path / "a.log.copy"


@pytest.mark.parametrize("restarts", [False, True])
def test_rotated_files_may_be_numbered_upwards(tmp_path: Path, restarts: bool) -> None:
    log = Log(tmp_path)
    for number in range(7):
        log.write(b'{"n": %d}\n{"n": %d}\n' % (2 * number, 2 * number + 1))
        if number % 3 == 0:  # So several files are rotated between two looks, and none between others.
            log.drain()
            if restarts:
                log.start_again()
        log.rename_upwards()
    log.write(b'{"n": 14}\n')
    log.drain()
    assert records(log.events) == [{"n": n} for n in range(15)]
    log.source.close()


def exported(path: Path, rows: int, first: int = 0) -> None:
    """Write a file as exporters do that replace the old one with a complete one."""
    draft = path.with_suffix(".draft")
    draft.write_text("n,x\n" + "".join(f"{n},{first}\n" for n in range(rows)))
    draft.replace(path)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("name", ["export.csv", "*.csv"])
def test_a_file_that_is_replaced_by_a_longer_one_goes_on(tmp_path: Path, name: str, restarts: bool) -> None:
    path = tmp_path / "export.csv"
    found: list[Any] = []
    position: Any = None
    exported(path, 0)
    source = FileSource(tmp_path / name, follow=True)
    for rows in (50, 50, 51, 20_000, 20_050):
        exported(path, rows)
        if restarts and position is not None:
            source.close()
            source = FileSource(tmp_path / name, follow=True)
            source.seek({str(path): json.loads(json.dumps(position))})
        for _ in range(100):
            events = source.poll(timeout=0.02)
            assert events is not None
            found += records(events)
            position = events[-1].resume if events else position
            if len(found) >= rows:
                break
    assert source.poll(timeout=0.05) == []
    assert found == [{"n": n, "x": 0} for n in range(20_050)]
    source.close()


def test_a_file_that_is_replaced_by_another_one_is_read_from_its_start_alone_and_reported_in_a_pattern(
    tmp_path: Path,
) -> None:
    for name in ("export.csv", "*.csv"):
        path = tmp_path / "export.csv"
        exported(path, 3)
        source = FileSource(tmp_path / name, follow=True)
        assert len(source.poll(timeout=1) or ()) == 3
        exported(path, 4, first=1)
        events = [event for _ in range(8) for event in source.poll(timeout=0.05) or ()]
        if name == "*.csv":
            assert ["got another one" in str(error) for error in errors(events)] == [True]
        else:
            assert records(events) == [{"n": n, "x": 1} for n in range(4)]
        source.close()


def test_a_followed_pattern_must_not_match_rotated_files(tmp_path: Path) -> None:
    for name in ("app.jsonl", "app.jsonl.1"):
        write(tmp_path / name, b'{"a": 1}\n')
    with pytest.raises(ValueError, match=r"got app\.jsonl\.1 beside app\.jsonl - follow .*app\.jsonl alone"):
        FileSource(tmp_path / "app*", format="jsonl", follow=True)
    FileSource(tmp_path / "app*", format="jsonl").close()


def test_a_file_that_is_stale_on_its_server_is_found_under_its_new_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where NFS has no file behind the open one any more, neither reading nor asking for its size works."""
    path = write(tmp_path / "a.jsonl", b'{"x": 1}\n')
    source = FileSource(path, follow=True)
    assert records(source.poll(1.0) or []) == [{"x": 1}]

    opened = source._reader._reader.stream

    def stale(name: str) -> Callable[..., Any]:
        def call(self: FileBytes, *arguments: Any) -> Any:
            if self is opened:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            return original(self, *arguments)

        original = getattr(FileBytes, name)
        return call

    write(path, b'{"x": 1}\n{"x": 2}\n')
    path.rename(tmp_path / "a.jsonl.1")
    write(path, b'{"x": 3}\n')
    for name in ("_size", "read"):
        monkeypatch.setattr(FileBytes, name, stale(name))
    assert source.lag() == {}
    found = [event for _ in range(5) for event in source.poll(1.0) or []]
    assert (errors(found), records(found)) == ([None, None], [{"x": 2}, {"x": 3}])
    source.close()
