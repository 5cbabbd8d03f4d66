"""Kernels of ``tilesmith::convolution_backward``: plans of modes bwd, wrw and bgrad, bound for tensors as they lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from tilesmith.dispatch.arrays import ArrayLayout, describe
from tilesmith.dispatch.kept_calls import when_forgotten
from tilesmith.dispatch.launchable import Launchable, get_launchable
from tilesmith.dispatch.layout_names import NamedArray, place
from tilesmith.errors import ArgumentError
from tilesmith.plan.slots import arguments, relaid
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.layouts import default_layout, dense_strides
from tilesmith.torch_ops.results import axes, padding_of, strides_like

Optional = torch.Tensor | None
Found = tuple[Optional, Optional, Optional]  # dx, dw and db; None for each that was not asked for
Leaves = Callable[[ConvSignature, str], bool]  # of a gradient's problem and its device: whether PyTorch computes it
_Call = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Optional]  # of dy, x and w
_OPERANDS = {"bwd": ("dy", "w"), "wrw": ("dy", "x"), "bgrad": ("dy",)}
_RESULTS = {"bwd": "x", "wrw": "w", "bgrad": ""}


class GradientCalls:
    """The plans of the gradients that are wanted, as functions of ``dy``, ``x`` and ``w``.

    Args:
        calls: Of ``dx``, ``dw`` and ``db``; None for each that is not wanted.
        filter_shape: Of ``w``.
        checks_all: Whether the plans refuse every ``dy`` and ``x`` of another problem, and every ``w``, or its shape.
        reads_filter: Whether a plan reads ``w``.
    """

    def __init__(
        self, calls: tuple[_Call | None, _Call | None, _Call | None], filter_shape: tuple[int, ...], checks_all: bool,
        reads_filter: bool,
    ) -> None:  # fmt: skip
        self._to_x, self._to_w, self._to_b = calls
        self._filter_shape = filter_shape
        self.checks_all = checks_all
        self._reads_filter = reads_filter

    def takes(self, w: torch.Tensor) -> bool:
        """Whether the filter has the right shape, where no plan reads it."""
        return self._reads_filter or w.shape == self._filter_shape

    def run(self, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Found:
        """The gradients; ``ArgumentError`` where a plan refuses the tensors."""
        to_x, to_w, to_b = self._to_x, self._to_w, self._to_b
        return (
            None if to_x is None else to_x(dy, x, w),
            None if to_w is None else to_w(dy, x, w),
            None if to_b is None else to_b(dy, x, w),
        )


# All of a call but the values -> its plans.
_memo: dict[tuple[Any, ...], GradientCalls] = {}
_MEMO_LIMIT = 4096
when_forgotten(_memo.clear)
_is_deterministic: Callable[[], bool] = torch._C._get_deterministic_algorithms


def gradient_calls(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int, output_mask: Sequence[bool],
    acc_dtype: str = "", mode: str | None = None, threads: int | None = None, leaves: Leaves | None = None,
) -> GradientCalls:  # fmt: skip
    """Find the plans of ``dx``, ``dw`` and ``db``, those that the mask asks for.

    PyTorch's operator computes those that ``leaves`` says are left to it.
    """
    options = (
        tuple(stride), tuple(padding), tuple(dilation), transposed, tuple(output_padding), groups, acc_dtype, mode,
        threads, _is_deterministic(),
    )  # fmt: skip
    key = (
        dy.shape, dy.stride(), x.shape, x.stride(), w.shape, w.stride(), dy.dtype, x.dtype, w.dtype, dy.device,
        options, tuple(output_mask), leaves,
    )  # fmt: skip
    calls = _memo.get(key)
    if calls is None:
        with torch.no_grad():
            calls = _make(dy, x, w, options, output_mask, leaves)
        if len(_memo) >= _MEMO_LIMIT:
            _memo.clear()
        _memo[key] = calls
    return calls


def gradients_by_operator(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, shape: tuple[Any, ...], wanted: Sequence[bool],
    sums: tuple[Any, ...],
) -> Found:  # fmt: skip
    """The same by ``tilesmith::convolution_backward``, so that what watches this thread sees it."""
    dx, dw, db = torch.ops.tilesmith.convolution_backward(dy, x, w, *shape, wanted, *sums)
    return dx if wanted[0] else None, dw if wanted[1] else None, db if wanted[2] else None


def _make(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, options: tuple[Any, ...], mask: Sequence[bool],
    leaves: Leaves | None,
) -> GradientCalls:  # fmt: skip
    if 0 in (*x.shape, *dy.shape):
        empty = [_no_products(mode) if wanted else None for mode, wanted in zip(_OPERANDS, mask, strict=True)]
        return GradientCalls((empty[0], empty[1], empty[2]), tuple(w.shape), False, False)
    found = [
        _computed(mode, dy, x, w, options, leaves) if wanted else (None, True)
        for mode, wanted in zip(_OPERANDS, mask, strict=True)
    ]
    (to_x, reads), (to_w, _), (to_b, _) = found
    # Only the plan of dw reads x.
    checks_all = to_w is not None and all(exact for _, exact in found)
    return GradientCalls((to_x, to_w, to_b), tuple(w.shape), checks_all, to_x is not None and reads)


def _no_products(mode: str) -> _Call:
    """Gradients of an empty batch: sums of nothing."""

    def call(dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if mode == "bgrad":
            return dy.new_zeros(dy.shape[1])
        like = x if mode == "bwd" else w
        return dy.new_empty_strided(like.shape, strides_like(like)).zero_()

    return call


def _computed(
    mode: str, dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, options: tuple[Any, ...], leaves: Leaves | None
) -> tuple[_Call, bool]:
    """One gradient by a plan, which takes the tensors with their axes as they came; whether it refuses all others."""
    stride, padding, dilation, transposed, output_padding, groups, acc_dtype, find_mode, threads, deterministic = (
        options
    )
    dims = x.dim() - 2
    given = {"x": describe("x", x), "w": describe("w", w), "dy": describe("dy", dy)}
    if len({each.device for each in given.values()}) > 1:
        places = ", ".join(f"{name} is on {each.device}" for name, each in given.items())
        raise ArgumentError(f"{places}: they must be on one device")
    if _RESULTS[mode]:
        like = x if mode == "bwd" else w
        given[_RESULTS[mode]] = _dense(describe("result", like), strides_like(like))
    placed = dict(zip(given, place(tuple(given.values()), [str(default_layout(dims))] * 3), strict=True))
    px, pw, py = placed["x"], placed["w"], placed["dy"]
    signature = ConvSignature(
        px.shape, pw.shape, mode=mode, stride=axes(stride), padding=padding_of(padding, dims), dilation=axes(dilation),
        groups=groups, transposed=transposed, output_padding=axes(output_padding if transposed else (0,)),
        dtype=given["x"].dtype, kernel_dtype=given["w"].dtype, output_dtype=given["dy"].dtype,
        input_layout=px.layout, kernel_layout=pw.layout, output_layout=py.layout,
        input_strides=px.strides, kernel_strides=pw.strides, output_strides=py.strides,
        acc_dtype=acc_dtype, deterministic=deterministic,
    )  # fmt: skip
    if signature.output_shape != py.shape:
        raise ArgumentError(f"dy has shape {given['dy'].shape}, the result of x and w another")
    device = given["dy"].device
    if leaves is not None and len(padding) <= dims and leaves(signature, device):
        return _left(mode, options), False
    on_cpu = device == "cpu"
    launch = get_launchable(
        signature,
        device=None if on_cpu else device,
        mode=find_mode,
        threads=threads if on_cpu else None,
        frozen=False,
    )
    names = _OPERANDS[mode]
    bound = _bound(launch, given, placed, names, _RESULTS[mode])
    copied = {name for name in names if placed[name].copy}
    if copied:
        return _taken(lambda *operands: bound(*_dense_copies(names, operands, copied)), mode), False
    return _taken(bound, mode), launch.exportable


def _left(mode: str, options: tuple[Any, ...]) -> _Call:
    """One gradient by PyTorch."""
    place_ = tuple(_OPERANDS).index(mode)
    shape, mask = options[:6], [index == place_ for index in range(3)]

    def call(dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        found: tuple[torch.Tensor, ...] = torch.ops.aten.convolution_backward.default(
            dy, x, w, [dy.shape[1]], *shape, mask
        )
        return found[place_]

    return call


def _taken(bound: Callable[..., torch.Tensor], mode: str) -> _Call:
    """``bound`` as a function of all three tensors."""
    if mode == "bwd":
        return lambda dy, x, w: bound(dy, w)
    return (lambda dy, x, w: bound(dy, x)) if mode == "wrw" else (lambda dy, x, w: bound(dy))


def _bound(
    launch: Launchable,
    given: dict[str, ArrayLayout],
    placed: dict[str, NamedArray],
    names: tuple[str, ...],
    result: str,
) -> Callable[..., torch.Tensor]:
    """The plan as a function of tensors whose axes are in PyTorch's order."""
    if not launch.exportable:
        return partial(_permuted_call, launch.bound, tuple(placed[name] for name in names), placed.get(result))
    slots = arguments(launch.signature)
    lying = [
        _relaid(slot, _dense(given[name], dense_strides(given[name].shape)) if placed[name].copy else given[name])
        for slot, name in zip(slots, names, strict=False)
    ]
    lying.append(_relaid(slots[-1], given[result]) if result else slots[-1])
    return launch.bound_for(lying)


