"""Brokers for the tests of topics, each with both clients."""

from __future__ import annotations

import os

import brokers
import pytest
from topics import made

from streamkernel.connectors.kafka import Options
from streamkernel.connectors.kafka.options import CLIENTS

KINDS = ["noida", pytest.param("apache", marks=pytest.mark.java)]


@pytest.fixture(scope="session", params=["given"] if os.environ.get(brokers.SERVERS) else KINDS)
def servers(request, tmp_path_factory):
    if request.param == "given":
        yield os.environ[brokers.SERVERS]
    elif request.param == "noida":
        with brokers.noida(tmp_path_factory.mktemp("noida")) as broker:
            yield f"127.0.0.1:{broker.port}"
    else:
        yield f"127.0.0.1:{request.getfixturevalue('apache').port}"


@pytest.fixture(params=CLIENTS)
def options(servers, request):
    return Options(servers, client=request.param)


@pytest.fixture
def topic(servers):
    return made(servers)
