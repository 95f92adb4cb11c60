"""The versions of installed packages."""

from __future__ import annotations

import functools
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
