"""The workers of a run as Ray actors, and the part of a round that each learns with a replica of the model.

A task that is lost with its worker is repeated by another worker.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from typing import Any, NamedTuple

import structlog
from river import base, metrics
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from streamkernel.connectors import Event, PartitionedSource, Refusal, UnavailableError, WorkAssignment
from streamkernel.engine.coverage import RoundCoverage, Threshold
from streamkernel.engine.health import error_of, pause_after
from streamkernel.engine.pipelines import first_steps, kernel_of
from streamkernel.engine.record_processor import RecordProcessor
from streamkernel.engine.telemetry.dead_letters import refusal_of
from streamkernel.engine.telemetry.figure import EVENT_BOUNDS, Durations
from streamkernel.errors import InputError
from streamkernel.estimators import model_merging
from streamkernel.estimators.internals import become_replica

MOST_REFUSED = 1 << 26
"""Bytes of unusable events after which a worker ends its assignment, because the driver has to store them."""


class RoundTask(NamedTuple):
    """The task of one worker in one round.

    `number` is the index of the worker. `place` and `replicas` are the index of the worker among the workers with
    records to read, and their number. `is_alone` says whether it is the only worker, whose model then replaces the old
    one without a merge, as in the first round. `learned` is the number of events that the model had learned at the
    start of the round. `threshold` is the maximum distance of a label inside an interval from the prediction; ``None``
    without coverage.
    """

    assignment: WorkAssignment
    number: int
    place: int
    replicas: int
    is_alone: bool = False
    learned: int = 0
    threshold: Threshold | None = None


class Report(NamedTuple):
    """The result of one worker in one round.

    `model` is the whole model if it was the only worker, else the steps before the kernel model, whose `summary` is
    then here. `labels` and `answers` are to be evaluated; two lists, because lists of plain values are packed much
    faster than lists of pairs. `judgements` are labels compared with their intervals or sets, if the run has these.
    `lines` are the predictions to write, each with the key of its record. `letters` are events that could not be used.
    `seconds` is the duration of the whole task.
    """

    number: int
    model: Any
    summary: model_merging.Summary | None
    positions: dict[str, Any]
    labels: list[Any]
    answers: list[Any]
    judgements: list[Any]
    lines: list[tuple[dict[str, Any], bytes | None]]
    letters: list[tuple[Event, Refusal]]
    outcomes: dict[str, int]
    types: dict[str, Any]
    durations: Durations
    seconds: float

    @property
    def events(self) -> int:
        """Number of events read."""
        return self.outcomes["predicted"] + len(self.letters)


class Replica:
    """A worker, which keeps only its source open between rounds.

    `source` constructs the source that all workers read together. `writes` says whether predictions are written.
    `options` are as for :class:`~streamkernel.engine.record_processor.RecordProcessor`.
    """

    def __init__(
        self, source: Callable[[], PartitionedSource], *, metric: metrics.base.Metric, writes: bool, **options: Any
    ) -> None:
        self._source = source()
        self._metric, self._writes, self._options = metric, writes, options

    def learn(self, model: base.Estimator, types: Mapping[str, Any], task: RoundTask) -> Report:
        """Learn an assignment.

        The result depends only on the arguments and on the records at the assigned positions, so another worker can
        repeat the work. `model` is the pipeline, which is changed. `types` are the types of fields so far.
        """
        began = time.perf_counter()
        kernel_model = kernel_of(model)
        if not task.is_alone:
            become_replica(kernel_model, task.place, task.replicas)
        processor = RecordProcessor(
            model,
            metric=self._metric.clone(),
            with_probabilities=self._writes,
            learned_before=task.learned,
            **self._options,
        )
        processor.examples.restore(types)
        judgements: list[Any] = []
        if processor.coverage is not None and task.threshold is not None:
            processor.coverage = RoundCoverage(processor.coverage.target, task.threshold, judgements)
        positions: dict[str, Any] = {}
        lines: list[tuple[dict[str, Any], bytes | None]] = []
        letters: list[tuple[Event, Refusal]] = []
        durations = Durations(EVENT_BOUNDS)
        clock = time.perf_counter
        refused = 0
        for event in chain.from_iterable(self._source.read(task.assignment)):
            positions[event.stream] = event.resume
            if event.is_position_only:
                processor.outcomes["passed_over"] += event.is_passed_over
                continue
            start = clock()
            try:
                step = processor.process(event)
            except MemoryError:
                raise
            except Exception as error:  # an error of any step of the pipeline does not stop the stream
                letters.append((event, refusal_of(event, error)))
                refused += len(event.raw)
            else:
                assert step is not None
                x, y, answers, is_new = step
                if self._writes:
                    lines.append((processor.line(event, y, answers[0]), event.key))
                processor.judge(x, y, answers, is_new)
            durations.new.append(clock() - start)
            if refused > MOST_REFUSED:
                break  # the next round has the rest
        durations.fold()
        return Report(
            number=task.number,
            model=model if task.is_alone else first_steps(model),
            summary=None if task.is_alone else model_merging.summarize(kernel_model),
            positions=positions,
            labels=[y for y, _ in processor.quality.pairs],
            answers=[answer for _, answer in processor.quality.pairs],
            judgements=judgements,
            lines=lines,
            letters=letters,
            outcomes=processor.outcomes,
            types=processor.examples.state(),
            durations=durations,
            seconds=time.perf_counter() - began,
        )


LOCAL = "local"
"""The address that means a temporary cluster on this machine."""

LOOK_SECONDS = 0.2
"""Seconds between two checks for a request to stop during a round."""

LATE_SECONDS = 60.0
"""Seconds after which a worker that has not started is reported, repeatedly."""

AGAIN_SECONDS = 5.0
"""Seconds before a worker retries unavailable brokers."""

KNOCK_SECONDS = 10.0
"""Timeout of a cluster's first response in seconds."""

