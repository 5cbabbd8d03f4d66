"""``grouped_gemm``: groups of rows, each times a matrix of its own, in one launch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tilesmith.dispatch.arrays import ArrayLayout, contiguous, describe
from tilesmith.dispatch.products.calls import are_tensors, bound_for, check_device, pitch_of, remembered
from tilesmith.errors import ArgumentError
from tilesmith.problems.gemm import GemmSignature
from tilesmith.runtime.arguments import to_type
from tilesmith.runtime.torch_rules import refuse_watched

_package = sys.modules["tilesmith"]
_NAMES = ("a", "b", "group_ends")


def grouped_gemm(
    a: Any, b: Any, group_ends: Any, *, trans_b: bool = False, threads: int | None = None, mode: str | None = None,
    acc_dtype: str = "",
) -> Any:  # fmt: skip
    """Multiply groups of rows, each with a matrix of its own: the experts of a mixture, in one launch.

    Row ``i`` of ``a`` belongs to the first group whose end is greater than ``i``. The ends are data: they stay on the
    device, so that a recorded CUDA graph can be replayed with other ones. The first call with these shapes, strides,
    dtypes and options decides which kernel runs. For PyTorch's tensors the call is the operator
    ``torch.ops.tilesmith.grouped_gemm``, which records no gradients.

    Args:
        a: Matrix of shape ``(m, k)``: all rows, group after group. Element types: fp64, fp32, fp16, bf16 and fp8.
            NumPy array, or PyTorch tensor on the CPU or on a CUDA device; all arguments of one kind.
        b: Matrices of a's dtype, shape ``(groups, k, n)``. With ``trans_b``: ``(groups, n, k)``.
        group_ends: int32, shape ``(groups,)``, on the device of ``a``: for each group the number of rows up to its end,
            in ascending order. An end below the one before it makes an empty group; ends below 0 count as 0, ends
            above ``m`` as ``m``.
        trans_b: ``b`` is stored transposed.
        threads: Number of CPU threads, from 1 to 1024. None: TILESMITH_NUM_THREADS, else all usable cores. Ignored on a
            GPU.
        mode: ``"fast"``, ``"background"``, ``"hybrid"``, ``"normal"``, ``"trust_verify"`` or ``"strict"``. None:
            TILESMITH_FIND_MODE.
        acc_dtype: Type of the sums. Default: ``"fp32"``; ``"fp64"`` for fp64 arrays. ``"tf32"`` allows tensor cores to
            round fp32 operands to TF32.

    Returns:
        A new dense array of shape ``(m, n)``, of a's kind and dtype: row ``i`` is ``a[i] @ b[group of i]``. Rows behind
        the last group are 0.

    Raises:
        ProblemError: The problem cannot exist: a size or dtype breaks a rule.
        ArgumentError: An array cannot be a tensor of the problem: its shape, dtype, device or kind differs, or its
            gradient is recorded.
        NoSolutionError: No solver computes the problem, or ``strict`` mode has no answer.
        NoCompilerError: A kernel must be compiled, and there is no compiler.

    Examples:
        >>> import numpy as np, tilesmith
        >>> a, b = np.ones((5, 8), np.float32), np.ones((3, 8, 4), np.float32)
        >>> tilesmith.grouped_gemm(a, b, np.array([2, 2, 4], np.int32))[:, 0].tolist()
        [8.0, 8.0, 8.0, 8.0, 0.0]
    """
    arrays, options = (a, b, group_ends), (trans_b, acc_dtype, mode, threads)
    if are_tensors(_NAMES, arrays):
        return _package.tensor_calls().grouped_gemm(*arrays, *options)
    return run_groups(arrays, *options)


def run_groups(arrays: tuple[Any, ...], trans_b: bool, acc_dtype: str, mode: str | None, threads: int | None) -> Any:
    """Look the call up by shapes, strides, dtypes, devices and options, or make it; then run it."""
    refuse_watched(arrays)
    ends = arrays[2]
    dtype = str(getattr(ends, "dtype", "int32")).rpartition(".")[2]
    if dtype != "int32":
        raise ArgumentError(f"group_ends has dtype {dtype}, not int32; type group_ends.{to_type(ends, 'int32')}")
    given = [describe(name, array) for name, array in zip(_NAMES, arrays, strict=True)]
    options = trans_b, acc_dtype, mode, threads
    key = ("groups", *given, isinstance(arrays[0], np.ndarray), *options)
    return remembered(key, lambda: _made(given, *options))(*arrays)


def _made(
    given: list[ArrayLayout], trans_b: bool, acc_dtype: str, mode: str | None, threads: int | None
) -> Callable[..., Any]:
    a, b, ends = given
    _check(given)
    groups, *stored = b.shape
    k, n = stored[::-1] if trans_b else stored
    if a.shape[1] != k:
        raise ArgumentError(f"a {a.shape} has k = {a.shape[1]}, b {b.shape} has k = {k}: they must be equal")
    lda, ldb, step = pitch_of(a), pitch_of(b), None
    copied = lda is None, ldb is None, ends.strides is not None
    if ldb is not None and b.strides is not None and groups > 1:
        step = b.strides[0]
    empty = 0 in (*a.shape, n)
    signature = GemmSignature(
        a.shape[0], n, k, groups=groups, trans_b=trans_b, dtype=a.dtype, acc_dtype=acc_dtype,
        lda=None if empty else lda, ldb=None if empty else ldb, stride_b=None if empty else step,
    )  # fmt: skip
    bound = bound_for(signature, a.device, mode, threads)
    if not any(copied):
        return bound
    return lambda *each: bound(
        *(contiguous(array) if copy else array for array, copy in zip(each, copied, strict=True))
    )


def _check(given: list[ArrayLayout]) -> None:
    """Raise ``ArgumentError`` unless the arrays are those of one problem."""
    a, b, ends = given
    for name, each, axes in zip(_NAMES, given, ("(m, k)", "(groups, k, n)", "(groups,)"), strict=True):
        if len(each.shape) != axes.count(",") + (axes != "(groups,)"):
            raise ArgumentError(f"{name} has shape {each.shape}: it needs the axes {axes}")
        check_device(name, each, a)
    if not b.shape[0]:
        raise ArgumentError(f"b has shape {b.shape}: there must be a group")
    if a.dtype != b.dtype:
        raise ArgumentError(f"a has dtype {a.dtype}, b has dtype {b.dtype}: they must be equal")
    if ends.shape != (b.shape[0],):
        raise ArgumentError(f"group_ends has shape {ends.shape}, {b.shape[0]} matrices need ({b.shape[0]},)")
