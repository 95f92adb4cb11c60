"""How large the house is, and how far one walks in it: ``python tests/house.py`` prints the table."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRONOUN = re.compile(r"\b(?:that|those) of\b|\bthose that\b", re.IGNORECASE)
CLASS_CHECK = re.compile(r"isinstance\([^)]*(?:Source|Sink|Letters|Mirror)\b")
INDEX_RANGE = re.compile(r"2 \* (?:groups|len\([\w.]*(?:layout|groups|table)\))")
WALK = """
import json, sys, warnings
from pathlib import Path
import streamkernel
from streamkernel import KernelClassifier

warnings.simplefilter("ignore")
ROOT = Path(streamkernel.__file__).parents[1]
model, walks = KernelClassifier(learner=sys.argv[1]), []
for i in range(24):
    entered = set()
    def enter(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if event == "call" and ROOT in path.parents and ".venv" not in path.parts:
            entered.add(path.resolve().as_posix())
    x, y = {"a": i * 37 % 101 / 50.5 - 1.0, "b": i * 53 % 103 / 51.5 - 1.0}, i % 3 == 0
    sys.setprofile(enter)
    model.learn_one(x, y)
    sys.setprofile(None)
    walks.append(len(entered))
print(json.dumps([walks[0], walks[1], max(walks[2:])]))
"""


def sources() -> list[Path]:
    """Return the Python files of the package and its connectors, each once."""
    folders = ROOT / "streamkernel", ROOT / "connectors"
    return sorted({path.resolve() for folder in folders for path in folder.rglob("*.py")})


def pages() -> list[Path]:
    """Return the pages of the documentation."""
    return sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])


def places(pattern: re.Pattern[str], files: list[Path]) -> int:
    """Return how often files match a pattern."""
    return sum(len(pattern.findall(path.read_text())) for path in files)


def ancestors() -> int:
    """Return the number of our own classes that a classifier inherits from."""
    from streamkernel import KernelClassifier

    return sum(cls.__module__.startswith("streamkernel") for cls in KernelClassifier.__mro__) - 1


def walk(learner: str) -> list[int]:
    """Return the files that the first event of a new process enters, the second one, and the longest walk after."""
    command = [sys.executable, "-c", WALK, learner]
    return list(json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout))


def structure() -> dict[str, int]:
    """Return the figures of the code by their names."""
    files = sources()
    outside = [path for path in files if ROOT / "connectors" not in path.parents]
    return {
        "lines of Python": sum(len(path.read_text().splitlines()) for path in files),
        "files of Python": len(files),
        "longest file, in lines": max(len(path.read_text().splitlines()) for path in files),
        "ancestors of KernelClassifier": ancestors(),
        "class checks of sources and sinks outside their folder": places(CLASS_CHECK, outside),
        "places that compute an index range of functions": places(INDEX_RANGE, files),
        '"that of", "those of", "those that" in code': places(PRONOUN, files),
    }


def measured() -> dict[str, int]:
    """Return each figure of the house by its name."""
    events = zip(("first", "second", "a later one, at most"), walk("newton"), strict=True)
    return {
        **structure(),
        '"that of", "those of", "those that" in pages': places(PRONOUN, pages()),
        "words of pages": sum(len(path.read_text().split()) for path in pages()),
        **{f"files that an event enters: {name}": n for name, n in events},
    }


if __name__ == "__main__":
    for name, value in measured().items():
        sys.stdout.write(f"{value:>8,}  {name}\n")
