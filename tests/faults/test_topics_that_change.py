"""Topics whose offsets change under a run: one that is deleted and made again, and one that brokers compact."""

from __future__ import annotations

import json

import brokers
import pytest
from faults.kafka_runs import Run, ids, records
from faults.test_odd_moments import SOON
from waiting import LIMIT, wait_for

from streamkernel.connectors.kafka import Options
from streamkernel.connectors.kafka.clients import Partition
from streamkernel.engine.config.config import load_config
from streamkernel.engine.config.messages import ConfigError
from streamkernel.engine.config.start_checks import check_connections
from streamkernel.engine.pipelines import kernel_of

pytestmark = [pytest.mark.java, pytest.mark.slow]


def test_a_topic_that_is_deleted_and_made_again(servers, tmp_path):
    """The run ends with an error, and its next start too: the new topic has other records under the same offsets."""
    brokers.make_topics(servers, names=[topic := "made-again"])
    brokers.produce(servers, topic, records(500))
    run = Run(servers, tmp_path, topic, source="", client="kafka-python")
    run.program = SOON + Run.program
    process = run.start()
    run.wait_for(lambda: run.committed() == 500)
    brokers.delete_topic(servers, topic)
    brokers.make_topics(servers, names=[topic])
    brokers.produce(servers, topic, records(800))
    assert process.wait(LIMIT) == 2, run.log()
    assert run.start(client="confluent-kafka").wait(LIMIT) == 2, run.log()
    message = f'Expected the topic "{topic}" that was read until now, got a new one of the same name'
    assert run.log().count(json.dumps(message)[1:-1]) == 2, run.log()
    with pytest.raises(ConfigError, match=message[1:]):  # as --check --connect says
        check_connections(load_config(run.write(run.state_directory().parent)))
    assert run.state()["outcomes"]["learned"] == len(ids(500))
    assert run.committed() == 0
    run.template = run.template.replace("[model]", f'[model]\nfrom = "{run.state_directory()}"')
    process = run.start("two")
    wait_for(lambda: run.committed() == 800 or process.poll() is not None, what=run.log_of_all)
    process.terminate()
    assert process.wait(LIMIT) == 0, run.log("two")
    assert run.state("two")["outcomes"]["learned"] == len(ids(800))
    assert kernel_of(run.state("two")["model"]).n_steps == len(ids(500)) + len(ids(800))


def test_a_topic_that_is_compacted(servers, tmp_path):
    """Each record that is left is learned once, across gaps of offsets, also where the committed offset is in one."""
    config = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    brokers.make_topics(servers, names=[topic := "compacted"], config=config)
    written, size = 0, 300
    consumer = Options(servers).consumer()

    def left():
        return [record.offset for record in brokers.committed(servers, topic)]

    def rewrite(gap):
        """Write the same keys again and again, until a range of offsets has no record."""
        nonlocal written
        found = set(left())
        while written == 0 or not found.isdisjoint(gap):
            rows = [{"id": written + i, "a": i % 7, "b": i % 5, "y": i % 2 == 0} for i in range(size)]
            brokers.produce(servers, topic, rows)
            written += size
            found = set(left())

    rewrite(range(10, 20))
    run = Run(servers, tmp_path, topic, source="", audited=True)
    process = run.start(client="kafka-python")
    run.wait_for(lambda: run.committed() == written)
    rewrite(range(0))
    brokers.produce(servers, topic, [{"id": written, "a": 1, "b": 1, "y": True}])
    written += 1
    run.wait_for(lambda: run.committed() > size)
    process.kill()
    process.wait()
    at = run.committed()
    rewrite(range(at - 10, at))
    process = run.start(client="confluent-kafka")
    run.wait_for(lambda: run.committed() == consumer.end(Partition(topic, 0)) == written)
    consumer.close()
    process.terminate()
    assert process.wait(LIMIT) == 0, run.log()
    learned = run.learned()
    assert learned == sorted(set(learned))
    assert learned[0] >= 20
    assert set(left()) <= set(learned)  # ids are offsets
    assert len(learned) < written
    assert len(run.seen()) == len(learned)
    assert run.dead() == []
