"""Events in ARFF, the files that MOA reads and writes: a line for each column, then a line for each event."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

COLUMN = re.compile(r"@attribute\s+('(?:\\.|[^'\\])*'|\S+)\s+(.+)", re.IGNORECASE)
MISSING = "?"


def quoted(text: str) -> str:
    """Return a name as it stands in a file."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def cells(line: str) -> list[str]:
    """Return the values between the commas of a line."""
    return next(csv.reader([line.strip().rstrip(",")], quotechar="'", escapechar="\\", skipinitialspace=True))


def write(
    path: Path, events: Sequence[tuple[dict[str, float], Any]], classes: Sequence[Any], unlabelled: int = 0
) -> None:
    """Write events of numbers; an input that an event does not have is 0.

    Parameters
    ----------
    path
        The file.
    events
        Inputs and target of each.
    classes
        All classes there are, or none where targets are numbers.
    unlabelled
        Number of events at the end that are written without their targets.
    """
    names = list(dict.fromkeys(name for x, _ in events for name in x))
    target = "{" + ",".join(quoted(str(label)) for label in classes) + "}" if classes else "numeric"
    with path.open("w") as file:
        file.write("@relation events\n")
        file.writelines(f"@attribute {quoted(name)} numeric\n" for name in names)
        file.write(f"@attribute {quoted('target')} {target}\n@data\n")
        for i, (x, y) in enumerate(events):
            known = i < len(events) - unlabelled
            end = (quoted(str(y)) if classes else repr(float(y))) if known else MISSING
            file.write(",".join([*(repr(float(x.get(name, 0.0))) for name in names), end]) + "\n")


def value(text: str, kind: list[str] | None) -> float | str:
    """Return a number where it is one, or else the text."""
    try:
        return float(text)
    except ValueError:
        if kind is None:
            raise
        return text


def head(file: Iterable[str]) -> list[tuple[str, list[str] | None]]:
    """Return the columns up to the first event, each with the texts it may have or none for numbers."""
    columns: list[tuple[str, list[str] | None]] = []
    for line in file:
        if line.strip().lower() == "@data":
            break
        if found := COLUMN.match(line.strip()):
            kind = found[2].strip()
            columns.append((cells(found[1])[0], cells(kind[1:-1]) if kind.startswith("{") else None))
    return columns


def labels(path: Path) -> list[str]:
    """Return the classes of a file whose last column is the target, none where that is a number."""
    with path.open() as file:
        return head(file)[-1][1] or []


def read(path: Path) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield the events of a file whose last column is the target; what is missing is not in the event.

    A class is text. An input that is one of several texts is a number where the text is one.
    """
    with path.open() as file:
        *inputs, (_, classes) = head(file)
        for line in file:
            if not line.strip() or line.startswith("%"):
                continue
            *given, target = cells(line)
            x = {name: value(text, kind) for (name, kind), text in zip(inputs, given, strict=True) if text != MISSING}
            yield x, (None if target == MISSING else target if classes else float(target))
