"""Common steps of all families of C kernels: refuse problems, apply a config, and make a draft of the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tilesmith.codegen.c.prelude import c_prelude
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Launch, Parameter, Pointer, Space, Step
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.solver import Accepted, Config, Geometry, Rejected, SearchSpace, Unranked
from tilesmith.targets.target import CpuTarget

FLOATS = ("fp32", "bf16", "fp16")  # what the prelude loads into vectors
PACKED, WORKSPACE = Pointer(Space.PACKED), Pointer(Space.WORKSPACE)
_TURNS = 32  # of each thread; the pool hands out many items at first and single ones at last: all threads end together
_MAX_ZERO_ROW = 4 * 1024 * 1024  # bytes
Tile = TypeVar("Tile")


@dataclass(frozen=True)
class Kernel:
    """A kernel and its launch: ``items`` are handed out at least ``turn`` at a time, each thread has ``scratch`` bytes.

    ``body`` is the text after the prelude, ``op`` and ``dtype`` are parts of its symbol.
    """

    op: str
    dtype: str
    body: str
    items: int
    arguments: tuple[Parameter, ...]
    turn: int = 1
    scratch: int = 0


class Family(Unranked, Generic[Tile]):
    """A base for solvers: a family says how a config becomes a tile, what a tile costs, and which kernels it has."""

    directions: tuple[str, ...]

    def applicable(self, problem: Geometry, target: CpuTarget) -> Accepted | Rejected:
        if not isinstance(problem, ConvGeometry):
            return Rejected(reasons.OP)
        if problem.direction not in self.directions:
            return Rejected(reasons.DIRECTION, problem.direction)
        return self.refusal(problem, target) or Accepted()

    def refusal(self, problem: ConvGeometry, target: CpuTarget) -> Rejected | None:
        """Why a convolution of one of ``directions`` is not computed."""
        raise NotImplementedError

    def tile(self, problem: Geometry, config: Config, target: CpuTarget) -> Tile:
        """``config`` applied to ``problem``: every number that the text and the cost are made of."""
        raise NotImplementedError

    def seconds(self, tile: Tile) -> float:
        raise NotImplementedError

    def kernels(self, tile: Tile, tag: str) -> Draft:
        """The draft; ``tag`` names the config in symbols."""
        raise NotImplementedError

    def predict(self, problem: Geometry, config: Config, target: CpuTarget) -> float:
        return self.seconds(self.tile(problem, config, target))

    def draft(self, problem: Geometry, config: Config, target: CpuTarget) -> Draft:
        return self.kernels(self.tile(problem, config, target), "x".join(str(value) for _, value in config.values))


def convolution(problem: Geometry) -> ConvGeometry:
    """``problem``, which ``applicable`` has accepted."""
    assert isinstance(problem, ConvGeometry)
    return problem


def not_channels_last_floats(problem: ConvGeometry) -> Rejected | None:
    """The refusal of what most families do not read: other dtypes, vectors, channels that are apart."""
    names = (problem.x.dtype, problem.w.dtype, problem.y.dtype)
    if problem.acc_dtype != "fp32" or any(name not in FLOATS for name in names):
        return Rejected(reasons.DTYPE, " ".join((*names, problem.acc_dtype)))
    if not (problem.x.channels_last and problem.y.channels_last):
        return Rejected(reasons.LAYOUT, "channels are not contiguous")
    return Rejected(reasons.LAYOUT, "vector filter layout") if problem.w.vector > 1 else None


def rows_too_long(problem: ConvGeometry, zeros: int) -> Rejected | None:
    """The refusal where ``zeros`` elements are too many for a row of zeros in the kernel's own memory."""
    if zeros * dtype(problem.x.dtype).nbytes <= _MAX_ZERO_ROW:
        return None
    return Rejected(reasons.SIZE, f"rows of {problem.input[2]} x {problem.c}")


def too_many_tiles(problem: ConvGeometry, space: SearchSpace, smallest: Config) -> Rejected | None:
    """The refusal where not even the smallest tile gives a text that compiles soon."""
    if space.allowed(smallest):
        return None
    return Rejected(reasons.FILTER, f"{problem.filter} with stride {problem.stride}: too many different tiles")


def slot(index: int) -> Pointer:
    return Pointer(Space.SLOT, index)


def items_a_turn(items: int, target: CpuTarget) -> int:
    """The least that a thread takes at once: so many that each finds ``_TURNS`` turns; all of them for one thread."""
    return max(1, items // (target.cores * _TURNS)) if target.cores > 1 else max(1, items)


def assembled(
    target: CpuTarget, tag: str, run: Sequence[Kernel], prepare: Sequence[Kernel] = (), workspace: int = 0,
    packed: int = 0, in_place: bool = False,
) -> Draft:  # fmt: skip
    """The draft of these kernels, with ``workspace`` and ``packed`` bytes; its sources are in their order."""
    prelude, kernels = c_prelude(target), (*run, *prepare)
    sources = tuple(make_source("c", k.op, k.dtype, tag, target.arch, prelude, k.body) for k in kernels)
    steps: list[Step] = [
        Launch(i, source.symbol, (k.items, 1, 1), k.arguments, (k.turn, 1, 1), shared_bytes=k.scratch)
        for i, (k, source) in enumerate(zip(kernels, sources, strict=True))
    ]
    return Draft(
        sources, tuple(steps[: len(run)]), tuple(steps[len(run) :]), workspace_bytes=workspace, packed_bytes=packed,
        in_place=in_place,
    )  # fmt: skip
