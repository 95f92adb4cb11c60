"""The limits of the records of a topic, and an upper bound of the size of a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from streamkernel.connectors.kafka.clients import Headers

if TYPE_CHECKING:
    from streamkernel.connectors.kafka.options import Options

LIMITS = {"max_request_size": 1_048_576, "message.max.bytes": 1_000_000}
"""Options of the clients with the largest size in bytes, and their defaults."""

COMPRESSION = "compression.type", "compression.codec"
"""Names of the option that compresses batches, with dots."""

OVERHEAD = 100
"""Bytes of a batch and of a record besides its parts, at most."""

LENGTH = 5
"""Bytes of the length of a part, at most."""


class TopicLimits(NamedTuple):
    """The limits of the records of a topic.

    Parameters
    ----------
    largest
        Largest size of a record in bytes, before compression.
    batch
        Largest size of a batch in bytes, if it is known.
    needs_keys
        Whether each record must have a key, as in a compacted topic.
    """

    largest: int
    batch: int | None = None
    needs_keys: bool = False

    @classmethod
    def of(cls, options: Options, settings: Mapping[str, str]) -> TopicLimits:
        """Return the limits that follow from the options of a client, and from the settings of the topic.

        Without compression, the brokers' limit of a batch is a limit of each record.

        Examples
        --------
        >>> from streamkernel.connectors.kafka.options import Options
        >>> TopicLimits.of(Options("localhost:9092"), {"max.message.bytes": "9000", "cleanup.policy": "compact"})
        TopicLimits(largest=9000, batch=8900, needs_keys=True)
        >>> TopicLimits.of(Options("localhost:9092", {"max_request_size": 7000}), {})
        TopicLimits(largest=7000, batch=None, needs_keys=False)
        """
        name = next(name for name in LIMITS if options.separator in name)
        largest = int(options.given.get(name, LIMITS[name]))
        needs_keys = "compact" in settings.get("cleanup.policy", "")
        if "max.message.bytes" not in settings:
            return cls(largest, None, needs_keys)
        bytes_of_brokers = int(settings["max.message.bytes"])
        kinds = {str(options.given.get(one.replace(".", options.separator))) for one in COMPRESSION}
        if kinds <= {"None", "none"}:
            largest = min(largest, bytes_of_brokers)
        return cls(largest, max(bytes_of_brokers - OVERHEAD, 1), needs_keys)


def size_of(value: bytes, key: bytes | None, headers: Headers = ()) -> int:
    """Return an upper bound of the size of a record in bytes, which every client and broker accepts as such.

    Examples
    --------
    >>> size_of(b"{}", b"k", [("h", b"1")])
    125
    """
    size = OVERHEAD + 2 * LENGTH + len(value) + len(key or b"")
    for name, content in headers:
        size += 2 * LENGTH + len(name.encode()) + len(content or b"")
    return size
