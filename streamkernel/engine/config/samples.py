"""A sample of the source, processed as a run would, for ``run --check``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from river.datasets.base import RemoteDataset

from streamkernel.connectors import Event
from streamkernel.engine.config import build
from streamkernel.engine.config.config import Config
from streamkernel.engine.config.messages import ConfigError
from streamkernel.engine.config.schema import STREAM
from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.engine.examples import Examples
from streamkernel.engine.record_processor import RecordProcessor
from streamkernel.engine.refusals import refusal_of
from streamkernel.engine.telemetry.dead_letter_groups import DeadLetterGroups, n_and_reason
from streamkernel.warm_up import quiet

MOST_RECORDS, MOST_REASONS = 1000, 5
"""Records of a sample, and reasons that are listed, at most."""


class SourceSample(NamedTuple):
    """The first records of a source, and what a run would make of them.

    Attributes
    ----------
    n_records : int
        Their number, with those that cannot be read.
    records : list of dict
        Those that can be read.
    examples : Examples
        The types that a run would have learned from them.
    dead_letters : list of str
        The number of those that would become dead letters, and their reasons; empty if none would.
    """

    n_records: int
    records: list[dict[str, Any]]
    examples: Examples
    dead_letters: list[str]


def why_not_sampled(config: Config) -> str:
    """Return the reason why a source is not read twice, or an empty string."""
    source = config.source
    if source.path == Path(STREAM) or (source.path is None and source.dataset is None):
        return "only files and data sets can be read twice"
    if source.dataset is not None and issubclass(build.datasets().classes[source.dataset], RemoteDataset):
        return "the data set may have to be downloaded first"
    return ""


def sample_of(config: Config) -> SourceSample:
    """Process the first records of a source with a new model, and write nothing.

    Raises
    ------
    ConfigError
        If more than half of them would become dead letters.
    OSError, ValueError
        If the source cannot be read.
    """
    processor = RecordProcessor(
        config.build_pipeline(),
        label=config.label,
        ignore=config.ignore,
        metric=config.build_metric(),
        labels=None if config.delayed_labels is None else DelayedLabels(**config.delayed_labels.model_dump()),
        weight=config.weight,
        fields=config.build_fields(),
    )
    processor.examples.types.is_silent = True
    groups, n_records, n_refused = DeadLetterGroups(), 0, 0
    records: list[dict[str, Any]] = []
    with quiet():
        for event in _events(config):
            n_records += 1
            if event.record is not None:
                records.append(dict(event.record))
            try:
                processor.process(event)
            except MemoryError:
                raise
            except Exception as error:  # as in a run, it is this record's alone
                n_refused += 1
                groups.add(refusal_of(event, error).reason, event.stream, "")
    reasons = [
        f"  {count:,} ({share(count, n_records)}): {reason}"
        for count, reason in map(n_and_reason, groups.rows()[:MOST_REASONS])
    ]
    found = f"{n_refused:,} of the first {n_records:,} records ({share(n_refused, n_records)})"
    if 2 * n_refused > n_records:
        raise ConfigError(
            f"source: expected records that can be used, got {found} that would be dead letters:", *reasons
        )
    dead_letters = [f"{found} would be dead letters:", *reasons] if n_refused else []
    return SourceSample(n_records, records, processor.examples, dead_letters)


def _events(config: Config) -> Iterator[Event]:
    """Yield the first records; those that a followed file does not have yet are not waited for."""
    source, n = config.build_source(), 0
    try:
        while n < MOST_RECORDS and (events := source.poll(0.0)):
            for event in events:
                if not event.is_position_only and n < MOST_RECORDS:
                    n += 1
                    yield event
    finally:
        source.close()


def share(count: int, total: int) -> str:
    """Return a share in percent, which is 100 for all only, and at least 1.

    Examples
    --------
    >>> share(1, 3), share(1, 1000), share(999, 1000), share(5, 5)
    ('33 %', '1 %', '99 %', '100 %')
    """
    return "100 %" if count == total else f"{min(99, max(1, round(100 * count / total)))} %"
