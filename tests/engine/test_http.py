"""The HTTP responses of a run while it learns, requested by a real client through a real socket."""

from __future__ import annotations

import http.client
import json
import math
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import schemathesis
from cases import max_examples
from hypothesis import HealthCheck, given, settings
from river import compose, linear_model, metrics, preprocessing
from schemathesis.specs.openapi.checks import positive_data_acceptance
from waiting import LIMIT, wait_for

from streamkernel import KernelClassifier, KernelRegressor
from streamkernel.connectors import Event
from streamkernel.engine import Engine
from streamkernel.engine.http import serve
from streamkernel.engine.telemetry.history import MOST
from streamkernel.estimators.internals import prediction_copy

N = 3000


class Stream:
    """Events in small slices; after the last slice the source waits until it is released."""

    def __init__(self, events: list[Event]) -> None:
        self._slices = iter([events[i : i + 50] for i in range(0, len(events), 50)])
        self.over = threading.Event()

    def poll(self, timeout: float) -> list[Event] | None:
        found = next(self._slices, None)
        if found is None and not self.over.wait(timeout):
            return []
        return found

    def seek(self, positions: Any) -> None:
        pass

    def lag(self) -> dict[tuple[str, str], int]:
        return {}

    def close(self) -> None:
        pass


def events(n: int = N) -> list[Event]:
    rows = [{"a": math.sin(i), "b": math.cos(3.0 * i), "y": math.sin(i) * math.cos(3.0 * i) > 0} for i in range(n)]
    bad = Event("numbers", n + 1, b"<bad> & bytes", None, "Expected a number, got <bad>")
    return [Event("numbers", i + 1, b"", row) for i, row in enumerate(rows)] + [bad]


class Running:
    """An engine that learns in a thread and serves requests on a port."""

    def __init__(self, model: Any, told: list[Event], token: str | None = None, metric: Any = None) -> None:
        self.source = Stream(told)
        self.engine = Engine(model, self.source, label="y", metric=metric or metrics.Accuracy())
        self.port = serve(self.engine, "127.0.0.1", 0, token)
        self.thread = threading.Thread(target=self.engine.run)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        sent = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, raw, sent)
        answer = connection.getresponse()
        text = answer.read()
        kind = answer.headers.get_content_type()
        connection.close()
        return answer.status, dict(answer.headers), json.loads(text) if kind == "application/json" else text.decode()

    def until(self, learned: int) -> None:
        def is_learned() -> bool:
            assert self.thread.is_alive(), "the engine has ended"
            status, _, answer = self.ask("GET", "/model")
            return status == 200 and answer["events"] >= learned

        wait_for(is_learned)


@contextmanager
def running(*arguments: Any, **options: Any) -> Iterator[Running]:
    run = Running(*arguments, **options)
    run.thread.start()
    try:
        yield run
    finally:
        run.source.over.set()
        run.thread.join()


@pytest.fixture(scope="module")
def run() -> Iterator[Running]:
    with running(KernelClassifier(max_features=64), events()) as made:
        made.until(N)
        yield made


HEAD = "POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
X = {"a": 0.3, "b": -0.4}


def test_responses_match_the_model(run: Running) -> None:
    status, headers, answer = run.ask("POST", "/predict", {"x": X})
    probabilities = run.engine.model.predict_proba_one(X)
    assert status == 200
    assert answer["prediction"] == max(probabilities, key=probabilities.get)
    assert answer["probabilities"] == {str(label).lower(): value for label, value in probabilities.items()}
    assert headers["streamkernel-events"] == str(N)
    assert int(headers["streamkernel-version"]) >= 1
    many = run.ask("POST", "/predict", {"x": [X, {"a": -1, "b": None}, {"a": True}]})[2]["predictions"]
    assert many[0] == answer
    assert len(many) == 3


def test_fields_that_are_not_features_are_dropped(run: Running) -> None:
    assert run.ask("POST", "/predict", {"x": {**X, "y": False}})[2] == run.ask("POST", "/predict", {"x": X})[2]


