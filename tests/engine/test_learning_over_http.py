"""Events that clients send to a run over HTTP are each learned once, after any kill and any repetition."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from served import ServerProcess
from states import named
from typer.testing import CliRunner
from waiting import LIMIT, wait_for

from streamkernel import Fields
from streamkernel.cli import app
from streamkernel.commands.state import newest_checkpoint
from streamkernel.connectors import HttpSource
from streamkernel.connectors.http import request_log, source
from streamkernel.connectors.http.request_log import KeyConflictError, Request, RequestLog, Stored
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import ConfigError, load_config
from streamkernel.engine.examples import Examples
from streamkernel.engine.http.predictions import question_in
from streamkernel.engine.http.server import events_in

CONFIG = """
label = "y"
[source]
{source}
[model]
type = "KernelClassifier"
max_features = 8
learner = "dsg"
[sink]
predictions = "predictions.jsonl"
[state]
directory = "state"
checkpoint_seconds = 0.1
[http]
port = 0
"""
DELAYED = '[delayed_labels]\nkey = "id"\n'
N = 150


def events(n: int = N) -> list[dict[str, Any]]:
    """Return examples, some with an invalid label."""
    return [{"a": i % 7 / 7, "b": {"c": i % 5 / 5}, "y": [] if i % 50 == 7 else i % 7 > 3} for i in range(n)]


def configuration(folder: Path, source: str, more: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    named(folder / "state")
    path = folder / "run.toml"
    path.write_text(CONFIG.format(source=source) + more)
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of results, without their position in the stream."""
    found = map(json.loads, path.read_text().splitlines())
    return [{name: value for name, value in line.items() if name not in ("stream", "position")} for line in found]


