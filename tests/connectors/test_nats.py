"""A stream of a real NATS server is learned once, also after a crash and an outage, and predictions go to another."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import brokers
import pytest
from waiting import LIMIT, wait_for

from streamkernel.connectors.base import GaveUpError, RecordsRefusedError, UnavailableError
from streamkernel.connectors.nats import NatsSink, NatsSource
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import load_config

nats = pytest.importorskip("nats")
pytestmark = pytest.mark.nats

PAGE = (Path(__file__).parents[2] / "docs" / "how_to" / "sources_and_sinks.md").read_text()
TABLE = re.search(r'```toml title="nats.toml"\n(.*?)```', PAGE, re.DOTALL)[1]


class Server:
    """A process of nats-server, which can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.port, self._folder = brokers.free_port(), folder
        self.url = f"nats://127.0.0.1:{self.port}"
        (folder / "server.conf").write_text(
            f'port: {self.port}\nhost: 127.0.0.1\njetstream {{ store_dir: "{folder}" }}\n'
            'authorization { users = [{ user: alice, password: "right-horse" },\n'
            '{ user: reader, password: "right-horse", permissions: { publish: { deny: "denied" } } }] }\n'
        )
        self.start()

    def start(self) -> None:
        words = ["nats-server", "-c", str(self._folder / "server.conf")]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(LIMIT)

    def ask(self, task: Any) -> Any:
        """Return what a task with a JetStream context returns, once the server answers."""

        async def run() -> Any:
            client = await nats.connect(self.url, user="alice", password="right-horse", allow_reconnect=False)
            try:
                return [await task(client.jetstream())]
            finally:
                await client.close()

        def answer() -> Any:
            try:
                return asyncio.run(run())
            except nats.errors.NoServersError:
                return None

        return wait_for(answer)[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not shutil.which("nats-server"):
        pytest.skip("NATS needs nats-server")
    found = Server(tmp_path_factory.mktemp("nats"))
    yield found
    found.stop()


@pytest.fixture
def config(server: Server, tmp_path: Path) -> Path:
    """The configuration of the page, with a stream of its own."""
    name = re.sub(r"\W", "", tmp_path.name)
    login = 'user = "alice"\npassword = "right-horse"\n'
    text = TABLE.replace("nats://localhost:4222", server.url).replace("CLICKS", name)
    text = text.replace('stream = "', f'{login}until = "latest"\nstream = "')
    text = text.replace('subject = "predictions"', f'{login}subject = "{name}.out"')
    text = text.replace('type = "KernelClassifier"', 'type = "KernelClassifier"\nlearner = "dsg"\nmax_features = 8')
    (tmp_path / "run.toml").write_text(text)
    server.ask(lambda context: context.add_stream(name=name, subjects=[f"{name}.in.*"]))
    server.ask(lambda context: context.add_stream(name=f"{name}-out", subjects=[f"{name}.out"]))
    return tmp_path / "run.toml"


def publish(server: Server, config: Path, first: int, last: int) -> None:
    name = re.sub(r"\W", "", config.parent.name)

    async def send(context: Any) -> None:
        for i in range(first, last):
            await context.publish(f"{name}.in.{i % 2}", json.dumps({"a": i % 7, "y": i % 2}).encode())

    server.ask(send)


def predictions(server: Server, config: Path) -> int:
    name = re.sub(r"\W", "", config.parent.name)
    return int(server.ask(lambda context: context.stream_info(f"{name}-out")).state.messages)


def test_each_message_is_learned_once_after_a_crash(
    server: Server, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(server, config, 0, 40)
    engine = engine_of(load_config(config))
    engine.run()
    assert engine.outcomes["learned"] == 40
    assert predictions(server, config) == 40
    publish(server, config, 40, 70)
    poll = NatsSource.poll

    def crash(source: NatsSource, timeout: float) -> Any:
        found = poll(source, timeout)
        if found is None:  # all are learned, and no checkpoint has them
            raise RuntimeError("crash")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(NatsSource, "poll", crash)
        engine = engine_of(load_config(config))
        with pytest.raises(RuntimeError, match="crash"):
            engine.run()
    engine = engine_of(load_config(config))
    engine.run()
    assert engine.outcomes["learned"] == 70
    assert predictions(server, config) >= 70  # at least once
    assert "right-horse" not in "".join(
        one.read_bytes().decode(errors="replace") for one in (config.parent / "state").rglob("*") if one.is_file()
    )


def source(server: Server, config: Path, **more: Any) -> NatsSource:
    name = re.sub(r"\W", "", config.parent.name)
    return NatsSource(name, **{"servers": server.url, "user": "alice", "password": "right-horse", **more})


def read(found: NatsSource, count: int) -> list[Any]:
    events: list[Any] = []

    def is_read() -> bool:
        events.extend(found.poll(0.5) or ())
        return len(events) >= count

    wait_for(is_read)
    return events


def test_positions_subjects_and_bad_records(server: Server, config: Path) -> None:
    publish(server, config, 0, 6)
    name = re.sub(r"\W", "", config.parent.name)
    server.ask(lambda context: context.publish(f"{name}.in.0", b"no JSON"))
    whole = source(server, config)
    events = read(whole, 7)
    assert [event.resume for event in events] == [1, 2, 3, 4, 5, 6, 7]
    assert events[-1].record is None
    assert events[-1].error.startswith("Expected valid JSON")
    assert whole.lag() == {(name, ""): 0}
    whole.close()
    part = source(server, config, subject=f"{name}.in.1", until="latest")
    part.seek({name: 2})
    assert [event.record for event in read(part, 2)] == [{"a": 3, "y": 1}, {"a": 5, "y": 1}]
    assert part.poll(0.1) is None
    part.close()
    server.ask(lambda context: context.purge_stream(name))
    gone = source(server, config)
    gone.seek({name: 3})
    with pytest.raises(ValueError, match=r"Expected the message after 3 .* messages were deleted"):
        gone.poll(0.1)
    gone.close()


def test_a_wrong_password_and_a_missing_stream_are_named(server: Server, config: Path) -> None:
    wrong = source(server, config, password="wrong-horse")
    with pytest.raises(GaveUpError, match=rf"NATS at {server.url} says: .*(?i:authorization)") as error:
        wrong.poll(0.1)
    assert "horse" not in str(error.value)
    assert not isinstance(error.value, UnavailableError)  # the engine does not wait for it
    wrong.close()
    missing = NatsSource("NOWHERE", server.url, user="alice", password="right-horse")
    with pytest.raises(UnavailableError, match='expected a stream, got "NOWHERE"'):
        missing.poll(0.1)
    missing.close()
    sink = NatsSink("nowhere", server.url, "alice", "right-horse")
    with pytest.raises(UnavailableError, match="unavailable"):
        sink.open()
    sink.close()
    with pytest.raises(ValueError, match="without a login"):
        NatsSource("A", "nats://alice:right-horse@localhost")


def test_reading_continues_after_an_outage(server: Server, config: Path) -> None:
    publish(server, config, 0, 3)
    found = source(server, config)
    assert len(read(found, 3)) == 3
    server.stop()
    with pytest.raises(UnavailableError):
        wait_for(lambda: found.poll(0.1) and None)
    server.start()
    publish(server, config, 3, 5)
    assert [event.resume for event in read(found, 2)] == [4, 5]
    found.close()


def test_a_run_waits_for_the_server_of_its_predictions(server: Server, config: Path) -> None:
    events = config.parent / "events.jsonl"
    events.write_text("".join(f'{{"a": {i % 7}, "y": {i % 2}}}\n' for i in range(1500)))
    text = re.sub(r"\[source\.nats\].*?\n\n", f'[source]\npath = "{events}"\n\n', config.read_text(), flags=re.DOTALL)
    config.write_text(text)
    engine = engine_of(load_config(config))
    server_is_back = threading.Timer(2.0, server.start)
    with pytest.MonkeyPatch.context() as patch:
        flush = NatsSink.flush

        def flush_to_a_server_that_stops(sink: NatsSink) -> None:
            if engine.outcomes["learned"] and not server_is_back.is_alive() and not server_is_back.finished.is_set():
                server.stop()
                server_is_back.start()
            flush(sink)

        patch.setattr(NatsSink, "flush", flush_to_a_server_that_stops)
        engine.run()
    assert engine.outcomes["learned"] == 1500
    assert server_is_back.finished.is_set()
    assert predictions(server, config) >= 1500  # at least once


@pytest.mark.parametrize(("limit", "size"), [(-1, 1_100_000), (5_000, 6_000)])
def test_a_record_that_is_too_large_is_refused_and_the_others_are_published_once(
    server: Server, config: Path, limit: int, size: int
) -> None:
    """Too large for the server, or for the stream."""
    name = re.sub(r"\W", "", config.parent.name)
    server.ask(lambda context: context.add_stream(name=f"{name}-small", subjects=[f"{name}.small"], max_msg_size=limit))
    sink = NatsSink(f"{name}.small", server.url, "alice", "right-horse")
    sink.open()
    for number in range(40):
        sink.write({"n": number, "text": "x" * (size if number == 17 else 1)}, b"%d" % number)
    with pytest.raises(RecordsRefusedError, match=rf"got {size + 18:,}.* - for subject {name}\.small$") as error:
        sink.flush()
    [(record, key, _)] = error.value.refused
    assert (record["n"], key) == (17, b"17")
    sink.close()

    async def numbers(context: Any) -> list[int]:
        state = (await context.stream_info(f"{name}-small")).state
        return [json.loads((await context.get_msg(f"{name}-small", i)).data)["n"] for i in range(1, state.last_seq + 1)]

    assert sorted(server.ask(numbers)) == [number for number in range(40) if number != 17]


def test_a_run_with_a_message_that_is_too_large(server: Server, config: Path) -> None:
    """The names of its labels are long, so that later predictions with the shares of all of them are too large."""
    name = re.sub(r"\W", "", config.parent.name)
    server.ask(lambda context: context.update_stream(name=f"{name}-out", subjects=[f"{name}.out"], max_msg_size=1_000))

    async def send(context: Any) -> None:
        for i in range(40):
            label = "long" * 180 if i == 17 else f"y{i % 2}"
            await context.publish(f"{name}.in.0", json.dumps({"a": i % 7, "y": label}).encode())

    server.ask(send)
    engine = engine_of(load_config(config))
    engine.run()
    assert engine.outcomes["learned"] == 40
    letters = [json.loads(line) for line in (config.parent / "state" / "dead_letters.jsonl").read_text().splitlines()]
    assert letters
    assert {letter["kind"] for letter in letters} == {"output"}
    assert predictions(server, config) == 40 - len(letters)


def test_a_failure_of_one_message_publishes_only_that_one_again() -> None:
    class Context:
        failing, sent = {b'{"n":2}'}, []

        async def publish(self, subject: str, content: bytes) -> None:
            if content in self.failing:
                raise nats.errors.TimeoutError
            self.sent.append(content)

    sink, context = NatsSink("s"), Context()
    for number in range(4):
        sink.write({"n": number})
    with pytest.raises(nats.errors.TimeoutError):
        asyncio.run(sink._publish(context))
    context.failing = set()
    asyncio.run(sink._publish(context))
    assert context.sent == [b'{"n":0}', b'{"n":1}', b'{"n":3}', b'{"n":2}']


def test_a_subject_without_permission_ends_the_run(server: Server, config: Path) -> None:
    server.ask(lambda context: context.add_stream(name="DENIED", subjects=["denied"]))
    sink = NatsSink("denied", server.url, "reader", "right-horse")
    sink.open()
    sink.write({"n": 1})
    with pytest.raises(GaveUpError, match=r'says: .*(?i:permissions violation for publish to "denied")'):
        sink.close()
