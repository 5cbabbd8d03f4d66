"""The strides of tensors and filters, as arguments of kernels."""

from __future__ import annotations

from tilesmith.codegen.cuda.unit import Argument, integers
from tilesmith.problems.geometry import TensorView


def tensor_steps(name: str, view: TensorView) -> tuple[Argument, ...]:
    """A tensor's strides in elements, as arguments of a kernel: ``NAME_n``, ``NAME_depth`` and so on."""
    n, _, d, h, w = view.strides
    steps = {f"{name}_depth": d, f"{name}_row": h, f"{name}_column": w}
    return (*integers("i64", **{f"{name}_n": n}), *integers("int", **steps))


def filter_steps(view: TensorView) -> tuple[Argument, ...]:
    """A filter's strides in elements, as arguments of a kernel: ``w_channel`` (the first axis), ``w_depth`` etc."""
    k, _, d, h, w = view.strides
    return integers("i64", w_channel=k, w_depth=d, w_row=h, w_column=w)
