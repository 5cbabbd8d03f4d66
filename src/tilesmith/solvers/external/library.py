"""cuDNN and cuBLAS through PyTorch: one call on the user's tensors.

cuDNN runs in benchmark mode with no limit on plans: it times all of them at the first call of a problem and keeps the
fastest for this process. fp32 is exact unless the signature accumulates as TF32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from tilesmith.plan.records import Slot
from tilesmith.plan.slots import arguments
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import TensorView
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import torch_args
from tilesmith.solvers.external.operators import ConvShape, Finish, argument_names, placed
from tilesmith.solvers.external.tensors import to_numpy

FORMS = ("contiguous", "channels_last")
BLAS = ("cublas", "cublaslt")


def version(library: str) -> str:
    """Name and version of the library, for reports."""
    if library == "cudnn":
        number = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        return f"cuDNN {number} of torch {torch.__version__}, benchmark mode, all plans"
    return f"cuBLAS {torch.version.cuda} of torch {torch.__version__}, best of cublas and cublaslt"


def library_call(signature: Signature, config: str) -> ConvCall | GemmCall:
    """The problem as a function of its tensors, in the order of its arguments, on PyTorch's current stream."""
    if isinstance(signature, GemmSignature):
        return GemmCall(signature, BLAS["lt=1" in config.split()])
    return ConvCall(signature)


