"""Checks the language of pages, docstrings, comments, messages and names: ``python docs/prose.py``.

It finds the words of docs/words.txt, and counts two kinds of unclear language, which have limits.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXTS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
FILES = ["*.md", "streamkernel/*.py", "connectors/*.py", "dashboards/*.py"]
PRONOUN_HEAD = re.compile(
    r"\bthat of\b|\bthose\b(?= (?:of|that|who|which|whose|to|from|in|on|at|by|with|without|before|after)\b)"
    r"|\bthose(?= \w+(?:ed|en)\b)",
    re.IGNORECASE,
)
"""A pronoun in place of a noun, which the reader has to look for: repeat the noun."""
UNIVERSAL = frozenset({"found", "given", "known", "own", "room", "said", "told"})
"""Names of variables that could hold anything: name the content."""
MOST = {
    "pronoun heads per 1,000 words of pages": 0.02,
    "pronoun heads per 1,000 words of code": 0.46,
    "universal names in code": 23,
}
"""The limits. Lower them whenever the counts have fallen."""


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


def place(path: Path, number: int, text: str) -> str:
    """Return a line of output: the file, the line and the text in it."""
    return f"{path.relative_to(ROOT) if ROOT in path.parents else path}:{number}: {text!r}"


def banned(path: Path) -> list[str]:
    """Return where a file has one of the words."""
    return [
        f"{place(path, number, match[0])}; write {instead}"
        for number, line in prose(path)
        for pattern, instead in words().items()
        for match in pattern.finditer(line)
    ]


def pronoun_heads(paths: Iterable[Path]) -> tuple[float, list[str]]:
    """Return the number of pronoun heads per 1,000 words of files, and where they are."""
    count, places = 0, []
    for path in paths:
        text, numbers = "", list[int]()
        for number, line in prose(path):
            count += len(line.split())
            text, numbers = f"{text}{line.strip()} ", numbers + [number] * (len(line.strip()) + 1)
        places += [place(path, numbers[match.start()], match[0]) for match in PRONOUN_HEAD.finditer(text)]
    return 1000 * len(places) / max(count, 1), places


def universal_names(paths: Iterable[Path]) -> tuple[float, list[str]]:
    """Return how often files bind a variable or a parameter to a universal name, and where."""
    places = []
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.arg) and node.arg in UNIVERSAL:
                places.append(place(path, node.lineno, node.arg))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in UNIVERSAL:
                places.append(place(path, node.lineno, node.id))
    return float(len(places)), places


def main() -> int:
    """Print the words of the list and the kinds beyond their limits, and return 1 if there are any."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *FILES],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    paths = [ROOT / name for name in sorted(set(names)) if (ROOT / name).exists()]
    code = [path for path in paths if path.suffix == ".py"]
    pages = [path for path in paths if path == ROOT / "README.md" or ROOT / "docs" in path.parents]
    lines = [line for path in paths for line in banned(path)]
    counts = dict(zip(MOST, (pronoun_heads(pages), pronoun_heads(code), universal_names(code)), strict=True))
    for kind, (count, places) in counts.items():
        if count > MOST[kind]:
            lines += [*places, f"{kind}: {count:.2f}, at most {MOST[kind]}"]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
