"""Walking a search space: all points, random points, neighbours. Constraints are always respected."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilesmith.solvers.solver import Config, SearchSpace

ENUMERATE = 20_000  # products of axes up to this many points are listed whole
HOPELESS = 10.0


@dataclass(frozen=True)
class SolverSpace:
    """One accepted candidate of the solver table: its name, its space, its default and its cost model (seconds).

    ``ranked`` are the points that the solver itself proposes, the most promising first; where there are none, they are
    drawn.
    """

    name: str
    space: SearchSpace
    default: Config
    predict: Callable[[Config], float]
    ranked: Callable[[], Sequence[Config]] = tuple

    @cached_property
    def order(self) -> tuple[Config, ...]:
        """The result of ``ranked``, asked once."""
        return tuple(self.ranked())

    @property
    def is_drawn(self) -> bool:
        """Whether its points are drawn at random: the solver does not rank them, and they are too many to be listed."""
        return product_size(self.space) > ENUMERATE and not self.order

    def promising(self, rng: random.Random, count: int) -> list[Config]:
        """Up to ``count`` points of the space."""
        if self.order:
            return list(self.order[:count])
        found = some_points(self.space, self.default, rng, count)
        return found if len(found) <= count else rng.sample(found, count)


def worthwhile(solvers: Sequence[SolverSpace]) -> list[SolverSpace]:
    """The spaces, without solvers whose default is predicted ``HOPELESS`` times slower than the best default."""
    predicted = [solver.predict(solver.default) for solver in solvers]
    return [solver for solver, seconds in zip(solvers, predicted, strict=True) if seconds <= HOPELESS * min(predicted)]


@dataclass(frozen=True)
class Point:
    """A config of one solver."""

    solver: str
    config: Config

    def __str__(self) -> str:
        return f"{self.solver} {self.config}".rstrip()


def product_size(space: SearchSpace) -> int:
    """Points before constraints."""
    return math.prod(len(values) for values in space.axes.values())


def points(space: SearchSpace) -> Iterator[Config]:
    """Every allowed point, in the order of the axes."""
    names = tuple(space.axes)
    for values in itertools.product(*space.axes.values()):
        config = Config(tuple(zip(names, values, strict=True)))
        if space.allowed(config):
            yield config


def random_point(space: SearchSpace, rng: random.Random, attempts: int = 200) -> Config | None:
    """An allowed point; None if none was met."""
    for _ in range(attempts):
        config = Config(tuple((name, rng.choice(values)) for name, values in space.axes.items()))
        if space.allowed(config):
            return config
    return None


def some_points(space: SearchSpace, default: Config, rng: random.Random, count: int) -> list[Config]:
    """All points of a small space; of a large one the default, its neighbours and random points, ``count`` at most."""
    if product_size(space) <= ENUMERATE:
        return list(points(space))
    found = dict.fromkeys([default, *neighbours(space, default)])
    for _ in range(count):
        if len(found) >= count:
            break
        config = random_point(space, rng)
        if config is not None:
            found[config] = None
    return list(found)


def neighbours(space: SearchSpace, config: Config) -> list[Config]:
    """Allowed points that differ in one axis; on each axis the nearest values first."""
    found: list[tuple[int, int, Config]] = []
    for number, (name, values) in enumerate(space.axes.items()):
        here = values.index(config[name])
        for index, value in enumerate(values):
            moved = config.replace(**{name: value})
            if index != here and space.allowed(moved):
                found.append((abs(index - here), number, moved))
    return [moved for _, _, moved in sorted(found, key=lambda item: item[:2])]


def mutate(space: SearchSpace, config: Config, rng: random.Random) -> Config:
    """One or two axes at new random values; the point itself if constraints leave no way."""
    movable = [name for name, values in space.axes.items() if len(values) > 1]
    for _ in range(50 if movable else 0):
        names = rng.sample(movable, min(len(movable), rng.choice((1, 1, 2))))
        moved = config.replace(**{name: rng.choice(space.axes[name]) for name in names})
        if moved != config and space.allowed(moved):
            return moved
    return config


def cross(space: SearchSpace, a: Config, b: Config, rng: random.Random) -> Config:
    """Each axis from one of two parents; the first parent if constraints leave no way."""
    for _ in range(20):
        child = Config(tuple((name, rng.choice((value, b[name]))) for name, value in a.values))
        if space.allowed(child):
            return child
    return a
