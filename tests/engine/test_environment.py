"""Values of a configuration come from the environment and from files, and no log or error shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamkernel.engine.config.config import ConfigError, load_config

CONFIG = """
label = "y"
[kafka]
servers = "${BROKER}:9092,${BROKER}:9093"
group = "clicks"
processing_guarantee = "at_least_once"
options = { sasl_plain_password = "${file:secrets/password}", sasl_plain_username = "${USERNAME_OF_KAFKA}" }
[source]
topics = ["${TOPIC}", "$${not}"]
[model]
type = "KernelClassifier"
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "password").write_text("s3cret-of-file\n")
    for name, value in {"BROKER": "broker1", "USERNAME_OF_KAFKA": "alice-of-env", "TOPIC": "t"}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "run.toml").write_text(CONFIG)
    return tmp_path / "run.toml"


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load_config(path)
    return list(error.value.problems)


def test_references_are_replaced_and_not_shown(path: Path) -> None:
    config = load_config(path)
    assert config.kafka is not None
    assert config.kafka.servers == "broker1:9092,broker1:9093"
    assert config.kafka.options == {"sasl_plain_password": "s3cret-of-file", "sasl_plain_username": "alice-of-env"}
    assert config.source.topics == ("t", "${not}")
    shown = config.without_secrets()
    assert shown["kafka"]["servers"] == "${BROKER}:9092,${BROKER}:9093"
    assert shown["kafka"]["options"] == {"sasl_plain_password": "***", "sasl_plain_username": "${USERNAME_OF_KAFKA}"}
    assert shown["source"]["topics"] == ["${TOPIC}", "${not}"]


def test_a_missing_file_or_variable_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOPIC")
    (path.parent / "secrets" / "password").unlink()
    assert problems(path) == [
        "kafka.options.sasl_plain_password: expected a file with text, got no such file or directory: secrets/password",
        "source.topics[0]: expected a value in the variable TOPIC, which is not set",
    ]


def test_a_file_without_end_is_named(path: Path) -> None:
    path.write_text(CONFIG.replace("secrets/password", "/dev/zero"))
    assert problems(path) == [
        "kafka.options.sasl_plain_password: expected a file with text, got file too large: /dev/zero"
    ]


@pytest.mark.parametrize("value", ["s3cret-of-env", "pin"])
def test_an_error_shows_the_reference_and_not_its_value(
    path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("GUARANTEE", value)
    path.write_text(CONFIG.replace('"at_least_once"', '"${GUARANTEE}"'))
    (line,) = problems(path)
    assert line == 'kafka.processing_guarantee: expected "exactly_once" or "at_least_once", got "${GUARANTEE}"'


@pytest.mark.parametrize(
    ("variable", "text", "read"),
    [
        ("KAFKA__GROUP", "other", lambda config: config.kafka.group),
        ("STATE__CHECKPOINT_SECONDS", "2.5", lambda config: str(config.state.checkpoint_seconds)),
        ("LABEL", "z", lambda config: config.label),
        ("MODEL__MAX_FEATURES", "64", lambda config: str(config.model["max_features"])),
        ("MODEL__LEARNER__TYPE", "Newton", lambda config: config.model["learner"]["type"]),
        ("IGNORE", '["a", "b"]', lambda config: str(list(config.ignore)).replace("'", '"')),
        ("HTTP__PORT", "9464", lambda config: str(config.http.port)),
    ],
)
def test_a_variable_sets_any_key(
    path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, text: str, read: Any
) -> None:
    monkeypatch.setenv(f"STREAMKERNEL__{variable}", text)
    assert read(load_config(path)) == text


@pytest.mark.parametrize(
    ("variable", "text", "line"),
    [
        (
            "KAFKA__GRUP",
            "a",
            'kafka.grup: unknown key; did you mean "group"?; the variable STREAMKERNEL__KAFKA__GRUP sets it',
        ),
        (
            "KAFKA__GROUP",
            "7",
            "kafka.group: expected the name of a consumer group, got 7; "
            "the variable STREAMKERNEL__KAFKA__GROUP sets it",
        ),
        (
            "LABEL__X",
            "7",
            "label.x: expected a key of a table, got one of another value; see STREAMKERNEL__LABEL__X",
        ),
    ],
)
def test_a_wrong_variable_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, text: str, line: str
) -> None:
    monkeypatch.setenv(f"STREAMKERNEL__{variable}", text)
    assert problems(path) == [line]
