"""The loop of a run on a cluster: rounds of replicas, each merged into one model and committed as one checkpoint.

The plan of a round is in the state directory; a lost round is repeated by it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
import structlog
from river import compose

from streamkernel import tensor_file
from streamkernel.cluster.workers import Report, RoundTask, WorkerPool
from streamkernel.connectors import CommitRefusedError, PartitionedSource, WorkAssignment
from streamkernel.connectors.json_text import to_json
from streamkernel.engine import shared_model
from streamkernel.engine.checkpoint.state_directory import PRIVATE, StateDirectory, plain_file
from streamkernel.engine.health import Health, pause, pause_after
from streamkernel.engine.pipelines import first_steps, kernel_of
from streamkernel.engine.runner import POLL_SECONDS, EngineParts
from streamkernel.engine.telemetry.figure import CHECKPOINT_BOUNDS, Durations
from streamkernel.engine.telemetry.snapshot import ClusterSnapshot, RoundSnapshot
from streamkernel.errors import MergeError
from streamkernel.estimators import model_merging
from streamkernel.estimators.internals import flush, is_young
from streamkernel.kernels import bandwidth

PLAN = "round.json"
"""Name of the plan's file in the state directory."""

log = structlog.get_logger("streamkernel")

RECENT = 64
"""Number of recent rounds that are kept individually."""


class RoundPlan:
    """The file with the plan of the current round.

    `state` is the directory; without one, no plan is written or read. `health` counts plans that could not be written.
    """

    def __init__(self, state: StateDirectory | None, health: Health) -> None:
        self._state, self._health = state, health

    def read(self, positions: Mapping[str, Any]) -> list[WorkAssignment] | None:
        """Return the plan of the round that begins at these positions, or ``None`` if there is none."""
        if self._state is not None and (path := plain_file(self._state.path / PLAN)).exists():
            plan = orjson.loads(path.read_bytes())
            if plan.get("positions") == positions:
                return [WorkAssignment(*assignment) for assignment in plan["shares"]]
        return None

    def write(self, positions: Mapping[str, Any], assignments: Sequence[WorkAssignment]) -> bool:
        """Write a plan durably, and return whether that succeeded."""
        if self._state is None:
            return True
        plan = {"positions": positions, "shares": [[*assignment] for assignment in assignments]}
        try:
            tensor_file.put(self._state.path / PLAN, to_json(plan, 0), PRIVATE)
        except OSError as error:
            self._health.count("checkpoint_failed")
            log.error("the plan of a round could not be written; retrying later", reason=str(error))
            return False
        return True


class RoundCounts:
    """Counts the rounds of this process."""

    def __init__(self) -> None:
        self._rounds, self._merges = Durations(CHECKPOINT_BOUNDS), Durations(CHECKPOINT_BOUNDS)
        self._by_worker: dict[int, tuple[int, float]] = {}
        self._recent: deque[RoundSnapshot] = deque(maxlen=RECENT)

    def add_round(
        self, reports: Sequence[Report], workers: int, seconds: float, merge_seconds: float, spread: float
    ) -> None:
        """Count a round from the reports of the workers that had records to read."""
        of_each = [(0, 0.0)] * workers  # a worker with nothing to read has no report
        for report in reports:
            of_each[report.number] = report.events, report.seconds
            events, busy = self._by_worker.get(report.number, (0, 0.0))
            self._by_worker[report.number] = events + report.events, busy + report.seconds
        self._rounds.new.append(seconds)
        self._merges.new.append(merge_seconds)
        counts, times = zip(*of_each, strict=True)
        self._recent.append(RoundSnapshot(counts, times, seconds, merge_seconds, spread))

    def snapshot(self) -> ClusterSnapshot:
        """Return the rounds so far as an immutable value, for any thread."""
        rounds, merges = self._rounds.histogram(), self._merges.histogram()
        return ClusterSnapshot(dict(self._by_worker), rounds, merges, self._recent[-1], tuple(self._recent))


