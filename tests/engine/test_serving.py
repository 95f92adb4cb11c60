"""Models of checkpoints, served apart from the run that writes them, by real processes."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import ServerProcess, server, write_certificate
from waiting import LIMIT, wait_for

from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import checkpoints
from streamkernel.engine.config.config import load_config
from streamkernel.engine.http.listening import Certificate
from streamkernel.engine.serving.application import CheckpointFollower

CONFIG = """
label = "y"
coverage = 0.9
[source]
path = "events.jsonl"
follow = {follow}
[model]
type = "KernelClassifier"
max_features = 8
learner = "dsg"
[state]
directory = "state"
checkpoint_seconds = 0.1
"""
X = {"a": 0.3, "b": -0.4}


def write_events(path: Path, n: int, begin: int = 0) -> None:
    """Add examples to a file."""
    lines = [json.dumps({"a": i % 7 / 7, "b": i % 5 / 5, "y": i % 7 > 3}) for i in range(begin, begin + n)]
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


def configuration(folder: Path, *, follow: bool) -> Path:
    """Return the file of a run in a folder with 300 examples."""
    folder.mkdir(exist_ok=True)
    write_events(folder / "events.jsonl", 300)
    path = folder / "run.toml"
    path.write_text(CONFIG.format(follow=json.dumps(follow)))
    return path


@pytest.fixture(scope="module")
def engine(tmp_path_factory: Any) -> Any:
    """A run that has ended."""
    found = engine_of(load_config(configuration(tmp_path_factory.mktemp("ended"), follow=False)))
    found.run()
    return found


@pytest.fixture(scope="module")
def states(engine: Any) -> Path:
    return engine.parts.checkpointer.state.path


@pytest.fixture(scope="module")
def served(states: Path, tmp_path_factory: Any) -> Iterator[ServerProcess]:
    """Two workers that serve a copy of its state."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(states, folder / "clicks")
    words = "serve", folder / "clicks", "--port", 0, "--workers", 2, "--poll-seconds", 0.1
    with server(*words, log=folder / "log") as found:
        found.wait_until_ready()
        yield found


def test_answers_are_those_of_the_run(engine: Any, served: ServerProcess) -> None:
    engine.publisher.publish(engine.model, engine.parts.processor.examples, 300)
    expected = engine.publisher.newest._replace(coverage=engine.parts.processor.coverage).answer(X)
    status, headers, answer = served.ask("POST", "/predict", {"x": X | {"y": True}})
    assert (status, headers["streamkernel-events"], answer["prediction"]) == (200, "300", expected["prediction"])
    assert answer["probabilities"] == {str(label).lower(): p for label, p in expected["probabilities"].items()}
    assert answer["set"] == expected["set"]
    assert served.ask("POST", "/models/clicks/predict", {"x": [X, X]})[2] == {"predictions": [answer, answer]}
    assert served.ask("GET", "/models/other")[0] == 404
    about = served.ask("GET", "/model")[2]
    assert about["origin"] == f"checkpoint {about['version']}"
    assert served.metric('streamkernel_serve_records_total{model="clicks"}') >= 3.0
    page = (Path(__file__).parents[2] / "docs" / "how_to" / "serving.md").read_text()
    names = set(re.findall(r"^# TYPE (streamkernel_serve\w+) ", served.ask("GET", "/metrics")[2], re.MULTILINE))
    assert set(re.findall(r"^\| `(streamkernel_serve\w+)", page, re.MULTILINE)) == names


def test_a_killed_worker_is_started_again(served: ServerProcess) -> None:
    children = Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children")
    if not children.exists():
        pytest.skip("needs /proc")
    before = set(children.read_text().split())
    os.kill(int(min(before)), signal.SIGKILL)
    wait_for(lambda: len(set(children.read_text().split()) - before) == 1)
    for _ in range(10):
        assert served.ask("POST", "/predict", {"x": X})[0] == 200
    assert served.metric("streamkernel_serve_restarts_total") == 1.0


def answer_after_sigterm(served: ServerProcess, path: str) -> int:
    """Return the status of a request whose body is sent after the process received a signal to stop."""
    body = json.dumps({"x": X}).encode()
    connection = served.connect()
    connection.putrequest("POST", path)
    connection.putheader("content-type", "application/json")
    connection.putheader("content-length", str(len(body)))
    connection.putheader("expect", "100-continue")
    connection.endheaders()
    assert connection.sock.recv(64).startswith(b"HTTP/1.1 100")  # the worker waits for the body
    served.process.terminate()
    wait_for(lambda: is_refused(served))
    connection.send(body)
    status = connection.getresponse().status
    connection.close()
    return status


def test_old_tls_is_refused(tmp_path: Path) -> None:
    write_certificate(tmp_path / "server.pem", tmp_path / "key.pem")
    assert Certificate(tmp_path / "server.pem", tmp_path / "key.pem").context.minimum_version == ssl.TLSVersion.TLSv1_2


