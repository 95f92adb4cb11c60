"""Redrive of the dead letters of a configuration: their selection, their destination and the rate."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from streamkernel.connectors.kafka.clients import Partition
from streamkernel.connectors.redrive import (
    Driven,
    FileTarget,
    Letter,
    TopicTarget,
    check_file,
    file_letters,
    topic_letters,
)
from streamkernel.engine.config.config import Config
from streamkernel.engine.config.messages import ConfigError
from streamkernel.engine.config.streams import kafka_options

BATCH = 500
"""The number of letters in one transaction."""


class Choice(NamedTuple):
    """A selection of letters.

    `kinds` are kinds of letters, as in ``streamkernel_dead_letters_total``; empty for all. `text` is a text that the
    reason must contain. `limit` is the maximum number of letters.
    """

    kinds: Collection[str] = ()
    text: str = ""
    limit: int | None = None

    def matches(self, letter: Letter) -> bool:
        """Return whether a letter is selected."""
        return (not self.kinds or letter.kind in self.kinds) and self.text in letter.reason


class Redrive:
    """Sends the records of a configuration's dead letters back to their source.

    `config` is the configuration of the run that wrote them. `choice` is the selection of letters. `to_topic` and
    `to_file` are the destination; by default the source of each record. `chosen` is the number of selected letters, by
    kind and reason without its position; set by `count`. `left` is the number of letters that match but cannot be
    redriven, by reason.
    """

    def __init__(
        self, config: Config, choice: Choice, to_topic: str | None = None, to_file: Path | None = None
    ) -> None:
        self._config, self._choice = config, choice
        self._topic = config.sink.dead_letters_topic
        self._path = config.dead_letters_path
        if self._topic is None and not self._path.is_file():
            raise FileNotFoundError(f"Expected a file of dead letters, found none - at {self._path}")
        source = config.source
        if to_file is None and to_topic is None and source.topics is None:
            if source.path is None:
                raise ConfigError("source: expected a file or topics as the destination; name one with --to-file")
            to_file = source.path
        self.target: FileTarget | TopicTarget
        if to_file is not None:
            check_file(to_file)
            if to_file == source.path and source.csv.is_rewritten:
                got = f"{source.encoding}; name a file with --to-file"
                raise ConfigError(f"source.encoding: expected UTF-8 to add lines, got {got}")
            self.target = FileTarget(to_file)
        else:
            self.target = self._topic_target(to_topic)
        self._driven: dict[str, Driven] = {}
        self.chosen: Counter[tuple[str, str]] = Counter()
        self.left: Counter[str] = Counter()

    def count(self) -> int:
        """Read the ledger and the letters, and return the number of selected letters."""
        self._driven = self.target.read(self._streams())
        self.chosen.clear()
        self.left.clear()
        for letter in self._letters():
            if hindrance := self.target.hindrance(letter):
                self.left[hindrance] += 1
            else:
                self.chosen[letter.kind, letter.reason.partition(" - at ")[0]] += 1
        total = self.chosen.total()
        return total if self._choice.limit is None else min(total, self._choice.limit)

    def drive(self, total: int, rate: float | None = None, progress: Callable[[int], None] = lambda n: None) -> int:
        """Redrive letters, and return their number.

        `total` is the maximum number of letters. `rate` is the maximum number of letters per second. `progress` is
        called with the number redriven so far. Raise `CommitRefusedError` if brokers refused the last ones; the next
        start continues.
        """
        sent, began = 0, time.monotonic()
        batch = BATCH if rate is None else max(1, min(BATCH, int(rate)))
        for letter in self._letters():
            if sent >= total:
                break
            if self.target.hindrance(letter):
                continue
            if rate is not None:
                time.sleep(max(0.0, began + sent / rate - time.monotonic()))
            self.target.send(letter)
            self._driven[letter.stream].add(letter.number)
            sent += 1
            if sent % batch == 0:
                self.target.commit(self._driven)
                progress(sent)
        if sent % batch:
            self.target.commit(self._driven)
            progress(sent)
        return sent

    def close(self) -> None:
        """Disconnect; uncommitted records are discarded."""
        self.target.close()

    def _letters(self) -> Iterator[Letter]:
        """Yield the selected letters that have not been redriven."""
        if self._topic is None:
            letters = file_letters(self._path, self._driven)
        else:
            letters = topic_letters(kafka_options(self._config), self._topic, self._driven)
        return filter(self._choice.matches, letters)

    def _streams(self) -> list[str]:
        if self._topic is None:
            return [str(self._path)]
        with closing(kafka_options(self._config).consumer()) as client:
            return list(map(str, client.partitions_of(self._topic)))

    def _topic_target(self, to: str | None) -> TopicTarget:
        config, letters = self._config, self._topic
        group = f"{(config.kafka and config.kafka.group) or 'streamkernel'}.redrive"
        if letters is None:  # the ledger is beside a partition of a topic, and this file has one of its own
            group = f"{group}.{zlib.crc32(str(self._path).encode()):08x}"
        where = Partition(to or (config.source.topics or ("",))[0], 0)
        directory = config.state.directory
        copy = None if directory is None or not directory.is_dir() else directory / "redriven.json"
        partition_of = Partition.parse if letters is not None else lambda stream: where
        return TopicTarget(kafka_options(config), group, partition_of, to, copy)


def lines_of(chosen: Mapping[tuple[str, str], int], left: Mapping[str, int], most: int = 20) -> list[str]:
    """Return lines for the user: the selected letters by kind and reason, and the letters that cannot be redriven.

    Examples
    --------
    >>> lines_of({("label", "Expected a label, got null"): 3}, {"its value is cut": 1})
    ['      3  label: Expected a label, got null', '      1  stay: its value is cut']
    """
    ordered = sorted(chosen.items(), key=lambda item: -item[1])
    lines = [f"{count:>7,}  {kind}: {reason[:120]}" for (kind, reason), count in ordered[:most]]
    if len(ordered) > most:
        lines.append(f"{sum(count for _, count in ordered[most:]):>7,}  for {len(ordered) - most:,} other reasons")
    return lines + [f"{count:>7,}  stay: {reason}" for reason, count in left.items()]
