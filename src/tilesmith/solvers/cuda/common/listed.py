"""The common part of families whose configs are few enough to be listed, and sorted by their estimates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, product, takewhile
from math import inf
from typing import Any, Generic, Protocol, Self, TypeVar

from tilesmith.problems.geometry import ConvGeometry, GemmGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.solver import Accepted, Axis, Config, Geometry, Rejected, SearchSpace, remembered, values_of
from tilesmith.targets.target import CudaTarget

ROUNDED = 1 - 1e-9  # of a bound whose sums are rounded otherwise than those of an estimate


class HasFits(Protocol):
    """A config, parsed into the numbers of a problem, and whether it computes it."""

    @property
    def config(self) -> Config: ...

    @property
    def fits(self) -> bool: ...

    def changed(self, **values: int) -> Self: ...


Fit = TypeVar("Fit")
Form = TypeVar("Form")
Tile = TypeVar("Tile", bound=HasFits)


def cheapest(
    sizes: Iterable[Tile],
    variants: Callable[[Tile], Iterable[Tile]],
    least: Callable[[Tile, Fit], float],
    seconds: Callable[[Tile, Fit], float],
    fit: Fit,
) -> Tile:
    """The first of the tiles that fit with the fewest ``seconds``, among the ``variants`` of those ``sizes`` that fit.

    ``least`` of a size is no more than the seconds of its variants: where it is more than the best that is known, they
    are not looked at. Raises ``ValueError`` if none fits.
    """
    order = sorted((least(size, fit), number, size) for number, size in enumerate(sizes))
    best: Tile | None = None
    known = (inf, 0)
    for bound, number, size in order:
        if (bound, number) > known:
            break
        for tile in variants(size) if size.fits else ():
            found = (seconds(tile, fit), number)
            if found < known and tile.fits:
                best, known = tile, found
    if best is None:
        raise ValueError("no tile fits this problem")
    return best


def sharing_sm(alone: Tile, counts: Sequence[int]) -> Iterator[Tile]:
    """``alone`` and tiles of which more blocks share an SM, those that fit: where two do not, three do not."""
    more = (alone.changed(blocks_per_sm=count) for count in counts[1:])
    return takewhile(lambda tile: tile.fits, chain((alone,), more))


class Listed(Generic[Form, Tile]):
    """A solver of problems that have a form, by ``mma.sync`` on operands that ``cp.async`` reads.

    ``of`` makes a tile of a form, a config and a target. ``most`` configs are worth measuring; None: all that fit.
    """

    name: str
    axes: tuple[Axis, ...]
    op: type[ConvGeometry] | type[GemmGeometry] = ConvGeometry
    most: int | None = None
    of: Callable[[Form, Config, CudaTarget], Tile]

    @abstractmethod
    def form_of(self, problem: Any) -> Form | Rejected:
        """``problem``, one of ``op``, as the kernel sees it, or why the kernel does not compute it."""

    @abstractmethod
    def seconds(self, tile: Tile) -> float:
        """The estimate of ``predict``."""

    def order(self, tile: Tile) -> Any:
        """The sort key of configs that fit, the untuned choice first."""
        return self.seconds(tile)

    @remembered
    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        if not isinstance(problem, self.op):
            return Rejected(reasons.OP)
        form = self.form_of(problem)
        if isinstance(form, Rejected):
            return form
        operand = problem.a if isinstance(problem, GemmGeometry) else problem.x
        if not target.has_cp_async or (operand.dtype == "bf16" and not target.has_bf16):
            return Rejected(reasons.TARGET, "mma of 16-bit floats")
        if next(self._tiles(form, target), None) is not None:
            return Accepted()
        if isinstance(problem, GemmGeometry):
            return Rejected(reasons.SIZE)
        return Rejected(reasons.FILTER, f"no window of a filter {problem.filter} fits")

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        form = self._form(problem)
        return SearchSpace(values_of(self.axes), lambda config: self.of(form, config, target).fits)

    @remembered
    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return min(self._tiles(self._form(problem), target), key=self.order).config

    def ranked(self, problem: Geometry, target: CudaTarget) -> list[Config]:
        """Configs worth measuring, the untuned choice first."""
        return list(self._ranked(self._form(problem), target))

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        return self.seconds(self.tile(problem, config, target))

    def tile(self, problem: Geometry, config: Config, target: CudaTarget) -> Tile:
        """The tiles and resources of ``config`` for ``problem``, from which its time is estimated."""
        return self.of(self._form(problem), config, target)

    def _form(self, problem: Geometry) -> Form:
        form = self.form_of(problem) if isinstance(problem, self.op) else Rejected(reasons.OP)
        if isinstance(form, Rejected):
            raise ValueError(f"{self.name} does not cover this problem: {form}")
        return form

    def _tiles(self, form: Form, target: CudaTarget) -> Iterator[Tile]:
        """All that fit. The last axis counts the blocks of an SM."""
        axes = values_of(self.axes)
        *others, counts = axes.values()
        chosen: tuple[int, ...]
        for chosen in product(*others):
            alone: Tile = self.of(form, Config(tuple(zip(axes, (*chosen, counts[0]), strict=True))), target)
            yield from sharing_sm(alone, counts)

    @lru_cache(maxsize=256)  # noqa: B019
    def _ranked(self, form: Form, target: CudaTarget) -> tuple[Config, ...]:
        return tuple(tile.config for tile in sorted(self._tiles(form, target), key=self.order))[: self.most]
