"""The protocol of the libraries that kernels are measured beside, one for CPUs and GPUs; and those that are known."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from tilesmith.errors import ArgumentError, LaunchError
from tilesmith.loading import import_whole
from tilesmith.problems.rewrite import Signature
from tilesmith.spelling import did_you_mean
from tilesmith.targets.target import Target


class HungError(LaunchError):
    """The kernel ``name`` of a rival did not end: its process can do nothing more on that device."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


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
    it has a ``data_ptr()``. ``copied``: its operands were laid otherwise than given, or padded, which is not timed.
    """

    name: str
    calls: Sequence[Callable[[], Any]]
    values: Callable[[Any], NDArray[Any]]
    laid: Callable[[Any], Any] | None = None
    copied: bool = False


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


@runtime_checkable
class TriedRival(Protocol):
    """A rival that compiles or tunes: a process of its own tries it before it is measured (``compare.trial``)."""

    def needs_trial(self, signature: Signature, target: Target) -> bool:
        """Whether the problem was not tried yet."""
        ...

    def trial(self, setting: Setting, stream: Any, tell: Callable[[str], None]) -> None:
        """Try the problem, and keep what is found; on a GPU ``stream`` is the setting's ``runtime.device.Stream``.

        ``tell`` is called with lines of progress. Raises if it fails.
        """
        ...


NOT_TUNED = "not tuned"  # how the reason begins why a ``TunedRival`` has no way


@runtime_checkable
class TunedRival(Protocol):
    """A rival that a command of its own tunes, so that it may compute a problem today that it did not yesterday."""

    def is_tuned(self, signature: Signature, target: Target) -> bool:
        """Whether it has a kernel for the problem."""
        ...


@dataclass(frozen=True)
class PyTorchRival:
    """A library that is measured through PyTorch, which ``module`` of this folder imports when it is asked for."""

    name: str
    families: tuple[str, ...]
    module: str

    def is_here(self) -> bool:
        return find_spec("torch") is not None

    def version(self) -> str:
        return str(self._side().version(self.name))

    def ways(self, setting: Setting) -> AbstractContextManager[Sequence[Way]]:
        found: AbstractContextManager[Sequence[Way]] = self._side().ways(self.name, setting)
        return found

    def _side(self) -> Any:
        try:
            return import_whole(f"tilesmith.compare.{self.module}")
        except ImportError as error:
            text = f"{self.name} is measured through PyTorch ({error}); install it: pip install torch"
            raise ArgumentError(text) from None


RIVALS = (
    PyTorchRival("onednn", ("cpu",), "onednn"),
    PyTorchRival("cudnn", ("cuda",), "cuda_libraries"),
    PyTorchRival("cublas", ("cuda",), "cuda_libraries"),
)

# Modules of those that are tried first, each with its ``RIVAL``.
TRIED = (
    "tilesmith.compare.cutlass.rival", "tilesmith.compare.triton_rival", "tilesmith.compare.compiled",
    "tilesmith.compare.tvm.rival",
)  # fmt: skip

GROUP = "tilesmith.rivals"
NOTHING = "none"  # in place of a rival's name
_log = logging.getLogger("tilesmith.compare")


def rivals_of(target: Target) -> dict[str, Rival]:
    """By name, those that run on the target's family: the package's own, then those of entry points."""
    found: dict[str, Rival] = {rival.name: rival for rival in RIVALS}
    found |= {rival.name: rival for rival in (import_module(name).RIVAL for name in TRIED)}
    for entry in entry_points(group=GROUP):
        try:
            rival: Rival = entry.load()
            found[rival.name] = rival
        except Exception as error:  # whatever another package does when it is loaded
            _log.warning(
                "rival %s of %s cannot be loaded (%s: %s)", entry.name, entry.value, type(error).__name__, error
            )
    return {name: rival for name, rival in found.items() if target.family in rival.families}


def chosen_rivals(names: Sequence[str], target: Target, *, tried: bool = False) -> tuple[Rival, ...]:
    """The rivals that a user named, with commas or without (``none``: no rival).

    Of no names, those installed; without ``tried`` only those that neither compile nor tune, which takes minutes.
    Raises ``ArgumentError`` for one that is not measured on the target.
    """
    known = rivals_of(target)
    if not names:
        return tuple(
            rival for rival in known.values() if (tried or not isinstance(rival, TriedRival)) and rival.is_here()
        )
    each = [name.strip() for word in names for name in word.split(",")]
    for name in each:
        if name not in (*known, NOTHING):
            meant = did_you_mean(name, known)
            raise ArgumentError(
                f"--against {name!r} is not measured on {target.family}{meant}; known there: "
                f"{', '.join((*known, NOTHING))}"
            )
    return tuple(known[name] for name in dict.fromkeys(each) if name != NOTHING)


def absent_rivals(target: Target) -> dict[str, str]:
    """The rivals that are not installed here, by name, with what to type."""
    found = {}
    for name, rival in rivals_of(target).items():
        if not rival.is_here():
            try:
                rival.version()
            except ArgumentError as error:
                found[name] = str(error)
    return found
