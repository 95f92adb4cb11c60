"""Finds the words of docs/words.txt in pages, docstrings, comments and messages: ``python docs/prose.py``."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXTS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
FILES = ["*.md", "streamkernel/*.py", "connectors/*.py", "dashboards/*.py"]


@functools.cache
def words() -> dict[re.Pattern[str], str]:
    """Return the patterns of the file, each with what to write instead."""
    lines = (ROOT / "docs" / "words.txt").read_text().splitlines()
    pairs = [line.split(" -> ") for line in lines if line and not line.startswith("#")]
    return {re.compile(pattern, re.IGNORECASE): instead for pattern, instead in pairs}


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that people read, with their numbers; code is left out."""
    if path.suffix == ".py":
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type in TEXTS:
                    yield from enumerate(token.string.splitlines(), token.start[0])
        return
    fenced = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        if not fenced:
            yield number, re.sub(r"`[^`]*`", "``", line)


def found(path: Path) -> list[str]:
    """Return where a file has one of the words."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r}; write {instead}"
        for number, line in prose(path)
        for pattern, instead in words().items()
        for match in pattern.finditer(line)
    ]


def main() -> int:
    """Print every place, and return 1 if there is one."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *FILES],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    places = [place for name in sorted(set(names)) if (ROOT / name).exists() for place in found(ROOT / name)]
    sys.stdout.write("".join(f"{place}\n" for place in places))
    return int(bool(places))


if __name__ == "__main__":
    sys.exit(main())
