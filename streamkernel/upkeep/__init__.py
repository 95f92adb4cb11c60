"""Periodic pruning and refitting of a running model."""

from __future__ import annotations

from typing import Any

from streamkernel.upkeep.tasks import Pruning, Refit

__all__ = ["Pruning", "Refit", "apply"]


def __getattr__(name: str) -> Any:
    """Import the implementation when it is first used, because importing the solvers is slow."""
    if name != "apply":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from streamkernel.upkeep.work import apply

    return apply
