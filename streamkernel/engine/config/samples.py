"""A sample of the source, processed as a run would, and the types of its fields, for ``run --check``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from river import base
from river.datasets.base import RemoteDataset

from streamkernel.connectors import Event, first_records
from streamkernel.engine import seen_texts
from streamkernel.engine.config import registry
from streamkernel.engine.config.config import Config
from streamkernel.engine.config.messages import ConfigError, did_you_mean
from streamkernel.engine.config.schema import STREAM
from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.engine.examples import Examples
from streamkernel.engine.learned_types import CATEGORIES, MIXED, SETTLED, UNDECIDED
from streamkernel.engine.record_processor import RecordProcessor
from streamkernel.engine.telemetry.dead_letters import DeadLetterGroups, n_and_reason, refusal_of
from streamkernel.errors import InputError
from streamkernel.features.rows import is_missing
from streamkernel.field_types.number_texts import why_codes
from streamkernel.warm_up import quiet

MOST_RECORDS, MOST_REASONS = 1000, 5
"""Records of a sample, and reasons that are listed, at most."""


class SourceSample(NamedTuple):
    """The first records of a source, and what a run would make of them.

    `n_records` is their number, with unreadable records. `examples` are the types that a run would have learned from
    them. `dead_letters` is the number of records that would become dead letters, and their reasons; empty if none
    would.
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
    if source.dataset is not None and issubclass(registry.datasets().classes[source.dataset], RemoteDataset):
        return "the data set may have to be downloaded first"
    return ""


def sample_of(config: Config) -> SourceSample:
    """Process the first records of a source with a new model, and write nothing.

    Raise `ConfigError` if more than half of them would become dead letters; `OSError` or `ValueError` if the source
    cannot be read.
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
    refused = f"{n_refused:,} of the first {n_records:,} records ({share(n_refused, n_records)})"
    if 2 * n_refused > n_records:
        raise ConfigError(
            f"source: expected records that can be used, got {refused} that would be dead letters:", *reasons
        )
    dead_letters = [f"{refused} would be dead letters:", *reasons] if n_refused else []
    return SourceSample(n_records, records, processor.examples, dead_letters)


def _events(config: Config) -> Iterator[Event]:
    """Yield the first records, without waiting for records that a followed file does not have yet."""
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


MOST_FIELDS = 100
"""Fields that are listed, at most."""


def sampled_types(config: Config, sample: SourceSample) -> list[str]:
    """Return a line for each field of a sample, and for each field that the configuration names and that it lacks."""
    if not sample.n_records:
        return ["note: the source has no records yet"]
    delayed = config.delayed_labels
    keys = (config.weight, *((delayed.key, delayed.time) if delayed else ()))
    names = dict.fromkeys(name for record in sample.records for name in record)
    uses = {"label": config.labels, "ignore": config.ignore, "fields": config.fields, "weight or key": keys}
    absent = [
        f'note: {use}: no record of the sample has "{name}"{did_you_mean(name, names)}'
        for use, used in uses.items()
        for name in filter(None, used)
        if name not in names and not any(other.startswith(f"{name}.") for other in names)
    ]
    ignored = config.ignored
    unlisted = {*config.labels, *filter(None, keys), *(name for name in names if ignored[name])}
    codes = _codes(config, sample)
    lines = describe(sample.records, sample.examples, [name for name in names if name not in unlisted], codes)
    more = [f"note: {len(lines) - MOST_FIELDS:,} more fields"] if len(lines) > MOST_FIELDS else []
    labels = config.labels if issubclass(config.estimator_class, base.Classifier) else ()
    of_labels = [f"note: label {name} looks like codes: {codes[name]}" for name in labels if name in codes]
    return [*absent, *lines[:MOST_FIELDS], *more, *of_labels]


def describe(
    records: Sequence[Mapping[str, Any]],
    examples: Examples,
    names: Iterable[str],
    codes: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return a line for each of some fields of records that were counted.

    `examples` are the types that were learned from them. `codes` says why numbers of some fields look like codes.

    Examples
    --------
    >>> records = [{"icd": 250.0 if i % 4 else f"V{i}", "age": "NA" if i == 3 else i} for i in range(100)]
    >>> examples = Examples("y", numeric_label=False)
    >>> examples.types.is_silent = True
    >>> for record in records:
    ...     examples.count(record)
    >>> for line in describe(records, examples, ["icd", "age"]):
    ...     print(line)
    field icd: mixed, 75 % numbers; looks like codes; declare it: [fields] icd = "category"
    field age: numbers, 1 % others, which are dead letters; if it means that there is no value, declare missing = ["NA"]
    """
    return [f"field {name}: {_describe(name, records, examples, codes.get(name))}" for name in names]


