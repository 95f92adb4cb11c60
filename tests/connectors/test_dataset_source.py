"""River's data sets as sources."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import read_all, records
from river import datasets
from river.datasets import base, synth

from streamkernel.connectors import DatasetSource, Event

FILES = [
    name
    for name, cls in inspect.getmembers(datasets, inspect.isclass)
    if issubclass(cls, base.FileDataset) and not issubclass(cls, base.RemoteDataset)
]
SYNTH = [
    f"synth.{name}"
    for name, cls in inspect.getmembers(synth, inspect.isclass)
    if issubclass(cls, base.SyntheticDataset)
]


class Pairs(base.Dataset):
    """Pairs that are given."""

    def __init__(self, pairs: list[tuple[dict[Any, Any], Any]]) -> None:
        super().__init__(task=base.REG, n_features=1, n_samples=len(pairs))
        self.pairs = pairs

    def __iter__(self) -> Iterator[tuple[dict[Any, Any], Any]]:
        yield from self.pairs


def read(dataset: Any, resume: Any = None, **options: Any) -> list[Event]:
    source = DatasetSource(dataset, **options)
    if resume is not None:
        ((name, _),) = source.lag()
        source.seek({name: json.loads(json.dumps(resume))})
    return read_all(source)


def test_river_has_data_sets() -> None:
    assert len(FILES) > 5
    assert len(SYNTH) > 10


def test_a_record_is_the_features_and_the_label() -> None:
    expected = [{**x, "class": y} for x, y in datasets.Bananas()]
    for dataset in ("Bananas", datasets.Bananas()):
        events = read(dataset, label="class")
        assert records(events) == expected
        assert {event.stream for event in events} == {"Bananas"}
        assert {event.raw for event in events} == {b""}


@pytest.mark.parametrize("name", FILES)
def test_a_file_continues_after_any_record(name: str) -> None:
    events = read(name, limit=40)
    assert len(events) == min(40, len(events))
    for number in (1, 2, 20, 39, 40):
        assert read(name, events[number - 1].resume, limit=40) == events[number:]


@pytest.mark.parametrize("name", SYNTH)
def test_a_generator_continues_after_any_record_also_without_a_seed(name: str) -> None:
    events = read(name, limit=40)
    assert len(events) == (4 if name == "synth.Logical" else 40)
    for number in (1, len(events) // 2, len(events)):
        assert read(name, events[number - 1].resume, limit=40) == events[number:]
    cls = getattr(synth, name.removeprefix("synth."))
    assert read(cls(), limit=40) == events


def test_a_seed_that_is_given_is_kept() -> None:
    expected = [{**{str(name): value for name, value in x.items()}, "y": y} for x, y in synth.SEA(seed=7).take(9)]
    assert records(read("synth.SEA", limit=9, params={"seed": 7})) == expected
    assert records(read(synth.SEA(seed=7), limit=9)) == expected
    assert records(read("synth.SEA", limit=9)) != expected


def test_a_data_set_that_is_given_is_not_changed() -> None:
    dataset = synth.ConceptDriftStream(stream=synth.SEA(), drift_stream=synth.SEA(variant=1))
    assert read(dataset, limit=9) == read(dataset, limit=9)
    assert (dataset.seed, dataset.stream.seed, dataset.drift_stream.seed) == (None, None, None)


def test_params_make_the_data_set() -> None:
    first, *_ = read("synth.LED", limit=1, params={"irrelevant_features": True})
    assert len(first.record or {}) == 25
    with pytest.raises(TypeError, match="colour"):
        DatasetSource("synth.LED", params={"colour": "red"})
    with pytest.raises(ValueError, match="Expected params only with the name"):
        DatasetSource(synth.LED(), params={"seed": 1})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("bananas", "Bananas"),
        ("Phising", "Phishing"),
        ("synth.friedmann", "synth.Friedman"),
        ("Friedman", "synth.Friedman"),
    ],
)
def test_an_unknown_name_names_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f'Bananas, .*synth.SEA, .*got "{name}" - did you mean "{nearest}"'):
        DatasetSource(name)


def test_other_objects_are_rejected() -> None:
    with pytest.raises(TypeError, match="Expected a data set of River or its name, got list"):
        DatasetSource([({"x": 1}, 2)])
    with pytest.raises(ValueError, match="Expected a limit of at least 0, got -1"):
        DatasetSource("Bananas", limit=-1)


def test_numbers_of_numpy_become_numbers_and_names_become_strings() -> None:
    pairs = [({"a": np.float32(0.5), 1: np.int64(2)}, np.bool_(True)), ({}, {"u": np.float64(1.5), 2: "v"})]
    first, second = read(Pairs(pairs))
    assert first.record == {"a": 0.5, "1": 2, "y": True}
    assert [type(value) for value in (first.record or {}).values()] == [float, int, bool]
    assert second.record == {"y": {"u": 1.5, "2": "v"}}
    assert type((second.record or {})["y"]["u"]) is float


def test_a_feature_called_as_the_label_is_an_error() -> None:
    with pytest.raises(ValueError, match='Expected a label with another name than each feature, got "y" - at Pairs'):
        DatasetSource(Pairs([({"y": 1}, 2)])).poll(timeout=1)


def test_batches_are_bounded_and_the_limit_counts_from_the_start() -> None:
    source = DatasetSource("synth.SEA", limit=1200)
    sizes = [len(batch) for batch in itertools.takewhile(bool, iter(lambda: source.poll(timeout=1), None))]
    assert sum(sizes) == 1200
    assert max(sizes) < 1000
    assert len(read("synth.SEA", 1190, limit=1200)) == 10
    assert read("synth.SEA", limit=0) == []


def test_lag_is_the_number_of_records_left() -> None:
    source = DatasetSource(Pairs([({"x": n}, n) for n in range(600)]))
    assert source.lag() == {("Pairs", "0"): 600}
    read_events = source.poll(timeout=1) or []
    assert source.lag() == {("Pairs", "0"): 600 - len(read_events)}
    assert DatasetSource("synth.SEA").lag() == {("synth.SEA", "0"): 0}
    assert DatasetSource("synth.SEA", limit=9).lag() == {("synth.SEA", "0"): 9}
    assert DatasetSource("Bananas", limit=9).lag() == {("Bananas", "0"): 9}


def test_an_impossible_position_is_rejected() -> None:
    dataset = Pairs([({"x": 1}, 2)])
    assert read(dataset, 1) == []
    with pytest.raises(ValueError, match="Expected at least 2 records, got 1 - at Pairs"):
        read(dataset, 2)
    with pytest.raises(ValueError, match=r"Expected a number of records as position, got \[1\]"):
        read(dataset, [1])
    with pytest.raises(ValueError, match='Expected a position of "Pairs", got those of "Bananas"'):
        DatasetSource(dataset).seek({"Bananas": 1})


class Remote(base.RemoteDataset):
    """A data set that is somewhere else."""

    def __init__(self, url: str) -> None:
        super().__init__(url=url, size=4, unpack=False, task=base.REG, n_features=1, n_samples=1)

    def _iter(self) -> Iterator[tuple[dict[str, int], int]]:
        yield {"x": 1}, len(self.path.read_bytes())


def test_downloads_leave_standard_output_alone_and_report_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RIVER_DATA", str(tmp_path / "data"))
    (tmp_path / "there").write_bytes(b"1234")
    assert records(read(Remote((tmp_path / "there").as_uri()))) == [{"x": 1, "y": 4}]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Downloading" in printed.err
    with pytest.raises(OSError, match=r"Expected to download data set Remote from file://.*nowhere, got an error: "):
        read(Remote((tmp_path / "nowhere").as_uri()))
