"""Rounds of replicas without a cluster: their dependencies, their merge, and unusual streams."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import rounds
from cases import max_examples
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from river import metrics, preprocessing
from rounds import assert_each_once, classifier, engine, lines, read_newest, records, told, write

from streamkernel import KernelClassifier, KernelRegressor, RandomFeatures, learners, rules, tensor_file
from streamkernel.cluster import workers
from streamkernel.cluster.workers import Replica, RoundTask
from streamkernel.connectors import FileSource, PartitionedFiles, WorkAssignment
from streamkernel.engine import Engine, shared_model
from streamkernel.engine.checkpoint.state_directory import StateDirectory, checkpoints
from streamkernel.engine.fields import OnFields
from streamkernel.engine.pipelines import kernel_of
from streamkernel.errors import MergeError
from streamkernel.estimators.internals import learner_of
from streamkernel.kernels import Gaussian, bandwidth

SIZES = 700, 500, 300
MODELS = {
    "default": lambda: classifier(),
    "no steps, forgetting": lambda: KernelClassifier(learner=learners.Newton(forgetting=0.99), max_features=64),
    "first order": lambda: classifier(learner="dsg", batch_size=7, averaging=True, l2=0.01),
    "first order, median": lambda: classifier(learner="dsg", kernel=Gaussian("median"), rule=rules.DSG()),
    "steps": lambda: (
        preprocessing.StandardScaler()
        | RandomFeatures(Gaussian("median"), n_features=8, seed=1)
        | preprocessing.MinMaxScaler()
        | KernelClassifier(max_features=64)
    ),
    "steps on fields": lambda: (
        OnFields(preprocessing.MaxAbsScaler(), ["b"])
        | OnFields(preprocessing.OneHotEncoder(), ["k"])
        | KernelClassifier(max_features=64)
    ),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Three files of different lengths."""
    return write(tmp_path_factory.mktemp("data"), *(records(n, seed) for seed, n in enumerate(SIZES)))


@pytest.mark.parametrize("name", MODELS)
def test_a_round_repeated_by_another_worker_gives_the_same_bits(data, tmp_path, name):
    engine(data, tmp_path / "calm", MODELS[name]()).run()
    engine(data, tmp_path / "again", MODELS[name](), is_fresh=True).run()
    assert told(tmp_path / "again") == told(tmp_path / "calm")


@pytest.mark.parametrize("name", MODELS)
def test_a_driver_restarted_after_every_round_gives_the_same_bits(data, tmp_path, name):
    engine(data, tmp_path / "calm", MODELS[name]()).run()
    for _ in range(50):
        one = engine(data, tmp_path / "often", MODELS[name]())
        one.run(stopping=lambda one=one: one.cluster is not None)
        if one.cluster is None:
            break
    assert one.cluster is None
    assert told(tmp_path / "often") == told(tmp_path / "calm")


def test_learn_twice_gives_the_same_bits(data):
    replica = Replica(
        lambda: PartitionedFiles(data / "part-*.jsonl"), metric=metrics.Accuracy(), writes=True, label="y"
    )
    model = rounds.classifier()
    ends = {str(path): path.stat().st_size for path in data.glob("*.jsonl")}
    first = RoundTask(WorkAssignment({str(data / "part-0.jsonl"): None}, ends, 300), 0, 0, 1, is_alone=True)
    types = {"types": {}, "texts": {}, "labels": {}, "fields": None}
    model = replica.learn(model, types, first).model
    position = [len("".join(line + "\n" for line in records(700)[:300])), 300]
    assignment = WorkAssignment({str(data / "part-0.jsonl"): position, str(data / "part-2.jsonl"): None}, ends, 500)
    sent = pickle.dumps(model)
    one, two = (replica.learn(pickle.loads(sent), types, RoundTask(assignment, 1, 1, 3)) for _ in range(2))
    assert list(one.positions.values()) == [{"done": [62806, 700], "size": 62806}, {"late": [8900, 100]}]
    for name in ("positions", "labels", "answers", "lines", "letters", "outcomes", "types"):
        assert getattr(one, name) == getattr(two, name)
    assert pickle.dumps(one.summary) == pickle.dumps(two.summary)


