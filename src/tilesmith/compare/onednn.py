"""PyTorch's ways to compute the same problem on this CPU: every one is measured each time.

The modes of a convolution: ``contiguous`` (channels first), ``channels_last``, and ``prepacked`` (oneDNN's own filter
order, the operators that PyTorch's freezing emits). Data lies as the mode likes it best; a layout change
is charged to no side. Everything runs in inference mode. PyTorch picks oneDNN's kernels itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from tilesmith.compare.rival import Setting, Way
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import TensorView
from tilesmith.solvers.external.operators import Call, ConvShape, Finish, argument_names, placed
from tilesmith.solvers.external.tensors import TORCH_DTYPES, from_numpy, logical_tensor, matrix_tensor, to_numpy


def version(library: str) -> str:
    """PyTorch's version, for reports."""
    return f"torch {torch.__version__}"


@contextmanager
def ways(library: str, setting: Setting) -> Iterator[tuple[Way, ...]]:
    """``Rival.ways``, with PyTorch's inference mode inside. Sets PyTorch's number of threads.

    Ways that PyTorch refuses for these types are left out.
    """
    torch.set_num_threads(setting.target.cores)
    signature = setting.signature
    with torch.inference_mode():
        if isinstance(signature, ConvSignature):
            calls, shape = _conv_calls(signature, setting.values), None
        else:
            calls, shape = gemm_calls(signature, setting.values), (signature.batch, signature.m, signature.n)
        yield tuple(way for name, make in calls.items() if (way := _try(name, make, shape)) is not None)


def _try(name: str, make: Callable[[], Call], shape: tuple[int, ...] | None) -> Way | None:
    """The way, if its first call succeeds; its result comes in ``shape``."""
    try:
        call = make()
        call()
    except (RuntimeError, NotImplementedError):  # no kernel for these types
        return None
    return Way(name, (call,), to_numpy if shape is None else partial(_shaped, shape))


def _shaped(shape: tuple[int, ...], result: torch.Tensor) -> np.ndarray[Any, Any]:
    return to_numpy(result).reshape(shape)


def _conv_calls(signature: ConvSignature, arguments: Sequence[np.ndarray[Any, Any]]) -> dict[str, Callable[[], Call]]:
    problem, canonical = signature.geometry, signature.canonical
    if not {problem.x.dtype, problem.w.dtype, problem.y.dtype} <= set(TORCH_DTYPES):
        return {}
    ordered = [arguments[index] for index in signature.canonical_order]
    dims = canonical.spatial_dims
    named = dict(zip(argument_names(problem), ordered, strict=True))
    tensors = {
        name: logical_tensor(named[name], view, dims)
        for name, view in (("x", problem.x), ("w", problem.w), ("y", problem.y))
        if name in named
    }
    result = problem.y if problem.direction == "fwd" else problem.x
    finish = _epilogue(problem.epilogue, named, result, dims)
    shape = ConvShape(problem, dims)
    if problem.direction == "fwd":
        return _forward(tensors, shape, finish)
    if problem.direction == "bwd":
        return _backward_data(tensors, shape, finish)
    if problem.direction == "wrw":
        return _backward_weights(tensors, shape)
    return {
        form: lambda form=form: _bias_gradient(tensors["y"], form)  # type: ignore[misc]
        for form in ("contiguous", "channels_last")
    }


def _forward(t: dict[str, torch.Tensor], s: ConvShape, finish: Finish) -> dict[str, Callable[[], Call]]:
    convolve = functional.conv2d if s.dims == 2 else functional.conv3d

    def plain(form: str) -> Call:
        x, w, after = placed(t["x"], form), placed(t["w"], form), finish.placed(form)
        fixed = (finish.bias, s.stride, s.padding, s.dilation, s.groups)
        if after.is_identity:
            return lambda: convolve(x, w, *fixed)
        return lambda: after(convolve(x, w, *fixed))

    def prepacked(form: str) -> Call:
        ops = torch.ops.mkldnn
        x, after = placed(t["x"], form), finish.placed(form)
        w = ops._reorder_convolution_weight(t["w"], s.padding, s.stride, s.dilation, s.groups, s.x_shape)
        run = ops._convolution_pointwise.default
        fixed = (finish.bias, s.padding, s.stride, s.dilation, s.groups, *finish.fused)
        if after.is_identity or finish.residual is None:
            return lambda: run(x, w, *fixed)
        return lambda: after(run(x, w, *fixed))

    return _forms(plain, prepacked)


def _backward_data(t: dict[str, torch.Tensor], s: ConvShape, finish: Finish) -> dict[str, Callable[[], Call]]:
    transpose = functional.conv_transpose2d if s.dims == 2 else functional.conv_transpose3d

    def plain(form: str) -> Call:
        y, w, after = placed(t["y"], form), placed(t["w"], form), finish.placed(form)
        fixed = (s.stride, s.padding, s.output_padding, s.groups, s.dilation)
        if after.is_identity:
            return lambda: transpose(y, w, finish.bias, *fixed)
        return lambda: after(transpose(y, w, finish.bias, *fixed))

    def gradient(form: str) -> Call:
        y, w, after = placed(t["y"], form), placed(t["w"], form), finish.placed(form, with_bias=True)
        x = placed(torch.zeros(s.x_shape, dtype=y.dtype), form)  # read for its shape alone
        fixed = (None, s.stride, s.padding, s.dilation, False, [0] * s.dims, s.groups, [True, False, False])
        run = torch.ops.aten.convolution_backward.default
        if after.is_identity:
            return lambda: run(y, x, w, *fixed)[0]
        return lambda: after(run(y, x, w, *fixed)[0])

    def prepacked(form: str) -> Call:
        ops = torch.ops.mkldnn
        y, after = placed(t["y"], form), finish.placed(form)
        # As inductor's freezing does: the filter is handed over as the transposed convolution's, oneDNN reorders it.
        w = ops._reorder_convolution_transpose_weight(
            t["w"], s.padding, s.output_padding, s.stride, s.dilation, s.groups, s.y_shape
        )
        run = ops._convolution_transpose_pointwise.default
        fixed = (finish.bias, s.padding, s.output_padding, s.stride, s.dilation, s.groups, *finish.fused)
        if after.is_identity or finish.residual is None:
            return lambda: run(y, w, *fixed)
        return lambda: after(run(y, w, *fixed))

    named = _forms(plain, prepacked)
    for form in ("contiguous", "channels_last"):
        named[f"backward {form}"] = lambda form=form: gradient(form)  # type: ignore[misc]
    return named


