"""Suite B: its streams are its own and the same each time, labels come late, and the rule on made-up results."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import store, suite_b
from benchmarks import suite_b_laws as laws
from benchmarks.scenarios import CLASSES, NUMBERS, SCENARIOS
from benchmarks.store import Result
from benchmarks.suite_b_streams import SUITE_B, Late, of_law

FIRST = 5
IN_ORDER = {"market", "oil", "office", "bank"}  # of time: one order in all draws
STORED = Result(0.9, 100, 100, 100, 1.0, "0", "machine")


def first_inputs(events: Any) -> list[tuple[Any, ...]]:
    return [tuple(x.values()) for x, _ in itertools.islice(events, FIRST)]


def test_no_stream_is_one_of_the_scenarios() -> None:
    assert len(SUITE_B) >= 30
    assert not SUITE_B.keys() & SCENARIOS.keys()
    others = set()
    for scenario in SCENARIOS.values():
        try:
            others.update(first_inputs(scenario.load(Path("nowhere"))))
        except FileNotFoundError:  # its rows are in a file that no stream of suite B reads
            continue
    assert len(others) >= 100
    own = [row for stream in SUITE_B.values() for row in first_inputs(stream.events(0, FIRST))]
    assert not others.intersection(own)


@pytest.mark.parametrize("name", SUITE_B)
def test_a_draw_has_the_same_events_each_time_and_another_draw_has_others(name: str) -> None:
    stream = SUITE_B[name]
    # text of each event, because NaN is not equal to itself
    first, again, other = ([str(event) for event in stream.events(draw, 50)] for draw in (0, 0, 1))
    assert len(first) == 50
    assert first == again
    assert (first != other) == (name not in IN_ORDER)
    assert all(isinstance(key, str) for x, _ in stream.events(0, 50) for key in x)


def test_a_law_of_another_length_or_delay_has_other_rows() -> None:
    streams = [of_law(NUMBERS, laws.wandering, n, delay=delay) for n, delay in ((20, 0), (30, 0), (20, 5))]
    assert len({row for stream in streams for row in first_inputs(stream.events(0))}) == 3 * FIRST


def test_the_suite_has_all_kinds_of_streams() -> None:
    streams = {name: stream.events(0, 2000) for name, stream in SUITE_B.items()}
    assert {SUITE_B[name].task for name in streams} == {CLASSES, NUMBERS}
    classes = {len({y for _, y in events}) for name, events in streams.items() if SUITE_B[name].task == CLASSES}
    assert {2, 3} < classes
    values = {name: [value for x, _ in events for value in x.values()] for name, events in streams.items()}
    assert sum(any(isinstance(value, str) for value in own) for own in values.values()) >= 3
    assert any(value != value for own in values.values() for value in own)
    assert any(len({frozenset(x) for x, _ in events}) > 1 for events in streams.values())
    assert any(stream.delay for stream in SUITE_B.values())
    assert min(map(len, streams.values())) <= 300


class Listed:
    """A model that keeps what it learns."""

    def __init__(self) -> None:
        self.learned: list[int] = []

    def predict_one(self, x: dict[str, Any]) -> int:
        return len(self.learned)

    def learn_one(self, x: dict[str, Any], y: int) -> None:
        self.learned.append(y)


def test_a_label_is_learned_after_its_delay() -> None:
    model = Listed()
    late = Late(model, 3)
    predictions = []
    for i in range(10):
        predictions.append(late.predict_one({}))
        late.learn_one({"a": i}, i)
    assert predictions == [0, 0, 0, 0, 1, 2, 3, 4, 5, 6]
    assert model.learned == list(range(7))


@pytest.mark.parametrize(
    ("gains", "is_paid"),
    [
        ([0.0] * 40, False),
        ([0.00051] * 40, True),
        ([0.00049] * 40, False),
        ([-0.00051] * 40, False),
        ([0.0051] * 3 + [-0.01] * 37, True),
        ([0.0051] * 2 + [-0.01] * 38, False),
        ([0.0049] * 3 + [0.0] * 37, False),
        ([0.021] + [0.0] * 39, True),
        ([0.3] * 3 + [-np.inf] + [0.0] * 36, True),
        ([-np.inf] + [0.1] * 2 + [0.0] * 37, False),
    ],
)
def test_a_mechanism_pays_by_its_mean_or_by_three_streams(gains: list[float], is_paid: bool) -> None:
    assert suite_b.pays(np.array(gains), np.full(40, np.nan)) == is_paid


@pytest.mark.parametrize(("error", "is_paid"), [(0.0029, True), (0.0031, False)])
def test_a_gain_on_a_stream_counts_beyond_two_standard_errors(error: float, is_paid: bool) -> None:
    gains = np.array([0.006] * 3 + [-0.001] * 37)
    assert suite_b.pays(gains, np.full(40, error)) == is_paid


def test_differences_are_paired_by_stream_and_draw() -> None:
    old = {
        "a": replace(STORED, score=0.5, orders=(0.4, 0.6)),
        "b": STORED,
        "c": STORED,
        "d": STORED,
        "e": replace(STORED, score=None),
        "f": replace(STORED, score=None),
    }
    new = {
        "a": replace(STORED, score=0.52, orders=(0.41, 0.63)),
        "b": replace(STORED, of=90),
        "d": replace(STORED, score=None),
        "e": replace(STORED, score=None),
        "f": STORED,
        "g": STORED,
    }
    first, *others = suite_b.differences(old, new)
    assert (first.name, first.before, first.after) == ("a", 0.5, 0.52)
    assert first.gain == pytest.approx(0.02)
    assert first.error == pytest.approx(0.01)  # of differences of 0.01 and 0.03
    assert [(one.name, one.gain) for one in others] == [("d", -np.inf), ("e", 0.0), ("f", np.inf)]
    assert all(np.isnan(one.error) for one in others)


def test_a_comparison_prints_counts_and_both_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    names = list(SUITE_B)[:10]
    old = dict.fromkeys(names, STORED)
    new = {
        name: replace(STORED, score=0.9 + gain) for name, gain in zip(names, [-0.01, 0.006, *[0.0] * 8], strict=True)
    }
    suite_b.compare("old", "new", old, new | {"other": STORED})
    printed = " ".join(capsys.readouterr().out.split())
    assert "10 streams, mean gain -0.00040 ± 0.00000; more than 0.005 better on 1, worse on 1" in printed
    assert "only one has a result over these events: other" in printed
    assert "only in new: -0.00040 on average, at least 0.005 on 1 of 10 streams: does not pay" in printed
    assert "only in old: +0.00040 on average, at least 0.005 on 1 of 10 streams: does not pay" in printed
    suite_b.compare("old", "new", old, {names[0]: replace(STORED, score=0.91)})
    assert "only in new: +0.01000 on average" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(SystemExit, match="found none"):
        suite_b.compare("old", "new", old, {})


@pytest.fixture(name="command")
def of_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run the command with two draws, with results in a folder of its own."""

    def command(*options: str) -> None:
        monkeypatch.setattr(store, "FOLDER", tmp_path)
        monkeypatch.setattr(suite_b, "QUICK_DRAWS", 2)
        monkeypatch.setattr(store, "path", lambda: tmp_path / "1.0.0.json")
        monkeypatch.setattr(sys, "argv", ["suite_b", "--processes", "1", *options])
        suite_b.main()

    return command


def test_the_command_keeps_results_by_label(command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    streams = ("--quick", "--streams", "iris,office")
    command(*streams)
    file = tmp_path / "suite_b" / "quick" / "1.0.0.json"
    first = store.read(file)
    assert list(first) == ["iris", "office"]
    assert first["iris"]["KernelClassifier()"].of == 150
    assert len(first["iris"]["KernelClassifier()"].orders) == 2
    assert first["office"]["KernelRegressor()"].score > 0.9
    changed = {"iris": {"KernelClassifier()": replace(first["iris"]["KernelClassifier()"], seconds=77.0)}}
    store.write(first | changed, file)
    command(*streams)  # nothing is left to run
    assert store.read(file)["iris"]["KernelClassifier()"].seconds == 77.0
    command(*streams, "--label", "same", "--compare", "1.0.0")
    assert "2 streams, mean gain +0.00000 ± 0.00000" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(SystemExit, match="expected results of nothing"):
        command(*streams, "--compare", "nothing")
