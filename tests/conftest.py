"""What every test shares: hypothesis draws the same examples at every run, and no test is skipped unseen."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None, max_examples=50)
settings.load_profile("repeatable")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line what was skipped, and how to get it; where everything must be there, fail."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        reasons = sorted({report.longrepr[2].removeprefix("Skipped: ") for report in skipped})
        terminalreporter.write_line(f"{len(skipped)} skipped: {'; '.join(reasons)}", yellow=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run with skipped tests where STREAMKERNEL_NO_SKIPS is set."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("STREAMKERNEL_NO_SKIPS") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
