"""The default learner: f(x) = ȳ + Σ_k v_k f_k(x), where each f_k learns each example, after all have predicted it.

The f_k are in this order: of 7 groups of random features φ one by Newton steps each, and one by constant steps each; a
level; 2 linear in the inputs s; 3 of the nearest neighbours. Four groups are one block of features each, of different
bandwidths; two are larger, and begin where more features help; one forgets.
"""

import numpy as np
from reference.algorithms import clip
from reference.given import Beginner

MULTIPLES, FROM = (0.25, 0.5, 1.5, 6.0), 1024  # bandwidths; when larger groups may begin
PAYS, GAIN, WORTH = 0.02, 0.03, 0.01  # by which gain the first one does, and the next one; and by which it stays
NEEDLESS = 0.0015  # below which a single block ends
GROUPS, LEVEL, LINE, ALL = 7, 14, 15, 19


class Function:
    """φᵀw by Newton steps and by constant steps."""

    def __init__(self, prior, kept=1.0, blocks=(), rung=0, born=0):
        self.prior, self.kept, self.blocks, self.rung, self.born = prior, kept, blocks, rung, born
        self.A, self.newton, self.steady = np.diag(prior), np.zeros(len(prior)), np.zeros(len(prior))
        self.waiting, self.error = [], 0.0

    def step(self, phi, g, h, S=0, T=0, places=1.0):
        """A ← ρˢA + Σ ℓ''φφᵀ + (1 - ρᵀ)λI, w ← w - A⁻¹(Σ ℓ'φ + (1 - ρᵀ)λw)."""
        back = (1 - self.kept**T) * self.prior * places
        self.A = self.kept**S * self.A + phi.T * h @ phi + np.diag(back)
        self.newton -= np.linalg.solve(self.A, g @ phi + back * self.newton)


