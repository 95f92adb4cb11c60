"""Names chosen by attackers: files whose names are not valid text, and more files than a monitor can handle."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from streamkernel.engine.assemble import engine_of
from streamkernel.engine.checkpoint.state_directory import read_newest
from streamkernel.engine.config.config import load_config
from streamkernel.engine.http.applications import json_answer
from streamkernel.engine.telemetry.observed import report
from streamkernel.engine.telemetry.snapshot import MOST
from streamkernel.engine.telemetry.status import EngineCollector, status_of

CONFIG = """
label = "y"
[source]
path = "in/*.jsonl"
[model]
type = "KernelClassifier"
max_features = 16
max_classes = 1000
[sink]
predictions = "predictions.jsonl"
[state]
directory = "state"
"""


def test_hostile_names_of_files_and_classes_break_no_output(tmp_path: Path) -> None:
    files = 2 * MOST
    (tmp_path / "in").mkdir()
    (tmp_path / "config.toml").write_text(CONFIG)
    for i in range(files):
        path = os.fsencode(tmp_path / "in") + b'/%03d \xff\n"}\\.jsonl' % i
        lines = [{"a": i, f"name {i}": 1, "y": f"class {i}"}, {"a": i, "y": [f"reason {i}"]}, {"y": f"reason {i}"}]
        Path(os.fsdecode(path)).write_text("".join(json.dumps(line) + "\n" for line in lines))
    engine = engine_of(load_config(tmp_path / "config.toml"))
    engine.run()
    assert sum(engine.outcomes.values()) == 4 * files  # one of three records is valid, and is predicted and learned

    registry = CollectorRegistry()
    registry.register(EngineCollector(engine))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    series = Counter(sample.name for family in families for sample in family.samples)
    assert series.pop("streamkernel_source_position") == MOST
    assert sum(series.values()) < 100

    assert json.loads(bytes(json_answer(status_of(engine)).body))["dead_letters"]
    lines = (tmp_path / "predictions.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["stream"].endswith('/000 \\udcff\n"}\\.jsonl')
    assert len((tmp_path / "state" / "dead_letters.jsonl").read_text().splitlines()) == 2 * files
    saved = read_newest(tmp_path / "state")
    assert saved is not None
    assert len(saved["positions"]) == files
    assert "udcff" in report(saved, tmp_path / "state")
