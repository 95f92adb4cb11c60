"""The interpreters that the package supports."""

from __future__ import annotations

import sys
import sysconfig


def check_interpreter() -> None:
    """Raise an error in a free-threaded Python: learning relies on the global interpreter lock.

    Raises
    ------
    ImportError
        If the interpreter was built without the lock, or runs without it.
    """
    if sysconfig.get_config_var("Py_GIL_DISABLED") or not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ImportError(
            "streamkernel relies on Python's global interpreter lock and cannot run in a free-threaded build; "
            f"use the standard build of Python {sys.version_info.major}.{sys.version_info.minor}"
        )
