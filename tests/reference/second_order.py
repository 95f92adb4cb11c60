"""Second-order learning as `streamkernel.second_order.learning` prints it, in plain NumPy and float64.

Nothing is factored: every A is a matrix, and a step solves a system. The groups are a list, where those that have not
begun are ``None``. It grows as `streamkernel.second_order.growth` prints it.
"""

from __future__ import annotations

import math

import numpy as np
from reference import algorithms as plain

FLATTEST, MEMORY, PULL, PRIOR, HORIZON, BEYOND = 1e-3, 0.9995, 10.0, 0.03, 1000, 0.05
ALONE, PAYS, GAIN, WORTH, NEEDLESS = 4, 0.02, 0.03, 0.01, 0.0015
MATURE, SETTLED, LEAST_UNEXPLAINED, FOLLOW = 4, 2, 0.01, 0.075
GOLDEN = 0x9E3779B97F4A7C15
FROM = 256
"""A quarter of what the package has: tests set that to this."""
CAUTION, MOST, SKETCHED_FROM, SKETCHES = 2.0, 8.0, 1024, 8


class Logistic(plain.Logistic):
    def curvature(self, f, y):
        p = 1.0 / (1.0 + np.exp(-f))
        return np.maximum(p * (1.0 - p), self.gradient(f, y) ** 2 / 4.0)


class Softmax(plain.Softmax):
    def curvature(self, f, y):
        p = np.exp(f) / np.exp(f).sum()
        return np.maximum(p * (1.0 - p), self.gradient(f, y) ** 2 / 4.0)


class SquaredHinge(plain.SquaredHinge):
    def curvature(self, f, y):
        return np.where(plain.signs(y, len(f)) * f < 1.0, 2.0, 0.0)


class SmoothHinge(plain.SmoothHinge):
    def curvature(self, f, y):
        m = plain.signs(y, len(f)) * f
        return np.where(m < 1.0, 1.0 / np.maximum(1.0, 1.0 - m), 0.0)


class Square(plain.Square):
    def curvature(self, f, y):
        return np.ones(1)


class Huber(plain.Huber):
    def curvature(self, f, y):
        return self.delta / np.maximum(self.delta, np.abs(f - y))


def steps_of(w, part):
    """Return by how much more w constant steps move f than one that takes a part of the error away."""
    part = np.clip(part, 1e-9, 0.99)
    return (1.0 - (1.0 - part) ** w) / part if w != 1.0 else np.ones_like(part)


class Bound:
    """The largest norm seen of a derivative, which at most doubles; a loss that has a bound needs none."""

    def __init__(self, loss):
        self.largest, self.needed = np.zeros(1), loss.bound(1) is None

    def clipped(self, g):
        return g * plain.clip(np.linalg.norm(g), self.largest) if self.needed else g


def random_bits(key, counter):
    """Return 64 random bits (SplitMix64, Steele et al. 2014)."""
    most = (1 << 64) - 1
    z = (key + (counter + 1) * GOLDEN) & most
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & most
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & most
    return z ^ (z >> 31)


def draw(g, example):
    """Return the number between 0 and 1 of an example in a group."""
    return ((random_bits(g, example >> 6) + example * GOLDEN) % (1 << 64) >> 11) / (1 << 53)


def signs(seen, n):
    """Return the random signs of a sketch, shape (n, 8)."""
    bits = [random_bits(seen, i) for i in range(n)]
    return np.array([[1.0 if b >> k & 1 else -1.0 for k in range(SKETCHES)] for b in bits]) / math.sqrt(SKETCHES)


