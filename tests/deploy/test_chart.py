"""The Helm chart of deploy/helm: valid for Kubernetes over a matrix of values; refused where no run could work."""

from __future__ import annotations

import itertools
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from charts import CHART, TOP, VERSIONS, helm, kind, options_of, template, validate

import streamkernel
from streamkernel.engine.config.config import load_config

MANIFEST = TOP / "deploy" / "kubernetes.yaml"
DIGEST = "sha256:" + "a" * 64

pytestmark = pytest.mark.helm

VALUES: tuple[tuple[str, ...], ...] = (
    (),
    ("replicas=3", "secret=secrets", "state.storageClass=fast", f"image.digest={DIGEST}", "serviceAccountName=learner"),
    ("image.tag=1.2", "image.pullSecrets[0].name=registry", "state.accessMode=ReadWriteOnce"),
    ("podDisruptionBudget.enabled=false", "podAnnotations.team=fraud", "podLabels.team=fraud"),
    ("volumes[0].name=ca", "volumes[0].secret.secretName=ca",
     "volumeMounts[0].name=ca", "volumeMounts[0].mountPath=/etc/ca"),
    ("nodeSelector.disk=ssd", "tolerations[0].key=learners", "tolerations[0].operator=Exists"),
    ("cluster.enabled=true", "secret=secrets", "image.pullSecrets[0].name=registry", "serviceAccountName=learner",
     "podLabels.team=fraud", "podAnnotations.team=fraud", "volumes[0].name=ca", "volumes[0].secret.secretName=ca",
     "volumeMounts[0].name=ca", "volumeMounts[0].mountPath=/etc/ca", "nodeSelector.disk=ssd",
     "tolerations[0].key=learners", "tolerations[0].operator=Exists"),
    ("cluster.enabled=true", "cluster.authentication=false", "cluster.workers.replicas=1", "serve.enabled=true",
     "state.accessMode=ReadWriteOnce", "cluster.workers.resources.limits.memory=8Gi"),
    ("serve.enabled=true", "state.accessMode=ReadWriteOnce", "secret=secrets", "podLabels.team=fraud"),
    ("serve.enabled=true", "serve.volume.nfs.server=files", "serve.volume.nfs.path=/copy", "serve.workers=4",
     "serve.autoscaling.enabled=true", "serve.autoscaling.requestsPerSecond=500"),
)  # fmt: skip
MONITORING = (
    (),
    ("serviceMonitor.enabled=true", "serviceMonitor.labels.release=prometheus"),
    ("serviceMonitor.enabled=true", "prometheusRule.enabled=true", "grafanaDashboards.enabled=true"),
)


@pytest.mark.parametrize("monitoring", MONITORING, ids=("plain", "monitor", "all"))
@pytest.mark.parametrize(
    "values",
    VALUES,
    ids=("default", "three", "tag", "labels", "volumes", "placed", "ray", "one worker", "serve", "scaled"),
)
def test_objects_are_valid_for_old_and_new_kubernetes(values: tuple[str, ...], monitoring: tuple[str, ...]) -> None:
    objects = template(values + monitoring)
    for one, version in itertools.product(objects, VERSIONS):
        validate(one, version)
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(names) == len(set(names))


def test_lint_finds_nothing() -> None:
    helm("lint", "--strict", str(CHART))


def test_the_chart_deploys_this_version() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == streamkernel.__version__


