"""Sources and sinks that a table names: of other packages, Parquet files, and a webhook."""

from __future__ import annotations

import json
import re
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from streamkernel.cli import app
from streamkernel.connectors.base import GaveUpError, UnavailableError
from streamkernel.connectors.files.sinks import ParquetSink
from streamkernel.connectors.http.webhook import WebhookSink
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import ConfigError, load_config

PAGE = (Path(__file__).parents[2] / "docs" / "how_to" / "sources_and_sinks.md").read_text()
BLOCKS = dict(re.findall(r'```(?:toml|python) title="([\w.]+)"\n(.*?)```', PAGE, re.DOTALL))
SMALL = ('type = "KernelClassifier"', 'type = "KernelClassifier"\nlearner = "dsg"\nmax_features = 8')


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with events and the package of the page, installed as pip does."""
    for name in ("parquet.toml", "webhook.toml", "counting.toml", "counting.py"):
        (tmp_path / name).write_text(BLOCKS[name].replace(*SMALL).replace("1000", "40"))
    (tmp_path / "events.csv").write_text("a,y\n" + "".join(f"{i % 7},{i % 2}\n" for i in range(40)))
    groups = tomllib.loads(BLOCKS["pyproject.toml"])["project"]["entry-points"]
    lines = [
        line for group, names in groups.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in names.items()))
    ]
    info = tmp_path / "counting-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("WEBHOOK_TOKEN", "s3cret-token")
    yield tmp_path
    sys.modules.pop("counting", None)


@pytest.fixture
def hook() -> Iterator[HTTPServer]:
    """A server that keeps what it gets, and refuses the first request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            server.requests.append((self.headers["authorization"], json.loads(body)))
            self.send_response(server.answers.pop(0) if server.answers else 204)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.requests, server.answers = [], [503]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def with_webhook(folder: Path, hook: HTTPServer, batch_size: str = "batch_size = 100") -> Path:
    """Return the configuration of the page with the address of the server."""
    path, address = folder / "webhook.toml", f"http://127.0.0.1:{hook.server_port}"
    text = path.read_text().replace("https://alerts.example", address)
    path.write_text(text.replace("batch_size = 100", batch_size))
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load_config(path).check()
    return list(error.value.problems)


def test_the_source_of_another_package_is_learned_and_continued(folder: Path) -> None:
    path = folder / "counting.toml"
    for end in (40, 60):
        path.write_text(re.sub(r"end = \d+", f"end = {end}", path.read_text()))
        engine = engine_of(load_config(path))
        engine.run()
        assert engine.outcomes["learned"] == end


def test_a_name_that_is_not_installed_is_refused_with_those_that_are(folder: Path) -> None:
    path = folder / "counting.toml"
    text = path.read_text()
    path.write_text(text.replace("source.counting", "source.countin"))
    assert problems(path) == [
        'source.countin: expected the name of an installed source, one of "counting", "nats", got "countin"; '
        'did you mean "counting"?'
    ]
    path.write_text(text.replace("end =", "ende ="))
    assert 'source.counting.ende: unknown key; did you mean "end"?' in problems(path)
    path.write_text(text.replace("end = 40", 'end = "many"'))
    assert problems(path) == ['source.counting.end: expected an integer, got "many"']
    path.write_text(text.replace("[source.counting]", "[source]\nfollow = true\n[source.counting]"))
    assert problems(path) == ["source: expected no keys beside the table counting, got follow"]
    path.write_text((folder / "webhook.toml").read_text().replace("predictions.webhook", "predictions.webhok"))
    assert problems(path) == [
        'sink.predictions.webhok: expected the name of an installed sink, one of "nats", "parquet", "webhook", got '
        '"webhok"; did you mean "webhook"?'
    ]


def test_a_package_that_is_broken_is_named(folder: Path) -> None:
    (folder / "counting.py").write_text("import no_such_module")
    assert problems(folder / "counting.toml") == ["source.counting: No module named 'no_such_module'"]


def test_check_says_what_is_at_least_once(folder: Path) -> None:
    (folder / "counting.py").write_text(
        BLOCKS["counting.py"].replace("    def __init__", '    guarantee = "at_least_once"\n\n    def __init__')
    )
    for name, notes in (
        ("parquet", []),
        ("webhook", ["sink.predictions.webhook is at least once: after a crash, predictions since the last checkpoint "
                     "are written again"]),
        ("counting", ["records are not sampled, because only files and data sets can be read twice",
                      "source.counting is at least once: after a crash, events since the last checkpoint are learned "
                      "again"]),
    ):  # fmt: skip
        answer = CliRunner().invoke(app, ["run", "--check", str(folder / f"{name}.toml")])
        assert answer.exit_code == 0, answer.output
        said = [line for line in answer.stdout.splitlines() if line.startswith("note: ")]
        assert said == [f"note: {note}" for note in notes]
    assert not (folder / "state").exists()


