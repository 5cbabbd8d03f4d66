"""Checks on a device, of results that never leave it: the runs and the bound of ``measure.checker``.

The oracle's sums are made in float64 by the plain reference on the device, from the operands as they lie there, into
the result's own layout; a kernel applies the epilogue, another compares. What is found wrong is described by the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tilesmith.codegen.cuda.activation import activate_in_double
from tilesmith.codegen.cuda.scalar import POINTEE, scalar_prelude
from tilesmith.codegen.cuda.unit import Header, scoped, template, unit
from tilesmith.measure.accuracy import Accuracy, describe_wrong, error_bound, overflow_from
from tilesmith.measure.arrays import FILL, GuardedArray
from tilesmith.measure.checker import NAN, Values
from tilesmith.measure.device_arrays import DeviceChecks, DevicePlan, DeviceTensor
from tilesmith.measure.host_tensors import Placement
from tilesmith.measure.judge import logical_index
from tilesmith.measure.oracle import Oracle, activate, logical
from tilesmith.measure.special import Planting, plantings
from tilesmith.plan.assemble import assemble
from tilesmith.plan.records import Draft, Source
from tilesmith.plan.slots import arguments
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.epilogue import ACTIVATIONS, IDENTITY, Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import GemmGeometry
from tilesmith.problems.layouts import dense_strides
from tilesmith.problems.rewrite import Signature
from tilesmith.runtime.device import Device, DeviceMemory, Kernel, copy_on_device
from tilesmith.runtime.executable import Executable
from tilesmith.solvers.cuda.reference.solver import CudaReferenceSolver
from tilesmith.solvers.solver import Config
from tilesmith.targets.target import CudaTarget
from tilesmith.toolchain.cache import ArtifactCache

Array = NDArray[Any]

_BLOCKS: Final = 1024
_THREADS: Final = 256
_RESULTS: Final = ("fp16", "bf16", "fp32", "fp64")
_KERNELS: Final = ("compare", "differ", "special", "turn")
_EPILOGUE: Final = "epilogue"  # where there is one
_FINISHING: Final = ("special", _EPILOGUE)  # those that apply it
_RESULT_FIELDS: Final = {"fwd": "output", "bwd": "input", "wrw": "kernel"}


def can_check_on_device(signature: Signature) -> bool:
    """True for dense float results. The host checks integers, padded results and scaled operands and results."""
    g, slot = signature.geometry, arguments(signature)[-1]
    if isinstance(g, GemmGeometry):
        plain = g.beta == 0.0 and not g.has_scales and (g.alpha != 0.0 or g.epilogue.is_identity)
    else:
        plain = g.direction in _RESULT_FIELDS and max(g.x.vector, g.w.vector, g.y.vector) == 1
    dense = tuple(slot.strides) == dense_strides(slot.shape)
    return plain and dense and not g.epilogue.is_scaled and slot.dtype in _RESULTS and g.acc_dtype != "int32"


def sources_of_checks(signature: Signature, target: CudaTarget) -> tuple[Source, ...]:
    """The kernels that check plans of a canonical problem (``can_check_on_device``), to be compiled ahead."""
    first, second, *_, result = (dtype(slot.dtype).numpy() for slot in arguments(signature))
    own = (_source(name, result, target, signature.epilogue) for name in _kernels_of(signature))
    squares = (_source("squares", kind, target) for kind in dict.fromkeys((first, second)))
    exact = (_exact(signature), _exact(signature, "fp32"))
    return (*own, *squares, *(source for each in exact for source in _reference(each, target).sources))


def _kernels_of(signature: Signature) -> tuple[str, ...]:
    return _KERNELS if signature.epilogue.is_identity else (*_KERNELS, _EPILOGUE)


class DeviceChecker(DeviceChecks):
    """Checks plans of one canonical problem on a device. ``values`` are its sample arguments, free of NaN and Inf."""

    def __init__(
        self, signature: Signature, values: tuple[Array, ...], target: CudaTarget, place: Device, cache: ArtifactCache,
        seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(signature, values, None, place, seed)
        self._target, self._cache = target, cache
        self._images = [tensor.image() for tensor in self._inputs]
        self._pristine = [_twin(tensor) for tensor in self._inputs]
        self._blank = _twin(self._output)
        self._report = DeviceMemory(place, 3 * 8 * _BLOCKS)
        self._special_sums: DeviceMemory | None = None
        self._right: DeviceMemory | None = None  # a right result, from its first element on
        kernels = _kernels_of(signature)
        sources = [_source(name, self.result.array.dtype, target, signature.epilogue) for name in kernels]
        names = dict.fromkeys(operand.array.dtype for operand in self.operands[:2])
        squares = {kind: _source("squares", kind, target) for kind in names}
        exact = [_exact(signature), _exact(signature, "fp32")]
        with ThreadPoolExecutor(8) as pool:  # compilers are processes
            for source in (source for each in exact for source in _reference(each, target).sources):
                pool.submit(cache.get_or_build, source, target)  # an error is met where it is used
            made = pool.map(lambda source: Kernel(cache.get_or_build(source, target).path, source.symbol, place),
                            [*sources, *squares.values()])  # fmt: skip
            loaded = dict(zip((*kernels, *squares), made, strict=True))
        self._compare, self._differ, self._special_kernel, self._turn = (loaded[name] for name in _KERNELS)
        self._squares = {kind: loaded[kind] for kind in squares}
        self._value = self._sums([tensor.address for tensor in self._inputs[:2]], _exact(self.signature))
        self._norm = self._sums_of_squares()
        bound = _bound_of(signature)
        of_value = bound.value
        if signature.epilogue.is_identity:  # what is added is the value
            of_value += bound.added
        else:
            self._finish(loaded[_EPILOGUE], bound.added / bound.norm)
        self._bound = bound.norm, of_value, bound.fixed, bound.largest

    # --- the oracle ---------------------------------------------------------------------------------------------------

    def _sums_of_squares(self) -> DeviceMemory:
        held = []
        for operand, tensor in zip(self.operands[:2], self._inputs[:2], strict=True):
            count = _elements(operand)
            held.append(DeviceMemory(self.place, 4 * count))
            kernel = self._squares[operand.array.dtype]
            kernel.launch(self.stream, _BLOCKS, _THREADS, tensor.address, held[-1].address, count)
        found = self._sums([memory.address for memory in held], _exact(self.signature, "fp32"))
        self.stream.synchronize()
        return found

    def _sums(self, operands: Sequence[int], signature: Signature) -> DeviceMemory:
        draft = _reference(signature, self._target)
        (artifact,) = (self._cache.get_or_build(source, self._target) for source in draft.sources)
        plan = assemble(draft, signature, CudaReferenceSolver().name, "", self._target, [artifact.digest])
        out = DeviceMemory(self.place, 8 * self.result.array.size)
        others = self._inputs[2 : len(arguments(signature)) - 1]  # the ends of groups
        slots = [*operands, *(tensor.address for tensor in others), out.address]
        run = DevicePlan(Executable(plan, [artifact.path]), self.place, self.stream, slots)
        run.run()
        self.stream.synchronize()
        return out

    def _finish(self, kernel: Kernel, share: float) -> None:
        """Apply the epilogue. ``share``: how fast a bound grows with what it adds, over that with the norm."""
        kernel.launch(
            self.stream, _BLOCKS, _THREADS, self._value.address, self._norm.address, self.result.array.size, share,
            *self._epilogue_values(),
        )  # fmt: skip
        self.stream.synchronize()

    def _epilogue_values(self) -> tuple[int | float, ...]:
        """The epilogue as kernels take it, with its operands where they lie now."""
        e, view = self.signature.epilogue, logical(self.signature, self.result.array)
        extra = [tensor.address for tensor in self._inputs[2:]]
        bias = extra.pop(0) if e.bias else 0
        residual = extra.pop(0) if e.residual else 0
        axis = view.ndim - 1 if isinstance(self.signature, GemmSignature) else 1
        step = view.strides[axis] // view.itemsize
        numbers = float(e.slope), float(e.low), float(e.high)
        return bias, residual, step, view.shape[axis], ACTIVATIONS.index(e.activation), *numbers

    @cached_property
    def truth(self) -> Oracle:
        """The oracle as the host has it. What an epilogue adds is in the norm, for it counts in bounds alone."""
        numbers = [self._downloaded(memory) for memory in (self._value, self._norm)]
        value, squares = (logical(self.signature, array) for array in numbers)
        scale = abs(getattr(self.signature, "alpha", 1.0))
        added = np.abs(value) if self.signature.epilogue.is_identity else np.zeros_like(value)
        return Oracle(value, np.sqrt(squares) * scale, added, _length(self.signature))

    # --- checks -------------------------------------------------------------------------------------------------------

    def image(self, operand: int, values: Values) -> DeviceMemory:
        """The first values; ``arrange`` makes the others of them."""
        return self._images[operand]

    def arrange(self, place: Placement, values: Values) -> None:
        super().arrange(place, values)
        for operand, tensor in zip(self.operands[: self.negated(values)], self._inputs, strict=False):
            size = operand.array.itemsize
            words = -(-_elements(operand) * size // 8)  # what stands behind the last element stays NaN
            signs = int.from_bytes((1 << 8 * size - 1).to_bytes(size, "little") * (8 // size), "little")
            self._turn.launch(self.stream, _BLOCKS, _THREADS, tensor.address, words, signs)
        self.stream.synchronize()
        for planting in self._plantings if values is Values.SPECIAL else ():
            array = self.operands[planting.operand].array
            number = np.array([planting.number], array.dtype)
            self._inputs[planting.operand].write(number.view(np.uint8), _address(planting.element) - _address(array))
        for memory, tensor in zip((*self._pristine, self._blank), (*self._inputs, self._output), strict=True):
            memory.copy_from(tensor.memory)

    def clear(self, byte: int) -> None:
        self._output.memory.copy_from(self._blank)
        if byte != NAN:
            self._output.clear(byte)

    def found(self) -> Array:
        self._output.download()
        return self.result.array

    def judged(self, values: Values) -> Accuracy:
        """Compare on the device. The host compares NaN and Inf, and removes them first."""
        if values is not Values.SPECIAL:
            return self.check_tensor(self._output)
        if (wrong := self._wrong_specials()) is not None:
            return wrong
        return self.check_tensor(self._output)

    def remember(self) -> None:
        nbytes = self.result.array.nbytes
        if self._right is None:
            self._right = DeviceMemory(self.place, nbytes)
        copy_on_device(self.place, self._right.address, self._output.address, nbytes)

    def _wrong_specials(self) -> Accuracy | None:
        """Describes wrong NaN and Inf of the result; right ones are removed."""
        assert self._right is not None
        if self._special_sums is None:  # by the plain reference, from the operands as they lie now
            self._special_sums = self._sums([tensor.address for tensor in self._inputs[:2]], _exact(self.signature))
        self._special_kernel.launch(
            self.stream, _BLOCKS, _THREADS, self._output.address, self._right.address, self._special_sums.address,
            self.result.array.size, *self._bound[1:3], self._report.address, *self._epilogue_values(),
        )  # fmt: skip
        report = self._reported(2)
        count, flat = int(report[:, 0].sum()), int(report[:, 1].min())
        if not count:
            return None
        sums = np.empty(1, np.float64)
        self._special_sums.read(sums.view(np.uint8), 8 * flat)
        with np.errstate(all="ignore"):  # what is added to it is a number
            wanted = float(activate(sums, self.signature.epilogue)[0])
        found, at = self._number(self._output, flat), self._index(flat)
        words = describe_wrong(count, self.result.array.size, at, found, wanted, 0.0)
        return Accuracy(False, float("inf"), 0.0, at, words)

    @cached_property
    def _plantings(self) -> list[Planting]:
        return plantings(self.signature, tuple(operand.array for operand in self.operands), self._seed)[0]

    def _downloaded(self, sums: DeviceMemory) -> NDArray[np.float64]:
        found = np.empty(self.result.array.shape, np.float64)
        sums.read(found.reshape(-1).view(np.uint8))
        return found

    def check_result(self, found: Array) -> Accuracy:
        self.result.array[...] = found
        self._output.upload()
        return self.check_tensor(self._output)

    def check_tensor(self, tensor: DeviceTensor) -> Accuracy:
        self._compare.launch(
            self.stream, _BLOCKS, _THREADS, tensor.address, self._value.address, self._norm.address,
            self.result.array.size, *self._bound, self._report.address,
        )  # fmt: skip
        report = self._reported(3)
        wrong, worst = int(report[:, 0].sum()), report[int(np.argmax(report[:, 1]))]
        flat, share = int(worst[2]), float(worst[1])
        found, value, bound = self._element(tensor, flat)
        at = self._index(flat)
        if not wrong:
            return Accuracy(True, share * bound, bound, at)
        return Accuracy(
            False, abs(found - value), bound, at,
            describe_wrong(wrong, self.result.array.size, at, found, value, bound),
        )  # fmt: skip

    def _index(self, flat: int) -> tuple[int, ...]:
        """Where an element of the result is in the logical axes."""
        return logical_index(self.signature, tuple(int(i) for i in np.unravel_index(flat, self.result.array.shape)))

    def _number(self, tensor: DeviceTensor, flat: int) -> float:
        """An element of a result as it was found."""
        raw = np.empty(1, self.result.array.dtype)
        tensor.read(raw.view(np.uint8), flat * raw.itemsize)
        return float(raw.astype(np.float64)[0])

    def _element(self, tensor: DeviceTensor, flat: int) -> tuple[float, float, float]:
        """An element as it was found, as it should be, and its bound."""
        pair = np.empty(2, np.float64)
        for i, memory in enumerate((self._value, self._norm)):
            memory.read(pair[i : i + 1].view(np.uint8), 8 * flat)
        of_norm, of_value, fixed, _ = self._bound
        bound = of_norm * float(np.sqrt(pair[1])) + of_value * abs(float(pair[0])) + fixed
        return self._number(tensor, flat), float(pair[0]), bound

    def out_of_bounds(self) -> str:
        first, span = self._output.first, self.result.array.nbytes
        for begin, end in ((0, first), (first + span, self.result.memory.nbytes)):
            part = np.empty(end - begin, np.uint8)
            self._output.read(part, begin - first)
            if (part != FILL).any():
                self._output.download()
                return f"wrote outside the result: {self.result.out_of_bounds()}"
        for place, (tensor, pristine) in enumerate(zip(self._inputs, self._pristine, strict=True)):
            words = tensor.memory.nbytes // 4
            self._differ.launch(
                self.stream, _BLOCKS, _THREADS, tensor.memory.address, pristine.address, words, self._report.address
            )
            if self._reported(1).any():
                return f"wrote to argument {place}, which it may only read"
        return ""

    def _reported(self, columns: int) -> NDArray[np.float64]:
        self.stream.synchronize()
        found = np.empty((_BLOCKS, columns), np.float64)
        self._report.read(found.reshape(-1).view(np.uint8))
        return found


def _exact(signature: Signature, operands: str = "") -> Signature:
    """The problem without its epilogue, its result in float64, and ``operands`` of another type."""
    signature = replace(signature, epilogue=IDENTITY)
    if isinstance(signature, ConvSignature):
        changed: dict[str, Any] = {f"{_RESULT_FIELDS[signature.mode]}_dtype": "fp64"}
        if operands:
            changed = {f"{name}_dtype": operands for name in ("input", "kernel", "output")} | changed
        return replace(signature, acc_dtype="fp64", **changed)
    changed = {"a_dtype": operands, "b_dtype": operands, "alpha": 1.0} if operands else {}
    return replace(signature, acc_dtype="fp64", c_dtype="fp64", **changed)


def _reference(signature: Signature, target: CudaTarget) -> Draft:
    return CudaReferenceSolver().draft(signature.geometry, Config(()), target)


def _twin(tensor: DeviceTensor) -> DeviceMemory:
    made = DeviceMemory(tensor.memory.device, tensor.memory.nbytes)
    made.copy_from(tensor.memory)
    return made


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _elements(operand: GuardedArray) -> int:
    """From the first to the last element of an operand, gaps included."""
    steps = (step // operand.array.itemsize for step in operand.array.strides)
    return 1 + int(sum((size - 1) * step for size, step in zip(operand.array.shape, steps, strict=True)))


@dataclass(frozen=True)
class _Bound:
    """``accuracy.error_bound`` as a line: per unit of the root of the sums of squares, of the magnitudes that the
    epilogue adds, of the result, and always; and where Inf begins."""

    norm: float
    added: float
    value: float
    fixed: float
    largest: float


def _bound_of(signature: Signature) -> _Bound:
    def bound(value: float, norm: float, added: float) -> float:
        one = Oracle(np.array([value]), np.array([norm]), np.array([added]), _length(signature))
        return float(error_bound(one, signature)[0])

    fixed = bound(0.0, 0.0, 0.0)
    of_norm, of_added, of_value = (bound(*unit) - fixed for unit in ((0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.0, 0.0)))
    return _Bound(of_norm * abs(getattr(signature, "alpha", 1.0)), of_added, of_value, fixed, overflow_from(signature))


def _length(signature: Signature) -> int:
    g = signature.geometry
    return int(g.k if isinstance(g, GemmGeometry) else g.reduction_length)


def _source(name: str, kind: np.dtype[Any], target: CudaTarget, epilogue: Epilogue = IDENTITY) -> Source:
    of = dtype(str(kind)).name
    load = f"__device__ inline double load(const Element *from, ts_i64 at) {{ return ts_load_{of}(from, at); }}"
    functions, parts = load, [name]
    if name in _FINISHING:
        functions, parts = f"{load}\n{activate_in_double(epilogue)}", ["finished", name]
    header = Header(types={"Element": POINTEE[of]}, functions=functions)
    text = scoped(*(template(Path(__file__).parent, f"device_{part}") for part in parts))
    return unit(f"check{name}", of, "t256", target.arch, scalar_prelude(), text, header)
