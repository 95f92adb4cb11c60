"""Memory over many events."""

from __future__ import annotations

import brokers
import pytest
from faults import soak

pytestmark = pytest.mark.java

RECORDS = 60_000


def test_memory_does_not_grow(servers, tmp_path):
    brokers.make_topics(servers, names=["soak"], partitions=4)
    run = soak.Soak(servers, tmp_path, "soak", source="")
    found = list(soak.samples(run, soak.records(RECORDS), RECORDS // 12))
    assert run.state()["outcomes"]["dead_letter"] == sum(record == b"{half" for record in soak.records(RECORDS))
    assert soak.growth(found) < soak.MOST
    leak = [sample._replace(memory=4.0 * soak.MOST * sample.records / RECORDS) for sample in found]
    assert soak.growth(leak) > soak.MOST
