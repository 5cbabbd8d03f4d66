"""How the channels of a grouped convolution lie in vectors.

Every lane of a vector is one result channel. Narrow groups share a vector, and each input is shuffled to the lanes of
its group (``lanes``); where a vector holds one group alone, one input is spread over all lanes (``splat``).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.targets.target import CpuTarget

MAX_STATEMENTS = 12_000  # multiply-adds in one kernel's text: more compile for seconds


@dataclass(frozen=True)
class LaneMap:
    """A block is ``per_block`` groups of ``outer`` results and ``inner`` inputs each, or part of one group's results.

    ``width`` lanes make a vector, ``vectors`` vectors a block. ``pairs``: two bf16 inputs are multiplied in one step.
    ``twin``: depthwise bf16 channels by twos, the even ones in one vector, the odd ones in another: a shift or a mask
    widens them.
    """

    groups: int
    inner: int
    outer: int
    width: int
    per_block: int
    vectors: int
    pairs: bool
    twin: bool = False

    @property
    def splat(self) -> bool:
        return self.per_block == 1

    def twin_in(self, tail: bool) -> bool:
        """Whether a full or tail block goes by twos; a tail that fits one vector does not."""
        return self.twin and not (tail and self.groups % self.per_block <= self.width)

    @property
    def split(self) -> int:
        """Blocks of one group (``splat``)."""
        return -(-self.outer // (self.vectors * self.width)) if self.splat else 1

    @property
    def blocks(self) -> int:
        return self.groups * self.split if self.splat else -(-self.groups // self.per_block)

    @property
    def chunks(self) -> tuple[int, ...]:
        """Numbers of blocks that an item may have."""
        return tuple(sorted({1, *(n for n in (2, 4, 8, 16, 32, 64) if n < self.blocks), self.blocks}))

    @property
    def always_tail(self) -> bool:
        """Whether no block is full."""
        return self.tail and (self.split == 1 if self.splat else self.blocks == 1)

    @property
    def kinds(self) -> tuple[bool, ...]:
        """Which blocks there are: full ones (False), tail blocks (True)."""
        return (True,) if self.always_tail else (False, True) if self.tail else (False,)

    @property
    def steps(self) -> int:
        """Multiply-adds of one result with one filter tap."""
        return -(-self.inner // 2) if self.pairs else self.inner

    @property
    def tail(self) -> bool:
        """Whether some blocks hold fewer results than the others."""
        return bool(self.outer % (self.vectors * self.width) if self.splat else self.groups % self.per_block)

    def lanes(self, tail: bool) -> tuple[int, ...]:
        """Results in each vector of a full or tail block."""
        if self.twin_in(tail):
            return ((self.groups % self.per_block if tail else self.per_block) // 2,) * 2
        if not self.splat:
            return ((self.groups % self.per_block if tail else self.per_block) * self.outer,)
        rest = self.outer % (self.vectors * self.width) if tail else min(self.outer, self.vectors * self.width)
        return tuple(min(self.width, rest - at) for at in range(0, rest, self.width))

    def units(self, tail: bool) -> int:
        """Inputs that a full or tail block reads of one pixel, in pairs where ``pairs``."""
        groups = self.groups % self.per_block if tail else self.per_block
        return groups * self.inner // (2 if self.pairs or self.twin_in(tail) else 1)

    def source(self, lane: int, step: int, tail: bool) -> int:
        """The unit that ``lane`` multiplies in ``step`` (``lanes`` only); idle lanes follow the last group."""
        groups = self.groups % self.per_block if tail else self.per_block
        return min(lane // self.outer, groups - 1) * self.steps + step

    def first_output(self, block: str) -> str:
        """C: first result channel of ``block``."""
        if self.splat and self.split > 1:
            return f"({block} / {self.split} * {self.outer} + {block} % {self.split} * {self.vectors * self.width})"
        return f"({block} * {self.per_block * self.outer})"

    def first_input(self, block: str) -> str:
        """C: first input channel of ``block``."""
        return (
            f"({block} / {self.split} * {self.inner})" if self.splat else f"({block} * {self.per_block * self.inner})"
        )

    def is_tail(self, block: str) -> str:
        """C: whether ``block`` is a tail block; only asked where ``tail``."""
        return f"({block} % {self.split} == {self.split - 1})" if self.splat else f"({block} == {self.blocks - 1})"


def source_and_result(problem: ConvGeometry) -> tuple[TensorView, TensorView]:
    """The tensors that ``fwd`` or ``bwd`` reads beside the filter, and writes."""
    return (problem.x, problem.y) if problem.direction == "fwd" else (problem.y, problem.x)


def lane_map(problem: ConvGeometry, target: CpuTarget, vectors: int) -> LaneMap:
    """The map for ``fwd`` or ``bwd``; ``vectors`` vectors a block where a group fills whole vectors."""
    fan_c, fan_k = problem.c // problem.groups, problem.k // problem.groups
    inner, outer = (fan_c, fan_k) if problem.direction == "fwd" else (fan_k, fan_c)
    width = target.lanes(4)
    source, result = source_and_result(problem)
    if inner == outer == 1 and source.dtype == result.dtype == "bf16" and problem.groups % 2 == 0:
        return LaneMap(problem.groups, 1, 1, width, 2 * width, 2, False, twin=True)
    bf16 = target.bf16_dot and source.dtype == "bf16" and problem.w.dtype == "bf16"
    share = groups_per_vector(problem.groups, inner, outer, width, bf16)
    # Narrow groups multiply in pairs only where pairs do not straddle groups.
    pairs = bf16 and inner > 1 and (share == 1 or inner % 2 == 0)
    return LaneMap(problem.groups, inner, outer, width, share, vectors if share == 1 else 1, pairs)


def groups_per_vector(groups: int, inner: int, outer: int, width: int, bf16: bool) -> int:
    """Groups that share one vector; their inputs must lie in two vectors, the most that one shuffle reads."""
    units = -(-inner // 2) if bf16 and inner % 2 == 0 else inner
    return max(1, min(width // outer, 2 * width // units, groups))