class ClusterRunner:
    """Runs a stream through replicas of a model in synchronous rounds.

    1. Assign records to workers, and store the plan.
    2. Have each worker learn its assignment with a replica of the model.
    3. Merge the replicas in the order of the workers, and evaluate and write their predictions.
    4. Commit everything as one checkpoint.

    A round that is lost before step 4 is repeated with the same plan, because it depends only on the checkpoint before
    it, the plan and the records of the streams. One worker learns the first events, which determine bandwidths and
    scales. `parts` are the parts of the run. The model is a kernel model, or a pipeline of mergeable steps that ends in
    one. `divided` is the source that the workers read together. `workers` returns the maximum number of workers for the
    next round, ``None`` for as many as have events and fit on the cluster. `events_per_round` is the maximum number of
    events that a worker learns in a round.
    """

    def __init__(
        self,
        parts: EngineParts,
        *,
        divided: PartitionedSource,
        pool: WorkerPool,
        workers: Callable[[], int | None],
        events_per_round: int,
    ) -> None:
        self.pool = pool
        self._parts = parts
        self._processor, self._checkpointer, self._health = parts.processor, parts.checkpointer, parts.health
        self._divided, self._workers, self._events_per_round = divided, workers, events_per_round
        self._plan = RoundPlan(parts.checkpointer.state, parts.health)
        self._counts = RoundCounts()
        self._root: model_merging.Summary | None = None  # of the common base of the replicas
        self._n_shares = 0
        self._failed = 0  # consecutive failures to write the plan or a checkpoint

    def run(self, stopping: Callable[[], bool], watch: Callable[[], None]) -> None:
        """Run rounds until the stream ends and everything is durable, or until the run is stopped."""
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):  # which is faster beside other workers, and keeps the bits
            while not stopping():
                self._health.turn()
                if self._checkpointer.is_uncertain and not self._checkpointer.recover(stopping):
                    continue
                # learn only from durable state: a crash would repeat the round with another plan
                if not self._checkpointer.try_to_commit():
                    self._wait(stopping)
                    continue
                assignments = self._parts.retries.ask_aside(self._shares, stopping)
                if assignments is None:
                    return
                if self._begin_streams(assignments):
                    continue
                if self._workers() is None:
                    assignments = [assignment for assignment in assignments if assignment.events] or assignments[:1]
                if not any(assignment.events for assignment in assignments):
                    self._health.watch(self._parts.source, False)
                    self._commit_and_publish()
                    pause(POLL_SECONDS, stopping)
                    continue
                if not self._plan.write(self._checkpointer.positions, assignments):
                    self._wait(stopping)
                    continue
                self._failed = 0
                began = time.perf_counter()
                reports = self._learn_round(assignments, stopping)
                if reports is None:
                    return
                self._health.note_events()
                try:
                    self.finish_round(reports, began)
                except CommitRefusedError as error:
                    self._checkpointer.mark_refused(error)
                    continue
                self._checkpointer.try_to_commit()
                self._commit_and_publish()
                watch()

    def close(self) -> None:
        """Release the workers."""
        self.pool.close()

    def finish_round(self, reports: Sequence[Report], began: float) -> None:
        """Merge the replicas, then evaluate and write their predictions, worker by worker."""
        start = time.perf_counter()
        spread = self._merge(reports)
        merging_seconds = time.perf_counter() - start
        self._processor.examples.join([report.types for report in reports])
        for report in reports:
            self._take_report(report)
        self._counts.add_round(reports, self._n_shares, time.perf_counter() - began, merging_seconds, spread)
        self._parts.source.seek(self._checkpointer.positions)
        self._parts.monitor.cluster = self._counts.snapshot()

    def _commit_and_publish(self) -> None:
        self._checkpointer.commit_if_due()
        self._parts.monitor.refresh()

    def _begin_streams(self, assignments: Sequence[WorkAssignment]) -> bool:
        """Record the first positions of new streams, and return whether they still have to be committed."""
        begun = {
            stream: place
            for assignment in assignments
            for stream, place in assignment.begin.items()
            if place is not None
        }
        new = begun.keys() - self._checkpointer.positions.keys()
        if new:
            self._checkpointer.advance_all({stream: begun[stream] for stream in sorted(new)})
        return bool(new)

    def _shares(self) -> list[WorkAssignment] | None:
        """Return the stored plan of the round at these positions, or a new plan."""
        positions = self._checkpointer.positions
        written = self._plan.read(positions)
        if written is not None:
            return written
        young = is_young(kernel_of(self._processor.model))
        workers, events = (1, bandwidth.FIRST) if young else (self._most(), self._events_per_round)
        return self._divided.plan(positions, workers, events)

    def _wait(self, stopping: Callable[[], bool]) -> None:
        """Wait before the next attempt to write; each wait is longer than the previous one."""
        pause(pause_after(self._failed), stopping)
        self._failed += 1

    def _most(self) -> int:
        """Return the largest number of workers for the next round."""
        return self._workers() or self.pool.cpus()

    def _learn_round(self, assignments: Sequence[WorkAssignment], stopping: Callable[[], bool]) -> list[Report] | None:
        """Have the workers learn, and return their reports."""
        model = kernel_of(self._processor.model)
        is_alone, self._n_shares = is_young(model), len(assignments)
        flush(model)
        busy = [(number, assignment) for number, assignment in enumerate(assignments) if assignment.events]
        learned, coverage = self._processor.outcomes["learned"], self._processor.coverage
        threshold = None if coverage is None else coverage.threshold(None)
        tasks = [
            RoundTask(assignment, number, place, len(busy), is_alone, learned, threshold)
            for place, (number, assignment) in enumerate(busy)
        ]

        def meanwhile() -> None:
            self._root = None if is_alone else model_merging.summarize(model)

        def waiting(incident: str) -> None:
            self._health.turn()
            if incident:
                self._health.count(incident)

        sent = self._processor.model, self._processor.examples.state(), tasks
        return self.pool.round(*sent, self._most(), meanwhile, stopping, waiting)

    def _merge(self, reports: Sequence[Report]) -> float:
        """Merge the replicas into one model, and return their distance from the mean."""
        processor = self._processor
        if reports[0].summary is None:
            (alone,) = reports
            processor.model = alone.model
            return 0.0
        assert self._root is not None
        parts = [report.summary for report in reports if report.summary is not None]
        for report, part in zip(reports, parts, strict=True):
            new = max(count - old for count, old in zip(_counts_of(part), _counts_of(self._root), strict=True))
            if new > report.events:
                raise MergeError(
                    f"Expected at most {report.events} new examples in the model of worker {report.number}, got {new}"
                )
        merged = {
            name: shared_model.merge_steps(step, [report.model[name] for report in reports])
            for name, step in first_steps(processor.model).items()
        }
        model_merging.merge_into(kernel_of(processor.model), parts, self._root)
        if merged:
            (name, last) = list(processor.model.steps.items())[-1]
            processor.model = compose.Pipeline(*merged.items(), (name, last))
        learned = [part for part in parts if part.events > self._root.events]
        return model_merging.spread_of(learned, self._root) if len(learned) > 1 else 0.0

    def _take_report(self, report: Report) -> None:
        """Add one worker's report to the state of the run."""
        processor, outputs, monitor = self._processor, self._parts.outputs, self._parts.monitor
        self._checkpointer.advance_all(report.positions)
        processor.quality.pairs.extend(zip(report.labels, report.answers, strict=True))
        processor.quality.fold()
        if processor.coverage is not None:
            for judgement in report.judgements:
                processor.coverage.add(None, judgement)
        for outcome, count in report.outcomes.items():
            processor.outcomes[outcome] += count
        for line, key in report.lines:
            outputs.write(line, key)
        for event, refusal in report.letters:
            outputs.refuse(event, refusal)
        monitor.event_seconds.add(report.durations)
        monitor.n_events += report.events
        if monitor.history.is_due(report.events):
            monitor.add_point()


def _counts_of(summary: model_merging.Summary) -> tuple[int, int]:
    """Return the numbers of examples that a function and its scales have learned, with buffered ones."""
    observed = 0 if summary.scales is None else int(summary.scales["scales.n"][0])
    return summary.examples, observed + len(summary.waiting)