def test_a_regressor_behind_a_scaler_has_no_probabilities() -> None:
    told = [Event("n", i + 1, b"", {"a": i % 9, "y": float(i % 9)}) for i in range(600)]
    model = compose.Pipeline(preprocessing.StandardScaler(), KernelRegressor(max_features=64))
    with running(model, told, metric=metrics.MAE()) as made:
        made.until(600)
        assert made.ask("POST", "/predict", {"x": {"a": 4}})[2] == {"prediction": model.predict_one({"a": 4})}


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"", 422, "Expected valid JSON"),
        (b"{", 422, "Expected valid JSON"),
        (b'{"x": {"a": Infinity}}', 422, 'Expected a finite number, got inf - at field "a"'),
        (b'{"x": {"a": 1e999}}', 422, 'Expected a finite number, got inf - at field "a"'),
        (b'{"x": {"a": 1e200}}', 422, 'a number of at most 1e+100, got 1e+200 - at field "a" - in x'),
        (b"\xff\xfe", 422, "UTF-8"),
        ([X], 422, "Expected a JSON object, got an array"),
        ({}, 422, 'Expected a field "x" and no other, got nothing'),
        ({"x": X, "extra": 1}, 422, 'Expected a field "x" and no other, got "x", "extra"'),
        ({"x": 5}, 422, "Expected an object, got a number - at x"),
        ({"x": []}, 422, "Expected 1 to 1,000 records, got 0 - at x"),
        ({"x": [X] * 1001}, 422, "Expected 1 to 1,000 records, got 1,001 - at x"),
        ({"x": None}, 422, "Expected an object, got null - at x"),
        ({"x": {"a": [1]}}, 422, 'Expected a number or a string, got list [1] - at field "a"'),
        ({"x": {"a": "text"}}, 422, "Expected a number as before, got the string 'text' - at field \"a\"; if it means"),
        (b"[" * 200_000, 422, "Expected valid JSON"),
    ],
)
def test_responses_to_bad_bodies_name_the_expected_value(run: Running, body: Any, status: int, text: str) -> None:
    got, _, answer = run.ask("POST", "/predict", body)
    assert (got, list(answer)) == (status, ["error"])
    assert text in answer["error"]


@pytest.mark.parametrize("length", [(1 << 20) + 1, 100_000_000])
def test_a_long_body_is_refused_before_it_is_read(run: Running, length: int) -> None:
    with socket.create_connection(("127.0.0.1", run.port), LIMIT) as client:
        client.sendall(HEAD.format(length=length).encode() + b"{")
        assert b"413" in client.recv(100)


def test_a_body_of_unknown_length_is_read_no_further_than_the_limit(run: Running) -> None:
    head = HEAD.replace("content-length: {length}", "transfer-encoding: chunked")
    with socket.create_connection(("127.0.0.1", run.port), LIMIT) as client:
        client.sendall(head.encode() + b"100001\r\n" + b" " * 0x100001)
        assert b"413" in client.recv(100)


