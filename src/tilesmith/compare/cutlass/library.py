"""One compiled kernel of CUTLASS, called through ``host.cu``'s interface."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_double, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path
from weakref import finalize

import torch

from tilesmith.compare.cutlass.kernels import Product

_NAMES = ("m", "n", "k", "batch", "lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c")


class _Problem(ctypes.Structure):
    """``Problem`` of host.cu."""

    _fields_ = (
        *((name, c_int64) for name in _NAMES), ("a", c_void_p), ("b", c_void_p), ("c", c_void_p), ("splits", c_int64),
        ("alpha", c_double),
    )  # fmt: skip


class CutlassGemm:
    """One kernel for one product.

    Args:
        path: Its library.
        product: The product.
        splits: Parts of k.
    """

    def __init__(self, path: Path, product: Product, splits: int) -> None:
        self._library, self._product, self._splits = _loaded(path), product, splits

    def calls(
        self, row: Sequence[Sequence[torch.Tensor]], results: Sequence[torch.Tensor], stream: int
    ) -> list[Callable[[], torch.Tensor]] | None:
        """A call for each place in a row, on the current device; None if the kernel does not compute the product.

        Args:
            row: The operands a and b of the problem, for each place.
            results: Where each place has its result, ``(batch, m, n)``.
            stream: The stream on which calls are queued.
        """
        found = []
        for (a, b, *_), result in zip(row, results, strict=True):
            problem = self._problem(b.data_ptr(), a.data_ptr(), result.data_ptr())
            size = self._library.ts_cutlass_workspace(byref(problem))
            if size < 0:
                return None
            space = torch.empty(max(size, 1), dtype=torch.uint8, device=a.device)
            made = c_void_p()
            _try(
                self._library.ts_cutlass_prepare(
                    byref(problem), c_void_p(space.data_ptr()), c_void_p(stream), byref(made)
                )
            )
            found.append(_call(self._library, made, stream, (a, b, result, space)))
        return found

    def load(self) -> None:
        """Load the library, and let it find the current device."""
        self._library.ts_cutlass_workspace(byref(self._problem(0, 0, 0)))

    def _problem(self, a: int, b: int, c: int) -> _Problem:
        p = self._product
        sizes = (p.m, p.n, p.k, p.count, p.a.lead, p.b.lead, p.c.lead, p.a.batch, p.b.batch, p.c.batch)
        return _Problem(*sizes, a, b, c, self._splits, p.alpha)


def _call(
    library: ctypes.CDLL, made: c_void_p, stream: int, held: tuple[torch.Tensor, ...]
) -> Callable[[], torch.Tensor]:
    """The call; ``held`` are the tensors that it works on, the result third."""
    run, queue = library.ts_cutlass_run, c_void_p(stream)

    def call() -> torch.Tensor:
        _try(run(made, queue))
        return held[2]

    finalize(call, library.ts_cutlass_free, made).atexit = False
    return call


@lru_cache(maxsize=512)
def _loaded(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.ts_cutlass_workspace.restype = c_int64
    library.ts_cutlass_free.restype = None
    return library


def _try(status: int) -> None:
    if status >= 1000:
        raise RuntimeError(f"CUTLASS: CUDA error {status - 1000}")
    if status:
        raise RuntimeError(f"CUTLASS: status {status}")
