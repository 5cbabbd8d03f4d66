"""Guarded arrays on a device: the same bytes, bands included, and checks of plans that run there."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilesmith.measure.accuracy import Accuracy
from tilesmith.measure.arrays import GuardedArray, clear, guarded_operands, guarded_result
from tilesmith.measure.checker import NAN, Checker, Values
from tilesmith.measure.host_tensors import Placement, negate
from tilesmith.measure.oracle import Oracle
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.runtime.device import Device, DeviceMemory, Stream
from tilesmith.runtime.executable import Executable

TIMED_ALIGNMENT = 512  # for times: where the allocators of CUDA and PyTorch begin
POISON = 0xFF  # in every floating-point format all ones are a NaN
# Bytes after a multiple of 512: kernels may rely on multiples of 16.
PAST = {
    Placement.LOW: 16, Placement.HIGH: 0, Placement.ELEMENT: 32, Placement.PAST_16: 64, Placement.PAST_32: 128,
    Placement.PAST_48: 256,
}  # fmt: skip
_LOOKED_AT = 64 << 20  # operands up to this size are compared after each call, larger ones after the first


class DeviceTensor:
    """A guarded array's twin on a device: its first element ``past`` bytes after a multiple of 512."""

    def __init__(self, place: Device, host: GuardedArray, past: int = PAST[Placement.LOW]) -> None:
        self.host = host
        #: Bytes of the host's memory before its first element.
        self.first = host.array.__array_interface__["data"][0] - host.memory.__array_interface__["data"][0]
        self.memory = DeviceMemory(place, host.memory.nbytes + 3 * TIMED_ALIGNMENT)
        self.arrange(past)

    def arrange(self, past: int, image: DeviceMemory | None = None) -> None:
        """The host's bytes, or those of an ``image``, to another place of the device; NaNs around them."""
        self.memory.fill(POISON)
        self.memory.device.synchronize()
        self._pad = 2 * TIMED_ALIGNMENT + past - (self.memory.address + self.first) % TIMED_ALIGNMENT
        self.address = self.memory.address + self._pad + self.first
        if image is None:
            self.upload()
        else:
            self.memory.copy_from(image, self._pad)

    def image(self) -> DeviceMemory:
        """The host's bytes in new memory on the device."""
        made = DeviceMemory(self.memory.device, self.host.memory.nbytes)
        made.write(self.host.memory)
        return made

    def checksum(self) -> int:
        """Checksum of the current bytes on the device."""
        now = np.empty(self.host.memory.nbytes, np.uint8)
        self.download(now)
        return zlib.crc32(now.data)

    def clear(self, byte: int) -> None:
        """Set every byte from the first element to the last one of an array without gaps."""
        begin = self._pad + self.first
        self.memory.fill(byte, None, begin, begin + self.host.array.nbytes)
        self.memory.device.synchronize()

    def twin(self) -> DeviceTensor:
        """A copy of this tensor with the same bytes, in memory of its own."""
        made = copy(self)
        made.memory = DeviceMemory(self.memory.device, self.memory.nbytes)
        if (made.memory.address - self.memory.address) % TIMED_ALIGNMENT:
            made.arrange(self.address % TIMED_ALIGNMENT)
        else:
            made.memory.copy_from(self.memory)
            made.address = made.memory.address + self._pad + self.first
        return made

    def upload(self) -> None:
        """The host's bytes to the device."""
        self.memory.write(self.host.memory, self._pad)

    def download(self, into: NDArray[np.uint8] | None = None) -> None:
        """The device's bytes to the host's memory, or to an array of its size."""
        self.memory.read(self.host.memory if into is None else into, self._pad)

    def write(self, values: NDArray[np.uint8], offset: int) -> None:
        """Bytes to ``offset`` bytes after the first element."""
        self.memory.write(values, self._pad + self.first + offset)

    def read(self, into: NDArray[np.uint8], offset: int) -> None:
        """Bytes from ``offset`` bytes after the first element on (before it, when negative)."""
        self.memory.read(into, self._pad + self.first + offset)


