"""The engine: events in, a model that learns, predictions and checkpoints out."""

from streamkernel.engine.engine import Engine

__all__ = ["Engine"]
