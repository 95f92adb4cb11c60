"""The loop of a run on a cluster: rounds of replicas, each merged into one model, and each round one checkpoint."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import orjson
import structlog
from river import compose

from connectors import CommitRefusedError, PartitionedSource, WorkAssignment
from connectors.json_text import to_json
from streamkernel import merging, tensor_file
from streamkernel.cluster import step_merging
from streamkernel.cluster.replica import Report, Task, kernel_of, steps_of
from streamkernel.cluster.source import CheckpointOnlySource
from streamkernel.cluster.workers import Workers
from streamkernel.engine.checkpoint.state_directory import PRIVATE, no_link
from streamkernel.engine.cluster_snapshot import ClusterNumbers, RoundNumbers
from streamkernel.engine.retrying import pause, pause_after
from streamkernel.engine.runner import POLL_SECONDS, Engine
from streamkernel.engine.telemetry.histogram import CHECKPOINT_BOUNDS, Durations
from streamkernel.engine.telemetry.status import point_of
from streamkernel.kernels import bandwidth

log = structlog.get_logger("streamkernel")

PLAN = "round.json"
"""The file of the state directory that says what the round has in it that goes on."""


class ClusterEngine(Engine):
    """Runs a stream through replicas of a model in synchronous rounds.

    1. Plan which worker reads what, and write the plan down.
    2. Have each worker learn its assignment with a replica of the model.
    3. Merge the replicas, in the order of the workers, and judge and write what they predicted.
    4. Commit it all as one checkpoint.

    What is lost before 4 is done again, by the same plan: a round depends on nothing but the checkpoint before it, the
    plan, and what is in the streams. The first events, which decide bandwidths and scales, are learnt by one worker.

    Parameters
    ----------
    model
        A kernel model, or a pipeline of steps that can be merged and one.
    source
        What the workers read together.
    pool
        The workers.
    workers
        Returns how many there are to be in the next round, ``None`` for as many as have something to do and room.
    events_per_round
        Events a worker learns in a round, at most.
    **options
        As for :class:`~streamkernel.engine.runner.Engine`.
    """

    _is_divided = True

    def __init__(
        self,
        model: Any,
        source: CheckpointOnlySource,
        *,
        pool: Workers,
        workers: Callable[[], int | None],
        events_per_round: int,
        **options: Any,
    ) -> None:
        self._pool, self._wanted, self._events_per_round = pool, workers, events_per_round
        self._root: merging.Summary | None = None  # of the model that replicas began with
        self._rounds, self._merges = Durations(CHECKPOINT_BOUNDS), Durations(CHECKPOINT_BOUNDS)
        self._by_worker: dict[int, tuple[int, float]] = {}
        self._n_assignments = 0
        self._failed = 0  # times in a row that the plan or a checkpoint could not be written
        self._last_rounds: deque[RoundNumbers] = deque(maxlen=64)
        super().__init__(model, source, **options)
        self._divided: PartitionedSource = source.divided

    def close(self) -> None:
        """Release the workers too."""
        try:
            super().close()
        finally:
            self._pool.close()

    def _go_on(self, stopping: Callable[[], bool], watch: Callable[[Engine], None] | None) -> None:
        """Do rounds until there is nothing more and all is durable, or we have to stop."""
        with _one_thread():
            while not stopping():
                self.alive = time.monotonic()
                if self._in_doubt and not self._settle(stopping):
                    continue
                if not self._try_to_commit():  # what is not durable must not be built upon: it would be planned anew
                    self._wait(stopping)
                    continue
                assignments = self._ask(self._planned, stopping)
                if assignments is None:
                    return
                if self._begin(assignments):
                    continue
                if self._wanted() is None:
                    assignments = [assignment for assignment in assignments if assignment.events] or assignments[:1]
                if not any(assignment.events for assignment in assignments):
                    self._watchdog(False)
                    self._look()
                    pause(POLL_SECONDS, stopping)
                    continue
                if not self._write_down(assignments):
                    self._wait(stopping)
                    continue
                self._failed = 0
                began = time.perf_counter()
                reports = self._done(assignments, stopping)
                if reports is None:
                    return
                self._moved = time.monotonic()
                self._changed = True
                try:
                    self._merge(reports, began)
                except CommitRefusedError as error:
                    self._doubt(error)
                    continue
                self._try_to_commit()
                self._look()
                if watch is not None:
                    watch(self)

    @property
    def _is_young(self) -> bool:
        """Whether the events are still to come that decide bandwidths and scales."""
        model = kernel_of(self.model)
        return model._is_young

    def _begin(self, assignments: Sequence[WorkAssignment]) -> bool:
        """Take note of where streams begin that have no position yet; return whether that is still to be durable."""
        begun = {
            stream: place
            for assignment in assignments
            for stream, place in assignment.begin.items()
            if place is not None
        }
        new = begun.keys() - self._positions.keys()
        self._positions |= {stream: begun[stream] for stream in sorted(new)}
        self._changed |= bool(new)
        return bool(new)

    def _planned(self) -> list[WorkAssignment] | None:
        """Return what was planned for the round that goes on from here, or plan it."""
        if self._state is not None and (path := no_link(self._state.path / PLAN)).exists():
            found = orjson.loads(path.read_bytes())
            if found.get("positions") == self._positions:
                return [WorkAssignment(*assignment) for assignment in found["shares"]]
        workers, events = (1, bandwidth.FIRST) if self._is_young else (self._most(), self._events_per_round)
        return self._divided.plan(self._positions, workers, events)

    def _write_down(self, assignments: Sequence[WorkAssignment]) -> bool:
        """Make a plan durable; return whether it is."""
        if self._state is None:
            return True
        plan = {"positions": self._positions, "shares": [[*assignment] for assignment in assignments]}
        try:
            tensor_file.put(self._state.path / PLAN, to_json(plan, 0), PRIVATE)
        except OSError as error:
            self._count("checkpoint_failed")
            log.error("the plan of a round could not be written and is tried again later", reason=str(error))
            return False
        return True

    def _wait(self, stopping: Callable[[], bool]) -> None:
        """Wait before the next try to write, longer each time."""
        pause(pause_after(self._failed), stopping)
        self._failed += 1

    def _most(self) -> int:
        """Return how many workers there may be."""
        return self._wanted() or self._pool.cpus()

    def _done(self, assignments: Sequence[WorkAssignment], stopping: Callable[[], bool]) -> list[Report] | None:
        """Have workers learn, and return what they report."""
        is_alone, model, self._n_assignments = self._is_young, kernel_of(self.model), len(assignments)
        model._settle()
        busy = [(number, assignment) for number, assignment in enumerate(assignments) if assignment.events]
        learned = self.outcomes["learned"]
        tasks = [
            Task(assignment, number, place, len(busy), is_alone, learned)
            for place, (number, assignment) in enumerate(busy)
        ]

        def meanwhile() -> None:
            self._root = None if is_alone else merging.summary(model)

        def waiting(incident: str) -> None:
            self.alive = time.monotonic()
            if incident:
                self._count(incident)

        sent = self.model, self._examples.numbers, tasks
        return self._pool.round(*sent, self._most(), meanwhile, stopping, waiting)

    def _merge(self, reports: Sequence[Report], began: float) -> None:
        """Become what the replicas are together, and judge and write what they predicted, worker by worker."""
        start, spread = time.perf_counter(), 0.0
        if reports[0].summary is None:
            (alone,) = reports
            self.model = alone.model
        else:
            assert self._root is not None
            parts = [report.summary for report in reports if report.summary is not None]
            learnt = [part for part in parts if part.events > self._root.events]
            spread = merging.spread_of(learnt, self._root) if len(learnt) > 1 else 0.0
            merged = {
                name: step_merging.merged(step, [report.model[name] for report in reports])
                for name, step in steps_of(self.model).items()
            }
            merging.merged(kernel_of(self.model), parts, self._root)
            if merged:
                (name, last) = list(self.model.steps.items())[-1]
                self.model = compose.Pipeline(*merged.items(), (name, last))
        merging_seconds = time.perf_counter() - start
        for report in reports:
            self._take(report)
        now = time.perf_counter()
        self._rounds.new.append(now - began)
        self._merges.new.append(merging_seconds)
        by_worker = [(0, 0.0)] * self._n_assignments  # a worker with nothing to read has no report
        for report in reports:
            by_worker[report.number] = report.events, report.seconds
        events, seconds = zip(*by_worker, strict=True)
        self._last_rounds.append(RoundNumbers(events, seconds, now - began, merging_seconds, spread))
        self._tell()

    def _take(self, report: Report) -> None:
        """Take over what came of a worker's assignment."""
        self._positions |= report.positions
        self._examples.know(sorted(report.numbers - self._examples.numbers))
        self._pairs.extend(zip(report.labels, report.answers, strict=True))
        self._quality.fold()
        for outcome, count in report.outcomes.items():
            self.outcomes[outcome] += count
        if self._sink is not None:
            for line, key in report.lines:
                self._sink.write(line | {"member": self.member}, key)
        for event, refusal in report.letters:
            self._refuse(event, refusal)
        self._seconds.add(report.durations)
        self._events += report.events
        count, seconds = self._by_worker.get(report.number, (0, 0.0))
        self._by_worker[report.number] = count + report.events, seconds + report.seconds
        if self.history.is_due(report.events):
            self.history.add(point_of(self) | {"time": time.time(), "lag": float(sum(self.source.lag().values()))})

    def _tell(self) -> None:
        """Tell those who look what the cluster does."""
        self.source.seek(self._positions)
        last = self._last_rounds[-1]
        self.cluster = ClusterNumbers(
            dict(self._by_worker), self._rounds.histogram(), self._merges.histogram(), last, tuple(self._last_rounds)
        )


def _one_thread() -> AbstractContextManager[Any]:
    """Have linear algebra use one thread: it is faster beside workers, and its bits do not depend on processors."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[Any] = threadpool_limits(1)
    return limits
