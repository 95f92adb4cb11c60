"""Bodies of requests: compressed, with several records of which some are invalid, and sent by a browser."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from served import ServerProcess, server
from states import named
from waiting import wait_for

from streamkernel.engine.http.applications import LARGEST_BODY
from streamkernel.engine.http.server import events_in

CONFIG = """
label = "y"
[source]
http = "requests"
[model]
type = "KernelClassifier"
max_features = 8
learner = "dsg"
[sink]
predictions = "predictions.jsonl"
dead_letters = "letters.jsonl"
[state]
directory = "state"
checkpoint_seconds = 0.1
[http]
port = 0
"""
EVENTS = [{"a": i % 7 / 7, "y": i % 7 > 3} for i in range(20)]
BOMB = gzip.compress(b" " * (1 << 24)) * 16


@pytest.fixture(scope="module")
def run(tmp_path_factory: Any) -> Iterator[ServerProcess]:
    """A run that has learned the first events from requests."""
    folder = tmp_path_factory.mktemp("run")
    named(folder / "state")
    (folder / "run.toml").write_text(CONFIG)
    with server("run", folder / "run.toml", log=folder / "log") as found:
        wait_for(lambda: learn(found, {"events": EVENTS})[0] == 202)
        wait_for(lambda: found.metric('streamkernel_events_total{outcome="learned"}') == len(EVENTS))
        found.wait_until_ready()
        yield found


@pytest.fixture(scope="module")
def served(run: ServerProcess, tmp_path_factory: Any) -> Iterator[ServerProcess]:
    """Its model, served by another process."""
    folder = run.log.parent
    with server("serve", folder / "state", "--port", 0, log=folder / "served") as found:
        found.wait_until_ready()
        yield found


@pytest.fixture(params=["run", "served"])
def predicting(request: pytest.FixtureRequest) -> ServerProcess:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, ServerProcess)
    return found


def learn(run: ServerProcess, body: Any, **headers: str) -> tuple[int, Any]:
    return run.ask("POST", "/learn", body, **headers)[::2]


def predict(run: ServerProcess, body: Any, **headers: str) -> tuple[int, Any]:
    return run.ask("POST", "/predict", body, **headers)[::2]


def test_compressed_bodies_are_read(run: ServerProcess, predicting: ServerProcess) -> None:
    plain = json.dumps({"x": {"a": 0.3}}).encode()
    expected = predict(predicting, plain)
    assert expected[0] == 200
    for coding, body in (
        ("gzip", gzip.compress(plain)),
        ("GZIP", gzip.compress(plain[:5]) + gzip.compress(plain[5:])),
        ("deflate", zlib.compress(plain)),
        ("identity", plain),
    ):
        assert predict(predicting, body, content_encoding=coding) == expected
    body = gzip.compress(json.dumps({"event": {"a": 0.5}}).encode())
    assert learn(run, body, content_encoding="gzip")[0] == 202


@pytest.mark.parametrize(
    ("body", "coding", "status", "text"),
    [
        (b"{}", "br", 415, 'Expected content-encoding gzip or deflate, got "br"'),
        (b"{}", "gzip, gzip", 415, 'got "gzip, gzip"'),
        (b'{"x": {}}', "gzip", 400, "Expected a body in gzip, got other bytes"),
        (gzip.compress(b"{}")[:-3], "gzip", 400, "Expected a complete body in gzip, got a part of it"),
        (gzip.compress(b"{}") + b"{}", "gzip", 400, "Expected a body in gzip, got other bytes"),
        (b"", "gzip", 400, "Expected a complete body"),
        (BOMB, "gzip", 413, f"Expected a body of at most {LARGEST_BODY:,} bytes when decompressed, got more"),
        (gzip.compress(b" " * LARGEST_BODY), "gzip", 422, "Expected valid JSON"),
        (gzip.compress(b"") * 40_000, "gzip", 422, "Expected valid JSON"),
    ],
    ids=["other", "twice", "plain", "part", "more", "empty", "bomb", "blanks", "members"],
)
def test_bodies_that_cannot_be_decompressed_are_refused(
    run: ServerProcess, predicting: ServerProcess, body: bytes, coding: str, status: int, text: str
) -> None:
    got, answer = predict(predicting, body, content_encoding=coding)
    assert (got, text in answer["error"]) == (status, True), answer
    if status != 422:
        assert learn(run, body, content_encoding=coding) == (got, answer)


def test_each_record_of_a_request_is_predicted_or_refused_in_its_place(predicting: ServerProcess) -> None:
    x = {"a": 0.3}
    (_, alone), metric = predict(predicting, {"x": x}), 'streamkernel_serve_records_total{model="state"}'
    before = predicting.metric(metric) if "served" in predicting.log.name else 0.0
    status, answer = predict(predicting, {"x": [x, None, x, {"a": [1]}, {"a": 1e200}, {"b": {"c": 1}, "b.c": 2}, x]})
    assert status == 200
    errors = [
        "Expected an object, got null - at x[1]",
        'Expected a number or a string, got list [1] - at field "a" - in x[3]',
        'Expected a number of at most 1e+100, got 1e+200 - at field "a" - in x[4]',
        'Expected one value for each field, got two - at field "b.c" - in x[5]',
    ]
    refused = [{"error": error} for error in errors]
    assert answer == {"predictions": [alone, refused[0], alone, *refused[1:], alone]}
    if before:
        assert predicting.metric(metric) == before + 3.0
    assert predict(predicting, {"x": [5]}) == (
        200,
        {"predictions": [{"error": "Expected an object, got a number - at x[0]"}]},
    )


def test_a_number_too_large_for_a_float_is_refused_in_its_place(predicting: ServerProcess) -> None:
    status, answer = predict(predicting, b'{"x": [{"a": 0.3}, {"a": 1e999}, {"a": 0.3}]}')
    first, refused, last = answer["predictions"]
    assert (status, first == last) == (200, True)
    assert refused == {"error": 'Expected a finite number, got inf - at field "a" - in x[1]'}


def test_each_event_of_a_request_is_stored_or_refused_in_its_place(run: ServerProcess) -> None:
    bad = [5, {"a": 0.25, "y": []}, {}]
    body = {"events": [{"a": 0.25, "y": True}, *bad, {"a": 0.5, "y": False}]}
    status, answer = learn(run, body, Idempotency_Key="batch")
    results, end = answer["results"], answer["position"]
    begin = results[0]["position"][0]
    assert (status, answer["events"], answer["is_repeated"], begin < end) == (202, 3, False, True)
    assert results == [
        {"position": [begin, 1]},
        {"error": "Expected an object, got a number - at events[1]"},
        {"position": [begin, 2]},
        {"error": "Expected 1 to 4,096 fields, got 0 - at events[3]"},
        {"position": [end, 0]},
    ]
    assert learn(run, body, Idempotency_Key="batch") == (202, answer | {"is_repeated": True})
    wait_for(lambda: run.metric('streamkernel_source_position{stream="http"}') >= end)
    folder = run.log.parent

    def positions(name: str) -> list[Any]:
        return [json.loads(line)["position"] for line in (folder / name).read_text().splitlines()]

    wait_for(lambda: [end, 0] in positions("predictions.jsonl"))
    assert [begin, 1] in positions("predictions.jsonl")
    assert [begin, 2] in positions("letters.jsonl")  # one without a label is refused where it is learned


def test_a_request_without_any_event_that_can_be_stored(run: ServerProcess) -> None:
    assert learn(run, {"events": [{}]}) == (
        400,
        {
            "error": "Expected an event that can be stored, got none of 1",
            "results": [{"error": "Expected 1 to 4,096 fields, got 0 - at events[0]"}],
        },
    )


def test_nan_is_stored_as_null_and_infinity_is_refused_at_its_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamkernel.engine.http.server.json_object", json.loads)
    events = [{"a": float("nan"), "b": {"c": 1}}, {"a": 1, "b": {"c": float("-inf")}}]
    stored, refused = events_in(json.dumps({"events": events}).encode())
    assert stored == b'{"a":null,"b":{"c":1}}'
    assert str(refused) == 'Expected a finite number, got -inf - at field "b.c" - in events[1]'


@pytest.mark.parametrize("path", ["/learn", "/predict"])
def test_a_page_of_another_origin_cannot_send_requests(run: ServerProcess, path: str) -> None:
    body = {"event": {"a": 1, "y": True}} if path == "/learn" else {"x": {"a": 1}}
    origins = {"origin": "https://evil.example"}
    assert run.ask("POST", path, body, **origins)[0] == 403
    status, headers, _ = run.ask("OPTIONS", path, **origins, Access_Control_Request_Method="POST")
    assert (status, [name for name in headers if name.lower().startswith("access-control")]) == (403, [])
    assert run.ask("POST", path, body, Sec_Fetch_Site="cross-site")[0] == 403  # a browser may send no origin
    for own in ({"origin": f"http://127.0.0.1:{run.port}"}, {"Sec_Fetch_Site": "same-origin"}, {}):
        assert run.ask("POST", path, body, **own)[0] in (200, 202)
    assert run.ask("GET", "/status", None, Sec_Fetch_Site="cross-site")[0] == 200  # a link to it
