"""Slow, plain evaluation of problems on flat memory, in float64: what the numbers and views of a geometry mean."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from tilesmith.problems.geometry import ConvGeometry, GemmGeometry, MatrixView, TensorView
from tilesmith.problems.layouts import dense_strides


def flat(array: np.ndarray) -> np.ndarray:
    """The memory from an array's first to its last element, as float64."""
    steps = [stride // array.itemsize for stride in array.strides]
    span = sum((n - 1) * s for n, s in zip(array.shape, steps, strict=True)) + 1
    bits = array.view(f"u{array.itemsize}")
    return np.lib.stride_tricks.as_strided(bits, (span,), (array.itemsize,)).view(array.dtype).astype(np.float64)


def addresses(view: TensorView | MatrixView) -> np.ndarray:
    """The place of each logical element."""
    if isinstance(view, MatrixView):
        grid = np.ogrid[tuple(slice(n) for n in (view.batch, view.rows, view.columns))]
        return sum(g * s for g, s in zip(grid, view.strides, strict=True))
    n, c, d, h, w = np.ogrid[tuple(slice(size) for size in view.shape)]
    sn, sc, sd, sh, sw = view.strides
    return n * sn + (c // view.vector) * sc + c % view.vector + d * sd + h * sh + w * sw


def activate(r: torch.Tensor, epilogue) -> torch.Tensor:
    return {
        "none": lambda: r,
        "relu": lambda: torch.relu(r),
        "leaky_relu": lambda: torch.where(r < 0, r * epilogue.slope, r),
        "silu": lambda: F.silu(r),
        "gelu": lambda: F.gelu(r),
        "clamp": lambda: torch.clamp(r, epilogue.low, epilogue.high),
        "gelu_tanh": lambda: F.gelu(r, approximate="tanh"),
        "sigmoid": lambda: F.sigmoid(r),
        "tanh": lambda: F.tanh(r),
        "hardswish": lambda: F.hardswish(r),
        "hardsigmoid": lambda: F.hardsigmoid(r),
    }[epilogue.activation]()


def evaluate(problem: ConvGeometry | GemmGeometry, slots: list[np.ndarray], size: int) -> np.ndarray:
    """The memory of the last slot (``size`` elements, 7 where nothing is written), given that of the others."""
    take = iter(slots)
    result, view = _gemm(problem, take) if isinstance(problem, GemmGeometry) else _conv(problem, take)
    channels = (1, 1, -1) if isinstance(problem, GemmGeometry) else (1, -1, 1, 1, 1)
    extra = list(take)
    if problem.epilogue.is_scaled:
        scale = extra.pop(problem.epilogue.bias + problem.epilogue.residual)
        result = result * torch.from_numpy(scale).reshape(channels)
    take = iter(extra)
    if problem.epilogue.bias:
        result = result + torch.from_numpy(next(take)).reshape(channels)
    if problem.epilogue.residual:
        result = result + torch.from_numpy(next(take)[addresses(view)])
    if isinstance(problem, GemmGeometry) and problem.beta != 0:
        result = result + problem.beta * torch.from_numpy(next(take)[addresses(view)])
    memory = np.full(size, 7.0)
    memory[addresses(view)] = activate(result, problem.epilogue).numpy()
    return memory


def _gemm(g: GemmGeometry, take):
    a, b = (torch.from_numpy(next(take)[addresses(view)]) for view in (g.a, g.b))
    return g.alpha * (a @ b), g.c


def _conv(g: ConvGeometry, take):
    names = {"fwd": "xw", "bwd": "yw", "wrw": "yx", "bgrad": "y"}[g.direction]
    t = {name: torch.from_numpy(next(take)[addresses(getattr(g, name))]) for name in names}
    if g.direction == "bgrad":
        view = TensorView("b", "fp64", (1, g.k, 1, 1, 1), (g.k, 1, 0, 0, 0))
        return t["y"].sum((0, 2, 3, 4)).reshape(view.shape), view
    args = {"stride": g.stride, "dilation": g.dilation, "groups": g.groups}
    around = [side for pair in reversed(tuple(zip(g.padding, g.padding_high, strict=True))) for side in pair]
    padded = [n + a + b for n, a, b in zip(g.input, around[4::-2], around[5::-2], strict=True)]
    if g.direction == "fwd":
        return F.conv3d(F.pad(t["x"], around), t["w"], **args), g.y
    if g.direction == "bwd":
        dx = torch.nn.grad.conv3d_input((*g.x.shape[:2], *padded), t["w"], t["y"], **args)
        return F.pad(dx, [-side for side in around]), g.x
    return torch.nn.grad.conv3d_weight(F.pad(t["x"], around), g.w.shape, t["y"], **args), g.w


def span(shape, strides) -> int:
    steps = strides or dense_strides(shape)
    return sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + 1