def _backward_weights(t: dict[str, torch.Tensor], s: ConvShape) -> dict[str, Callable[[], Call]]:
    def gradient(form: str) -> Call:
        y, x = placed(t["y"], form), placed(t["x"], form)
        w = placed(torch.zeros(s.w_shape, dtype=y.dtype), form)  # read for its shape alone
        fixed = (None, s.stride, s.padding, s.dilation, False, [0] * s.dims, s.groups, [False, True, False])
        run = torch.ops.aten.convolution_backward.default
        return lambda: run(y, x, w, *fixed)[1]

    return {
        form: lambda form=form: gradient(form)  # type: ignore[misc]
        for form in ("contiguous", "channels_last")
    }


def _bias_gradient(dy: torch.Tensor, form: str) -> Call:
    y, axes = placed(dy, form), [0, *range(2, dy.dim())]
    return lambda: y.sum(axes)


def _forms(plain: Callable[[str], Call], prepacked: Callable[[str], Call]) -> dict[str, Callable[[], Call]]:
    return {
        "contiguous": lambda: plain("contiguous"),
        "channels_last": lambda: plain("channels_last"),
        "prepacked": lambda: prepacked("channels_last"),
        "prepacked contiguous": lambda: prepacked("contiguous"),
    }


def _epilogue(epilogue: Epilogue, named: dict[str, np.ndarray[Any, Any]], result: TensorView, dims: int) -> Finish:
    from tilesmith.solvers.external.tensors import from_numpy

    bias = from_numpy(np.ascontiguousarray(named["b"])) if epilogue.bias else None
    residual = logical_tensor(named["z"], result, dims) if epilogue.residual else None
    return Finish(epilogue, bias, residual)


def gemm_calls(signature: GemmSignature, arguments: Sequence[np.ndarray[Any, Any]]) -> dict[str, Callable[[], Call]]:
    """A maker of the call for each mode."""
    problem = signature.geometry
    if problem.groups or not {problem.a.dtype, problem.b.dtype, problem.c.dtype} <= set(TORCH_DTYPES):
        return {}
    a, b = matrix_tensor(arguments[0], problem.a), matrix_tensor(arguments[1], problem.b)
    rest = list(arguments[2:])
    bias = from_numpy(np.ascontiguousarray(rest.pop(0))) if problem.epilogue.bias else None
    residual = matrix_tensor(rest.pop(0), problem.c) if problem.epilogue.residual else None
    c = matrix_tensor(rest.pop(0), problem.c) if problem.beta != 0 else None
    if problem.batch == 1:
        a, b = a[0], b[0]
        residual = None if residual is None else residual[0]
        c = None if c is None else c[0]
    extra = bias if residual is None else residual if bias is None else residual + bias
    finish = Finish(problem.epilogue, None, extra)
    calls: dict[str, Callable[[], Call]] = {"mm": lambda: _plain(a, b, c, problem.alpha, problem.beta, finish)}
    if problem.batch == 1 and problem.alpha == 1.0 and c is None:
        column_b = b.t().contiguous()
        fused_bias = bias if residual is None else None
        whole = finish if residual is not None else Finish(problem.epilogue, None, None)

        def linear() -> Call:
            if whole.is_identity:
                return lambda: functional.linear(a, column_b, fused_bias)
            return lambda: whole(functional.linear(a, column_b, fused_bias))

        def prepacked() -> Call:
            ops = torch.ops.mkldnn
            w = ops._reorder_linear_weight(column_b, problem.m)
            run = ops._linear_pointwise.default
            if residual is not None:
                return lambda: whole(run(a, w, None, "none", [], ""))
            fixed = (fused_bias, *whole.fused)
            return lambda: run(a, w, *fixed)

        def mkl() -> Call:
            w = torch.ops.mkl._mkl_reorder_linear_weight(column_b.to_mkldnn(), problem.m)
            run = torch.ops.mkl._mkl_linear.default
            if whole.is_identity:
                return lambda: run(a, w, column_b, fused_bias, problem.m)
            return lambda: whole(run(a, w, column_b, fused_bias, problem.m))

        calls["linear"] = linear
        calls["prepacked"] = prepacked
        if problem.a.dtype == "fp32":
            calls["prepacked mkl"] = mkl
    return calls


def _plain(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, alpha: float, beta: float, finish: Finish) -> Call:
    after: Callable[[torch.Tensor], torch.Tensor] | None = None if finish.is_identity else finish
    if c is not None:
        add = torch.addmm if a.dim() == 2 else torch.baddbmm
        if after is None:
            return lambda: add(c, a, b, beta=beta, alpha=alpha)
        return lambda: after(add(c, a, b, beta=beta, alpha=alpha))
    multiply = torch.mm if a.dim() == 2 else torch.bmm
    if alpha == 1.0 and after is None:
        return lambda: multiply(a, b)
    return lambda: finish(multiply(a, b).mul_(alpha))