def _describe(name: str, records: Sequence[Mapping[str, Any]], examples: Examples, code: str | None) -> str:
    values = [record[name] for record in records if name in record]
    fields, types = examples.fields, examples.types
    if fields is not None and name in fields:
        n_unfit = sum(not _fits(examples, name, value) for value in values)
        return f"{fields.type_of(name)}, as declared" + (f"; {share(n_unfit, len(values))} do not fit" * (n_unfit > 0))
    if fields is not None:
        values = [value for value in values if fields.transform_one({name: value})]
    values = [value for value in values if not is_missing(value)]
    numbers, readable, texts, *_ = types.counts.get(name, (0, 0, 0))
    others = [value for value in values if not isinstance(value, (str, int, float))]
    why = (
        f"; looks like codes, because {code}; if so, declare it: {seen_texts.declaration(name, 'category')}"
        if code
        else ""
    )
    if not values:
        return "no values"
    if others and len(others) >= len(values) / 2:
        what = f"{share(len(others), len(values))} {type(others[0]).__name__}, which are dead letters"
        return what + types.remedy(name, others[0])
    kind = types.type_of(name)
    if kind == UNDECIDED:
        return f"undecided, because it has only {numbers + readable + texts} values{why}"
    if kind == MIXED:
        return f"mixed, {share(numbers, len(values))} numbers; {types.advice(name)}"
    if kind == CATEGORIES:
        hint = seen_texts.for_alike_texts(name, alike) if texts >= SETTLED and (alike := types.texts.like(name)) else ""
        if not numbers:
            return "categories" + (f"; {hint}" if hint else "")
        advice = types.advice(name, for_codes=False)
        more = f"; {advice}" if advice else ""
        return f"categories, {share(numbers, len(values))} numbers, which are categories, too{more}"
    written = f", {share(readable, len(values))} written as text" if readable else ""
    refused = [value for value in values if isinstance(value, str) and types.read_text(name, value) is None] + others
    if not refused:
        return f"numbers{written}{why}"
    what = f"numbers{written}, {share(len(refused), len(values))} others, which are dead letters"
    return what + types.remedy(name, refused[0])


def _codes(config: Config, sample: SourceSample) -> dict[str, str]:
    """Return why numbers of fields look like codes in the texts of a file."""
    source = config.source
    if source.path is None:
        return {}
    read = partial(first_records, source.path, source.format, max_list_length=source.max_list_length)
    names = tuple({name: None for record in sample.records for name in record})
    numbers, texts = read(csv=config.csv), read(csv=replace(config.csv, texts=names))
    values: dict[str, list[tuple[str, float]]] = {}
    for record, written in zip(numbers, texts, strict=False):
        for name, value in record.items():
            text = written.get(name)
            if type(text) is str and (type(value) is int or type(value) is float) and value == value:
                values.setdefault(name, []).append((text, value))
    return {name: why for name, pairs in values.items() if (why := why_codes(pairs)) is not None}


def _fits(examples: Examples, name: str, value: Any) -> bool:
    assert examples.fields is not None
    try:
        examples.fields.transform_one({name: value})
    except InputError:
        return False
    return True
