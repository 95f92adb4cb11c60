"""Members share one model that has learned every event once, after any crash, and a new member begins with it."""

from __future__ import annotations

import itertools
import os
import random
import shutil

import pytest
from river import metrics, preprocessing

from streamkernel import KernelClassifier, KernelRegressor, kernels, load, tensor_file
from streamkernel.connectors import Event, Source, Transactions
from streamkernel.engine import Engine
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import StateDirectory, StateDirectoryError
from streamkernel.engine.config.config import Config
from streamkernel.engine.config.start_checks import check_state, separate_models
from streamkernel.engine.pipelines import kernel_of
from streamkernel.engine.shared_model import newest_version, read_version, versions

N = 700
"""Events of each member's partition."""


class CrashError(BaseException):
    """The process ends without cleanup."""


class Partition:
    """Records of one partition, and the offset and checkpoint that its member committed."""

    def __init__(self, number: int) -> None:
        rng = random.Random(number)
        self.records = [
            {"id": float(2 * i + number), "a": (a := rng.gauss(0, 1)), "b": (b := rng.gauss(0, 1)), "y": a * b}
            for i in range(N)
        ]
        self.offset, self.number, self.session = 0, 0, ""


class Reader(Source):
    """A source that reads a partition from the committed offset on."""

    def __init__(self, partition: Partition) -> None:
        self.partition, self.next = partition, None

    def resume(self, positions, *, is_older=False):
        """The committed offset takes precedence."""
        self.next = None

    def poll(self, timeout):
        first = self.partition.offset if self.next is None else self.next
        self.next = min(N, first + 50)
        return [Event("t:0", i + 1, b"", self.partition.records[i]) for i in range(first, self.next)] or None

    def lag(self):
        return {}

    def close(self):
        """Nothing is open."""


