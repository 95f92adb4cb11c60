"""Compiled functions that count no references to arrays are only called where that is safe."""

from __future__ import annotations

import gc
import importlib
import pkgutil
import resource
from collections import Counter, namedtuple

import numba
import numpy as np
import pytest
from numba import types
from numba.core import config
from numba.core.caching import NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target
from numba.extending import intrinsic

import streamkernel
from streamkernel.jit import compiled, inlined, shortcuts
from streamkernel.jit.cache import FileCache, fingerprint, run_uninterrupted


@inlined
def counted(values):
    return values[1:]


@inlined(allocates=False)
def uncounted(values):
    return values, len(values)


@inlined
def total(values):
    found = 0.0
    for value in values:
        found += value
    return found


def test_inlined_functions_can_be_called_from_python():
    assert total(np.ones(3)) == 3.0
    assert counted(np.arange(3)).tolist() == [1, 2]


def test_compiled_functions_have_names_of_their_own():
    """Functions of one name that different processes cached can have equal symbols, of which one is linked.

    One `def` that reads nothing around it may be compiled for each kind of arguments: the symbol has their types.
    """
    for module in pkgutil.walk_packages(streamkernel.__path__, "streamkernel."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.unfreeze()  # what was there when the tests were collected
    functions = {one.py_func for one in gc.get_objects() if issubclass(type(one), Dispatcher)}
    gc.freeze()
    functions = {one if one.__closure__ else one.__code__: one for one in functions}.values()
    names = Counter(
        (one.__module__, one.__qualname__) for one in functions if one.__module__.startswith("streamkernel.")
    )
    assert len(names) > 300
    assert [name for name, count in names.items() if count > 1] == []


def test_numbers_are_returned_to_both_kinds_of_callers():
    for allocates in (True, False):
        assert compiled(lambda values: total(values) + 1.0, allocates=allocates)(np.ones(3)) == 4.0


@pytest.mark.parametrize(("function", "allocates"), [(counted, False), (uncounted, True)])
def test_arrays_are_not_returned_to_callers_that_count_otherwise(function, allocates):
    call = compiled(lambda values: len(function(values)), allocates=allocates)
    with pytest.raises((TypeError, NumbaError), match=f"expected allocates={allocates}"):
        call(np.ones(3))


def test_functions_that_read_a_tuple_are_recompiled_when_the_order_of_its_fields_changes():
    found = set()
    for fields in (("first", "last"), ("last", "first")):
        Span = namedtuple("Span", fields)

        def read_first(numbers):
            return Span(*numbers).first  # noqa: B023

        read_first.__module__ = "streamkernel.spans"
        found.add(fingerprint(read_first))
    assert len(found) == 2


def of_constants(first, last):
    """Return the fingerprint of a function that has these constants."""
    names = {"FIRST": first, "LAST": last, "__name__": "streamkernel.constants"}
    exec("def span(x):\n    return (x - FIRST) * (LAST - x)", names)
    return fingerprint(names["span"])


def test_functions_are_recompiled_when_constants_are_swapped():
    assert len({of_constants(*pair) for pair in ((8, 64), (64, 8), (8, 8), (64, 64))}) == 4


def test_functions_are_recompiled_when_code_that_they_emit_changes():
    found = set()
    for name in ("fadd", "fmul"):
        names = {"types": types, "__name__": "streamkernel.emitted"}
        exec(
            "def emit(context, a):\n"
            "    def generate(context, builder, signature, arguments):\n"
            f"        return builder.{name}(arguments[0], arguments[0])\n"
            "    return types.float64(types.float64), generate\n",
            names,
        )
        names["emitted"] = intrinsic(names["emit"])
        exec("def use(x):\n    return emitted(x)", names)
        found.add(fingerprint(names["use"]))
    assert len(found) == 2


def test_settings_of_numba_that_change_code_are_in_the_names_of_its_files(monkeypatch):
    def name_of_file():
        return FileCache(total.py_func)._name((), cpu_target.target_context.codegen())

    before, settings = name_of_file(), {name: getattr(config, name) for name in vars(config) if name.isupper()}
    for name in (
        "BOUNDSCHECK",
        "OPT",
        "LOOP_VECTORIZE",
        "SLP_VECTORIZE",
        "ENABLE_AVX",
        "DEBUGINFO_DEFAULT",
        "CPU_NAME",
    ):
        with monkeypatch.context() as changed:
            changed.setattr(config, name, f"not {settings[name]}")
            assert name_of_file() != before, name
    for name in ("NUMBA_NUM_THREADS", "CACHE_DIR", "COLOR_SCHEME"):
        with monkeypatch.context() as changed:
            changed.setattr(config, name, f"not {settings[name]}")
            assert name_of_file() == before, name


def test_compiling_restores_numba_even_after_errors():
    def found():
        return [getattr(place, name) for place, name, _ in shortcuts.LEFT_OUT]

    def fail():
        with shortcuts.only_what_is_used(), shortcuts.only_what_is_used():
            assert found() == [instead for *_, instead in shortcuts.LEFT_OUT] != before
            raise ZeroDivisionError

    before = found()
    with pytest.raises(ZeroDivisionError):
        fail()
    assert found() == before


def test_functions_of_numba_that_were_only_linked_serve_other_code_too():
    def use(values):
        return np.repeat(np.searchsorted(values, 1.5), 2).sum() + max(values[0], 3.0)

    values = np.arange(3.0)
    assert [make(use)(values) for make in (compiled, numba.njit, compiled)] == [use(values)] * 3


@pytest.mark.parametrize(("options", "kind"), [({}, shortcuts._OptimisedOnce), ({"fastmath": True}, JITCodeLibrary)])
def test_only_functions_without_fast_mathematics_are_optimised_once(options, kind):
    call = compiled(lambda x: x + 1.0, **options)
    call._cache = NullCache()  # what is read from disk is of numba's kind
    assert call(1.0) == 2.0
    assert [type(one.library) for one in call.overloads.values()] == [kind]


def deep(n):
    return n and deep(n - 1)


def page_faults_of_deep_calls():
    deep(500)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(100):
        deep(500)
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def test_calls_of_the_compiler_map_no_new_memory():
    assert run_uninterrupted(page_faults_of_deep_calls) < 100
