"""Times are read alike in declared fields, in calendars and in delayed labels."""

import datetime as dt
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from streamkernel import Calendar, Fields, InputError
from streamkernel.engine.delayed_labels import DelayedLabels
from streamkernel.errors import JoinError
from streamkernel.field_types.number_texts import TimeUnit

MOMENT = dt.datetime(2026, 7, 24, 6, 30, tzinfo=dt.UTC)
SECONDS = 1_784_874_600
"""The moment by `date -d 2026-07-24T06:30Z +%s`."""

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

MOMENTS = [
    MOMENT,
    "2026-07-24T06:30Z",
    " 2026-07-24 08:30:00.000+02:00 ",
    "20260724T0630",
    MOMENT.replace(tzinfo=None),
    MOMENT.astimezone(ZoneInfo("Asia/Tokyo")),
    pd.Timestamp(MOMENT),
    pd.Timestamp("2026-07-24T06:30"),
    np.datetime64("2026-07-24T06:30"),
    np.datetime64("2026-07-24T06:30", "ns"),
]
DAYS = ["2026-07-24", "20260724", dt.date(2026, 7, 24), np.datetime64("2026-07-24")]
NO_TIMES = [
    "noon",
    "2026-13",
    "12%",
    "",
    "12 %",
    "1,234",
    "0123",
    "1_000",
    True,
    [1],
    1e300,
    -1e11,
    "-99999999999",
    float("inf"),
]


def declared(value: Any, unit: TimeUnit = "s") -> float:
    """Return a time in a field with a declared type."""
    return Fields({"t": {"type": "time", "unit": unit}}).transform_one({"t": value})["t"]


def delayed(value: Any, unit: TimeUnit = "s") -> float:
    """Return the time of a record whose label comes later."""
    labels = DelayedLabels("id", time="t", time_unit=unit)
    labels.arrive({"id": 1, "t": value})
    return labels._event


READERS: list[Callable[..., float]] = [declared, delayed]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("value", MOMENTS, ids=repr)
def test_moments_in_any_form(read: Callable[..., float], value: Any) -> None:
    assert read(value) == read(value, "ms") == SECONDS


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("value", DAYS, ids=repr)
def test_a_day_begins_at_midnight(read: Callable[..., float], value: Any) -> None:
    assert read(value) == SECONDS - 6.5 * 3600


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("unit", PER_SECOND)
@pytest.mark.parametrize("form", [int, float, str, np.int64, np.float64, lambda n: f"{n}.0"])
def test_numbers_are_in_the_unit(read: Callable[..., float], unit: TimeUnit, form: Callable[[int], Any]) -> None:
    assert read(form(SECONDS * PER_SECOND[unit]), unit) == SECONDS


@pytest.mark.parametrize(
    ("read", "hint"),
    [(declared, "declare unit = "), (delayed, "set delayed_labels.time_unit = ")],
)
@pytest.mark.parametrize(
    ("unit", "other", "name"),
    [
        ("s", "ms", "milliseconds"),
        ("s", "us", "microseconds"),
        ("s", "ns", "nanoseconds"),
        ("ms", "us", "microseconds"),
        ("ms", "ns", "nanoseconds"),
        ("us", "ns", "nanoseconds"),
    ],
)
def test_a_smaller_unit_is_refused_by_name(
    read: Callable[..., float], hint: str, unit: TimeUnit, other: str, name: str
) -> None:
    number = SECONDS * PER_SECOND[other]
    with pytest.raises((InputError, JoinError), match=rf'got {number}, which looks like {name}; {hint}"{other}" - at'):
        read(number, unit)


@pytest.mark.parametrize(
    ("read", "hint"), [(declared, "declare unit = "), (delayed, "set delayed_labels.time_unit = ")]
)
@pytest.mark.parametrize(("unit", "other"), [("ms", "s"), ("us", "s"), ("us", "ms"), ("ns", "s"), ("ns", "us")])
@pytest.mark.parametrize("form", [int, str, float])
def test_a_larger_unit_is_refused_by_name(
    read: Callable[..., float], hint: str, unit: TimeUnit, other: str, form: Callable[[int], Any]
) -> None:
    with pytest.raises((InputError, JoinError), match=rf'which looks like \w+; {hint}"{other}" - at field "t"'):
        read(form(SECONDS * PER_SECOND[other]), unit)


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("2026", "2026-01-01"), ("2026-07", "2026-07-01"), ("20260724", "2026-07-24"), (20260724, "2026-07-24"),
        (86_400, "1970-01-02"), (20_000_000, "1970-08-20T11:33:20"),
    ],
)  # fmt: skip
def test_dates_of_any_precision(value: Any, moment: str) -> None:
    assert declared(value) == dt.datetime.fromisoformat(moment).replace(tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("value", NO_TIMES, ids=repr)
def test_no_times(read: Callable[..., float], value: Any) -> None:
    with pytest.raises((InputError, JoinError), match=r'Expected a time in .*, got .* - at field "t"'):
        read(value)
    with pytest.raises(InputError, match=r"Expected a time in .*, got .* - at x\['t'\]"):
        Calendar("t").transform_one({"t": value})


def test_a_declared_zone_is_for_times_without_one() -> None:
    fields = Fields({"t": {"type": "time", "zone": "Europe/Berlin"}})
    for value in ("2026-07-24T08:30", dt.datetime(2026, 7, 24, 8, 30), pd.Timestamp("2026-07-24T08:30"), MOMENT):
        assert fields.transform_one({"t": value}) == {"t": SECONDS}
    winter = fields.transform_one({"t": "2026-01-24"})["t"]
    assert winter == dt.datetime(2026, 1, 23, 23, tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize("value", [*MOMENTS, SECONDS, str(SECONDS)], ids=repr)
def test_a_calendar_reads_the_same_times(value: Any) -> None:
    local = {"at_hour": "15" if getattr(value, "tzinfo", None) == ZoneInfo("Asia/Tokyo") else "6"}
    if isinstance(value, str) and "+02:00" in value:
        local = {"at_hour": "8"}
    assert Calendar("at", ["hour"], "category").transform_one({"at": value}) == local
