"""Strategies: what to measure next. ``ask`` for points, ``tell`` their times; the same seed asks the same.

Every strategy begins with the default of each solver, so a search that ends early has at least those.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tilesmith.tune.space import Point, SolverSpace, cross, mutate, neighbours, points, random_point, some_points


class Strategy(Protocol):
    """A way through the search spaces of all solvers at once."""

    solvers: Mapping[str, SolverSpace]

    def ask(self, count: int) -> list[Point]:
        """Up to ``count`` points never asked before; none: there is nothing left worth measuring."""
        ...

    def tell(self, point: Point, seconds: float | None) -> None:
        """Record a point's time; None if it failed. Points of an earlier search, never asked here, may be told too."""
        ...

    def expect(self, points: Sequence[Point]) -> None:
        """Name points whose times come without ``ask``; called before the first ``ask``."""
        ...


class BaseStrategy:
    """The state that all strategies share: the points asked, the times known. Defaults are asked first."""

    def __init__(self, solvers: Sequence[SolverSpace], seed: int) -> None:
        self.solvers: Mapping[str, SolverSpace] = {solver.name: solver for solver in solvers}
        self.rng = random.Random(seed)
        self.asked: set[Point] = set()
        self.times: dict[Point, float] = {}
        self.failed: set[Point] = set()
        self._source = self.proposals()

    def proposals(self) -> Iterator[Point]:
        """The points in the order of asking; may repeat what was asked (it is skipped)."""
        yield from self.defaults()

    def ask(self, count: int) -> list[Point]:
        found: list[Point] = []
        for point in self._source:
            if self.is_new(point):
                self.asked.add(point)
                found.append(point)
            if len(found) == count:
                break
        return found

    def tell(self, point: Point, seconds: float | None) -> None:
        if seconds is None:
            self.failed.add(point)
        else:
            self.times[point] = seconds

    def expect(self, points: Sequence[Point]) -> None:
        self.asked.update(points)

    def is_new(self, point: Point) -> bool:
        """True if the point was neither asked nor told."""
        return point not in self.asked and point not in self.times and point not in self.failed

    def defaults(self) -> Iterator[Point]:
        for solver in self.solvers.values():
            yield Point(solver.name, solver.default)

    def best(self, count: int, solver: str | None = None) -> list[Point]:
        """The fastest points known, ties in the order of names."""
        known = [point for point in self.times if solver is None or point.solver == solver]
        return sorted(known, key=lambda point: (self.times[point], str(point)))[:count]


class Defaults(BaseStrategy):
    """The default of each solver and no more: what a first call measures."""


class Exhaustive(BaseStrategy):
    """Every point of every solver, in order."""

    def proposals(self) -> Iterator[Point]:
        yield from self.defaults()
        for solver in self.solvers.values():
            for config in points(solver.space):
                yield Point(solver.name, config)


class Random(BaseStrategy):
    """Points drawn evenly from all solvers' points, without repetition."""

    def proposals(self) -> Iterator[Point]:
        yield from self.defaults()
        pool = [
            Point(solver.name, config)
            for solver in self.solvers.values()
            for config in some_points(solver.space, solver.default, self.rng, 4000)
        ]
        self.rng.shuffle(pool)
        yield from pool


class Local(BaseStrategy):
    """Coordinate descent: the neighbours of the best point, until all are known; then from the next solver's best.

    When every solver's best is a local optimum, it restarts at random points.
    """

    def proposals(self) -> Iterator[Point]:
        yield from self.defaults()
        while True:
            fresh = self._around_the_best()
            if fresh:
                yield from fresh[:8]  # a better point may be known by then
                continue
            restart = self._restart()
            if restart is None:
                return
            yield restart

    def _around_the_best(self) -> list[Point]:
        """Unknown neighbours of the best point of the fastest solver that has some."""
        for start in self.best(len(self.times)):
            if self.best(1, start.solver) != [start]:
                continue
            around = [Point(start.solver, c) for c in neighbours(self.solvers[start.solver].space, start.config)]
            fresh = [point for point in around if self.is_new(point)]
            if fresh:
                return fresh
        return []

    def _restart(self) -> Point | None:
        for _ in range(200):
            solver = self.rng.choice(list(self.solvers.values()))
            config = random_point(solver.space, self.rng)
            if config is not None and self.is_new(Point(solver.name, config)):
                return Point(solver.name, config)
        return None


class Evolutionary(BaseStrategy):
    """A population of the fastest points; children cross two parents of one solver, or mutate one."""

    population = 16

    def proposals(self) -> Iterator[Point]:
        yield from self.defaults()
        for _ in range(self.population):
            solver = self.rng.choice(list(self.solvers.values()))
            config = random_point(solver.space, self.rng)
            if config is not None:
                yield Point(solver.name, config)
        barren = 0
        while barren < 500:
            child = self._child()
            barren = barren + 1 if child is None or child in self.asked else 0
            if child is not None:
                yield child

    def _child(self) -> Point | None:
        parents = self.best(self.population)
        if not parents:
            solver = self.rng.choice(list(self.solvers.values()))
            config = random_point(solver.space, self.rng)
            return Point(solver.name, config) if config is not None else None
        # Rank selection: the fastest is the likeliest parent.
        first = parents[min(len(parents) - 1, int(self.rng.expovariate(4 / len(parents))))]
        space = self.solvers[first.solver].space
        mates = [point for point in parents if point.solver == first.solver and point != first]
        config = first.config
        if mates and self.rng.random() < 0.5:
            config = cross(space, config, self.rng.choice(mates).config, self.rng)
        if config == first.config or self.rng.random() < 0.5:
            config = mutate(space, config, self.rng)
        return Point(first.solver, config)
