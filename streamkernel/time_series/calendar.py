"""Hour, weekday and month of a timestamp as inputs."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

from river import base

from streamkernel.errors import InputError, shorten
from streamkernel.features.rows import is_missing
from streamkernel.field_types.number_texts import TimeUnit, TimeUnitError, moment_or_number, seconds_since_1970

_CYCLES = {"hour": 24.0, "weekday": 7.0, "day": 31.0, "month": 12.0}
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class Calendar(base.Transformer):
    """Parts of a timestamp as places on a circle, so that 23:59 is near 0:00, or as categories.

    The timestamp itself is removed: no model can learn from a value that is new in each example. An example without it,
    or with ``None``, NaN or NaT, passes without its parts.

    Parameters
    ----------
    field : str
        The field with the time: a ``datetime``, text in ISO 8601, or a number since 1970 (UTC). Parts are those of the
        time as it is written: with an offset, as ``06:00+02:00``, they are local.
    parts : sequence of str, default ("hour", "weekday", "month")
        Any of ``"hour"``, ``"weekday"``, ``"day"`` (of the month) and ``"month"``.
    form : {"cyclic", "category"}, default "cyclic"
        ``"cyclic"`` adds ``time_hour_sin`` and ``time_hour_cos``, where minutes count as parts of an hour and hours as
        parts of a day; ``"category"`` adds a string such as ``"Monday"`` or ``"23"``.
    unit : {"s", "ms", "us", "ns"}, default "s"
        The unit of a number: seconds, milliseconds, microseconds or nanoseconds.

    Raises
    ------
    ValueError
        If `parts`, `form` or `unit` is something else.

    Examples
    --------
    >>> from streamkernel import Calendar
    >>> Calendar("at", ["hour"]).transform_one({"at": "2026-11-24T06:00", "load": 0.5})
    {'load': 0.5, 'at_hour_sin': 1.0, 'at_hour_cos': 0.0}
    >>> Calendar("at", ["weekday", "hour"], form="category").transform_one({"at": "2026-11-24T06:30"})
    {'at_weekday': 'Tuesday', 'at_hour': '6'}
    """

    def __init__(
        self,
        field: str,
        parts: Sequence[str] = ("hour", "weekday", "month"),
        form: Literal["cyclic", "category"] = "cyclic",
        unit: TimeUnit = "s",
    ) -> None:
        if isinstance(parts, str) or not parts or not set(parts) <= _CYCLES.keys():
            raise ValueError(f"Expected some of {', '.join(_CYCLES)} as parts, got {parts!r}")
        if form not in ("cyclic", "category"):
            raise ValueError(f'Expected form to be "cyclic" or "category", got {form!r}')
        if unit not in get_args(TimeUnit):
            raise ValueError(f'Expected unit to be "s", "ms", "us" or "ns", got {unit!r}')
        self.field = field
        self.parts = parts
        self.form = form
        self.unit: TimeUnit = unit

    def transform_one(self, x: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        """Return an example with the parts of its time in place of the time.

        Parameters
        ----------
        x : dict
            The features by name.

        Raises
        ------
        InputError
            If the field has no time.
        """
        rest = {name: value for name, value in x.items() if name != self.field}
        if is_missing(x.get(self.field)):
            return rest
        moment = _moment(x[self.field], self.unit, self.field)
        for part in self.parts:
            name = f"{self.field}_{part}"
            if self.form == "category":
                rest[name] = _WEEKDAYS[moment.weekday()] if part == "weekday" else str(getattr(moment, part))
            else:
                angle = 2.0 * math.pi * _place(moment, part) / _CYCLES[part]
                rest[f"{name}_sin"], rest[f"{name}_cos"] = round(math.sin(angle), 12), round(math.cos(angle), 12)
        return rest

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"field": "time"}


def _place(moment: dt.datetime, part: str) -> float:
    """Return the fraction of a part's cycle that has passed at a moment, from 0."""
    hour = moment.hour + moment.minute / 60.0 + moment.second / 3600.0
    if part == "hour":
        return hour
    if part == "weekday":
        return moment.weekday() + hour / 24.0
    day = moment.day - 1.0 + hour / 24.0
    return day if part == "day" else moment.month - 1.0 + day / 31.0


def _moment(value: Any, unit: TimeUnit, field: str) -> dt.datetime:
    moment = moment_or_number(value)
    if isinstance(moment, dt.datetime):
        return moment
    try:
        return dt.datetime.fromtimestamp(seconds_since_1970(value, unit), dt.UTC)
    except TimeUnitError as error:
        hint = "" if error.unit is None else f'; set unit="{error.unit}"'
        problem = f"{error}{hint}"
    except (ValueError, OverflowError, OSError) as error:
        problem = str(error) if moment is None else f"Expected a time in the years 1 to 9999, got {shorten(value)}"
    raise InputError(f"{problem} - at x[{field!r}]")
