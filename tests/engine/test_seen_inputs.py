"""Texts of fields in bounded memory, and reports of dead letters by reason."""

import json
import random
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import load_config
from streamkernel.engine.config.start_checks import describe
from streamkernel.engine.examples import Examples
from streamkernel.engine.seen_inputs import LARGEST_COUNT, SLOTS, SeenTexts
from streamkernel.engine.telemetry import dead_letters
from streamkernel.engine.telemetry.dead_letters import DeadLetterGroups, DeadLetterReports
from streamkernel.field_types.number_texts import LONGEST
from tests.engine.test_types_of_fields import run


def seen(texts: list[str]) -> SeenTexts:
    found = SeenTexts()
    for text in texts:
        found.add("b", text, is_number=text.isdecimal())
    return found


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"NA": 1}, ["NA"]),
        ({"NA": 30, "?": 1}, ["NA", "?"]),
        ({"NA": 900, "?": 900}, ["?", "NA"]),
        ({"NA": 95} | {f"x{i}": 1 for i in range(5)}, ["NA"]),
        ({"NA": 50, "?": 45} | {f"x{i}": 1 for i in range(5)}, ["NA", "?"]),
        ({"a": 1, "b": 1, "c": 1}, []),
        ({f"V{i}": 1 + i % 3 for i in range(200)}, []),
        ({"x" * (LONGEST + 1): 100}, []),
        ({"01234": 30, "K1A 0B1": 30}, []),
        ({}, []),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_placeholders_are_one_or_two_texts_that_are_nearly_all(
    counts: dict[str, int], expected: list[str], seed: int
) -> None:
    texts = list(Counter(counts).elements())
    random.Random(seed).shuffle(texts)
    assert sorted(seen(texts).placeholders("b")) == sorted(expected)


MARKERS = ["n/a", "-", "unknown", "err", "offline", "none", "missing", "null", "NaN", "--"]
NUMBERS = 'to refuse all texts, declare [fields] b = "number"; only if it is a code, "category"'


@pytest.mark.parametrize("share", [0.01, 0.04, 0.07])
@pytest.mark.parametrize(
    ("texts", "advice"),
    [(MARKERS[:5], r"declare missing = (\[.*?\])"), (MARKERS, NUMBERS), (["V45", "E950", "V12"], NUMBERS)],
)
def test_a_few_texts_among_numbers_do_not_make_codes(share: float, texts: list[str], advice: str) -> None:
    examples, generator, n = Examples("y", numeric_label=False), random.Random(3), 2000
    examples.types.is_silent = True
    values: list[Any] = [generator.gauss(0, 1) for _ in range(n)]
    for i, place in enumerate(generator.sample(range(n), int(share * n))):
        values[place] = texts[i % len(texts)]
    records = [{"b": value} for value in values]
    for record in records:
        examples.count(record)
    (line,) = describe(records, examples, ["b"])
    assert "looks like codes" not in line
    if advice == NUMBERS:
        assert advice in line
    else:
        (advised,) = re.findall(advice, line)
        assert set(json.loads(advised)) == set(texts)


def test_the_memory_for_texts_is_bounded_and_newer_texts_weigh_more() -> None:
    texts = seen([f"{i}" * 1000 for i in range(10_000)])
    ((counts, _),) = texts.state().values()
    assert len(counts) == SLOTS
    assert max(map(len, counts)) <= LONGEST + 1
    assert max(counts.values()) <= LARGEST_COUNT
    texts = seen(["NA"] * 100_000 + ["?"] * 2 * LARGEST_COUNT)
    assert texts.placeholders("b")[0] == "?"


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        ([str(i) for i in range(64)], "number"),
        ([str(i) for i in range(58)] + ["x"] * 6, "number"),
        ([str(i) for i in range(57)] + ["x"] * 7, ""),
        (["2026-11-24 06:00"] * 64, "time"),
        (["20261124"] * 64, "time"),
        (["x" * 10_000] * 64, ""),
        ([], ""),
    ],
)
def test_alike_are_more_than_nine_of_ten_texts(texts: list[str], kind: str) -> None:
    assert seen(texts).like("b") == kind
    assert seen(texts).is_looked_at("b") == (len(texts) >= 64)


def test_joined_texts_count_once() -> None:
    one, other = seen(["NA"] * 50 + ["x"]), seen(["NA"] * 70 + [f"V{i}" for i in range(9)])
    one.join(other.state())
    assert one.state()["b"][0]["NA"] >= 70
    assert len(one.state()["b"][0]) == SLOTS
    alone = SeenTexts()
    alone.join(other.state())
    assert alone.state() == other.state()


@pytest.mark.parametrize("parts", [[400], [7, 300, 93]])
def test_texts_and_the_advice_of_dead_letters_survive_restarts(tmp_path: Path, parts: list[int]) -> None:
    records: list[dict[str, Any]] = [
        {"b": ("NA", "?", "none", "-")[i // 50 % 4] if i % 50 == 49 else i % 7, "c": f"c{i % 9}", "y": i % 2}
        for i in range(400)
    ]
    done = 0
    for n in parts:
        _, dead = run(tmp_path, records[done : done + n])
        done += n
    alone = Examples("y", numeric_label=False)
    for record in records:
        alone.count(record)
    engine = engine_of(load_config(tmp_path / "run.toml"))
    engine.run()
    assert engine.parts.processor.examples.state()["texts"] == alone.state()["texts"]
    advised = [json.loads(letter["reason"].rpartition("declare missing = ")[2]) for letter in dead]
    seen_so_far = [["NA", "?", "none", "-"][: 1 + i] for i in (0, 1, 2, 3, 3, 3, 3, 3)]
    assert list(map(set, advised)) == list(map(set, seen_so_far))


def test_a_group_of_dead_letters_has_the_last_advice_and_no_place() -> None:
    groups = DeadLetterGroups()
    for i in range(3):
        groups.add(f"Expected UTF-8, got byte 0xf6 - at line {i:,}", "e", "")
        groups.add(f'Expected one value for each field, got two - at field "a" - at row {i}', "e", "")
        groups.add(f'Expected a number, got {i} - at field "b"; declare missing = ["{i}"]', "e", "")
        groups.add(f'Expected a number, got {i} - at field "b"', "e", "")
    assert [(group["reason"], group["count"]) for group in groups.rows()] == [
        ('Expected a number - at field "b"; declare missing = ["2"]', 6),
        ("Expected UTF-8", 3),
        ('Expected one value for each field - at field "a"', 3),
    ]


def test_dead_letters_are_reported_at_once_then_together_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[dict[str, Any]] = []
    log = SimpleNamespace(warning=lambda event, **more: logged.append(more))
    monkeypatch.setattr(dead_letters, "log", log)
    seconds = 0.0
    reports = DeadLetterReports(clock=lambda: seconds)
    for i in range(300):
        seconds = i / 2
        reports.add(f"Expected a label, got {i}" if i % 3 else f'Expected a number, got {i} - at field "a"', "e")
    assert [report["count"] for report in logged] == [1, 120, 120]
    assert logged[1]["reasons"] == ["80 x Expected a label, got 119", '40 x Expected a number, got 120 - at field "a"']
    reports.report()
    reports.report()
    assert sum(report["count"] for report in logged) == 300
    assert json.dumps(logged)
    for i in range(9):
        reports.add(f"Expected {i}", "e")
    reports.report()
    assert (logged[-1]["count"], len(logged[-1]["reasons"])) == (9, 3)
