"""The broker of the fault tests, and undisturbed runs on it to compare with."""

from __future__ import annotations

from collections.abc import Iterator

import brokers
import pytest
from faults.kafka_runs import FastRunInBatches, N, Run, RunInBatches, records
from waiting import LIMIT


@pytest.fixture(scope="session")
def servers(apache):
    """Return the address of the broker."""
    return f"127.0.0.1:{apache.port}"


@pytest.fixture(scope="session")
def calm(servers, tmp_path_factory):
    """An undisturbed run over one partition, "events"."""
    brokers.make_topics(servers, names=["events"])
    brokers.produce(servers, "events", records(N))
    run = Run(servers, tmp_path_factory.mktemp("calm"), "events")
    assert run.start().wait(LIMIT) == 0, run.log()  # the first on a machine compiles
    return run


@pytest.fixture(scope="session", params=[RunInBatches, FastRunInBatches])
def calm_in_batches(request, servers, tmp_path_factory):
    """An undisturbed run that predicts and learns events in batches, over one partition."""
    kind = request.param
    brokers.make_topics(servers, names=[kind.__name__])
    brokers.produce(servers, kind.__name__, records(kind.n_records))
    run = kind(servers, tmp_path_factory.mktemp(kind.__name__), kind.__name__)
    assert run.start().wait(LIMIT) == 0, run.log()
    return run


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Kill the processes that a failed test has left running."""
    yield
    Run.kill_all()
