"""The types of the fields in a sample of the source, for ``run --check``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from river import base

from streamkernel.connectors import first_records
from streamkernel.engine import remedies
from streamkernel.engine.config.config import Config
from streamkernel.engine.config.messages import did_you_mean
from streamkernel.engine.config.samples import SourceSample, share
from streamkernel.engine.examples import Examples
from streamkernel.engine.learned_types import CATEGORIES, MIXED, SETTLED, UNDECIDED
from streamkernel.errors import InputError
from streamkernel.features.rows import is_missing
from streamkernel.field_types.number_codes import why_codes

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

    Parameters
    ----------
    records
        The records.
    examples
        The types that were learned from them.
    names
        The fields.
    codes
        Why numbers of some fields look like codes.

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
        f"; looks like codes, because {code}; if so, declare it: {remedies.declaration(name, 'category')}"
        if code
        else ""
    )
    if not values:
        return "no values"
    if others and len(others) >= len(values) / 2:
        what = f"{share(len(others), len(values))} {type(others[0]).__name__}, which are dead letters"
        return what + types.remedy(name, others[0])
    kind, placeholders = types.type_of(name), types.texts.placeholders(name)
    if kind == UNDECIDED:
        return f"undecided, because it has only {numbers + readable + texts} values{why}"
    if kind == MIXED:
        return f"mixed, {share(numbers, len(values))} numbers; {remedies.for_texts(name, placeholders)}"
    if kind == CATEGORIES:
        hint = remedies.for_alike_texts(name, alike) if texts >= SETTLED and (alike := types.texts.like(name)) else ""
        if not numbers:
            return "categories" + (f"; {hint}" if hint else "")
        more = f"; {remedies.for_texts(name, placeholders)}" if placeholders else ""
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