def test_a_slow_request_times_out(run: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamkernel.engine.http.applications.BODY_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", run.port), LIMIT) as client:
        head = (
            "POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 20\r\n\r\n"
        )
        client.sendall(head.encode() + b"{")
        assert run.ask("GET", "/healthz")[0] == 200  # other requests are served meanwhile
        assert b"408" in client.recv(100)


def test_other_kinds_of_requests(run: Running) -> None:
    assert run.ask("POST", "/predict", b'{"x": {}}', content_type="text/plain")[0] == 415
    assert run.ask("GET", "/predict")[0] == 405
    assert run.ask("GET", "/nowhere")[0] == 404
    assert run.ask("GET", "/nowhere")[2] == {"error": "Not Found"}


def test_without_a_token_only_local_requests_are_allowed(run: Running) -> None:
    for path in ("/model", "/status", "/predict"):
        status, _, answer = run.ask("GET", path, host="evil.example")
        assert (status, "this machine" in answer["error"]) == (403, True)
    assert run.ask("GET", "/healthz", host="evil.example")[0] == 200


def test_a_token_is_required() -> None:
    with running(KernelClassifier(max_features=64), events(100), token="s3cret") as made:
        for headers in ({}, {"authorization": "Bearer other"}, {"authorization": "Basic s3cret"}):
            status, told, answer = made.ask("GET", "/model", **headers)
            assert (status, told["www-authenticate"]) == (401, "Bearer")
            assert "s3cret" not in str(answer)
        wait_for(lambda: made.ask("GET", "/model", authorization="Bearer s3cret", host="any.example")[0] == 200)
        for path in ("/metrics", "/healthz", "/", "/page.js"):
            assert made.ask("GET", path)[0] == 200


def test_requests_before_the_first_model() -> None:
    made = Running(KernelClassifier(), [])
    assert made.ask("GET", "/healthz")[0] == 200
    assert made.ask("GET", "/readyz")[0] == 503
    status, headers, answer = made.ask("POST", "/predict", {"x": X})
    assert (status, headers["retry-after"], list(answer)) == (503, "1", ["error"])
    made.source.over.set()
    made.engine.run()


def test_a_loop_that_does_not_advance_is_unhealthy(run: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamkernel.engine.health.ILL_SECONDS", -1.0)
    for path in ("/healthz", "/readyz"):
        status, _, answer = run.ask("GET", path)
        assert status == 503
        assert re.match(r"the main loop has not advanced for \d+ s", answer["status"])


def test_metrics_are_served(run: Running) -> None:
    status, headers, text = run.ask("GET", "/metrics")
    assert (status, headers["content-type"].split(";")[0]) == (200, "text/plain")
    assert f'streamkernel_events_total{{outcome="learned"}} {N}.0' in text


def test_the_status_has_the_data_of_the_page(run: Running) -> None:
    found = run.ask("GET", "/status")[2]
    assert found["now"]["learned"] == N
    assert found["dead_letters"][0]["raw"] == "<bad> & bytes"
    assert found["history"]["events"][-1] == N // 64 * 64
    assert len({len(column) for column in found["history"].values()}) == 1


def test_predictions_do_not_change_learning() -> None:
    """A model that predicts for clients in other threads has the same bits as a model without clients."""
    told = events(1500)
    alone = KernelClassifier(max_features=128)
    Engine(alone, _ended(told), label="y", metric=metrics.Accuracy()).run()
    with running(KernelClassifier(max_features=128), told) as made:
        stop = threading.Event()

        def ask() -> None:
            while not stop.is_set():
                assert made.ask("POST", "/predict", {"x": [X] * 20})[0] in (200, 503)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        made.until(1500)
        stop.set()
        for thread in threads:
            thread.join()
        ours, theirs = (model.predict_proba_one(X) for model in (made.engine.model, alone))
    assert ours == theirs
    assert made.engine.model.objective == alone.objective


def _ended(told: list[Event]) -> Stream:
    source = Stream(told)
    source.over.set()
    return source


@pytest.mark.parametrize(
    "model",
    [
        KernelClassifier(max_features=256),
        KernelClassifier(learner="dsg", max_features=64),
        KernelRegressor(max_features=64),
        compose.Pipeline(preprocessing.StandardScaler(), KernelClassifier(max_features=64)),
        compose.Pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
    ],
    ids=["second order", "first order", "regressor", "pipeline", "River's"],
)
def test_a_published_model_predicts_the_same_and_does_not_change(model: Any) -> None:
    rows = [event.record or {} for event in events(900)[:-1]]
    ask = getattr(model, "predict_proba_one", model.predict_one)
    for row in rows[:700]:
        model.learn_one({"a": row["a"], "b": row["b"]}, row["y"])
    twin = prediction_copy(model)
    before = ask(X)
    for row in rows[700:]:
        model.learn_one({"a": row["a"], "b": row["b"], "new": row["a"]}, row["y"])
    assert getattr(twin, ask.__name__)(X) == before != ask(X)


def test_the_history_is_bounded(run: Running) -> None:
    assert 0 < len(run.engine.history) < MOST


@pytest.mark.parametrize("operation", ["POST /predict", "GET /model", "GET /status", "GET /healthz", "GET /readyz"])
def test_responses_match_the_openapi_description(run: Running, operation: str) -> None:
    """For valid and invalid requests generated from the description, responses have its statuses and schemas."""
    method, path = operation.split()
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{run.port}/openapi.json")

    @given(case=schema[path][method].as_strategy())
    @settings(max_examples(60), suppress_health_check=list(HealthCheck))
    def check(case: Any) -> None:
        case.call_and_validate(
            excluded_checks=[positive_data_acceptance]
        )  # the learned events determine the type of a field

    check()
