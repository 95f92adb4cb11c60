"""A demonstration stream: ``python -m dashboards.events SERVERS TOPIC`` writes 200 events per second, without end.

The inputs are two numbers, and the class is not linear in them. Every ten minutes the classes are exchanged, and some
records are broken.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator

PER_SECOND = 200
TURN = 600 * PER_SECOND
BROKEN = 2000
"""One record in this many is broken."""


def values(seed: int = 0) -> Iterator[bytes]:
    """Yield the values of records.

    Examples
    --------
    >>> next(values())
    b'{"a": 0.9417, "b": -1.3966, "y": false}'
    """
    draws = random.Random(seed)
    n = 0
    while True:
        a, b = round(draws.gauss(0, 1), 4), round(draws.gauss(0, 1), 4)
        n += 1
        if n % BROKEN == 0:
            yield b"this is no record"
        else:
            yield json.dumps({"a": a, "b": b, "y": (a * b > 0) != (n // TURN % 2 == 1)}).encode()


def main(servers: str, topic: str) -> None:
    """Send the records."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=servers)
    for value in values():
        producer.send(topic, value)
        time.sleep(1.0 / PER_SECOND)


if __name__ == "__main__":
    main(*sys.argv[1:])
