"""A plan with its artifacts loaded: run it slot by slot, or bind it as a function of a signature's tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tilesmith.errors import LaunchError
from tilesmith.plan.check import FILTER_SLOT
from tilesmith.plan.records import Plan, Slot
from tilesmith.plan.serial import Serial, check_header, encode, read_head
from tilesmith.plan.slots import arguments
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.spellings import other_spellings
from tilesmith.runtime._runtime import Bound, LoadedPlan, PackedFilter, Prepared, cuda_open
from tilesmith.runtime.arguments import refuse, refuse_overlap
from tilesmith.runtime.device_call import DeviceCalls
from tilesmith.targets.cuda_driver import library_path
from tilesmith.toolchain.cache import Artifact
from tilesmith.toolchain.files import read

__all__ = ["Bound", "Executable", "PackedFilter", "Prepared"]

_NONE = -1


class Executable:
    """``plan``, ready to run on any number of threads at a time.

    ``artifacts[i]`` is the file of ``plan.artifacts[i]``. The digest of a path is checked here; an ``Artifact`` is
    what the cache has just checked. The bytes that were checked are those that are loaded. Raises ``PlanError`` for a
    plan that breaks a rule, ``LaunchError`` for artifacts that are missing, damaged, or lack a symbol.
    """

    def __init__(self, plan: Plan | Serial | bytes, artifacts: Sequence[Path | Artifact]) -> None:
        if not isinstance(plan, Serial):
            data = encode(plan) if isinstance(plan, Plan) else plan
            check_header(data)
            plan = read_head(data)
        self._serial = serial = plan
        if len(artifacts) != len(serial.artifacts):
            raise LaunchError(f"the plan counts {len(serial.artifacts)} artifacts, got {len(artifacts)} files")
        checked = tuple(map(_checked, serial.artifacts, artifacts))
        if serial.family == "cuda":
            cuda_open(library_path())
        self.files = tuple([file for _, file in checked])
        self._loaded = LoadedPlan(serial.data, checked)

    @property
    def data(self) -> bytes:
        """The serialised plan."""
        return self._serial.data

    @property
    def plan(self) -> Plan:
        """The whole plan: decoded when it is first asked for, since no call needs it."""
        return self._serial.plan

    @cached_property
    def _slots(self) -> Bound:
        *inputs, result = self.plan.slots
        has_filter = len(inputs) > FILTER_SLOT and inputs[FILTER_SLOT].name in ("w", "b")
        return self._bind(inputs, range(len(inputs)), result, _NONE, has_filter)

    def bind(self, signature: Signature, lying: Sequence[Slot] = (), exact: int = 2) -> Bound:
        """The plan as a function of the tensors of ``signature``, in the order of its arguments.

        ``bound(x, w, out=None)`` takes NumPy arrays or PyTorch CPU tensors, checks them, and returns ``out`` or a new
        tensor of the kind of its arguments. ``bound.prepare(w)`` packs the filter now and returns a function of the
        other tensors. Raises ``LaunchError`` when the plan is for another problem; calls raise ``ArgumentError``.
        No gradient is recorded, and what reads as the filter must not change after ``prepare``.

        ``lying`` are the arguments and the result with their axes in an order of the caller's; the first ``exact``
        operands must then have these very strides, those of unit axes too.
        """
        problem = signature.canonical.key()
        if problem != self._serial.problem and not self._is_for(signature):
            raise LaunchError(f"the plan is for {self._serial.problem}, not for {problem}")
        *inputs, result = lying or arguments(signature)
        order = signature.canonical_order
        slot_of = [_NONE] * len(order)
        for place, argument in enumerate(order):
            slot_of[argument] = place
        initial = _NONE
        if len(order) > len(inputs):  # GEMM with beta: the last argument is what c begins as
            initial = len(inputs)
            inputs.append(result)
            slot_of[initial] = _NONE
        has_filter = isinstance(signature, GemmSignature) or signature.mode in ("fwd", "bwd")
        return self._bind(inputs, slot_of, result, initial, has_filter, exact=exact if lying else 0)

    def _is_for(self, signature: Signature) -> bool:
        """Whether the plan is for this problem under another key."""
        return any(each.key() == self._serial.problem for each in other_spellings(signature))

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

    def run_at(
        self, slots: Sequence[int], packed: int, workspace: int, *, prepare: bool = False, pieces: int = 0,
        fill: int = 0,
    ) -> None:  # fmt: skip
        """Run a CPU plan (or its prepare part) on unchecked addresses: for checks.

        With ``pieces`` all of it runs on the calling thread, as it does while another call has the pool: the items of
        each launch in that many pieces, the last first, every byte of scratch ``fill`` at the beginning of each.
        """
        self._loaded.run_at(prepare, tuple(slots), packed, workspace, pieces, fill)

    def poison(self) -> None:
        """Fill the workspace and the packed filter of the next call with NaNs: what a kernel does not write shows."""
        self._loaded.poison()

    def _bind(
        self, inputs: Sequence[Slot], slot_of: Sequence[int], result: Slot, initial: int, has_filter: bool,
        exact: int = 0,
    ) -> Bound:  # fmt: skip
        """``exact`` is of how many operands the strides of unit axes are compared too."""
        filter_ = list(slot_of).index(FILTER_SLOT) if has_filter else _NONE
        calls = None
        if self._serial.family == "cuda":
            calls = DeviceCalls(self._loaded, self.plan, inputs, slot_of, result, filter_, initial, exact)
        return Bound(
            self._loaded, tuple((*_entry(slot), index < exact) for index, slot in enumerate(inputs)), tuple(slot_of),
            _entry(result), filter_, initial, refuse, refuse_overlap, calls,
        )  # fmt: skip


def _entry(slot: Slot) -> tuple[Slot, str, Any, tuple[int, ...], tuple[int, ...], int]:
    return slot, slot.dtype, dtype(slot.dtype).numpy(), slot.shape, slot.strides, slot.nbytes


def _checked(digest: str, artifact: Path | Artifact) -> tuple[bytes, str]:
    """The bytes of an artifact, and where they lie."""
    if isinstance(artifact, Artifact):
        if artifact.digest != digest:
            raise LaunchError(f"artifact {artifact.file} is another: its sha256 is not the plan's {digest}")
        return artifact.data, artifact.file
    try:
        data = read(str(artifact))
    except OSError as error:
        raise LaunchError(f"artifact {artifact} cannot be read: {error.strerror}") from None
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        raise LaunchError(f"artifact {artifact} is damaged: its sha256 is {found}, the plan says {digest}")
    return data, str(artifact)
