"""Progress lines of long fits, and a result for a user who interrupts them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

Tell = Callable[[float, str], None]
"""A function of the completed share, from 0 to 1, and a text; called between compiled calls."""


@contextmanager
def progress_line(what: str, *, show: bool) -> Iterator[Tell]:
    """Yield a function that updates a progress line on standard error, if it is to be shown."""
    if not show:
        yield lambda done, text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as line:
        task = line.add_task(what, total=1.0, text="")
        yield lambda done, text: line.update(task, completed=done, text=text)


@contextmanager
def progress(what: str, *, show: bool) -> Iterator[Tell]:
    """Yield a function that updates a progress line on standard error; Ctrl-C ends the work inside, not the program.

    The code inside must keep its best result so far where it can be found after the block.

    Examples
    --------
    >>> with progress("Solving", show=False) as tell:
    ...     best = None
    ...     for i in range(4):
    ...         best = i
    ...         tell((i + 1) / 4, f"gap {10.0**-i:.0e}")
    ...         if i == 2:
    ...             raise KeyboardInterrupt
    >>> best
    2
    """
    try:
        with progress_line(what, show=show) as tell:
            yield tell
    except KeyboardInterrupt:
        log.warning("%s was interrupted; the best result so far is kept", what)
