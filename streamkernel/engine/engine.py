"""A run: its components, from start to end, and the access of other threads to its figures."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
from river import base, metrics

from streamkernel.connectors import DeadLetters, KafkaDeadLetters, Sink, Source, Transactions
from streamkernel.connectors.interfaces import as_source
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.checkpointer import Checkpointer
from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.engine.health import Health, Retries
from streamkernel.engine.monitoring.monitoring import Monitoring
from streamkernel.engine.outputs import Outputs
from streamkernel.engine.record_processor import RecordProcessor
from streamkernel.engine.roles import Candidate
from streamkernel.engine.runner import EngineParts, Runner, StreamRunner
from streamkernel.engine.shared_model import SharedModel
from streamkernel.engine.telemetry.history import History
from streamkernel.engine.telemetry.monitor import Monitor, Publisher
from streamkernel.engine.telemetry.snapshot import ClusterSnapshot, EngineSnapshot
from streamkernel.estimators.base import KernelModel
from streamkernel.field_types import Fields

log = structlog.get_logger("streamkernel")


class Engine:
    """A run of a stream of events through a model: predict, learn, write, and commit.

    Parameters
    ----------
    model : river.base.Estimator
        A River classifier or regressor, or a pipeline that ends in one.
    source : Source
        The source of events.
    label : str
        The field to predict.
    ignore : collection of str, default ()
        Fields to exclude from the inputs.
    metric : river.metrics.base.Metric
        A River metric of the prequential predictions, which are made before the event is learned.
    sink : Sink or None, default None
        The sink of predictions.
    dead_letters : DeadLetters or KafkaDeadLetters or None, default None
        The sink of events that cannot be learned; without it they are only counted and logged.
    baseline : river.base.Estimator or None, default None
        Another River model that learns the same events, for comparison.
    candidates : sequence of Candidate, default ()
        The model, and challengers that learn the same events beside it, by name; the model first. A checkpoint
        decides which of them is the champion, whose predictions are written.
    labels : DelayedLabels or None, default None
        The join of features with labels from other records; without it each record has both.
    weight : str or None, default None
        The field with the weight of an example; ``None`` if all weights are 1. The metric and the baseline count each
        example once.
    fields : Fields or None, default None
        The declared types of fields; other types are learned.
    coverage : float or None, default None
        The share of labels inside the interval, or the set of labels, that each prediction then has; between 0 and 1.
    explain : int, default 0
        Number of the largest contributions of inputs in a line of the sink; the model must have ``explain_one``.
    monitoring : Monitoring or None, default None
        Monitoring besides the metric: further metrics, segments, statistics, drift detection.
    state : StateDirectory or None, default None
        The directory of checkpoints; without it, no state survives the process.
    transactions : Transactions or None, default None
        The system that decides which checkpoint is valid, if it is not the directory alone.
    checkpoint_seconds : float, default 30.0
        The time between two checkpoints, in seconds.
    give_up_after : float or None, default None
        The time in seconds after which the run ends with an error if brokers are unavailable or a topic is missing. By
        default it retries without end.
    setup : dict or None, default None
        The configuration of the run, as JSON values; a state directory of another configuration is refused.
    shared_model : Path or None, default None
        The directory of the model that the members of a group share; it needs a state directory.
    runner : callable, default StreamRunner
        Creates the loop from the components of the run: events in their order, or rounds on a cluster.
        ``partial(StreamRunner, at_once=1)`` processes no events together.

    Attributes
    ----------
    parts : EngineParts
        The components of the run, each of which owns its state.
    runner : Runner
        The loop.

    Raises
    ------
    ModelFileError
        If there are checkpoints and all are damaged.
    StateDirectoryError
        If the state directory belongs to a run with another configuration.

    Examples
    --------
    >>> from river import metrics
    >>> from streamkernel.connectors import DatasetSource
    >>> from streamkernel import KernelClassifier
    >>> source = DatasetSource("Phishing", label="phishing")
    >>> engine = Engine(KernelClassifier(), source, label="phishing", metric=metrics.Accuracy())
    >>> engine.run()
    >>> engine.outcomes["learned"]
    1250
    """

    def __init__(
        self,
        model: base.Estimator,
        source: Source,
        *,
        label: str,
        ignore: Collection[str] = (),
        metric: metrics.base.Metric,
        sink: Sink | None = None,
        dead_letters: DeadLetters | KafkaDeadLetters | None = None,
        baseline: base.Estimator | None = None,
        candidates: Sequence[Candidate] = (),
        labels: DelayedLabels | None = None,
        weight: str | None = None,
        fields: Fields | None = None,
        coverage: float | None = None,
        explain: int = 0,
        monitoring: Monitoring | None = None,
        state: StateDirectory | None = None,
        transactions: Transactions | None = None,
        checkpoint_seconds: float = 30.0,
        give_up_after: float | None = None,
        setup: Mapping[str, Any] | None = None,
        shared_model: Path | None = None,
        runner: Callable[[EngineParts], Runner] = StreamRunner,
    ) -> None:
        source = as_source(source)
        processor = RecordProcessor(
            model,
            label=label,
            ignore=ignore,
            metric=metric,
            baseline=baseline,
            labels=labels,
            weight=weight,
            fields=fields,
            with_probabilities=sink is not None,
            coverage=coverage,
            explain=explain,
            monitoring=monitoring,
            candidates=candidates,
        )
        history, health = History(), Health()
        retries = Retries(health.count, give_up_after)
        outputs = Outputs(processor, sink, dead_letters, None if state is None else state.identity, retries, source)
        shared = None
        if shared_model is not None and state is not None:
            shared = SharedModel(shared_model, state.identity, processor, setup or {}, health.count)
        checkpointer = Checkpointer(
            processor,
            history,
            source,
            outputs,
            retries,
            health,
            state=state,
            transactions=transactions,
            checkpoint_seconds=checkpoint_seconds,
            setup=setup,
            shared=shared,
        )
        monitor = Monitor(processor, checkpointer, history, source)
        self.parts = EngineParts(source, processor, outputs, checkpointer, health, retries, monitor)
        self.runner = runner(self.parts)

    def run(self, stopping: Callable[[], bool] = lambda: False, watch: Callable[[Engine], None] | None = None) -> None:
        """Continue from the last checkpoint until the stream ends or `stopping` returns true.

        Parameters
        ----------
        stopping : callable
            Called after every event, and after events that were processed together, at most 512 or as many as the
            runner says. Once it has returned true it must keep returning true; the rest of the poll is not processed.
        watch : callable or None, default None
            Called after every hundredth event, or after the events processed together with it, and once at the end.

        Raises
        ------
        ModelFileError
            If the last checkpoint according to Kafka is damaged.
        StateDirectoryError
            If Kafka and the state directory disagree about the last checkpoint.
        GaveUpError
            If brokers were unavailable for `give_up_after` seconds, or a sink does not wait longer for its service.
        RuntimeError
            In a child that was forked: a run belongs to the process that made the engine.
        MemoryError
            If there is too little memory to process a record. The record does not become a dead letter, and nothing is
            committed after it.
        """
        self.parts.outputs.owner.check()
        checkpointer, monitor = self.parts.checkpointer, self.parts.monitor
        self.parts.outputs.stopping = stopping
        try:
            if checkpointer.restored is not None and monitor.publisher.wanted:
                monitor.publish_model(checkpointer.restored)
            openings = [*self.parts.outputs.openings(), self.source.open]
            opened = self.parts.retries.ask_aside(lambda: [opening() for opening in openings], stopping)
            if opened is not None and checkpointer.resume(stopping):
                monitor.take_snapshot()
                self.runner.run(stopping, lambda: None if watch is None else watch(self))
                checkpointer.try_to_commit(last=True)
                if not stopping():
                    monitor.report_end()
                monitor.take_snapshot()
        except BaseException:
            checkpointer.abandon()
            try:
                self.close()
            except Exception as error:  # which often follows from the first error, and must not hide it
                log.warning("the run also failed to end in order", reason=str(error))
            raise
        self.close()
        if watch is not None:
            watch(self)

    def commit(self) -> None:
        """Make all results durable; see :meth:`Checkpointer.commit`."""
        self.parts.checkpointer.commit()

    def close(self) -> None:
        """Release the source, the sinks and the state directory; do nothing in a child that was forked."""
        if not self.parts.outputs.owner.is_here:
            return
        try:
            self.parts.close()
        finally:
            self.runner.close()

    @property
    def source(self) -> Source:
        """The source of events."""
        return self.parts.source

    @property
    def model(self) -> Any:
        """The model; a recovery replaces it by another object."""
        return self.parts.processor.model

    @property
    def baseline(self) -> Any:
        """The baseline, or ``None`` if there is none or it failed."""
        return self.parts.processor.baseline

    @property
    def kernel_model(self) -> KernelModel | None:
        """The kernel model at the end of the pipeline, if there is one."""
        return self.parts.processor.kernel_model

    @property
    def metric(self) -> metrics.base.Metric:
        """The prequential metric of the model since the start."""
        quality = self.parts.processor.quality
        quality.fold()
        return quality.metric

    def quality(self) -> dict[str, float]:
        """Return the prequential metric of the model and of the baseline, by name."""
        return self.parts.processor.quality.by_name()

    @property
    def outcomes(self) -> dict[str, int]:
        """Numbers of events by outcome: learned, predicted, dead_letter, pending (waited for a label), passed_over."""
        return self.parts.processor.outcomes

    @property
    def refused(self) -> dict[str, int]:
        """Dead letters by kind."""
        return self.parts.processor.refused

    @property
    def texts(self) -> tuple[str, ...]:
        """The fields of codes and keys, which are read as they are written."""
        fields, labels = self.parts.processor.examples.fields, self.parts.processor.labels
        return (*(() if fields is None else fields.texts), *(() if labels is None else (labels.key,)))

    @property
    def ignored(self) -> Mapping[str, bool]:
        """Whether the values of each field are left out."""
        return self.parts.processor.examples.ignored

    @property
    def labels(self) -> dict[str, int]:
        """Numbers of labels from separate records, by outcome; see :class:`DelayedLabels`."""
        labels = self.parts.processor.labels
        return {} if labels is None else dict(labels.counts)

    @property
    def pending_labels(self) -> int:
        """The number of features whose label has not arrived."""
        labels = self.parts.processor.labels
        return 0 if labels is None else len(labels)

    def reason_all_refused(self, *, is_stopped: bool) -> str:
        """Return the reason if all records so far were refused, else an empty string.

        Parameters
        ----------
        is_stopped : bool
            Whether the run is stopped before the end of its source. Fewer than 100 records then give no reason.

        Returns
        -------
        str
            The reason, for people.
        """
        return self.parts.outputs.reason_all_refused(is_stopped=is_stopped)

    @property
    def last_dead_letters(self) -> deque[dict[str, Any]]:
        """The last dead letters of this process: time, origin, reason, and first bytes."""
        return self.parts.outputs.last_dead_letters

    @property
    def snapshot(self) -> EngineSnapshot:
        """The current snapshot of the run; any thread may read it."""
        return self.parts.monitor.snapshot

    @property
    def history(self) -> History:
        """The history of the run's figures."""
        return self.parts.monitor.history

    @property
    def publisher(self) -> Publisher:
        """The publisher of copies of the model for predictions, if enabled."""
        return self.parts.monitor.publisher

    @property
    def cluster(self) -> ClusterSnapshot | None:
        """The state of the workers of a cluster, if there is one."""
        return self.parts.monitor.cluster

    @property
    def incidents(self) -> dict[str, int]:
        """Numbers of incidents in this process, by kind."""
        return self.parts.health.incidents

    def ill(self) -> str:
        """Return the reason why this process should be restarted, or an empty string."""
        return self.parts.health.ill()