def is_refused(served: ServerProcess) -> bool:
    """Return whether new connections are refused."""
    try:
        served.ask("GET", "/healthz")
    except (ConnectionError, http.client.HTTPException):
        return True
    return False


def test_a_new_checkpoint_is_served_and_the_learner_may_be_killed(tmp_path: Path) -> None:
    config = configuration(tmp_path, follow=True)
    command = "serve", tmp_path / "state", "--port", 0, "--poll-seconds", 0.1
    with server(*command, log=tmp_path / "serve.log") as found:
        status, _, answer = found.ask("GET", "/readyz")
        assert (status, answer["models"]["state"]["problem"]) == (503, "no state directory")
        assert found.ask("POST", "/predict", {"x": X})[0] == 503

        def is_at(events: int) -> bool:
            answer = found.ask("POST", "/predict", {"x": X})
            return answer[0] == 200 and answer[1]["streamkernel-events"] == str(events)

        config.write_text(config.read_text() + "[http]\nport = 0\n")
        with server("run", config, log=tmp_path / "run.log") as learner:
            wait_for(lambda: is_at(300), what=found.log.read_text)
            write_events(tmp_path / "events.jsonl", 50, 300)
            wait_for(lambda: is_at(350))
            learner.process.kill()
            learner.process.wait()
            assert is_at(350)
            shutil.rmtree(tmp_path / "state")
            wait_for(lambda: found.metric('streamkernel_served_model_problem{model="state"}') == 1.0)
            assert is_at(350)
            status, _, answer = found.ask("GET", "/readyz")
            assert (status, answer["models"]["state"]["problem"]) == (200, "no state directory")
            assert found.metric('streamkernel_served_model_age_seconds{model="state"}') > 0.0
        assert answer_after_sigterm(found, "/predict") == 200
        assert found.process.wait(LIMIT) == 0


def test_half_a_file_is_not_used(states: Path, tmp_path: Path) -> None:
    *_, last = checkpoints(states)
    follower, mirror = CheckpointFollower("clicks", tmp_path), tmp_path / "checkpoint-000000000900.safetensors"
    content = last.read_bytes()
    for size in (0, 5, len(content) // 2, len(content) - 1):
        mirror.write_bytes(content[:size])
        assert not follower.load_newest()
        assert follower.newest is None
        assert mirror.name in follower.problem
    mirror.write_bytes(content)
    assert follower.load_newest()
    assert (follower.problem, follower.newest.model.version) == ("", 900)
    assert not follower.load_newest()
    newer = tmp_path / "checkpoint-000000000901.safetensors"
    newer.write_bytes(content[:-9] + b"\0" * 9)  # complete, and damaged
    assert not follower.load_newest()
    assert newer.name in follower.problem
    newer.write_bytes(content)
    assert follower.load_newest()
    assert follower.newest.model.version == 901
    newer.unlink()  # older checkpoints remain, and are not served
    assert not follower.load_newest()
    assert follower.newest.model.version == 901


@pytest.mark.parametrize("kind", ["a link", "a pipe"])
def test_a_link_is_not_followed_and_a_pipe_not_waited_for(states: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "checkpoint-000000000001.safetensors"
    path.symlink_to(checkpoints(states)[-1]) if kind == "a link" else os.mkfifo(path)
    follower = CheckpointFollower("clicks", tmp_path)
    assert not follower.load_newest()
    assert follower.problem


@pytest.mark.slow
def test_two_models_with_tls_a_certificate_that_is_replaced_and_a_killed_parent(states: Path, tmp_path: Path) -> None:
    certificate, key = tmp_path / "server.pem", tmp_path / "key.pem"
    write_certificate(certificate, key)
    words = "serve", f"a={states}", f"b={states}", "--port", 0, "--poll-seconds", 0.1
    words += "--certificate", certificate, "--key", key
    with server(*words, log=tmp_path / "log", trusted=certificate) as found:
        found.wait_until_ready()
        first = found.connect()
        first.request("GET", "/healthz")
        assert first.getresponse().read() == b'{"status":"ok"}'
        assert first.sock.version() in ("TLSv1.2", "TLSv1.3")
        before = certificate.read_bytes()
        write_certificate(tmp_path / "new.pem", tmp_path / "new.key")
        shutil.copy(tmp_path / "new.pem", certificate)  # the certificate does not match the old key
        found.trusted = tmp_path / "before.pem"
        found.trusted.write_bytes(before)
        assert found.ask("GET", "/healthz")[0] == 200
        shutil.copy(tmp_path / "new.key", key)
        found.trusted = certificate
        assert found.ask("GET", "/healthz")[0] == 200
        first.request("GET", "/healthz")
        assert first.getresponse().status == 200
        first.close()
        assert found.ask("POST", "/predict", {"x": X})[0] == 404
        assert found.ask("POST", "/models/b/predict", {"x": X})[0] == 200
        found.process.kill()
        found.process.wait()
        wait_for(lambda: is_refused(found))  # workers end with their parent
