"""A sink of predictions that is found by its name in the registry of connectors."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkernel.connectors.registry import SINKS
from streamkernel.engine.assemble import engine_of
from streamkernel.engine.config.config import ConfigError, load_config, replay_config

MODEL = "[model]\ntype = 'KernelClassifier'\nlearner = 'dsg'\nmax_features = 8\n"


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A configuration whose sink is a registered one."""
    monkeypatch.setitem(SINKS, "path", "streamkernel.connectors.files.sinks:FileSink")
    (tmp_path / "events.csv").write_text("a,y\n1,0\n2,1\n3,0\n")
    path = tmp_path / "run.toml"
    path.write_text(
        f"label = 'y'\n[source]\npath = 'events.csv'\n[sink.predictions]\npath = 'found.jsonl'\nprivate = true\n{MODEL}"
    )
    return path


def test_predictions_go_to_a_registered_sink_beside_the_file(config):
    settings = load_config(config)
    settings.check()
    assert not (config.parent / "found.jsonl").exists()
    assert settings.sink.has_predictions
    engine_of(settings).run()
    found = config.parent / "found.jsonl"
    assert len(found.read_text().splitlines()) == 3
    assert found.stat().st_mode & 0o077 == 0


def test_a_table_and_a_topic_are_refused_together(config):
    text = config.read_text().replace("[sink.predictions]", "[sink]\npredictions_topic = 't'\n[sink.predictions]")
    config.write_text(text + "[kafka]\nservers = 'localhost:9092'\n")
    with pytest.raises(ConfigError, match=r"sink\.predictions: expected a table or a topic, got both"):
        load_config(config)


def test_a_table_without_a_registered_key_is_refused(config):
    config.write_text(config.read_text().replace("path = 'found.jsonl'\nprivate = true", "file = 'found.jsonl'"))
    with pytest.raises(ConfigError, match=r"sink\.predictions: expected the path of a file"):
        load_config(config)


def test_secrets_of_a_sink_are_masked(config):
    config.write_text(config.read_text().replace("private = true", "password = 'hush'"))
    shown = load_config(config).without_secrets()
    assert shown["sink"]["predictions"] == {"path": "found.jsonl", "password": "***"}


def test_a_replay_writes_to_its_own_file(config):
    again = replay_config(load_config(config), config.parent / "before", None, None)
    engine_of(again).run()
    assert not (config.parent / "found.jsonl").exists()
    assert len(Path(config.parent / "before" / "predictions.jsonl").read_text().splitlines()) == 3
