"""Objects of Python that a configuration names: a decoder, or a source of tokens for a login."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def function_at(name: str, folder: Path) -> Callable[..., Any]:
    """Return a function or a class of an installed module, or of a file in a folder.

    Parameters
    ----------
    name : str
        The module and the name in it, as ``"package.module:name"``.
    folder : Path
        The folder, which is searched last, so that no file in it hides a module.

    Raises
    ------
    ValueError
        If there is no such function.

    Examples
    --------
    >>> function_at("json:loads", Path())("[1]")
    [1]
    """
    module, _, attribute = name.partition(":")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        importlib.invalidate_caches()
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f'Expected a function, "package.module:name", got "{name}": {error}') from error
    if not callable(found):
        raise ValueError(f'Expected a function, got {type(found).__name__} at "{name}"')
    called: Callable[..., Any] = found
    return called
