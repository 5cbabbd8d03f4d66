"""The protocol of the libraries that kernels are measured beside, one for CPUs and GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import Target


@dataclass(frozen=True)
class Setting:
    """One problem where it is measured.

    ``values`` are sample arguments as NumPy arrays, in the order of the signature's arguments. On a CUDA target work is
    queued on ``stream`` (a ``CUstream``) of device ``ordinal``, and a way has tensors of its own for each of ``calls``
    in a row, so that no call finds its operands in a cache; on a CPU there is one.
    """

    signature: Signature
    values: tuple[NDArray[Any], ...]
    target: Target
    ordinal: int = 0
    stream: int = 0
    calls: int = 1


@dataclass(frozen=True)
class Way:
    """One way of a rival to compute a problem, which is checked, and timed if its numbers are right.

    ``calls`` are what is timed: one for each place in the row. ``values`` reads what a call returned into a NumPy
    array, whose axes are logical (``N, C, *spatial``; of a GEMM ``batch, m, n``). With ``laid``, which puts it as the
    signature lays it, ``values`` reads that, in the signature's order of axes, and a GPU checks it where it lies: then
    it has a ``data_ptr()``.
    """

    name: str
    calls: Sequence[Callable[[], Any]]
    values: Callable[[Any], NDArray[Any]]
    laid: Callable[[Any], Any] | None = None


class Rival(Protocol):
    """Another library."""

    @property
    def name(self) -> str:
        """Its name in ``tilesmith bench --against``."""
        ...

    @property
    def families(self) -> Sequence[str]:
        """The targets that it runs on: ``cpu``, ``cuda``."""
        ...

    def is_here(self) -> bool:
        """Whether it is installed; nothing is loaded to tell."""
        ...

    def version(self) -> str:
        """The library and its version, for reports; ``ArgumentError`` says what to type if it is missing."""
        ...

    def ways(self, setting: Setting) -> AbstractContextManager[Sequence[Way]]:
        """Inside, every way in which it computes the problem; none if it does not. They are called inside, too."""
        ...
