"""The types of the fields in a sample of the source, for ``run --check``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from river.datasets.base import RemoteDataset

from streamkernel.engine.config import build
from streamkernel.engine.config.config import Config
from streamkernel.engine.config.messages import to_key
from streamkernel.engine.config.schema import STREAM
from streamkernel.engine.examples import remedy
from streamkernel.engine.learned_types import CATEGORIES, MIXED, UNDECIDED, LearnedTypes
from streamkernel.errors import InputError
from streamkernel.field_types import Fields

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
    records, ignored = list(_records(config)), config.ignored
    unseen = {*config.labels, *filter(None, others), *(name for record in records for name in record if ignored[name])}
    lines = describe(records, config.build_fields() or Fields({}), unseen)
    more = [f"note: {len(lines) - MOST_FIELDS:,} more fields"] if len(lines) > MOST_FIELDS else []
    return lines[:MOST_FIELDS] + more


def describe(records: list[Mapping[str, Any]], fields: Fields, unseen: set[str]) -> list[str]:
    """Return a line for each field of some records.

    Examples
    --------
    >>> records = [{"icd": 250.0 if i % 4 else "V45", "age": "old" if i == 3 else i, "y": 1} for i in range(100)]
    >>> for line in describe(records, Fields({}), {"y"}):
    ...     print(line)
    field icd: mixed, 75 % numbers; looks like codes; declare it: icd = "category"
    field age: numbers, 1 % texts, which would be dead letters; to take it, declare [fields] age = "category"
    >>> describe(records, Fields({"icd": "category"}), {"y", "age"})
    ['field icd: category, as declared']
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
    return [f"field {name}: {_describe(name, fields, types, unfit[name], len(records))}" for name in names]


def _describe(name: str, fields: Fields, types: LearnedTypes, unfit: int, n: int) -> str:
    if name in fields:
        return f"{fields.type_of(name)}, as declared" + (f"; {_share(unfit, n)} do not fit" if unfit else "")
    numbers, readable, texts, *_ = types.counts.get(name, (0, 0, 0))
    total, kind = numbers + readable + texts, types.type_of(name)
    if not total:
        return "no numbers and no texts"
    if kind == UNDECIDED:
        return f"undecided, because it has only {total} values"
    if kind == MIXED:
        return f'mixed, {_share(numbers, total)} numbers; looks like codes; declare it: {to_key(name)} = "category"'
    if kind == CATEGORIES:
        return "categories" + (f", {_share(numbers, total)} numbers, which are categories, too" if numbers else "")
    written = f", {_share(readable, total)} written as text" if readable else ""
    bad = f", {_share(texts, total)} texts, which would be dead letters{remedy(name, 'category')}" if texts else ""
    return f"numbers{written}{bad}"


def _records(config: Config) -> Iterator[Mapping[str, Any]]:
    """Yield the first usable records; those that a followed file does not have yet are not waited for."""
    source, n = config.build_source(), 0
    try:
        while n < MOST_RECORDS and (events := source.poll(0.0)):
            for event in events[: MOST_RECORDS - n]:
                n += 1
                if event.record is not None:
                    yield event.record
    finally:
        source.close()


def _share(count: int, total: int) -> str:
    """Return a share in percent, at least 1."""
    return f"{max(1, round(100 * count / total))} %"
