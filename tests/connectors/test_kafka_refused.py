"""Brokers that refuse a client: the error states the cause, the clients log nothing else, and nothing leaks."""

from __future__ import annotations

import gc
import multiprocessing
import time
from pathlib import Path
from typing import ClassVar

import pytest
from secured import PASSWORD, USER
from waiting import wait_for

from streamkernel.connectors import UnavailableError
from streamkernel.connectors.kafka import Options
from streamkernel.connectors.kafka.kafka_python.connecting import connect
from streamkernel.connectors.kafka.options import CLIENTS

SOON = {"kafka-python": {"bootstrap_timeout_ms": 1500}, "confluent-kafka": {"socket.connection.setup.timeout.ms": 1500}}
NAMES = {
    "kafka-python": {},
    "confluent-kafka": {
        "sasl_plain_username": "sasl.username",
        "sasl_plain_password": "sasl.password",
        "ssl_cafile": "ssl.ca.location",
    },
}
"""Names of options that are not those of kafka-python with dots."""


@pytest.fixture(params=CLIENTS)
def client(request):
    return request.param


def options(client, port, folder=None, **given):
    names = NAMES[client]
    separator = "_" if client == "kafka-python" else "."
    translated = {names.get(name, name.replace("_", separator)): value for name, value in given.items()}
    more = {} if folder is None else {"folder": folder}
    return Options(f"127.0.0.1:{port}", {**SOON[client], **translated}, client, **more)


def login(client, secured, password):
    return options(
        client,
        secured.ports["SASL_PLAINTEXT"],
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username=USER,
        sasl_plain_password=password,
    )


def is_connected(found):
    asked = found.consumer()
    try:
        return len(asked.partitions_of("there")) == 1
    finally:
        asked.close()


def noise(caplog):
    """Return what the clients log, except that nothing is encrypted, and of stopped brokers of earlier tests."""
    others = ("in the clear", "ECONNREFUSED", "No node available")
    lines = [line.getMessage() for line in caplog.records]
    return [line for line in lines if not any(other in line for other in others)]


@pytest.mark.java
def test_a_wrong_password_is_named(client, secured, caplog):
    wrong = login(client, secured, "wrong-horse")
    for make in (wrong.consumer, wrong.producer):
        with pytest.raises(UnavailableError) as error:
            make()
        assert f"Kafka at 127.0.0.1:{secured.ports['SASL_PLAINTEXT']} rejects the login: " in str(error.value)
        assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in str(error.value)
        assert "horse" not in str(error.value)
    assert noise(caplog) == []
    assert is_connected(login(client, secured, PASSWORD))


@pytest.mark.java
def test_a_certificate_that_is_not_trusted_is_named(client, secured, caplog):
    with pytest.raises(UnavailableError) as error:
        options(client, secured.ports["SSL"], security_protocol="SSL").consumer()
    names = {"kafka-python": "ssl_cafile", "confluent-kafka": "ssl.ca.location"}
    assert f"Kafka at 127.0.0.1:{secured.ports['SSL']} cannot be trusted (option {names[client]}): " in str(error.value)
    assert "certificate verify failed" in str(error.value)
    assert noise(caplog) == []


@pytest.mark.java
def test_paths_are_relative_to_the_folder_of_the_options(client, secured):
    port = secured.ports["SSL"]
    assert is_connected(options(client, port, secured.folder, security_protocol="SSL", ssl_cafile="ca.pem"))


def test_a_missing_file_is_named(client, tmp_path):
    path = tmp_path / "nowhere" / "ca.pem"
    with pytest.raises(ValueError, match=rf"got no such file or directory - at {path}"):
        options(client, 1, tmp_path, ssl_cafile="nowhere/ca.pem")


def test_late_steps_of_kafka_python_are_not_logged(caplog):
    """On a busy machine a step takes long because another process has the processor."""
    done = []

    async def late():
        time.sleep(0.2)
        done.append("late")

    class Client:
        DEFAULT_CONFIG: ClassVar = {}

        def __new__(cls, kafka_client, **_):
            return kafka_client()

    client = connect(Client, "127.0.0.1:1", {})
    client._net.call_soon(late)
    client._net.poll(timeout_ms=0)
    client.close()
    assert done == ["late"]
    assert noise(caplog) == []


def test_failed_attempts_leave_no_threads_or_files(client):
    """An outage of brokers may last for days.

    The attempts are in a new process. In this one, clients of earlier tests try to reach brokers that were stopped,
    and pytest keeps the log lines of that, whose errors keep their sockets open.
    """
    process = multiprocessing.get_context("spawn").Process(target=attempt, args=(client,))
    process.start()
    process.join()
    assert process.exitcode == 0


def attempt(client):
    """Fail to connect three times, and wait until as few threads and files are open as before."""
    refused = options(client, 1)

    def count():
        gc.collect()  # tracebacks keep clients of librdkafka
        return [len([*Path(f"/proc/self/{what}").iterdir()]) for what in ("task", "fd")]

    before = count()
    for make in (refused.consumer, refused.producer, lambda: refused.producer("transactional")):
        with pytest.raises(UnavailableError, match="cannot be reached"):
            make()
    wait_for(  # librdkafka ends its threads asynchronously
        lambda: all(now <= then for now, then in zip(count(), before, strict=True)),
        what=lambda: f"{count()} threads and files, {before} before",
    )