class DefaultLearner(Beginner):
    def __init__(self, inputs, loss):
        self.loss, self.lead, self.largest, self.most_of_u = loss, 0.0, 0.0, np.array([loss.bound])
        self.v = np.r_[np.full(4, 0.075), np.zeros(3), np.full(4, 0.075), np.zeros(4), 0.4, np.zeros(3)]
        self.u, self.p, self.G = self.v.copy(), self.v.copy(), np.zeros((ALL, ALL))
        super().__init__(inputs, MULTIPLES)

    def begin(self, priors):
        prior = 10 * self.loss.curvature * np.r_[0.01, np.ones(len(self.inputs.names))]
        self.line, self.level = Function(prior, kept=0.9995), 0.0
        self.groups = [self.group([b], b, priors[b]) for b in range(4)] + [self.group([], 0, 0) for _ in range(2)]
        self.groups.append(self.group([1], 1, priors[1], 0, 0.996))
        self.seen, self.stepped, self.looked, self.ended, self.points, self.answers = 0, 0, 0, 0, [], []
        self.mean, self.size = 0.0, 0.0 if self.loss.is_square else 1.0
        self.losses, self.most, self.running = np.zeros(ALL), np.full(ALL, self.loss.bound), 0.0

    def group(self, blocks, rung, prior, born=0, kept=1.0):
        return Function(np.full(2 * self.inputs.size * len(blocks), prior * len(blocks)), kept, blocks, rung, born)

    def scores(self, t, s, seen, moved=0.0):
        """Return all f_k(x); the same with no bound on the linear one; and φ of each group."""
        phi = [self.inputs.features(group.blocks, t, MULTIPLES[group.rung]) for group in self.groups]
        phi = [z * (seen > min(group.blocks, default=0)) for z, group in zip(phi, self.groups, strict=True)]
        f = [(z @ group.newton, z @ group.steady) for z, group in zip(phi, self.groups, strict=True)]
        raw = self.line.newton @ s - moved
        if self.loss.is_square:  # a line that explains more of the targets may predict further from their mean
            reach = 2 * self.size**1.5 / max(self.line.error, 1e-9 * self.size) if self.size else 20
        line = np.clip(raw, -reach, reach) if self.loss.is_square else 4 * np.tanh(raw / 2)
        windows = ((500, 1), (2000, 1000), (8192, 4000))  # of the last examples, from a number of them on
        near = [self.near(t, last) if len(self.points) >= least else 0.0 for last, least in windows]
        return *(np.r_[np.transpose(f).ravel(), self.level, part, near] for part in (line, raw)), phi

    def near(self, t, last):
        """f = Σ ω_i (y_i - ȳ), or log(Σ_{y_i = 1} ω_i / Σ_{y_i = -1} ω_i), ω_i ~ 1/d_i⁴, of the 8 nearest."""
        squares = np.square(self.points[-last:] - t).sum(axis=1)
        nearest = np.argsort(squares)[:8]
        weights, y = np.maximum(squares[nearest], 1e-12) ** -2, np.array(self.answers[-last:])[nearest]
        no, yes = (len(y) * weights @ (y == c) / weights.sum() + 0.5 for c in (-1, 1))
        return weights @ y / weights.sum() - self.mean if self.loss.is_square else np.log(yes / no)

    def predict(self, x):
        return self.v @ self.scores(*self.inputs.read(x), max(1, self.seen))[0] + self.mean

    def see(self, x, y, is_new):
        """Let each function learn r = y - ȳ: by a Newton step when it is due, or by a constant one, w ← w - γℓ'φ."""
        (t, s), n = self.inputs.read(x), self.seen + 1
        moved = (y - self.mean) / n * self.loss.is_square
        self.seen, self.mean = n, self.mean + moved
        r, moved = y - self.mean, moved * (n > 1)
        f, raw, phi = self.scores(t, s, n, moved)
        self.size += (r**2 - self.size) / min(n, 1000) * self.loss.is_square
        self.running += (self.loss.at(self.v @ f, r)[0] - self.running) / min(n, 1000)
        if is_new and self.size > 0:
            self.weigh(f, r)
        losses, _, _ = self.loss.at(np.where(np.arange(ALL) == LEVEL, 0.0, f), r)  # f = 0 in place of the level
        self.losses += (losses - self.losses) / max(1, min(0.5 * (n - self.looked), 1000))
        _, g, h = self.loss.at(raw, r)
        g *= (share := clip(g, self.most))
        for k, (group, z) in enumerate(zip(self.groups, phi, strict=True)):
            group.waiting.append((z, g[k], h[k]))
            group.steady -= 0.75 / self.loss.curvature / max(len(group.blocks), 1) * g[k + GROUPS] * z
        self.level -= 0.075 / self.loss.curvature * g[LEVEL]
        self.line.newton[0] -= moved
        self.line.error += ((raw[LINE] - r) ** 2 - self.line.error) / min(n, 1000)
        self.line.step(s[None], g[[LINE]], share[LINE] * h[LINE])
        if n % 8 == 0:
            self.line.step(0 * s[None], np.zeros(1), 0, 8, 8 * len(s), np.arange(len(s)) == n // 8 % len(s))
        self.points.append(t)
        self.answers.append(y)
        longer = 1 if is_new or n == len(self.first) else 12
        if (batch := n - self.stepped) >= 8 * min(max(longer * n // 256, 1), 8):
            for group in self.groups:
                S, T = (max(batch, min(len(group.A), int(c / max(1 - group.kept, 1e-9)))) for c in (0.1, 1.0))
                S, T = (turn if n // turn > self.stepped // turn else 0 for turn in (S, T))
                group.step(*(np.array(part) for part in zip(*group.waiting, strict=True)), S, T)
                group.waiting = []
            self.stepped = n
        if n & (n - 1) == 0 and n > 1:
            self.grow(self.losses[:GROUPS])
            self.looked = n

    def weigh(self, f, r):
        """G ← G + ℓ''ffᵀ, u ← u - G⁻¹ℓ'f, p ← argmin_{p ≥ 0} (p - u)ᵀG(p - u), v = θu + (1 - θ)p, θ = 1/(1 + e^D)."""
        young = [0 < group.born > self.seen - 257 for group in self.groups]
        f = np.where([*young, *young, *[False] * (ALL - LEVEL)], 0.0, f)
        (loss, g, h), (of_p, _, _) = (self.loss.at(np.array([w @ f]), r) for w in (self.u, self.p))
        kept, more, unit = 0.9995 ** (ALL * (self.seen % ALL == 1)), max(self.size - self.largest, 0.0), np.eye(ALL)
        self.G = kept * (self.G + 10 * more * unit + h * np.outer(f, f)) + (1 - kept) * 10 * self.size * unit
        self.largest += more
        self.u = self.u - np.linalg.solve(self.G, clip(g, self.most_of_u) * g * f)
        self.lead = np.clip(0.9995 * self.lead + (loss - of_p)[0] / self.size, -10, 10)
        self.mix(sweeps=1)

    def mix(self, sweeps):
        for k in [*range(ALL)] * sweeps:
            self.p[k] = max(0.0, self.p[k] - self.G[k] @ (self.p - self.u) / self.G[k, k])
        self.v = self.p + (self.u - self.p) / (1 + np.exp(self.lead))

    def pays(self, k):
        """Whether the second half of the features of block k reduces the loss by PAYS, without fitted noise."""
        A, w, size = self.groups[k].A, self.groups[k].newton, self.inputs.size
        ridge, half = self.groups[k].prior[0], np.arange(2 * size) % size < size // 2
        b, H = A @ w, A[half][:, half]
        gain = (b @ w - b[half] @ np.linalg.solve(H, b[half])) / 2
        freedom = len(A) - len(H) - ridge * (np.trace(np.linalg.inv(A)) - np.trace(np.linalg.inv(H)))
        noise = self.loss.curvature * freedom / (np.trace(A) - ridge * len(A))
        needed = (1 + noise) * self.losses[k] - (1 - PAYS) * min(self.losses[k], self.losses[LINE])
        return gain > (self.stepped - self.groups[k].born) * needed

    def needless(self, staying):
        """The single block without which ½Σ(uᵀf - y)² grows least, if by little: ½u_Kᵀ((G⁻¹)_KK)⁻¹u_K for its f_K."""
        inverse, costs = np.linalg.inv(self.G), {}
        for k in {*range(4)} - {*staying}:
            if self.seen - self.groups[k].born >= 2 * len(self.groups[k].A) > 0:
                K = [k, k + GROUPS]
                costs[k] = self.u[K] @ np.linalg.solve(inverse[np.ix_(K, K)], self.u[K]) / 2
        few = NEEDLESS * self.running * (1 - 0.9995**self.seen) / 0.0005
        return [k for k in costs if costs[k] == min(costs.values()) < few]

    def grow(self, losses):
        """Begin a larger group if the largest one is the best, end it if a smaller one is as good, end a single block
        that is not needed, and forget in the features of the better inner block.
        """
        new, sizes = {}, np.array([len(group.blocks) for group in self.groups[:6]])
        single = np.where(sizes[:4] > 0, losses[:4], np.inf)
        rung, inner, count = np.argmax((1 - GAIN) * single <= single.min()), 1 + np.argmin(single[1:3]), sizes.max()
        largest, best = self.groups[sizes.argmax()], losses[:6][(sizes > 0) & (sizes < count)].min(initial=np.inf)
        gain = 1 - losses[sizes.argmax()] / best
        moves = self.seen >= 512 and single[inner] < (1 - GAIN) * losses[self.groups[6].rung]
        may_grow = self.seen >= max(FROM, 2 * self.ended) and count < 8
        if may_grow and (self.pays(single.argmin()) if count == 1 else gain > GAIN):
            prior = self.groups[rung].prior[0] * np.clip(losses.min() / self.losses[LEVEL], 0.01, 1.0)
            k, first = (4, 4) if count == 2 else (5, 8)
            new[k] = self.group(range(first, first + 2 * count), rung, prior, self.seen)
        elif count > 1 and gain <= WORTH and self.seen // 2 - largest.born >= 2 * len(largest.A):
            new[int(sizes.argmax())], self.ended = self.group([], 0, 0), self.seen
        elif self.seen >= FROM:
            ends = 0 if single.argmin() == 3 else 3  # which could have a metric
            for k in self.needless([single.argmin(), ends, inner if moves else self.groups[6].rung]):
                new[k] = self.group([], k, 0)
        if moves:
            new[6] = self.group([inner], inner, self.groups[inner].prior[0], self.seen, self.groups[6].kept)
        if new:  # functions that resemble those that end take over their weights
            stay = np.setdiff1d(np.arange(ALL), gone := [*new, *(k + GROUPS for k in new)])
            self.groups = [new.get(k, group) for k, group in enumerate(self.groups)]
            moment, G = (self.G @ self.u)[stay], self.G[np.ix_(stay, stay)]
            self.G, self.u = 10 * self.size * np.eye(ALL), np.zeros(ALL)
            self.G[np.ix_(stay, stay)], self.u[stay] = G, np.linalg.solve(G, moment)
            self.p, self.losses[gone], self.most[gone] = np.maximum(self.u, 0.0), 0.0, self.loss.bound
            self.mix(sweeps=100)
