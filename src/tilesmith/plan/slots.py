"""The tensors of a problem: those of a plan, and those that a user hands over."""

from __future__ import annotations

from math import prod

from tilesmith.plan.records import Slot
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import ConvGeometry, GemmGeometry
from tilesmith.problems.layouts import dense_strides

# A convolution's tensors by mode: (user's name, tensor of the signature) of the operands, then of the result.
_CONV_TENSORS = {
    "fwd": (("x", "input"), ("w", "kernel"), ("y", "output")),
    "bwd": (("dy", "output"), ("w", "kernel"), ("dx", "input")),
    "wrw": (("dy", "output"), ("x", "input"), ("dw", "kernel")),
}
RESIDUAL = "z"
_SLOTS = {
    "fwd": ("x", "w", "y"),
    "bwd": ("y", "w", "x"),
    "wrw": ("y", "x", "w"),
    "bgrad": ("y", "b"),
    "gemm": ("a", "b", "c"),
}


def slot_names(problem: ConvGeometry | GemmGeometry) -> tuple[str, ...]:
    """Names of a plan's slots in order: inputs first, the result last.

    Convolution: fwd ``x w [b] [z] [s] y``, bwd ``y w [b] [z] [s] x``, wrw ``y x w``, bgrad ``y b``;
    GEMM: ``a b [sa sb] [bias] [z] [s] c``, with groups ``a b ends c``. ``z`` is the residual, ``s`` the scale, ``sa``
    and ``sb`` are factors of the operands; GEMM's ``c`` is also read when ``beta != 0``.
    """
    gemm = isinstance(problem, GemmGeometry)
    *first, result = _SLOTS["gemm" if isinstance(problem, GemmGeometry) else problem.direction]
    bias = ("bias" if gemm else "b",) if problem.epilogue.bias else ()
    residual, scale = (RESIDUAL,) * problem.epilogue.residual, ("s",) * problem.epilogue.is_scaled
    ends = ("ends",) if isinstance(problem, GemmGeometry) and problem.groups else ()
    scales = ("sa", "sb") if isinstance(problem, GemmGeometry) and problem.has_scales else ()
    return (*first, *ends, *scales, *bias, *residual, *scale, result)


def arguments(signature: ConvSignature | GemmSignature) -> tuple[Slot, ...]:
    """The tensors of ``signature`` in the order of its arguments, the result last, under the names that users know.

    GEMM's initial ``c`` (``beta != 0``) is no entry of its own: it is the result's memory before the call.
    """
    epilogue = signature.epilogue
    if isinstance(signature, GemmSignature):
        operands = [
            _slot(n, getattr(signature, f"{n}_dtype"), getattr(signature, f"{n}_shape"),
                  getattr(signature, f"{n}_strides"))
            for n in "ab"
        ]  # fmt: skip
        result = _slot("c", signature.c_dtype, signature.c_shape, signature.c_strides, is_output=True)
        channels = signature.n
        if signature.groups:
            operands.append(_slot("group_ends", "int32", (signature.groups,), (1,)))
        if signature.has_scales:
            operands += [_slot(f"{n}_scale", "fp32", *signature.scale_layout(n)) for n in "ab"]
    elif signature.mode == "bgrad":
        operands = [_tensor(signature, "dy", "output")]
        result = _slot("db", signature.output_dtype, (signature.output_channels,), (1,), is_output=True)
        channels = 0
    else:
        *named, (name, tensor) = _CONV_TENSORS[signature.mode]
        operands = [_tensor(signature, *pair) for pair in named]
        result = _tensor(signature, name, tensor, is_output=True)
        channels = signature.input_logical[1] if signature.mode == "bwd" else signature.output_channels
    if epilogue.bias:
        operands.append(_slot("bias", epilogue.bias_dtype(result.dtype), (channels,), (1,)))
    if epilogue.residual:
        operands.append(_slot("residual", result.dtype, result.shape, result.strides))
    if epilogue.is_scaled:
        operands.append(_slot("scale", "fp32", (channels if epilogue.scale == "channel" else 1,), (1,)))
    return (*operands, result)


def slots_of(signature: ConvSignature | GemmSignature, in_place: bool = False) -> tuple[Slot, ...]:
    """The slots of a plan for ``signature``: the tensors of its canonical form, in the solvers' order and names.

    ``in_place`` is the draft's; it counts for nothing where the result's memory holds GEMM's initial ``c``.
    """
    in_place = in_place and getattr(signature, "beta", 0.0) == 0.0
    tensors = arguments(signature.canonical)
    names = slot_names(signature.geometry)
    return tuple(
        Slot(name, t.dtype, t.shape, t.strides, t.nbytes, t.is_output, in_place and name == RESIDUAL)
        for name, t in zip(names, tensors, strict=True)
    )  # fmt: skip


def relaid(slot: Slot, shape: tuple[int, ...], strides: tuple[int, ...]) -> Slot:
    """The same memory with its axes in another order."""
    return Slot(slot.name, slot.dtype, shape, strides, slot.nbytes, slot.is_output)


def span_bytes(dtype_name: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Bytes from the first to the last element of a strided tensor."""
    if not prod(shape):
        return 0
    return (sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1) * dtype(dtype_name).nbytes


def _tensor(signature: ConvSignature, name: str, tensor: str, is_output: bool = False) -> Slot:
    shape = getattr(signature, f"{tensor}_shape")
    strides = getattr(signature, f"{tensor}_strides") or dense_strides(shape)
    return _slot(name, getattr(signature, f"{tensor}_dtype"), shape, strides, is_output)


def _slot(
    name: str, dtype_name: str, shape: tuple[int, ...], strides: tuple[int, ...], is_output: bool = False
) -> Slot:
    return Slot(name, dtype_name, shape, strides, span_bytes(dtype_name, shape, strides), is_output)
