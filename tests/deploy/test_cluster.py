"""The cluster of the chart: its objects, and its nodes and driver as processes here, by the manifest's commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import brokers
import pytest
from charts import kind, pods_of, template
from waiting import LIMIT, wait_for

from streamkernel.engine.checkpoint.state_directory import read_newest

pytestmark = pytest.mark.helm

VALUES = ("cluster.enabled=true", "secret=secrets", "cluster.workers.resources.requests.cpu=2")
TOKEN = "hunter22-is-not-for-logs-0123456789"
PORTS = {
    "head": ("port", "ray-client-server-port", "dashboard-agent-listen-port", "metrics-export-port"),
    "workers": ("node-manager-port", "dashboard-agent-listen-port", "metrics-export-port"),
}
"""The ports of nodes, which are other ones here, where all nodes have one address."""

CONFIG = """
label = "y"
[source]
path = "{data}/events-*.jsonl"
[model]
type = "KernelClassifier"
max_features = 64
[sink]
predictions = "predictions.jsonl"
[state]
directory = "state"
[cluster]
events_per_round = 100
"""


def test_nodes_are_reached_by_the_driver_alone_and_have_no_dashboard() -> None:
    objects = template(VALUES, release="clicks")
    cluster, driver = kind(objects, "RayCluster"), kind(objects, "StatefulSet")
    groups, name = pods_of(cluster), cluster["metadata"]["name"]
    assert driver["spec"]["replicas"] == 1
    (container,) = driver["spec"]["template"]["spec"]["containers"]
    assert container["args"][:3] == ["run", "--cluster", f"ray://{name}-head-svc.default.svc:10001"]
    assert groups["head"]["rayStartParams"]["include-dashboard"] == "false"
    for group in groups.values():
        (node,) = group["template"]["spec"]["containers"]
        assert [node[key] for key in ("image", "env")] == [container[key] for key in ("image", "env")]
        assert node["ports"][0]["name"] == node["livenessProbe"]["tcpSocket"]["port"]
        assert 8265 not in [port["containerPort"] for port in node["ports"]]
    ours = {"ray.io/cluster": name}
    policy = kind(objects, "NetworkPolicy")["spec"]
    assert policy["podSelector"] == {"matchLabels": ours}
    nodes, others = policy["ingress"]
    assert nodes == {"from": [{"podSelector": {"matchLabels": ours}}]}
    assert others["ports"] == [{"port": 10001}]
    (allowed,) = others["from"]
    assert allowed["podSelector"]["matchLabels"].items() <= driver["spec"]["template"]["metadata"]["labels"].items()
    budgets = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "PodDisruptionBudget"}
    assert budgets[f"{name}-workers"]["minAvailable"] == 1
    selected = budgets["clicks-streamkernel"]["selector"]["matchLabels"].items()
    assert all(not selected <= group["template"]["metadata"]["labels"].items() for group in groups.values())


def start_command(name: str, group: dict[str, Any], ports: dict[str, str]) -> list[str]:
    """Return the command of a node as the operator makes it of `rayStartParams` and the resources of the container."""
    resources = group["template"]["spec"]["containers"][0]["resources"]
    implied = {"num-cpus": str(resources["requests"]["cpu"]), "dashboard-host": "0.0.0.0"}
    parameters = implied | group["rayStartParams"] | ports
    flags = [f"--{key}" if value == "true" else f"--{key}={value}" for key, value in sorted(parameters.items())]
    return ["ray", "start", *(["--head"] if name == "head" else []), "--block", *flags]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, dict[str, str]]]:
    """The addresses of the client server and of the head, and the driver's variables, those of the manifest."""
    objects = template(VALUES)
    groups, environment = pods_of(kind(objects, "RayCluster")), dict(os.environ)
    (container,) = kind(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    environment |= {one["name"]: one.get("value", TOKEN) for one in container["env"]}
    environment["RAY_CLIENT_RECONNECT_GRACE_PERIOD"] = "1"  # seconds that the workers of a killed driver stay
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    started, used = [], {name: {key: str(brokers.free_port()) for key in PORTS[name]} for name in groups}
    used["workers"]["address"] = f"127.0.0.1:{used['head']['port']}"
    try:
        for name, group in groups.items():
            folder = tmp_path_factory.mktemp("n")  # short: sockets are below
            command = start_command(name, group, used[name] | {"object-store-memory": "100000000"})
            here = environment | {"RAY_TMPDIR": str(folder)}
            with (folder / "log").open("w") as log:
                started.append(subprocess.Popen(command, env=here, stdout=log, stderr=log, start_new_session=True))
            wait_for(
                lambda of=started[-1], log=folder / "log": of.poll() is not None or "block forever" in log.read_text(),
                what=(folder / "log").read_text,
            )
            assert started[-1].poll() is None, (folder / "log").read_text()
        yield f"ray://127.0.0.1:{used['head']['ray-client-server-port']}", used["workers"]["address"], environment
    finally:
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def test_a_driver_that_is_killed_continues_from_its_volume_on_the_same_cluster(
    cluster: tuple[str, str, dict[str, str]], tmp_path: Path
) -> None:
    address, _, environment = cluster
    events = [{"a": i % 7 / 3, "b": i % 11 / 5, "y": i % 7 > i % 11} for i in range(1500)]
    for i in range(2):
        (tmp_path / f"events-{i}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events[i::2]))
    (tmp_path / "run.toml").write_text(CONFIG.format(data=tmp_path))

    def start(variables: dict[str, str]) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "streamkernel", "run", "--cluster", address, "run.toml"]
        return subprocess.Popen(words, env=variables, stderr=subprocess.PIPE, text=True, cwd=tmp_path)

    def learned() -> int:
        state = tmp_path / "state"
        found = read_newest(state) if state.exists() else None
        return 0 if found is None else int(found["outcomes"]["learned"])

    driver = start(environment)
    wait_for(lambda: learned() or driver.poll() is not None)
    driver.kill()
    said = driver.communicate()[1]
    before = learned()
    assert 0 < before < len(events), said
    driver = start(environment)
    said = driver.communicate(timeout=LIMIT)[1]
    assert driver.returncode == 0, said
    assert '"event": "resumed"' in said
    assert TOKEN not in said
    assert learned() == len(events)
    assert (tmp_path / "predictions.jsonl").read_text().count("\n") == len(events)


def test_nodes_refuse_whoever_has_no_token(cluster: tuple[str, str, dict[str, str]]) -> None:
    _, head, environment = cluster
    stranger = {key: value for key, value in environment.items() if not key.startswith("RAY_AUTH")}
    command = ["ray", "health-check", "--address", head]
    ours, theirs = (
        subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        for variables in (environment, stranger)
    )
    assert ours.returncode == 0, ours.stderr
    assert theirs.returncode == 1
    assert "InvalidAuthToken" in theirs.stderr
