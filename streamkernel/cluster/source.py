"""A source that several workers read together, with the interface that the engine uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streamkernel.connectors import Event, PartitionedSource, Position
from streamkernel.connectors.kafka.topic_ids import TopicSource


class CheckpointOnlySource:
    """The positions of a divided source; the workers do the reading.

    Parameters
    ----------
    divided
        The source.
    options, topics
        Connection options and topics, for a run that writes to Kafka in transactions with its checkpoints.
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
        """Do nothing: a divided source is never revoked."""

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Set the positions of the streams."""
        self._positions = positions

    again = rewind = seek

    def expect_topics(self, ids: Mapping[str, str]) -> None:
        """Refuse topics with other ids than these, which a checkpoint has."""
        if isinstance(self.divided, TopicSource):
            self.divided.expect_topics(ids)

    def topic_ids(self) -> Mapping[str, str]:
        """Return the ids of the topics, for a checkpoint."""
        return self.divided.topic_ids() if isinstance(self.divided, TopicSource) else {}

    def poll(self, timeout: float) -> list[Event] | None:
        """Return no events, because the workers read them."""
        return []

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return the lag after the last round."""
        return self.divided.lag(self._positions)

    def close(self) -> None:
        """Close the source."""
        self.divided.close()