class DevicePlan:
    """A CUDA plan with addresses, workspace (or another's) and packed filter: queued on a stream without any checks."""

    def __init__(
        self, executable: Executable, place: Device, stream: Stream, slots: Sequence[int] | Callable[[], Sequence[int]],
        workspace: DeviceMemory | None = None,
    ) -> None:  # fmt: skip
        """``slots`` may be a function, of tensors that move."""
        plan = executable.plan
        self._executable = executable
        self._place, self._stream = place, stream
        self._slots = slots if callable(slots) else lambda: slots
        if workspace is None and plan.workspace_bytes:
            workspace = DeviceMemory(place, plan.workspace_bytes)
        self.workspace = workspace
        self._packed: dict[bool, DeviceMemory] = {}
        self._packed_of(False)
        executable.load_on(place.ordinal)

    def prepare(self, second: bool = False, pieces: int = 0) -> None:
        self._queue(second, prepare=True)

    def run(self, second: bool = False, pieces: int = 0) -> None:
        """The device orders the blocks of a grid, so ``pieces`` is ignored."""
        self._queue(second, prepare=False)

    def poison(self) -> None:
        """Fill the workspace and the packed filters with NaNs."""
        self.fill(POISON)

    def fill(self, byte: int) -> None:
        for memory in (self.workspace, *self._packed.values()):
            if memory is not None:
                memory.fill(byte, self._stream)

    def _packed_of(self, second: bool) -> DeviceMemory | None:
        nbytes = self._executable.plan.packed_bytes
        if nbytes and second not in self._packed:
            self._packed[second] = DeviceMemory(self._place, nbytes)
        return self._packed.get(second)

    def _queue(self, second: bool, *, prepare: bool) -> None:
        packed, workspace = (memory.address if memory else 0 for memory in (self._packed_of(second), self.workspace))
        self._executable.run_on(
            self._place.ordinal, self._stream.handle, self._slots(), packed, workspace, prepare=prepare
        )


class TimedPlan:
    """A plan on every place of a row: its workspace is one, each place has a packed filter."""

    def __init__(self, plans: Sequence[DevicePlan]) -> None:
        self._plans = tuple(plans)

    def prepare(self, at: int) -> None:
        self._plans[at].prepare()

    def run(self, at: int) -> None:
        self._plans[at].run()


class TimedTensors:
    """A problem's tensors as allocators place them, once for each call of a row: times are taken on these."""

    def __init__(
        self, place: Device, stream: Stream, operands: Sequence[GuardedArray], result: GuardedArray, calls: int
    ) -> None:
        self._place, self._stream = place, stream
        first = [DeviceTensor(place, array, 0) for array in (*operands, result)]
        self._row = [first, *([tensor.twin() for tensor in first] for _ in range(calls - 1))]

    def plan(self, executable: Executable) -> TimedPlan:
        """``executable`` on these tensors, its filters packed."""
        plans: list[DevicePlan] = []
        for tensors in self._row:
            slots, workspace = [tensor.address for tensor in tensors], plans[0].workspace if plans else None
            plans.append(DevicePlan(executable, self._place, self._stream, slots, workspace))
            plans[-1].prepare()
        self._stream.synchronize()
        return TimedPlan(plans)

    @property
    def result(self) -> DeviceTensor:
        """Where the first call of a row writes."""
        return self._row[0][-1]


class QueuedPlan(Protocol):
    """The interface of a plan that one run needs."""

    def poison(self) -> None: ...

    def prepare(self) -> None: ...

    def run(self) -> None: ...


