"""The memory for names, values and labels has a bound on any stream."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from river import linear_model, metrics, preprocessing

from benchmarks.bounded_memory import examples
from benchmarks.common import InMemory
from streamkernel import GaussianProcessRegressor, KernelClassifier, KernelRegressor, RandomFeatures, kernels, load
from streamkernel.connectors import Event
from streamkernel.engine import Engine, known_classes, learned_types
from streamkernel.engine.checkpoint.state_directory import StateDirectory
from streamkernel.engine.learned_types import LearnedTypes
from streamkernel.engine.seen_inputs import LONGEST_NAME, InputRanges
from streamkernel.features import counter_rng, directions
from streamkernel.features.directions import Directions
from streamkernel.features.rows import Rows
from streamkernel.kernels import bandwidth
from streamkernel.kernels.program import KernelProgram


@pytest.fixture
def few_values(monkeypatch: pytest.MonkeyPatch) -> int:
    """Lower the number of values of the first examples that decides the bandwidth."""
    monkeypatch.setattr(bandwidth, "MOST_VALUES", 200)
    return 200


def wide(n: int, width: int = 60) -> Iterator[dict[str, float]]:
    """Yield examples that share no name."""
    for i in range(n):
        yield {f"name {i} {j}": float(i + j) for j in range(width)}


def test_hashes_of_long_names_are_not_kept() -> None:
    counter_rng._cached_hash.cache_clear()
    names = ["n" * 100_000, ("a", "n" * 100_000), ("a", ("b", "n" * 100_000))]
    hashes = [counter_rng.hash64(name) for name in names]
    assert counter_rng._cached_hash.cache_info().currsize == 0
    counter_rng.hash64("n")
    counter_rng.hash64(("a", "n"))
    assert counter_rng._cached_hash.cache_info().currsize == 2
    assert hashes == [counter_rng._hash(name) for name in names]


def test_records_of_long_names_count_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directions, "RECORD_BYTES", 1_000_000)
    model = KernelClassifier(kernels.Gaussian(1.0), learner="dsg", max_features=8)
    for i in range(300):
        model.learn_one({str(i).ljust(20_000): 1.0, ("tuple", str(i).ljust(20_000)): 2.0}, i % 2)
    store = model._learner.directions.store
    assert sum(len(name) for names in store.records for name in names if isinstance(name, str)) < 1_000_000
    assert len(store.records) < 1_000_000 / 40_000


@pytest.mark.parametrize("make", [KernelClassifier, KernelRegressor, lambda: KernelClassifier(learner="dsg")])
def test_few_wide_examples_decide_the_bandwidth(make: Any, few_values: int) -> None:
    model, rows = make(), []
    for i, x in enumerate(wide(9)):
        model.learn_one(x, i % 2)
        rows.append(len(model._state.first or ()))
    assert rows == [1, 2, 3, 0, 0, 0, 0, 0, 0]  # four examples have 240 values


def test_few_wide_examples_decide_for_features_and_processes(few_values: int) -> None:
    mapped, process = RandomFeatures(kernels.Gaussian("median"), n_features=8), GaussianProcessRegressor(n_features=8)
    for x in wide(4):
        assert mapped._seen[1] is not None
        mapped.learn_one(x)
        assert process._seen.first is not None
        process.learn_one(x, 1.0)
    assert mapped._seen[1] is None
    assert process._seen.first is None


def test_one_example_alone_does_not_decide(few_values: int) -> None:
    model = KernelClassifier(learner="dsg")
    for count, x in enumerate(wide(2, width=300)):
        assert len(model._state.first or ()) == count
        model.learn_one(x, True)
    assert model._state.first is None


def test_a_loaded_model_takes_the_same_bandwidth(few_values: int, tmp_path: Path) -> None:
    stream = list(wide(8))
    one = KernelClassifier()
    for i, x in enumerate(stream):
        if i == 3:
            one.save(tmp_path / "model")
        one.learn_one(x, i % 2 == 0)
    two = load(tmp_path / "model")
    for i, x in enumerate(stream[3:], start=3):
        two.learn_one(x, i % 2 == 0)
    assert [one.predict_proba_one(x) for x in stream] == [two.predict_proba_one(x) for x in stream]


def test_the_median_of_wide_examples_is_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Directions(KernelProgram(kernels.Gaussian(1.0), seed=0), block_size=1, cache_bytes=0)
    rows = [drawn.row(x) for x in wide(64)]
    monkeypatch.setattr(bandwidth, "MOST_DIFFERENCES", 28 * 8 * 60)
    found = bandwidth.median_distance(Rows.stack(rows), 0, 2)
    monkeypatch.undo()
    assert found == bandwidth.median_distance(Rows.stack(rows[:8]), 0, 2)
    assert found != bandwidth.median_distance(Rows.stack(rows), 0, 2)


def test_the_second_half_of_wide_examples_reads_no_name_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "MOST_DIFFERENCES", 1)
    drawn = Directions(KernelProgram(kernels.Gaussian(1.0).on("a"), seed=0), block_size=1, cache_bytes=0)
    xs = [{"b": 1.0}, {"b": 2.0}, {"a": 3.0, "b": 1.0}, {"a": 5.0, "b": 1.0}]
    assert bandwidth.median_distance(Rows.stack([drawn.row(x) for x in xs]), 0, 2) == 1.0


def test_types_of_fields_are_counted_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_types, "MOST_NAMES", 100)
    monkeypatch.setattr(learned_types, "MOST_CHARACTERS", 5000)
    found = LearnedTypes()
    for x in wide(3):
        found.count(x)
    assert (len(found), found.n_refused) == (100, 80)
    again = LearnedTypes()
    again.count({"long": 1.0, "n" * 4992: 1.0, "more names than fit": 1.0, "short": 1.0, "text": "a"})
    assert set(again.counts) == {"long", "n" * 4992, "text"}
    assert again.n_refused == 2
    resumed = LearnedTypes()
    resumed.restore(again.state())
    for one in (again, resumed):
        one.count({"five": 2})
    assert resumed.state() == again.state()


def test_the_number_of_input_ranges_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamkernel.engine.seen_inputs.MOST_INPUTS", 100)
    ranges = InputRanges()
    for x in wide(3):
        ranges.learn(x)
    ranges.learn({"n" * (LONGEST_NAME + 1): 1.0})
    assert (len(ranges), ranges.n_refused) == (100, 81)


def engine_of(model: Any, stream: list[Any], first: int = 0, state: StateDirectory | None = None) -> Engine:
    events = [Event("stream", i, b"", {**x, "y": y}) for i, (x, y) in enumerate(stream, start=1)][first:]
    return Engine(model, InMemory(events, 16), label="y", metric=metrics.Accuracy(), state=state)


@pytest.mark.parametrize(
    "make",
    [linear_model.SoftmaxRegression, lambda: preprocessing.StandardScaler() | linear_model.SoftmaxRegression()],
)
def test_labels_of_rivers_models_have_a_bound(make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(known_classes, "MOST_CLASSES", 10)
    stream = list(examples("new labels", 60))
    with StateDirectory(tmp_path / "state") as state:
        engine = engine_of(make(), stream[:30], state=state)
        engine.run()
    assert engine.refused["classes"] > 0
    assert len(engine.parts.processor.quality._labels) == 10
    with StateDirectory(tmp_path / "state") as state:
        resumed = engine_of(make(), stream, first=30, state=state)
        resumed.run()
    whole = engine_of(make(), stream)
    whole.run()
    assert resumed.refused == whole.refused
    assert resumed.parts.processor.quality._labels == whole.parts.processor.quality._labels


def test_names_beyond_the_bounds_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_types, "MOST_NAMES", 50)
    engine = engine_of(KernelClassifier(max_features=16), list(examples("new names", 40)))
    engine.run()
    assert engine.snapshot.names == {"kinds": 50, "ranges": 163, "scales": 163}
    assert engine.snapshot.names_refused == {"kinds": 113, "ranges": 0}


@pytest.mark.parametrize("kind", ["new names", "new strings"])
def test_a_model_has_a_bound_on_names(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directions, "RECORD_BYTES", 100_000)
    model = KernelClassifier(kernels.Gaussian(1.0), learner="dsg", max_features=16, cache_bytes=100000)
    sizes = []
    for i, (x, y) in enumerate(itertools.islice(examples(kind, 3000), 3000)):
        model.learn_one(x, y)
        if i % 1000 == 999:
            store = model._learner.directions.store
            assert store.record_bytes <= 100_000
            sizes.append((len(store.places), store.table.nbytes, sum(v.nbytes for v in model._describe()[1].values())))
            assert len(model._state.numeric.numbers) <= 1024
    assert sizes[1:] == sizes[:1] * 2
