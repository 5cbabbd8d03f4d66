"""cuBLASLt called directly: the first results of its heuristic for a GEMM, each a way to be measured beside ours.

PyTorch asks the heuristic for one result and takes it. cuBLASLt is column-major, so ``c^T = b^T a^T`` is computed.
Source: cuBLAS 13 documentation, "Using the cuBLASLt API", and the values of ``cublasLt.h``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from functools import lru_cache, partial
from weakref import finalize

import torch

from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import MatrixView
from tilesmith.solvers.external.library import uses_tf32

RESULTS = 8
_WORKSPACE_BYTES = 32 << 20  # what PyTorch gives it on Hopper
_TYPES = {"fp32": 0, "fp16": 2, "bf16": 14}  # cudaDataType
_COMPUTE_32F, _COMPUTE_TF32 = 68, 77
_TRANSA, _TRANSB = 3, 4  # of cublasLtMatmulDescAttributes_t
_BATCH_COUNT, _BATCH_OFFSET = 5, 6  # of cublasLtMatrixLayoutAttribute_t
_MAX_WORKSPACE_BYTES = 1  # of cublasLtMatmulPreferenceAttributes_t


class _Result(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algorithm", c_uint64 * 8), ("workspace", c_size_t), ("state", c_int), ("waves", c_float),
        ("reserved", c_int * 4),
    )  # fmt: skip


class LtGemm:
    """A plain GEMM: no epilogue, ``beta`` 0, and a row-major result. ``RuntimeError`` where cuBLASLt refuses it."""

    def __init__(self, signature: GemmSignature) -> None:
        g = signature.geometry
        if g.beta != 0 or g.epilogue.bias or g.epilogue.residual or g.epilogue.activation != "none":
            raise RuntimeError("an epilogue or beta")
        if not {g.a.dtype, g.b.dtype, g.c.dtype} <= _TYPES.keys() or g.c.strides[2] != 1:
            raise RuntimeError("an element type or layout that is not called")
        self._shape, self._dtype = (g.batch, g.m, g.n), g.c.dtype
        self._alpha, self._beta = c_float(g.alpha), c_float(0.0)
        self._lt = _library()
        self._handle, self._product = _handle(), c_void_p()
        compute = _COMPUTE_TF32 if uses_tf32(signature) else _COMPUTE_32F
        _try(self._lt.cublasLtMatmulDescCreate(byref(self._product), c_int(compute), c_int(_TYPES["fp32"])))
        self._destroy_with(self._lt.cublasLtMatmulDescDestroy, self._product)
        # The first operand of c^T is b.
        self._b, self._a = self._operand(g.b, _TRANSA), self._operand(g.a, _TRANSB)
        self._c = self._layout(g.c, g.n, g.m, g.n)
        preference, count = c_void_p(), c_int()
        _try(self._lt.cublasLtMatmulPreferenceCreate(byref(preference)))
        self._destroy_with(self._lt.cublasLtMatmulPreferenceDestroy, preference)
        most = c_size_t(_WORKSPACE_BYTES)
        _try(self._lt.cublasLtMatmulPreferenceSetAttribute(preference, _MAX_WORKSPACE_BYTES, byref(most), c_size_t(8)))
        self.results = (_Result * RESULTS)()
        _try(self._lt.cublasLtMatmulAlgoGetHeuristic(
            self._handle, self._product, self._b, self._a, self._c, self._c, preference, RESULTS, self.results,
            byref(count),
        ))  # fmt: skip
        self.count = count.value

    def compute(self, number: int, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """``(batch, m, n)`` by result ``number`` of the heuristic, queued on PyTorch's current stream."""
        a, b, *_ = tensors
        made = torch.empty(self._shape, dtype=a.dtype, device=a.device)
        result = self.results[number]
        space = torch.empty(max(result.workspace, 1), dtype=torch.uint8, device=a.device)
        _try(self._lt.cublasLtMatmul(
            self._handle, self._product, byref(self._alpha), c_void_p(b.data_ptr()), self._b, c_void_p(a.data_ptr()),
            self._a, byref(self._beta), c_void_p(made.data_ptr()), self._c, c_void_p(made.data_ptr()), self._c,
            result.algorithm, c_void_p(space.data_ptr()), c_size_t(result.workspace),
            c_void_p(torch.cuda.current_stream(a.device).cuda_stream),
        ))  # fmt: skip
        return made

    def _destroy_with(self, destroy: Callable[[c_void_p], int], made: c_void_p) -> None:
        """Give ``made`` back when this GEMM is no longer needed; at the end of the process nobody needs to."""
        finalize(self, destroy, made).atexit = False

    def _operand(self, matrix: MatrixView, attribute: int) -> c_void_p:
        """The column-major matrix in the same memory, and whether its transposition is meant."""
        _, row, column = matrix.strides
        transposed = column != 1 and matrix.columns > 1
        flag = c_int32(int(transposed))
        _try(self._lt.cublasLtMatmulDescSetAttribute(self._product, attribute, byref(flag), c_size_t(4)))
        if transposed:
            if row != 1 and matrix.rows > 1:
                raise RuntimeError("no axis is contiguous")
            return self._layout(matrix, matrix.rows, matrix.columns, column)
        return self._layout(matrix, matrix.columns, matrix.rows, row if matrix.rows > 1 else matrix.columns)

    def _layout(self, matrix: MatrixView, rows: int, columns: int, step: int) -> c_void_p:
        found = c_void_p()
        create = self._lt.cublasLtMatrixLayoutCreate
        _try(create(byref(found), _TYPES[matrix.dtype], c_uint64(rows), c_uint64(columns), c_int64(step)))
        self._destroy_with(self._lt.cublasLtMatrixLayoutDestroy, found)
        batch, offset = c_int32(self._shape[0]), c_int64(matrix.strides[0])
        change = self._lt.cublasLtMatrixLayoutSetAttribute
        _try(change(found, _BATCH_COUNT, byref(batch), c_size_t(4)))
        _try(change(found, _BATCH_OFFSET, byref(offset), c_size_t(8)))
        return found

    def calls(self, row: Sequence[Sequence[torch.Tensor]]) -> dict[str, list[partial[torch.Tensor]]]:
        """For each result of the heuristic its calls on the tensors of each place in a row."""
        return {f"lt{i + 1}": [partial(self.compute, i, tensors) for tensors in row] for i in range(self.count)}


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    """The one that PyTorch has loaded."""
    major = (torch.version.cuda or "").partition(".")[0]
    try:
        return ctypes.CDLL(f"libcublasLt.so.{major}")
    except OSError as error:
        raise RuntimeError(str(error)) from None


@lru_cache(maxsize=1)
def _handle() -> c_void_p:
    """One for the process: making it takes memory of the device, which is never given back before the end."""
    handle = c_void_p()
    _try(_library().cublasLtCreate(byref(handle)))
    return handle


def _try(status: int) -> None:
    if status:
        raise RuntimeError(f"cuBLASLt: status {status}")
