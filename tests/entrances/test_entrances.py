"""Each stream of the table loses the same records wherever it arrives, and is predicted alike.

Lines of JSON are the measure; CSV, Parquet, topics with both clients, HTTP and the estimators in Python are compared.
"""

from __future__ import annotations

import csv
import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import brokers
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from entrance_cases import CASES, Case, N, Row
from served import server
from waiting import wait_for

from streamkernel import Fields, InputError, KernelClassifier
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import load_config

Result = tuple[set[int], list[dict[str, float]]]
"""Numbers of the refused records, and the probabilities of the others in order."""

CONFIG = """
label = "y"
ignore = {ignore}
missing = {missing}
[fields]
{fields}
[source]
{source}
[model]
type = "KernelClassifier"
learner = "dsg"
max_features = 64
[sink]
predictions = "predictions.jsonl"
[state]
directory = "state"
"""


def configured(folder: Path, case: Case, source: str, tables: str = "") -> Path:
    """Write the configuration of a run of a stream and return its path."""
    fields = "\n".join(f"{name} = {json.dumps(kind)}" for name, kind in case.fields.items())
    ignore, missing = json.dumps(["id", *case.ignore]), json.dumps(case.missing)
    path = folder / "run.toml"
    path.write_text(CONFIG.format(ignore=ignore, missing=missing, fields=fields, source=source) + tables)
    return path


def result(folder: Path) -> Result:
    """Return what a run in `folder` refused and predicted; the first number of a record is its own."""
    path = folder / "state" / "dead_letters.jsonl"
    letters = [json.loads(line)["raw"] for line in path.read_text().splitlines()] if path.exists() else []
    refused = [int(re.findall(r"\d+", letter)[0]) for letter in letters]
    assert len(refused) == len(set(refused))
    lines = (folder / "predictions.jsonl").read_text().splitlines()
    return set(refused), [json.loads(line)["probabilities"] for line in lines]


def run(folder: Path, case: Case, source: str, tables: str = "") -> Result:
    """Run a configuration in this process."""
    engine_of(load_config(configured(folder, case, source, tables))).run()
    return result(folder)


def has_two_types(values: list[Any]) -> bool:
    """Return whether there are texts and numbers."""
    return len({isinstance(value, str) for value in values if value is not None}) == 2


def columns(rows: list[Row]) -> list[str]:
    """Return the names of all fields."""
    return list(dict.fromkeys(name for row in rows for name in row))


def json_lines(folder: Path, case: Case) -> Result:
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in case.rows))
    return run(folder, case, 'path = "events.jsonl"')


def flat(row: Row) -> Row:
    """Return a row of CSV, in which fields of objects are columns."""
    cells: Row = {}
    for name, value in row.items():
        inside = flat(value) if isinstance(value, dict) else None
        cells |= {name: value} if inside is None else {f"{name}.{path}": cell for path, cell in inside.items()}
    return cells


