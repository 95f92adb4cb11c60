"""`streamkernel top` shows what `run` shows: of a process that answers, else of the newest checkpoint."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from brokers import free_port
from river import linear_model, metrics
from served import write_certificate
from typer.testing import CliRunner, Result
from waiting import LIMIT, wait_for

from streamkernel.cli import app
from streamkernel.connectors import FileSource
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.http import serve
from streamkernel.engine.http.listening import Certificate
from streamkernel.engine.telemetry.observed import address_in, store_address
from streamkernel.engine.telemetry.terminal import View

N, TOKEN = 200, "the-right-token"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Return a run that has ended, whose process still answers."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "events.jsonl").write_text(
        "".join(f'{{"a": {i % 7}, "y": {i % 7 > 3}}}\n'.lower() for i in range(N)) + "{\n"
    )
    source = FileSource(folder / "events.jsonl", format="jsonl")
    with StateDirectory(folder / "state") as state:
        running = Engine(linear_model.LogisticRegression(), source, label="y", metric=metrics.Accuracy(), state=state)
        running.run()
        yield running


def state_of(engine: Engine) -> Path:
    state = engine.parts.checkpointer.state
    assert state is not None
    return state.path


def top(*words: object) -> Result:
    return CliRunner().invoke(app, ["top", *map(str, words), "--once"], env={"COLUMNS": "200"})


def cells(text: str) -> dict[str, str]:
    """Return the table in a text."""
    rows = [line.strip("│ ").split("│") for line in text.splitlines() if line.startswith("│")]
    return {name.strip(): value.strip() for name, value in rows}


def test_a_state_directory_leads_to_the_process_or_to_the_checkpoint(engine: Engine) -> None:
    state = state_of(engine)
    before = top(state)
    assert "no process has stored its address there" in before.stdout
    store_address(state, f"http://0.0.0.0:{serve(engine, '127.0.0.1', 0)}")
    found = top(state)
    assert found.exit_code == 0, found.output
    assert f"{state}, a process at {address_in(state)}" in found.stdout
    names = {"events/s", "age of the checkpoint, s"}
    expected = dict(View(engine, "").rows())
    assert {name: value for name, value in cells(found.stdout).items() if name not in names} == {
        name: value for name, value in expected.items() if name not in names
    }
    assert (expected["events learned"], expected["dead letters"]) == (f"{N}", "1")
    assert {**expected, **cells(before.stdout)}["Accuracy"] == expected["Accuracy"]
    copy = state.parent / "copy"
    shutil.copytree(state, copy)
    (copy / "identity").unlink()
    answer = top(copy)
    assert f"the process at {address_in(state)} has another state directory" in answer.stdout
    assert cells(answer.stdout) == cells(before.stdout)


def test_token_and_certificate(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    write_certificate(certificate, key)
    port = serve(engine, "127.0.0.1", 0, TOKEN, Certificate(certificate, key))
    address, trusting = f"https://localhost:{port}", ("--certificate", certificate)
    for words, token, text in (
        ((address,), TOKEN, "CERTIFICATE_VERIFY_FAILED"),
        ((address, *trusting), "", "Expected the token of the run in STREAMKERNEL_HTTP_TOKEN, got none"),
        (
            (address, *trusting),
            "another-token",
            "Expected the token of the run in STREAMKERNEL_HTTP_TOKEN, got another",
        ),
        ((address, "--certificate", key), TOKEN, "Expected a certificate as a PEM file"),
    ):
        monkeypatch.setenv("STREAMKERNEL_HTTP_TOKEN", token) if token else monkeypatch.delenv(
            "STREAMKERNEL_HTTP_TOKEN", False
        )
        answer = top(*words)
        assert answer.exit_code == 2
        assert text in answer.stderr
    monkeypatch.setenv("STREAMKERNEL_HTTP_TOKEN", TOKEN)
    assert cells(top(address, *trusting).stdout)["events learned"] == f"{N}"


class Other(BaseHTTPRequestHandler):
    """Another server, which redirects at first."""

    asked: ClassVar[list[Any]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        self.send_response(302 if self.path == "/moved/status" else 200)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


def test_what_is_no_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMKERNEL_HTTP_TOKEN", TOKEN)
    (tmp_path / "empty").mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        for target, text in (
            (f"{address}/moved", "Expected the figures of a run, got status 302"),
            (address, "Expected the figures of a run, got another answer"),
            ("http://user:secret@host", "Expected an address, as http://host:port, without a login"),
            (tmp_path / "nowhere", "Expected an address, or a state directory, found none"),
            (tmp_path / "empty", "Expected"),
        ):
            answer = top(target)
            assert (answer.exit_code, answer.stdout) == (2, "")
            assert text in answer.stderr
            assert "secret" not in answer.stderr
        server.shutdown()
    assert Other.asked == [("/moved/status", f"Bearer {TOKEN}"), ("/status", f"Bearer {TOKEN}")]  # not /elsewhere


def test_it_waits_for_a_process_and_ends_by_ctrl_c(engine: Engine) -> None:
    port, (ours, theirs), text = free_port(), pty.openpty(), bytearray()
    words = [sys.executable, "-c", "from streamkernel.cli import main; main()", "top", f"http://127.0.0.1:{port}"]
    with subprocess.Popen(words, stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)

        def shows(part: bytes) -> bool:
            text.extend(os.read(ours, 4096))
            return part in text

        wait_for(lambda: shows(b"waiting"))
        serve(engine, "127.0.0.1", port)
        wait_for(lambda: shows(b"events learned"))
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
    os.close(ours)
