"""The Helm chart of deploy/helm: its output for given values, and its validation against schemas."""

from __future__ import annotations

import importlib
import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml

TOP = Path(__file__).parents[2]
CHART = TOP / "deploy" / "helm" / "streamkernel"
SCHEMAS = TOP / "tests" / "deploy" / "schemas"
VERSIONS = ("1.27", "1.31", "1.37")


def helm(*arguments: str) -> str:
    """Return the output of helm; fail with its error message if it fails."""
    done = subprocess.run(["helm", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def options_of(values: tuple[str, ...]) -> Iterator[str]:
    """Yield the options that set values."""
    return itertools.chain.from_iterable(("--set", value) for value in values)


def template(values: tuple[str, ...] = (), release: str = "streamkernel") -> list[dict[str, Any]]:
    text = helm("template", "--kube-version", VERSIONS[1], release, str(CHART), *options_of(values))
    return [one for one in yaml.safe_load_all(text) if one]


def kind(objects: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(one for one in objects if one["kind"] == name)


def pods_of(cluster: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the groups of a RayCluster by name, each with `rayStartParams` and the `template` of its pods."""
    return {
        "head": cluster["spec"]["headGroupSpec"],
        **{group["groupName"]: group for group in cluster["spec"]["workerGroupSpecs"]},
    }


def validate(one: dict[str, Any], version: str) -> None:
    """Raise an error if an object is not valid for a version of Kubernetes, or for the schema of its operator."""
    kubernetes_validate = importlib.import_module("kubernetes_validate")  # `make chart` installs it
    if one["apiVersion"].partition("/")[0] not in ("monitoring.coreos.com", "ray.io"):
        kubernetes_validate.validate(one, version, strict=True)
        return
    jsonschema.validate(one, yaml.safe_load((SCHEMAS / f"{one['kind'].lower()}.yaml").read_text()))
    if one["kind"] == "RayCluster":
        for name, group in pods_of(one).items():
            pod = {"apiVersion": "v1", "kind": "Pod", **group["template"]}
            pod["metadata"] = {"name": name, **pod["metadata"]}
            kubernetes_validate.validate(pod, version, strict=True)
