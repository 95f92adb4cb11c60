"""The versions of Python and of installed packages."""

from __future__ import annotations

import functools
import sys
import sysconfig
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version


@functools.cache
def package_version(package: str) -> str:
    """Return the version of an installed package, or "unknown" if it runs from a folder without installation.

    Examples
    --------
    >>> package_version("no-such-package")
    'unknown'
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def check_interpreter() -> None:
    """Raise an error in a free-threaded Python or a subinterpreter: learning relies on the global interpreter lock."""
    if sysconfig.get_config_var("Py_GIL_DISABLED") or not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise ImportError(
            "streamkernel relies on Python's global interpreter lock and cannot run in a free-threaded build; "
            f"use the standard build of Python {sys.version_info.major}.{sys.version_info.minor}"
        )
    if _is_subinterpreter():
        raise ImportError(
            "streamkernel cannot run in a subinterpreter, where NumPy and numba do not work; import it in the main "
            "interpreter of a process, for mod_wsgi by WSGIApplicationGroup %{GLOBAL}"
        )


def _is_subinterpreter() -> bool:
    for name in ("_interpreters", "_xxsubinterpreters"):  # the module's name from Python 3.13 on, and before
        with suppress(ImportError):
            interpreters = import_module(name)
            return bool(interpreters.get_current() != interpreters.get_main())
    return False
