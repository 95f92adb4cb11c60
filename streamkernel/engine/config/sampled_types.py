"""The types of the fields in a sample of the source, for ``run --check``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from river import base
from river.datasets.base import RemoteDataset

from connectors import Event, first_records
from streamkernel.engine.config import build
from streamkernel.engine.config.config import Config
from streamkernel.engine.config.messages import ConfigError, to_key
from streamkernel.engine.config.schema import STREAM
from streamkernel.engine.examples import remedy
from streamkernel.engine.learned_types import CATEGORIES, MIXED, UNDECIDED, LearnedTypes
from streamkernel.errors import InputError
from streamkernel.field_types import Fields
from streamkernel.field_types.number_codes import why_codes

MOST_RECORDS, MOST_FIELDS = 1000, 100
"""Records of a sample, and fields that are listed, at most."""


def sampled_types(config: Config) -> list[str]:
    """Return a line for each field of the first records, or the reason why they are not read.

    Raises
    ------
    ConfigError, OSError, ValueError
        If the source cannot be read.
    """
    source = config.source
    if source.path == Path(STREAM) or (source.path is None and source.dataset is None):
        return ["note: types of fields are not sampled, because only files and data sets can be read twice"]
    if source.dataset is not None and issubclass(build.datasets().classes[source.dataset], RemoteDataset):
        return ["note: types of fields are not sampled, because the data set may have to be downloaded first"]
    delayed = config.delayed_labels
    others = (config.weight, *((delayed.key, delayed.time) if delayed else ()))
    sample, ignored = SampledRecords(config), config.ignored
    records = sample.records
    unseen = {*config.labels, *filter(None, others), *(name for record in records for name in record if ignored[name])}
    codes = _codes(config, records)
    lines = describe(records, config.build_fields() or Fields({}), unseen, codes)
    more = [f"note: {len(lines) - MOST_FIELDS:,} more fields"] if len(lines) > MOST_FIELDS else []
    labels = config.labels if issubclass(config.estimator_class, base.Classifier) else ()
    of_labels = [f"note: label {name} looks like codes: {codes[name]}" for name in labels if name in codes]
    return [*lines[:MOST_FIELDS], *more, *of_labels, *sample.notes]


def describe(
    records: list[Mapping[str, Any]], fields: Fields, unseen: set[str], codes: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return a line for each field of some records.

    Parameters
    ----------
    records
        The records.
    fields
        The declared types.
    unseen
        Fields that are no inputs.
    codes
        Why numbers of some fields look like codes.

    Examples
    --------
    >>> records = [{"icd": 250.0 if i % 4 else "V45", "age": "old" if i == 3 else i, "y": 1} for i in range(100)]
    >>> for line in describe(records, Fields({}), {"y"}):
    ...     print(line)
    field icd: mixed, 75 % numbers; looks like codes; declare it: icd = "category"
    field age: numbers, 1 % texts, which would be dead letters; to take it, declare [fields] age = "category"
    >>> describe(records, Fields({"icd": "category"}), {"y", "age"})
    ['field icd: category, as declared']
    >>> describe([{"v": 1.1}] * 40, Fields({}), set(), {"v": "1.1 and 1.10 are one number"})
    ['field v: numbers; looks like codes, because 1.1 and 1.10 are one number; if so, declare it: v = "category"']
    """
    types, unfit, names = LearnedTypes(is_silent=True), Counter[str](), dict[str, None]()
    for record in records:
        names.update(dict.fromkeys(name for name in record if name not in unseen))
        types.count(record, fields.count(record) | unseen)
        for name in record.keys() & fields.types.keys():
            try:
                fields.transform_one({name: record[name]})
            except InputError:
                unfit[name] += 1
    return [
        f"field {name}: {_describe(name, fields, types, unfit[name], len(records), codes.get(name))}" for name in names
    ]


def _describe(name: str, fields: Fields, types: LearnedTypes, unfit: int, n: int, code: str | None) -> str:
    if name in fields:
        return f"{fields.type_of(name)}, as declared" + (f"; {_share(unfit, n)} do not fit" if unfit else "")
    numbers, readable, texts, _ = types.counts.get(name, (0, 0, 0, 0))
    total, kind = numbers + readable + texts, types.type_of(name)
    why = f'; looks like codes, because {code}; if so, declare it: {to_key(name)} = "category"' if code else ""
    if not total:
        return "no numbers and no texts"
    if kind == UNDECIDED:
        return f"undecided, because it has only {total} values{why}"
    if kind == MIXED:
        return f'mixed, {_share(numbers, total)} numbers; looks like codes; declare it: {to_key(name)} = "category"'
    if kind == CATEGORIES:
        return "categories" + (f", {_share(numbers, total)} numbers, which are categories, too" if numbers else "")
    written = f", {_share(readable, total)} written as text" if readable else ""
    bad = f", {_share(texts, total)} texts, which would be dead letters{remedy(name, 'category')}" if texts else ""
    return f"numbers{written}{bad}{why}"


class SampledRecords:
    """The first records of a source; those that a followed file does not have yet are not waited for.

    Attributes
    ----------
    records : list of dict
        The records that can be read.
    notes : list of str
        Remarks on the other records.

    Raises
    ------
    ConfigError
        If there are records and none can be read.
    """

    def __init__(self, config: Config) -> None:
        self.records: list[Mapping[str, Any]] = []
        self.notes: list[str] = []
        errors: list[str] = []
        path = config.source.path
        for event in islice(_events(config), MOST_RECORDS):
            if event.record is not None:
                self.records.append(event.record)
            elif event.error is not None:
                errors.append(event.error)
        if errors and not self.records and not config.source.follow:
            raise ConfigError(f"source: expected records, got none that can be read; the first: {errors[0]}")
        if errors:
            n = len(errors) + len(self.records)
            self.notes.append(f"note: {len(errors):,} of the first {n:,} records cannot be read: {errors[0]}")
        if not errors and not self.records:
            self.notes.append(f"note: there is nothing to read yet{f' in {path}' if path else ''}")


def _events(config: Config) -> Iterator[Event]:
    source = config.build_source()
    try:
        while events := source.poll(0.0):
            yield from events
    finally:
        source.close()


def _codes(config: Config, records: list[Mapping[str, Any]]) -> dict[str, str]:
    """Return why numbers of fields look like codes in the texts of a file."""
    source = config.source
    if source.path is None:
        return {}
    read = partial(first_records, source.path, source.format, max_list_length=source.max_list_length)
    names = tuple({name: None for record in records for name in record})
    numbers, texts = read(csv=config.csv), read(csv=replace(config.csv, texts=names))
    values: dict[str, list[tuple[str, float]]] = {}
    for record, written in zip(numbers, texts, strict=False):
        for name, value in record.items():
            text = written.get(name)
            if type(text) is str and (type(value) is int or type(value) is float) and value == value:
                values.setdefault(name, []).append((text, value))
    return {name: why for name, pairs in values.items() if (why := why_codes(pairs)) is not None}


def _share(count: int, total: int) -> str:
    """Return a share in percent, at least 1."""
    return f"{max(1, round(100 * count / total))} %"
