"""Rows of a table that are read together are those that are read one by one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from reading import check_every_resume, errors, records, write

from streamkernel.connectors import PartitionedFiles
from streamkernel.connectors.csv_cells import number, numbers
from streamkernel.connectors.csv_table import Csv, CsvOptions
from streamkernel.connectors.formats import CsvRow

CELLS = [
    "1", "0", "-0", "-0.0", "007", "-01", "+1", "1.", ".5", "1e3", "1E+3", "-1e-400", "1e400", "1_000", " 12", "12 ",
    "\t7", "nan", "NaN", "inf", "-inf", "Infinity", "true", "null", "True", "[1]", "{}", "[1", "2]", "x", "3 km", "٣",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9999999999999999999", "9" * 18, "9" * 19,
    "10000000000000000000", "18446744073709551615", "18446744073709551616", "9" * 30, "-" + "9" * 30, "0.1", "5.0",
    "2.2250738585072014e-308", "5e-324", "1.7976931348623157e308", "0.30000000000000004", "123456789012345678",
]  # fmt: skip


def same(found: object, expected: object) -> bool:
    return type(found) is type(expected) and repr(found) == repr(expected)


@pytest.mark.parametrize("cell", CELLS)
def test_a_column_has_the_values_of_its_cells(cell: str) -> None:
    for column in ([cell], ["1.5", cell], [cell, "2"], ["", cell, "3"], [cell, cell]):
        assert all(map(same, numbers(column), [number(text) if text else text for text in column])), column


def test_columns_of_any_cells_have_their_values() -> None:
    rng = random.Random(1)
    for _ in range(500):
        some = [*rng.choices(CELLS, k=3), *(repr(rng.gauss(0, 10.0 ** rng.randrange(-20, 20))) for _ in range(5))]
        column = rng.choices(some, k=rng.randrange(1, 9))
        assert all(map(same, numbers(column), map(number, column))), column


def test_rows_are_read_as_one_after_the_other() -> None:
    rng = random.Random(2)
    for _ in range(300):
        one, other = Csv(), Csv()
        for table in (one, other):
            table.parse(b"a,b,c")
        cells = [*rng.choices([*CELLS, ""], k=4), "1.5", "2"]
        rows = [",".join(rng.choices(cells, k=3)).encode() for _ in range(rng.randrange(1, 9))]
        found = other.parse_all(rows)
        assert found is not None
        assert repr(found) == repr([one.parse(row) for row in rows])


@pytest.mark.parametrize("row", [b"1,2", b"1,2,3,4", b'1,"2",3', b"1,2,3\r", b"1,\xff,3"])
def test_rows_are_not_read_together_if_one_needs_a_look(row: bytes) -> None:
    table = Csv()
    assert table.parse_all([b"a,b,c"]) is None
    table.parse(b"a,b,c")
    assert table.parse_all([b"1,2,3"]) == [{"a": 1, "b": 2, "c": 3}]
    assert table.parse_all([b"1,2,3", row]) is None


def test_positions_of_rows_are_those_of_one_after_the_other(tmp_path: Path) -> None:
    lines = [f"{i},{i / 8}" for i in range(40)]
    lines[7], lines[9], lines[20] = "1,2,3", "", '5,"6"'
    data = "\n".join(["a,b", *lines, *[""] * 700, "1,2", "3,"]).encode()
    events = check_every_resume(write(tmp_path / "rows.csv", data))
    assert len(events) == 41
    assert [error for error in errors(events) if error] == ["Expected 2 fields, got 3 - at line 9"]
    assert records(events)[-2:] == [{"a": 1, "b": 2}, {"a": 3}]
    assert events[-1].resume == [len(data), 743]


TABLES = {
    "row numbers": (",a,b\n0,1,x\n1,,\n2,3,0\nUlm,1,2\n", CsvOptions()),
    "an empty end": ("a,b,\n1,x,\n1,,\n2,3,0\n,,\n", CsvOptions()),
    "both": (",a,b,\n0,1,x,\n1,,,\n2,3,0,\n,,,\n", CsvOptions()),
    "decimal commas": ("a;b\n1;0,5\n-3;1.234,5\n1e3;x.y\n1,2;3,4\n1.2;", CsvOptions(";", ",")),
    "semicolons": ("a;b\n1;0.5\n-3;1,5\n1e3;x,y\n007;3\n;\n", CsvOptions(";")),
    "commas between and in numbers": ('a,b\n1,"0,5"\n-3,1.234\n1,2\n1.2,3', CsvOptions(",", ",")),
    "no header": ("1,x\n2,3\n", CsvOptions(columns=("a", "b"))),
    "latin-1": ("\xe4,b\n1,\xf6\n2,3\n", CsvOptions(encoding="latin-1")),
    "UTF-16": ('\xe4,b\n1,"\xf6\n\u0a0a"\n2,\U0001f600\n', CsvOptions(encoding="utf-16")),
    "GB18030": ("a|b\n1|\xe4\u4e2d\n2|3\n", CsvOptions("|", encoding="gb18030")),
}


@pytest.mark.parametrize("table", TABLES)
def test_tables_of_other_programs_are_read_alone_together_and_after_any_row(tmp_path: Path, table: str) -> None:
    text, options = TABLES[table]
    path = write(tmp_path / "rows.csv", text.encode(options.encoding))
    events = check_every_resume(path, csv=options)
    header, *rows = [b""] if options.is_rewritten else text.encode(options.encoding).split(b"\n")
    if not options.columns and header:
        one, other = Csv(options), Csv(options)
        assert one.parse(header) is other.parse(header) is None
        for row in filter(None, rows):
            together = other.parse_all([row, row])
            assert together is None or repr(together) == repr([one.parse(row)] * 2)
    source = PartitionedFiles(path, csv=options)
    positions: dict[str, Any] = {}
    found = []
    while (assignments := source.plan(positions, workers=1, events=1)) is not None:
        for some in source.read(assignments[0]):
            positions |= {event.stream: event.resume for event in some}
            found += [event for event in some if not event.is_position_only]
    source.close()
    assert repr(records(found)) == repr(records(events))


def test_rows_of_topics_have_the_same_options() -> None:
    assert CsvRow(["a", "b"], CsvOptions(";", ","))("\ufeff0,5;ä".encode()) == {"a": 0.5, "b": "ä"}
    assert CsvRow(["a", "b"], CsvOptions(encoding="utf-16"))("1,ä\n".encode("utf-16")) == {"a": 1, "b": "ä"}
