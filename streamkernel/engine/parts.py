"""The components of a run, each of which owns its state."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from streamkernel.connectors import DeadLetters, KafkaDeadLetters, Sink, Source, Transactions
from streamkernel.connectors.interfaces import as_source
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.checkpointer import Checkpointer
from streamkernel.engine.outputs import Outputs
from streamkernel.engine.record_processor import RecordProcessor
from streamkernel.engine.retrying import Health, Retries
from streamkernel.engine.shared_model import SharedModel
from streamkernel.engine.telemetry.history import History
from streamkernel.engine.telemetry.monitor import Monitor


@dataclass(frozen=True)
class EngineParts:
    """The components of a run.

    Parameters
    ----------
    source
        Where events come from.
    processor
        The model, its quality, and counters of records.
    outputs
        The sinks, and the last dead letters.
    checkpointer
        The positions of streams, and checkpoints.
    health
        Incidents, and the time of the loop's last iteration.
    retries
        The pauses between attempts while brokers are unavailable.
    monitor
        Snapshots for other threads.
    """

    source: Source
    processor: RecordProcessor
    outputs: Outputs
    checkpointer: Checkpointer
    health: Health
    retries: Retries
    monitor: Monitor

    @classmethod
    def of(
        cls,
        model: Any,
        source: Source,
        *,
        sink: Sink | None,
        dead_letters: DeadLetters | KafkaDeadLetters | None,
        state: StateDirectory | None,
        transactions: Transactions | None,
        checkpoint_seconds: float,
        give_up_after: float | None,
        setup: Mapping[str, Any] | None,
        shared_model: Path | None = None,
        **options: Any,
    ) -> Self:
        """Create the components from their configuration.

        `model`, `source`, `sink`, `dead_letters`, `state`, `transactions`, `checkpoint_seconds`, `give_up_after`,
        `setup` and `shared_model` are as for :class:`~streamkernel.engine.engine.Engine`. `options` are as for
        :class:`~streamkernel.engine.record_processor.RecordProcessor`.
        """
        source = as_source(source)
        processor = RecordProcessor(model, with_probabilities=sink is not None, **options)
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
        return cls(source, processor, outputs, checkpointer, health, retries, monitor)

    def close(self) -> None:
        """Release the source, the sinks, the transactions and the state directory, in this order, also after errors."""
        with ExitStack() as stack:
            for part in (self.checkpointer, self.outputs, self.source):
                stack.callback(part.close)
