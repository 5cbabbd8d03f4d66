"""A plan with its artifacts loaded: run it slot by slot, or bind it as a function of a signature's tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tilesmith.errors import LaunchError
from tilesmith.plan.check import FILTER_SLOT
from tilesmith.plan.records import Plan, Slot
from tilesmith.plan.serial import decode, encode
from tilesmith.plan.slots import arguments
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.rewrite import Signature
from tilesmith.runtime._runtime import Bound, LoadedPlan, PackedFilter, Prepared, cuda_open
from tilesmith.runtime.arguments import refuse, refuse_overlap
from tilesmith.runtime.device_call import DeviceCalls
from tilesmith.targets.cuda_driver import library_path

__all__ = ["Bound", "Executable", "PackedFilter", "Prepared"]

_NONE = -1


class Executable:
    """``plan``, ready to run on any number of threads at a time.

    ``artifact_paths[i]`` is the file of ``plan.artifacts[i]``; its digest is checked here. Raises ``PlanError`` for a
    plan that breaks a rule, ``LaunchError`` for artifacts that are missing, damaged, or lack a symbol.
    """

    def __init__(self, plan: Plan | bytes, artifact_paths: Sequence[Path]) -> None:
        data = encode(plan) if isinstance(plan, Plan) else plan
        self.plan = plan if isinstance(plan, Plan) else decode(plan)
        if len(artifact_paths) != len(self.plan.artifacts):
            raise LaunchError(f"the plan counts {len(self.plan.artifacts)} artifacts, got {len(artifact_paths)} files")
        for digest, path in zip(self.plan.artifacts, artifact_paths, strict=True):
            _check_digest(digest, Path(path))
        if self.plan.family == "cuda":
            cuda_open(library_path())
        self._loaded = LoadedPlan(data, tuple(artifact_paths))
        *inputs, result = self.plan.slots
        self._slots = self._bind(inputs, range(len(inputs)), result, _NONE)

    def bind(self, signature: Signature) -> Bound:
        """The plan as a function of the tensors of ``signature``, in the order of its arguments.

        ``bound(x, w, out=None)`` takes NumPy arrays or PyTorch CPU tensors, checks them, and returns ``out`` or a new
        tensor of the kind of its arguments. ``bound.prepare(w)`` packs the filter now and returns a function of the
        other tensors. Raises ``LaunchError`` when the plan is for another problem; calls raise ``ArgumentError``.
        No gradient is recorded, and what reads as the filter must not change after ``prepare``.
        """
        problem = signature.canonical.key()
        if problem != self.plan.problem:
            raise LaunchError(f"the plan is for {self.plan.problem}, not for {problem}")
        *inputs, result = arguments(signature)
        order = signature.canonical_order
        slot_of = [_NONE] * len(order)
        for place, argument in enumerate(order):
            slot_of[argument] = place
        initial = _NONE
        if len(order) > len(inputs):  # GEMM with beta: the last argument is what c begins as
            initial = len(inputs)
            inputs.append(result)
            slot_of[initial] = _NONE
        return self._bind(inputs, slot_of, result, initial)

    @property
    def threads(self) -> int:
        """Threads that a call uses, the caller counted."""
        return self.plan.threads

    @property
    def prepares(self) -> bool:
        """Whether the plan has a prepare part: a filter to pack before the calls."""
        return bool(self.plan.prepare)

    def prepare(self, filter_: Any, packed: PackedFilter | None = None) -> PackedFilter:
        """Run the prepare part on the filter slot's tensor; into ``packed`` when it is given."""
        return self._slots.pack(filter_, packed)

    def run(self, tensors: Sequence[Any], packed: PackedFilter | None = None) -> Any:
        """Run the plan on one tensor a slot, the result last; without ``packed`` the prepare part runs first.

        GEMM's ``c`` begins as what the result's tensor holds. Returns the result.
        """
        return self._slots.run(tuple(tensors[:-1]), tensors[-1], packed)

    def hold(self, tensors: Sequence[Any], packed: PackedFilter | None = None) -> Callable[[], Any]:
        """``run`` on these tensors as a function of nothing, with little overhead: for timing."""
        return partial(self._slots.run, tuple(tensors[:-1]), tensors[-1], packed)

    def load_on(self, device: int) -> None:
        """Load a CUDA plan's kernels on a device now rather than at its first call there."""
        self._loaded.load_on(device)

    def run_on(
        self, device: int, stream: int, slots: Sequence[int], packed: int, workspace: int, *, prepare: bool = False
    ) -> None:
        """Queue a CUDA plan (or its prepare part) on a stream; everything is an address on the device."""
        run = self._loaded.prepare_on if prepare else self._loaded.run_on
        run(device, stream, tuple(slots), packed, workspace)

    def poison(self) -> None:
        """Fill the workspace and the packed filter of the next call with NaNs: what a kernel does not write shows."""
        self._loaded.poison()

    def _bind(self, inputs: Sequence[Slot], slot_of: Sequence[int], result: Slot, initial: int) -> Bound:
        has_filter = len(self.plan.slots) > 2 and self.plan.slots[FILTER_SLOT].name in ("w", "b")
        filter_ = list(slot_of).index(FILTER_SLOT) if has_filter else _NONE
        calls = None
        if self.plan.family == "cuda":
            calls = DeviceCalls(self._loaded, self.plan, inputs, slot_of, result, filter_, initial)
        return Bound(
            self._loaded,
            tuple(_entry(slot) for slot in inputs),
            tuple(slot_of),
            _entry(result),
            filter_,
            initial,
            refuse,
            refuse_overlap,
            calls,
        )


def _entry(slot: Slot) -> tuple[Slot, str, Any, tuple[int, ...], tuple[int, ...], int]:
    return slot, slot.dtype, dtype(slot.dtype).numpy(), slot.shape, slot.strides, slot.nbytes


def _check_digest(digest: str, path: Path) -> None:
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise LaunchError(f"artifact {path} cannot be read: {error.strerror}") from None
    if found != digest:
        raise LaunchError(f"artifact {path} is damaged: its sha256 is {found}, the plan says {digest}")