def test_a_killed_server_and_a_client_that_repeats(tmp_path: Path) -> None:
    config, sent = configuration(tmp_path / "http", 'http = "requests"'), threading.Semaphore(0)
    running = [ServerProcess(["run", config], tmp_path / "log")]

    def send_all() -> None:
        """Send each event until it is confirmed, and then once more."""
        for i, event in enumerate(events()):
            for _ in range(2):
                while True:
                    try:
                        answer = running[0].ask("POST", "/learn", {"event": event}, Idempotency_Key=f"event {i}")
                    except (OSError, http.client.HTTPException):
                        time.sleep(0.05)
                        continue
                    if answer[0] == 202:
                        break
                    assert answer[0] == 503
            sent.release()

    client = threading.Thread(target=send_all, daemon=True)
    client.start()
    for _ in range(N // 2):
        assert sent.acquire(timeout=LIMIT)
    running[0].process.kill()
    running[0].process.wait()
    running[0] = ServerProcess(["run", config], tmp_path / "log")
    client.join(LIMIT)
    position = running[0].ask("POST", "/learn", {"event": {"a": 1, "y": True}}, Idempotency_Key="last")[2]["position"]
    metric = 'streamkernel_source_position{stream="http"}'
    wait_for(lambda: running[0].metric(metric) == position)
    running[0].process.terminate()
    assert running[0].process.wait(LIMIT) == 0

    plain = tmp_path / "file"
    config = configuration(plain, 'path = "events.jsonl"')
    (plain / "events.jsonl").write_text("".join(f"{json.dumps(e)}\n" for e in [*events(), {"a": 1, "y": True}]))
    engine_of(load_config(config)).run()
    assert lines(tmp_path / "http" / "predictions.jsonl") == lines(plain / "predictions.jsonl")
    ours, theirs = (newest_checkpoint(folder / "state")["outcomes"] for folder in (tmp_path / "http", plain))
    assert ours == theirs
    assert ours["dead_letter"] == N // 50
    letters = lines(tmp_path / "http" / "state" / "dead_letters.jsonl")
    assert [json.loads(line["raw"]) for line in letters] == [event for event in events() if event["y"] == []]


@pytest.fixture(scope="module")
def run(tmp_path_factory: Any) -> Any:
    """A run with delayed labels that accepts events over HTTP."""
    folder = tmp_path_factory.mktemp("delayed")
    found = ServerProcess(["run", configuration(folder, 'http = "requests"', DELAYED)], folder / "log")
    yield found
    found.process.terminate()
    found.process.wait(LIMIT)


def test_a_label_by_its_key_comes_later(run: ServerProcess) -> None:
    wait_for(lambda: run.ask("POST", "/learn", {"events": [{"id": 1, "a": 0.5}, {"id": 2, "a": 0.7}]})[0] == 202)
    assert run.ask("POST", "/learn", {"event": {"id": 1, "y": True}})[0] == 202
    wait_for(lambda: run.metric('streamkernel_labels_total{outcome="joined"}') == 1.0)
    assert run.metric("streamkernel_pending_labels") == 1.0


@pytest.mark.parametrize(
    ("body", "key", "status", "text"),
    [
        ({}, "", 400, 'Expected a field "event" with an object, or "events" with an array of objects, got nothing'),
        ({"x": {"a": 1}}, "", 400, 'got "x"'),
        ({"event": {"a": 1}, "events": []}, "", 400, 'got "event", "events"'),
        ({"event": 5}, "", 400, "Expected an object, got a number - at event"),
        ({"event": {}}, "", 400, "Expected 1 to 4,096 fields, got 0 - at event"),
        ({"events": []}, "", 400, "Expected 1 to 1,000 events, got 0"),
        ({"events": [{}, []]}, "", 400, "Expected an event that can be stored, got none of 2"),
        ({"event": {"a.b": 1, "a": {"b": 2}}}, "", 400, 'got two - at field "a.b" - in event'),
        ([1], "", 400, "Expected a JSON object, got an array"),
        ({"event": {"a": 1}}, "k" * 256, 400, "Expected one Idempotency-Key of 1 to 255"),
        ({"event": {"a": 1}}, "same", 422, "Expected a new Idempotency-Key for other events"),
    ],
)
def test_invalid_events_are_refused(run: ServerProcess, body: Any, key: str, status: int, text: str) -> None:
    wait_for(lambda: run.ask("POST", "/learn", {"event": {"id": 0, "a": 0.5}}, Idempotency_Key="same")[0] == 202)
    headers = {"Idempotency_Key": key} if key else {}
    answer = run.ask("POST", "/learn", body, **headers)
    assert (answer[0], text in answer[2]["error"]) == (status, True), answer
    assert run.ask("POST", "/learn", body, content_type="text/plain")[0] == 415


def test_the_openapi_description_lists_the_statuses(run: ServerProcess) -> None:
    responses = run.ask("GET", "/openapi.json")[2]["paths"]["/learn"]["post"]["responses"]
    assert responses.keys() == {"202", "400", "403", "408", "413", "415", "422", "429", "503"}


def test_long_integers_keep_their_digits_where_these_count() -> None:
    record, kept = b'{"id":123456789012345678901,"a":123456789012345678901}', "123456789012345678901"
    text = b'{"id":"123456789012345678901","a":1.2345678901234568e+20}'
    assert events_in(b'{"event":%b}' % record, ["id"]) == [text]
    assert events_in(b'{"events":[%b,5,%b]}' % (record, record), ["id"])[::2] == [text] * 2
    assert question_in(b'{"x":%b}' % record, ["id"]) == {"id": kept, "a": 1.2345678901234568e20}
    assert question_in(b'{"x":[{"o":%b}]}' % record, ["o.id"]) == [{"o": {"id": kept, "a": 1.2345678901234568e20}}]
    assert question_in(b'{"x":%b}' % record)["id"] == 1.2345678901234568e20


def test_what_an_ignored_field_contains_refuses_no_event() -> None:
    examples = Examples("y", ["junk"], numeric_label=False, weight="w", fields=Fields({"id": "ignore"}))
    inside = b'{"a":1,"junk":{"b":Infinity},"id":-Infinity,"y":0}'
    assert events_in(b'{"event":%b}' % inside, (), examples.ignored) == [b'{"a":1,"junk":{"b":null},"id":null,"y":0}']
    for name in (b"a", b"w", b"y"):
        with pytest.raises(ValueError, match=f'got inf - at field "{name.decode()}" - in event'):
            events_in(b'{"event":{"a":1,"%b":Infinity}}' % name, (), examples.ignored)


def test_half_a_line_is_cut_off_and_keys_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "SEGMENT_BYTES", 100)
    monkeypatch.setattr(request_log, "_READ_BYTES", 7)
    requests = [Request(f"key {i}", orjson.dumps([{"a": i}, {"a": -i}])) for i in range(20)]
    log = RequestLog(tmp_path)
    log.open()
    stored = [log.append([request])[0] for request in requests]
    with pytest.raises(OSError, match="used by another process"):
        RequestLog(tmp_path).open()
    log.close()
    *_, last = sorted(tmp_path.glob("*.jsonl"))
    with last.open("ab") as file:
        file.write(b'{"key": "torn')
    log = RequestLog(tmp_path)
    log.open()
    assert log.end == stored[-1].position
    assert log.append(requests) == [one._replace(is_repeated=True) for one in stored]
    conflict, new = log.append([Request("key 3", b"[{}]"), Request(None, b"[{}]")])
    assert isinstance(conflict, KeyConflictError)
    assert (new.position, new.is_repeated) == (log.end, False)
    assert [orjson.loads(line)["key"] for line in log.read(stored[4].position)] == [
        *(request.key for request in requests[5:]), None,
    ]  # fmt: skip
    log.release(stored[10].position)
    assert log.bounds()[0] == 0  # the last 256 MiB stay
    monkeypatch.setattr(request_log, "RETAINED_BYTES", 0)
    log.release(stored[10].position)
    assert 0 < log.bounds()[0] <= stored[10].position
    log.close()


