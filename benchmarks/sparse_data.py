"""A stream of the shape of Covtype, 10 numbers and 44 indicators of an area and a soil, that needs no download."""

from __future__ import annotations

import numpy as np

from benchmarks.rivals.parts import F64

AREAS, SOILS, NUMBERS = 4, 40, 10


def forest(rows: int, seed: int, directions: int) -> tuple[F64, F64]:
    """Return inputs, shape (rows, 54), and classes 0 and 1, of which no model can tell about 2 % right.

    A soil decides where the numbers lie; the class is the sign of a smooth function of as many `directions` of the
    numbers, which soil and area shift.
    """
    world, rng = np.random.default_rng(54), np.random.default_rng(seed)
    centers, shifts = world.standard_normal((SOILS, NUMBERS)), world.standard_normal(AREAS + SOILS)
    waves = world.standard_normal((NUMBERS, directions)) / np.sqrt(NUMBERS)
    phases = world.uniform(0, 2 * np.pi, directions)
    area, soil = rng.integers(0, AREAS, rows), rng.integers(0, SOILS, rows)
    numbers = centers[soil] + 0.6 * rng.standard_normal((rows, NUMBERS))
    score = 1.5 * np.cos(numbers @ waves + phases).sum(axis=1) + 0.7 * shifts[area] + 1.2 * shifts[AREAS + soil]
    indicators = np.zeros((rows, AREAS + SOILS))
    indicators[np.arange(rows), area] = indicators[np.arange(rows), AREAS + soil] = 1.0
    label = (score > np.median(score)) ^ (rng.random(rows) < 0.02)
    return np.hstack([numbers, indicators]), label.astype(float)


def arm(rows: int, seed: int) -> tuple[F64, F64]:
    """Return the angles of a robot's arm with 8 joints and the distance of its hand.

    A tenth of the first 80 % of the rows are outliers.
    """
    rng = np.random.default_rng(seed)
    angles = rng.uniform(-1.0, 1.0, (rows, 8))
    turned = np.cumsum(angles, axis=1)
    distance = np.hypot(np.cos(turned).sum(axis=1), np.sin(turned).sum(axis=1))
    learnt = np.arange(rows) < 0.8 * rows
    return angles, distance + np.where(learnt & (rng.random(rows) < 0.1), 20.0 * rng.standard_normal(rows), 0.0)
