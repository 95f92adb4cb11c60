"""A first try of an installed wheel: `make package` runs it with the Python of a fresh environment."""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

import river.datasets

import streamkernel

CONFIG = """
label = "y"
[source]
path = "events.csv"
[model]
type = "KernelClassifier"
max_features = 64
[state]
directory = "state"
"""
N = 300


def main() -> None:
    """Learn, save and load a model in Python, then run, inspect and export one by the command line."""
    assert Path(sys.prefix) in Path(streamkernel.__file__).parents, streamkernel.__file__
    command = Path(sys.executable).with_name("streamkernel")
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    assert streamkernel.__version__ in version
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events = list(islice(river.datasets.Phishing(), N))
        model = streamkernel.KernelClassifier(max_features=64)
        for x, y in events:
            model.learn_one(x, y)
        model.save(folder / "model.safetensors")
        loaded = streamkernel.load(folder / "model.safetensors")
        assert loaded.predict_proba_one(events[0][0]) == model.predict_proba_one(events[0][0])

        with (folder / "events.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, [*events[0][0], "y"])
            writer.writeheader()
            writer.writerows({**x, "y": y} for x, y in events)
        (folder / "run.toml").write_text(CONFIG)
        for arguments in (["run", "run.toml"], ["inspect", "state"], ["export", "state"], ["dashboards", "boards"]):
            subprocess.run([command, *arguments], cwd=folder, check=True, capture_output=True)
        assert streamkernel.load(folder / "model.safetensors").predict_one(events[0][0]) is not None
        assert list((folder / "boards").rglob("*.json"))
    print(f"streamkernel {streamkernel.__version__}: learned, saved, loaded, ran and exported a model")


if __name__ == "__main__":
    main()
