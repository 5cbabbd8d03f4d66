"""Calls of CUDA plans on any device tensor. PyTorch tensors that lie as they should never come here: C runs those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilesmith.errors import ArgumentError
from tilesmith.plan.records import Plan, Slot
from tilesmith.plan.slots import span_bytes
from tilesmith.runtime._runtime import LoadedPlan, PackedFilter
from tilesmith.runtime.device_tensors import ALIGNMENT, DeviceView, Library, check_view, view_of

_NONE = -1


class DeviceCalls:
    """The tensors of a bound plan: ``inputs`` with their slots, the ``result``, and which inputs are special."""

    def __init__(
        self, loaded: LoadedPlan, plan: Plan, inputs: Sequence[Slot], slot_of: Sequence[int], result: Slot,
        filter_: int, initial: int, exact: int = 0,
    ) -> None:  # fmt: skip
        """``exact`` is of how many inputs the strides of unit axes count."""
        self._loaded, self._plan = loaded, plan
        self._inputs, self._slot_of, self._result = tuple(inputs), tuple(slot_of), result
        self._filter, self._initial, self._exact = filter_, initial, exact

    def run(
        self, packed: PackedFilter | None, filter_: Any, filter_address: int, packed_address: int,
        tensors: tuple[Any, ...], out: Any,
    ) -> Any:  # fmt: skip
        """Check everything, run, and return the result. ``tensors`` lack the filter when it is packed."""
        views: list[DeviceView | None] = []
        rest = iter(tensors)
        for index, slot in enumerate(self._inputs):
            if packed is not None and index == self._filter:
                views.append(None)
            else:
                found = self._read(slot, next(rest))
                if index < self._exact and found.strides != slot.strides:
                    raise ArgumentError(f"{slot.name} must have strides {slot.strides}, got {found.strides}")
                views.append(found)
        first = next(view for view in views if view is not None)
        for slot, view in zip(self._inputs, views, strict=True):
            if view is not None and view.ordinal != first.ordinal:
                raise ArgumentError(f"{slot.name} is on device {view.ordinal}, others are on device {first.ordinal}")
        library, like, ordinal = first.library, first.keep, first.ordinal
        held: list[Any] = [views]
        made = library.empty(self._result, like, ordinal) if out is None else out
        result = view_of(self._result, made)
        check_view(self._result, result, writable=True)
        if result.ordinal != ordinal:
            raise ArgumentError(f"out is on device {result.ordinal}, the arguments are on device {ordinal}")
        slots = [0] * len(self._plan.slots)
        slots[-1] = result.address
        for index, (slot, view) in enumerate(zip(self._inputs, views, strict=True)):
            if view is None:
                slots[self._slot_of[index]] = filter_address
            elif index == self._initial:
                if view.address != result.address:
                    self._refuse_overlap(slot, view, result)
                    library.copy(made, view.keep)
            else:
                if out is not None:
                    self._refuse_overlap(slot, view, result)
                slots[self._slot_of[index]] = view.address
        stream = library.stream(ordinal)
        workspace = self._scratch(self._plan.workspace_bytes, library, like, ordinal, held)
        if packed is None:
            packed_address = self._scratch(self._plan.packed_bytes, library, like, ordinal, held)
            self._loaded.prepare_on(ordinal, stream, tuple(slots), packed_address, workspace)
        self._loaded.run_on(ordinal, stream, tuple(slots), packed_address, workspace)
        return made

    def pack(self, filter_: Any, again: PackedFilter | None) -> PackedFilter:
        """The packed filter; ``again`` is not written anew, for a graph may read it: a new one is made."""
        view = self._read(self._inputs[self._filter], filter_)
        library, ordinal = view.library, view.ordinal
        held: list[Any] = []
        workspace = self._scratch(self._plan.workspace_bytes, library, view.keep, ordinal, held)
        packed = self._scratch(self._plan.packed_bytes, library, view.keep, ordinal, held)
        slots = [0] * len(self._plan.slots)
        slots[self._slot_of[self._filter]] = view.address
        self._loaded.prepare_on(ordinal, library.stream(ordinal), tuple(slots), packed, workspace)
        return self._loaded.pack_of(view.keep, view.address, held, packed)

    def _read(self, slot: Slot, given: Any) -> DeviceView:
        view = view_of(slot, given)
        check_view(slot, view, writable=False)
        if view.address % ALIGNMENT == 0:
            return view
        # A tensor may begin anywhere; kernels read 16 bytes at a time.
        copy = view.library.clone(given)
        if copy is None:
            raise ArgumentError(f"{slot.name} begins at {view.address:#x}, no multiple of {ALIGNMENT} bytes; copy it")
        view = view_of(slot, copy)
        check_view(slot, view, writable=False)
        return view

    def _refuse_overlap(self, slot: Slot, view: DeviceView, result: DeviceView) -> None:
        end = view.address + span_bytes(slot.dtype, slot.shape, slot.strides)
        if view.address < result.address + self._result.nbytes and result.address < end:
            raise ArgumentError(f"out overlaps {slot.name}; a result needs memory of its own")

    @staticmethod
    def _scratch(nbytes: int, library: Library, like: Any, ordinal: int, held: list[Any]) -> int:
        if nbytes == 0:
            return 0
        owner, address = library.scratch(nbytes, like, ordinal)
        held.append(owner)
        return address