class DeviceChecks(Checker):
    """The side of ``Checker`` that moves tensors on a device.

    ``signature`` is canonical, so that its arguments are a plan's slots. The guarded arrays of the host keep the first
    arguments: ``TimedTensors`` are made of them. Bands of 64 KB stand where the host has inaccessible pages.
    """

    sides = (
        (Placement.LOW, Values.FIRST),
        (Placement.LOW, Values.FIRST),
    )  # what is timed, and compared, lies elsewhere

    def __init__(
        self, signature: Signature, values: tuple[NDArray[Any], ...], truth: Oracle | None, place: Device,
        seed: int = 0,
    ) -> None:  # fmt: skip
        self.place, self.stream = place, Stream(place)
        self.operands = guarded_operands(signature, values)
        self.result = guarded_result(signature, values)
        super().__init__(signature, values, truth, self.result.array, seed)
        self._initial = self.result.memory.copy()
        self.adds = isinstance(signature, GemmSignature) and signature.beta != 0
        self._inputs = [DeviceTensor(place, operand) for operand in self.operands]
        self._output = DeviceTensor(place, self.result)
        self._untouched = self._output.image()
        self._arranged = Placement.LOW, Values.FIRST

    @property
    def truth(self) -> Oracle:
        assert self._truth is not None
        return self._truth

    @property
    def slots(self) -> tuple[int, ...]:
        return tuple(tensor.address for tensor in (*self._inputs, self._output))

    def plan(self, executable: Executable) -> DevicePlan:
        """``executable`` on this problem's tensors."""
        return DevicePlan(executable, self.place, self.stream, lambda: self.slots)

    @abstractmethod
    def check_tensor(self, tensor: DeviceTensor) -> Accuracy:
        """The numbers of a result of the first arguments that lies anywhere on the device."""

    def reset(self, tensor: DeviceTensor) -> None:
        """A result that lies anywhere on the device as it is before a call."""
        self.result.memory[...] = self._initial
        tensor.upload()

    def check_plan(self, plan: QueuedPlan, *, poison: bool) -> Accuracy:
        """One run in guarded memory full of NaN, with everything it did checked."""
        self._arrange(*self.sides[0])
        self.clear(NAN)
        if poison:
            plan.poison()
        plan.prepare()
        plan.run()
        return self._verdict(self.sides[0][1])

    @abstractmethod
    def image(self, operand: int, values: Values) -> DeviceMemory:
        """Bytes on the device to lay an operand from: what is large crosses the host's bus once."""

    def arrange(self, place: Placement, values: Values) -> None:
        for i, tensor in enumerate(self._inputs):
            tensor.arrange(PAST[place], self.image(i, values))
        self._output.arrange(PAST[place], self._untouched)

    def where(self, place: Placement) -> str:
        return f"{PAST[place]} bytes after a multiple of 512"

    def finish(self) -> None:
        self.stream.synchronize()


class DeviceRechecker(DeviceChecks):
    """Checks on the host what a device has computed."""

    _looked = False

    def __init__(
        self, signature: Signature, values: tuple[NDArray[Any], ...], truth: Oracle | None, place: Device,
        seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(signature, values, truth, place, seed)
        self._images: dict[tuple[int, Values], tuple[DeviceMemory, int]] = {}  # and their checksums
        self._sums = [self._image_of(i, Values.FIRST)[1] for i in range(len(self._inputs))]

    def arrange(self, place: Placement, values: Values) -> None:
        super().arrange(place, values)
        self._sums = [self._image_of(i, values)[1] for i in range(len(self._inputs))]

    def image(self, operand: int, values: Values) -> DeviceMemory:
        return self._image_of(operand, values)[0]

    def _image_of(self, operand: int, values: Values) -> tuple[DeviceMemory, int]:
        value, first = self.operands_of(values)[operand], self._values[operand]
        negated = operand < self.negated(values)
        at = operand, values if negated or value is not first else Values.FIRST
        if at not in self._images:
            tensor = self._inputs[operand]
            if negated:
                negate(value, tensor.host.array)
            else:
                tensor.host.array[...] = value
            self._images[at] = tensor.image(), zlib.crc32(tensor.host.memory.data)
            tensor.host.array[...] = first
        return self._images[at]

    def clear(self, byte: int) -> None:
        self.result.memory[...] = self._initial
        if not self.adds:
            clear(self.result.array, byte)
        self._output.upload()

    def found(self) -> NDArray[Any]:
        self._output.download()
        return self.result.array

    def check_tensor(self, tensor: DeviceTensor) -> Accuracy:
        tensor.download()
        return self.check_result(tensor.host.array)

    def out_of_bounds(self) -> str:
        if found := self.result.out_of_bounds():
            return f"wrote outside the result: {found}"
        small = sum(operand.memory.nbytes for operand in self.operands) <= _LOOKED_AT
        if not small and self._looked:
            return ""
        self._looked = True
        for place, tensor in enumerate(self._inputs):
            if tensor.checksum() != self._sums[place]:
                return f"wrote to argument {place}, which it may only read"
        return ""