def test_the_configuration_of_the_default_values_is_one_that_runs(tmp_path: Path) -> None:
    text = kind(template(), "ConfigMap")["data"]["streamkernel.toml"]
    (tmp_path / "streamkernel.toml").write_text(text)
    config = load_config(tmp_path / "streamkernel.toml")
    assert (config.http.host, config.http.port) == ("0.0.0.0", 9464)
    assert tomllib.loads(text)["state"]["directory"] == "/var/lib/streamkernel/state"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("config=label = 1",), 'expected the line directory = "/var/lib/streamkernel/state"'),
        (("replicas=-1",), "replicas"),
        (("image.digest=latest",), "digest"),
        (("replica=2",), "replica"),
        (("state.size=2",), "size"),
        (("state.accessMode=ReadWriteMany",), "accessMode"),
        (("serve.enabled=true",), "serve: expected state.accessMode = ReadWriteOnce, or a serve.volume"),
        (("serve.workers=0",), "workers"),
        (("cluster.enabled=true",), "secret: expected a Secret with the key RAY_AUTH_TOKEN"),
        (("cluster.enabled=true", "secret=s", "replicas=2"), "replicas: expected 1 with cluster.enabled"),
        (("cluster.enabled=true", "secret=s", "cluster.workers.replicas=0"), "replicas"),
        (("cluster.workers.number=3",), "number"),
    ],
)
def test_wrong_values_are_refused_by_name(values: tuple[str, ...], message: str) -> None:
    done = subprocess.run(
        ["helm", "template", "--kube-version", VERSIONS[1], "x", CHART, *options_of(values)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert message in done.stderr


def test_the_pod_runs_as_the_user_of_the_image_and_writes_to_its_volume_alone() -> None:
    containerfile = (TOP / "deploy" / "Containerfile").read_text()
    objects = template()
    pod = kind(objects, "StatefulSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert f"--uid {pod['securityContext']['runAsUser']}" in containerfile
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/var/lib/streamkernel", "/tmp"}
    assert "VOLUME /var/lib/streamkernel" in containerfile
    assert container["args"][1] == "/etc/streamkernel/streamkernel.toml"


def test_services_and_monitors_select_the_pods() -> None:
    objects = template(("serviceMonitor.enabled=true",))
    pod = kind(objects, "StatefulSet")["spec"]["template"]["metadata"]["labels"].items()
    services = [one for one in objects if one["kind"] == "Service"]
    for one in services:
        assert one["spec"]["selector"].items() <= pod
    assert kind(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items() <= pod
    wanted = kind(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"].items()
    assert [wanted <= one["metadata"]["labels"].items() for one in services] == [False, True]


def test_pods_that_serve_are_selected_by_their_own_service_and_scaler() -> None:
    objects = template(("serviceMonitor.enabled=true", *VALUES[-1]))
    (deployment,) = (one for one in objects if one["kind"] == "Deployment")
    assert "replicas" not in deployment["spec"]
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert container["args"] == [
        "serve", "streamkernel=/var/lib/streamkernel/state", "--host=0.0.0.0", "--port=9465", "--workers=4",
    ]  # fmt: skip
    assert {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")} == {"/tmp"}
    user = pod["spec"]["securityContext"]["runAsUser"]
    assert user == kind(objects, "StatefulSet")["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    labels = pod["metadata"]["labels"].items()
    services = {one["metadata"]["name"]: one for one in objects if one["kind"] == "Service"}
    selected = [name for name, one in services.items() if one["spec"]["selector"].items() <= labels]
    assert selected == ["streamkernel-serve"]
    monitors = [one for one in objects if one["kind"] == "ServiceMonitor"]
    wanted = [one["spec"]["selector"]["matchLabels"].items() for one in monitors]
    assert sum(one <= services["streamkernel-serve"]["metadata"]["labels"].items() for one in wanted) == 1
    scaler = kind(objects, "HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert [metric["type"] for metric in scaler["metrics"]] == ["Resource", "Pods"]


def test_rules_and_dashboards_are_those_of_the_repository() -> None:
    objects = template(MONITORING[2], release="clicks")
    groups = kind(objects, "PrometheusRule")["spec"]["groups"]
    folder = TOP / "dashboards" / "prometheus"
    files = [yaml.safe_load((folder / f"{name}.yml").read_text()) for name in ("recording", "alerts")]
    assert groups == [group for file in files for group in file["groups"]]
    for path in (TOP / "dashboards" / "grafana").glob("*.json"):
        kept = next(one for one in objects if one["metadata"]["name"] == f"clicks-streamkernel-{path.stem}")
        assert kept["data"][path.name].strip() == path.read_text().strip()


def test_the_job_of_the_monitor_is_one_that_alerts_query() -> None:
    monitor = kind(template(("serviceMonitor.enabled=true",), release="clicks"), "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    (relabeling,) = endpoint["relabelings"]
    assert relabeling == {"targetLabel": "job", "replacement": "streamkernel-clicks"}
    assert 'job=~"streamkernel.*"' in (TOP / "dashboards" / "prometheus" / "alerts.yml").read_text()


def test_the_plain_manifest_is_the_output_of_the_chart() -> None:
    made = helm("template", "--kube-version", VERSIONS[1], "streamkernel", str(CHART))
    assert MANIFEST.read_text().split("---\n", 1)[1] == made.split("---\n", 1)[1], "make chart-manifest writes it"
