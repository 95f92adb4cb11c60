"""An adaptive level of a conformal set: the long-run share of misses is reached on any stream."""

from __future__ import annotations

import math

STEP_SIZES = tuple(0.001 * 2.0**i for i in range(8))
"""γ of the candidates, as in the experiments of the paper."""

OFFSET_STEP = 0.005
"""γ of the offset, as in the experiments of the paper of 2021."""

SPAN = 500
"""Examples over which the candidates compete, I of the paper."""


class AdaptiveLevel:
    """DtACI: the level α_t at which a conformal set misses a share α of targets in the long run.

    Each candidate i takes steps of its own size, α_i ← α_i + γ_i (α - missed_i), so that a miss makes the next sets
    larger and a hit makes them smaller. Their mean is weighted by how well each was calibrated recently. The papers'
    guarantees are for each candidate, and for a random choice between them. An offset is added so that there is one for
    the mean: it takes the same steps for the sets that are really made. The share of T sets that misses differs from α
    by less than 227/T on any stream, and by much less on usual ones.

    Parameters
    ----------
    alpha
        The share of targets that may be missed, between 0 and 1.

    Attributes
    ----------
    levels : list of float
        α_i of the candidates; outside [0, 1] for a while where all sets were too small or too large.
    weights : list of float
        The weights of the candidates; they add up to 1.
    offset : float
        What is added to their mean.

    References
    ----------
    Gibbs and Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021.
    Gibbs and Candès, "Conformal inference for online prediction with arbitrary distribution shifts", JMLR 2024,
    algorithm 1; the weighted mean stands for the random choice between candidates.

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

        Parameters
        ----------
        beta
            The level from which on sets miss the target, β_t of the paper.
        """
        alpha, k = self.alpha, len(STEP_SIZES)
        self.offset += OFFSET_STEP * (alpha - (self.get() >= beta))
        rate = _learning_rate(alpha)
        losses = [alpha * (beta - level) - min(0.0, beta - level) for level in self.levels]
        least = min(losses)
        kept = [w * math.exp(-rate * (loss - least)) for w, loss in zip(self.weights, losses, strict=True)]
        total, share = math.fsum(kept), 1.0 / (2.0 * SPAN)
        self.weights = [(1.0 - share) * w / total + share / k for w in kept]
        self.levels = [
            level + gamma * (alpha - (level >= beta)) for gamma, level in zip(STEP_SIZES, self.levels, strict=True)
        ]


def _learning_rate(alpha: float) -> float:
    """Return η of the paper, for the best candidate over `SPAN` examples."""
    scale = (1.0 - alpha) ** 2 * alpha**3 + alpha**2 * (1.0 - alpha) ** 3
    return math.sqrt(3.0 / SPAN * (math.log(len(STEP_SIZES) * SPAN) + 2.0) / scale)
