"""Each event counts once: crashes and refusals at every step of a commit, without brokers."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
from cases import max_examples
from hypothesis import given
from hypothesis import strategies as st
from river import linear_model, metrics
from structlog.testing import capture_logs

from streamkernel import ModelFileError
from streamkernel.connectors import (
    CommitRefusedError,
    Event,
    Source,
    TopicMissingError,
    Transactions,
    UnavailableError,
)
from streamkernel.engine import Engine
from streamkernel.engine.checkpoint.state_directory import (
    StateDirectory,
    StateDirectoryError,
    checkpoints,
    number_of,
    read_newest,
    recover_newest,
)
from streamkernel.engine.roles import Candidate, PromotionError, promote

N = 40
EVENTS = [{"a": (i * 7 % 11) / 11, "b": (i * 5 % 13) / 13, "y": float(i % 5)} for i in range(N)]


@pytest.fixture(scope="module", autouse=True)
def no_pauses():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamkernel.engine.health.FIRST_PAUSE", 0.0)
        yield


class CrashError(BaseException):
    """The process ends without cleanup."""


class Cluster:
    """The state of brokers: the committed offset and checkpoint, and the committed predictions."""

    def __init__(self):
        self.offset, self.number, self.session, self.seen, self.numbers = 0, 0, "", [], []


class Reader(Source):
    """Returns the events from the committed offset on, a few per poll."""

    def __init__(self, cluster, piece=3):
        self.cluster, self.piece, self.next, self.rewound = cluster, piece, None, None

    def listen(self, revoked, lost):
        self.revoked, self.lost = revoked, lost

    def seek(self, positions):
        pass

    def resume(self, positions, *, is_older=False):
        if is_older:
            self.rewound = positions["t:0"]
        self.next = None

    def poll(self, timeout):
        if self.next is None:
            self.next = self.cluster.offset if self.rewound is None else self.rewound
        first, self.next = self.next, min(N, self.next + self.piece)
        events = [Event("t:0", i + 1, b"", EVENTS[i]) for i in range(first, self.next)]
        return events or None

    def lag(self):
        return {}

    def close(self):
        pass


class Commits(Transactions):
    """Transactions with a sink; a commit may fail, succeed with a lost response, or end the process."""

    def __init__(self, cluster, faults):
        self.cluster, self.faults, self.waiting = cluster, faults, []

    def write(self, record, key=None):
        self.waiting.append(record["position"])

    def open(self):
        pass

    def flush(self):
        return None

    def seek(self, position):
        pass

    def newest(self):
        self.waiting = []
        return self.cluster.number, self.cluster.session

    def commit(self, number, session, positions, deadline=math.inf):
        fault = self.faults.pop(0) if self.faults else "none"
        if fault == "crash before":
            raise CrashError
        if fault == "refused":
            raise CommitRefusedError("no")
        if callable(fault):
            fault()
            raise CommitRefusedError("fenced")
        self.cluster.number, self.cluster.session, self.cluster.offset = number, session, positions.get("t:0", 0)
        self.cluster.numbers.append(number)
        self.cluster.seen += self.waiting
        self.waiting = []
        if fault == "crash after":
            raise CrashError
        if fault == "no answer":
            raise CommitRefusedError("silence")

    def close(self):
        pass


def engine(folder, cluster, faults, piece=3, **options):
    commits = Commits(cluster, faults)
    made = Engine(
        linear_model.LinearRegression(),
        Reader(cluster, piece),
        label="y",
        metric=metrics.MAE(),
        sink=commits,
        state=StateDirectory(folder),
        transactions=commits,
        checkpoint_seconds=0.0,
        **options,
    )
    return made


def run(folder, cluster, faults, piece=3):
    """Run to the end, and restart from the state after each crash."""
    while True:
        try:
            engine(folder, cluster, faults, piece).run()
        except CrashError:
            continue
        return read_newest(folder)


def content(saved):
    return (
        saved["model"].weights,
        saved["model"].intercept,
        saved["metric"].get(),
        saved["outcomes"],
        saved["positions"],
    )


FAULTS = ["none", "refused", "no answer", "crash before", "crash after"]


@max_examples(40)
@given(st.lists(st.sampled_from(FAULTS), max_size=12), st.integers(1, 7))
def test_each_event_counts_once_whatever_happens_to_commits(tmp_path_factory, faults, piece):
    calm = run(tmp_path_factory.mktemp("calm"), Cluster(), [])
    cluster = Cluster()
    hurt = run(tmp_path_factory.mktemp("hurt"), cluster, list(faults), piece)
    assert content(hurt) == content(calm)
    assert cluster.seen == list(range(1, N + 1))
    assert hurt["checkpoint"] == cluster.number


def test_a_revoked_stream_is_committed_or_rolled_back(tmp_path):
    cluster = Cluster()
    made = engine(tmp_path, cluster, [])
    polls = iter(range(100))
    poll, source = made.source.poll, made.source

    def interrupted(timeout):
        turn = next(polls)
        if turn == 3:
            source.revoked(["t:0"])
            assert cluster.offset == source.next
            assert "t:0" not in made.parts.checkpointer.positions
        if turn == 5:
            source.lost(["t:0"])
            return poll(timeout)  # dropped, because the new owner of the partition learns it
        return poll(timeout)

    source.poll = interrupted
    made.run()
    assert cluster.seen == list(range(1, N + 1))
    assert content(read_newest(tmp_path)) == content(run(tmp_path / "calm", Cluster(), []))
    assert made.incidents["rebalance"] == 2
    marks = [mark["text"] for mark in made.history.marks.all() if mark["kind"] == "rebalance"]
    assert marks == ["rebalance: partitions of other members now: 1"] * 2


def test_checkpoints_and_restarts_are_marked_at_their_event(tmp_path):
    first = engine(tmp_path, Cluster(), [])
    first.run()
    written = [mark for mark in first.history.marks.all() if mark["kind"] == "checkpoint"]
    newest = read_newest(tmp_path)["checkpoint"]
    assert (written[-1]["event"], written[-1]["text"]) == (N, f"checkpoint {newest}")
    assert [mark["event"] for mark in written] == sorted(mark["event"] for mark in written)
    cluster = Cluster()
    cluster.offset = N
    second = engine(tmp_path, cluster, [])
    second.run()
    (resumed,) = [mark for mark in second.history.marks.all() if mark["kind"] == "resumed"]
    assert (resumed["event"], resumed["text"]) == (N, f"resumed from checkpoint {newest}")


def test_a_failed_checkpoint_is_retried(tmp_path, monkeypatch):
    made, write = engine(tmp_path, Cluster(), []), StateDirectory.prepare
    turns = iter(range(1000))

    def full(self, state):
        if 3 < next(turns) < 9:
            raise OSError(28, "No space left on device")
        return write(self, state)

    monkeypatch.setattr(StateDirectory, "prepare", full)
    made.run()
    assert made.incidents["checkpoint_failed"] == 5
    assert content(read_newest(tmp_path)) == content(run(tmp_path / "calm", Cluster(), []))


@pytest.mark.parametrize("step", ["prepare", "promote"])
def test_a_directory_that_is_moved_away_during_a_checkpoint_is_a_failed_checkpoint(step, tmp_path, monkeypatch):
    folder, turns, do = tmp_path / "state", iter(range(1000)), getattr(StateDirectory, step)
    made = engine(folder, Cluster(), [])

    def away(self, argument):
        if not 3 < next(turns) < 9:
            return do(self, argument)
        folder.rename(tmp_path / "away")
        try:
            return do(self, argument)
        finally:
            (tmp_path / "away").rename(folder)

    monkeypatch.setattr(StateDirectory, step, away)
    made.run()
    assert made.incidents["checkpoint_failed"] == 5
    assert content(read_newest(folder)) == content(run(tmp_path / "calm", Cluster(), []))


def test_a_failed_last_checkpoint_is_an_error(tmp_path, monkeypatch):
    made = engine(tmp_path, Cluster(), [])

    def full(self, state):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(StateDirectory, "prepare", full)
    with pytest.raises(OSError, match="No space left"):
        made.run()


def test_unavailable_brokers_are_retried(tmp_path, monkeypatch):
    monkeypatch.setattr("streamkernel.engine.health.LONGEST_PAUSE", 0.01)
    cluster, silent = Cluster(), [3]
    made = engine(tmp_path, cluster, [])
    ask = made.parts.checkpointer.transactions.newest

    def newest():
        if silent[0]:
            silent[0] -= 1
            raise UnavailableError("nobody is there")
        return ask()

    made.parts.checkpointer.transactions.newest = newest
    made.run()
    assert made.incidents["unreachable"] == 3
    assert cluster.seen == list(range(1, N + 1))


def test_the_run_waits_for_missing_topics(tmp_path, monkeypatch):
    monkeypatch.setattr("streamkernel.engine.health.LONGEST_PAUSE", 0.01)
    cluster, missing = Cluster(), [2, 3]
    made = engine(tmp_path, cluster, [])
    poll = made.source.poll

    def looked(which):
        if missing[which]:
            missing[which] -= 1
            raise TopicMissingError("no such topic")

    def polled(timeout):
        looked(0)
        return poll(timeout)

    made.source.poll, made.parts.outputs.predictions.open = polled, lambda: looked(1)
    made.run()
    assert made.incidents["topic_missing"] == 5
    assert cluster.seen == list(range(1, N + 1))


def test_a_stop_before_the_start_writes_nothing(tmp_path):
    made, asked = engine(tmp_path, Cluster(), []), []

    def look():
        asked.append(1)
        raise TopicMissingError("no such topic")

    made.parts.outputs.predictions.open = look
    made.run(stopping=lambda: len(asked) > 0)
    assert checkpoints(tmp_path) == []


def test_a_stop_while_brokers_are_unavailable_changes_nothing(tmp_path):
    run(tmp_path, Cluster(), [])
    before = [path.read_bytes() for path in checkpoints(tmp_path)]
    made, asked = engine(tmp_path, Cluster(), []), []

    def newest():
        asked.append(1)
        raise UnavailableError("nobody is there")

    made.parts.checkpointer.transactions.newest = newest
    made.run(stopping=lambda: len(asked) > 0)
    assert [path.read_bytes() for path in checkpoints(tmp_path)] == before


def test_a_torn_checkpoint_falls_back_and_reports_it(tmp_path):
    """Predictions after the older checkpoint are written a second time; the model is the same."""
    cluster = Cluster()
    calm = run(tmp_path, cluster, [])
    newest = checkpoints(tmp_path)[-1]
    newest.write_bytes(newest.read_bytes()[:-7])
    before = list(cluster.seen)
    hurt = run(tmp_path, cluster, [])
    assert content(hurt) == content(calm)
    assert cluster.seen[: len(before)] == before
    assert cluster.seen[len(before) :] == list(range(read_position(tmp_path), N + 1))


def read_position(folder: Path) -> int:
    return read_newest_but(folder)["positions"]["t:0"] + 1


def read_newest_but(folder):
    """Return the content of the checkpoint before the torn one, which is the oldest by now."""
    copy = folder / "copy"
    copy.mkdir()
    shutil.copy(checkpoints(folder)[0], copy)
    return read_newest(copy)


def test_a_promotion_between_two_transactions_loses_and_repeats_nothing(tmp_path):
    """Kafka has the checkpoint before the promotion, and the run continues from the one after it."""
    cluster = Cluster()
    both = [Candidate(name, {}, linear_model.LinearRegression) for name in ("model", "other")]
    made, seen = engine(tmp_path, cluster, [], candidates=both), []
    made.run(stopping=lambda: len(seen) > 20 or seen.append(1))
    number = cluster.number
    promote(tmp_path, "other")
    with capture_logs() as logs:
        engine(tmp_path, cluster, ["crash before"], candidates=both).parts.checkpointer.recover(lambda: False)
    assert not [log for log in logs if log["log_level"] == "warning"]
    engine(tmp_path, cluster, ["refused", "no answer"], candidates=both).run()
    assert cluster.seen == list(range(1, N + 1))
    saved = read_newest(tmp_path)
    assert cluster.number == saved["checkpoint"] > number + 1
    assert saved["challengers"]["champion"] == "other"
    assert "exchanged_after" not in saved
    calm = run(tmp_path / "calm", Cluster(), [])
    assert saved["model"].weights == saved["challengers"]["models"][0]["model"].weights == calm["model"].weights
    newest = checkpoints(tmp_path)[-1]
    newest.write_bytes(newest.read_bytes()[:-7])
    with pytest.raises(PromotionError, match="the newest checkpoint is damaged"):
        promote(tmp_path, "model")


def test_an_older_copy_of_a_directory_is_rejected(tmp_path):
    cluster = Cluster()
    made = engine(tmp_path / "a", cluster, [])
    seen = []
    made.run(stopping=lambda: len(seen) > 5 or seen.append(1))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    run(tmp_path / "a", cluster, [])
    with pytest.raises(StateDirectoryError, match="an older copy of a state directory"):
        engine(tmp_path / "b", cluster, []).run()


def test_the_number_of_a_lost_checkpoint_is_not_used_again(tmp_path):
    """Else a crash before the commit leaves a prepared checkpoint that Kafka seems to have committed."""
    cluster, seen = Cluster(), []
    engine(tmp_path, cluster, []).run(stopping=lambda: len(seen) > 5 or seen.append(1))
    checkpoints(tmp_path)[-1].unlink()  # the mirror had not got it
    (tmp_path / "restored").write_text(str(number_of(checkpoints(tmp_path)[-1])))
    made = engine(tmp_path, cluster, ["crash before"])
    made.parts.checkpointer.seconds = math.inf  # so that the next checkpoint is the one at the end
    with pytest.raises(CrashError):
        made.run()
    hurt = run(tmp_path, cluster, [])
    assert set(cluster.seen) == set(range(1, N + 1))
    assert cluster.numbers == sorted(set(cluster.numbers))  # the model of a group has what was added by number
    assert content(hurt) == content(run(tmp_path / "calm", Cluster(), []))


def test_a_prepared_checkpoint_without_a_record_in_kafka_is_an_error(tmp_path):
    with StateDirectory(tmp_path) as state:
        state.write({"n": 1})
        state.prepare({"n": 2})
        with pytest.raises(
            StateDirectoryError, match=r"Expected a record in Kafka of whether checkpoint 2 is committed, got none"
        ):
            recover_newest(state, 0, "")
        assert recover_newest(state, 2, state.session) == {"n": 2, "checkpoint": 2}


def test_a_checkpoint_that_a_copy_of_the_directory_committed_is_not_the_prepared_one_of_the_same_number(tmp_path):
    """A process with a copy fences this one within its commit, and commits more events under the same number."""
    cluster = Cluster()
    engine(tmp_path / "one", cluster, []).run(stopping=lambda: cluster.number == 2)
    shutil.copytree(tmp_path / "one", tmp_path / "copy")

    def fence():
        engine(tmp_path / "copy", cluster, [], piece=7).run(stopping=lambda: cluster.number == 3)

    with pytest.raises(StateDirectoryError, match=r"Expected checkpoint 3, .* got 2 .* an older copy"):
        engine(tmp_path / "one", cluster, [fence], piece=3).run()
    run(tmp_path / "copy", cluster, [])
    assert cluster.seen == list(range(1, N + 1))


def test_a_committed_prepared_checkpoint_must_be_intact(tmp_path):
    with StateDirectory(tmp_path) as state:
        state.prepare({"n": 1})
        path = next(tmp_path.glob("prepared-*"))
        path.write_bytes(path.read_bytes()[:-3])
        with pytest.raises(ModelFileError, match="intact checkpoint"):
            recover_newest(state, 1, state.session)


def test_a_directory_keeps_its_identity(tmp_path):
    with StateDirectory(tmp_path / "a") as a, StateDirectory(tmp_path / "b") as b:
        name = a.identity
        assert name != b.identity
    with StateDirectory(tmp_path / "a") as a:
        assert a.identity == name