@pytest.mark.parametrize("workers", [1, 3])
def test_long_rounds_predict_nearly_as_one_engine(data, tmp_path, workers):
    engine(data, tmp_path / "rounds", workers=workers, events_per_round=400).run()
    alone = Engine(
        classifier(),
        FileSource(data / "part-*.jsonl", follow=False),
        label="y",
        ignore=["id", "town"],
        metric=metrics.Accuracy(),
        state=StateDirectory(tmp_path / "alone"),
    )
    alone.run()
    state = rounds.read_newest(tmp_path / "rounds" / "state")
    assert state["outcomes"] == alone.outcomes
    assert state["metric"].get() == pytest.approx(alone.metric.get(), abs=0.02)


@settings(max_examples(12), phases=[Phase.explicit, Phase.generate])
@given(
    workers=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    events_per_round=st.integers(20, 600),
    name=st.sampled_from(["default", "first order", "steps on fields"]),
    every=st.integers(1, 6),
)
def test_each_event_is_learned_once_however_it_is_divided(data, workers, events_per_round, name, every):
    """Drivers with other numbers of workers resume where the previous one stopped, some in the middle of a round."""
    with TemporaryDirectory() as made:
        folder, done = Path(made), False
        while not done:
            count, looks = workers[0], iter(range(10**9))
            workers = [*workers[1:], count]
            one = engine(data, folder, MODELS[name](), workers=count, events_per_round=events_per_round)
            one.run(stopping=lambda looks=looks: next(looks) > 3 * every)
            done = all("done" in str(one.parts.checkpointer.positions.get(str(path))) for path in data.glob("*.jsonl"))
        assert_each_once(folder, SIZES)


NUMBERS = st.one_of(st.floats(-1e3, 1e3), st.floats(1.7e9, 1.7e9 + 10), st.just(0.0))
RECORDS = st.lists(st.dictionaries(st.sampled_from("abc"), NUMBERS, min_size=1), max_size=12)


@max_examples(100)
@given(before=RECORDS, assignments=st.lists(RECORDS, min_size=1, max_size=4))
@pytest.mark.parametrize("kind", [preprocessing.StandardScaler, preprocessing.MinMaxScaler, preprocessing.MaxAbsScaler])
def test_merged_steps_equal_a_step_of_all_events(kind, before, assignments):
    together, root = kind(), kind()
    for x in [x for assignment in (before, *assignments) for x in assignment]:
        together.learn_one(x)
    for x in before:
        root.learn_one(x)
    parts = []
    for assignment in assignments:
        parts.append(pickle.loads(pickle.dumps(root)))
        for x in assignment:
            parts[-1].learn_one(x)
    found = shared_model.merge_steps(root, parts)
    if kind is preprocessing.StandardScaler:
        assert {name: n for name, n in found.counts.items() if n} == {
            name: n for name, n in together.counts.items() if n
        }
        for name, n in together.counts.items():
            values = [x[name] for assignment in (before, *assignments) for x in assignment if name in x]
            size = max(map(abs, values))
            assert found.means[name] == pytest.approx(math.fsum(values) / n, rel=1e-12, abs=1e-12)
            mean = math.fsum(values) / n
            deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / n)
            assert math.sqrt(found.vars[name]) == pytest.approx(deviation, rel=1e-6, abs=1e-7 * size)
    else:
        for x in [x for assignment in (before, *assignments) for x in assignment]:
            assert found.transform_one(x) == together.transform_one(x)


