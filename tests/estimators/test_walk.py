"""The files of the package that an event of a classifier enters, from `learn_one` to the end of the compiled step."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

import pytest
from streams import examples

import streamkernel
from streamkernel import KernelClassifier
from streamkernel.estimators.internals import learner_of

PACKAGE = Path(streamkernel.__file__).parent
XS, YS = examples(620, (True, False))
FIRST = 300
"""Events from this one on decide no bandwidths."""

USUAL = {
    "newton": [
        "estimators/classifier.py",
        "estimators/model.py",
        "features/directions.py",
        "locking.py",
        "second_order/mixture.py",
        "second_order/learning.py",
        "jit/calls.py",
    ],
    "dsg": [
        "estimators/classifier.py",
        "estimators/model.py",
        "first_order/expansion.py",
    ],
}
"""The files that docs/explanation/architecture.md lists, for an event that only updates the function."""

MOST = {
    "newton": {"first": 22, "second": 43, "decides bandwidths": 44, "Newton step": 17, "usual": 7, "other": 37},
    "dsg": {"first": 21, "second": 30, "decides bandwidths": 31, "usual": 3},
}
"""The largest number of files that an event of each kind enters, as docs/explanation/architecture.md lists them."""


def files_of(call):
    """Return the files of the package whose functions a call runs, in the order of their first call."""
    found = {}

    def enter(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in path.parents:
            found[path.relative_to(PACKAGE).as_posix()] = None

    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(found)


@cache
def walks(name):
    """Return the kind and the files of every event of a stream, once all code for it is compiled."""
    found = []
    for _ in range(2):
        model, found = KernelClassifier(learner=name, max_features=64), []
        for i, (x, y) in enumerate(zip(XS, YS, strict=True)):
            given = json.loads(json.dumps(x)) if i % 2 else x  # names that are new objects
            before = learner_of(model).numbers["buffered"]
            files = files_of(lambda model=model, x=given, y=y: model.learn_one(x, y))
            is_step = name == "newton" and learner_of(model).numbers["buffered"] <= before
            found.append((kind_of(name, i, is_step, files), files))
    return found


def kind_of(name, i, is_step, files):
    if i < FIRST:
        return ("first", "second")[i] if i < 2 else "decides bandwidths"
    if is_step:
        return "Newton step"
    return "usual" if set(files) <= set(USUAL[name]) else "other"


@pytest.mark.parametrize("name", MOST)
def test_every_event_enters_few_files(name):
    most = dict.fromkeys(MOST[name], 0)
    for kind, files in walks(name):
        most[kind] = max(most[kind], len(files))
    assert all(0 < found <= MOST[name][kind] for kind, found in most.items()), most


@pytest.mark.parametrize("name", MOST)
def test_most_events_enter_the_files_of_the_page(name):
    usual = [files for kind, files in walks(name) if kind == "usual"]
    assert USUAL[name] in usual
    assert len(usual) > 0.8 * (len(XS) - FIRST)
    assert sum(kind == "other" for kind, _ in walks(name)) <= 3


def test_the_page_names_the_files_and_their_numbers():
    page = (PACKAGE.parent / "docs" / "explanation" / "architecture.md").read_text()
    walk = page.split("\n## One event through the code\n")[1].split("\n## ")[0]
    for files in USUAL.values():
        for file in files:
            assert f"`{file}`" in walk, file
    for kind in MOST["newton"]:
        numbers = [str(MOST[name].get(kind, "")) for name in MOST]
        assert any(
            line.startswith(f"| {kind}") and line.endswith(f"| {' | '.join(numbers)} |") for line in walk.split("\n")
        ), kind


def test_a_file_is_found_once_however_often_it_is_entered():
    model = KernelClassifier()
    assert files_of(lambda: [model.labels, model.labels, model.n_seeds])[:1] == ["estimators/classifier.py"]
    assert files_of(lambda: None) == []
