"""A source that several workers read together, with the interface that the engine uses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from streamkernel.connectors import Event, PartitionedSource, Position, Source


class CheckpointOnlySource(Source):
    """The positions of a divided source; the workers do the reading.

    Parameters
    ----------
    divided
        The source.
    options, topics
        Connection options and topics, for a run that writes to Kafka in transactions with its checkpoints.
    """

    group = None
    """Positions are in the checkpoint alone, so no group has offsets to commit."""

    def __init__(self, divided: PartitionedSource, options: Any = None, topics: tuple[str, ...] = ()) -> None:
        self.divided = divided
        self.options, self.topics = options, topics
        self._positions: Mapping[str, Position] = {}

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Set the positions of the streams."""
        self._positions = positions

    def resume(self, positions: Mapping[str, Position], *, is_older: bool = False) -> None:
        """Set the positions of the streams."""
        self.seek(positions)

    def prepare(self, deadline: float = math.inf) -> Mapping[str, Any]:
        """Return the values of the divided source, and that workers read it without a consumer group."""
        return {**self.divided.prepare(deadline), "is_divided": True}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Pass on what a checkpoint stores."""
        self.divided.restore(saved)

    def poll(self, timeout: float) -> list[Event] | None:
        """Return no events, because the workers read them."""
        return []

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return the lag after the last round."""
        return self.divided.lag(self._positions)

    def close(self) -> None:
        """Close the source."""
        self.divided.close()