@max_examples(100)
@given(
    before=st.lists(st.sampled_from("abcd")),
    assignments=st.lists(st.lists(st.sampled_from("abcdefgh")), min_size=1, max_size=4),
    drop_first=st.booleans(),
)
def test_merged_categories_are_those_of_all(before, assignments, drop_first):
    root, together = (preprocessing.OneHotEncoder(drop_first=drop_first) for _ in range(2))
    for word in before:
        root.learn_one({"k": word})
    for word in [word for assignment in (before, *assignments) for word in assignment]:
        together.learn_one({"k": word})
    parts = [pickle.loads(pickle.dumps(root)) for _ in assignments]
    for part, assignment in zip(parts, assignments, strict=True):
        for word in assignment:
            part.learn_one({"k": word})
    found = shared_model.merge_steps(root, parts)
    assert dict(found.values) == dict(together.values)
    assert dict(found.transform_one({"k": "a"})) == dict(together.transform_one({"k": "a"}))


def test_a_step_on_fields_is_merged_without_changing_its_inputs():
    root = OnFields(preprocessing.MinMaxScaler(), ["a"])
    root.learn_one({"a": 1.0, "b": "x"})
    parts = [pickle.loads(pickle.dumps(root)) for _ in range(2)]
    parts[0].learn_one({"a": -1.0})
    parts[1].learn_one({"a": 3.0})
    found = shared_model.merge_steps(root, parts)
    assert found.transform_one({"a": 2.0, "b": "x"}) == {"a": 0.75, "b": "x"}
    assert root.transform_one({"a": 1.0}) == {"a": 0.0}


def lines_of(n, label, seed=0, fields=()):
    """Return `n` lines with a label that is a function of the inputs."""
    return [
        json.dumps({name: e[name] for name in ("id", "a", "b", *fields)} | {"y": label(e)})
        for e in map(json.loads, (line for line in records(2 * n, seed) if line.endswith("}")))
    ][:n]


def test_a_label_seen_by_only_one_replica(tmp_path):
    two = lines_of(700, lambda e: "up" if e["a"] > 0 else "down")
    three = lines_of(400, lambda e: "up" if e["a"] > 0.5 else "side" if e["a"] > -0.5 else "down", seed=1)
    data = write(tmp_path / "data", two, three)
    engine(data, tmp_path / "run").run()
    engine(data, tmp_path / "again", is_fresh=True).run()
    state = rounds.read_newest(tmp_path / "run" / "state")
    assert sorted(kernel_of(state["model"]).labels) == ["down", "side", "up"]
    assert state["outcomes"]["learned"] == 1100
    assert state["metric"].get() > 0.7
    assert told(tmp_path / "again") == told(tmp_path / "run")
    assert all(r.spread >= 0.0 for r in engine_rounds(data, tmp_path / "third"))


def engine_rounds(data, folder):
    one = engine(data, folder)
    one.run()
    return one.cluster.recent


@pytest.mark.parametrize("learner", ["newton", "dsg"])
def test_regressors(tmp_path, learner):
    data = write(tmp_path / "data", *(lines_of(600, lambda e: 3.0 * e["a"] + 100.0, seed) for seed in range(3)))
    model = preprocessing.StandardScaler() | KernelRegressor(learner=learner, max_features=64)
    engine(data, tmp_path / "run", model, metric=metrics.MAE(), workers=3).run()
    state = rounds.read_newest(tmp_path / "run" / "state")
    assert state["outcomes"]["learned"] == 1800
    assert state["metric"].get() < (1.0 if learner == "newton" else 2.4)  # of one that says the mean it is 2.4


def test_rounds_in_which_all_events_are_bad(tmp_path):
    good, bad = records(400), ["{"] * 150 + [json.dumps({"a": "text", "b": 1.0, "y": True})] * 70
    data = write(tmp_path / "data", good + bad + good, bad)
    one = engine(data, tmp_path / "run", events_per_round=50)
    one.run()
    broken = 2 * sum("half" in line for line in good) + 2 * len(bad)
    assert one.outcomes == {
        "learned": 1240 - broken,
        "predicted": 1240 - broken,
        "dead_letter": broken,
        "pending": 0,
        "passed_over": 0,
    }
    assert len(lines(tmp_path / "run", "dead_letters.jsonl")) == broken
    assert one.refused["unreadable"] == broken - 140


