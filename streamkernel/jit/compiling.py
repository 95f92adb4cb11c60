"""numba's compiler without unnecessary work, or unchanged for releases of numba that were not tried."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Any

import numba
from numba.core import config
from numba.core.compiler_lock import global_compiler_lock

log = logging.getLogger("streamkernel")

TRIED = ("0.66", "0.67", "0.68")
"""The releases of numba whose compilation is shortened: `make test-numbas` has tried it."""

RELEASE = numba.__version__.rpartition(".")[0]

if vars(config)["DISABLE_JIT"]:
    raise ImportError(
        "streamkernel cannot run without numba's compiler, which NUMBA_DISABLE_JIT=1 or disable_jit in "
        ".numba_config.yaml switches off; remove that setting"
    )
try:
    if RELEASE not in TRIED:
        raise ImportError(f"one of {', '.join(TRIED)}")
    from streamkernel.jit import from_python, shortcuts
except (ImportError, AttributeError) as missing:
    if RELEASE in TRIED:
        log.warning(
            "compiling takes longer: numba %s has other internals than expected: %s", numba.__version__, missing
        )
    DURATION = f"a minute or two with numba {RELEASE}, and less with {', '.join(TRIED)}"
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
    from_python.use()
    DURATION = "some seconds"
    IS_SHORT = True
    own_compiler, linked_compiler = {"pipeline_class": shortcuts.Once}, {"pipeline_class": shortcuts.OnlyLinked}
    only_what_is_used, quick_to_compare = shortcuts.only_what_is_used, shortcuts.quick_to_compare
    hold = from_python.hold


CALLS = "tuples by reference, or held" if IS_SHORT else "tuples by value"
"""The calling convention of compiled functions: functions with different conventions cannot call each other."""
