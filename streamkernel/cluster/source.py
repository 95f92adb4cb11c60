"""A source that several workers read together, with the interface that the engine uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from connectors import Event, PartitionedSource, Position


class CheckpointOnlySource:
    """Has the positions of a divided source; it is the workers that read.

    Parameters
    ----------
    divided
        The source.
    options, topics
        Of Kafka, where a run writes to topics in transactions with its checkpoints.
    """

    is_divided = True
    """Workers read the streams, without a consumer group."""

    group = None
    """Positions are in the checkpoint alone, so no group has offsets to commit."""

    def __init__(self, divided: PartitionedSource, options: Any = None, topics: tuple[str, ...] = ()) -> None:
        self.divided = divided
        self.options, self.topics = options, topics
        self._positions: Mapping[str, Position] = {}

    def listen(self, revoked: Callable[[list[str]], None], lost: Callable[[list[str]], None]) -> None:
        """Do nothing: no one else gets the streams."""

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Take note of the positions of the streams."""
        self._positions = positions

    again = rewind = seek

    def poll(self, timeout: float) -> list[Event] | None:
        """Return nothing, as workers do."""
        return []

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return what comes after the last round."""
        return self.divided.lag(self._positions)

    def close(self) -> None:
        """Close the source."""
        self.divided.close()