@contextmanager
def benchmarking(tf32: bool = False) -> Iterator[None]:
    """Inside, cuDNN tries every plan of a problem that it meets, and nothing is recorded for gradients."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    flags = torch.backends.cudnn.flags(
        enabled=True, benchmark=True, benchmark_limit=0, deterministic=False, allow_tf32=tf32
    )
    matmul.allow_tf32 = tf32
    try:
        with torch.no_grad(), flags:
            yield
    finally:
        matmul.allow_tf32 = before


@contextmanager
def on_stream(ordinal: int, handle: int, tf32: bool = False) -> Iterator[None]:
    """Inside, PyTorch queues its work on a stream of the driver, in benchmark mode."""
    place = torch.device("cuda", ordinal)
    stream = torch.cuda.ExternalStream(handle, device=place)  # type: ignore[no-untyped-call]
    with torch.cuda.device(ordinal), torch.cuda.stream(stream), benchmarking(tf32):
        yield


def is_capturing() -> bool:
    """Whether the current stream of this thread records a graph: no time for trying plans."""
    return torch.cuda.is_current_stream_capturing()


def uses_tf32(signature: Signature) -> bool:
    return signature.acc_dtype == "tf32"


@dataclass(frozen=True)
class Calls:
    """Calls of a library on the tensors of each place in a row, to be checked and timed."""

    signature: Signature
    row: Sequence[tuple[torch.Tensor, ...]]

    def call(self, config: str) -> Callable[[int], torch.Tensor]:
        """The call at a place; its result lies as the signature says."""
        run, row = library_call(self.signature, config), self.row
        return lambda place: run(*row[place])

    @staticmethod
    def values(result: torch.Tensor) -> np.ndarray[Any, Any]:
        """A result as a dense array in host memory."""
        return array_of(result)


@contextmanager
def measured(
    signature: Signature, values: tuple[np.ndarray[Any, Any], ...], ordinal: int, stream: int, calls: int
) -> Iterator[Calls]:
    """Inside, PyTorch works on this stream of the driver; in the end it gives back the memory that it took."""
    row: list[tuple[torch.Tensor, ...]] = []
    try:
        with on_stream(ordinal, stream, uses_tf32(signature)):
            row += device_tensors(signature, values, ordinal, calls)
            yield Calls(signature, row)
    finally:
        row.clear()
        empty_cache()


class ConvCall:
    """A convolution in any direction, its epilogue included."""

    def __init__(self, signature: ConvSignature) -> None:
        problem = signature.geometry
        dims = signature.canonical.spatial_dims
        self._order, self._names = signature.canonical_order, argument_names(problem)
        self._direction, self._epilogue = problem.direction, problem.epilogue
        self._shape = ConvShape(problem, dims)
        named = {"x": problem.x, "w": problem.w, "y": problem.y}
        self._views = {name: _logical(view, dims) for name, view in named.items()}
        self._result = {"fwd": "y", "bwd": "x", "wrw": "w"}[problem.direction]
        self._slot = arguments(signature)[-1]

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.laid(self.compute(self.operands(tensors)))

    def laid(self, found: torch.Tensor) -> torch.Tensor:
        """A result on logical axes as the signature lays it."""
        return _laid(found, self._slot, self._views[self._result])

    def operands(self, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """The user's tensors on logical axes, in their own memory."""
        found = {}
        for name, index in zip(self._names, self._order, strict=True):
            view = self._views.get(self._result if name == "z" else name)
            found[name] = tensors[index] if view is None else tensors[index].as_strided(*view)
        return found

    def compute(self, t: dict[str, torch.Tensor], like: torch.Tensor | None = None) -> torch.Tensor:
        """The result on logical axes. ``like`` has the result's shape and strides; its values are not read."""
        s, bias = self._shape, t.get("b")
        if self._direction == "fwd":
            convolve = functional.conv2d if s.dims == 2 else functional.conv3d
            found = convolve(t["x"], t["w"], bias, s.stride, s.padding, s.dilation, s.groups)
            return Finish(self._epilogue, None, t.get("z"))(found)
        if like is None:
            like = torch.empty_strided(*self._views[self._result], dtype=t["y"].dtype, device=t["y"].device)
        x, w = (t["x"], like) if self._direction == "wrw" else (like, t["w"])
        place = 1 if self._direction == "wrw" else 0
        wanted = [place == 0, place == 1, False]
        run = torch.ops.aten.convolution_backward.default
        fixed = (None, s.stride, s.padding, s.dilation, False, [0] * s.dims, s.groups, wanted)
        found = run(t["y"], x, w, *fixed)[place]
        if bias is not None:
            found = found + bias.reshape(1, -1, *[1] * s.dims)
        return Finish(self._epilogue, None, t.get("z"))(found)

    def given_mode(self, tensors: Sequence[torch.Tensor]) -> str | None:
        """Which of ``modes`` takes the tensors as they lie."""
        own = self.operands(tensors)
        whole = [tensor for name, tensor in own.items() if name != "b"] + [self._empty_result(tensors)]
        return next((form for form in FORMS if all(_is_placed(tensor, form) for tensor in whole)), None)

    def _empty_result(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        first = tensors[0]
        return torch.empty_strided(*self._views[self._result], dtype=first.dtype, device=first.device)

    def modes(self, tensors: Sequence[torch.Tensor]) -> dict[str, Callable[[], torch.Tensor]]:
        """Ways to lay the tensors: as they lie where that is a dense format of PyTorch's, copies in the others, and
        channels-last copies with channels padded by zeros to multiples of 8. Copying is not counted."""
        own, result, given = self.operands(tensors), self._empty_result(tensors), self.given_mode(tensors)
        found: dict[str, Callable[[], torch.Tensor]] = {}
        for form in sorted(FORMS, key=lambda form: form != given):
            alike = own if form == given else _all_placed(own, form)
            found[form] = partial(self.compute, alike, result if form == given else placed(result, form))
        if self._shape.groups == 1 and set(own) <= self._views.keys():
            padded = {name: _padded(name, tensor) for name, tensor in own.items()}
            if any(padded[name].shape != tensor.shape for name, tensor in own.items()):
                like, end = _padded(self._result, result), tuple(slice(n) for n in result.shape)
                found["channels_last_padded"] = lambda: self.compute(padded, like)[end]
        return found


class GemmCall:
    """``torch.mm`` and its relatives with one of the two BLAS libraries."""

    def __init__(self, signature: GemmSignature, library: str) -> None:
        problem = signature.geometry
        self._problem, self._library = problem, library
        self._views = {
            name: ((view.batch, view.rows, view.columns), view.strides)
            for name, view in (("a", problem.a), ("b", problem.b), ("c", problem.c))
        }
        self._slot = arguments(signature)[-1]

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.laid(self.compute(tensors))

    def laid(self, found: torch.Tensor) -> torch.Tensor:
        """``(batch, m, n)`` as the signature lays it."""
        return _laid(found, self._slot, self._views["c"])

    def compute(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """``(batch, m, n)``."""
        problem, rest = self._problem, list(tensors[2:])
        a, b = (tensor.as_strided(*self._views[name]) for tensor, name in zip(tensors, "ab", strict=False))
        bias = rest.pop(0) if problem.epilogue.bias else None
        residual = rest.pop(0).as_strided(*self._views["c"]) if problem.epilogue.residual else None
        c = rest.pop(0).as_strided(*self._views["c"]) if problem.beta != 0 else None
        before = torch.backends.cuda.preferred_blas_library()
        torch.backends.cuda.preferred_blas_library(self._library)
        try:
            found, bias = self._product(a, b, c, bias)
        finally:
            torch.backends.cuda.preferred_blas_library(before)
        if bias is not None:
            residual = bias if residual is None else residual + bias
        return Finish(problem.epilogue, None, residual)(found)

    def _product(
        self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None, bias: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The product, and the bias that is still to be added."""
        alpha, beta = self._problem.alpha, self._problem.beta
        if self._problem.batch > 1:
            if c is not None:
                return torch.baddbmm(c, a, b, beta=beta, alpha=alpha), bias
            found = torch.bmm(a, b)
            return (found if alpha == 1 else found.mul_(alpha)), bias
        a, b = a[0], b[0]
        if c is not None:
            return torch.addmm(c[0], a, b, beta=beta, alpha=alpha)[None], bias
        if bias is not None:
            return torch.addmm(bias, a, b, alpha=alpha)[None], None
        found = torch.mm(a, b)
        return (found if alpha == 1 else found.mul_(alpha))[None], None


def device_tensors(
    signature: Signature, values: tuple[np.ndarray[Any, Any], ...], ordinal: int, calls: int = 1
) -> list[tuple[torch.Tensor, ...]]:
    """Sample values as the signature's tensors on a device, pitches kept; in the order of its arguments. ``calls``
    times, in memory of its own each time."""
    *inputs, result = arguments(signature)
    slots = [*inputs, result][: len(values)] if len(values) > len(inputs) else inputs

    def placed_as(slot: Slot, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(slot.shape, slot.strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)

    given = torch_args(values, f"cuda:{ordinal}")
    return [tuple(placed_as(slot, tensor) for slot, tensor in zip(slots, given, strict=True)) for _ in range(calls)]


def array_of(result: torch.Tensor) -> np.ndarray[Any, Any]:
    """The values of a result as a dense array in host memory."""
    return to_numpy(result.contiguous())


def empty_cache() -> None:
    """Give back the device memory that PyTorch keeps for later."""
    torch.cuda.empty_cache()


def _logical(view: TensorView, dims: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of ``(N, C, *spatial)``."""
    return (*view.shape[:2], *view.shape[5 - dims :]), (*view.strides[:2], *view.strides[5 - dims :])


def _laid(found: torch.Tensor, slot: Slot, view: tuple[tuple[int, ...], tuple[int, ...]]) -> torch.Tensor:
    """A result on logical axes as the tensor that the signature asks for: the same memory where it lies so already."""
    if _lies(found, view[1]):
        return found.as_strided(slot.shape, slot.strides)
    made = torch.empty_strided(slot.shape, slot.strides, dtype=found.dtype, device=found.device)
    made.as_strided(*view).copy_(found)
    return made


def _lies(tensor: torch.Tensor, strides: Sequence[int]) -> bool:
    return all(n == 1 or a == b for n, a, b in zip(tensor.shape, tensor.stride(), strides, strict=True))


def _all_placed(tensors: dict[str, torch.Tensor], form: str) -> dict[str, torch.Tensor]:
    return {name: tensor if name == "b" else placed(tensor, form) for name, tensor in tensors.items()}


def _padded(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """A channels-last copy whose channels (of a filter, both kinds) are zeros up to a multiple of 8."""
    shape = list(tensor.shape)
    for axis in (0, 1) if name == "w" else (1,):
        shape[axis] = -(-shape[axis] // 8) * 8
    grown = tensor.new_zeros(shape)
    grown[tuple(slice(n) for n in tensor.shape)] = tensor
    return placed(grown, "channels_last")


def _is_placed(tensor: torch.Tensor, form: str) -> bool:
    if form == "contiguous":
        return tensor.is_contiguous()
    return tensor.is_contiguous(memory_format=torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d)
