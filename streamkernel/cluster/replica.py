"""A worker's part of a round: it learns its assignment with a replica of the model and reports the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from river import base, metrics

from streamkernel.connectors import Event, PartitionedSource, Refusal, WorkAssignment
from streamkernel.engine.coverage import RoundCoverage, Threshold
from streamkernel.engine.pipelines import first_steps, kernel_of
from streamkernel.engine.record_processor import RecordProcessor
from streamkernel.engine.telemetry.dead_letters import refusal_of
from streamkernel.engine.telemetry.figure import EVENT_BOUNDS, Durations
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

    Parameters
    ----------
    model
        The whole model if it was the only worker, else the steps before the kernel model.
    summary
        The summary of its kernel model, if it was not the only worker.
    labels, answers
        The labels and predictions to evaluate; two lists, because lists of plain values are packed much faster than
        lists of pairs.
    judgements
        Labels compared with their intervals or sets, if the run has these.
    lines
        The predictions to write, and the keys of their records.
    letters
        Events that could not be used, with the reason.
    seconds
        The duration of the whole task.
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
        self,
        source: Callable[[], PartitionedSource],
        *,
        metric: metrics.base.Metric,
        writes: bool,
        **options: Any,
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
