"""Checks that a start would make, without a start: the state directory, brokers, topics, and a sample of the source."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from river import base
from river.datasets.base import RemoteDataset

from streamkernel.connectors import Event, first_records
from streamkernel.connectors.kafka import Writer
from streamkernel.connectors.schema_registry import RegistryUnavailableError
from streamkernel.engine import seen_inputs
from streamkernel.engine.checkpoint.bucket import Bucket, MirrorError
from streamkernel.engine.checkpoint.state_directory import StateDirectory, StateDirectoryError, check_setup, read_newest
from streamkernel.engine.config import registry
from streamkernel.engine.config.config import Config
from streamkernel.engine.config.messages import ConfigError, did_you_mean, of_error, problem_at
from streamkernel.engine.config.models import candidates_of, first_model
from streamkernel.engine.config.schema import STREAM
from streamkernel.engine.config.streams import kafka_options, kafka_source, registry_of
from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.engine.examples import Examples
from streamkernel.engine.learned_types import CATEGORIES, MIXED, SETTLED, UNDECIDED
from streamkernel.engine.record_processor import RecordProcessor
from streamkernel.engine.roles import roles_in
from streamkernel.engine.shared_model import check_version, versions
from streamkernel.engine.telemetry.dead_letters import DeadLetterGroups, n_and_reason, refusal_of
from streamkernel.errors import InputError
from streamkernel.features.rows import is_missing
from streamkernel.field_types.number_texts import why_codes
from streamkernel.warm_up import quiet


def check_state(config: Config) -> str:
    """Compare the newest checkpoint with the configuration, and change nothing.

    Raise `ConfigError` if the source cannot be read from the position of the checkpoint, or a file of results cannot be
    written or has become shorter; `StateDirectoryError` if the state directory belongs to a run with another setup;
    `ModelFileError` if there are checkpoints and none is whole. The result says why a run that starts now would be
    refused though the configuration is valid, or nothing.
    """
    first_model(config)
    if (shared := config.state.shared_model) is not None and (newest := versions(shared)):
        check_version(newest[-1], config.setup())
    path = config.state.directory
    for key, file in (("predictions", config.sink.predictions), ("dead_letters", config.sink.dead_letters)):
        if file is not None and file.name != "-" and file.parent != path:  # a start makes the state directory
            _check_place(f"sink.{key}", file)
    if path is None or not (path.exists() or path.is_symlink()):
        return ""
    if not path.is_dir():
        raise ConfigError(f"state.directory: expected a directory, got a file or a link to nothing: {path}")
    saved = read_newest(path)
    if saved is not None:
        setup = config.setup()
        check_setup(saved["setup"], {**setup, **roles_in(saved, candidates_of(config)).setup})
        with closing(config.build_source()) as source, problem_at("source", OSError, ValueError):
            source.seek(saved["positions"])
        for key, file in (("predictions", config.sink.predictions), ("dead_letters", config.dead_letters_path)):
            if file is not None:
                _check_length(f"sink.{key}", file, saved["sink" if key == "predictions" else key])
    try:
        StateDirectory(path).close()
    except StateDirectoryError as error:
        return str(error)
    return ""


def separate_models(config: Config) -> str:
    """Return a note if members of a group will have separate models, else nothing.

    Examples
    --------
    >>> found = {"label": "y", "source": {"dataset": "Phishing"}, "model": "KernelClassifier"}
    >>> separate_models(Config.model_validate(found))
    ''
    """
    if config.kafka is None or config.kafka.group is None or config.state.shared_model is not None:
        return ""
    return (
        f'members of the group "{config.kafka.group}" will have separate models, each of its own partitions; '
        "with state.shared_model they have one, and with --cluster one run has many workers"
    )


def mirror_promise(config: Config) -> str:
    """Return a note on what remains if the disk of the state directory is lost, else nothing.

    Examples
    --------
    >>> found = {"label": "y", "source": {"dataset": "Phishing"}, "model": "KernelClassifier"}
    >>> mirror_promise(Config.model_validate(found))
    ''
    """
    if config.state.mirror is None:
        return ""
    text = (
        f"if the disk is lost, the next start with an empty state directory continues from the last checkpoint in "
        f"{config.state.mirror}, and learns the events since then again; "
    )
    if config.kafka is None or config.source.topics is None:
        return text + "files of results on that disk are lost, and later lines are appended to new ones"
    if config.kafka.processing_guarantee == "at_least_once":
        return text + "some predictions and dead letters are written twice"
    return text + (
        "what topics have of them is not written again, so read_committed consumers see each prediction and dead "
        "letter once; a partition that was first read after that checkpoint continues at its committed offset"
    )


def check_connections(config: Config) -> None:
    """Connect to brokers and registry with the configured credentials, check that topics exist, and read nothing.

    Raise `ConfigError` if brokers, the registry or the mirror are unavailable, a topic or a partition does not exist,
    or a topic was made again since the last checkpoint.
    """
    calls: list[Callable[[], object]] = []
    if config.source.topics is not None:
        calls.append(lambda: _check_source(config))
    for topic in (config.sink.predictions_topic, config.sink.dead_letters_topic):
        if topic is not None:
            calls.append(lambda topic=topic: Writer(kafka_options(config)).open(topic))  # type: ignore[misc]
    if config.schema_registry is not None:
        calls.append(lambda: registry_of(config).check())
    if (mirror := config.state.mirror) is not None:
        calls.append(lambda: Bucket(mirror).names())
    problems = []
    for call in calls:
        try:
            call()
        except (OSError, ValueError) as error:
            of = "schema_registry" if isinstance(error, RegistryUnavailableError) else "kafka"
            of = "state.mirror" if isinstance(error, MirrorError) else of
            problems.append(of_error(of, error))
    if problems:
        raise ConfigError(*dict.fromkeys(problems))


def _check_source(config: Config) -> None:
    path = config.state.directory
    with closing(kafka_source(config, None)) as source:
        if path is not None and path.is_dir() and (saved := read_newest(path)) is not None:
            source.restore(saved)
        source.open()
        if source.group is not None:  # which the credentials may not be for
            source.client.committed(source.client.partitions_of(source.topics[0])[0])


def _check_place(key: str, path: Path) -> None:
    """Raise a ConfigError if a file of results cannot be written there."""
    if path.is_dir():
        raise ConfigError(f"{key}: expected a file, got a directory: {path}")
    if not path.parent.is_dir():
        raise ConfigError(f"{key}: expected a file in a directory that exists, got none: {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"{key}: expected a file that can be written to, got one that cannot: {path}")


def _check_length(key: str, path: Path, position: object) -> None:
    """Raise a ConfigError if a file has become shorter than it was at the checkpoint."""
    length = path.stat().st_size if path.is_file() else 0
    if isinstance(position, int) and path.name != "-" and not path.is_char_device() and length < position:
        raise ConfigError(
            f"{key}: expected at least the {position:,} bytes that the checkpoint has, got {length:,}: {path}"
        )


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
    n = 0
    with closing(config.build_source()) as source:
        while n < MOST_RECORDS and (events := source.poll(0.0)):
            for event in events:
                if not event.is_position_only and n < MOST_RECORDS:
                    n += 1
                    yield event


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
        f"; looks like codes, because {code}; if so, declare it: {seen_inputs.declaration(name, 'category')}"
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
        hint = (
            seen_inputs.for_alike_texts(name, alike) if texts >= SETTLED and (alike := types.texts.like(name)) else ""
        )
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
