"""``scaled_gemm``: a product of fp8 matrices that stand for wider numbers, by factors of tensors or of blocks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tilesmith.dispatch.arrays import ArrayLayout, contiguous, describe, permuted
from tilesmith.dispatch.products.calls import are_tensors, bound_for, check_device, pitch_of, remembered
from tilesmith.errors import ArgumentError
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import SCALE_BLOCKS, SCALE_K
from tilesmith.problems.layouts import dense_strides
from tilesmith.runtime.torch_rules import refuse_watched

_package = sys.modules["tilesmith"]
_NAMES = ("a", "b", "a_scale", "b_scale", "bias")


def scaled_gemm(
    a: Any, b: Any, a_scale: Any, b_scale: Any, bias: Any = None, *, trans_b: bool = False, c_dtype: str = "bf16",
    threads: int | None = None, mode: str | None = None,
) -> Any:  # fmt: skip
    """Multiply fp8 matrices whose elements count times a factor: one for a matrix, or one for each block of it.

    Each operand's factors are of one of three kinds, which their shape tells: one for the tensor; ``1x128``, one for
    128 elements along k of each row; ``128x128``, one for 128 rows (of ``b``: columns of the product) and 128 along k.
    The last block of an axis may be shorter. Sums of 128 products are multiplied by both factors and added in fp32.
    For PyTorch's tensors the call is the operator ``torch.ops.tilesmith.scaled_gemm``, which records no gradients.

    Args:
        a: Matrix of shape ``(m, k)``. Element type: fp8 (e4m3 or e5m2). NumPy array (``ml_dtypes``), or PyTorch tensor
            on the CPU or on a CUDA device; all arguments of one kind and on one device.
        b: Matrix of shape ``(k, n)``, fp8 of either type. With ``trans_b``: ``(n, k)``.
        a_scale: fp32, of shape ``(1,)`` or ``()``; ``(m, k / 128)``; or ``(m / 128, k / 128)``, both rounded up.
            Finite numbers or NaN. Those of ``1x128`` are read in place if the rows are contiguous (strides
            ``(1, m)``), those of ``128x128`` if k is; others are copied in each call.
        b_scale: The same for ``b``, in its own order of axes: ``(k / 128, n)`` or ``(k / 128, n / 128)``; with
            ``trans_b`` ``(n, k / 128)`` or ``(n / 128, k / 128)``. One for the tensor only if a_scale is.
        bias: One element for each column: shape ``(n,)``, of the result's dtype. None: no bias.
        trans_b: ``b`` is stored transposed.
        c_dtype: Element type of the result: ``"bf16"``, ``"fp16"``, ``"fp32"``, ``"fp8e4m3"`` or ``"fp8e5m2"``.
        threads: Number of CPU threads, from 1 to 1024. None: TILESMITH_NUM_THREADS, else all usable cores. Ignored on a
            GPU.
        mode: ``"fast"``, ``"background"``, ``"hybrid"``, ``"normal"``, ``"trust_verify"`` or ``"strict"``. None:
            TILESMITH_FIND_MODE.

    Returns:
        A new dense array of shape ``(m, n)``, of a's kind: the product of the matrices that ``a`` and ``b`` stand for,
        plus ``bias``.

    Raises:
        ProblemError: The problem cannot exist: a size or dtype breaks a rule.
        ArgumentError: An array cannot be a tensor of the problem: its shape, dtype, device or kind differs, or its
            gradient is recorded.
        NoSolutionError: No solver computes the problem, or ``strict`` mode has no answer.
        NoCompilerError: A kernel must be compiled, and there is no compiler.

    Examples:
        >>> import ml_dtypes, numpy as np, tilesmith
        >>> a, b = np.ones((2, 256), ml_dtypes.float8_e4m3fn), np.ones((256, 3), ml_dtypes.float8_e4m3fn)
        >>> a_scale, b_scale = np.array([[1.0, 2.0], [4.0, 8.0]], np.float32), np.ones((2, 1), np.float32)
        >>> tilesmith.scaled_gemm(a, b, a_scale, b_scale, c_dtype="fp32")[:, 0].tolist()
        [384.0, 1536.0]
    """
    arrays = (a, b, a_scale, b_scale, bias)
    given = arrays if bias is not None else arrays[:4]
    options = (trans_b, c_dtype, mode, threads)
    if are_tensors(_NAMES, given):
        return _package.tensor_calls().scaled_gemm(*arrays, *options)
    return run_scaled(given, *options)


def run_scaled(arrays: tuple[Any, ...], trans_b: bool, c_dtype: str, mode: str | None, threads: int | None) -> Any:
    """Look the call up by shapes, strides, dtypes, devices and options, or make it; then run it."""
    refuse_watched(arrays)
    given = tuple(describe(name, array) for name, array in zip(_NAMES, arrays, strict=False))
    options = trans_b, c_dtype, mode, threads
    key = ("scaled", given, tuple(type(each) for each in arrays), *options)
    return remembered(key, lambda: _made(given, *options))(*arrays)


def _made(
    given: tuple[ArrayLayout, ...], trans_b: bool, c_dtype: str, mode: str | None, threads: int | None
) -> Callable[..., Any]:
    a, b, *scales = given[:4]
    for name, matrix in (("a", a), ("b", b)):
        if len(matrix.shape) != 2:
            raise ArgumentError(f"{name} has shape {matrix.shape}: it needs two axes")
    for name, each in zip(_NAMES[1:], given[1:], strict=False):
        check_device(name, each, a)
    (m, k), (n, of_b) = a.shape, b.shape if trans_b else b.shape[::-1]
    if of_b != k:
        raise ArgumentError(f"a {a.shape} has k = {k}, b {b.shape} has k = {of_b}: they must be equal")
    kinds = [_kind("a_scale", scales[0], m, k, False), _kind("b_scale", scales[1], n, k, not trans_b)]
    empty = 0 in (m, n, k)
    lda, ldb = (None if empty else pitch_of(matrix) for matrix in (a, b))
    signature = GemmSignature(
        m, n, k, trans_b=trans_b, a_dtype=a.dtype, b_dtype=b.dtype, c_dtype=c_dtype, lda=lda, ldb=ldb,
        a_scale=kinds[0], b_scale=kinds[1], epilogue=Epilogue(bias=len(given) > 4),
    )  # fmt: skip
    bound = bound_for(signature, a.device, mode, threads)
    changes: list[Callable[[Any], Any]] = [contiguous if pitch_of(matrix) is None else _same for matrix in (a, b)]
    for name, scale in zip("ab", scales, strict=True):
        shape, steps = signature.scale_layout(name)
        changes.append(_change(scale, shape, steps))
    changes += [contiguous if each.strides is not None or each.odd else _same for each in given[4:]]
    if all(change is _same for change in changes):
        return bound
    return lambda *each: bound(*(change(array) for array, change in zip(each, changes, strict=True)))


def _kind(name: str, scale: ArrayLayout, rows: int, k: int, by_k: bool) -> str:
    """The kind of factors that have this shape."""
    if scale.dtype != "fp32":
        raise ArgumentError(f"{name} has dtype {scale.dtype}, not fp32")
    if scale.shape in ((), (1,)):
        return "tensor"
    of_k = -(-k // SCALE_K)
    shapes = {kind: (-(-rows // share), of_k) for kind, share in SCALE_BLOCKS.items()}
    shapes = {kind: shape[::-1] if by_k else shape for kind, shape in shapes.items()}
    for kind, shape in shapes.items():
        if scale.shape == shape:
            return kind
    wanted = " or ".join(f"{shape} ({kind})" for kind, shape in shapes.items())
    raise ArgumentError(f"{name} has shape {scale.shape}: it needs (1,) or {wanted}")


def _change(scale: ArrayLayout, shape: tuple[int, ...], steps: tuple[int, ...]) -> Callable[[Any], Any]:
    """A function that makes factors lie in memory as the signature says."""
    if len(shape) == 1:
        return _same if scale.shape == shape else lambda array: array.reshape(shape)
    mine = scale.strides or dense_strides(scale.shape)
    lies = not scale.odd and all(n == 1 or x == y for n, x, y in zip(shape, mine, steps, strict=True))
    if lies:
        return _same
    if steps == dense_strides(shape):
        return contiguous
    return lambda array: permuted(contiguous(permuted(array, (1, 0))), (1, 0))


def _same(array: Any) -> Any:
    return array
