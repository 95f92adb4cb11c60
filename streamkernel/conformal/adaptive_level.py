"""An adaptive level of a conformal set: the long-run share of misses is reached on any stream."""

from __future__ import annotations

import math

STEP_SIZES = tuple(0.001 * 2.0**i for i in range(8))
"""γ of the candidates for α ≥ 0.1, as in the experiments of the paper; below, they are in proportion to α."""

OFFSET_STEP = 0.005
"""γ of the offset for α ≥ 0.1, as in the experiments of the paper of 2021; below, it is in proportion to α."""

SPAN = 500
"""Examples over which the candidates compete, I of the paper."""


class AdaptiveLevel:
    """DtACI: the level α_t at which conformal sets miss a share α of targets in the long run.

    Each candidate i takes steps of its own size, α_i ← α_i + γ_i (α - missed_i), so that a miss makes the next sets
    larger and a hit makes them smaller. The level is their mean, weighted by recent calibration. The papers guarantee
    the long-run share for each candidate and for a random choice between them. An offset is added to the mean, so that
    the share is guaranteed for the mean, too: it takes the same steps for the sets that are actually made. If no β_t is
    below -αM, the share of T sets that miss differs from α ≤ 0.1 by less than (20/α + 20M + 27)/T on any stream, and
    usually by much less. The `levels` α_i of the candidates are outside [0, 1] temporarily, if all recent sets were too
    small or too large; their `weights` add up to 1, and `offset` is added to their mean.

    References
    ----------
    Gibbs and Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021.
    Gibbs and Candès, "Conformal inference for online prediction with arbitrary distribution shifts", JMLR 2024,
    algorithm 1; the weighted mean replaces the random choice between candidates.

    Examples
    --------
    >>> level = AdaptiveLevel(0.1)
    >>> level.get()
    0.1
    >>> level.update(0.02)
    >>> level.get() < 0.1
    True
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self.levels = [alpha] * len(STEP_SIZES)
        self.weights = [1.0 / len(STEP_SIZES)] * len(STEP_SIZES)
        self.offset = 0.0

    def get(self) -> float:
        """Return α_t, the level for the next set."""
        return self.offset + math.fsum(w * level for w, level in zip(self.weights, self.levels, strict=True))

    def update(self, beta: float) -> None:
        """Take one step for the result of one target.

        `beta` is the smallest level at which a set misses the target, β_t of the paper.
        """
        alpha, k = self.alpha, len(STEP_SIZES)
        unit = min(1.0, alpha / 0.1)
        self.offset += unit * OFFSET_STEP * (alpha - (self.get() >= beta))
        rate = _learning_rate(alpha)
        losses = [alpha * (beta - level) - min(0.0, beta - level) for level in self.levels]
        least = min(losses)
        kept = [w * math.exp(-rate * (loss - least)) for w, loss in zip(self.weights, losses, strict=True)]
        total, share = math.fsum(kept), 1.0 / (2.0 * SPAN)
        self.weights = [(1.0 - share) * w / total + share / k for w in kept]
        self.levels = [
            level + unit * gamma * (alpha - (level >= beta))
            for gamma, level in zip(STEP_SIZES, self.levels, strict=True)
        ]


def _learning_rate(alpha: float) -> float:
    """Return η of the paper, for the best candidate over `SPAN` examples."""
    scale = (1.0 - alpha) ** 2 * alpha**3 + alpha**2 * (1.0 - alpha) ** 3
    return math.sqrt(3.0 / SPAN * (math.log(len(STEP_SIZES) * SPAN) + 2.0) / scale)
