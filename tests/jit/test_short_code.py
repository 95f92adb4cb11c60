"""Short code for structures, indices, ranges and calls: results and errors are those of Python."""

import itertools

import numpy as np
import pytest

from streamkernel.jit import compiled, inlined
from streamkernel.jit.cache import FileCache

BOUNDS = (-9, -4, -1, 0, 1, 3, 4, 9)


@pytest.fixture(autouse=True)
def nothing_is_cached(monkeypatch):
    """Compile each time: the name of a cached file does not depend on how numba was shortened."""
    monkeypatch.setattr(FileCache, "load_overload", lambda *arguments: None)
    monkeypatch.setattr(FileCache, "save_overload", lambda *arguments: None)


def slices(values, a, b, step):
    return [
        values[a:b].copy(),
        values[a:].copy(),
        values[:b].copy(),
        values[a:b:step].copy(),
        values[::-2].copy(),
        values[1:-1].copy(),
        values[-3:].copy(),
        values[:0].copy(),
    ]


def places(values, matrix, i, j):
    row = matrix[i]
    column = matrix[:, j]
    row[j] += 1.0
    part = matrix[i:, 1:]
    part[0, 0] += values[j]
    return values[i], row[-1], column[i], matrix[i, j], matrix[-1, 0], part.sum(), values[np.uint64(abs(i))]


def loops(n, first, step):
    found = [0]
    for i in range(n):
        found.append(i)
    for i in range(first, n):
        found.append(i)
    for i in range(first, n, 3):
        found.append(i)
    for i in range(n, first, -2):
        found.append(i)
    for i in range(first, n, step):
        if i == 5:
            break
        found.append(i)
    for i in range(np.uint64(n * n)):
        found.append(int(i) + len(range(first, n, 2)))
    return found


def chosen(values, n):
    """Change structures in branches and loops."""
    part = values[:2]
    for i in range(n):
        if i % 2:
            part = values[i:]
        pair = (part, i) if i % 3 else (values, -i)
        for j in range(len(part) - 1, -1, -1):
            part[j] += pair[0][0] + pair[1]
    return part.copy()


@inlined(allocates=False)
def checked(value):
    if value < 0:
        raise ValueError("negative")
    return value


@inlined(allocates=False)
def above(value):
    return checked(value) + checked(value + 1)


@compiled(allocates=False)
def fails(value):
    found = 0
    for i in range(3):
        found += above(value - i)
    return found


@compiled
def catches(value):
    found = 0
    for i in range(3):
        try:
            found += above(value - i)
        except Exception:
            found -= 100
    return found


def test_slices_are_those_of_python():
    ours = compiled(slices)
    for n, (a, b) in itertools.product((0, 1, 4), itertools.product(BOUNDS, repeat=2)):
        values = np.arange(n, dtype=np.float64)
        for step in (1, 2, -1, -3):
            for got, want in zip(ours(values, a, b, step), slices(values, a, b, step), strict=True):
                np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError, match="step"):
        ours(np.zeros(2), 0, 1, 0)


def test_elements_are_those_of_python():
    ours = compiled(places)
    values = np.arange(4.0)
    for i, j in itertools.product((-3, -1, 0, 2), (-2, 0, 1, 3)):
        for matrix in (np.arange(16.0).reshape(4, 4), np.arange(16.0).reshape(4, 4)[::2].repeat(2, 0).T):
            one, other = matrix.copy("K"), matrix.copy("K")
            assert ours(values, one, i, j) == places(values, other, i, j)
            np.testing.assert_array_equal(one, other)


def test_ranges_are_those_of_python():
    ours = compiled(loops)
    for n, first, step in itertools.product((-3, 0, 1, 2, 7), (-4, 0, 1, 6), (1, 2, -1, -2)):
        assert ours(n, first, step) == loops(n, first, step)
    with pytest.raises(ValueError, match="zero"):
        ours(1, 0, 0)


@pytest.mark.parametrize("n", [0, 1, 5, 8])
def test_structures_that_change_in_branches_are_those_of_python(n):
    one, other = np.arange(9.0), np.arange(9.0)
    np.testing.assert_array_equal(compiled(chosen)(one, n), chosen(other, n))
    np.testing.assert_array_equal(one, other)


def test_errors_pass_through_calls():
    assert fails(2) == 9
    with pytest.raises(ValueError, match="negative"):
        fails(1)
    assert [catches(value) for value in (2, 1, 0, -5)] == [9, -96, -199, -300]
