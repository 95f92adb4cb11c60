"""Compiled functions that count no references to arrays are only called where that is safe."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
from numba.core.errors import NumbaError

from streamkernel.jit import compiled, inlined
from streamkernel.jit.cache import fingerprint


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


def test_numbers_are_returned_to_both_kinds_of_callers():
    for allocates in (True, False):
        assert compiled(lambda values: total(values) + 1.0, allocates=allocates)(np.ones(3)) == 4.0


@pytest.mark.parametrize(("function", "allocates"), [(counted, False), (uncounted, True)])
def test_arrays_are_not_returned_to_callers_that_count_otherwise(function, allocates):
    call = compiled(lambda values: len(function(values)), allocates=allocates)
    with pytest.raises((TypeError, NumbaError), match=f"expected allocates={allocates}"):
        call(np.ones(3))


def test_functions_that_read_a_tuple_are_compiled_anew_when_the_order_of_its_fields_changes():
    found = set()
    for fields in (("first", "last"), ("last", "first")):
        Span = namedtuple("Span", fields)

        def read_first(numbers):
            return Span(*numbers).first  # noqa: B023

        read_first.__module__ = "streamkernel.spans"
        found.add(fingerprint(read_first))
    assert len(found) == 2
