"""The default strategy written a second time, with numpy and scipy, from docs/defender.md and
the literature and not from the Go code: what share of the runs of undisturbed chambers raises
an alarm. Prints a JSON object: process -> [alarms, judged runs] of each chamber.

    python independent.py SEED CHAMBERS RUNS PROCESS...
"""

import json
import sys

import numpy as np
from scipy import stats

SENSORS, STEPS, ROWS = 20, 2, 25
BUDGET = 0.005  # of single charts, and of T2 and Q together
PHASE1, WINDOW, ENOUGH = 50, 25, 10
MODEL_WINDOW, MODEL_ENOUGH, REFIT, VARIANCE = 50, 20, 16, 0.8
HISTORY, CLEAR = 100, 3
CHARTS = 3 * SENSORS * STEPS
BOUND = 3.5  # robust sigmas of a variable in T2 and Q
MOST_CHARTS = 60  # that a course is concluded from
MOST_WORK, FOLDS = 6_000_000, 10  # of cross-validation that leaves out one run at a time; else tenths


def levels(process, rng, runs):
    """Levels of the sensors in each run, in sigmas."""
    kind, _, parameter = process.partition(":")
    z = rng.standard_normal((runs, SENSORS))
    if kind == "normal":
        return z
    if kind == "student":
        f = int(parameter)
        return rng.standard_t(f, (runs, SENSORS)) / np.sqrt(f / (f - 2))
    if kind == "autoregressive":
        phi = float(parameter)
        for t in range(1, runs):
            z[t] = phi * z[t - 1] + np.sqrt(1 - phi**2) * z[t]
        return z
    raise SystemExit(f"unknown process {process}")


def statistics(process, rng, runs):
    """Mean, standard deviation and slope of each sensor in each step: runs x 3 x 40."""
    out = np.empty((runs, 3, SENSORS * STEPS))
    t = np.arange(ROWS) - (ROWS - 1) / 2
    bases = rng.uniform(100, 1000, SENSORS)
    for run, level in enumerate(levels(process, rng, runs)):
        x = rng.standard_normal((SENSORS, STEPS, ROWS)) + (bases + level)[:, None, None]
        out[run, 0] = x.mean(axis=2).ravel()
        out[run, 1] = x.std(axis=2, ddof=1).ravel()
        out[run, 2] = (x @ t / (t @ t)).ravel()
    return out


def within(points):
    """What noise within the runs alone makes of each statistic."""
    s = np.sqrt((points[:, 1] ** 2).mean(axis=0))
    return np.stack([s / np.sqrt(ROWS), s / np.sqrt(2 * ROWS), s / np.sqrt(ROWS**3 / 12)])


def individuals(x):
    return x.mean(axis=0), np.abs(np.diff(x, axis=0)).mean(axis=0) / 1.128


def multiple(probability, n):
    return stats.t.ppf(1 - probability / 2, (n - 1) / (2 * 0.826))


def between(x, block):
    """Variance of block means beyond that within blocks, over it; the mean over charts."""
    count, n = block.max() + 1, len(x)
    means = np.stack([x[block == b].mean(axis=0) for b in range(count)])
    sizes = np.bincount(block)
    inside = ((x - means[block]) ** 2).sum(axis=0) / (n - count)
    across = (sizes[:, None] * (means - x.mean(axis=0)) ** 2).sum(axis=0) / (count - 1)
    ratio = (across / inside).mean() * (n - count - 2) / (n - count)
    return max(0, (ratio - 1) / ((n - (sizes**2).sum() / n) / (count - 1)))