def test_predictions_are_in_parquet_files_once(folder: Path) -> None:
    path = folder / "parquet.toml"
    engine_of(load_config(path)).run()
    first = parquet.read_table(folder / "predictions").to_pylist()
    assert len(first) == 40
    sink = ParquetSink(folder / "predictions")  # as if a run had been killed after a file and before its checkpoint
    sink.write({"prediction": 1})
    sink.close()
    (folder / "events.csv").write_text((folder / "events.csv").read_text() + "1,1\n2,0\n")
    engine_of(load_config(path)).run()
    rows = parquet.read_table(folder / "predictions").to_pylist()
    assert rows[:40] == first
    assert len(rows) == 42


def test_a_parquet_file_has_one_type_in_each_field(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path)
    sink.write({"a": 1, "b": [1, 2], "c": float("nan")})
    sink.write({"a": 2, "d": "late"})
    assert sink.flush() == 1
    assert parquet.read_table(tmp_path).to_pylist() == [
        {"a": 1, "b": "[1,2]", "c": None, "d": None},
        {"a": 2, "b": None, "c": None, "d": "late"},
    ]
    with pytest.raises(ValueError, match="Expected 9 files, got 1"):
        ParquetSink(tmp_path).seek(9)


def test_a_webhook_gets_every_prediction_with_the_token(folder: Path, hook: HTTPServer) -> None:
    config = load_config(with_webhook(folder, hook))
    assert "s3cret-token" not in str(config.without_secrets())
    engine_of(config).run()
    refused, sent = hook.requests[0], hook.requests[1:]
    assert refused in sent  # it was repeated
    assert {token for token, _ in sent} == {"Bearer s3cret-token"}
    assert [len(rows) for _, rows in sent] == [40]


def test_a_webhook_that_fails_is_waited_for(folder: Path, hook: HTTPServer) -> None:
    hook.answers = [204, 503, 500, 204]
    engine = engine_of(load_config(with_webhook(folder, hook, "batch_size = 10")))
    engine.run()
    rows = [[str(row["position"]) for row in rows] for _, rows in hook.requests]
    assert rows[1] == rows[2] == rows[3]
    assert len(rows) == 6
    assert len({place for of in rows for place in of}) == 40
    assert engine.parts.health.incidents["unreachable"] == 1  # one of them came back at once


def test_a_run_can_be_stopped_while_a_webhook_fails_and_continues(folder: Path, hook: HTTPServer) -> None:
    hook.answers = [204] + [503] * 100
    path = with_webhook(folder, hook, "batch_size = 10")
    with pytest.raises(
        OSError, match="stopped while the sink was unavailable; what was not written is processed again"
    ):
        engine_of(load_config(path)).run(stopping=lambda: len(hook.requests) >= 2)
    hook.answers = []
    engine = engine_of(load_config(path))
    engine.run()
    assert engine.outcomes["learned"] == 40
    assert len({str(row["position"]) for _, rows in hook.requests for row in rows}) == 40


def test_a_webhook_that_fails_ends_with_an_error_without_its_query(hook: HTTPServer) -> None:
    hook.answers = [500] * 100
    sink = WebhookSink(f"http://127.0.0.1:{hook.server_port}/x?key=s3cret", give_up_after=0.0)
    sink.write({"prediction": 1})
    with pytest.raises(
        OSError, match=r"got the status 500 - from http://127.0.0.1:\d+/x, for 0 s \(give_up_after\)$"
    ) as end:
        sink.flush()
    assert isinstance(end.value, GaveUpError)
    assert not isinstance(end.value, UnavailableError)  # the engine does not wait for it
    with pytest.raises(ValueError, match="without a login"):
        WebhookSink("https://user:s3cret@host/")


@pytest.mark.parametrize(
    "url", ["https://host/a b", "https://höst/", "https://host/\n", "https://host:port/", "ftp://host/"]
)
def test_an_address_or_a_token_that_no_request_can_have_is_refused_at_the_start(url: str) -> None:
    """Each prediction would fail otherwise."""
    with pytest.raises(ValueError, match="Expected a url"):
        WebhookSink(url)
    for token in ("s3cret\n", "s3crét", "two words"):
        with pytest.raises(ValueError, match="Expected a token of printable ASCII") as error:
            WebhookSink("https://host/", token)
        assert "s3cr" not in str(error.value)
