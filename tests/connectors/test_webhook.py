"""A webhook whose answer is a redirect, or no HTTP: nothing is lost, and the token stays."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from streamkernel.connectors.base import RecordsRefusedError
from streamkernel.connectors.http.webhook import MOST_REFUSED, WebhookSink, WebhookUnavailableError


def test_a_redirect_is_a_failure_and_is_not_followed():
    requests = []

    class Moved(BaseHTTPRequestHandler):
        def do_POST(self):
            requests.append(self.path)
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(302)
            self.send_header("Location", "/login")
            self.end_headers()

        def do_GET(self):
            requests.append(self.headers["authorization"])

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Moved) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sink = WebhookSink(f"http://127.0.0.1:{server.server_port}/p", token="secret")
        sink.write({"a": 1})
        with pytest.raises(WebhookUnavailableError, match="302, a redirect, which is not followed"):
            sink.flush()
        with pytest.raises(WebhookUnavailableError):
            sink.flush()  # the record is still there
        server.shutdown()
    assert requests == ["/p", "/p"]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"garbage\r\n\r\n", "garbage"),
        (b"", "closed connection"),
        (b"HTTP/1.1 two OK\r\n\r\n", "two OK"),
        (b"HTTP/1.1 200 OK\r\na: " + b"b" * 100_000 + b"\r\n\r\n", "65536 bytes"),
        (b"HTTP/1.1 308 Moved\r\nLocation: http://elsewhere.invalid/p\r\nContent-Length: 0\r\n\r\n", "308, a redirect"),
    ],
)
def test_an_answer_that_is_no_success_is_an_outage(reply, reason):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        sink = WebhookSink(f"http://127.0.0.1:{server.getsockname()[1]}/p")
        sink.write({"a": 1})
        with pytest.raises(WebhookUnavailableError, match=reason):
            sink.flush()
        thread.join()


def test_after_many_refusals_one_record_that_is_accepted_shows_that_the_others_were_at_fault():
    class OnlyGood(BaseHTTPRequestHandler):
        def do_POST(self):
            rows = json.loads(self.rfile.read(int(self.headers["content-length"])))
            is_good = rows == [{"n": "good"}]
            self.server.accepted += rows if is_good else []
            self.send_response(200 if is_good else 422)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), OnlyGood) as server:
        server.accepted = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sink = WebhookSink(f"http://127.0.0.1:{server.server_port}/p", batch_size=1000)
        for number in range(MOST_REFUSED + 2):
            sink.write({"n": number})
        sink.write({"n": "good"})
        with pytest.raises(RecordsRefusedError) as error:
            sink.flush()
        assert [record["n"] for record, *_ in error.value.refused] == list(range(MOST_REFUSED))
        with pytest.raises(WebhookUnavailableError, match=r"it refuses every record, the last 100 in a row: .*422"):
            sink.flush()  # each attempt sends another of those that wait
        with pytest.raises(RecordsRefusedError) as error:
            sink.flush()
        assert sorted(record["n"] for record, *_ in error.value.refused) == [MOST_REFUSED, MOST_REFUSED + 1]
        assert sink.flush() is None
        server.shutdown()
    assert server.accepted == [{"n": "good"}]