KNOCKS = 5
"""Number of attempts to connect to a cluster that is reachable but refuses."""

log = structlog.get_logger("streamkernel")


class WorkerPool:
    """Workers on a Ray cluster, with the number that each round requests.

    `ImportError` is raised if Ray is not installed; `ConnectionError` if there is no cluster at the address. `address`
    is ``"local"``, or an address for Ray: ``"ray://host:10001"``, ``"host:6379"``, ``"auto"``.
    """

    def __init__(self, address: str, replica: Callable[[], Replica]) -> None:
        self._ray = connect_to_ray(address)
        cpus = 0 if address == LOCAL else 1  # here there may be more workers than processors
        self._kind = self._ray.remote(num_cpus=cpus)(_Worker)
        self._replica = replica
        self._workers: list[Any] = []

    def cpus(self) -> int:
        """Return the number of workers that fit on the cluster."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def round(
        self,
        model: Any,
        types: Mapping[str, Any],
        tasks: Sequence[RoundTask],
        most: int,
        meanwhile: Callable[[], None],
        stopping: Callable[[], bool],
        waiting: Callable[[str], None],
    ) -> list[Report] | None:
        """Return the workers' reports in the order of their tasks, or ``None`` if the run was stopped first.

        Raise `ConnectionError` if a worker cannot be constructed on its node. `model`, `types` and `tasks` are as for
        `Replica.learn`. `most` is the maximum number of workers. An idle worker is kept for the next round. `meanwhile`
        is called while the workers learn. `stopping` returns whether a stop was requested. `waiting` is called
        periodically during the round, with ``""`` or an incident: ``"worker_lost"``, ``"unreachable"`` if brokers are
        unavailable to a worker, or ``"stalled"`` after `LATE_SECONDS` without a report.
        """
        ray = self._ray
        least = max(task.number for task in tasks) + 1
        self._resize(least, max(least, most))
        sent = ray.put((model, types))
        refs = {self._workers[task.number].learn.remote(sent, task): task for task in tasks}
        meanwhile()
        later: list[tuple[float, RoundTask]] = []  # tasks to repeat, and when
        reports: dict[int, Report] = {}
        lost, began = 0, time.monotonic()
        reported = began
        while refs or later:
            if stopping():
                self._resize(0, 0)  # the tasks in progress are cancelled
                return None
            waiting("")
            now = time.monotonic()
            refs |= {self._workers[task.number].learn.remote(sent, task): task for at, task in later if at <= now}
            later = [(at, task) for at, task in later if at > now]
            if not refs:
                time.sleep(LOOK_SECONDS)
                continue
            done, _ = ray.wait(list(refs), num_returns=1, timeout=LOOK_SECONDS)
            for ref in done:
                task = refs.pop(ref)
                try:
                    reports[task.number] = ray.get(ref)
                except ray.exceptions.RayTaskError as error:
                    if not isinstance(error.cause, UnavailableError):
                        raise _cause(error) from error
                    waiting("unreachable")
                    log.warning("Kafka is unavailable; retrying", worker=task.number, reason=str(error.cause))
                    later.append((now + AGAIN_SECONDS, task))
                except ray.exceptions.RayError as error:
                    self._replace(task.number, error)
                    waiting("worker_lost")
                    later.append((now + pause_after(lost), task))
                    lost += 1
            late = sorted(task.number for task in tasks if task.number not in reports)
            if late and now - reported > LATE_SECONDS:
                reported = now
                waiting("stalled")
                log.warning(
                    "a round is waiting for workers", workers=late, seconds=round(now - began), room=self.cpus()
                )
        return [reports[task.number] for task in tasks]

    def close(self) -> None:
        """Release the workers and disconnect from the cluster."""
        self._resize(0, 0)
        self._ray.shutdown()

    def _replace(self, number: int, error: Any) -> None:
        """Start another worker in place of a lost one, if possible."""
        if getattr(error, "actor_init_failed", False):
            raise ConnectionError(
                f"Expected workers to start, got {_reason(error)} - this version of streamkernel "
                "must be installed on all nodes"
            ) from error
        log.warning("a worker was lost; repeating its assignment", worker=number, reason=str(error).partition("\n")[0])
        self._ray.kill(self._workers[number])  # it may be running and unreachable
        self._workers[number] = self._kind.remote(self._replica)

    def _resize(self, least: int, most: int) -> None:
        while len(self._workers) > most:
            self._ray.kill(self._workers.pop())
        while len(self._workers) < least:
            self._workers.append(self._kind.remote(self._replica))


class _Worker:
    """A worker as a Ray actor."""

    def __init__(self, replica: Callable[[], Replica]) -> None:
        self._make = replica
        self._replica: Replica | None = None

    def learn(self, sent: tuple[Any, Mapping[str, Any]], task: RoundTask) -> Report:
        """Learn an assignment with the actor's own model."""
        self._replica = self._replica or self._make()  # here, so that an error of its source is reported
        return self._replica.learn(*sent, task)