class Commits(Transactions):
    """Transactions that always succeed."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition

    def newest(self):
        return self.partition.number, self.partition.session

    def commit(self, number, session, positions, deadline=0.0):
        self.partition.number, self.partition.session = number, session
        self.partition.offset = positions.get("t:0", 0)

    def close(self):
        """Nothing is open."""


def model(learner):
    made = KernelRegressor(kernels.Gaussian(1.0), learner=learner, max_features=64)
    return preprocessing.StandardScaler() | made


def member(folder, name, partition, learner="dsg", **options):
    return Engine(
        model(learner),
        Reader(partition),
        label="y",
        metric=metrics.MAE(),
        state=StateDirectory(folder / name),
        transactions=Commits(partition),
        checkpoint_seconds=1000.0,
        setup={"label": "y"},
        shared_model=folder / "shared",
        **options,
    )


def newest(folder):
    return read_version(versions(folder / "shared")[-1])


def learned(folder):
    """Return how many events the newest version has, and the sums of their ids and of the squares of these."""
    pipeline = newest(folder)["model"]
    scaler = pipeline["StandardScaler"]
    n, mean = scaler.counts["id"], scaler.means["id"]
    assert kernel_of(pipeline).n_steps == n
    return n, round(n * mean), n * (scaler.vars["id"] + mean * mean)


def run_for(engine, events):
    """Run until the engine has learned a number of further events, or to the end."""
    end, checkpointer = engine.outcomes["learned"] + events, engine.parts.checkpointer

    def stopping():
        if engine.outcomes["learned"] % 60 == 0:
            checkpointer.try_to_commit()
        return engine.outcomes["learned"] >= end

    engine.run(stopping)


def crash(*words, **options):
    raise CrashError


def after(calls):
    """Return a function that is true after a number of calls."""
    numbers = itertools.count(1)
    return lambda: next(numbers) > calls


@pytest.mark.parametrize("learner", ["dsg", "newton"])
def test_each_event_is_in_the_shared_model_once_after_crashes_at_any_step(tmp_path, monkeypatch, learner):
    rng, partitions = random.Random(3), [Partition(0), Partition(1)]
    left, is_after = 0, False  # steps until the crash; whether it follows the last step or precedes it

    def fragile(call):
        def made(*words, **options):
            nonlocal left
            left -= 1
            if left == 0 and not is_after:
                raise CrashError
            found = call(*words, **options)
            if left == 0:
                raise CrashError
            return found

        return made

    monkeypatch.setattr(os, "link", fragile(os.link))
    monkeypatch.setattr(tensor_file, "move", fragile(tensor_file.move))
    run_for(member(tmp_path, "member0", partitions[0], learner), 300)  # publishes the first version
    crashes = 0
    while min(partition.offset for partition in partitions) < N:
        i = rng.choice([i for i, partition in enumerate(partitions) if partition.offset < N])
        left, is_after = rng.randint(1, 14), rng.random() < 0.5
        try:
            run_for(member(tmp_path, f"member{i}", partitions[i], learner), rng.randint(20, 400))
        except CrashError:
            crashes += 1
        left = 0
    for i, partition in enumerate(partitions):
        run_for(member(tmp_path, f"member{i}", partition, learner), 1)
    assert crashes > 10
    ids = range(2 * N)
    n, total, squares = learned(tmp_path)
    assert (n, total) == (2 * N, sum(ids))
    assert squares == pytest.approx(sum(i * i for i in ids), rel=1e-9)
    assert len(versions(tmp_path / "shared")) <= 3


def test_two_members_have_the_newton_functions_of_one_model(tmp_path):
    """With the square loss, the Newton functions of merged models are those of one model that learned all events."""
    partitions = [Partition(0), Partition(1)]
    run_for(member(tmp_path, "member0", partitions[0], "newton"), 300)
    for _ in range(2):
        for i, partition in enumerate(partitions):
            run_for(member(tmp_path, f"member{i}", partition, "newton"), 300)
    alone = model("newton")
    for record in itertools.chain.from_iterable(zip(*(p.records for p in partitions), strict=True)):
        alone.learn_one({k: v for k, v in record.items() if k != "y"}, record["y"])
    shared, rng = newest(tmp_path)["model"], random.Random(9)
    questions = [{"id": 1000.0, "a": rng.gauss(0, 1), "b": rng.gauss(0, 1)} for _ in range(300)]
    errors = [sum(abs(one.predict_one(x) - x["a"] * x["b"]) for x in questions) / 300 for one in (shared, alone)]
    assert errors[0] < 1.2 * errors[1]


def test_members_that_get_labels_in_two_forms_share_one(tmp_path):
    partitions = [Partition(0), Partition(1)]
    for partition, form in zip(partitions, (int, str), strict=True):
        partition.records = [one | {"y": form(int(one["y"] > 0))} for one in partition.records]

    def run(i):
        made = KernelClassifier(kernels.Gaussian(1.0), learner="dsg", max_features=64)
        options = {"label": "y", "ignore": ["id"], "metric": metrics.Accuracy(), "shared_model": tmp_path / "shared"}
        engine = Engine(
            made,
            Reader(partitions[i]),
            state=StateDirectory(tmp_path / f"member{i}"),
            transactions=Commits(partitions[i]),
            checkpoint_seconds=1000.0,
            setup={"label": "y"},
            **options,
        )
        run_for(engine, 300)
        assert not any(engine.refused.values())
        return engine

    for i in (0, 1, 0, 1):
        last = run(i)
    assert list(newest(tmp_path)["model"].labels) == list(last.model.labels)
    assert {str(label) for label in last.model.labels} == {"0", "1"}


def settings(folder, **tables):
    data = {
        "label": "y",
        "source": {"path": str(folder / "in.csv")},
        "model": {"type": "KernelClassifier", "learner": "dsg", "max_features": 64, **tables.pop("model", {})},
        "sink": {"dead_letters": str(folder / "dead.jsonl")},
    }
    return Config.model_validate(data | tables, context={"folder": folder})


def trained(folder, name="model.safetensors", **parameters):
    made = KernelClassifier(**{"learner": "dsg", "max_features": 64, **parameters})
    rng = random.Random(1)
    for _ in range(300):
        made.learn_one({"x1": (x := rng.random()), "x2": rng.random()}, "a" if x > 0.5 else "b")
    made.save(folder / name)
    return made


def test_a_run_begins_with_a_saved_model_and_a_restart_continues(tmp_path):
    made, state = trained(tmp_path), {"directory": str(tmp_path / "state")}
    (tmp_path / "in.csv").write_text("x1,x2,y\n0.1,0.2,a\n0.3,0.1,b\n")
    config = settings(tmp_path, model={"from": "model.safetensors"}, state=state)
    check_state(config)
    engine_of(config).run()
    assert load(tmp_path / "state").n_steps == made.n_steps + 2
    (tmp_path / "model.safetensors").unlink()  # which only a new state needs
    check_state(config)
    engine_of(config).run()
    assert load(tmp_path / "state").n_steps == made.n_steps + 2
    again = settings(tmp_path, model={"from": str(tmp_path / "state")}, state={"directory": str(tmp_path / "second")})
    engine_of(again).run()
    assert load(tmp_path / "second").n_steps == made.n_steps + 4


def checked(*words, **tables):
    config = settings(*words, **tables)
    config.check()
    check_state(config)


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ({"model": {"from": "nothing"}}, "model.from: expected a model file, found none"),
        ({"model": {"from": 3}}, "model.from: expected the path of a model or a state directory, got 3"),
        ({"model": {"from": "model.safetensors", "max_features": 32}}, "model.from: expected max_features = 32, as"),
        (
            {"model": {"from": "model.safetensors"}, "preprocessing": ["StandardScaler"]},
            "model.from: expected the steps StandardScaler, as here, got none in",
        ),
        ({"model": {"from": "other.safetensors"}}, "model.from: expected a KernelClassifier, as here, got a Kernel"),
        ({"state": {"shared_model": "shared"}}, "state.directory: required for state.shared_model"),
        (
            {"state": {"shared_model": "shared", "directory": "state"}, "preprocessing": ["OrdinalEncoder"]},
            r"preprocessing\[0\]: expected a step whose state can be merged",
        ),
    ],
)
def test_incompatible_settings_are_refused_by_name(tmp_path, tables, reason):
    (tmp_path / "in.csv").write_text("x1,x2,y\n0.1,0.2,a\n")
    trained(tmp_path)
    KernelRegressor().save(tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match=reason):
        checked(tmp_path, **tables)


def test_a_state_with_another_start_is_refused(tmp_path):
    trained(tmp_path)
    (tmp_path / "in.csv").write_text("x1,x2,y\n0.1,0.2,a\n")
    state = {"directory": str(tmp_path / "state")}
    engine_of(settings(tmp_path, state=state)).run()
    with pytest.raises(StateDirectoryError, match=r"model.from = None, got 'model.safetensors'"):
        check_state(settings(tmp_path, model={"from": "model.safetensors"}, state=state))


def test_a_check_reports_whether_a_group_has_one_model(tmp_path):
    tables = {"source": {"topics": ["t"]}, "kafka": {"servers": "localhost:1", "group": "g"}}
    state = {"directory": str(tmp_path / "state")}
    assert 'members of the group "g" will have separate models' in separate_models(
        settings(tmp_path, **tables, state=state)
    )
    state["shared_model"] = str(tmp_path / "shared")
    assert separate_models(settings(tmp_path, **tables, state=state)) == ""


def begun(folder):
    """Return partitions after a first member has learned some events and published a version."""
    partitions = [Partition(0), Partition(1)]
    run_for(member(folder, "member0", partitions[0]), 400)
    return partitions


def test_a_new_member_waits_for_the_first_version_and_begins_with_it(tmp_path):
    partitions = [Partition(0), Partition(1)]
    run_for(member(tmp_path, "member0", partitions[0]), 100)
    assert newest_version(tmp_path / "shared") == 0
    waiting = member(tmp_path, "member1", partitions[1])
    waiting.run(after(5))
    assert waiting.outcomes["learned"] == 0
    run_for(member(tmp_path, "member0", partitions[0]), 300)
    joined = member(tmp_path, "member1", partitions[1])
    joined.run(after(2))
    x = {"id": 3.0, "a": 0.5, "b": -0.5}
    assert joined.model.predict_one(x) == newest(tmp_path)["model"].predict_one(x) != 0.0


@pytest.mark.parametrize("events", [0, 100])
def test_a_member_that_dies_in_its_first_commit_begins_with_the_group_s_model(tmp_path, monkeypatch, events):
    """The prepared checkpoint is discarded, and meanwhile the group may have learned more."""
    partitions = begun(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Commits, "commit", crash)
        with pytest.raises(CrashError):
            run_for(member(tmp_path, "member1", partitions[1]), 100)
    if events:
        run_for(member(tmp_path, "member0", partitions[0]), events)
    run_for(member(tmp_path, "member1", partitions[1]), 100)
    ids = [*range(0, 2 * partitions[0].offset, 2), *range(1, 2 * partitions[1].offset, 2)]
    assert len(ids) >= 400
    assert learned(tmp_path)[:2] == (len(ids), sum(ids))


def test_states_that_do_not_belong_to_the_versions_are_refused(tmp_path):
    partitions = begun(tmp_path)
    shutil.copytree(tmp_path / "member0", tmp_path / "copy")
    run_for(member(tmp_path, "member0", partitions[0]), 100)
    old = Partition(0)
    old.number, old.offset = StateDirectory(tmp_path / "copy").newest(), 400  # the brokers of the copy
    with pytest.raises(StateDirectoryError, match="older copy of a state directory"):
        run_for(member(tmp_path, "copy", old), 1)
    for path in (tmp_path / "copy").glob("checkpoint-*"):
        path.unlink()
    with pytest.raises(StateDirectoryError, match="Expected the checkpoints of this member"):
        run_for(member(tmp_path, "copy", Partition(0)), 1)
    alone = Engine(
        model("dsg"),
        Reader(partitions[1]),
        label="y",
        metric=metrics.MAE(),
        state=StateDirectory(tmp_path / "alone"),
        transactions=Commits(partitions[1]),
        setup={"label": "y"},
    )
    run_for(alone, 300)
    with pytest.raises(StateDirectoryError, match="got one with a model of its own"):
        run_for(member(tmp_path, "alone", partitions[1]), 1)


def test_a_directory_that_fails_for_a_while_loses_nothing(tmp_path, monkeypatch):
    partitions = begun(tmp_path)
    run_for(member(tmp_path, "member1", partitions[1]), 100)
    working, failing = os.link, member(tmp_path, "member1", partitions[1])

    def broken(*words):
        raise OSError(5, "input/output error")

    def stopping():
        done = failing.outcomes["learned"]
        if done == 200:
            monkeypatch.setattr(os, "link", broken)
        if done in (250, 300):
            failing.commit()
        if done == 350:
            monkeypatch.setattr(os, "link", working)
        return done == 400

    failing.run(stopping)
    assert failing.incidents["not_shared"] > 1
    ids = [*range(0, 800, 2), *range(1, 801, 2)]
    assert learned(tmp_path)[:2] == (800, sum(ids))
