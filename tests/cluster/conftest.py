"""The broker of the fault tests, and a check that no driver outlives its test."""

from __future__ import annotations

import os

import pytest
from faults.conftest import servers
from runs import below, kill_all

__all__ = ["servers"]


@pytest.fixture(autouse=True)
def _no_driver_is_left():
    yield
    kill_all([pid for pid, title in below(os.getpid()).items() if "streamkernel.cli" in title])
