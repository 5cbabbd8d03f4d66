"""The problems that a PyTorch program meets, forward and backward, with how often it meets them.

A dispatch mode sees each operator of PyTorch below autograd, so the backward pass is met as it is run. Calls of
Tilesmith itself, which are no operators of PyTorch, are met by watching its launchables. Operators in threads that the
program starts itself, other processes and compiled graphs are not seen (``torch.compile`` is switched off by the
command line).
"""

from __future__ import annotations

import runpy
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tilesmith.dispatch.kept_calls import forget
from tilesmith.dispatch.launchable import watch_calls
from tilesmith.errors import ProblemError
from tilesmith.problems.rewrite import Signature
from tilesmith.torch_ops.describe import conv_problem, gemm_problem

aten = torch.ops.aten


class Trace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """``with Trace() as trace: model(x)``; ``problems`` counts what was met, in the order in which it came.

    ``others`` counts the convolutions and products that no signature describes, by operator and reason. ``device`` is
    where most of them ran. Of Tilesmith's own calls those are met whose launchable was made inside.
    """

    tilesmith_may_run = True  # every operator is run, and none is recorded to be run again

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.problems: dict[Signature, int] = {}
        self.others: dict[str, int] = {}
        self._devices: dict[str, int] = {}
        self._count = threading.Lock()
        self._here = threading.local()  # whether this thread is inside a call of Tilesmith

    def __enter__(self) -> Trace:
        forget()  # what was called before is looked up anew, and so watched
        watch_calls(self._call)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *failure: Any) -> None:
        super().__exit__(*failure)  # type: ignore[no-untyped-call]
        watch_calls(None)
        forget()

    @contextmanager
    def _again(self) -> Iterator[None]:
        """The mode alone, for the operators of which another one is made."""
        super().__enter__()  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            super().__exit__(None, None, None)  # type: ignore[no-untyped-call]

    @property
    def device(self) -> str:
        """``cpu``, or the CUDA device of most calls, such as ``cuda:0``."""
        return max(self._devices, key=lambda name: self._devices[name], default="cpu")

    def _meet(self, signature: Signature, operand: Any) -> None:
        name = str(getattr(operand, "device", "cpu"))
        with self._count:
            self.problems[signature] = self.problems.get(signature, 0) + 1
            if name == "cpu" or name.startswith("cuda"):
                self._devices[name] = self._devices.get(name, 0) + 1

    def _call(self, signature: Signature, call: Callable[[], Any]) -> Any:
        """A call of Tilesmith; what it asks of PyTorch (its own kernels, too) is part of it."""
        self._meet(signature, next(iter(getattr(call, "args", ())), None))
        before, self._here.inside = getattr(self._here, "inside", False), True
        try:
            return call()
        finally:
            self._here.inside = before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        read = READERS.get(func)
        if getattr(self._here, "inside", False):
            return func(*args, **kwargs)
        if read is None:
            # Outside autograd PyTorch asks for conv2d or linear itself, which are made of operators that are known.
            with self._again():
                result = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if result is NotImplemented else result
        result = func(*args, **kwargs)
        try:
            for signature in read(result, *args, **kwargs):
                self._meet(signature, next(each for each in args if isinstance(each, torch.Tensor)))
        except ProblemError as error:
            text = f"{func}: {error}"
            self.others[text] = self.others.get(text, 0) + 1
        return result


def run_traced(script: Path, arguments: Sequence[str], trace: Trace) -> None:
    """Run a script as ``python script arguments`` does, and note what it meets; what it raises comes through."""
    argv, path = sys.argv, sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path[0:1] = [str(script.resolve().parent)]
    try:
        with trace:
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = argv, path


# --- operators --------------------------------------------------------------------------------------------------------


def _convolution(
    y: Any, x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int,
) -> list[Signature]:  # fmt: skip
    return [
        conv_problem(
            "fwd", x, w, y, bias=bias is not None, stride=stride, padding=padding, dilation=dilation,
            transposed=transposed, output_padding=output_padding, groups=groups,
        )
    ]  # fmt: skip


def _convolution_backward(
    grads: Any, dy: Any, x: Any, w: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, output_mask: Any,
) -> list[Signature]:  # fmt: skip
    found: list[Signature] = []
    for mode, wanted, grad in zip(("bwd", "wrw", "bgrad"), output_mask, grads, strict=True):
        if wanted:
            found.append(
                conv_problem(
                    mode, grad if mode == "bwd" else x, grad if mode == "wrw" else w, dy, stride=stride,
                    padding=padding, dilation=dilation, transposed=transposed, output_padding=output_padding,
                    groups=groups,
                )
            )  # fmt: skip
    return found


def _mm(c: Any, a: Any, b: Any, **kwargs: Any) -> list[Signature]:
    return [gemm_problem(a, b)]


def _addmm(c: Any, added: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1, **kwargs: Any) -> list[Signature]:
    return [gemm_problem(a, b, added=added, alpha=alpha, beta=beta)]


def _undescribed(c: Any, *args: Any, **kwargs: Any) -> list[Signature]:
    raise ProblemError("a product with scales or of groups")


def _mv(y: Any, a: Any, x: Any) -> list[Signature]:
    return [gemm_problem(a, x.unsqueeze(1))]


def _addmv(y: Any, added: Any, a: Any, x: Any, *, beta: Any = 1, alpha: Any = 1) -> list[Signature]:
    return [gemm_problem(a, x.unsqueeze(1), added=added.expand(y.shape).unsqueeze(1), alpha=alpha, beta=beta)]


READERS: dict[Any, Callable[..., list[Signature]]] = {
    aten.convolution.default: _convolution, aten.convolution_backward.default: _convolution_backward,
    aten.mm.default: _mm, aten.mm.out: _mm, aten.bmm.default: _mm, aten.bmm.out: _mm, aten._int_mm.default: _mm,
    aten.addmm.default: _addmm, aten.addmm_.default: _addmm, aten.baddbmm.default: _addmm,
    aten.baddbmm_.default: _addmm, aten.mv.default: _mv, aten.addmv.default: _addmv,
    aten._scaled_mm.default: _undescribed, aten._grouped_mm.default: _undescribed,
}  # fmt: skip
