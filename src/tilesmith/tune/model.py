"""The default strategy: the cost model ranks, measurement decides, and what was measured corrects the model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilesmith.tune.space import Point, SolverSpace, neighbours
from tilesmith.tune.strategies import BaseStrategy
from tilesmith.tune.surrogate import Posterior, condition, fit, one_thread

POOL = 2000  # points of one solver that are ranked, at most
CAUTION = (0.3, 1.0, 1.7)  # standard deviations of optimism, in turn
STEP = 300  # of them at a time, where drawing takes a while: half a millisecond each
CLOSE = 2.0  # a solver whose best config is this many times slower than the fastest is searched no further
GAIN = math.log(0.99)  # a search goes on while 1 % may be gained ...
CHANCE = 2.0  # ... at a point that is this many standard deviations off at most


class Model(BaseStrategy):
    """Ranks all solvers' points by prediction times learnt correction, and looks around the best points.

    Each batch takes a third from the neighbours of the fastest points, the rest by optimism in the face of
    uncertainty. It ends when every neighbour of the best is known and no other point is likely to be 1 % faster.
    """

    def __init__(self, solvers: Sequence[SolverSpace], seed: int) -> None:
        super().__init__(solvers, seed)
        self._numbers = {name: number for number, name in enumerate(self.solvers)}
        self._axes = max(len(solver.space.axes) for solver in self.solvers.values())
        self._pool: list[Point] = []
        self._index: dict[Point, int] = {}
        self._predicted: list[float] = []
        self._steps: list[list[float]] = []
        self._first: list[Point] | None = None  # the defaults, as long as they are not asked
        self._growing: list[SolverSpace] | None = None  # whose points are drawn; None before the pool is filled

    def ask(self, count: int) -> list[Point]:
        if self._first is None:
            self._first = [point for point in self.defaults() if self.is_new(point)]
            self._first.sort(key=lambda point: self.solvers[point.solver].predict(point.config))
        if self._first:  # alone: they can be compiled while the pool is filled
            first, self._first = self._first[:count], self._first[count:]
            self.asked.update(first)
            return first
        return self._propose(count, -(-count // 3) if self.times else 0)

    def _propose(self, count: int, around_share: int) -> list[Point]:
        self._fill()
        for point in [*self.times, *self.failed]:
            self._add(point)
        around = self._around()
        self._extend(around)
        with one_thread():
            posterior = self._posterior()
            chosen = self._choose(posterior, [self._index[point] for point in around], around_share)
            everything = range(len(self._pool))
            chosen += self._choose(posterior, everything, count - len(chosen))
        return [self._pool[index] for index in chosen]

    # --- the pool -------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """The defaults and what solvers rank or can list; what has to be drawn grows from call to call."""
        if self._growing is None:
            self._growing = [solver for solver in self.solvers.values() if solver.is_drawn]
            for solver in self.solvers.values():
                count = STEP if solver.is_drawn else POOL
                self._extend([Point(solver.name, config) for config in solver.promising(self.rng, count)])
            self._extend([*self.defaults(), *sorted(self.asked, key=str)])
            return
        best = min(self.times.values(), default=math.inf)
        for solver in self._growing:
            mine = [seconds for point, seconds in self.times.items() if point.solver == solver.name]
            size = sum(point.solver == solver.name for point in self._pool)
            if size < POOL and mine and min(mine) <= CLOSE * best:
                self._extend([Point(solver.name, config) for config in solver.promising(self.rng, STEP)])

    def _extend(self, found: Sequence[Point]) -> None:
        for point in found:
            self._add(point)

    def _add(self, point: Point) -> None:
        solver = self.solvers.get(point.solver)
        if point in self._index or solver is None:
            return
        steps = [float(values.index(point.config[name])) for name, values in solver.space.axes.items()]
        self._index[point] = len(self._pool)
        self._pool.append(point)
        self._predicted.append(math.log(max(solver.predict(point.config), 1e-12)))
        self._steps.append(steps + [0.0] * (self._axes - len(steps)))

    def _around(self) -> list[Point]:
        """New neighbours of the three fastest points."""
        found: list[Point] = []
        for start in self.best(3):
            space = self.solvers[start.solver].space
            found += [Point(start.solver, config) for config in neighbours(space, start.config)]
        return [point for point in dict.fromkeys(found) if self.is_new(point)]

    # --- the choice -----------------------------------------------------------------------------------------------

    def _posterior(self) -> Posterior:
        solvers = np.array([float(self._numbers[point.solver]) for point in self._pool])
        steps = np.array(self._steps)
        known = [point for point in self.times if point in self._index]
        slow = math.log(2 * max(self.times.values())) if self.times else 0.0
        logs = [math.log(self.times[point]) for point in known]
        # A config that fails says: stay away. It counts as twice as slow as the slowest.
        bad = [point for point in self.failed if point in self._index] if self.times else []
        at = np.array([self._index[point] for point in [*known, *bad]], dtype=np.intp)
        values = np.array(logs + [slow] * len(bad))
        residuals = values - np.array(self._predicted)[at] if len(at) else np.zeros(0)
        kernel = fit(solvers[at], steps[at], residuals)
        posterior = condition(kernel, solvers[at], steps[at], residuals, solvers, steps)
        for point in self.asked:  # asked, not told yet
            if point not in self.times and point not in self.failed:
                posterior.settle(self._index[point])
        return posterior

    def _choose(self, posterior: Posterior, among: Sequence[int], count: int) -> list[int]:
        """New points with the least optimistic estimate, one by one; none when the best is not likely to be beaten."""
        fresh = np.array([index for index in among if self.is_new(self._pool[index])], dtype=np.intp)
        predicted = np.array(self._predicted)
        # A lucky measurement is no goal: what the model makes of the known points is.
        known = np.array([self._index[point] for point in self.times if point in self._index], dtype=np.intp)
        goal = float((predicted[known] + posterior.mean[known]).min()) + GAIN if len(known) else math.inf
        chosen: list[int] = []
        while len(chosen) < count and len(fresh):
            centre = predicted[fresh] + posterior.mean[fresh]
            deviation = np.sqrt(posterior.variance[fresh])
            hopeful = centre - CHANCE * deviation < goal
            if not hopeful.any():
                break
            score = centre - CAUTION[len(chosen) % len(CAUTION)] * deviation
            at = int(np.argmin(np.where(hopeful, score, np.inf)))
            index = int(fresh[at])
            chosen.append(index)
            self.asked.add(self._pool[index])
            posterior.settle(index)
            fresh = np.delete(fresh, at)
        return chosen