def test_a_missing_file_of_the_log_is_an_error_of_files(tmp_path: Path) -> None:
    log = RequestLog(tmp_path / "requests")
    log.open()
    log.append([Request("a", b"[{}]")])
    (tmp_path / "requests").rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError, match="expected a file with byte 0, found none"):
        list(log.read(0))
    log.close()


def test_events_that_cannot_be_stored_are_not_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RequestLog(tmp_path)
    log.open()
    log.append([Request("a", b"[{}]")])
    end, write = log.end, request_log.os.write

    def fill(file: int, content: Any) -> int:
        if len(content) > 20:
            return write(file, content[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(request_log.os, "write", fill)
    with pytest.raises(OSError, match="No space"):
        log.append([Request("b", b"[{}]")])
    monkeypatch.undo()
    assert log.bounds() == (0, end)
    assert log.append([Request("b", b"[{}]")]) == [Stored(end, 2 * end, False)]
    log.close()


def test_positions_resume_inside_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BATCH_EVENTS", 3)
    first = HttpSource(tmp_path)
    assert first.poll(0.0) == []
    for k in range(3):
        first.submit(Request(None, orjson.dumps([{"a": 10 * k + i} for i in range(5)]))).result(LIMIT)
    found = [event for _ in range(5) for event in first.poll(1.0)]
    first.close()
    assert [event.record["a"] for event in found] == [10 * k + i for k in range(3) for i in range(5)]
    for i, event in enumerate(found):
        second = HttpSource(tmp_path)
        second.seek({event.stream: event.resume})
        rest = [event for _ in range(5) for event in second.poll(0.0)]
        second.close()
        assert rest == found[i + 1 :]
    with pytest.raises(ValueError, match="it is not the one that was read"):
        HttpSource(tmp_path).seek({"http": [1 << 30, 0]})


def test_events_beyond_the_backlog_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, request = HttpSource(tmp_path), Request(None, b"[{}]")
    with pytest.raises(source.NotReadyError, match="starting"):
        found.submit(request)
    found.poll(0.0)
    monkeypatch.setattr(source, "MOST_BACKLOG", 0)
    found.submit(request).result(LIMIT)
    with pytest.raises(source.BacklogError):
        found.submit(request)
    found.poll(1.0)
    monkeypatch.setattr(source, "MOST_WAITING", 0)
    with pytest.raises(source.NotReadyError, match="Too many"):
        found.submit(request)
    found.close()
    with pytest.raises(source.NotReadyError, match="ending"):
        found.submit(request)


def test_a_configuration_is_checked_without_opening_the_log(tmp_path: Path) -> None:
    path = configuration(tmp_path, 'http = "requests"')
    load_config(path).check()
    assert not (tmp_path / "requests").exists()
    answer = CliRunner().invoke(app, ["replay", str(path), str(tmp_path / "again")])
    assert (answer.exit_code, "got requests over HTTP" in answer.output) == (2, True)
    path.write_text(path.read_text().replace("port = 0", ""))
    with pytest.raises(ConfigError, match=r"http.port: required for source.http"):
        load_config(path).check()
    for text, problem in (('certificate = "a.pem"', "http.key: required"), ('key = "a.pem"', "http.certificate: req")):
        path.write_text(CONFIG.format(source='http = "requests"') + text)
        with pytest.raises(ConfigError, match=problem):
            load_config(path)
    path.write_text(CONFIG.format(source='http = "requests"') + 'certificate = "run.toml"\nkey = "run.toml"')
    with pytest.raises(ConfigError, match=r"http.certificate: expected a certificate and its private key"):
        load_config(path).check()


def test_the_example_of_the_page_has_the_response_shown(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how_to" / "learn_over_http.md").read_text()
    (tmp_path / "run.toml").write_text(re.search(r"```toml.*?\n(.*?)```", page, re.DOTALL)[1])
    load_config(tmp_path / "run.toml").check()
    body, response = re.search(r"-d '(.*?)'.*?202 Accepted\n(.*?)\n", page, re.DOTALL).groups()
    log = RequestLog(tmp_path / "requests")
    log.open()
    (stored,) = log.append([Request("order-1207", b"[%b]" % b",".join(events_in(body.encode())))])
    log.close()
    begin, position, is_repeated = stored
    assert json.loads(response) == {
        "events": 1, "position": position, "is_repeated": is_repeated, "results": [{"position": [position, 0]}],
    }  # fmt: skip
    assert begin == 0
