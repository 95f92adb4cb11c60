"""Results of one release: a file ``results/VERSION.json`` of scenarios, the models on each, and what each reached."""

from __future__ import annotations

import json
import os
import platform
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "results"
Results = dict[str, dict[str, "Result"]]


@dataclass(frozen=True)
class Result:
    """The result of a model on a scenario.

    Parameters
    ----------
    score
        Accuracy or R², more is better; ``None`` where it is not a finite number.
    events, of
        Events that were learned, and how many there are to learn.
    tested
        Events that the score is over.
    seconds
        Processor time of these events, without the test.
    library
        Of the model, with its version.
    machine
        Processor and number of cores.
    orders
        Scores in each order of the events, where they come in more than one; the score and the seconds are their means.
    """

    score: float | None
    events: int
    of: int
    tested: int
    seconds: float
    library: str
    machine: str
    orders: tuple[float, ...] = ()


def machine() -> str:
    """Return the processor and how many cores there are."""
    names = [
        line.split(":", 1)[1].strip()
        for path in [Path("/proc/cpuinfo")]
        if path.exists()
        for line in path.read_text().splitlines()
        if line.startswith("model name")
    ]
    return f"{(names or [platform.processor() or platform.machine()])[0]}, {os.cpu_count()} cores"


def path() -> Path:
    """Return the file of this release."""
    project = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text())["project"]
    return FOLDER / f"{project['version']}.json"


def newest() -> Results:
    """Return the results of this release, or else of the last one before it."""
    if path().exists():
        return read(path())
    files = sorted(FOLDER.glob("*.json"), key=lambda file: [int(part) for part in file.stem.split(".")])
    return read(files[-1]) if files else {}


def read(file: Path) -> Results:
    """Return the results in a file."""
    found = json.loads(file.read_text())
    return {
        scenario: {name: Result(**given | {"orders": tuple(given.get("orders", ()))}) for name, given in models.items()}
        for scenario, models in found.items()
    }


def write(results: Results, file: Path) -> None:
    """Write the results to a file."""
    plain = {scenario: {name: asdict(one) for name, one in models.items()} for scenario, models in results.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(plain, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
