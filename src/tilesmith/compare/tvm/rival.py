"""``Rival`` for the kernels that TVM's MetaSchedule has found; ``tilesmith gemm tune … O=65537`` finds them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilesmith.compare.places import keep, read_kept
from tilesmith.compare.rival import NOT_TUNED, Setting, Way
from tilesmith.compare.tvm import environment
from tilesmith.compare.tvm.tuning import computes, found, kept, library_of
from tilesmith.errors import ArgumentError
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import CudaTarget, Target

if TYPE_CHECKING:
    import torch

_ALIGNMENT = 64  # bytes to which TVM's kernels expect tensors to be aligned


class TvmRival:
    """Kernels of TVM, which are measured once they are tuned."""

    name = "tvm"
    families = ("cpu", "cuda")

    def is_here(self) -> bool:
        return environment.is_set_up()

    def version(self) -> str:
        return environment.version()

    def is_tuned(self, signature: Signature, target: Target) -> bool:
        """Whether a search has found a kernel."""
        return found(signature, target) is not None

    def needs_trial(self, signature: Signature, target: Target) -> bool:
        """Whether a kernel was found since the last trial."""
        state = found(signature, target) if computes(signature) else None
        return state is not None and not state.get("tried")

    def trial(self, setting: Setting, stream: object, tell: Callable[[str], None]) -> None:
        """Call the kernel once."""
        with self.ways(setting) as ways:
            for way in ways:
                way.values(way.calls[0]())
        path = kept(setting.signature, setting.target)
        keep(path, {**read_kept(path), "tried": True})

    @contextmanager
    def ways(self, setting: Setting) -> Iterator[Sequence[Way]]:
        signature, target = setting.signature, setting.target
        if not computes(signature) or not isinstance(signature, GemmSignature):
            yield ()
            return
        state = found(signature, target)
        if state is None:
            raise ArgumentError(f"{NOT_TUNED}; the same words with `tilesmith gemm tune` and O=65537 tune it")
        name = f"MetaSchedule, {state['trials']} trials"
        make = _way_on_device if isinstance(target, CudaTarget) else _way_on_host
        yield [make(name, library_of(kept(signature, target)), signature, setting)]


def _shapes(signature: GemmSignature) -> tuple[tuple[int, ...], ...]:
    s = signature
    lead = (s.batch,) if s.batch > 1 else ()
    a = (s.k, s.m) if s.trans_a else (s.m, s.k)
    b = (s.n, s.k) if s.trans_b else (s.k, s.n)
    return (*lead, *a), (*lead, *b), (*lead, s.m, s.n)


def _way_on_host(name: str, path: Path, signature: GemmSignature, setting: Setting) -> Way:
    from tilesmith.compare.tvm.library import kernel, tensor

    shapes, kind = _shapes(signature), setting.values[0].dtype
    arrays = [_aligned(shape, kind) for shape in shapes]
    for array, value in zip(arrays, setting.values, strict=False):
        array[...] = value.reshape(array.shape)
    tensors = [tensor(array.ctypes.data, array.shape, 8 * kind.itemsize) for array in arrays]
    run = kernel(path, setting.target.cores, False)(tensors)

    def call() -> NDArray[np.generic]:
        run()
        return arrays[2]

    return Way(name, (call,), lambda result: result.reshape(signature.batch, signature.m, signature.n))


def _aligned(shape: tuple[int, ...], kind: np.dtype[np.generic]) -> NDArray[np.generic]:
    whole = np.zeros(math.prod(shape) * kind.itemsize + _ALIGNMENT, np.uint8)
    begin = -whole.ctypes.data % _ALIGNMENT
    return whole[begin : begin + math.prod(shape) * kind.itemsize].view(kind).reshape(shape)


def _way_on_device(name: str, path: Path, signature: GemmSignature, setting: Setting) -> Way:
    import torch

    from tilesmith.compare.tvm.library import CUDA, kernel, set_stream, tensor
    from tilesmith.solvers.external.library import GemmCall, array_of, device_tensors

    set_stream(setting.ordinal, setting.stream, setting.target.cores)
    shapes, bits = _shapes(signature), 8 * dtype(signature.dtype).nbytes
    bind = kernel(path, setting.target.cores, True)
    calls: list[Callable[[], torch.Tensor]] = []
    for operands in device_tensors(signature, setting.values, setting.ordinal, setting.calls):
        a, b = operands[:2]
        result = torch.empty((signature.batch, signature.m, signature.n), dtype=a.dtype, device=a.device)
        given = [
            tensor(each.data_ptr(), shape, bits, CUDA, setting.ordinal)
            for each, shape in zip((a, b, result), shapes, strict=True)
        ]
        calls.append(_on_device(bind(given), (a, b, result)))
    return Way(name, calls, array_of, GemmCall(signature, "cublas").laid)


def _on_device(run: Callable[[], None], held: tuple[torch.Tensor, ...]) -> Callable[[], torch.Tensor]:
    def call() -> torch.Tensor:
        run()
        return held[2]

    return call


RIVAL = TvmRival()