def check_ray() -> None:
    """Raise an ImportError if Ray is not installed, without importing it, which takes seconds."""
    if find_spec("ray") is None:
        raise ImportError(
            "Expected Ray for a run on a cluster, found none; install it with: pip install 'streamkernel[ray]'"
        )


def connect_to_ray(address: str) -> Any:
    """Connect to a Ray cluster, and return the module `ray`.

    Raise `ImportError` if Ray is not installed; `ConnectionError` if there is no cluster at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == LOCAL:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as with Ray outside this project
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # Ray's word for loopback alone
    check_ray()
    import ray

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    where: dict[str, Any] = {"address": address}
    if address == LOCAL:
        where["include_dashboard"] = False
    retrying = Retrying(  # the process that a cluster starts sometimes exits at once
        retry=retry_if_exception_type(ConnectionAbortedError),
        wait=wait_exponential(),
        stop=stop_after_attempt(KNOCKS),
        before_sleep=_log_retry,
        reraise=True,
    )
    try:
        _knock(address)
        retrying(ray.init, **where, log_to_driver=False, logging_level=logging.ERROR, configure_logging=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ConnectionError(f"Expected a Ray cluster, got {_reason(error)} - at {address}") from error
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return ray


def _log_retry(attempt: RetryCallState) -> None:
    log.warning("retrying the cluster", reason=_reason(error_of(attempt)), times=attempt.attempt_number)


def _reason(error: BaseException | None) -> str:
    """Return the message of an error without the traceback that Ray adds."""
    text = str(error).strip()
    return text.rpartition("\n")[2] if "Traceback" in text else text


def _knock(address: str) -> None:
    """Raise an OSError if an address with a port cannot be reached; Ray takes minutes to report it."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()


def _cause(error: Any) -> Exception:
    """Return the error of a worker as if it had been raised in this process."""
    cause: Exception = error.cause
    causes = OSError, ValueError, ImportError
    return cause if isinstance(cause, causes) and not isinstance(cause, InputError) else error
