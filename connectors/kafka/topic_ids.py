"""Ids of topics, which tell a topic from an earlier one of the same name: its offsets are others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from streamkernel.connectors.base import UnavailableError
from streamkernel.connectors.kafka.clients import Consumer


class TopicReplacedError(ValueError):
    """A topic was deleted and made again, so offsets of the first one say nothing about the second."""


class TopicIds:
    """Compares the ids of topics with those that were found first.

    Parameters
    ----------
    topics
        Their names.

    Attributes
    ----------
    known : dict
        The first id of each topic; those of a checkpoint, if there is one. Brokers before Kafka 2.8 have none.
    """

    def __init__(self, topics: Sequence[str]) -> None:
        self.known: dict[str, str] = {}
        self._topics = topics

    def replaced(self, client: Consumer) -> list[str]:
        """Return the topics that have another id now; brokers that are unavailable are asked next time."""
        ids: Mapping[str, str] = {}
        with suppress(UnavailableError):  # the search for topics and brokers reports it
            ids = client.topic_ids(self._topics)
        return [topic for topic, new in ids.items() if self.known.setdefault(topic, new) != new]

    def check(self, client: Consumer) -> None:
        """Raise a `TopicReplacedError` if a topic has another id."""
        for topic in self.replaced(client):
            raise replaced_error(topic)


def replaced_error(topic: str) -> TopicReplacedError:
    """Return the error that names a topic that was made again."""
    return TopicReplacedError(
        f'Expected the topic "{topic}" that was read until now, got a new one of the same name: it was deleted and '
        "made again, so its offsets are others. Read it from its start with an empty state.directory; [model] from = "
        "the old directory keeps what was learned"
    )
