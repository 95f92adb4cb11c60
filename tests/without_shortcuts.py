"""A plugin of pytest, `-p without_shortcuts`: numba compiles in its own way, as with a release that was not tried."""

import sys

sys.modules["streamkernel.jit.shortcuts"] = None  # type: ignore[assignment]
