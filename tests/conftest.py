"""The configuration of all tests: repeatable examples, one thread for linear algebra, and a count of tests left out."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy: its threads spin, and other processes want the cores

import brokers
import pytest
import secured as secured_broker
from hypothesis import HealthCheck, settings

settings.register_profile(
    "all", derandomize=True, deadline=None, database=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("all"), max_examples=15)
settings.load_profile("all")  # `make test` says --hypothesis-profile=quick

GROUPS = {"java": "servers", "ray": "servers", "prometheus": "servers", "nats": "servers", "browser": "browser"}
"""Of tests with these marks, those of a group run in one process, which starts what they need once; those in the folder
"faults" run in another one, which has a broker of its own."""

LEFT = pytest.StashKey[int]()


@pytest.fixture(autouse=True)
def open_handlers() -> None:
    """Remove log handlers of an earlier test's run, which write to a closed standard error."""
    for handler in list(logging.root.handlers):
        if isinstance(handler, logging.StreamHandler) and getattr(handler.stream, "closed", False):
            logging.root.removeHandler(handler)


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """One Apache Kafka broker for all tests of a process."""
    if not brokers.has_java():
        pytest.skip("Apache Kafka needs java and mvn")
    with brokers.apache(tmp_path_factory.mktemp("apache")) as (broker,):
        yield broker


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[secured_broker.Secured]:
    """One Apache Kafka broker with passwords, certificates and tokens for all tests of a process."""
    if not brokers.has_java():
        pytest.skip("Apache Kafka needs java and mvn")
    with secured_broker.secured(tmp_path_factory.mktemp("secured")) as found:
        brokers.make_topics(f"127.0.0.1:{found.broker.port}", names=["there"])
        yield found


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests together that share a server."""
    for item in items:
        if group := next((GROUPS[mark.name] for mark in item.iter_markers() if mark.name in GROUPS), None):
            if item.path.parent.name == "faults":
                group = "faults"
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave modules and tests, which are more than a million objects, out of all collections of garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT] = 0


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count the tests that do not run."""
    if items:
        items[0].config.stash[LEFT] += len(items)


def pytest_testnodedown(node: Any) -> None:
    """Read the count of a worker; it is the same for all workers."""
    node.config.stash[LEFT] = getattr(node, "workeroutput", {}).get("left", node.config.stash[LEFT])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report in one line how many tests were left out, and in another how many were skipped and why."""
    if config.option.markexpr:
        terminalreporter.write_line(f"{config.stash[LEFT]} tests are left to `make test-all`")
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        reasons = sorted({report.longrepr[2].removeprefix("Skipped: ") for report in skipped})
        terminalreporter.write_line(f"{len(skipped)} skipped: {'; '.join(reasons)}", yellow=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run with skipped tests where STREAMKERNEL_NO_SKIPS is set."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = session.config.stash[LEFT]
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("STREAMKERNEL_NO_SKIPS") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
