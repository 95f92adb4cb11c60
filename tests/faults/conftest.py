"""One broker for all tests of faults, and a run on it that is left alone."""

from __future__ import annotations

import brokers
import pytest
from faults.kafka_runs import N, Run, records


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    if not brokers.has_java():
        pytest.skip("Apache Kafka needs java and mvn")
    with brokers.apache(tmp_path_factory.mktemp("apache")) as (broker,):
        yield broker


@pytest.fixture(scope="session")
def servers(broker):
    """Its address."""
    return f"127.0.0.1:{broker.port}"


@pytest.fixture(scope="session")
def calm(servers, tmp_path_factory):
    """A run over one partition, "events", that is left alone."""
    brokers.make_topics(servers, names=["events"])
    brokers.produce(servers, "events", records(N))
    run = Run(servers, tmp_path_factory.mktemp("calm"), "events")
    assert run.start().wait(300) == 0, run.log()  # the first on a machine compiles
    return run
