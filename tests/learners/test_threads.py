"""Predictions of many rows in several threads: the same bits, and the same refusals."""

from __future__ import annotations

import threading

import pytest
from streams import examples, frame, learn, nested
from waiting import LIMIT

from streamkernel import InputError, KernelClassifier, set_num_threads
from streamkernel import kernels as k
from streamkernel.learners import base

MODELS = {
    "second order": {},
    "full": {"learner": "newton", "joint": True, "max_features": 64},
    "first order": {"learner": "dsg"},
    "without a cache": {"learner": "dsg", "cache_bytes": 0},
    "averaged": {"learner": "dsg", "averaging": True, "kernel": k.Laplacian(1.0) * k.ArcCosine(1)},
}


@pytest.fixture(params=[2, 3, 5])
def several(request):
    set_num_threads(request.param)
    yield
    set_num_threads(1)


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_threads_change_no_bit(options, several):
    xs, ys = examples(500, ("b", "a", "d"))
    model = learn(KernelClassifier(**nested(**options)), xs[:100], ys[:100])
    found = model.predict_proba_many(frame(xs))
    set_num_threads(1)
    assert found.equals(model.predict_proba_many(frame(xs)))


@pytest.mark.parametrize("learner", ["newton", "dsg"])
def test_the_first_row_that_cannot_be_used_is_named(learner, several):
    xs, ys = examples(500)
    xs = [{name: abs(value) for name, value in x.items()} for x in xs]
    model = learn(KernelClassifier(k.Hellinger(), learner=learner), xs[:100], ys[:100])
    for row in (490, 400, 100, 0):
        xs[row]["x1"] = -1.0 - row
        with pytest.raises(InputError, match=rf"{-1.0 - row}\b"):
            model.predict_many(frame(xs))


def test_rows_are_divided_among_threads(several):
    met = threading.Barrier(2, timeout=LIMIT)
    parts = []

    def evaluate(first, last):
        parts.append((first, last))
        if len(parts) <= 2:
            met.wait()  # two of them at once
        return -1

    assert base.first_unusable(1000, evaluate) == -1
    ordered = sorted(parts)
    assert len(ordered) > 1
    assert [first for first, _ in ordered] == [0, *(last for _, last in ordered[:-1])]
    assert ordered[-1][1] == 1000


def test_few_rows_take_one_thread(several):
    parts = []
    base.first_unusable(127, lambda *part: parts.append(part) or -1)
    assert parts == [(0, 127)]


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", None])
def test_a_number_of_threads_is_one_or_more(n):
    with pytest.raises(ValueError, match="1 thread or more"):
        set_num_threads(n)
