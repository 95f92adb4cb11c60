"""The long-running part: events in, a model that learns, predictions and checkpoints out."""

from streamkernel.engine.runner import Engine

__all__ = ["Engine"]
