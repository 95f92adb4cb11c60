"""The benchmark's adapter for MOA: the input that it writes and the output that it parses. No test needs Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river.preprocessing import StandardScaler

from benchmarks import arff, moa_streams
from benchmarks.rivals import moa
from benchmarks.scenarios import CLASSES, NUMBERS, RANKED, Event, Scenario

TABLE = """\
learning evaluation instances,evaluation time (cpu seconds),model cost (RAM-Hours),classified instances,classifications correct (percent)
1000.0,0.674223804,0.0,1000.0,94.1
2000.0,1.027160701,0.0,2000.0,96.2
"""  # noqa: E501
CLASS_LINES = ["0,0", "0,1", "1,?"]
NUMBER_LINES = ["Out 0: 0.0 ,0.0", "Out 0: 0.497 ,1.0", "Out 0: -1.0E-3 ,NaN"]
OF_MOA = """\
@relation 'generators.AgrawalGenerator '

@attribute salary numeric
@attribute elevel {level0,level1}
@attribute led {0,1}
@attribute class {groupA,groupB}

@data

49898.098068684395,level1,0,groupA,
1.0E-3,level0,1,groupB,
?,level0,1,groupB,
"""


def scenario(task: str, held_back: int = 0) -> Scenario:
    return Scenario(RANKED, task, lambda folder: [], held_back=held_back)


def test_events_are_read_back_from_a_file(tmp_path: Path) -> None:
    labels = ["no", "it's", "a, b", "c\\d"]
    events: list[Event] = [
        ({"x'0": 0.1 + 0.2 * i, "a b": -1e-300, "colour=it's, {red}": float(i % 2)}, labels[i % 4]) for i in range(9)
    ]
    arff.write(tmp_path / "classes.arff", events, sorted(labels))
    assert list(arff.read(tmp_path / "classes.arff")) == events
    assert arff.labels(tmp_path / "classes.arff") == sorted(labels)
    numbers = [(x, float(i) / 3) for i, (x, _) in enumerate(events)]
    arff.write(tmp_path / "numbers.arff", numbers, [])
    assert list(arff.read(tmp_path / "numbers.arff")) == numbers
    assert arff.labels(tmp_path / "numbers.arff") == []


def test_absent_inputs_are_0_and_test_events_have_no_target(tmp_path: Path) -> None:
    arff.write(tmp_path / "a.arff", [({"a": 1.0}, 1), ({"b": 2.0}, 0)], [0, 1], unlabelled=1)
    assert list(arff.read(tmp_path / "a.arff")) == [({"a": 1.0, "b": 0.0}, "1"), ({"a": 0.0, "b": 2.0}, None)]


def test_a_file_of_moa_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.arff").write_text(OF_MOA)
    assert list(arff.read(tmp_path / "a.arff")) == [
        ({"salary": 49898.098068684395, "elevel": "level1", "led": 0.0}, "groupA"),
        ({"salary": 0.001, "elevel": "level0", "led": 1.0}, "groupB"),
        ({"elevel": "level0", "led": 1.0}, "groupB"),
    ]
    assert arff.labels(tmp_path / "a.arff") == ["groupA", "groupB"]


def test_results_of_moa_are_read() -> None:
    assert moa.times(TABLE.splitlines()) == {1000: 0.674223804, 2000: 1.027160701}
    assert moa.times([]) == {}
    assert moa.predicted(CLASS_LINES, ["no", "yes"]) == ["no", "no", "yes"]
    assert moa.predicted(NUMBER_LINES, []) == [0.0, 0.497, -0.001]


def test_inputs_are_scaled_as_rivers_scaler_does() -> None:
    events = [({"a": float(a), "b": 2.0}, 0) for a in np.random.default_rng(1).normal(5.0, 3.0, 20)]
    scaler = StandardScaler()
    for x, _ in events[:15]:
        scaler.learn_one(x)
    found = moa.scaled(events, learned=15)
    assert [x for x, _ in found[14:]] == [scaler.transform_one(x) for x, _ in events[14:]]
    assert found[0][0] == {"a": 0.0, "b": 0.0}


class Java:
    """Replaces Java: writes what MOA would write for learners that predict the last target of the file."""

    def __init__(self, stopped_after: int | None = None) -> None:
        self.stopped_after = stopped_after
        self.given: list[Any] = []

    def __call__(self, command: list[str], folder: Path, budget: float, tick: moa.Tick) -> str:
        self.given = list(arff.read(folder / moa.EVENTS))
        labels, last, lines = arff.labels(folder / moa.EVENTS), 0.0, []
        for _, y in self.given[: self.stopped_after]:
            lines.append(f"{last:.0f},?" if labels else f"Out 0: {last} ,?")
            last = last if y is None else float(labels.index(y) if labels else y)
        every = int(command[-1].split(" -f ")[-1].split()[0])
        rows = [f"{n}.0,{n / 10}" for n in [*range(every, len(lines) + 1, every)]]
        (folder / moa.PREDICTIONS).write_text("\n".join(lines))
        (folder / moa.PROGRESS).write_text(
            "\n".join(["learning evaluation instances,evaluation time (cpu seconds)", *rows])
        )
        return ""


@pytest.mark.parametrize("scales", [False, True])
def test_predictions_are_scored_event_by_event(scales: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = moa.Learner("a.Learner", scaled=scales)
    labels = [int(y) for y in np.random.default_rng(1).integers(0, 3, 400)]
    events: list[Event] = [({"a": float(i)}, y) for i, y in enumerate(labels)]
    java = Java()
    monkeypatch.setattr(moa, "watched", java)
    found = moa.run(learner, Path("moa.jar"), scenario(CLASSES), events, None, 1.0, lambda n: None)
    assert found.score == (np.sum(np.diff(labels) == 0) + (labels[0] == 0)) / 400
    assert found[1:] == (400, 400, 40.0)
    assert (java.given == [(x, str(y)) for x, y in events]) == (not scales)
    found = moa.run(learner, Path("moa.jar"), scenario(CLASSES, 100), events, None, 1.0, lambda n: None)
    assert found.score == np.mean(np.array(labels[300:]) == labels[299])
    assert found[1:] == (300, 100, 30.0)
    assert [y for _, y in java.given[300:]] == [None] * 100
    numbers = [(x, 7.0 if i else 1e6) for i, (x, _) in enumerate(events)]
    found = moa.run(learner, Path("moa.jar"), scenario(NUMBERS, 100), numbers, None, 1.0, lambda n: None)
    assert found.done == 300


def test_the_progress_of_a_stopped_run_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = [({"a": 0.0}, 0)] * 400
    monkeypatch.setattr(moa, "watched", Java(stopped_after=170))
    found = moa.run(moa.Learner("l"), Path("moa.jar"), scenario(CLASSES), events, None, 1.0, lambda n: None)
    assert found == (1.0, 160, 160, 16.0)
    with pytest.raises(moa.MoaError, match="out of time"):
        moa.run(moa.Learner("l"), Path("moa.jar"), scenario(CLASSES, 100), events, None, 1.0, lambda n: None)


def test_missing_programs_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(moa.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(moa.shutil, "which", lambda name: name)
    (tmp_path / "moa.jar").touch()
    assert moa.jar(tmp_path / "moa.jar") == (tmp_path / "moa.jar").resolve()
    with pytest.raises(ModuleNotFoundError) as missing:
        moa.jar(Path())
    assert missing.value.name == "MOA (capymoa, or --moa PATH)"
    monkeypatch.setattr(moa.shutil, "which", lambda name: None)
    with pytest.raises(ModuleNotFoundError) as missing:
        moa.jar(tmp_path / "moa.jar")
    assert missing.value.name == "java"


def test_concepts_follow_each_other_abruptly() -> None:
    assert moa_streams.abrupt(["A -f 1", "A -f 2", "A -f 3"], 100) == (
        "(ConceptDriftStream -s (A -f 1) -d (ConceptDriftStream -s (A -f 2) -d (A -f 3) -p 100 -w 50) -p 100 -w 50)"
    )
