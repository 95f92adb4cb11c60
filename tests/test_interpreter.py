"""The package refuses interpreters that it does not support, and numba without its compiler, at import."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

WITHOUT_LOCK = {
    "a free-threaded build": "import sysconfig; sysconfig.get_config_var = lambda name: int(name == 'Py_GIL_DISABLED')",
    "the lock is switched off": "import sys; sys._is_gil_enabled = lambda: False",
}


@pytest.mark.parametrize("probe", WITHOUT_LOCK.values(), ids=WITHOUT_LOCK)
def test_import_refuses_free_threaded_python(probe: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", f"{probe}; import streamkernel"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    last = process.stderr.splitlines()[-1]
    assert last.startswith("ImportError: streamkernel relies on Python's global interpreter lock")


SUBINTERPRETER = """
from importlib import import_module
from sys import version_info
interpreters = import_module("_interpreters" if version_info >= (3, 13) else "_xxsubinterpreters")
arguments = ["legacy"] if version_info >= (3, 13) else []
options = {} if arguments else {"isolated": False}
one = interpreters.create(*arguments, **options)
print(interpreters.run_string(one, "import streamkernel"))
"""


def test_import_refuses_a_subinterpreter() -> None:
    """In which compiling would hang."""
    process = subprocess.run([sys.executable, "-c", SUBINTERPRETER], capture_output=True, text=True, check=False)
    assert "streamkernel cannot run in a subinterpreter" in process.stdout + process.stderr


def test_import_refuses_numba_without_its_compiler() -> None:
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    process = subprocess.run(
        [sys.executable, "-c", "import streamkernel"], env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 1
    assert "NUMBA_DISABLE_JIT=1" in process.stderr.splitlines()[-1]
