"""The numbers that a model is told by, and where each stands in the arrays `ints` and `reals`."""

from __future__ import annotations

# Places in `ints`. What is learnt: blocks, steps taken, steps that reused a block, examples; of second-order steps,
# examples that wait for one, and the direction that regularisation goes to next.
BLOCKS, STEPS, REUSED, EXAMPLES, WAITING, TURN = LEARNT_INTS = range(6)
# What is given: columns C, features a block F, batch B, cap on the blocks, codes of loss and rule, G and U,
# what is added to f, the key of the rule's draws, the units of γ; parts and terms of the kernel, outputs of a feature.
COLUMNS, PER_BLOCK, BATCH, MOST_BLOCKS, LOSS_CODE, RULE_CODE, GROW, REUSE, INTERCEPT, RULE_KEY, UNITS = range(6, 17)
PARTS, TERMS, OUTPUTS = range(17, 20)
N_INTS = 20

# Places in `reals`. What is learnt: the lazy scale of α and β; the bound M on the derivative; Σ scales for the averaged
# iterate; Σ‖α_b‖² without the scale; the running loss; the last step taken; the offset that is added to f; that of
# predictions, which is averaged if they are; the spread, a running mean of |f(x) - y|; the running means of |z|² and
# |z|⁴ over features and examples.
SCALE, BOUND, SCALE_SUM, NORM2, LOSS, ETA, OFFSET, PREDICTED_OFFSET, SPREAD, SQUARE, FOURTH = LEARNT_REALS = range(11)
# What is given: λ, the loss's parameter and bound, the rule's longest step in units of γ, ε of the preconditioner (0
# for none), k(x, x) where it is the same for all x, else 0; and what second-order steps keep of the past an example.
L2, LOSS_PARAMETER, LOSS_BOUND, LONGEST, EPSILON, SELF, FORGETTING = range(11, 18)
N_REALS = 18

NOTHING, MEAN, LEARNT, MARGIN = range(4)
"""What is added to f: nothing; the running mean of the targets; a constant that is learnt as f is, as if 1 were added
to the kernel; or -τ, a threshold that is learnt with f."""

SELVES, SPREADS = 1, 2
"""Units of γ, added up: 1/k(x, x), so that a step moves f as far with every kernel; the spread."""

HORIZON = 1000.0
"""Examples over which the running loss is averaged."""

DONE, BAD_VALUE, DIVERGED = range(3)
