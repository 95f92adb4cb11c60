"""River's data sets as sources."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from streamkernel.connectors.base import Event, Position, is_count, position_of, unknown_name
from streamkernel.connectors.interfaces import Source

BATCH_EVENTS = 512


class DatasetSource(Source):
    """The records of one of River's data sets.

    The fields of a record are the features, with their names as strings, and the target. Its position is the number of
    records up to it. Its ``raw`` is empty, because a data set has no bytes.

    Parameters
    ----------
    dataset : object
        A data set, or its name, such as ``"Phishing"`` or ``"synth.Friedman"``.
    label : str, default "y"
        The name of the field for the target.
    limit : int or None, default None
        The number of records to read, counted from the start; ``None`` for all.
    params : dict or None, default None
        The arguments of the data set, if `dataset` is a name.

    Raises
    ------
    ValueError
        If no data set has this name, or `params` are given with a data set that is not a name. `poll` raises it if a
        feature has the name of the label.
    TypeError
        If `dataset` is neither a data set nor a name.

    Notes
    -----
    A generator without a seed is given 0: otherwise its stream could not be resumed.

    Examples
    --------
    >>> source = DatasetSource("synth.STAGGER", limit=2, params={"seed": 7})
    >>> for event in source.poll(timeout=1):
    ...     print(event.resume, event.record)
    1 {'size': 1, 'color': 0, 'shape': 1, 'y': 0}
    2 {'size': 2, 'color': 0, 'shape': 0, 'y': 0}
    >>> source.poll(timeout=1) is None
    True
    """

    def __init__(
        self, dataset: Any, label: str = "y", limit: int | None = None, params: Mapping[str, Any] | None = None
    ) -> None:
        from numpy import generic
        from river.datasets.base import Dataset

        if limit is not None and limit < 0:
            raise ValueError(f"Expected a limit of at least 0, got {limit}")
        if isinstance(dataset, str):
            dataset = _dataset_class(dataset)(**(params or {}))
        elif not isinstance(dataset, Dataset):
            raise TypeError(f"Expected a data set of River or its name, got {type(dataset).__name__}")
        elif params is not None:
            raise ValueError("Expected params only with the name of a data set, got them with a data set")
        self._dataset = _set_seeds(dataset)
        self._name = _name_of(type(dataset))
        self._label = label
        self._limit = limit
        self._read = 0
        self._numpy_scalar = generic
        self._pairs: Iterator[tuple[Mapping[Any, Any], Any]] | None = None

    def seek(self, positions: Mapping[str, Position]) -> None:
        """Continue after the given number of records.

        Raises
        ------
        ValueError
            If the position is of another data set, or there are fewer records.
        """
        position = position_of(self._name, positions)
        if position is None:
            return
        if not is_count(position):
            raise ValueError(f"Expected a number of records as position, got {position!r} - at {self._name}")
        self._read = sum(1 for _ in itertools.islice(self._open(), position))
        if self._read < position:
            raise ValueError(f"Expected at least {position} records, got {self._read} - at {self._name}")

    def poll(self, timeout: float) -> list[Event] | None:
        """Return the next few hundred events, without waiting except for a download before the first one.

        Raises
        ------
        ValueError
            If a feature has the name of the label.
        OSError
            If the data set must be downloaded and cannot be.
        """
        left = BATCH_EVENTS if self._limit is None else min(BATCH_EVENTS, self._limit - self._read)
        pairs = itertools.islice(self._open(), max(0, left))
        return [self._event(x, y) for x, y in pairs] or None

    def goes_back(self, before: Position, position: Position) -> bool:
        """Return whether the number of a record is less than an earlier one."""
        return bool(position < before)

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return the number of remaining records as ``(name, "0")``, 0 if it is unlimited."""
        ends = [end for end in (self._limit, self._dataset.n_samples) if end is not None]
        return {(self._name, "0"): max(0, min(ends) - self._read) if ends else 0}

    def close(self) -> None:
        """Close the file of the data set, if there is one."""
        if close := getattr(self._pairs, "close", None):
            close()

    def _open(self) -> Iterator[tuple[Mapping[Any, Any], Any]]:
        if self._pairs is None:
            _download(self._dataset)
            self._pairs = iter(self._dataset)
        return self._pairs

    def _event(self, x: Mapping[Any, Any], y: Any) -> Event:
        self._read += 1
        record = self._plain(x)
        if self._label in record:
            raise ValueError(
                f'Expected a label with another name than each feature, got "{self._label}" - at {self._name}'
            )
        record[self._label] = self._plain(y) if isinstance(y, Mapping) else self._scalar(y)
        return Event(self._name, self._read, b"", record)

    def _plain(self, fields: Mapping[Any, Any]) -> dict[str, Any]:
        scalar = self._numpy_scalar
        return {str(name): value.item() if isinstance(value, scalar) else value for name, value in fields.items()}

    def _scalar(self, value: Any) -> Any:
        return value.item() if isinstance(value, self._numpy_scalar) else value


def _name_of(cls: type[Any]) -> str:
    return f"synth.{cls.__name__}" if cls.__module__.startswith("river.datasets.synth") else cls.__name__


def _dataset_class(name: str) -> type[Any]:
    from river import datasets
    from river.datasets import synth

    members = [cls for module in (datasets, synth) for _, cls in inspect.getmembers(module, inspect.isclass)]
    kinds = [cls for cls in members if issubclass(cls, datasets.base.Dataset) and not inspect.isabstract(cls)]
    classes = {_name_of(cls): cls for cls in kinds}
    if name not in classes:
        raise unknown_name("a data set of", name, classes)
    return classes[name]


def _set_seeds(dataset: Any) -> Any:
    """Return a copy of the data set with a seed wherever it had none."""
    from river.datasets.base import Dataset

    dataset = copy.copy(dataset)
    for name, value in vars(dataset).items():
        if name.startswith("seed") and value is None:
            setattr(dataset, name, 0)
        elif isinstance(value, Dataset):
            setattr(dataset, name, _set_seeds(value))
    return dataset


def _download(dataset: Any) -> None:
    """Download a data set if it is missing; River's output about it goes to standard error."""
    from river.datasets.base import RemoteDataset

    if not isinstance(dataset, RemoteDataset) or dataset.is_downloaded:
        return
    try:
        with contextlib.redirect_stdout(sys.stderr):
            dataset.download()
    except OSError as error:
        name = _name_of(type(dataset))
        raise OSError(f"Expected to download data set {name} from {dataset.url}, got an error: {error}") from error