def csv_file(folder: Path, case: Case) -> Result:
    rows = list(map(flat, case.rows))
    with (folder / "events.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns(rows))
        writer.writeheader()
        writer.writerows(rows)
    return run(folder, case, 'path = "events.csv"')


def parquet_file(folder: Path, case: Case) -> Result:
    """A column of Parquet has one type: where values have two, or more than 64 bits, all are texts."""
    table = {name: [row.get(name) for row in case.rows] for name in columns(case.rows)}
    for name, values in table.items():
        if has_two_types(values) or any(type(value) is int and value >= 1 << 64 for value in values):
            table[name] = [None if value is None else str(value) for value in values]
    pq.write_table(pa.table(table), folder / "events.parquet")
    return run(folder, case, 'path = "events.parquet"')


def topic(folder: Path, case: Case, servers: str, client: str) -> Result:
    name = uuid.uuid4().hex
    brokers.make_topics(servers, names=[name])
    brokers.produce(servers, name, case.rows)
    tables = f'[kafka]\nservers = "{servers}"\ngroup = "{name}"\nclient = "{client}"\n'
    return run(folder, case, f'topics = ["{name}"]\nuntil = "latest"', tables)


def http(folder: Path, case: Case) -> Result:
    """Return what a run learns over HTTP, which refuses in their place the records that it cannot store."""
    config = configured(folder, case, 'http = "requests"', "[http]\nport = 0\n")
    with server("run", config, log=folder / "log") as process:
        answer = wait_for(lambda: stored(process.ask("POST", "/learn", {"events": case.rows})))
        places = [i for i, one in enumerate(answer["results"]) if "error" in one]
        last = answer["results"][-1]["position"][0]
        position = re.compile(r'^streamkernel_source_position{stream="http"} (\S+)$', re.MULTILINE)
        wait_for(lambda: float((position.findall(process.ask("GET", "/metrics")[2]) or [-1])[0]) >= last)
    refused, probabilities = result(folder)
    return refused | {case.rows[i]["id"] for i in places}, probabilities


def stored(answer: tuple[int, dict[str, str], Any]) -> Any:
    """Return the body of an answer, or nothing while the run starts."""
    status, _, body = answer
    assert status in (202, 503), body
    return body if status == 202 else None


def pipeline(case: Case) -> Any:
    """Return the estimator behind the types of a stream."""
    types = dict.fromkeys(["id", *case.ignore], "ignore") | case.fields
    return Fields(types, missing=case.missing) | KernelClassifier(learner="dsg", max_features=64)


def learn_one(case: Case) -> tuple[set[int], Any]:
    model, refused = pipeline(case), set()
    for row in case.rows:
        x = {name: value for name, value in row.items() if name != "y"}
        try:
            model.learn_one(x, row["y"])
        except InputError:
            refused.add(row["id"])
    return refused, model


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Result]:
    """The results of lines of JSON, once for each stream."""
    results: dict[str, Result] = {}

    def of(case: Case) -> Result:
        if case.name not in results:
            results[case.name] = json_lines(tmp_path_factory.mktemp("json"), case)
        return results[case.name]

    return of


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with brokers.noida(tmp_path_factory.mktemp("broker")) as broker:
        yield f"127.0.0.1:{broker.port}"


named = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def check(result: Result, case: Case, expected: Callable[[Case], Result]) -> None:
    """Check what was refused, and that predictions are those of lines of JSON."""
    refused, probabilities = result
    assert refused == case.refused
    if case.is_alike:
        assert probabilities == expected(case)[1]
    assert len(probabilities) == N - len(refused)


@named
def test_lines_of_json(case, expected):
    refused, probabilities = expected(case)
    assert refused == case.refused
    assert len(probabilities) == N - len(refused)


@named
@pytest.mark.parametrize("entrance", [csv_file, parquet_file])
def test_files(tmp_path, entrance, case, expected):
    if entrance is parquet_file and any(has_two_types([row.get(n) for row in case.rows]) for n in columns(case.rows)):
        case = case._replace(is_alike=False)
    check(entrance(tmp_path, case), case, expected)


@named
@pytest.mark.parametrize("client", ["kafka-python", "confluent-kafka"])
def test_topics(tmp_path, client, case, servers, expected):
    check(topic(tmp_path, case, servers, client), case, expected)


@pytest.mark.slow
@named
def test_http(tmp_path, case, expected):
    check(http(tmp_path, case), case, expected)


@named
def test_estimators(case):
    """One call after the other, and one call with a table, which has no row that would be refused."""
    refused, model = learn_one(case)
    assert refused == case.refused_in_python
    rows = [row for row in case.rows if row["id"] not in refused]
    table = pipeline(case)
    table.learn_many(pd.DataFrame(rows, columns=columns(rows)).drop(columns="y"), pd.Series([row["y"] for row in rows]))
    x = {name: value for name, value in rows[-1].items() if name != "y"}
    assert table.predict_proba_one(x) == pytest.approx(model.predict_proba_one(x), abs=1e-6)
