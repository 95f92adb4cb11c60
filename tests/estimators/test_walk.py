"""One event of a classifier, from `learn_one` to the end of the compiled step, passes few files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from streams import examples

import streamkernel
from streamkernel import KernelClassifier

PACKAGE = Path(streamkernel.__file__).parent
MOST_FILES = 8
XS, YS = examples(620, (True, False))
WALKS = {
    "newton": [
        "estimators/classifier.py",
        "estimators/model.py",
        "features/directions.py",
        "features/dictionaries.py",
        "locking.py",
        "second_order/mixture.py",
        "second_order/learning.py",
        "jit/direct.py",
    ],
    "dsg": [
        "estimators/classifier.py",
        "estimators/model.py",
        "first_order/expansion.py",
        "features/directions.py",
        "features/dictionaries.py",
    ],
}
"""The files that docs/explanation/architecture.md lists, for an event whose names are new objects."""


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


@pytest.fixture(params=WALKS)
def walked(request):
    """Return the files of each event from the 601st on, except for events at which a Newton step is due."""
    model = KernelClassifier(learner=request.param, max_features=64)
    for x, y in zip(XS[:600], YS[:600], strict=True):
        model.learn_one(x, y)
    walks = []
    for i in range(600, 616):
        x = json.loads(json.dumps(XS[i])) if i % 2 else XS[i]
        steps = model.n_steps if request.param == "dsg" else model._learner.numbers["buffered"]
        walks.append(files_of(lambda x=x, i=i: model.learn_one(x, YS[i])))
        after = model.n_steps if request.param == "dsg" else model._learner.numbers["buffered"]
        if after != steps + 1:  # the step of a batch
            walks.pop()
    return request.param, walks


def test_an_event_passes_at_most_eight_files(walked):
    name, walks = walked
    assert len(walks) > 8
    assert max(len(files) for files in walks) <= MOST_FILES
    assert WALKS[name] in walks
    assert all(set(files) <= set(WALKS[name]) for files in walks)


def test_the_page_names_the_files_of_the_walk():
    page = (PACKAGE.parent / "docs" / "explanation" / "architecture.md").read_text()
    walk = page.split("\n## One event through the code\n")[1].split("\n## ")[0]
    for files in WALKS.values():
        for file in files:
            assert f"`{file}`" in walk, file


def test_a_file_is_found_once_however_often_it_is_entered():
    model = KernelClassifier()
    assert files_of(lambda: [model.labels, model.labels, model.n_seeds])[:1] == ["estimators/classifier.py"]
    assert files_of(lambda: None) == []
