"""The oracle, with its products summed in float64 by the plain reference on the device: the same definition, no NumPy.

The reference is itself checked against ``measure.oracle`` (tests, and ``tilesmith verify`` on the CPU); large problems
take it milliseconds where NumPy takes minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesmith.measure.oracle import Oracle, oracle
from tilesmith.plan.assemble import assemble
from tilesmith.plan.slots import arguments
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.layouts import channels_last, default_layout
from tilesmith.problems.rewrite import Signature
from tilesmith.runtime.device import DeviceMemory, device
from tilesmith.runtime.executable import Executable
from tilesmith.solvers.cuda.reference.solver import CudaReferenceSolver
from tilesmith.solvers.solver import Config
from tilesmith.targets.target import CudaTarget
from tilesmith.toolchain.cache import ArtifactCache

Array = NDArray[Any]

# Below, NumPy is faster than a trip to the device.
SMALL_PRODUCTS = 20_000_000


class DeviceSums:
    """Sums of products of a problem in float64, on device ``ordinal``."""

    def __init__(self, target: CudaTarget, ordinal: int, cache: ArtifactCache) -> None:
        self._target, self._ordinal, self._cache = target, ordinal, cache

    def convolution(self, signature: ConvSignature, operands: Sequence[Array], kind: Any) -> Array:
        """The sums of ``measure.oracle``: ``operands`` are ``(N, C, D, H, W)`` and so is the result."""
        names = {"fwd": ("input", "kernel"), "bwd": ("output", "kernel"), "wrw": ("output", "input")}[signature.mode]
        result = next(name for name in ("input", "kernel", "output") if name not in names)
        dims = len(signature.kernel_logical) - 2
        default, last = str(default_layout(dims)), str(channels_last(dims))
        given: list[Array] = []
        options: dict[str, Any] = {f"{result}_dtype": "fp64"}
        for name, operand in zip(names, operands, strict=False):
            array = operand.reshape(getattr(signature, f"{name}_logical"))
            lies_last = np.moveaxis(array, 1, -1).flags.c_contiguous
            given.append(np.moveaxis(array, 1, -1) if lies_last else array)
            options |= {f"{name}_dtype": _name(operand), f"{name}_layout": last if lies_last else default}
        options[f"{result}_layout"] = options[f"{names[0]}_layout"]  # what the host adds lies so, too

        def laid(name: str) -> tuple[int, ...]:
            first, second, *spatial = getattr(signature, f"{name}_logical")
            is_last = options[f"{name}_layout"] == last
            return (first, *spatial, second) if is_last else (first, second, *spatial)

        plain = ConvSignature(
            laid("input"), laid("kernel"), stride=signature.stride, padding=signature.padding,
            dilation=signature.dilation, groups=signature.groups, transposed=signature.transposed,
            output_padding=signature.output_padding, mode=signature.mode, acc_dtype="fp64",
            **options,
        )  # fmt: skip
        found = self._run(plain, given)
        found = np.moveaxis(found, -1, 1) if options[f"{result}_layout"] == last else found
        return found.reshape(_five(getattr(signature, f"{result}_logical")))

    def product(self, a: Array, b: Array, kind: Any) -> Array:
        """``a @ b`` of (batched) matrices in float64."""
        batch = a.shape[0] if a.ndim == 3 else 1
        plain = GemmSignature(
            a.shape[-2], b.shape[-1], a.shape[-1], batch=batch, a_dtype=_name(a), b_dtype=_name(b), c_dtype="fp64",
            acc_dtype="fp64", dtype=_name(a),
        )  # fmt: skip
        return self._run(plain, [a, np.broadcast_to(b, (*a.shape[:-2], *b.shape[-2:]))])

    def _run(self, signature: Signature, values: Sequence[Array]) -> Array:
        solver, canonical = CudaReferenceSolver(), signature.canonical
        draft = solver.draft(canonical.geometry, Config(()), self._target)
        (artifact,) = (self._cache.get_or_build(source, self._target) for source in draft.sources)
        plan = assemble(draft, signature, solver.name, "", self._target, [artifact.digest])
        executable = Executable(plan, [artifact.path])
        place = device(self._ordinal)
        held = []
        for argument in signature.canonical_order:
            data = np.ascontiguousarray(values[argument])
            held.append(DeviceMemory(place, data.nbytes))
            held[-1].write(data.reshape(-1).view(np.uint8))
        result = arguments(signature)[-1]
        out = DeviceMemory(place, result.nbytes)
        executable.run_on(self._ordinal, 0, [memory.address for memory in (*held, out)], 0, 0)
        place.synchronize()
        found = np.empty(result.shape, dtype(result.dtype).numpy())
        out.read(found.reshape(-1).view(np.uint8))
        return found


def device_oracle(
    signature: ConvSignature | GemmSignature, values: Sequence[Array], target: CudaTarget, ordinal: int,
    cache: ArtifactCache,
) -> Oracle:  # fmt: skip
    """``measure.oracle.oracle``, its long sums on the device. Integers and bias gradients stay with NumPy."""
    if _products(signature) < SMALL_PRODUCTS or signature.acc_dtype == "int32":
        return oracle(signature, values)
    return oracle(signature, values, DeviceSums(target, ordinal, cache))


def _products(signature: ConvSignature | GemmSignature) -> int:
    if isinstance(signature, GemmSignature):
        return signature.batch * signature.m * signature.n * signature.k
    if signature.mode == "bgrad":
        return 0
    y, w = signature.output_logical, signature.kernel_logical
    return int(np.prod(y, dtype=np.int64)) * int(np.prod(w[1:], dtype=np.int64))


def _name(array: Array) -> str:
    return dtype(str(array.dtype)).name


def _five(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:2], *([1] * (5 - len(shape))), *shape[2:])