def test_only_bad_events(tmp_path):
    one = engine(write(tmp_path / "data", ["{"] * 700, ["["] * 700), tmp_path / "run")
    one.run()
    assert one.outcomes == {"learned": 0, "predicted": 0, "dead_letter": 1400, "pending": 0, "passed_over": 0}


def test_empty_files_and_fewer_streams_than_workers(tmp_path):
    data = write(tmp_path / "data", [], records(600), [], records(10, 1))
    one = engine(data, tmp_path / "run", workers=7)
    one.run()
    assert one.outcomes["predicted"] + one.outcomes["dead_letter"] == 610
    assert all(task.replicas == len(tasks) <= 2 for tasks in one.runner.pool.asked for task in tasks)


def test_as_many_workers_as_have_something_to_do(data, tmp_path):
    one = engine(data, tmp_path / "run", workers=None)
    one.run()
    assert {len(tasks) for tasks in one.runner.pool.asked} == {1, 2, 3}
    assert_each_once(tmp_path / "run", SIZES)


def test_workers_are_counted_under_their_numbers(data, tmp_path):
    one = engine(data, tmp_path / "run", workers=3)
    one.run()
    by_worker = {}
    for round_, tasks in zip(one.cluster.recent, one.runner.pool.asked, strict=True):
        assert len(round_.events) == (1 if tasks[0].is_alone else 3)
        for task in tasks:
            by_worker[task.number] = by_worker.get(task.number, 0) + round_.events[task.number]
    assert {number: events for number, (events, _) in one.cluster.by_worker.items()} == by_worker
    assert sum(by_worker.values()) == 1500


def test_one_worker_learns_the_first_events_with_any_batch_size(data, tmp_path):
    one = engine(data, tmp_path / "run", classifier(learner="dsg", kernel=Gaussian(1.0), batch_size=16))
    one.run()
    alone = [tasks for tasks in one.runner.pool.asked if tasks[0].is_alone]
    assert len(alone) == 2  # the first one holds bad events
    assert all(len(tasks) == 1 and tasks[0].assignment.events == bandwidth.FIRST for tasks in alone)


def test_a_failed_checkpoint_is_written_before_the_next_round(data, tmp_path, monkeypatch):
    """Otherwise its plan would be taken for that of the next round, whose events would be learned twice."""
    one, fails = engine(data, tmp_path / "run"), iter([False, False, True, True, False, True])
    checkpointer = one.parts.checkpointer
    prepare = checkpointer.state.prepare

    def prepare_or_fail(state):
        if next(fails, False):
            raise OSError(28, "No space left on device")
        return prepare(state)

    checkpointer.seconds = 0.0
    monkeypatch.setattr(checkpointer.state, "prepare", prepare_or_fail)
    one.run()
    assert one.incidents["checkpoint_failed"] == 3
    assert_each_once(tmp_path / "run", SIZES)
    engine(data, tmp_path / "calm").run()
    assert told(tmp_path / "run") == told(tmp_path / "calm")


def test_a_plan_is_kept_until_its_round_is_durable(data, tmp_path):
    """A driver that is configured for other workers or longer rounds completes the planned round as it was planned."""
    engine(data, tmp_path / "calm").run()
    one = engine(data, tmp_path / "run")
    one.runner.finish_round = None  # it ends before the first round is merged
    with pytest.raises(TypeError):
        one.run()
    plan = (tmp_path / "run" / "state" / "round.json").read_bytes()
    other = engine(data, tmp_path / "run", workers=3, events_per_round=11)
    other.run(stopping=lambda: other.cluster is not None)
    assert json.loads(plan)["shares"] == [list(other.runner.pool.asked[0][0].assignment)]
    again = engine(data, tmp_path / "run")
    again.run()
    assert told(tmp_path / "run") == told(tmp_path / "calm")