def _relaid(slot: Any, lies: ArrayLayout) -> Any:
    assert lies.steps is not None
    return relaid(slot, lies.shape, lies.steps)


def _permuted_call(
    bound: Callable[..., torch.Tensor],
    placed: tuple[NamedArray, ...],
    result: NamedArray | None,
    *tensors: torch.Tensor,
) -> torch.Tensor:
    """Another library's kernel takes tensors with their axes in the signature's order."""
    operands = [
        tensor if each.order is None else tensor.permute(each.order)
        for each, tensor in zip(placed, tensors, strict=True)
    ]
    y = bound(*operands)
    if result is None or result.order is None:
        return y
    return y.permute([result.order.index(axis) for axis in range(y.dim())])


def _dense_copies(names: Sequence[str], operands: Sequence[torch.Tensor], copied: set[str]) -> list[torch.Tensor]:
    """The operands, those that lie as no kernel reads them (strides of 0, say) as dense copies."""
    return [tensor.contiguous() if name in copied else tensor for name, tensor in zip(names, operands, strict=True)]


def _dense(described: ArrayLayout, strides: tuple[int, ...]) -> ArrayLayout:
    dense = strides == dense_strides(described.shape)
    return ArrayLayout(described.shape, None if dense else strides, described.dtype, steps=strides)
