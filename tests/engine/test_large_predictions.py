"""A prediction that no broker takes becomes a dead letter, and the commit goes on."""

from __future__ import annotations

import pytest

from streamkernel.connectors import KafkaSink, RecordsRefusedError
from streamkernel.connectors.kafka import Options
from streamkernel.connectors.kafka.options import CLIENTS
from streamkernel.connectors.kafka.writer import LIMITS, TopicLimits, size_of
from streamkernel.engine.examples import Examples
from streamkernel.errors import LabelError


class Writer:
    def __init__(self, options):
        self.options, self.sent = options, []

    def limits(self, topic):
        return TopicLimits.of(self.options, {})

    def refusal(self, topic, origin):
        return ""

    def send_all(self, topic, records, origins):
        self.sent += records


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_prediction_is_sent_up_to_the_limit_of_the_client(client, more):
    options = Options("localhost:9092", client=client)
    largest = TopicLimits.of(options, {}).largest
    assert largest in LIMITS.values()
    writer = Writer(options)
    sink = KafkaSink(writer, "predictions", bytes)
    value = bytes(largest - size_of(b"", b"k") + more)
    if more <= 0:
        sink.write_all([b"small", value], [b"k", b"k"])
        assert len(writer.sent) == 2
        return
    with pytest.raises(RecordsRefusedError) as error:
        sink.write_all([b"small", value], [b"k", b"k"])
    assert ([record for record, *_ in error.value.refused], len(writer.sent)) == ([value], 1)


def test_a_long_key_counts():
    writer = Writer(Options("localhost:9092"))
    with pytest.raises(RecordsRefusedError, match="1,200,000 of key"):
        KafkaSink(writer, "p").write({"a": 1}, b"k" * 1_200_000)
    assert writer.sent == []


def test_a_long_label_is_refused():
    examples = Examples("y", numeric_label=False)
    assert examples.split({"a": 1, "y": "y" * 1000})[1] == "y" * 1000
    with pytest.raises(LabelError, match="at most 1,000 characters, got 600,000"):
        examples.split({"a": 1, "y": "y" * 600_000})