def course(x):
    """How charts (runs x charts) depend on the runs before: None, a correlation, or "wandering"."""
    n = len(x)
    if n < 10:
        return None
    x = x[:, :: -(-x.shape[1] // MOST_CHARTS)]
    sensors = min(SENSORS, x.shape[1])
    d = x - x.mean(axis=0)
    phi = ((d[1:] * d[:-1]).sum(axis=0) / (d**2).sum(axis=0)).mean()
    phi = np.clip((phi + 1 / n) / (1 - 4 / n), 0, 0.98)
    kind, left = None, 1
    count = n // 10
    if count >= 2:
        error = np.sqrt(2 / (count - 1)) * count / n
        if between(x, np.arange(n) * count // n) >= 0.1 + 2 * error / np.sqrt(sensors):
            kind, left = "wandering", unexplained("wandering", x)
    if phi >= 0.2 + 2 / np.sqrt(sensors * n) and unexplained(phi, x) < min(left, 0.93):
        kind = phi
    return kind


def unexplained(kind, x):
    e = forecasts(kind, x, x.mean(axis=0))[0] - x
    return ((e[5:] ** 2).sum(axis=0) / ((x - x.mean(axis=0))[5:] ** 2).sum(axis=0)).mean()


def forecasts(kind, x, center):
    """What each run is expected to be by those before it, NaN if nothing is, and the state."""
    expected = np.full_like(x, np.nan)
    if kind == "wandering":
        level = np.zeros_like(center)
        for i, run in enumerate(x):
            if i >= 5:
                expected[i] = level
            level = level + (run - level) * (0.2 if i >= 5 else 1 / (i + 1))
        return expected, level
    expected[1:] = center + kind * (x[:-1] - center)
    return expected, x[-1]


def ahead(kind, state, center, runs):
    """The forecast of the run that many after the newest, and its sigmas."""
    h = min(runs, 25)
    if kind == "wandering":
        return state, np.sqrt(1 + (h - 1) * 0.04)
    remains = kind**h
    return center + remains * (state - center), np.sqrt((1 - remains**2) / (1 - kind**2))


def left_out(x, expected, floor):
    """How far out each run is by the limits that all others give; NaN where nothing is expected."""
    known = np.flatnonzero(~np.isnan(x[:, 0]))
    far = np.full_like(x, np.nan)
    n = len(known)
    for i in known:
        center, sigma = individuals(x[known[known != i]])
        center = 0 if expected else center
        far[i] = np.abs(x[i] - center) / (np.maximum(sigma, floor) * np.sqrt(1 + 1 / (n - 1)))
    return far


def tail(far, contexts):
    """How far out a run is with a probability: Tukey's h, from the runs beyond a threshold. Sigma
    is known, or that of so many contexts."""
    n = len(far)
    if n < 10:
        return None
    spared, far = n // 25, np.sort(far)[::-1]
    k = min(int(0.4 * n), 10 + spared)
    at = np.maximum(np.arange(k), spared)

    def usual(p):
        each = -np.expm1(np.log1p(-p) / CHARTS)
        return multiple(each, contexts) if contexts else stats.norm.isf(each / 2)

    share, z = (k + 0.5) / n, usual((at + 0.5) / n)
    start = usual(share)
    h = max(0, np.log(far[at] / far[k] * start / z).sum() / ((z**2 - start**2) / 2).sum())

    def limit(p):
        z, runs, decades = usual(p), k - spared, np.log(share / p)
        doubt = 1 if contexts else runs * np.expm1(decades / runs) / decades
        return far[k] * z / start * np.exp(h * doubt * (z**2 - start**2) / 2)

    return limit


class Single:
    """Individuals charts, by the newest runs until Phase I is over and by Phase I then."""

    def __init__(self):
        self.frozen = None

    def out(self, points, run, ahead_by):
        if self.frozen is None and len(points) >= PHASE1:
            self.frozen = self.estimate(points[:PHASE1], True)
        newest = points[-WINDOW:]
        center, sigma, n, kinds, far = self.frozen or self.estimate(newest, False)
        factor = np.ones_like(center)
        expected = center.copy()
        for s, kind in enumerate(kinds):
            if kind is not None:
                state = forecasts(kind, newest[:, s], center[s])[1]
                expected[s], factor[s] = ahead(kind, state, center[s], ahead_by)
        each = BUDGET / sigma.size
        usual = multiple(each, PHASE1 if self.frozen else len(newest))
        limit = usual
        if far is not None:
            limit = max(limit, far(BUDGET))
        wide = multiple(each, n) / usual if self.frozen else 1
        return bool((np.abs(run - expected) > limit * wide * factor * sigma * np.sqrt(1 + 1 / n)).any())

    def estimate(self, points, screened):
        floor = within(points)
        kinds = [course(points[:, s]) for s in range(3)]
        x = points.copy()
        middle = points.mean(axis=0)
        for s, kind in enumerate(kinds):
            if kind is not None:
                x[:, s] -= forecasts(kind, points[:, s], middle[s])[0]
        center, sigma, n = self.phase1(x, floor) if screened else self.all(x, floor)
        if screened:
            far = np.abs(x - center) / (sigma * np.sqrt(1 + 1 / n))
        else:
            far = np.stack([left_out(x[:, s], kind is not None, floor[s]) for s, kind in enumerate(kinds)], axis=1)
        far = np.nanmax(far, axis=(1, 2))
        for s, kind in enumerate(kinds):
            if kind is not None:
                center[s] = middle[s]
        return center, sigma, n, kinds, tail(far, 0 if screened else len(points))

    @staticmethod
    def all(points, floor):
        center, sigma, n = np.empty_like(floor), np.empty_like(floor), np.empty_like(floor)
        for s in range(3):
            x = points[:, s]
            x = x[~np.isnan(x[:, 0])]
            center[s], sigma[s] = individuals(x)
            n[s] = len(x)
        return center, np.maximum(sigma, floor), n

    @staticmethod
    def phase1(points, floor):
        center, sigma, n = np.empty_like(floor), np.empty_like(floor), np.empty_like(floor)
        for at in np.ndindex(floor.shape):
            x = points[(slice(None), *at)]
            x = x[~np.isnan(x)]
            kept = x
            while True:
                middle = np.median(kept)
                spread = max(np.median(np.abs(kept - middle)) * 1.4826, floor[at])
                again = kept[np.abs(kept - middle) <= 5 * spread]
                if len(again) == len(kept):
                    break
                kept = again
            if len(kept) < 0.75 * len(x):
                kept = x
            c, s = individuals(kept)
            center[at], sigma[at], n[at] = c, max(s, floor[at]), len(kept)
        return center, sigma, n


def model(x):
    """Principal components of runs: center, scale, loadings and eigenvalues."""
    center, scale = x.mean(axis=0), x.std(axis=0, ddof=1)
    u = (x - center) / scale
    _, singular, vt = np.linalg.svd(u, full_matrices=False)
    values = singular**2 / (len(x) - 1)
    values = values[: len(x) - 1]
    k = int(np.searchsorted(np.cumsum(values) / values.sum(), VARIANCE - 1e-12) + 1)
    k = min(k, len(x) // 3)
    return center, scale, vt[:k], values[:k]


def score(m, run):
    center, scale, loads, values = m
    u = (run - center) / scale
    scores = loads @ u
    return (scores**2 / values).sum(), ((u - scores @ loads) ** 2).sum()


class Components:
    """T2 and Q of a model that is trained after each 16 runs."""

    def __init__(self):
        self.key = None

    @staticmethod
    def variables(points, unit):
        return np.concatenate([points[:, 0], np.log(points[:, 1] / unit + 0.3)], axis=1)

    def out(self, points, numbers, last, run, ahead_by):
        base = points
        every = REFIT
        while every > 1:
            until = int(np.searchsorted(numbers, last // every * every, side="right"))
            if until >= MODEL_ENOUGH:
                base = points[:until]
                break
            every //= 2
        base = base[-MODEL_WINDOW:]
        if len(base) < MODEL_ENOUGH:
            return False
        key = base.tobytes()
        if key != self.key:
            self.key, self.trained = key, self.train(base)
        unit, m, limits, kinds, center, usual = self.trained
        x, newest = self.variables(run[None], unit)[0], self.variables(points[-25:], unit)
        for kind, part in kinds:
            state = forecasts(kind, newest[:, part], center[part])[1]
            expected, factor = ahead(kind, state, center[part], ahead_by)
            x[part] = (x[part] - expected) / factor
        return bool((np.array(score(m, bounded(x, usual))) > limits).any())

    def train(self, base):
        unit = np.sort(base[:, 1], axis=0)[(len(base) - 1) // 2]
        x = self.variables(base, unit)
        center, kinds = x.mean(axis=0), []
        for part in (slice(0, SENSORS * STEPS), slice(SENSORS * STEPS, None)):
            kind = course(x[:, part])
            if kind is not None:
                kinds.append((kind, part))
                x[:, part] = x[:, part] - forecasts(kind, x[:, part], center[part])[0]
        x = x[~np.isnan(x).any(axis=1)]
        n, p = x.shape
        ranked = np.sort(x, axis=0)
        usual = ranked[n // 2], (ranked[3 * n // 4] - ranked[n // 4]) / (2 * stats.norm.ppf(0.75))
        x = bounded(x, usual)
        folds = n if n**3 * (n + p) <= MOST_WORK else FOLDS
        left_out = np.empty((n, 2))
        for i in range(folds):
            part = np.arange(n) % folds == i
            m = model(x[~part])
            left_out[part] = [score(m, run) for run in x[part]]
        m = model(x)
        t2, q = (box(left_out[:, i], BUDGET / 2) for i in range(2))
        f = stats.f(len(m[3]), n - len(m[3]))
        t2 = max(t2, left_out[:, 0].mean() * f.isf(BUDGET / 2) / f.mean())
        return unit, m, np.array([t2, q]), kinds, center, usual


def bounded(x, usual):
    """Variables with what lies beyond the bound by its logarithm."""
    middle, spread = usual
    far = np.abs(x - middle) / spread
    near = BOUND + np.log1p(np.maximum(far - BOUND, 0))
    return np.where(far > BOUND, middle + np.sign(x - middle) * spread * near, x)


def box(x, alpha):
    mean, variance = x.mean(), x.var(ddof=1)
    return variance / (2 * mean) * stats.chi2.ppf(1 - alpha, 2 * mean**2 / variance)


def chamber(process, rng, runs):
    """Alarms and judged runs of one chamber."""
    data = statistics(process, rng, runs)
    single, components = Single(), Components()
    quiet, numbers = [], []  # runs that limits may rest on, and their numbers
    pending = []  # unflagged runs while an alarm stands
    standing, normal_in_a_row, number, alarms, judged = False, 0, 0, 0, 0
    held = 0  # the number of the newest run before the alarm
    for t in range(runs):
        enough = len(quiet) >= ENOUGH
        alarm = False
        if enough:
            points = data[quiet[-HISTORY:]]
            last = held if standing else number
            since = t - quiet[-1]
            alarm = components.out(points, np.array(numbers[-HISTORY:]), last, data[t], since)
            alarm = single.out(points, data[t], since) or alarm
            judged += 1
            alarms += alarm
        if alarm:
            if not standing:
                standing, held = True, number
            normal_in_a_row = 0
            continue
        number += 1
        if not standing:
            quiet.append(t)
            numbers.append(number)
            continue
        pending.append((t, number))
        normal_in_a_row += 1
        if normal_in_a_row >= CLEAR:
            standing = False
            quiet += [run for run, _ in pending]
            numbers += [n for _, n in pending]
            pending = []
    return alarms, judged


def main():
    seed, chambers, runs = (int(a) for a in sys.argv[1:4])
    result = {}
    for process in sys.argv[4:]:
        children = np.random.SeedSequence([seed, *process.encode()]).spawn(chambers)
        result[process] = [chamber(process, np.random.default_rng(c), runs) for c in children]
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
