"""Strategies: what to measure next. ``ask`` for points, ``tell`` their times; the same seed asks the same.

Every strategy begins with the default of each arm, so a search that ends early has at least those.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tilesmith.tune.space import Arm, Point, cross, mutate, neighbours, points, random_point, some_points


class Strategy(Protocol):
    """A way through the search spaces of all arms at once."""

    arms: Mapping[str, Arm]

    def ask(self, count: int) -> list[Point]:
        """Up to ``count`` points never asked before; none: there is nothing left worth measuring."""
        ...

    def tell(self, point: Point, seconds: float | None) -> None:
        """What a point took; None if it failed. Points that were never asked (an earlier search's) may be told too."""
        ...

    def expect(self, points: Sequence[Point]) -> None:
        """These will be told, and need not be asked; called before the first ``ask``."""
        ...


class Walk:
    """What all strategies share: what was asked, what is known, defaults first."""

    def __init__(self, arms: Sequence[Arm], seed: int) -> None:
        self.arms: Mapping[str, Arm] = {arm.name: arm for arm in arms}
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
        """Neither asked nor told."""
        return point not in self.asked and point not in self.times and point not in self.failed

    def defaults(self) -> Iterator[Point]:
        for arm in self.arms.values():
            yield Point(arm.name, arm.default)

    def best(self, count: int, arm: str | None = None) -> list[Point]:
        """The fastest points known, ties in the order of names."""
        known = [point for point in self.times if arm is None or point.arm == arm]
        return sorted(known, key=lambda point: (self.times[point], str(point)))[:count]


class Defaults(Walk):
    """The default of each arm and no more: what a first call measures."""


class Exhaustive(Walk):
    """Every point of every arm, in order."""

    def proposals(self) -> Iterator[Point]:
        yield from self.defaults()
        for arm in self.arms.values():
            for config in points(arm.space):
                yield Point(arm.name, config)


class Random(Walk):
    """Points drawn evenly from all arms' points, without repetition."""

    def proposals(self) -> Iterator[Point]:
        yield from self.defaults()
        pool = [
            Point(arm.name, config)
            for arm in self.arms.values()
            for config in some_points(arm.space, arm.default, self.rng, 4000)
        ]
        self.rng.shuffle(pool)
        yield from pool


class Local(Walk):
    """Coordinate descent: the neighbours of the best point, until all are known; then from the next arm's best.

    When every arm's best is a local optimum, it restarts at random points.
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
        """Unknown neighbours of the best point of the fastest arm that has some."""
        for start in self.best(len(self.times)):
            if self.best(1, start.arm) != [start]:
                continue
            around = [Point(start.arm, c) for c in neighbours(self.arms[start.arm].space, start.config)]
            fresh = [point for point in around if self.is_new(point)]
            if fresh:
                return fresh
        return []

    def _restart(self) -> Point | None:
        for _ in range(200):
            arm = self.rng.choice(list(self.arms.values()))
            config = random_point(arm.space, self.rng)
            if config is not None and self.is_new(Point(arm.name, config)):
                return Point(arm.name, config)
        return None


class Evolutionary(Walk):
    """A population of the fastest points; children cross two parents of one arm, or mutate one."""

    population = 16

    def proposals(self) -> Iterator[Point]:
        yield from self.defaults()
        for _ in range(self.population):
            arm = self.rng.choice(list(self.arms.values()))
            config = random_point(arm.space, self.rng)
            if config is not None:
                yield Point(arm.name, config)
        barren = 0
        while barren < 500:
            child = self._child()
            barren = barren + 1 if child is None or child in self.asked else 0
            if child is not None:
                yield child

    def _child(self) -> Point | None:
        parents = self.best(self.population)
        if not parents:
            arm = self.rng.choice(list(self.arms.values()))
            config = random_point(arm.space, self.rng)
            return Point(arm.name, config) if config is not None else None
        # Rank selection: the fastest is the likeliest parent.
        first = parents[min(len(parents) - 1, int(self.rng.expovariate(4 / len(parents))))]
        space = self.arms[first.arm].space
        mates = [point for point in parents if point.arm == first.arm and point != first]
        config = first.config
        if mates and self.rng.random() < 0.5:
            config = cross(space, config, self.rng.choice(mates).config, self.rng)
        if config == first.config or self.rng.random() < 0.5:
            config = mutate(space, config, self.rng)
        return Point(first.arm, config)
