"""HTTP clients cannot exhaust connections, the event loop or memory, or impersonate others."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from river import base, metrics

import streamkernel
from streamkernel.connectors import Event
from streamkernel.engine import Engine
from streamkernel.engine.http import applications, listening, predictions, serve

PATIENCE = 60.0
HEAD = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nx: "
DROPPED = (ConnectionResetError, BrokenPipeError)

may_answer = threading.Event()
is_asked = threading.Event()


FOREIGN = ("https://evil.example", "http://localhost:81", "http://localhost", "null", "")
SLOW = {"slow": 1, "text": "long " * 1000}


class Slow(base.Regressor):
    """Predicts 1.0; with a field "slow" the prediction waits for permission."""

    def learn_one(self, x: dict[str, Any], y: float) -> None:
        pass

    def predict_one(self, x: dict[str, Any]) -> float:
        if "slow" in x:
            is_asked.set()
            assert may_answer.wait(PATIENCE)
        return 1.0


class Once:
    """A source with one event."""

    def __init__(self) -> None:
        self._slices = iter([[Event("numbers", 1, b"", {"a": 1.0, "y": 1.0})]])
        self.over = threading.Event()

    def poll(self, timeout: float) -> list[Event] | None:
        found = next(self._slices, None)
        return [] if found is None and not self.over.wait(timeout) else found

    def lag(self) -> dict[tuple[str, str], int]:
        return {}

    def close(self) -> None:
        pass


class Served:
    def __init__(self, token: str | None = None) -> None:
        self.source = Once()
        engine = Engine(Slow(), self.source, label="y", metric=metrics.MAE())  # type: ignore[arg-type]
        self.port = serve(engine, "127.0.0.1", 0, token)
        self.thread = threading.Thread(target=engine.run)
        self.thread.start()
        wait_for(lambda: self.status("/readyz") == 200)

    def close(self) -> None:
        may_answer.set()
        self.source.over.set()
        self.thread.join(PATIENCE)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def status(self, path: str) -> int:
        return self.raw(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())

    def raw(self, request: bytes) -> int:
        with self.connect() as client:
            client.sendall(request)
            answer = http.client.HTTPResponse(client)
            answer.begin()
            return answer.status

    def predict(self, x: Any) -> tuple[int, Any, Any]:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        client.request("POST", "/predict", json.dumps({"x": x}), {"content-type": "application/json"})
        answer = client.getresponse()
        found = answer.status, answer.headers, json.loads(answer.read())
        client.close()
        return found


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_closed_at_last(client: socket.socket) -> bool:
    """Wait until the server closes a connection that sends no more."""
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.close()


@pytest.fixture(scope="module")
def guarded() -> Iterator[Served]:
    made = Served(token="correct-horse-battery")
    yield made
    made.close()


def test_half_sent_headers_block_no_other_client(served: Served) -> None:
    with ExitStack() as held:
        clients = [held.enter_context(served.connect()) for _ in range(listening.MAX_CONNECTIONS + 20)]
        for client in clients:
            try:
                client.sendall(HEAD)
            except DROPPED:
                continue
        for path in ("/healthz", "/readyz", "/metrics"):
            assert served.status(path) == 200
        assert is_closed_at_last(clients[0])  # the server closed the oldest connection
    assert served.predict({"a": 1.0})[0] == 200


def test_the_client_with_the_most_connections_loses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MAX_CONNECTIONS", 4)
    monkeypatch.setattr(listening, "HEAD_SECONDS", 2 * PATIENCE)
    with ExitStack() as held:
        made = Served()  # a server without other clients
        held.callback(made.close)

        def half_sent(address: str) -> socket.socket:
            client = held.enter_context(socket.create_connection(("127.0.0.1", made.port), PATIENCE, (address, 0)))
            client.sendall(HEAD)
            return client

        first = half_sent("127.0.0.2")
        greedy = [half_sent("127.0.0.3") for _ in range(4)]
        assert is_closed_at_last(greedy[0])
        first.sendall(b"\r\n\r\n")
        assert first.recv(12) == b"HTTP/1.1 200"


def send_until_closed(client: socket.socket, part: bytes) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        client.sendall(part)


@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"])
def test_headers_have_a_deadline(served: Served, monkeypatch: pytest.MonkeyPatch, before: bytes) -> None:
    """The deadline also holds for a client that sends single bytes, and after a complete request."""
    monkeypatch.setattr(listening, "HEAD_SECONDS", 0.2)
    with served.connect() as client:
        client.sendall(before + HEAD)
        with pytest.raises(DROPPED):
            send_until_closed(client, b"x")
    with served.connect() as silent:
        assert is_closed_at_last(silent)


def test_a_response_may_take_longer_than_the_headers(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HEAD_SECONDS", 0.5)
    may_answer.clear()
    is_asked.clear()
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(served.predict(SLOW)[0]))
    thread.start()
    assert is_asked.wait(PATIENCE)
    time.sleep(1.0)
    may_answer.set()
    thread.join(PATIENCE)
    assert answers == [200]


def test_a_connection_that_waits_for_its_response_is_not_the_one_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MAX_CONNECTIONS", 3)
    with ExitStack() as held:
        made = Served()
        held.callback(made.close)
        may_answer.clear()
        is_asked.clear()
        answers: list[int] = []
        thread = threading.Thread(target=lambda: answers.append(made.predict(SLOW)[0]))
        thread.start()
        assert is_asked.wait(PATIENCE)
        half_sent = [held.enter_context(made.connect()) for _ in range(3)]
        for client in half_sent:
            client.sendall(HEAD)
        assert is_closed_at_last(half_sent[0])
        may_answer.set()
        thread.join(PATIENCE)
    assert answers == [200]


def test_uvicorn_is_used_by_its_public_interface() -> None:
    package = Path(streamkernel.__file__).parent
    read = re.compile(r"uvicorn\.(?!Config\b|Server\b)\w+|from uvicorn|config\.load\b|_protocol_class|server_state")
    assert [path for path in package.rglob("*.py") if read.search(path.read_text())] == []


def test_idle_connections_have_a_deadline(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "IDLE_SECONDS", 0.1)
    with served.connect() as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert is_closed_at_last(client)


def test_responses_that_no_client_reads_have_a_deadline(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(listening, "IDLE_SECONDS", 0.2)
    with served.connect() as client, pytest.raises(DROPPED):
        send_until_closed(client, b"GET /page.js HTTP/1.1\r\nhost: localhost\r\n\r\n")


def test_a_long_prediction_delays_no_other_request(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions, "MAX_JOBS", 2)
    may_answer.clear()
    is_asked.clear()
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(served.predict(SLOW)[0])) for _ in range(2)]
    threads[0].start()
    assert is_asked.wait(PATIENCE)
    assert served.status("/healthz") == 200
    threads[1].start()
    refused: list[tuple[int, Any, Any]] = []

    def is_refused() -> bool:
        """Send a request with a separate deadline, because a request waits while the queue has space for it."""
        thread = threading.Thread(target=lambda: refused.append(served.predict(SLOW)))
        thread.start()
        thread.join(1.0)
        return any(status == 503 for status, _, _ in refused)

    wait_for(is_refused)
    _, headers, answer = next(one for one in refused if one[0] == 503)
    assert (headers["retry-after"], list(answer)) == ("1", ["error"])
    assert served.status("/healthz") == 200
    may_answer.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert 200 in answers
    assert served.predict({"a": 1.0})[::2] == (200, {"prediction": 1.0})


def test_a_record_has_a_bounded_number_of_fields(served: Served) -> None:
    error = {"error": "Expected at most 4,096 fields, got 4,097 - at x"}
    assert served.predict({str(i): 1 for i in range(4097)})[::2] == (422, error)
    assert served.predict({str(i): 1 for i in range(4096)})[0] == 200


def get(path: str, *headers: str, version: str = "1.1") -> bytes:
    return "\r\n".join([f"GET {path} HTTP/{version}", *headers, "connection: close", "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        *((get("/status", f"host: {host}"), 200) for host in ("localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:80")),
        *(
            (get("/status", f"host: {host}"), 403)
            for host in ("", "evil.com?@localhost", "evil.com#@localhost", "evil.com/@localhost", "localhost@evil.com")
        ),
        *((get("/status", f"host: {host}"), 403) for host in ("localhost:x", "[localhost", "127.0.0.1.evil.com")),
        (get("/status", version="1.0"), 400),
        (get("/status"), 400),
        (get("/status", "host: evil.com", "host: localhost"), 400),
        (get("/healthz", version="1.0"), 200),
        (get("/status", "host: localhost", "x-forwarded-for: 127.0.0.1"), 403),
        (get("/status", "host: localhost", "forwarded: for=127.0.0.1"), 403),
        (get("/status", "host: localhost:80", "origin: http://localhost:80"), 200),
        *((get("/status", "host: localhost:80", f"origin: {origin}"), 403) for origin in FOREIGN),
        (get("/healthz", "host: localhost", "content-length: 5", "transfer-encoding: chunked"), 400),
        (get("/healthz", "host: localhost", "transfer-encoding: chunked", version="1.0"), 400),
        (get("/healthz", "host: localhost", "upgrade: websocket", "sec-websocket-version: 13"), 200),
        (get("/status/", "host: localhost"), 404),
    ],
)
def test_requests_from_elsewhere_and_ambiguous_ones_are_refused(served: Served, request_: bytes, status: int) -> None:
    assert served.raw(request_) == status


def test_nothing_after_an_ambiguous_request_is_answered(served: Served) -> None:
    smuggled = b"0\r\n\r\n" + get("/status", "host: localhost")
    head = b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n"
    with served.connect() as client:
        client.sendall(head + smuggled)
        answer = b""
        while part := client.recv(1 << 16):
            answer += part
    assert answer.count(b"HTTP/1.1") == answer.count(b"HTTP/1.1 400") == 1


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (["authorization: Bearer correct-horse-battery"], 200),
        (["authorization: bearer correct-horse-battery"], 200),
        (["authorization: correct-horse-battery"], 401),
        (["authorization: Basic correct-horse-battery"], 401),
        (["authorization: Bearer correct-horse-batter"], 401),
        (["authorization: Bearer correct-horse-battery2"], 401),
        (["authorization: Bearer wrong", "authorization: Bearer correct-horse-battery"], 401),
        (["authorization: Bearer correct-horse-battery", "authorization: Bearer wrong"], 401),
        (["authorization: Bearer \xe9"], 401),
        (["authorization: Bearer"], 401),
        (["x-authorization: Bearer correct-horse-battery"], 401),
        (["cookie: token=correct-horse-battery"], 401),
        ([], 401),
    ],
)
def test_the_token_counts_only_in_one_authorization_header(guarded: Served, headers: list[str], status: int) -> None:
    for path in ("/model", "/status", "/model?token=correct-horse-battery&access_token=correct-horse-battery"):
        assert guarded.raw(get(path, "host: any.example", *headers)) == status


def test_no_request_is_written_to_the_log(guarded: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Invalid requests are not logged either: clients could fill the log, and a path can contain a token."""
    for request in (get("/model?token=correct-horse-battery", "host: a"), b"\x00\r\n\r\n", get("/", "host: a b", "a")):
        guarded.raw(request)
    guarded.raw(get("/", "host: localhost", "upgrade: websocket", "connection: upgrade"))
    assert not caplog.records


def test_loopback_names_and_addresses() -> None:
    assert not any(map(applications.is_loopback, ("", "localhost.", "127.1", "0x7f.1", "2130706433", "::ffff:8.8.8.8")))
