"""The engine: events in, a model that learns, predictions and checkpoints out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamkernel.engine.engine import Engine

__all__ = ["Engine"]


def __getattr__(name: str) -> Any:
    """Import the engine where it is used: pipelines are saved by modules of this package, without the extra."""
    if name != "Engine":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from streamkernel.engine.engine import Engine

    return Engine
