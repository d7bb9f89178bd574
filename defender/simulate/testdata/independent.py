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


class Single:
    """Individuals charts, by the newest runs until Phase I is over and by Phase I then."""

    def __init__(self):
        self.frozen = None

    def out(self, points, run):
        if self.frozen is None and len(points) >= PHASE1:
            self.frozen = self.phase1(points[:PHASE1])
        if self.frozen is None:
            points = points[-WINDOW:]
            center, sigma = individuals(points)
            sigma = np.maximum(sigma, within(points))
            n = np.full(sigma.shape, len(points))
        else:
            center, sigma, n = self.frozen
        each = BUDGET / sigma.size
        return bool((np.abs(run - center) > multiple(each, n) * sigma * np.sqrt(1 + 1 / n)).any())

    @staticmethod
    def phase1(points):
        floor = within(points)
        center, sigma, n = np.empty_like(floor), np.empty_like(floor), np.empty_like(floor)
        for at in np.ndindex(floor.shape):
            x = points[(slice(None), *at)]
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

    def out(self, points, numbers, last, run):
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
        unit, m, limits = self.trained
        return bool((np.array(score(m, self.variables(run[None], unit)[0])) > limits).any())

    def train(self, base):
        unit = np.sort(base[:, 1], axis=0)[(len(base) - 1) // 2]
        x = self.variables(base, unit)
        n, p = x.shape
        folds = n if n**3 * (n + p) <= MOST_WORK else FOLDS
        left_out = np.empty((n, 2))
        for i in range(folds):
            part = np.arange(n) % folds == i
            m = model(x[~part])
            left_out[part] = [score(m, run) for run in x[part]]
        return unit, model(x), np.array([box(left_out[:, i], BUDGET / 2) for i in range(2)])


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
            alarm = components.out(points, np.array(numbers[-HISTORY:]), last, data[t])
            alarm = single.out(points, data[t]) or alarm
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
