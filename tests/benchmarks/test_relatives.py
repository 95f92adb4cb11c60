"""Online kernel learners of the benchmark against each other, and against their formulas written out."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from benchmarks import relatives

N, BUDGET = 60, 12


@pytest.fixture(name="K")
def gram() -> np.ndarray:
    X = np.random.default_rng(1).normal(size=(N, 2))
    return np.exp(-np.square(X[:, None] - X).sum(axis=2)).astype(np.float32)


@pytest.fixture
def y() -> np.ndarray:
    return np.where(np.random.default_rng(2).normal(size=N) > 0.3, 1.0, -1.0)


@pytest.mark.parametrize("loss", [relatives.SQUARE, relatives.HINGE, relatives.LOGISTIC])
def test_without_a_limit_all_gradient_steps_are_the_same(K: np.ndarray, y: np.ndarray, loss: int) -> None:
    Y = np.column_stack([y, -y[::-1]])
    Z = np.linalg.cholesky(K.astype(float) + 1e-6 * np.eye(N)).astype(np.float32)
    expected = relatives.norma(K, Y, loss, 0.5, 0.0, N)
    assert np.ptp(expected) > 0.5
    np.testing.assert_allclose(relatives.sgd(Z, Y, loss, 0.5), expected, atol=1e-3)
    np.testing.assert_allclose(relatives.polk(K, Y, loss, 0.5, N), expected, atol=0.05)  # within its bound


def test_polk_drops_the_vector_that_others_replace_best(K: np.ndarray, y: np.ndarray) -> None:
    f, kept, w = np.zeros(N), np.zeros(0, int), np.zeros(0)
    for i in range(N):
        f[i] = K[i, kept] @ w
        every, w = np.append(kept, i), np.append(w, 0.5 * (y[i] - f[i]))
        inverse = np.linalg.inv(K[np.ix_(every, every)].astype(float))
        errors = w**2 / np.diag(inverse)
        r = int(np.argmin(errors))
        if len(every) > BUDGET or errors[r] <= (relatives.ERROR * 0.5) ** 2:
            w = np.delete(w - inverse[:, r] / inverse[r, r] * w[r], r)
            every = np.delete(every, r)
        kept = every
    assert len(kept) == BUDGET
    np.testing.assert_allclose(relatives.polk(K, y[:, None], relatives.SQUARE, 0.5, BUDGET)[:, 0], f, atol=1e-3)


def test_bpa_s_takes_the_step_of_the_least_objective(K: np.ndarray, y: np.ndarray) -> None:
    C, f, kept, a = 0.4, np.zeros(N), [], []
    for i in range(N):
        f[i] = K[i, kept] @ a if kept else 0.0
        if y[i] * f[i] >= 1.0:
            continue
        options = []
        for r in range(len(kept)) if len(kept) == BUDGET else (None,):
            lost, k = (0.0, 0.0) if r is None else (a[r], K[i, kept[r]])
            new = np.linspace(-2.0, 2.0, 40_001)
            moved = 0.5 * (lost**2 - 2.0 * lost * new * k + new**2)
            objective = moved + C * np.maximum(0.0, 1.0 - y[i] * (f[i] - lost * k + new))
            options.append((objective.min(), r, new[objective.argmin()]))
        _, r, best = min(options, key=lambda option: option[0])
        if r is None:
            kept, a = [*kept, i], [*a, best]
        else:
            kept[r], a[r] = i, best
    assert len(kept) == BUDGET
    np.testing.assert_allclose(relatives.bpa_s(K, y, C, BUDGET), f, atol=0.01)


def test_projectron_projects_and_adds(K: np.ndarray, y: np.ndarray) -> None:
    threshold, f, kept, w = 0.4, np.zeros(N), np.zeros(0, int), np.zeros(0)
    for i in range(N):
        f[i] = K[i, kept] @ w
        v = np.linalg.solve(K[np.ix_(kept, kept)].astype(float), K[i, kept])
        loss, length2 = 1.0 - y[i] * f[i], K[i, kept] @ v
        delta = np.sqrt(max(0.0, 1.0 - length2))
        if loss >= 1.0 and delta > threshold and len(kept) < BUDGET:
            kept, w = np.append(kept, i), np.append(w, y[i])
        elif loss >= 1.0:
            w = w + y[i] * v
        elif loss > delta / threshold:
            w = w + y[i] * v * min(1.0, loss / length2, 2.0 * (loss - delta / threshold) / length2)
    assert len(kept) > 5
    np.testing.assert_allclose(relatives.projectron(K, y, threshold, BUDGET), f, atol=1e-3)


def test_weights_go_to_the_better_bandwidth_and_instances_restart() -> None:
    y = np.repeat([1.0, -1.0], 128)[:, None]
    members = np.stack([y, -y])
    mixed = relatives.raker(members, y, relatives.SQUARE, 0.5)
    assert mixed[0, 0] == 0.0
    np.testing.assert_allclose(mixed[20:], y[20:], atol=1e-3)
    Z = np.ones((2, 256, 1), np.float32)
    steady = relatives.sgd(Z[0], y, relatives.SQUARE, 0.01)
    adaptive = relatives.ada_raker(Z, y, relatives.SQUARE, 0.01)
    assert np.square(adaptive - y)[128:].mean() < 0.5 * np.square(steady - y)[128:].mean()


def test_the_table_has_all_methods(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["relatives", "--streams", "bananas,planes_2d", "--events", "100", "--size", "16"])
    relatives.main()
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    classes, numbers, counts = (line for line in lines if line)
    assert classes[0] == "bananas, accuracy"
    assert all(0.4 < float(cell.rstrip("*")) < 1.0 for cell in classes[1:])
    assert [cell == "" for cell in numbers[1:]] == [method in ("BPA-S", "Projectron++") for method in relatives.METHODS]
    assert 0.3 < max(float(cell.rstrip("*")) for cell in numbers[1:] if cell) < 1.0
    assert sum(map(int, counts[1:])) >= 2
