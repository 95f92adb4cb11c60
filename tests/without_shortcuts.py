"""A plugin of pytest, `-p without_shortcuts`: numba compiles in its own way, as with a release that was not tried."""

import sys


def pytest_load_initial_conftests():
    """Hide the replacements before anything imports them."""
    sys.modules["streamkernel.jit.shortcuts"] = None