class Group:
    """The functions φᵀw of some blocks, by Newton steps and by constant steps."""

    def __init__(self, loss, blocks, rung, born, n, columns, gamma, forgetting, l2, prior=PRIOR):
        self.loss, self.blocks, self.rung, self.born, self.prior = loss, blocks, rung, born, prior
        self.own, self.gamma, self.forgetting, self.l2 = len(blocks), gamma, forgetting, l2
        self.A = prior * self.own * np.eye(n)
        self.newton, self.steady = np.zeros((n, columns)), np.zeros((n, columns))
        self.bounds = Bound(loss), Bound(loss)
        self.standing = np.zeros(2)  # the running losses of both, since the last look
        self.waiting = []  # φ, ℓ' and ℓ'' of examples
        self.sketch, self.sketched = None, 0

    def scores(self, phi):
        return phi @ self.newton, phi @ self.steady

    def see(self, phi, y, memory, w):
        """Take the constant step, and keep what the Newton step is made of."""
        f, steady = self.scores(phi)
        self.standing += w * (np.array([self.loss.value(f, y), self.loss.value(steady, y)]) - self.standing) / memory
        weight = max(FLATTEST, self.loss.curvature(f, y).max())
        self.waiting.append((phi, w * self.bounds[0].clipped(self.loss.gradient(f, y)), w * weight))
        gamma = self.gamma / self.own
        gamma = gamma * steps_of(w, gamma * phi @ phi * self.loss.curvature(steady, y))
        self.steady -= np.outer(phi, gamma * self.bounds[1].clipped(self.loss.gradient(steady, y)))

    def share(self, number, example, row):
        """Return the weight of an example's row in A."""
        p = 1.0 if self.sketch is None else max(CAUTION * np.square(row @ self.sketch).sum(), 1.0 / MOST)
        return 1.0 if p >= 1.0 else (draw(number, example) < p) / p

    def renew_sketch(self, seen):
        held = min(seen - self.born, 1.0 / max(1.0 - self.forgetting, 1e-18))
        if held >= max(SKETCHED_FROM, len(self.A)) and seen - self.sketched >= held / 4:
            upper = np.linalg.cholesky(self.A).T
            self.sketch, self.sketched = np.linalg.solve(upper, signs(seen, len(self.A))), seen

    def step(self, seen, batch, number):
        n = len(self.A)
        gradient = batch * self.l2 * self.newton
        if self.forgetting < 1.0 or self.l2:
            gone = max(1.0 - self.forgetting, 1e-9)
            fading, returning = (max(batch, min(n, int(part / gone))) for part in (0.1, 1.0))
            if seen // fading > (seen - batch) // fading:
                self.A = self.forgetting**fading * self.A
            is_returning = seen // returning > (seen - batch) // returning
            own = is_returning * (1.0 - self.forgetting**returning) * self.prior * self.own
            more = returning * self.l2 * (is_returning or seen == batch)
            self.A, gradient = self.A + (own + more) * np.eye(n), gradient + own * self.newton
        for example, (phi, g, weight) in enumerate(self.waiting, seen - batch + 1):
            self.A += self.share(number, example, math.sqrt(weight) * phi) * weight * np.outer(phi, phi)
            gradient += np.outer(phi, g)
        self.renew_sketch(seen)
        self.newton -= np.linalg.solve(self.A, gradient)
        self.waiting = []


