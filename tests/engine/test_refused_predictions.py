"""A prediction that its sink refuses costs one dead letter with its place; all others are written."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from streamkernel.cli import app
from streamkernel.connectors.registry import TABLES

HEAD = 'label = "y"\n[source]\npath = "events.jsonl"\n'
TAIL = """
[model]
type = "KernelClassifier"
learner = "dsg"
max_features = 8
[state]
directory = "state"
"""
BAD = 17
"""Number of the event whose label the sinks refuse."""


def run(folder: Path, sink: str, *, n: int = 40, bad: Any = "bad", status: int = 0, state: bool = True) -> str:
    """Run the command over events, the label of one of which is bad; return what it says."""
    events = [{"a": i % 7, "y": bad if i == BAD else f"class {i % 2}"} for i in range(n)]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    tail = TAIL if state else TAIL[: TAIL.index("[state]")]
    (folder / "run.toml").write_text(f"{HEAD}[sink]\ndead_letters = 'dead.jsonl'\n[sink.predictions.{sink}\n{tail}")
    answer = CliRunner().invoke(app, ["run", str(folder / "run.toml")])
    assert answer.exit_code == status, answer.output
    return answer.output


def dead_letters(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "dead.jsonl").read_text().splitlines()]


@pytest.fixture
def hook() -> Iterator[HTTPServer]:
    """A service that answers with a status to a request with a bad label, and keeps the records of the others."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            rows = json.loads(self.rfile.read(int(self.headers["content-length"])))
            is_bad = server.refuses(rows)
            server.lengths.append(len(rows))
            server.rows += [] if is_bad else rows
            self.send_response(server.status if is_bad else 204)
            self.end_headers()
            if is_bad:
                self.wfile.write(
                    b'{"error": "no label \n of mine", "sent": "%s"}' % self.headers["authorization"].encode()
                )

        def log_message(self, *words: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.rows, server.lengths, server.status = [], [], 422
    server.refuses = lambda rows: any(row["label"] == "bad" for row in rows)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def webhook(hook: HTTPServer, more: str = "") -> str:
    return f'webhook]\nurl = "http://127.0.0.1:{hook.server_port}/p"\ntoken = "s3cret"\n{more}'


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("state", [True, False])
def test_a_webhook_refuses_one_record(tmp_path: Path, hook: HTTPServer, status: int, size: int, *, state: bool) -> None:
    hook.status = status
    said = run(tmp_path, webhook(hook, f"batch_size = {size}\n"), state=state)
    assert "s3cret" not in said
    places = [tuple(row["position"]) for row in hook.rows]
    assert len(places) == len(set(places)) == 39  # each once
    [letter] = dead_letters(tmp_path)
    assert (letter["kind"], letter["raw"], letter["position"][1]) == ("output", "", BAD + 1)
    assert f'got the status {status} and \'{{"error": "no label of mine", "sent": "Bearer ***"}}\'' in letter["reason"]
    assert len(hook.lengths) <= 40 / size + 25  # one of a hundred is found by halves


def test_a_service_that_refuses_all_is_waited_for(tmp_path: Path, hook: HTTPServer) -> None:
    requests = []

    def refuses(rows: list[Any]) -> bool:  # until 102 requests for one record
        requests.append(rows)
        return sum(len(rows) == 1 for rows in requests) < 102

    hook.refuses = refuses
    run(tmp_path, webhook(hook), n=300, bad="good")
    letters = dead_letters(tmp_path)
    assert {letter["kind"] for letter in letters} == {"output"}
    assert len(letters) == 100  # the next ones were kept
    there = {row["position"][1] for row in hook.rows}
    assert len(hook.rows) == len(there) == 200
    assert there | {letter["position"][1] for letter in letters} == set(range(1, 301))


def test_a_service_that_refuses_all_for_too_long_ends_the_run(tmp_path: Path, hook: HTTPServer) -> None:
    hook.refuses = lambda rows: True
    said = run(tmp_path, webhook(hook, "give_up_after = 0.0\n"), n=300, bad="good", status=2)
    assert re.search(r"it refuses every record, the last 100 in a row: .* the status 422 .*give_up_after", said)
    assert len(dead_letters(tmp_path)) == 100
    assert hook.rows == []


@pytest.mark.parametrize("status", [401, 403, 404, 405, 429, 500])
def test_other_statuses_are_outages(tmp_path: Path, hook: HTTPServer, status: int) -> None:
    hook.status = status
    said = run(tmp_path, webhook(hook, "give_up_after = 0.0\n"), status=2)
    assert f"got the status {status} and" in said
    assert dead_letters(tmp_path) == []


def test_a_run_without_a_state_waits_for_the_service_at_its_end(tmp_path: Path, hook: HTTPServer) -> None:
    hook.status, hook.refuses = 503, lambda rows: not hook.lengths
    run(tmp_path, webhook(hook), state=False)
    assert (hook.lengths, len(hook.rows)) == ([40, 40], 40)


SINK = """
import builtins
from pathlib import Path


class Picky:
    guarantee = "at_least_once"

    def __init__(self, path: Path, error: str, all_of_them: bool = False):
        self.file, self.error, self.all = open(path, "a"), getattr(builtins, error), all_of_them

    def open(self):
        pass

    def write(self, record, key=None):
        if self.all or record["label"] == "bad":
            raise self.error("no label of mine")
        self.file.write(f"{record['position'][1]}\\n")

    def flush(self):
        self.file.flush()

    def seek(self, position):
        pass

    def close(self):
        self.file.close()
"""


@pytest.fixture
def picky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "picky_sink.py").write_text(SINK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(TABLES["streamkernel.sinks"], "picky", "picky_sink:Picky")
    yield tmp_path
    sys.modules.pop("picky_sink", None)


@pytest.mark.parametrize("error", ["ValueError", "TypeError", "KeyError", "OverflowError"])
def test_a_sink_of_ones_own_refuses_one_record_by_an_error_of_values(picky: Path, error: str) -> None:
    run(picky, f'picky]\npath = "there.txt"\nerror = "{error}"\n')
    there = list(map(int, (picky / "there.txt").read_text().split()))
    assert there == [i + 1 for i in range(40) if i != BAD]
    [letter] = dead_letters(picky)
    assert (letter["kind"], letter["position"][1]) == ("output", BAD + 1)
    assert letter["reason"].startswith(f"{error}: ")
    shown = CliRunner().invoke(app, ["redrive", str(picky / "run.toml"), "--dry-run"])
    assert "1  stay: its record was learned; only its prediction is missing" in shown.stdout


def test_another_error_of_a_sink_ends_the_run_and_a_restart_repeats(picky: Path) -> None:
    assert "no label of mine" in run(picky, 'picky]\npath = "there.txt"\nerror = "RuntimeError"\n', status=2)
    assert dead_letters(picky) == []
    (picky / "picky_sink.py").write_text(SINK.replace('record["label"] == "bad"', "False"))
    sys.modules.pop("picky_sink")
    run(picky, 'picky]\npath = "there.txt"\nerror = "RuntimeError"\n')
    assert set(map(int, (picky / "there.txt").read_text().split())) == set(range(1, 41))


def test_a_sink_that_refuses_every_prediction_is_an_error_at_the_end(picky: Path) -> None:
    said = run(picky, 'picky]\npath = "there.txt"\nerror = "TypeError"\nall_of_them = true\n', status=1)
    assert (
        "the sink refused every prediction so far, 40 in all; the last one: TypeError: no label of mine"
        in said.replace("\n", " ")
    )


def test_labels_of_several_types_are_one_column_of_a_parquet_file(tmp_path: Path) -> None:
    run(tmp_path, 'parquet]\ndirectory = "predictions"\n', bad=1)
    rows = parquet.read_table(tmp_path / "predictions").to_pylist()
    expected = [1 if i == BAD else f"class {i % 2}" for i in range(40)]
    assert [json.loads(row["label"]) for row in rows] == expected
    assert not dead_letters(tmp_path)
