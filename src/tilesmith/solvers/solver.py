"""Configs, search spaces, verdicts and base classes of solvers; ``solvers.contract`` says what a solver has to do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, cast

from tilesmith.problems.features import EVERYTHING
from tilesmith.problems.geometry import ConvGeometry, GemmGeometry
from tilesmith.solvers import reasons

Geometry = ConvGeometry | GemmGeometry
P = ParamSpec("P")
Answer = TypeVar("Answer")
Fit = TypeVar("Fit")
TileOf = TypeVar("TileOf", bound="Configured")
_REMEMBERED = 8192  # problems of each method, which up to four solvers share

if TYPE_CHECKING:
    cached_property = functools.cached_property
    steady = functools.cached_property
else:

    class cached_property(functools.cached_property):
        """``functools.cached_property`` without its lock: threads that ask at once may each compute the same value.

        NOTE: before Python 3.12 each property of a class has one lock for all of its objects. That lock took a third of
        the time of an estimate, which makes thousands of values for each problem.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value

    class steady(cached_property):
        """A value of a tile (``Configured``) that depends on none of the axes in its class's ``varied``.

        Tiles that ``changed`` makes of one another share it: the first that is asked computes it.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            own = instance.__dict__
            value = own[self.attrname] = instance._shared[self.attrname] = self.func(instance)
            return value


@dataclass(frozen=True)
class Accepted:
    """The solver can compute this problem on this target."""


@dataclass(frozen=True)
class Rejected:
    """It cannot; ``reason`` comes from ``solvers/reasons.py``, ``detail`` holds the numbers."""

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


@dataclass(frozen=True)
class Config:
    """One point of a search space: named integers in a fixed order. Printed as ``tile_h=2 vectors=3``."""

    values: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.values)

    def __getitem__(self, name: str) -> int:
        return dict(self.values)[name]

    def replace(self, **changes: int) -> Config:
        """The config with other values of some of its axes; ``KeyError`` for an axis that it has not."""
        named = dict(self.values)
        unknown = changes.keys() - named.keys()
        if unknown:
            raise KeyError(", ".join(sorted(unknown)))
        named.update(changes)
        return Config(tuple(named.items()))


def parse_config(text: str) -> Config:
    """The inverse of ``str(config)``."""
    return Config(tuple((name, int(value)) for name, value in (part.split("=") for part in text.split())))


@dataclass(frozen=True)
class Axis:
    """An axis of a search space, and one sentence about it.

    ``values`` are those that it has for any problem, of which a problem may have fewer; empty where they follow from
    the sizes of the problem.
    """

    name: str
    values: tuple[int, ...]
    says: str


def values_of(axes: Sequence[Axis]) -> dict[str, tuple[int, ...]]:
    """The values of each axis, by its name."""
    return {axis.name: axis.values for axis in axes}


@dataclass(frozen=True)
class SearchSpace:
    """Axes with their values, and the rule that a point must obey. ``axes`` keeps the config's order of names."""

    axes: Mapping[str, tuple[int, ...]]
    allowed: Callable[[Config], bool] = field(default=lambda config: True)

    def contains(self, config: Config) -> bool:
        named = dict(config.values)
        on_axes = all(named.get(name) in values for name, values in self.axes.items())
        return on_axes and len(named) == len(self.axes) and self.allowed(config)


def remembered(method: Callable[P, Answer]) -> Callable[P, Answer]:
    """A method of a solver, all of whose arguments are facts, that answers at once when it is asked again.

    The first answer about a problem takes as long as it takes to look through tiles: up to a quarter of a second. Each
    later one takes some microseconds, as long as a process meets no more than ``_REMEMBERED`` problems.
    """
    return cast(Callable[P, Answer], lru_cache(maxsize=_REMEMBERED)(method))


class Unranked:
    """A base for solvers without an order of their own."""

    def ranked(self, problem: Geometry, target: Any) -> Sequence[Config]:
        """None: a search draws points of the space."""
        return ()


class Plain(Unranked):
    """A base for the plain references: they compute every problem, and have one config."""

    revision = 1
    features = EVERYTHING
    axes: tuple[Axis, ...] = ()

    def applicable(self, problem: Geometry, target: Any) -> Accepted | Rejected:
        return Accepted()

    def search_space(self, problem: Geometry, target: Any) -> SearchSpace:
        return SearchSpace({})

    def default_config(self, problem: Geometry, target: Any) -> Config:
        return Config(())


@lru_cache(maxsize=64)
def _fields_of(record: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(record))


class Configured:
    """A base for tiles, which are dataclasses: ``value`` has the values of the config by the names of its axes.

    Tiles whose configs differ in ``varied`` axes alone are ``changed`` from one another.
    """

    config: Config
    varied: ClassVar[frozenset[str]] = frozenset()

    @cached_property
    def value(self) -> dict[str, int]:
        return dict(self.config.values)

    @cached_property
    def _shared(self) -> dict[str, Any]:
        """The fields but for the config, and the ``steady`` values that are known."""
        return {name: self.__dict__[name] for name in _fields_of(cast(Any, type(self))) if name != "config"}

    @steady
    def parts_of_cost(self) -> dict[Any, tuple[Any, Any]]:
        """The parts that ``steady_part`` keeps, each with the constants that it was computed with."""
        return {}

    def changed(self, **values: int) -> Self:
        """The tile of a config with other values of ``varied`` axes; ``KeyError`` for another axis."""
        if not values.keys() <= self.varied:
            raise KeyError(", ".join(sorted(values.keys() - self.varied)))
        tile = object.__new__(type(self))
        value = self.value | values
        tile.__dict__.update(self._shared, value=value, _shared=self._shared)
        return tile

    if not TYPE_CHECKING:  # which would believe in every name

        def __getattr__(self, name: str) -> Any:
            """The config of a changed tile: few are asked for theirs."""
            if name != "config":
                raise AttributeError(name)
            config = self.__dict__["config"] = Config(tuple(self.value.items()))
            return config


def steady_part(part: Callable[Concatenate[TileOf, Fit, P], Answer]) -> Callable[Concatenate[TileOf, Fit, P], Answer]:
    """A part of a tile's cost that depends on ``varied`` axes by way of its numbers alone.

    Tiles that are ``changed`` from one another share it, as they share ``steady`` values, for the same constants.
    """

    def answer(tile: TileOf, fit: Fit, /, *numbers: P.args, **named: P.kwargs) -> Answer:
        known, key = tile.parts_of_cost, (part, *numbers, *named.items())
        found = known.get(key)
        if found is None or found[0] is not fit:
            found = known[key] = fit, part(tile, fit, *numbers, **named)
        return cast(Answer, found[1])

    return answer


def refusal(named: frozenset[str], features: frozenset[str]) -> Rejected | None:
    """Why a solver that names these features is not asked about a problem: it has others. None if it has not."""
    unknown = features - named
    return Rejected(reasons.FEATURE, ", ".join(sorted(unknown))) if unknown else None
