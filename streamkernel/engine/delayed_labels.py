"""Labels that arrive later than their features: pending predictions in a bounded store, and the clock of their age."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from streamkernel.engine.checkpoint.state_file import pack, unpack
from streamkernel.engine.pipelines import Answer
from streamkernel.errors import JoinError, shorten
from streamkernel.field_types.number_texts import TimeUnit, TimeUnitError, expected, seconds_since_1970

SET_BACK = 1000
"""Events in a row, all older than the time limit, after which the clock was set back."""

SET_AHEAD = 100
"""Events in a row, all further ahead than the time limit, after which the clock follows them."""

LONGEST_KEY = 1000
"""Largest number of characters of a key."""

_EXACT = 1 << 53
"""A float of this size or more may be another integer than the one that was sent."""

Key = str
"""The text of a key: ``7``, ``7.0`` and ``"7"`` are the same."""


class LabelClock:
    """A clock that follows the times of events, or the time that passes while they are read.

    It never goes back. An event that is further ahead than the time limit moves it only when `SET_AHEAD` events in a
    row are, and then to the earliest of them: one wrong time must not drop all that waits. When `SET_BACK` events in a
    row are older than the time limit, it continues from their times, and pending events keep their age. `limit` is the
    time limit, in seconds. `now` is the time, in seconds.

    Examples
    --------
    >>> clock = LabelClock(60.0)
    >>> [clock.follow(time) for time in (1000.0, 1010.0, 9e9, 1005.0)], clock.now
    ([1000.0, 1010.0, 9000000000.0, 1005.0], 1010.0)
    """

    def __init__(self, limit: float) -> None:
        self.now = -math.inf
        self._limit = limit
        self._shift = 0.0  # of the events' times, since they were set back
        self._behind = self._beyond = 0  # events in a row
        self._earliest = math.inf  # of the times that are ahead
        self._read: float | None = None

    @property
    def is_in_doubt(self) -> bool:
        """Whether the last events were further ahead than the time limit."""
        return self._beyond > 0

    def follow(self, time: float) -> float:
        """Follow the time of an event, and return that time on this clock."""
        time += self._shift
        if self.now == -math.inf:
            self.now = time
        if time > self.now + self._limit:
            self._behind = 0
            self._beyond += 1
            self._earliest = min(self._earliest, time)
            if self._beyond < SET_AHEAD:
                return time
            self.now = self._earliest
        elif time < self.now - self._limit:
            self._behind += 1
            if self._behind >= SET_BACK:
                self._shift += self.now - time
                self._behind, time = 0, self.now
        else:
            self._behind = 0
            self.now = max(self.now, time)
        self._beyond, self._earliest = 0, math.inf
        return time

    def tick(self, seconds: float) -> float:
        """Follow a clock that shows `seconds`, and return the time, which starts at the first call.

        Examples
        --------
        >>> clock = LabelClock(60.0)
        >>> [clock.tick(seconds) for seconds in (500.0, 530.0, 510.0, 511.0)]
        [0.0, 30.0, 30.0, 31.0]
        """
        passed = 0.0 if self._read is None else max(0.0, seconds - self._read)
        self.now = max(self.now, 0.0) + passed
        self._read = seconds
        return self.now

    def state(self) -> tuple[float, ...]:
        """Return the complete state."""
        return self.now, self._shift, self._behind, self._beyond, self._earliest

    def restore(self, state: Sequence[float]) -> None:
        """Restore a state that `state` returned."""
        self.now, self._shift, behind, beyond, self._earliest = state
        self._behind, self._beyond, self._read = int(behind), int(beyond), None


class PendingExample(NamedTuple):
    """Features without a label, with the predictions of the model and the baseline."""

    since: float
    key: Key
    place: str
    x: dict[str, Any]
    prediction: Any
    probabilities: dict[Any, float] | None
    baseline_prediction: Any
    baseline_probabilities: dict[Any, float] | None
    w: float = 1.0
    threshold: Any = None

    @property
    def answers(self) -> tuple[Answer, Answer]:
        """The predictions as they were made, ours with the threshold of its interval if it has one."""
        return self[4:6] if self.threshold is None else (*self[4:6], self.threshold), self[6:8]


class DelayedLabels:
    """A join of features and their later labels by key.

    An entry expires after `timeout_seconds`, or when `max_pending` newer ones are pending. Time is read from
    :class:`~streamkernel.engine.delayed_labels.LabelClock`, which advances with events. `counts` are joined pairs;
    labels that came early, again (duplicate), after their features were dropped (late), or whose features never arrived
    (unmatched); features whose label did not arrive in time (expired) or before too many newer ones waited (evicted),
    or that came again while they waited (repeated). `since_joined` are features that came since a label was last
    joined, labels without features (early) or after they were dropped (late), and features that were dropped (lost).
    `last_keys` is the key of the last features that began to wait, and of the last label without features, in this
    process.

    `key` is the field that joins the two: a string of at most `LONGEST_KEY` characters, an integer of 64 bits, or
    another number. `max_pending` limits features without their label, labels without their features, and keys that are
    remembered after that, so that a second label is known as one. `time` is the field with the time of the event, a
    number of `time_unit` since 1970, or ISO 8601 (UTC where no offset is given). By default it is the time that passes
    on `clock`, which must not jump, while events are read; the time between a stop and the next start does not count.

    Examples
    --------
    >>> labels = DelayedLabels("id", timeout_seconds=60)
    >>> answers = ("spam", None), (None, None)
    >>> labels.wait(labels.arrive({"id": 7, "words": 120}), {"words": 120}, answers, "mails")
    >>> labels.waiting_for(labels.arrive({"id": 7, "y": "ham"}, is_label=True), "ham").answers[0]
    ('spam', None)
    >>> labels.discard("7")
    >>> labels.waiting_for("7", "spam")
    Traceback (most recent call last):
        ...
    streamkernel.errors.JoinError: Expected one label for a key, got another one - at key '7'
    """

    def __init__(
        self,
        key: str,
        *,
        max_pending: int = 100_000,
        timeout_seconds: float = 86_400.0,
        time: str | None = None,
        time_unit: TimeUnit = "s",
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.key = key
        self.fields = frozenset({key} if time is None else {key, time})
        self.counts = dict.fromkeys(
            ("joined", "early", "duplicate", "late", "unmatched", "expired", "evicted", "repeated"), 0
        )
        self.since_joined = dict.fromkeys(("features", "early", "late", "lost"), 0)
        self.last_keys: dict[str, Key] = {}
        self._max_pending = max_pending
        self._timeout_seconds = timeout_seconds
        self._time, self._unit = time, time_unit
        self._read = clock
        self._clock = LabelClock(timeout_seconds)
        self._event = 0.0  # the time of the record that came last
        self._waiting: OrderedDict[Key, PendingExample] = OrderedDict()
        self._early: OrderedDict[Key, tuple[float, Key, Any]] = OrderedDict()
        self._done: OrderedDict[Key, bool] = OrderedDict()  # whether it was joined

    def __len__(self) -> int:
        """Return the number of features without a label."""
        return len(self._waiting)

    @property
    def n_early(self) -> int:
        """The number of labels without features, which may still come."""
        return len(self._early)

    def keys_left(self) -> dict[str, Key]:
        """Return the key of the last features without a label, pending or dropped, and of such a label, if any."""
        dropped = (key for key, is_joined in reversed(self._done.items()) if not is_joined)
        left = {"features": next(reversed(self._waiting), None) or next(dropped, None)}
        left["label"] = next(reversed(self._early), None) or self.last_keys.get("label")
        return {name: key for name, key in left.items() if key is not None}

    def __contains__(self, key: Key) -> bool:
        """Return whether features of a key are without a label."""
        return key in self._waiting

    def arrive(self, record: Mapping[str, Any], is_label: bool = False) -> Key:
        """Return the key of a record, after dropping the entries that have expired by its time.

        Raise `JoinError` if there is no usable key, or no usable time; a label may come without a time.
        """
        key = self.key_of(record)
        if self._time is None:
            self._event = self._clock.tick(self._read())
        elif not is_label or record.get(self._time) is not None:
            self._event = self._clock.follow(self._seconds(record, self._time))
        else:
            self._event = self._clock.now
        self._expire(self._waiting)
        self._expire(self._early)
        return key

    def label_of(self, key: Key) -> Any:
        """Return the pending label for new features, or ``None``; raise a `JoinError` if such features wait already."""
        self._give_up(key)
        if key in self._waiting:
            self.counts["repeated"] += 1
            raise JoinError(
                f"Expected one record of features for a key that waits for its label, got two - at key {key!r}, "
                f"the first in {self._waiting[key].place}"
            )
        return self._early[key][2] if key in self._early else None

    def wait(self, key: Key, x: dict[str, Any], answers: tuple[Answer, Answer], place: str, w: float = 1.0) -> None:
        """Keep features with their predictions, origin and weight until their label arrives."""
        prediction, probabilities, threshold, *_ = (*answers[0], None)
        answered = map(plain, (prediction, probabilities, *answers[1]))
        self.since_joined["features"] += 1
        self.last_keys["features"] = key
        self._waiting[key] = PendingExample._make((self._since, key, place, x, *answered, w, threshold))
        if len(self._waiting) > self._max_pending:
            self.counts["evicted"] += 1
            self.since_joined["lost"] += 1
            self._remember(self._waiting.popitem(last=False)[0], joined=False)

    def waiting_for(self, key: Key, y: Any) -> PendingExample | None:
        """Return the pending features for the label `y` of `key`; without any, the label becomes pending.

        Raise `JoinError` if there was a label for `key` already, or the features have been dropped.
        """
        self._give_up(key)
        if key in self._waiting:
            return self._waiting[key]
        if key in self._early or self._done.get(key):
            self.counts["duplicate"] += 1
            raise JoinError(f"Expected one label for a key, got another one - at key {key!r}")
        if key in self._done:
            self.counts["late"] += 1
            self.since_joined["late"] += 1
            raise JoinError(f"Expected a label for pending features, got one after they expired - at key {key!r}")
        self.counts["early"] += 1
        self.since_joined["early"] += 1
        self.last_keys["label"] = key
        self._early[key] = self._since, key, y
        if len(self._early) > self._max_pending:
            self.counts["unmatched"] += 1
            self._early.popitem(last=False)
        return None

    def discard(self, key: Key) -> None:
        """Remove the entry of `key` after its label has been learned."""
        self._waiting.pop(key, None)
        self._early.pop(key, None)
        self.counts["joined"] += 1
        self.since_joined = dict.fromkeys(self.since_joined, 0)
        self._remember(key, joined=True)

    def state(self) -> dict[str, Any]:
        """Return the complete state as plain values and arrays."""
        return {
            "counts": dict(self.counts),
            "since_joined": dict(self.since_joined),
            "clock": self._clock.state(),
            "waiting": pack(self._waiting.values(), width=len(PendingExample._fields)),
            "early": pack(self._early.values(), width=3),
            "done": pack(self._done.items(), width=2),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state` returned."""
        self.counts = dict(state["counts"])
        self.since_joined = dict(state["since_joined"])
        self._clock.restore(state["clock"])
        self._waiting = OrderedDict((row[1], PendingExample(*row)) for row in unpack(state["waiting"]))
        self._early = OrderedDict((row[1], row) for row in unpack(state["early"]))
        self._done = OrderedDict(unpack(state["done"]))

    def key_of(self, record: Mapping[str, Any]) -> Key:
        """Return the key of a record as text; a float without a fraction has the text of an integer.

        Raise `JoinError` if there is none, or it cannot be one.
        """
        key, problem = record.get(self.key), "Expected a string or a number as key, got"
        if isinstance(key, str):
            if len(key) <= LONGEST_KEY:
                return key
            problem = f"Expected a key of at most {LONGEST_KEY:,} characters, got {len(key):,}"
        elif type(key) is int:
            if -(1 << 63) <= key < 1 << 64:
                return str(key)
            problem = f"Expected an integer of 64 bits as key, got {shorten(key)}"
        elif type(key) is float and abs(key) < _EXACT:  # which NaN is not
            return str(int(key)) if key.is_integer() else str(key)
        elif type(key) is float and math.isfinite(key):
            problem = f"Expected a key with all its digits, got the float {key!r}, which may have lost some"
        else:
            problem += f" {shorten(key) if key is not None else 'null' if self.key in record else 'no such field'}"
        raise JoinError(f'{problem} - at field "{self.key}"')

    def _seconds(self, record: Mapping[str, Any], field: str) -> float:
        """Return the time in a field, in seconds."""
        value = record.get(field)
        try:
            if value is not None:
                return seconds_since_1970(value, self._unit)
            problem = f"{expected(self._unit)}, got {'null' if field in record else 'no such field'}"
        except TimeUnitError as error:
            hint = "" if error.unit is None else f'; set delayed_labels.time_unit = "{error.unit}"'
            problem = f"{error}{hint}"
        except ValueError as error:
            problem = str(error)
        raise JoinError(f'{problem} - at field "{field}"')

    @property
    def _since(self) -> float:
        """The start of the last record's wait: its time may be ahead of the clock, which does not follow at once."""
        return max(self._clock.now, self._event)

    def _give_up(self, key: Key) -> None:
        """Drop the entry of a key that has expired by the time of the last record."""
        for entries in (self._waiting, self._early):
            if key in entries and self._since - entries[key][0] > self._timeout_seconds:
                del entries[key]
                self._count_dropped(key, entries)

    def _count_dropped(self, key: Key, entries: OrderedDict[Key, Any]) -> None:
        if entries is self._waiting:
            self.counts["expired"] += 1
            self.since_joined["lost"] += 1
            self._remember(key, joined=False)
        else:
            self.counts["unmatched"] += 1

    def _expire(self, entries: OrderedDict[Key, Any]) -> None:
        """Drop the expired entries, oldest first."""
        now, limit = self._clock.now, self._timeout_seconds
        while entries:
            key = next(iter(entries))
            since = entries[key][0]
            if since > now + limit and not self._clock.is_in_doubt:  # its time was wrong: it waits from now on
                entry = entries.pop(key)
                entries[key] = entry._replace(since=now) if isinstance(entry, PendingExample) else (now, *entry[1:])
            elif now - since > limit:
                del entries[key]
                self._count_dropped(key, entries)
            else:
                return

    def _remember(self, key: Key, joined: bool) -> None:
        self._done[key] = joined
        self._done.move_to_end(key)
        if len(self._done) > self._max_pending:
            self._done.popitem(last=False)


def plain(value: Any) -> Any:
    """Return a NumPy scalar as Python's own type, so that a restart changes neither bits nor types."""
    if isinstance(value, dict):
        return {label: plain(probability) for label, probability in value.items()}
    return value.item() if isinstance(value, np.generic) else value
