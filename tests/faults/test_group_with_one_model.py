"""Members of a group on real brokers that share one model: each event is in it once, whoever joins, leaves or dies."""

from __future__ import annotations

import random

import brokers
import pytest
from faults import members
from faults.kafka_runs import CONFIG, Run, ids
from waiting import LIMIT

from streamkernel.engine.pipelines import kernel_of
from streamkernel.engine.shared_model import read_version, versions

pytestmark = [pytest.mark.java, pytest.mark.slow]

N, LATE = 6000, 1000


class Group(Run):
    """Members whose model is that of the group; the id is an input, so that the scaler sums up what was learned."""

    template = CONFIG.replace("{ignore}", "").replace("[state]", '[state]\nshared_model = "{state}/../../shared"')

    def committed(self):
        """Return how many records are committed, 0 while the newest version lacks a member's last checkpoint."""
        paths = versions(self._folder / "shared")
        added = read_version(paths[-1])["members"] if paths else {}
        last = {f"-{name}": names[-1] for name in self._members if (names := self.checkpoints(name))}
        is_merged = last == {name: f"checkpoint-{number:012d}.safetensors" for name, number in added.items()}
        return super().committed() if is_merged else 0

    def learned(self, field):
        """Return how many events the newest version has, and sums of a field and of its squares, by the scaler."""
        pipeline = read_version(versions(self._folder / "shared")[-1])["model"]
        scaler = getattr(pipeline["StandardScaler"], "transformer", pipeline["StandardScaler"])
        n, mean = scaler.counts[field], scaler.means[field]
        assert kernel_of(pipeline).n_steps == n
        return n, n * mean, n * (scaler.vars[field] + mean * mean)


def sums(numbers):
    return len(numbers), pytest.approx(sum(numbers)), pytest.approx(sum(one * one for one in numbers))


def test_members_come_and_go(servers, tmp_path):
    """They are stopped or killed with kill -9; a member that is not there at the end has added what it committed."""
    brokers.make_topics(servers, names=[topic := "one-model"], partitions=6)
    run = Group(servers, tmp_path, topic, source="", options=members.OPTIONS["kafka-python"])
    members.shared(run, N, 6, 4, random.Random(2))
    assert run.learned("id") == sums(ids(N))
    assert sorted(int(key) for key, _ in run.seen()) == ids(N)


def test_labels_that_come_later(servers, tmp_path):
    """Each member reads partitions of its own, so what waits in a member that is killed waits there again."""
    brokers.make_topics(servers, names=[topic := "late-labels"], partitions=4)
    rng = random.Random(4)
    features = [{"id": i, "a": rng.gauss(0, 1), "b": rng.gauss(0, 1)} for i in range(2 * LATE)]
    labels = [{"id": one["id"], "y": one["a"] * one["b"] > 0} for one in features]
    run = Group(servers, tmp_path, topic, source="partitions = [0, 1]")
    run.template = run.template.replace("[model]", '[delayed_labels]\nkey = "id"\n[model]')
    running = [run.start()]
    run.source = "partitions = [2, 3]"
    running.append(run.start("two"))  # which waits until the first one has learned enough
    brokers.produce(servers, topic, features[:LATE] + labels[:LATE], 4)
    run.wait_for(lambda: run.committed() == 2 * LATE)
    brokers.produce(servers, topic, features[LATE:], 4)
    run.wait_for(lambda: run.committed() == 3 * LATE)
    running[1].kill()
    running[1].wait()
    brokers.produce(servers, topic, labels[LATE:], 4)
    running[1] = run.start("two")
    run.wait_for(lambda: run.committed() == 4 * LATE)
    for process in running:
        process.terminate()
        assert process.wait(LIMIT) == 0, run.log_of_all()
    assert [run.state(name)["outcomes"]["learned"] for name in ("one", "two")] == [LATE, LATE]
    assert run.learned("a") == sums([one["a"] for one in features])
