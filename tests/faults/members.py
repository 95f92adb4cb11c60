"""Members of a group that join and leave at random, and checks of their results.

``python tests/faults/members.py --changes 50 --events 200000`` is a long run: three members over twelve partitions.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import brokers
from faults.kafka_runs import Run, audited, records, tell
from forked import Process
from waiting import LIMIT

NAMES = ["one", "two", "three"]
OPTIONS = {
    "kafka-python": "session_timeout_ms = 6000, heartbeat_interval_ms = 500",
    "confluent-kafka": '"session.timeout.ms" = 6000, "heartbeat.interval.ms" = 500',
}
"""Of the clients: with these the group soon sees that a member is gone."""

PROTOCOLS = {
    "cooperative-sticky": f'{OPTIONS["confluent-kafka"]}, "partition.assignment.strategy" = "cooperative-sticky"',
    "consumer": '"group.protocol" = "consumer"',  # KIP-848; brokers decide when a member is gone
}
"""Options of confluent-kafka with which members keep, in a rebalance, the partitions that do not move."""


def come_and_go(run: Run, changes: int, rng: random.Random) -> dict[str, Process]:
    """Let members leave at random moments, by kill -9 or SIGTERM, and join again; return all of them, running."""
    members = {name: run.start(name) for name in NAMES}
    for _ in range(changes):
        time.sleep(rng.uniform(1.0, 4.0))
        name = rng.choice(NAMES)
        if name not in members:
            members[name] = run.start(name)
            continue
        leaving = members.pop(name)
        (leaving.kill if rng.random() < 0.5 else leaving.terminate)()
        assert leaving.wait(LIMIT) <= 0, run.log(name)  # by the signal, if it had not started yet
    return {name: members.get(name) or run.start(name) for name in NAMES}


def paced(found: Sequence[Any], seconds: float) -> Iterator[Any]:
    """Yield records at a constant rate over some seconds."""
    began = time.monotonic()
    for i, record in enumerate(found):
        time.sleep(max(0.0, began + seconds * i / len(found) - time.monotonic()) if i % 50 == 0 else 0.0)
        yield record


def shared(run: Run, n: int, partitions: int, changes: int, rng: random.Random) -> None:
    """Write `n` records to the topic while members come and go, and let the members stop when all are learned."""
    written = paced(records(n), 2.5 * changes)
    writer = threading.Thread(target=brokers.produce, args=(run.servers, run.topic, written, partitions))
    writer.start()
    members = come_and_go(run, changes, rng)
    writer.join()
    run.wait_for(lambda: run.committed() >= n, LIMIT + n / 100)
    for process in members.values():
        process.terminate()
    ends = {process.wait(LIMIT) for process in members.values()}
    assert ends <= {0, -signal.SIGTERM}, run.log_of_all()  # one may not have started yet


def main() -> None:
    """Let members join and leave many times, and check what they have learned."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=50, help="how often a member is stopped or started")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--client", choices=OPTIONS, default="kafka-python")
    parser.add_argument("--protocol", choices=PROTOCOLS, help="of groups, with confluent-kafka")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, brokers.apache(Path(name, "broker")) as (broker,):
        servers = f"127.0.0.1:{broker.port}"
        brokers.make_topics(servers, names=["events"], partitions=options.partitions)
        told = {"options": OPTIONS[options.client], "client": options.client}
        if options.protocol:
            told = {"options": PROTOCOLS[options.protocol], "client": "confluent-kafka"}
        run = Run(servers, Path(name), "events", source="", audited=True, **told)
        print(f"a broker at {servers}; {options.events:,} records are written to {options.partitions} partitions")
        print("and learned by three members; at random moments one leaves, or is killed with kill -9, or joins again")
        began = time.perf_counter()
        shared(run, options.events, options.partitions, options.changes, random.Random(options.seed))
        learned = {name: len(run.learned(name)) for name in NAMES}
        print(f"{options.changes} changes in {time.perf_counter() - began:.0f} s; learned: {json.dumps(learned)}")
        tell(audited(run, NAMES, options.events))


if __name__ == "__main__":
    main()
