"""Runs on Parquet and JSON lines whose fields are nested, are times or decimals, or cannot be used."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_tables_in_files import command, config_of, lines_of

N = 40
_RNG = random.Random(1)
A = [round(_RNG.gauss(0, 1), 2) for _ in range(N)]
Y = ["np"[a > 0] for a in A]
DAYS = [dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=i) for i in range(N)]


def run(folder: Path, name: str, source: str = "", more: str = "") -> list[Any]:
    assert command("run", config_of(folder, name, source, more=more)).exit_code == 0
    names = ("label", "prediction", "probabilities")
    return [[line[name] for name in names] for line in lines_of(folder / "predictions.jsonl")]


def test_parquet_is_learned_as_json_lines_of_the_same_values(tmp_path: Path) -> None:
    every_third = [None if i % 3 else i for i in range(N)]
    columns = {
        "price": pa.array([Decimal(f"{a:.2f}") for a in A], pa.decimal128(10, 2)),
        "at": pa.array(DAYS, pa.timestamp("ns", "Europe/Berlin")),
        "user": pa.array([{"age": i, "home": {"town": "Ulm"}, "born": DAYS[0].date()} for i in range(N)]),
        "sizes": pa.array([[a, 1.0] for a in A]),
        "counts": pa.array([[("k", a)] for a in A], pa.map_(pa.string(), pa.float64())),
        "kind": pa.array(["xyz"[i % 3] for i in range(N)]).dictionary_encode(),
        "gap": pa.array([math.nan if i is None else i for i in every_third]),
        "photo": pa.array([b"\xff"] * N),
        "y": pa.array(Y).dictionary_encode(),
    }
    born = dt.datetime(2024, 1, 1, tzinfo=dt.UTC).timestamp()
    same = [
        {
            "price": A[i],
            "at": DAYS[i].timestamp(),
            "user": {"age": i, "home": {"town": "Ulm"}, "born": born},
            "sizes": [A[i], 1.0],
            "counts": {"k": A[i]},
            "kind": "xyz"[i % 3],
            "gap": every_third[i],
            "y": Y[i],
        }
        for i in range(N)
    ]
    pq.write_table(pa.table(columns), tmp_path / "e.parquet")
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(record) + "\n" for record in same))
    found = run(tmp_path, "e.parquet", "max_list_length = 2", 'ignore = ["photo"]')
    assert len(found) == N
    (tmp_path / "predictions.jsonl").unlink()
    assert run(tmp_path, "e.jsonl", "max_list_length = 2") == found
    assert lines_of(tmp_path / "dead.jsonl") == []


@pytest.mark.parametrize(
    ("column", "kind", "got", "advice"),
    [
        ([b"x"] * N, pa.binary(), "bytes b'x'", 'to leave it out, declare [fields] z = "ignore"'),
        ([[1, 2]] * N, pa.list_(pa.int64()), "list [1, 2]", 'to take it, declare [fields] z = "vector"'),
    ],
)
def test_a_column_that_refuses_most_records_is_found_by_a_check(
    tmp_path: Path, column: list[Any], kind: pa.DataType, got: str, advice: str
) -> None:
    path = tmp_path / "e.parquet"
    for n_refused in (N, N // 2, 1):
        values = [None] * (N - n_refused) + column[:n_refused]
        pq.write_table(pa.table({"a": A, "z": pa.array(values, kind), "y": Y}), path)
        result = command("run", "--check", config_of(tmp_path, "e.parquet"))
        assert result.exit_code == (2 if n_refused > N / 2 else 0)
        assert f'): Expected a number or a string, got {got} - at field "z"; {advice}\n' in result.output
        assert f"{n_refused} of the first {N} records (" in result.output
        assert command("run", "--check", config_of(tmp_path, "e.parquet", more='ignore = ["z"]')).exit_code == 0


def test_a_dead_letter_shows_infinity(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1.0, math.inf], "y": ["n", "p"]}), tmp_path / "e.parquet")
    run(tmp_path, "e.parquet")
    (dead,) = lines_of(tmp_path / "dead.jsonl")
    assert dead["reason"] == 'Expected a finite number, got inf - at field "a"'
    assert json.loads(dead["raw"]) == {"a": math.inf, "y": "p"}


def test_python_json_with_infinity_names_the_field(tmp_path: Path) -> None:
    lines = [
        json.dumps({"a": a, "b": math.inf if i == 3 else 1.0, "y": y})
        for i, (a, y) in enumerate(zip(A, Y, strict=True))
    ]
    (tmp_path / "e.jsonl").write_text("\ufeff" + "\n".join(lines))
    assert len(run(tmp_path, "e.jsonl")) == N - 1
    (dead,) = lines_of(tmp_path / "dead.jsonl")
    assert dead["reason"] == 'Expected a finite number, got inf - at field "b"'
