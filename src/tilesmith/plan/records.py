"""The plan: everything that one problem on one target needs at run time.

A solver returns a ``Draft`` (sources and steps); once its sources are compiled, ``assemble`` makes the ``Plan`` of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Space(IntEnum):
    """The memory that a pointer points into."""

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


@dataclass(frozen=True)
class Im2col:
    """The im2col mode of a tensor map: the window's corners (spatial axes, innermost first), and one load's extent.

    Base pixels run from ``lower`` to ``size - 1 + upper``; a load moves ``channels`` of each of ``pixels`` pixels.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int


@dataclass(frozen=True)
class TensorMap:
    """A CUDA tensor map, as ``cuTensorMapEncodeTiled`` and ``cuTensorMapEncodeIm2col`` take it.

    ``dims`` are elements, innermost first; ``strides`` bytes of all axes but the innermost; ``box`` the elements of
    one load (empty with ``im2col``); ``swizzle`` bytes (0: none). What lies outside ``dims`` is read as zeros.
    ``dtype`` is one of ``problems.dtypes``, or ``tf32``: fp32 that is rounded as it is loaded. The runtime encodes the
    map when the plan first runs on a device, and points it anew when the address behind ``pointer`` changes.
    """

    pointer: Pointer
    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: int = 128
    im2col: Im2col | None = None
    l2_promotion: int = 128


Parameter = Pointer | Integer | Real | TensorMap
Extent = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    On a CPU ``grid[0]`` is the number of items (tiles), handed out dynamically, at least ``block[0]`` at a time, and
    ``shared_bytes`` is scratch for each thread. On CUDA all are as CUDA means them, ``shared_bytes`` the dynamic
    shared memory; with ``programmatic`` the kernel may begin before the one ahead of it in the stream has ended, and
    waits for it itself (``griddepcontrol.wait``). ``artifact`` counts the draft's sources, or the plan's artifacts.
    """

    artifact: int
    symbol: str
    grid: Extent
    parameters: tuple[Parameter, ...]
    block: Extent = (1, 1, 1)
    cluster: Extent = (1, 1, 1)
    shared_bytes: int = 0
    programmatic: bool = False


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
    With ``in_place`` the caller may give the result's memory here: each element is read before it is written.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int
    is_output: bool
    in_place: bool = False


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
    """A solver's answer for one problem and config, before compiling. Launches count ``sources``.

    ``in_place``: the residual's memory may be the result's.
    """

    sources: tuple[Source, ...]
    run: tuple[Step, ...]
    prepare: tuple[Step, ...] = ()
    packed_bytes: int = 0
    workspace_bytes: int = 0
    in_place: bool = False


@dataclass(frozen=True)
class Plan:
    """Everything needed to run one problem on one target, given the artifacts with these digests (sha256, hex).

    ``workspace_bytes`` is the whole workspace of one call; the scratch of thread ``i`` lies at
    ``scratch_offset + i * scratch_stride`` in it. The packed filter and the workspace are aligned to ``alignment``
    bytes, slots to their elements alone. ``prepare`` may read slot 1, the filter, and no other.

    ``family`` is the target's. A ``cuda`` plan has no scratch (``threads`` is 1, ``scratch_offset`` the workspace's
    end), and its slots are aligned to 16 bytes.
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
    family: str = "cpu"  # or "cuda"
