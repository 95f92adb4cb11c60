"""Omitted stages of compilation: results and references are those of numba, and another numba omits nothing."""

import gc
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numba import types
from numba.core.datamodel.registry import default_manager
from numba.core.runtime import _nrt_python, rtsys

from streamkernel.jit import compiled, inlined, unit
from streamkernel.jit.cache import IS_SHORT


class Inner(NamedTuple):
    """Arrays in a tuple."""

    values: np.ndarray
    sums: np.ndarray
    factor: float


class Outer(NamedTuple):
    """A tuple and more in a tuple."""

    first: Inner
    second: Inner
    matrix: np.ndarray
    scale: float


OWN = "streamkernel.of_a_test"  # tuples of other packages are given field by field
sys.modules[OWN] = sys.modules[__name__]
for kind in Inner, Outer:
    kind.__module__ = OWN

VECTOR = types.float64[::1]
INNER = types.NamedTuple([VECTOR, VECTOR, types.float64], Inner)
OUTER = types.NamedTuple([INNER, INNER, types.float64[:, ::1], types.float64], Outer)


@unit(types.float64(INNER, types.int64), allocates=False)
def total(inner, n):
    found = 0.0
    for i in range(n):
        found += inner.factor * inner.values[i] * (inner.sums[i] + 1.0)
        inner.sums[i] += 1.0
    return found


@inlined(allocates=False)
def swap(outer):
    return Outer(outer.second, outer.first, outer.matrix, -outer.scale)


@unit(types.float64(OUTER, types.int64), allocates=False)
def walk(outer, n):
    found, turn, one = 0.0, outer, outer.first
    for i in range(n):
        found += turn.scale * total(one, len(one.values)) + outer.matrix[i % 2, 0]
        one = turn.second if i % 3 else outer.first
        turn = swap(turn)
        found += total(turn.first, i % 2)
        if i % 5 == 4:
            turn = outer
    return found + total(Inner(outer.matrix[0], outer.first.sums, 1.0), 2)


@compiled
def allocating(outer, n):
    kept = outer
    for i in range(n):
        kept = Outer(kept.second, Inner(kept.first.values + 1.0, np.zeros(len(kept.first.sums)), 3.0), kept.matrix, 2.0)
        outer = kept if i % 2 else outer
    return walk(outer, n), kept, outer.first.values


def given():
    rng = np.random.default_rng(0)
    inner = [Inner(rng.normal(size=4), rng.normal(size=4), 0.5 + i) for i in range(2)]
    return Outer(*inner, rng.normal(size=(2, 2)), 0.5)


def in_python(monkeypatch, function, *arguments):
    for name, one in (("total", total), ("walk", walk), ("swap", swap)):
        monkeypatch.setitem(globals(), name, one.py_func)
    return function.py_func(*arguments)


@pytest.fixture
def counted_memory():
    _nrt_python.memsys_enable_stats()
    yield
    _nrt_python.memsys_disable_stats()


def arrays(outer):
    return [outer.first.values, outer.first.sums, outer.second.values, outer.second.sums, outer.matrix]


@pytest.mark.parametrize("n", [0, 1, 2, 7, 20])
def test_tuples_are_as_in_python(n, monkeypatch):
    ours, theirs = given(), given()
    got, kept, values = allocating(ours, n)
    want, kept_there, values_there = in_python(monkeypatch, allocating, theirs, n)
    assert got == pytest.approx(want, rel=1e-12)
    np.testing.assert_array_equal(values, values_there)
    pairs = [*zip(arrays(ours), arrays(theirs), strict=True), *zip(arrays(kept), arrays(kept_there), strict=True)]
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


def test_references_are_neither_lost_nor_kept(counted_memory):
    outer = given()
    given_arrays = arrays(outer)
    before, blocks = [sys.getrefcount(array) for array in given_arrays], rtsys.get_allocation_stats()
    for n in range(20):
        _, kept, values = allocating(outer, n)
        assert np.isfinite(values).all()
        assert all(np.isfinite(array).all() for array in arrays(kept))
        del kept, values
    gc.collect()
    after = rtsys.get_allocation_stats()
    assert [sys.getrefcount(array) for array in given_arrays] == before
    assert after.alloc - blocks.alloc == after.free - blocks.free > 0


def test_a_tuple_of_arrays_is_one_argument():
    assert IS_SHORT
    assert not isinstance(default_manager.lookup(OUTER).get_argument_type(), tuple)
    foreign = types.NamedTuple([VECTOR, VECTOR], NamedTuple("Foreign", [("a", int), ("b", int)]))
    assert isinstance(default_manager.lookup(foreign).get_argument_type(), tuple)


def test_arrays_of_another_type_are_refused_where_python_calls_machine_code():
    @compiled
    def last(inner):
        return inner.sums[-1]

    right = given().first
    assert last(right) == right.sums[-1]
    call = next(iter(last.overloads.values())).entry_point
    assert call(right) == right.sums[-1]
    for wrong in (right._replace(sums=right.sums.astype(np.float32)), right._replace(sums=None), ()):
        with pytest.raises((TypeError, IndexError)):
            call(wrong)
    from streamkernel.jit import shortcuts  # which another numba cannot import

    assert not shortcuts._signatures


ORDINARY = """
import sys
from numba.core import analysis, codegen, lowering
delattr(codegen, "{name}") if hasattr(codegen, "{name}") else delattr(analysis, "{name}")
sys.path.insert(0, {tests!r})
from streamkernel.jit.cache import IS_SHORT
import test_shortcuts as ours
assert not IS_SHORT
outer = ours.given()
found = ours.allocating(outer, 7)
print(repr(float(found[0])))
"""


@pytest.mark.parametrize("name", ["JITCodeLibrary", "must_use_alloca"])
def test_another_numba_compiles_in_its_own_way(name, tmp_path):
    code = ORDINARY.format(name=name, tests=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"NUMBA_CACHE_DIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == allocating(given(), 7)[0]
    assert "compiling takes longer" in done.stderr
    assert name in done.stderr


OLD = """
import numba
numba.__version__ = "0.64.0"
from streamkernel.jit import compiled
from streamkernel.jit.cache import IS_SHORT
assert not IS_SHORT
print(compiled(lambda x: x + 1.0)(1.0))
"""


def test_a_release_that_was_not_tried_compiles_in_its_own_way(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", OLD],
        capture_output=True,
        text=True,
        check=True,
        env={"NUMBA_CACHE_DIR": str(tmp_path)},
    )
    assert done.stdout == "2.0\n"
    assert "compiling for this machine, once; this takes a minute or two with numba 0.64" in done.stderr
    assert "internals" not in done.stderr
