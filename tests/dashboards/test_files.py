"""The files of `dashboards` match their definitions, are valid, and are described in the handbook."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import registries
import yaml
from compose_spec import PyCompose

from dashboards import generate
from dashboards.panels import DASHBOARDS
from docs import generated
from streamkernel.engine.config.config import load_config

FOLDER = Path(generate.__file__).parent
RULES = FOLDER / "prometheus"
HANDBOOK = FOLDER.parent / "docs" / "reference" / "metrics.md"


def alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load((RULES / "alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_dashboards_match_the_generator(name: str) -> None:
    """After a change: python -m dashboards.generate."""
    assert (FOLDER / "grafana" / f"{name}.json").read_text() == generate.text_of(name)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_descriptions_and_do_not_overlap(name: str) -> None:
    dashboard = json.loads((FOLDER / "grafana" / f"{name}.json").read_text())
    assert [variable["name"] for variable in dashboard["templating"]["list"]] == ["datasource", "job", "instance"]
    places = set()
    for panel in dashboard["panels"]:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
        assert all(target["legendFormat"] and "$job" in target["expr"] for target in panel["targets"])
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= generate.COLUMNS
        places.add((grid["x"], grid["y"]))
    assert len(places) == len(dashboard["panels"])


def test_there_are_no_other_dashboards() -> None:
    assert {path.stem for path in (FOLDER / "grafana").iterdir()} == DASHBOARDS.keys()


def test_every_alert_says_what_to_do() -> None:
    rows = re.findall(r"^\| `(Streamkernel\w+)` \| \w* \| ([^|]+) \| [^|]+ \|$", generated.alerts(), re.MULTILINE)
    assert [name for name, _ in rows] == list(alerts())
    assert [meaning for _, meaning in rows if "{" in meaning] == []
    assert set(re.findall(r"`(Streamkernel\w+)`", HANDBOOK.read_text())) <= alerts().keys()
    for rule in alerts().values():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "runbook"}


def test_recorded_series_are_used() -> None:
    used = "".join(path.read_text() for path in (RULES / "alerts.yml", FOLDER / "panels.py"))
    groups = yaml.safe_load((RULES / "recording.yml").read_text())["groups"]
    assert not [rule["record"] for group in groups for rule in group["rules"] if rule["record"] not in used]


@pytest.mark.prometheus
@pytest.mark.parametrize("words", [["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]])
def test_promtool_passes_config_and_rules(words: list[str]) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is missing: apt-get install prometheus")
    done = subprocess.run(["promtool", *words], cwd=RULES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_unit_test_that_fires_and_one_that_does_not() -> None:
    cases = [
        case
        for test in yaml.safe_load((RULES / "alerts_test.yml").read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == alerts().keys()


def test_the_compose_file_names_existing_files_and_only_loopback() -> None:
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    PyCompose.from_yaml((FOLDER / "compose.yaml").read_text()).validate()
    services = compose["services"]
    assert services.keys() == {"kafka", "topics", "registry", "events", "streamkernel", "prometheus", "grafana"}
    for service in services.values():
        assert ("image" in service) != ("build" in service)
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert set(service.get("depends_on", ())) <= services.keys()
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (FOLDER / source).exists() if source.startswith(".") else source in compose["volumes"]
    build = services["streamkernel"]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).exists()
    assert "\nUSER streamkernel\n" in (FOLDER.parent / "deploy" / "Containerfile").read_text()


def test_the_configuration_in_it_is_valid() -> None:
    config = load_config(FOLDER / "streamkernel.toml")
    compose = (FOLDER / "compose.yaml").read_text()
    assert config.kafka is not None
    assert config.kafka.servers in compose
    assert config.schema_registry is not None
    assert config.schema_registry.url.removeprefix("http://registry:8080") in compose  # the page it names
    assert f"apicurio-registry:{registries.VERSION}" in compose  # the release that the tests run
    assert f"127.0.0.1:{config.http.port}:{config.http.port}" in compose
    topics = [*(config.source.topics or ()), config.sink.predictions_topic, config.sink.dead_letters_topic]
    assert f"for topic in {' '.join(map(str, topics))};" in compose
