"""numba's compiler without unnecessary work, or unchanged for versions of numba that are not supported."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Any

from numba.core import config
from numba.core.compiler_lock import global_compiler_lock

log = logging.getLogger("streamkernel")

if vars(config)["DISABLE_JIT"]:
    raise ImportError(
        "streamkernel cannot run without numba's compiler, which NUMBA_DISABLE_JIT=1 or disable_jit in "
        ".numba_config.yaml switches off; remove that setting"
    )
try:
    from streamkernel.jit import by_reference, from_python, shortcuts
except (ImportError, AttributeError) as missing:
    log.warning("compiling takes longer: expected numba as it is named in pyproject.toml, got one without %s", missing)
    IS_SHORT = False
    own_compiler: dict[str, Any] = {}
    linked_compiler: dict[str, Any] = {}

    def only_what_is_used() -> AbstractContextManager[Any]:
        """Prevent other threads from compiling meanwhile."""
        lock: AbstractContextManager[Any] = global_compiler_lock
        return lock

    def quick_to_compare(dispatcher: Any) -> Any:
        """Return a compiled function unchanged."""
        return dispatcher

    def hold(value: Any) -> Any:
        """Return a tuple unchanged."""
        return value

else:
    by_reference.use()
    IS_SHORT = True
    own_compiler, linked_compiler = {"pipeline_class": shortcuts.Once}, {"pipeline_class": shortcuts.OnlyLinked}
    only_what_is_used, quick_to_compare = shortcuts.only_what_is_used, shortcuts.quick_to_compare
    hold = from_python.hold

CALLS = "tuples by reference, or held" if IS_SHORT else "tuples by value"
"""The calling convention of compiled functions: functions with different conventions cannot call each other."""