def test_the_plan_of_a_broken_checkpoint_is_not_used_with_the_previous_one(data, tmp_path):
    one = engine(data, tmp_path / "run")
    do, rounds_ = one.runner.pool.round, itertools.count(1)
    one.runner.pool.round = lambda *args: do(*args) if next(rounds_) < 6 else None
    one.run()
    newest = checkpoints(tmp_path / "run" / "state")[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    engine(data, tmp_path / "run").run()
    assert_each_once(tmp_path / "run", SIZES)


def test_a_plan_that_cannot_be_written_is_written_later(data, tmp_path, monkeypatch):
    one, fails, put = engine(data, tmp_path / "run"), iter([False, True, True]), tensor_file.put

    def put_or_fail(path, content, mode):
        if path.name == "round.json" and next(fails, False):
            raise OSError(28, "No space left on device")
        put(path, content, mode)

    monkeypatch.setattr("streamkernel.engine.health.FIRST_PAUSE", 0.0)
    monkeypatch.setattr(tensor_file, "put", put_or_fail)
    one.run()
    assert one.incidents["checkpoint_failed"] == 2
    assert_each_once(tmp_path / "run", SIZES)


def test_an_assignment_ends_early_with_too_many_unusable_records(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "MOST_REFUSED", 1000)
    good, bad = records(300), ["{" + "x" * 300] * 40
    one = engine(write(tmp_path / "data", good + bad + good, bad), tmp_path / "run")
    one.run()
    sizes = [sum(len(event.raw) for event, *_ in letters) for letters in one.runner.pool.letters]
    assert 1000 < max(sizes) <= 1000 + 301
    broken = 2 * sum("half" in line for line in good) + 2 * len(bad)
    assert one.outcomes == {
        "learned": 680 - broken,
        "predicted": 680 - broken,
        "dead_letter": broken,
        "pending": 0,
        "passed_over": 0,
    }
    assert len(lines(tmp_path / "run", "dead_letters.jsonl")) == broken


def test_start_positions_are_durable_before_reading(data, tmp_path):
    """Otherwise a stream that starts at its latest record would start elsewhere after a restart."""
    one = engine(data, tmp_path / "run")
    one.parts.source.divided.plan = lambda *args: [WorkAssignment({"late:0": 7, "late:1": 0}, {}, 0)]
    one.run(stopping=lambda: bool(read_newest(tmp_path / "run" / "state")["positions"]))
    assert read_newest(tmp_path / "run" / "state")["positions"] == {"late:0": 7, "late:1": 0}
    assert one.runner.pool.asked == []


def test_buffered_examples_are_learned_if_the_first_worker_is_idle(tmp_path):
    """A worker is idle if its partitions have no new records."""
    data = write(tmp_path / "data", records(307), records(43, 1))
    one = engine(data, tmp_path / "run", classifier(learner="dsg", kernel=Gaussian(1.0), batch_size=32))
    plan = one.parts.source.divided.plan
    one.parts.source.divided.plan = lambda *args: (found := plan(*args)) and [WorkAssignment({}, {}, 0), *found]
    one.run()
    learner = learner_of(kernel_of(one.model))
    assert all(task.number for tasks in one.runner.pool.asked for task in tasks)
    assert learner.pending
    assert learner.numbers["examples"] + len(learner.pending) == one.outcomes["learned"]


def more_examples(summary):
    summary.learned.of_targets["examples"] += 1000


def more_scaled(summary):
    summary.scales["scales.n"] += 1000


def no_numbers(summary):
    summary.learned.of_targets["mean_square"] = math.nan


@pytest.mark.parametrize("forge", [more_examples, more_scaled, no_numbers])
def test_what_no_worker_can_have_learned_is_refused_and_not_merged(data, tmp_path, monkeypatch, forge):
    learn = Replica.learn

    def learn_otherwise(self, model, types, task):
        report = learn(self, model, types, task)
        if report.summary is not None and task.number == 1:
            forge(report.summary)
        return report

    monkeypatch.setattr(Replica, "learn", learn_otherwise)
    made = engine(data, tmp_path / "run")
    with pytest.raises(MergeError, match="Expected"):
        made.run()
    assert made.outcomes["learned"] < sum(SIZES)
    monkeypatch.undo()
    engine(data, tmp_path / "run").run()
    engine(data, tmp_path / "calm").run()
    assert told(tmp_path / "run") == told(tmp_path / "calm")
