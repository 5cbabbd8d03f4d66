"""What is launched: a plan says everything that one problem on one target needs at run time.

A solver returns a ``Draft`` (sources and steps); once its sources are compiled, ``assemble`` makes the ``Plan`` of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Space(IntEnum):
    """What a pointer points into."""

    SLOT = 0  # a tensor that the caller gives at each call
    PACKED = 1  # the packed filter: written by ``prepare``, read by ``run``
    WORKSPACE = 2  # scratch memory of one call


@dataclass(frozen=True)
class Pointer:
    """``offset`` bytes into a space; ``index`` selects the slot, and is 0 in the other spaces."""

    space: Space
    index: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Integer:
    value: int


@dataclass(frozen=True)
class Real:
    value: float


Parameter = Pointer | Integer | Real
Extent = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    On a CPU ``grid[0]`` is the number of items (tiles), handed out dynamically ``block[0]`` at a time, and
    ``shared_bytes`` is scratch for each thread. ``artifact`` counts the draft's sources, or the plan's artifacts.
    """

    artifact: int
    symbol: str
    grid: Extent
    parameters: tuple[Parameter, ...]
    block: Extent = (1, 1, 1)
    cluster: Extent = (1, 1, 1)
    shared_bytes: int = 0


@dataclass(frozen=True)
class Memset:
    """Fill ``nbytes`` from ``pointer`` with the byte ``value``."""

    pointer: Pointer
    nbytes: int
    value: int = 0


Step = Launch | Memset


@dataclass(frozen=True)
class Slot:
    """A tensor that the caller gives: ``shape`` and ``strides`` (elements) are in the signature's own layout.

    ``nbytes`` spans from the first to the last element. ``is_output`` slots are written; a slot can be read as well.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int
    is_output: bool


@dataclass(frozen=True)
class Source:
    """Generated text of one kernel.

    ``prelude`` is text that several sources share (typedefs, inline functions); a compile unit holds each prelude once.
    Everything else that ``text`` defines is ``static`` and begins with ``symbol``, so that many sources fit one unit.
    """

    language: str  # "c" or "cuda"
    symbol: str
    prelude: str
    text: str


@dataclass(frozen=True)
class Draft:
    """A solver's answer for one problem and config, before compiling. Launches count ``sources``."""

    sources: tuple[Source, ...]
    run: tuple[Step, ...]
    prepare: tuple[Step, ...] = ()
    packed_bytes: int = 0
    workspace_bytes: int = 0


@dataclass(frozen=True)
class Plan:
    """Everything needed to run one problem on one target, given the artifacts with these digests (sha256, hex).

    ``workspace_bytes`` is the whole workspace of one call; the scratch of thread ``i`` lies at
    ``scratch_offset + i * scratch_stride`` in it. The packed filter and the workspace are aligned to ``alignment``
    bytes, slots to their elements alone. ``prepare`` may read slot 1, the filter, and no other.
    """

    problem: str
    target: str
    solver: str
    config: str
    slots: tuple[Slot, ...]
    artifacts: tuple[str, ...]
    prepare: tuple[Step, ...]
    run: tuple[Step, ...]
    packed_bytes: int
    workspace_bytes: int
    scratch_offset: int
    scratch_stride: int
    threads: int
    alignment: int = 64
    provenance: str = ""
