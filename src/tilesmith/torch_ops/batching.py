"""Rules of ``torch.vmap``: the added axis becomes part of the batch, or of the groups where filters differ."""

from __future__ import annotations

from typing import Any

import torch

from tilesmith.torch_ops.results import conv_shape

Optional = torch.Tensor | None


def _front(tensor: Any, axis: int | None, size: int) -> Any:
    """The tensor with the added axis first; repeated along it where it has none."""
    return tensor.expand(size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)


def _folded(tensor: Any, into: int) -> Any:
    """The first axis joined with the one at ``into`` behind it, as the outer part of the joint axis."""
    moved = tensor.movedim(0, into)
    return moved.reshape(*moved.shape[:into], -1, *moved.shape[into + 2 :])


def _unfolded(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """The inverse: the outer part of ``axis`` becomes the first axis."""
    shape = tensor.shape
    return tensor.reshape(*shape[:axis], size, shape[axis] // size, *shape[axis + 1 :]).movedim(axis, 0)


def _each(tensor: Any, axis: int | None, size: int, into: int) -> Any:
    return None if tensor is None else _folded(_front(tensor, axis, size), into)


def batched_convolution(info: Any, in_dims: Any, x: Any, w: Any, b: Any, residual: Any, *options: Any) -> Any:
    """``tilesmith::convolution``: the added axis joins the batch, or the groups if the filter has it."""
    size, (in_x, in_w, in_b, in_z, *_) = info.batch_size, in_dims
    convolve = torch.ops.tilesmith.convolution
    if in_w is not None:
        *shape, groups = options[:6]
        y = convolve(
            _each(x, in_x, size, 1), _each(w, in_w, size, 0), _each(b, in_b, size, 0),
            _each(residual, in_z, size, 1), *shape, groups * size, *options[6:],
        )  # fmt: skip
        return _unfolded(y, 1, size), 0
    if in_b is not None:  # one bias for each: it is added as a residual
        axes = x.dim() - 2 - (in_x is not None)
        bias = b.movedim(in_b, 0).reshape(size, 1, -1, *[1] * axes)
        residual = bias if residual is None else _front(residual, in_z, size) + bias
        b, in_z = None, 0
    x = _each(x, in_x, size, 0)
    if residual is not None:
        batch, *inner = conv_shape(x, w, *options[:6])
        residual = _folded(_front(residual, in_z, size).expand(size, batch // size, *inner), 0)
    return _unfolded(convolve(x, w, b, residual, *options), 0, size), 0


def batched_gradients(info: Any, in_dims: Any, dy: Any, x: Any, w: Any, *options: Any) -> Any:
    """``tilesmith::convolution_backward``: dx by the batch where the filter is shared; dw and db by the groups."""
    size, (in_dy, in_x, in_w, *_) = info.batch_size, in_dims
    *shape, groups, mask = options[:7]
    sums = options[7:]
    differentiate = torch.ops.tilesmith.convolution_backward
    by_batch = in_w is None and mask[0]
    dx = dw = db = dy.new_empty(0)
    out: list[int | None] = [None, None, None]
    if by_batch:
        each_dy, each_x = _each(dy, in_dy, size, 0), _each(x, in_x, size, 0)
        dx, *_ = differentiate(each_dy, each_x, w, *shape, groups, [True, False, False], *sums)
        dx, out[0] = _unfolded(dx, 0, size), 0
    rest = [mask[0] and not by_batch, mask[1], mask[2]]
    if any(rest):
        found = differentiate(
            _each(dy, in_dy, size, 1), _each(x, in_x, size, 1), _each(w, in_w, size, 0), *shape, groups * size, rest,
            *sums,
        )  # fmt: skip
        if rest[0]:
            dx, out[0] = _unfolded(found[0], 1, size), 0
        if rest[1]:
            dw, out[1] = _unfolded(found[1], 0, size), 0
        if rest[2]:
            db, out[2] = _unfolded(found[2], 0, size), 0
    return (dx, dw, db), tuple(out)


def batched_gemm(info: Any, in_dims: Any, a: Any, b: Any, bias: Any, residual: Any, *options: Any) -> Any:
    """``tilesmith::gemm``: the added axis joins the rows, or the batch if the second matrix has it."""
    size, (in_a, in_b, in_bias, in_z, *_) = info.batch_size, in_dims
    batch = a.dim() - (in_a is not None) - 2
    multiply = torch.ops.tilesmith.gemm
    if in_bias is not None:
        added = bias.movedim(in_bias, 0).reshape(size, *[1] * (batch + 1), -1)
        residual = added if residual is None else _front(residual, in_z, size) + added
        bias, in_z = None, 0
    if residual is not None:
        rows = (a if in_a is None else a.movedim(in_a, -1)[..., 0]).shape[:-1]
        residual = _front(residual, in_z, size).expand(size, *rows, residual.shape[-1])
    if batch == 0 and in_b is not None:  # matrices become a batch of them
        c = multiply(_front(a, in_a, size), _front(b, in_b, size), bias, residual, *options)
        return c, 0
    folded = None if residual is None else _folded(residual, 0)
    right = b if batch == 0 else _each(b, in_b, size, 0)
    return _unfolded(multiply(_each(a, in_a, size, 0), right, bias, folded, *options), 0, size), 0
