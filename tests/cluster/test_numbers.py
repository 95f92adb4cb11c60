"""The metrics of a cluster: each worker's work under its own number, and each event once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from river import metrics
from rounds import HerePool

from streamkernel import KernelClassifier, learners
from streamkernel.cluster import ClusterRunner
from streamkernel.cluster.assemble import CheckpointOnlySource
from streamkernel.cluster.workers import Replica
from streamkernel.connectors import PartitionedFiles, Position, WorkAssignment
from streamkernel.engine import Engine

WORKERS, EVENTS, BAD = 2, 600, 7


class FirstIsIdle(PartitionedFiles):
    """Files of which the first worker gets none, like a worker whose partitions have no new records."""

    def plan(self, positions: Mapping[str, Position], workers: int, events: int) -> list[WorkAssignment] | None:
        assignments = super().plan(positions, workers, events)
        return None if assignments is None else [WorkAssignment({}, {}, 0), *assignments]


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    for part in range(WORKERS):
        lines = [json.dumps({"a": i * 37 % 101 / 50.5 - 1.0, "y": i % 3 == 0}) for i in range(EVENTS - BAD)]
        (tmp_path / f"part-{part}.jsonl").write_text("\n".join([*lines, *["no record"] * BAD]) + "\n")

    def divided() -> PartitionedFiles:
        return FirstIsIdle(tmp_path / "part-*.jsonl")

    def replica() -> Replica:
        return Replica(divided, metric=metrics.Accuracy(), writes=False, label="y")

    pool: Any = HerePool(replica)
    model = KernelClassifier(learner=learners.DSG(features_per_seed=16), max_features=64)
    source = CheckpointOnlySource(divided())
    runner = partial(ClusterRunner, divided=source.divided, pool=pool, workers=lambda: WORKERS, events_per_round=100)
    return Engine(model, source, runner=runner, label="y", metric=metrics.Accuracy())


def test_each_worker_is_reported_under_its_own_number_and_each_event_once(engine: Engine) -> None:
    engine.run()
    found = engine.cluster
    assert found is not None
    assert engine.outcomes["learned"] == WORKERS * (EVENTS - BAD)
    assert engine.outcomes["dead_letter"] == WORKERS * BAD
    events = {1: EVENTS + 200, 2: EVENTS - 200}  # the first file is at its end before, as its beginning is read alone
    assert {worker: n for worker, (n, _) in found.by_worker.items()} == events
    assert [sum(of) for of in zip_longest(*(one.events for one in found.recent), fillvalue=0)] == [0, *events.values()]
    assert all(one.events[0] == one.seconds[0] == 0 for one in found.recent)
    for worker, (_, seconds) in found.by_worker.items():
        assert seconds == pytest.approx(sum(one.seconds[worker] for one in found.recent if len(one.seconds) > worker))
    assert len(found.recent) == found.rounds.buckets[-1][1] == found.merges.buckets[-1][1]
    assert found.last == found.recent[-1]
    assert all(0.0 <= one.merge_seconds <= one.round_seconds for one in found.recent)
