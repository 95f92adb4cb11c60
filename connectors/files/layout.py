"""How the records of files are written, as far as their names do not tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from streamkernel.connectors.csv_table import PLAIN, Csv, CsvOptions
from streamkernel.connectors.formats import TEXT_FORMATS, JsonLines, TextFormat, format_of, suffix_of


@dataclass(frozen=True, slots=True)
class Layout:
    """The format of files and its options.

    Parameters
    ----------
    format
        The format, ``None`` if the suffix of a file names it.
    csv
        How tables are written.
    max_list_length
        The largest length of a list whose items become fields.
    limit
        Longest text record, in bytes, that is read.
    is_silent
        Whether nothing is written to the log, as for a look at the first records.
    zones
        The zones of times without one, by field; UTC for others.

    Examples
    --------
    >>> Layout().format_of(Path("a.tsv")), Layout("jsonl").format_of(Path("a.log"))
    ('csv', 'jsonl')
    """

    format: str | None = None
    csv: CsvOptions = PLAIN
    max_list_length: int = 0
    limit: int = 1 << 20
    is_silent: bool = False
    zones: Mapping[str, str] = field(default_factory=dict)

    def format_of(self, path: Path) -> str:
        """Return the format of a file; raise a `ValueError` if nothing tells it."""
        return self.format or format_of(path)

    def is_rewritten(self, path: Path) -> bool:
        """Return whether a file is rewritten as UTF-8 before it is split, so that positions count other bytes."""
        return self.csv.is_rewritten and self.format_of(path) == "csv"

    def parser(self, path: Path) -> TextFormat:
        """Return a parser of a text file."""
        form = self.format_of(path)
        if form == "csv":
            is_tabs = self.csv.delimiter is None and suffix_of(path) == ".tsv"
            options = replace(self.csv, delimiter="\t") if is_tabs else self.csv
            return Csv(options, is_rewritten=options.is_rewritten, is_silent=self.is_silent)
        return JsonLines(self.max_list_length, self.csv.texts) if form == "jsonl" else TEXT_FORMATS[form]()