class Line:
    """wᵀ(1, x) by a Newton step at each example, as `streamkernel.second_order.linear.steps` prints it.

    A of the first places is whole, of the others diagonal; all names are there from the beginning.
    """

    DENSE, TURN, FURTHEST, REACH, LARGEST_SCORE, CONSTANT, PRIOR = 257, 8, 10.0, 2.0, 20.0, 0.01, 10.0
    SATURATION = 4.0

    def __init__(self, loss, curvature, names, columns, kept, l2):
        self.loss, self.kept, self.l2, self.bound = loss, kept, l2, Bound(loss)
        self.w, self.error, n = np.zeros((names + 1, columns)), 0.0, names + 1
        self.priors = np.r_[self.CONSTANT, np.ones(names)] * self.PRIOR * curvature
        self.A = np.diag(self.priors)
        self.is_kept = (np.add.outer(np.zeros(n), np.arange(n)) < self.DENSE) & (np.arange(n) < self.DENSE)[:, None]
        self.is_kept |= np.eye(n, dtype=bool)
        self.waiting = None  # s, αℓ' and αℓ'' of the example that is learned

    def scores(self, x):
        return np.r_[1.0, x] @ self.w

    def bounded(self, f, size):
        if not isinstance(self.loss, Square | Huber):
            return self.SATURATION * np.tanh(f / 2.0)
        most = self.LARGEST_SCORE if size == 0.0 else self.REACH * size**1.5 / max(self.error, 1e-9 * size)
        return np.clip(f, -most, most)

    def see(self, x, y, moved, seen, size, furthest, w):
        """Keep what the step is made of."""
        self.w[0] -= moved
        s, f = np.r_[1.0, x], self.scores(x)
        if size:
            self.error += (min(abs(f[0] - y), furthest) ** 2 - self.error) / min(seen, HORIZON)
        g = self.loss.gradient(f, y)
        share = min(1.0, (max(self.FURTHEST, math.sqrt(seen)) / max(np.abs(x).max(), 1e-300)) ** 2)
        share = min(share, np.linalg.norm(self.bound.clipped(g)) / max(np.linalg.norm(g), 1e-300) if g.any() else 1.0)
        share *= w
        self.waiting = s, share * g, share, max(FLATTEST, self.loss.curvature(f, y).max())

    def step(self, seen):
        s, g, share, curvature = self.waiting
        self.add(s, g, share * curvature)
        if seen % self.TURN == 0 and (self.kept < 1.0 or self.l2):
            turn, place = self.TURN * len(s), seen // self.TURN % len(s)
            self.A *= self.kept**self.TURN
            pull = (1.0 - self.kept**turn) * self.priors[place] + turn * self.l2
            self.add(np.eye(len(s))[place], pull * self.w[place], pull)

    def add(self, s, g, weight):
        gain = np.linalg.solve(self.A, s)
        self.w -= np.outer(gain, g) / (1.0 + weight * s @ gain)
        self.A += weight * np.outer(s, s) * self.is_kept


