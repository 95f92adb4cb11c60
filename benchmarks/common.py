"""Common functions of the benchmarks: the folder of data, and interleaved timings of two functions."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from streamkernel.connectors import Event

T = TypeVar("T")


def arguments(text: str | None, *, data: bool = False, **options: Any) -> argparse.Namespace:
    """Return the command line's options; `options` are names with their defaults."""
    parser = argparse.ArgumentParser(description=(text or "").splitlines()[0])
    if data:
        parser.add_argument(
            "--data", type=Path, default=Path("data"), help="folder of the files benchmarks/README.md names"
        )
    for name, default in options.items():
        if isinstance(default, bool):
            parser.add_argument(f"--{name}", action="store_true")
            continue
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"default: {default}")
    found = parser.parse_args()
    if data and not found.data.is_dir():
        parser.error(
            f"expected a folder with the data, found none at {found.data}; benchmarks/README.md says how to get it"
        )
    return found


def interleaved(runs: int, *jobs: Callable[[], T]) -> list[list[T]]:
    """Return the results of each of `jobs` in `runs` rounds; the jobs of a round run one after the other."""
    return [list(results) for results in zip(*([job() for job in jobs] for _ in range(runs)), strict=True)]


def seconds(job: Callable[[], Any]) -> float:
    """Return how long `job` takes."""
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def processor_seconds(job: Callable[[], Any]) -> float:
    """Return how much of the processor's time `job` takes in this process, whatever else the machine does."""
    began = time.process_time()
    job()
    return time.process_time() - began


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of the ratios, pair by pair."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


class InMemory:
    """A source of events that are at hand, `size` at each poll."""

    def __init__(self, events: Sequence[Event], size: int) -> None:
        self._slices = (events[i : i + size] for i in range(0, len(events), size))

    def poll(self, timeout: float) -> Sequence[Event] | None:
        """Return the next events."""
        return next(self._slices, None)

    def seek(self, positions: Mapping[str, Any]) -> None:
        """Do nothing; nobody asks."""

    def lag(self) -> Mapping[tuple[str, str], int]:
        """Return nothing."""
        return {}

    def close(self) -> None:
        """Do nothing."""
