"""Guarded arrays on a device: the same bytes, bands included, and checks of plans that run there."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesmith.measure.accuracy import Accuracy
from tilesmith.measure.arrays import GuardedArray
from tilesmith.measure.oracle import Oracle
from tilesmith.measure.recheck import Rechecker
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.runtime.device import Device, DeviceMemory, Stream
from tilesmith.runtime.executable import Executable

ALIGNMENT = 16  # for checks: all that a kernel may rely on
TIMED_ALIGNMENT = 512  # for times: where the allocators of CUDA and PyTorch begin
POISON = 0xFF  # in every floating-point format all ones are a NaN
_LOOKED_AT = 64 << 20  # operands up to this size are compared after each call, larger ones after the first


class DeviceTensor:
    """A guarded array's twin on a device: its first element at a multiple of ``alignment`` bytes and no more."""

    def __init__(self, place: Device, host: GuardedArray, alignment: int = ALIGNMENT) -> None:
        self.host = host
        #: Bytes of the host's memory before its first element.
        self.first = host.array.__array_interface__["data"][0] - host.memory.__array_interface__["data"][0]
        self._pad = TIMED_ALIGNMENT + alignment - self.first % TIMED_ALIGNMENT
        self.memory = DeviceMemory(place, host.memory.nbytes + self._pad)
        self.address = self.memory.address + self._pad + self.first
        self.upload()

    def twin(self) -> DeviceTensor:
        """The same bytes in memory of their own."""
        made = copy(self)
        made.memory = DeviceMemory(self.memory.device, self.memory.nbytes)
        made.memory.copy_from(self.memory)
        made.address = made.memory.address + self._pad + self.first
        return made

    def upload(self) -> None:
        """The host's bytes to the device."""
        self.memory.write(self.host.memory, self._pad)

    def download(self, into: NDArray[np.uint8] | None = None) -> None:
        """The device's bytes to the host's memory, or to an array of its size."""
        self.memory.read(self.host.memory if into is None else into, self._pad)

    def read(self, into: NDArray[np.uint8], offset: int) -> None:
        """Bytes from ``offset`` bytes after the first element on (before it, when negative)."""
        self.memory.read(into, self._pad + self.first + offset)


class DevicePlan:
    """A CUDA plan with addresses, workspace (or another's) and packed filter: queued on a stream without any checks."""

    def __init__(
        self, executable: Executable, place: Device, stream: Stream, slots: Sequence[int],
        workspace: DeviceMemory | None = None,
    ) -> None:  # fmt: skip
        plan = executable.plan
        self._executable = executable
        self._ordinal, self._stream, self._slots = place.ordinal, stream, tuple(slots)
        if workspace is None and plan.workspace_bytes:
            workspace = DeviceMemory(place, plan.workspace_bytes)
        self.workspace = workspace
        self._packed = DeviceMemory(place, plan.packed_bytes) if plan.packed_bytes else None
        executable.load_on(place.ordinal)

    def prepare(self) -> None:
        self._queue(prepare=True)

    def run(self) -> None:
        self._queue(prepare=False)

    def poison(self) -> None:
        """Fill the workspace and the packed filter with NaNs."""
        for memory in (self.workspace, self._packed):
            if memory is not None:
                memory.fill(POISON, self._stream)

    def _queue(self, prepare: bool) -> None:
        packed, workspace = (memory.address if memory else 0 for memory in (self._packed, self.workspace))
        self._executable.run_on(
            self._ordinal, self._stream.handle, self._slots, packed, workspace, prepare=prepare
        )  # fmt: skip


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
        first = [DeviceTensor(place, array, TIMED_ALIGNMENT) for array in (*operands, result)]
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


class DeviceRechecker(Rechecker):
    """``Rechecker`` for plans on a device. ``signature`` is canonical, so that its arguments are a plan's slots."""

    def __init__(
        self, signature: ConvSignature | GemmSignature, values: tuple[NDArray[Any], ...], truth: Oracle, place: Device
    ) -> None:
        super().__init__(signature, values, truth)
        self.place = place
        self.stream = Stream(place)
        self._inputs = [DeviceTensor(place, operand) for operand in self.operands]
        self._output = DeviceTensor(place, self.result)
        self._looked = False

    @property
    def slots(self) -> tuple[int, ...]:
        return tuple(tensor.address for tensor in (*self._inputs, self._output))

    def plan(self, executable: Executable) -> DevicePlan:
        """``executable`` on this problem's tensors."""
        return DevicePlan(executable, self.place, self.stream, self.slots)

    def check_plan(self, plan: DevicePlan, *, poison: bool) -> Accuracy:
        """Prepare and run on the device, in guarded memory full of NaN, and check everything it did."""

        def call(*arrays: NDArray[Any]) -> None:
            self._output.upload()
            if poison:
                plan.poison()
            plan.prepare()
            plan.run()
            self.stream.synchronize()
            self._output.download()
            small = sum(operand.memory.nbytes for operand in self.operands) <= _LOOKED_AT
            if small or not self._looked:
                for tensor in self._inputs:
                    tensor.download()
                self._looked = True

        return self.check_call(call)
