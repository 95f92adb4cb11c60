"""A quote that leads nowhere costs the record that has it, and quoted cells may have lines."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import check_every_resume, chunks_of, errors, read_file, records, write

from streamkernel.connectors import FileSource, PartitionedFiles, record_splitters
from streamkernel.connectors.csv_table import CsvOptions
from streamkernel.connectors.formats import CsvRow
from streamkernel.connectors.record_splitters import QuotedCutter

ERROR = "Expected closing quotes, got none that end a cell"
STRAYS = [
    ['0.5,"Ulm,1'],
    ['0.5,"Ulm,1', '0.5,"Ulm,1', '0.5,"Ulm,1'],
    ['"0.5,Ulm,1'],
    ['0.5,Ulm,"1'],
    ['0.5,"Ulm,1', "0.5,,1"],
]


def table(rows: list[str], end: str = "\n") -> bytes:
    return end.join(["a,town,y", *rows, ""]).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("others", ["0.5,Ulm,1", '0.5,"Ulm, old",1', '"0.5","Ulm","1"', '0.5,5" pipe,1', '0.5,"",1'])
@pytest.mark.parametrize("strays", STRAYS, ids=str)
def test_a_stray_quote_costs_its_record(tmp_path: Path, strays: list[str], others: str, end: str) -> None:
    path = write(tmp_path / "a.csv", table([*[others] * 20, *strays, *[others] * 20], end))
    events = check_every_resume(path)
    assert [event.raw.decode().removesuffix("\r") for event in events] == [*[others] * 20, *strays, *[others] * 20]
    assert [event.error for event in events if event.error] == [
        f"{ERROR} - at line {22 + i}" for i, stray in enumerate(strays) if '"' in stray
    ]
    for chunk in (1, 7, 100):
        with chunks_of(chunk):
            assert read_file(path) == events


def test_a_stray_quote_costs_its_record_where_a_later_one_would_close_it(tmp_path: Path) -> None:
    rows = [f"{i},Ulm,1" for i in range(30)]
    rows[5], rows[25] = '5,"Ulm,1', '25,Ulm",1'
    events = check_every_resume(write(tmp_path / "a.csv", table(rows)))
    assert [event.raw.decode() for event in events] == rows
    assert [event.raw for event in events if event.error] == [b'5,"Ulm,1']
    assert records(events)[25] == {"a": 25, "town": 'Ulm"', "y": 1}


def test_a_stray_quote_does_not_hold_up_a_file_that_grows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", table(['1,"Ulm,1', *["2,Ulm,1"] * 4]))
    source = FileSource(path, follow=True)
    events = source.poll(timeout=1)
    source.close()
    assert events is not None
    assert [event.raw for event in events] == [b'1,"Ulm,1', *[b"2,Ulm,1"] * 4]


def test_quotes_of_workers_are_those_of_one_reader(tmp_path: Path) -> None:
    rows = ['1,"Ulm,1', '2,"New\nUlm",1', *["3,Ulm,1"] * 9, '4,"Ulm,1']
    path = write(tmp_path / "a.csv", table(rows))
    source, positions, events = PartitionedFiles(path), {}, []
    while (assignments := source.plan(positions, workers=1, events=1)) is not None:
        for some in source.read(assignments[0]):
            positions |= {event.stream: event.resume for event in some}
            events += [event for event in some if not event.is_position_only]
    source.close()
    assert [event.raw.decode() for event in events] == rows
    assert errors(events) == errors(read_file(path))


WORDS = st.text(alphabet='ab"\n', max_size=12)
"""Texts with quotes and lines, and without commas, so that their lines are no rows."""


@given(
    rows=st.lists(st.tuples(st.integers(0, 99), WORDS, st.integers(0, 1)), max_size=20),
    place=st.integers(0, 20),
    later=st.integers(8, 12),
)
def test_rows_over_several_lines_are_those_of_the_csv_module(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str, int]], place: int, later: int
) -> None:
    """Also around a stray quote, in front of rows on one line."""
    written = []
    for row in rows:
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerow(row)
        written.append(file.getvalue().removesuffix("\n"))
    plain = ["7,Ulm,1"] * later
    lines = [*written[:place], '7,"Ulm,1', *plain, *written[place:]]
    path = write(tmp_path_factory.mktemp("rows") / "a.csv", table(lines))
    events = read_file(path)
    assert [event.raw.decode() for event in events] == lines
    wanted = [{"a": a, "y": y} | ({"town": town} if town else {}) for a, town, y in rows]
    other = {"a": 7, "town": "Ulm", "y": 1}
    assert records(events) == [*wanted[:place], None, *[other] * later, *wanted[place:]]


def test_a_long_text_over_many_lines_is_one_record(tmp_path: Path) -> None:
    text = "\n".join(["Dear Sir, or Madam", "we write, as you know, today,", "bye"] * 1000)
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([["id", "text"], [1, text], [2, text]])
    path = write(tmp_path / "a.csv", file.getvalue().encode())
    assert records(check_every_resume(path)) == [{"id": 1, "text": text}, {"id": 2, "text": text}]


@pytest.mark.parametrize("line", [b'x","z', b'0,"","z', b'1,"2', b'",', b'1,""",2', b'1," ,2'])
def test_work_per_line_is_bounded_whatever_the_quotes(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    look = record_splitters.quoted_line
    monkeypatch.setattr(record_splitters, "quoted_line", lambda *args, **more: calls.append(1) or look(*args, **more))
    cutter = QuotedCutter(1 << 20, widths=lambda: (3,))
    found = [*cutter.feed(b"\n".join([line] * 2000)), *cutter.end()]
    assert b"\n".join(found) == b"\n".join([line] * 2000)
    assert len(calls) < 40 * 2000


def test_quotes_of_a_row_in_a_topic_may_have_lines() -> None:
    row = CsvRow(["a", "b"], CsvOptions())
    lines = "\n".join(["x, y"] * 20)
    assert row(f'1,"{lines}"\n'.encode()) == {"a": 1, "b": lines}
    with pytest.raises(ValueError, match="Expected one row of CSV, got 2"):
        row(b"1,2\n3,4\n")
    with pytest.raises(ValueError, match=ERROR):
        row(b'1,"2\n3,4\n')