class Neighbours:
    """The prediction of the nearest of the last examples, by the formula of `second_order.neighbours.search`."""

    WINDOWS, SEARCHED, COUNT, INPUTS = (500, 2000, 8192), 1 << 17, 8, 127
    functions = 3

    def __init__(self, columns, is_mean, is_softmax):
        self.columns, self.is_mean, self.points, self.answers = columns, is_mean, [], []
        self.weights = []
        self.spread = 1.0 if is_mean or is_softmax or columns == 1 else 2.0

    def scores(self, x, mean):
        """Return the scores of the nearest in each window; 0 where it is less than twice the one before it."""
        most = min(len(self.points), self.SEARCHED // (1 + min(len(x), self.INPUTS)))
        least = [1, *(2 * window for window in self.WINDOWS[:-1])]
        return [
            self.among(min(most, window), x, mean) if min(most, window) >= low else np.zeros(self.columns)
            for window, low in zip(self.WINDOWS, least, strict=True)
        ]

    def among(self, last, x, mean):
        """Return the score of the nearest of the last examples."""
        distances = np.linalg.norm(np.array(self.points[-last:]) - x[: self.INPUTS], axis=1)
        nearest = np.argsort(distances, kind="stable")[: self.COUNT]
        share = np.array(self.weights[-last:])[nearest] / np.maximum(distances[nearest], 1e-6) ** 4
        share /= share.sum()
        answers = np.array(self.answers[-last:])[nearest]
        if self.is_mean:
            return self.spread * np.array([share @ answers - mean])
        classes = np.arange(max(2, self.columns))
        logs = np.log(len(nearest) * (answers == classes[:, None]) @ share + 0.5)
        return self.spread * (logs[1:] - logs[0] if self.columns == 1 else logs - logs.mean())

    def learn(self, x, y, w):
        self.points.append(x[: self.INPUTS])
        self.answers.append(y)
        self.weights.append(w)


class Mixture:
    """Σ_k v_k f_k over the functions of all groups, and a level.

    Parameters
    ----------
    phi
        Gives the features of a block for rows at a multiple of the bandwidth, shape (rows, outputs), with k(x, x) = 1.
    loss
        One of the losses above.
    blocks, outputs
        Maximum number of blocks, and the outputs of a block.
    joint
        Whether all blocks are one group.
    multiples
        Multiples of the bandwidth of the first four blocks.
    """

    def __init__(
        self,
        phi,
        loss,
        *,
        blocks,
        joint,
        outputs,
        columns,
        gamma,
        follow,
        batch_size,
        forgetting,
        l2,
        intercept,
        multiples=(1.0,),
        linear=None,
        neighbours=None,
    ):
        self.phi, self.loss, self.batch, self.intercept, self.outputs = phi, loss, batch_size, intercept, outputs
        self.multiples, self.forgetting, self.columns = np.resize(multiples, blocks), forgetting, columns
        self.told = columns, gamma, forgetting, l2
        self.last = 0  # the stage of the largest group there is room for, after all of the smaller size
        while not joint and ALONE + (2 << self.last) + (1 << self.last) * (self.last > 0) <= blocks:
            self.last += 1
        self.alone = 1 if joint else min(ALONE, blocks)
        self.first_blocks = blocks if joint else self.alone
        self.groups = [
            Group(loss, part.tolist(), g, 0, len(part) * outputs, *self.told)
            for g, part in enumerate(np.split(np.arange(self.first_blocks), self.alone))
        ] + [None, None] * (self.last > 0)
        self.v = np.array([0.0 if group is None else 0.5 / self.alone for group in self.groups] * 2 + [0.0])
        self.level, self.follow, self.level_bound = np.zeros(columns), follow, Bound(loss)
        self.A, self.bound, self.largest = None, Bound(loss), 0.0
        self.seen, self.waiting, self.looked, self.mean, self.size = 0, 0, 0, 0.0, 0.0 if intercept else 1.0
        self.weight, self.targets = 0.0, 1
        self.nothing, self.running = 0.0, 0.0  # the running losses of f = 0, and of f over a longer time
        self.lowest, self.highest, self.below, self.above = math.inf, -math.inf, 0.0, 0.0
        self.usual, self.spread, self.outsiders, self.earned = 0.0, 0.0, 0.0, 0.0
        self.was_outlying, self.outlier = False, 0.0
        self.history = []  # (examples, stage, bandwidth) where larger groups began
        self.ended = {}  # the examples before a group ended, by its place
        self.margins = []  # how near decisions were to others
        self.linear, self.neighbours = [linear] if linear else [], neighbours
        self.of_lines = np.zeros(len(self.linear))  # the running loss of the linear function
        self.v[: 2 * len(self.groups)] *= 0.6 if self.linear else 1.0
        near = [0.0] * (neighbours.functions if neighbours else 0)
        self.v = np.concatenate([self.v, [0.4] * len(self.linear), near])
        self.u, self.p, self.lead = self.v.copy(), self.v.copy(), 0.0

    def features(self, x, seen):
        """Return φ of each group, and ``None`` of none; a first block that is not there yet counts as 0."""
        return [
            group
            and np.concatenate(
                [
                    self.phi(b, x[None], self.multiples[group.rung])[0] * (b < seen or b >= self.first_blocks)
                    for b in group.blocks
                ]
            )
            for group in self.groups
        ]

    def all_scores(self, phi, x, moved=0.0):
        """Return the scores of all functions, shape (functions, columns): Newton, constant, the level, linear, near."""
        nothing = np.zeros((2, self.columns))
        size = self.size if self.intercept else 0.0
        lines = [line.bounded(line.scores(x) - moved, size) for line in self.linear]
        pairs = [group.scores(part) if group else nothing for group, part in zip(self.groups, phi, strict=True)]
        lines += self.neighbours.scores(x, self.mean) if self.neighbours else []
        return np.array([newton for newton, _ in pairs] + [steady for _, steady in pairs] + [self.level] + lines)

    def scores(self, x):
        f = self.all_scores(self.features(x, max(1, self.seen)), x)
        return self.in_range(f) if self.intercept and self.seen else self.v @ f + self.mean

    def in_range(self, f, is_limited=None):
        """Return the prediction within the range of targets, which linear functions extend within a further one."""
        more = BEYOND * (self.highest - self.lowest)
        lines = f[2 * len(self.groups) + 1 :] + self.mean
        if self.earned <= self.size if is_limited is None else is_limited:
            lines = np.clip(lines, *self.furthest())
        low = np.min(lines, axis=0, initial=self.lowest - more)
        return np.clip(self.v @ f + self.mean, low, np.max(lines, axis=0, initial=self.highest + more))

    def furthest(self):
        """Return the least and the largest value that a linear function may extend the range to."""
        most = max(BEYOND * (self.highest - self.lowest), math.sqrt(self.size))
        return self.lowest - max(most, 2.0 * self.below), self.highest + max(most, 2.0 * self.above)

    def resisted(self, y, f, raw):
        """Return the value that is learned in place of a target, and update what is known of targets."""
        said = self.in_range(f)[0] if self.seen > 1 else (self.v @ f + self.mean)[0]
        value, off, more = y, y - said, 0.05 * (self.highest - self.lowest)
        is_inside = self.lowest - more <= y <= self.highest + more
        is_square = type(self.loss).__name__ == "Square"
        is_missed = np.min(np.abs(y - np.array(raw)), initial=math.inf) >= 0.5 * abs(off)
        is_usual = abs(said - self.mean) <= 3.0 * self.spread
        is_missed &= is_usual or (said - self.mean) * (y - self.mean) <= 0.1 * (y - self.mean) ** 2
        is_outlying = self.seen > 64 and is_square and is_missed and not is_inside and abs(off) > 12.0 * self.usual
        if self.seen > 1:
            gain = (y - self.in_range(f, True)[0]) ** 2 - (y - self.in_range(f, False)[0]) ** 2
            gain = min(max(gain, -100.0 * self.size), 100.0 * self.size)
            self.earned = max((1.0 - 1.0 / min(self.seen, HORIZON)) * self.earned + gain, 0.0)
        if is_outlying and (not self.was_outlying or y == self.outlier) and self.outsiders < 8.0:
            value = said + math.copysign(2.0 * self.usual, off)
        if self.seen == 1:
            self.lowest = self.highest = value
        kept = 1.0 - 1.0 / min(self.seen, HORIZON)
        self.below = kept * self.below + max(self.lowest - value, 0.0)
        self.above = kept * self.above + max(value - self.highest, 0.0)
        self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)
        off = min(abs(value - said), 10.0 * self.usual or math.inf)
        self.usual += (off - self.usual) / min(self.seen, 100)
        self.spread += (abs(value - self.mean) - self.spread) / min(self.seen, HORIZON)
        counted = 1.0 / 6.0 if is_outlying and self.was_outlying and y == self.outlier else is_outlying
        self.outlier = y if is_outlying else self.outlier
        self.outsiders, self.was_outlying = (1.0 - 1.0 / 512.0) * self.outsiders + counted, is_outlying
        return value

    def learn(self, x, y, w=1.0):
        self.see(x, y, w)
        self.step()

    def see(self, x, y, w):
        """Learn all of an example but what goes into Gram matrices."""
        phi, target = self.features(x, self.seen + 1), y
        furthest = max(10.0, math.sqrt(min(self.seen, HORIZON))) * math.sqrt(self.size) or math.inf
        self.seen, self.weight = self.seen + 1, self.weight + w
        moved = 0.0
        if self.intercept:
            moved = w * np.clip(y - self.mean, -furthest, furthest) / self.weight
            self.mean += moved
            y = y - self.mean
        moved *= self.seen > 1
        scores = self.all_scores(phi, x, moved)
        said = self.in_range(scores) - self.mean if self.intercept and self.seen > 1 else self.v @ scores
        if self.intercept:
            target = self.resisted(target, scores, [line.scores(x)[0] - moved + self.mean for line in self.linear])
            y = target - self.mean
            self.size += (min(abs(y), furthest) ** 2 - self.size) / min(self.seen, HORIZON)
        self.weigh(scores, y, w)
        self.running += w / max(w, min(self.weight, HORIZON)) * (self.loss.value(said, y) - self.running)
        memory = max(w, min(max(1.0, 0.5 * (self.seen - self.looked)), HORIZON))
        self.nothing += w * (self.loss.value(np.zeros(self.columns), y) - self.nothing) / memory
        for line, f in enumerate(scores[2 * len(self.groups) + 1 :][: len(self.linear)]):
            self.of_lines[line] += w * (self.loss.value(f, y) - self.of_lines[line]) / memory
        for group, part in zip(self.groups, phi, strict=True):
            if group:
                group.see(part, y, memory, w)
        for line in self.linear:
            line.see(x, y, moved, self.seen, self.size * bool(self.intercept), furthest, w)
        if self.neighbours:
            far = 5.0 * math.sqrt(self.size) if self.intercept and self.size else math.inf
            self.neighbours.learn(x, np.clip(target, self.mean - far, self.mean + far), w)
        follow = self.follow * steps_of(w, self.follow * self.loss.curvature(self.level, y))
        self.level = self.level - follow * self.level_bound.clipped(self.loss.gradient(self.level, y))

    def step(self):
        """Take the steps of the linear functions, and those of the groups where they are due."""
        for line in self.linear:
            line.step(self.seen)
        self.waiting += 1
        longest = int(0.1 / max(1.0 - self.forgetting, 1e-9))
        grown = max(self.seen // 256, min(self.targets, 4)) * 8
        due = self.batch if self.batch > 1 else max(min(grown, 64, longest) // 8 * 8, 8)
        if self.waiting >= due:
            for number, group in enumerate(self.groups):
                if group:
                    group.step(self.seen, self.waiting, number)
            self.waiting = 0
        if self.seen >= 2 and (math.log2(self.seen).is_integer() or self.seen % 8192 == 0):
            self.look()
            self.looked = self.seen

    def weigh(self, f, y, w):
        """Take a Newton step of u, let p follow, and mix both."""
        if self.size == 0.0:
            return
        count = len(f)
        young = [group is not None and group.born > 0 and self.seen - 1 - group.born < 256 for group in self.groups]
        f = np.where(np.r_[young, young, np.zeros(count - 2 * len(young), bool)][:, None], 0.0, f)
        if self.A is None:
            self.A = np.zeros((count, count))
        self.A += PULL * max(self.size - self.largest, 0.0) * np.eye(count)
        self.largest = max(self.size, self.largest)
        of_u, of_p = self.u @ f, self.p @ f
        curvature = np.maximum(self.loss.curvature(of_u, y), FLATTEST)
        self.A += w * (curvature * f) @ f.T
        if (self.seen - 1) % count == 0:
            self.A = MEMORY**count * self.A + (1.0 - MEMORY**count) * PULL * self.size * np.eye(count)
        self.u = self.u - np.linalg.solve(self.A, w * f @ self.bound.clipped(self.loss.gradient(of_u, y)))
        self.sweep()
        ahead = self.loss.value(of_u, y) - self.loss.value(of_p, y)
        self.lead = np.clip(MEMORY * self.lead + w * ahead / self.size, -10.0, 10.0)
        self.mix()

    def sweep(self):
        """Set each weight of p in turn to its best value of at least 0."""
        for k, own in enumerate(self.A):
            self.p[k] = max(0.0, self.p[k] - own @ (self.p - self.u) / own[k])

    def mix(self):
        """Set v to the mean of u and p."""
        share = 1.0 / (1.0 + math.exp(self.lead))
        self.v = share * self.u + (1.0 - share) * self.p

    def look(self):
        """Begin a larger group where that is due, or end a group."""
        if self.alone == 1 or self.seen < FROM:
            return
        single = np.array([group.standing[0] if group else math.inf for group in self.groups[:ALONE]])
        good = [k for k in range(ALONE) if (1.0 - GAIN) * single[k] <= single.min()]
        rung = min(good, key=lambda k: self.multiples[k])
        stage = self.due(rung) if self.last else 0
        self.margins.append(np.abs((1.0 - GAIN) * single / single.min() - 1.0).min())
        if stage:
            self.begin(stage, rung)
        elif not self.end_worthless():
            best = int(single.argmin())
            self.end_needless({0, 1, 2, 3} - {best, 3 if best < 3 else 0})

    def due(self, rung):
        """Return the stage that begins, 0 for none."""
        living = [group for group in self.groups if group]
        largest = max(living, key=lambda group: group.own)
        may_grow = self.seen >= 2 * max([n for g, n in self.ended.items() if g >= ALONE], default=0)
        if largest.own == 1:
            return int(may_grow and self.pays(min(living, key=lambda group: group.standing[0])))
        own, best = largest.standing[0], min(group.standing[0] for group in living if group is not largest)
        single, steady = np.min([group.standing for group in self.groups[:ALONE] if group], axis=0)
        newton, larger = min(own, best), min(group.standing[0] for group in self.groups[ALONE:] if group)
        self.margins += [abs((1.0 - GAIN) * a / b - 1.0) for a, b in ((best, own), (larger, single), (newton, steady))]
        if own < (1.0 - GAIN) * best:
            stage = int(math.log2(largest.own)) + 1
            return stage if stage <= self.last and may_grow else 0
        has_moved = self.seen - largest.born >= MATURE * len(largest.A) and (1.0 - GAIN) * newton > steady
        return int(((1.0 - GAIN) * larger > single and rung != largest.rung) or has_moved)

    def pays(self, block):
        """Return whether the second half of a block's features reduces the loss by PAYS, but for fitted noise."""
        A, n = block.A, min(self.seen - self.waiting - block.born, 1.0 / max(1.0 - self.forgetting, 1e-18))
        ridge, features = block.prior + n * block.l2, self.outputs // 2
        first = np.flatnonzero(np.arange(len(A)) % features < features // 2)
        moment, half = A @ block.newton, A[np.ix_(first, first)]
        gain = 0.5 * ((moment * block.newton).sum() - (moment[first] * np.linalg.solve(half, moment[first])).sum())
        freedom = [len(part) - ridge * np.trace(np.linalg.inv(part)) for part in (half, A)]
        noise = np.diff(freedom)[0] / (np.trace(A) - ridge * len(A))
        bound = FOLLOW / self.follow * min(self.columns, 2)
        expected = block.standing[0] * (1.0 + bound * noise) - gain / (n * self.weight / self.seen)
        least = min([block.standing[0], *self.of_lines])
        self.margins.append(abs(expected / least - 1.0 + PAYS))
        return expected < (1.0 - PAYS) * least

    def end_worthless(self):
        """End the largest group if a smaller one is as good; the other larger one if the largest possible is better;
        return if one has ended.
        """
        living = [g for g, group in enumerate(self.groups) if group]
        largest = max(living, key=lambda g: self.groups[g].own)
        own = self.groups[largest]
        if own.own == 1:
            return False
        others = {g: self.groups[g].standing[0] / own.standing[0] for g in living if g != largest}
        previous = 2 ** int(math.log2(self.seen - 1))  # the previous check
        if previous - own.born >= SETTLED * len(own.A):
            self.margins.append(abs((1.0 - WORTH) * min(others.values()) - 1.0))
            if (1.0 - WORTH) * min(others.values()) <= 1.0:
                self.end(largest)
                return True
        if own.own == 2**self.last and self.seen - own.born >= MATURE * len(own.A):
            for g in others:
                if g >= ALONE:
                    self.margins.append(abs((1.0 - GAIN) * others[g] - 1.0))
                    if (1.0 - GAIN) * others[g] > 1.0:
                        self.end(g)
                        return True
        return False

    def end_needless(self, blocks):
        """End the single block without which others can replace it best, if that costs a small part of the loss.

        The cost is the least ½(u' - u)ᵀA(u' - u) over all u' that are 0 for the functions of the block.
        """
        worst, losses = NEEDLESS * self.running * self.weight / self.seen, {}
        for g in blocks:
            if self.groups[g] and self.seen - self.groups[g].born >= SETTLED * len(self.groups[g].A):
                stay = np.setdiff1d(np.arange(len(self.u)), [g, g + len(self.groups)])
                off = -self.u
                off[stay] += np.linalg.solve(self.A[np.ix_(stay, stay)], (self.A @ self.u)[stay])
                remembered = (1.0 - MEMORY ** (self.seen - self.groups[g].born)) / (1.0 - MEMORY)
                losses[g] = 0.5 * off @ self.A @ off / remembered
                self.margins.append(abs(losses[g] / worst - 1.0))
        if losses and min(losses.values()) < worst:
            self.end(min(losses, key=losses.get))

    def end(self, g):
        """End a group."""
        self.groups[g], self.ended[g] = None, self.seen
        self.forget([g, len(self.groups) + g])

    def begin(self, stage, rung):
        """Let a group of 2^stage blocks take its place, the last stage the second one, and the one before the first."""
        place = 1 - (self.last - stage) % 2
        first = ALONE + (2 ** (self.last - 1) if place and self.last > 1 else 0)
        least = min(group.standing[0] for group in self.groups if group)
        unexplained = least / self.nothing if self.nothing > 0.0 else 1.0
        prior = self.groups[rung].prior * min(max(unexplained, LEAST_UNEXPLAINED), 1.0)
        ended = {ALONE, ALONE + 1} if stage == 1 else {ALONE + place}
        for g in ended:
            self.groups[g] = None
            self.ended.pop(g, None)
        blocks = list(range(first, first + 2**stage))
        self.groups[ALONE + place] = Group(
            self.loss, blocks, rung, self.seen, len(blocks) * self.outputs, *self.told, prior
        )
        gone = [*sorted(ended), *(len(self.groups) + g for g in sorted(ended))]
        self.forget(gone)
        self.history.append((self.seen, stage, rung))

    def forget(self, gone):
        """Take functions out of the mixture: A of the others stays, and Au of the others."""
        others = [k for k in range(len(self.v)) if k not in gone]
        moment = (self.A @ self.u)[others]
        A = PULL * self.size * np.eye(len(self.v))
        A[np.ix_(others, others)] = self.A[np.ix_(others, others)]
        self.u = np.zeros(len(self.v))
        self.u[others] = np.linalg.solve(A[np.ix_(others, others)], moment)
        self.A, self.p = A, np.maximum(self.u, 0.0)
        for _ in range(100):
            self.sweep()
        self.mix()


class SeveralTargets:
    """A mixture for each target; their Gram matrices count an example as that target does for which it counts most."""

    def __init__(self, mixtures):
        self.mixtures = mixtures
        for mixture in mixtures:
            mixture.targets = len(mixtures)

    def scores(self, x):
        return np.concatenate([mixture.scores(x) for mixture in self.mixtures])

    def learn(self, x, y, w=1.0):
        for mixture, target in zip(self.mixtures, y, strict=True):
            mixture.see(x, target, w)
        for groups in zip(*(mixture.groups for mixture in self.mixtures), strict=True):
            weight = max(group.waiting[-1][2] for group in groups)
            for group in groups:
                group.waiting[-1] = (*group.waiting[-1][:2], weight)
        for lines in zip(*(mixture.linear for mixture in self.mixtures), strict=True):
            share, curvature = (max(line.waiting[k] for line in lines) for k in (2, 3))
            for line in lines:
                line.waiting = (*line.waiting[:2], share, curvature)
        for mixture in self.mixtures:
            mixture.step()
