"""A run: its parts put together, from its start to its end, and what others read of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from river import base, metrics

from connectors import DeadLetters, KafkaDeadLetters, KafkaSource, Sink, Source, Transactions
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.cluster_snapshot import ClusterSnapshot
from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.engine.parts import EngineParts
from streamkernel.engine.runner import Runner, StreamRunner
from streamkernel.engine.serving_copy import Publisher
from streamkernel.engine.telemetry.history import History
from streamkernel.engine.telemetry.snapshot import EngineSnapshot
from streamkernel.estimators.base import KernelModel


class Engine:
    """Runs a stream of events through a model: predict, learn, write, and make durable.

    Parameters
    ----------
    model
        A River classifier or regressor, or a pipeline that ends in one.
    source
        Where events come from.
    label
        The field to predict.
    ignore
        Fields to leave out.
    metric
        A River metric of the prequential predictions: each is made before its event is learned.
    sink
        Where predictions go.
    dead_letters
        Where events go that cannot be learned from; without it they are counted and logged only.
    baseline
        Another River model that learns the same events, to compare with.
    labels
        Joins features with the label that comes in another record; without it each record has both.
    weight
        The field with the weight that an example is learned with; ``None`` if all have the same. The metric and the
        baseline count each example once.
    state
        The directory of checkpoints; without one nothing survives the process.
    transactions
        What decides which checkpoint counts, if it is not this directory alone.
    checkpoint_seconds
        Time between two checkpoints.
    give_up_after
        Seconds in which brokers may be unavailable, or a topic missing, before the run ends with an error; by default
        it never does.
    setup
        What the run was set up with, as JSON values; a state directory that was written with another setup is refused.
    runner
        Makes the loop from the parts of the run: one event after the other, or rounds on a cluster.

    Attributes
    ----------
    parts : EngineParts
        The parts of the run, each of which owns its state.
    runner : Runner
        The loop.

    Raises
    ------
    ModelFileError
        If there are checkpoints and none is whole.
    StateDirectoryError
        If the state directory belongs to a run with another setup.

    Examples
    --------
    >>> from river import metrics
    >>> from connectors import DatasetSource
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
        labels: DelayedLabels | None = None,
        weight: str | None = None,
        state: StateDirectory | None = None,
        transactions: Transactions | None = None,
        checkpoint_seconds: float = 30.0,
        give_up_after: float | None = None,
        setup: Mapping[str, Any] | None = None,
        runner: Callable[[EngineParts], Runner] = StreamRunner,
    ) -> None:
        self.parts = EngineParts.of(
            model,
            source,
            label=label,
            ignore=ignore,
            metric=metric,
            baseline=baseline,
            labels=labels,
            weight=weight,
            sink=sink,
            dead_letters=dead_letters,
            state=state,
            transactions=transactions,
            checkpoint_seconds=checkpoint_seconds,
            give_up_after=give_up_after,
            setup=setup,
        )
        self.runner = runner(self.parts)

    def run(
        self,
        stopping: Callable[[], bool] = lambda: False,
        watch: Callable[[Engine], None] | None = None,
    ) -> None:
        """Continue from the last checkpoint until the stream ends or `stopping` returns true.

        Parameters
        ----------
        stopping
            Is called after every event. Once true it must stay true: a run leaves the rest of a poll alone then.
        watch
            Is called after every hundredth event, and once at the end.

        Raises
        ------
        ModelFileError
            If the checkpoint that Kafka has as the last one is not whole.
        StateDirectoryError
            If Kafka and the state directory do not agree which checkpoint is the last.
        GaveUpError
            If brokers were unavailable for `give_up_after`.
        MemoryError
            If there is too little memory to process a record. It is no dead letter, and nothing is committed after it.
        """
        checkpointer, monitor = self.parts.checkpointer, self.parts.monitor
        try:
            if checkpointer.restored is not None and monitor.publisher.wanted:
                monitor.publish_model(checkpointer.restored)
            if self._wait_for_brokers(stopping):
                checkpointer.resume()
                monitor.take_snapshot()
                self.runner.run(stopping, lambda: None if watch is None else watch(self))
                checkpointer.try_to_commit(last=True)
                monitor.take_snapshot()
        except BaseException:
            checkpointer.abandon()
            raise
        finally:
            self.close()
        if watch is not None:
            watch(self)

    def commit(self) -> None:
        """Make everything durable; see :meth:`Checkpointer.commit`."""
        self.parts.checkpointer.commit()

    def close(self) -> None:
        """Release the source, the sinks and the state directory."""
        try:
            self.parts.close()
        finally:
            self.runner.close()

    @property
    def source(self) -> Source:
        """Where events come from."""
        return self.parts.source

    @property
    def model(self) -> Any:
        """The model; after a recovery it is another object."""
        return self.parts.processor.model

    @property
    def baseline(self) -> Any:
        """The baseline, ``None`` if there is none or it failed."""
        return self.parts.processor.baseline

    @property
    def kernel_model(self) -> KernelModel | None:
        """The kernel model at the end of the pipeline, if it is one of ours."""
        return self.parts.processor.kernel_model

    @property
    def metric(self) -> metrics.base.Metric:
        """The prequential metric of the model since the start."""
        quality = self.parts.processor.quality
        quality.fold()
        return quality.metric

    def quality(self) -> dict[str, float]:
        """Return the prequential metric of the model, and that of the baseline, by name."""
        return self.parts.processor.quality.by_name()

    @property
    def outcomes(self) -> dict[str, int]:
        """Events by what became of them: learned, predicted, dead_letter, pending (had to wait for their label)."""
        return self.parts.processor.outcomes

    @property
    def refused(self) -> dict[str, int]:
        """Dead letters by kind."""
        return self.parts.processor.refused

    @property
    def labels(self) -> dict[str, int]:
        """Labels that came in records of their own, by what became of them; see :class:`DelayedLabels`."""
        labels = self.parts.processor.labels
        return {} if labels is None else dict(labels.counts)

    @property
    def pending_labels(self) -> int:
        """Features whose label has not come yet."""
        labels = self.parts.processor.labels
        return 0 if labels is None else len(labels)

    def reason_all_refused(self) -> str:
        """Return why no record was of any use so far, or nothing if one was, or there was none."""
        return self.parts.outputs.reason_all_refused()

    @property
    def last_dead_letters(self) -> deque[dict[str, Any]]:
        """The last few dead letters of this process: when, from where, why, and how they begin."""
        return self.parts.outputs.last_dead_letters

    @property
    def snapshot(self) -> EngineSnapshot:
        """What the run is doing; any thread may read it."""
        return self.parts.monitor.snapshot

    @property
    def history(self) -> History:
        """How the numbers of the run went."""
        return self.parts.monitor.history

    @property
    def publisher(self) -> Publisher:
        """Copies of the model for predictions, if they are wanted."""
        return self.parts.monitor.publisher

    @property
    def cluster(self) -> ClusterSnapshot | None:
        """What the workers are doing, where there are some."""
        return self.parts.monitor.cluster

    @property
    def incidents(self) -> dict[str, int]:
        """What happened to the run in this process, by kind."""
        return self.parts.health.incidents

    def ill(self) -> str:
        """Return why this process had better be restarted, or nothing."""
        return self.parts.health.ill()

    def _wait_for_brokers(self, stopping: Callable[[], bool]) -> bool:
        """Wait until brokers and topics are available; return whether they are, which is unknown if we have to stop."""
        openings, source = self.parts.outputs.openings(), self.source
        if isinstance(source, KafkaSource):
            openings.append(source.open)
        return self.parts.retries.ask_aside(lambda: [opening() for opening in openings], stopping) is not None
