"""PyTorch's operators as problems: what a call of ``aten.convolution`` or ``aten.mm`` asks for.

Signatures name tensors as they lie in memory: a channels-last tensor is ``NHWC``, a transposed matrix is transposed, a
view with a pitch has strides. A tensor whose strides are no pitches counts as the dense copy that would be made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from tilesmith.dispatch.arrays import TORCH_NAMES, ArrayLayout
from tilesmith.dispatch.layout_names import place
from tilesmith.errors import ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.layouts import default_layout, dense_strides
from tilesmith.problems.limits import refuse_empty

Number = int | float | bool


def conv_problem(
    mode: str, x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, *, bias: bool = False, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> ConvSignature:  # fmt: skip
    """One direction of a convolution; ``x``, ``w`` and ``y`` are the tensors, or the gradients in their places.

    Raises ``ProblemError`` for what no signature describes.
    """
    dims = x.dim() - 2
    if dims not in (1, 2, 3):
        raise ProblemError(f"a convolution of {dims} spatial axes")
    layout = str(default_layout(dims))
    described = [_described(tensor) for tensor in (x, w, y)]
    px, pw, py = place(described, [layout] * 3)
    names = [each.dtype for each in described]
    signature = ConvSignature(
        px.shape, pw.shape, mode=mode, stride=_axes(stride, dims), padding=_axes(padding, dims),
        dilation=_axes(dilation, dims), groups=groups, transposed=transposed,
        output_padding=_axes(output_padding, dims) if transposed else (0,) * dims,
        dtype=names[0], kernel_dtype=names[1], output_dtype=names[2],
        input_layout=px.layout, kernel_layout=pw.layout, output_layout=py.layout,
        input_strides=px.strides, kernel_strides=pw.strides, output_strides=py.strides, epilogue=Epilogue(bias=bias),
    )  # fmt: skip
    refuse_empty(signature)
    if signature.output_shape != py.shape:
        raise ProblemError(f"the result is {signature.output_shape}, PyTorch has {py.shape}")
    return signature


def gemm_problem(
    a: torch.Tensor, b: torch.Tensor, *, added: torch.Tensor | None = None, alpha: Number = 1, beta: Number = 1
) -> GemmSignature:
    """``alpha * a @ b + beta * added``; matrices have two axes, or three with the batch first.

    ``added`` is a bias when it is a row for every row of the result. Raises ``ProblemError`` for what no signature
    describes.
    """
    batch = a.shape[0] if a.dim() == 3 else 1
    m, k, n = int(a.shape[-2]), int(a.shape[-1]), int(b.shape[-1])
    (trans_a, lda, stride_a), (trans_b, ldb, stride_b) = _matrix(a), _matrix(b)
    is_bias = added is not None and added.numel() == n and added.shape[-1] == n and m != 1
    is_bias = is_bias or (added is not None and added.dim() == 1)
    if is_bias and beta not in (0, 1):
        raise ProblemError(f"a bias times {beta}")
    if added is not None and not is_bias and beta != 0 and tuple(added.shape[-2:]) != (m, n):
        raise ProblemError(f"a {tuple(added.shape)} that is spread over the result")
    signature = GemmSignature(
        m, n, k, batch=int(batch), trans_a=trans_a, trans_b=trans_b, dtype=_dtype(a), b_dtype=_dtype(b),
        alpha=float(alpha), beta=0.0 if added is None or is_bias else float(beta), lda=lda, ldb=ldb,
        stride_a=stride_a, stride_b=stride_b, epilogue=Epilogue(bias=is_bias and beta == 1),
    )  # fmt: skip
    refuse_empty(signature)
    return signature


def with_result(problem: GemmSignature, c: torch.Tensor) -> GemmSignature:
    """The same product with a result that lies as ``c``; ``ProblemError`` where its rows are not contiguous."""
    transposed, ldc, stride_c = _matrix(c)
    if transposed or c.shape[-1] > 1 != c.stride(-1):
        raise ProblemError("a result whose rows are not contiguous")
    return replace(problem, ldc=ldc, stride_c=stride_c)


def _described(tensor: torch.Tensor) -> ArrayLayout:
    shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))
    dense = all(n == 1 or a == b for n, a, b in zip(shape, strides, dense_strides(shape), strict=True))
    return ArrayLayout(shape, None if dense else strides, _dtype(tensor), steps=strides)


def _matrix(tensor: torch.Tensor) -> tuple[bool, int | None, int | None]:
    """Whether it lies transposed, its leading dimension and its batch stride (None where dense)."""
    *batch, rows, columns = map(int, tensor.shape)
    *step, lead, inner = map(int, tensor.stride())
    if columns == 1 or inner == 1:
        transposed, length, pitch, lines = False, columns, lead, rows
    elif rows == 1 or lead == 1:
        transposed, length, pitch, lines = True, rows, inner, columns
    else:
        return False, None, None  # a dense copy
    if columns == 1 and inner != 1 and rows > 1 and lead == 1:
        transposed, length, pitch, lines = True, rows, rows, 1
    pitch = length if lines == 1 else pitch
    if pitch < length:
        return False, None, None
    stride = step[0] if batch and batch[0] > 1 else None
    if stride is not None and (stride == pitch * lines or 0 < stride < pitch * (lines - 1) + length):
        stride = None
    return transposed, None if pitch == length else pitch, stride


def _dtype(tensor: torch.Tensor) -> str:
    name = TORCH_NAMES.get(str(tensor.dtype))
    if name is None:
        raise ProblemError(f"elements of {tensor.dtype}")
    return name


def _axes(values: Sequence[int], dims: int) -> tuple[int, ...]:
    found = tuple(map(int, values))
    return found * dims if len(found) == 1 else found
