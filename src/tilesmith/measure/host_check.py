"""``measure.checker`` for plans on the CPU. A kernel that reads or writes where it must not ends the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from numpy.typing import NDArray

from tilesmith.measure.accuracy import Accuracy, plant_specials
from tilesmith.measure.arrays import aligned_arrays, clear
from tilesmith.measure.checker import NAN, NUMBER, Checker, Values
from tilesmith.measure.host_tensors import HostBytes, HostTensor, Placement
from tilesmith.measure.oracle import Oracle
from tilesmith.plan.check import FILTER_SLOT
from tilesmith.plan.slots import arguments
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.executable import Executable

Array = NDArray[Any]

#: Memory that a kernel may use: its name, its first byte, the one after its last, and whether it may only be read.
Region = tuple[str, int, int, bool]

CALLS: Final = 9  # of a plan that is not timed, before its last result is compared


class HostChecker(Checker):
    """``signature`` is canonical, so that its arguments are a plan's slots."""

    def __init__(self, signature: Signature, values: tuple[Array, ...], truth: Oracle | None, seed: int = 0) -> None:
        *operands, result = (HostTensor(slot) for slot in arguments(signature))
        self.operands, self.output = operands, result
        super().__init__(signature, values, truth, result.array, seed)
        adds = isinstance(signature, GemmSignature) and signature.beta != 0
        self.initial = values[-1] if adds else None
        self._place = Placement.LOW
        #: Called before each run with the placement of the tensors.
        self.watch: Callable[[Sequence[Region]], None] = lambda regions: None
        # Of all plans, as large as the largest has wanted: the workspace, and two packed filters.
        self._memory = [HostBytes(0) for _ in range(3)]

    @property
    def slots(self) -> tuple[int, ...]:
        return tuple(tensor.address for tensor in (*self.operands, self.output))

    def plan(self, executable: Executable) -> HostPlan:
        """``executable`` on this problem's tensors."""
        return HostPlan(executable, self)

    def memory_of(self, nbytes: int, place: int) -> HostBytes:
        """The workspace (0) or a packed filter (1, 2) of a plan, which ends where its pages end."""
        if self._memory[place].nbytes != nbytes:
            self._memory[place] = HostBytes(nbytes)
        return self._memory[place]

    def regions(self) -> list[Region]:
        found = [
            (f"argument {place}", tensor.address, tensor.address + tensor.slot.nbytes, True)
            for place, tensor in enumerate(self.operands)
        ]
        found.append(("the result", self.output.address, self.output.address + self.output.slot.nbytes, False))
        for name, memory in zip(("the workspace", "the packed filter", "the packed filter"), self._memory, strict=True):
            found.append((name, memory.address, memory.address + memory.nbytes, memory.sealed))
        return [region for region in found if region[2] > region[1]]

    def arrange(self, place: Placement, values: Values) -> None:
        self._place = place
        for i, (tensor, value) in enumerate(zip(self.operands, self.operands_of(values), strict=False)):
            tensor.arrange(place, value, negated=i < self.negated(values))
            tensor.seal()

    def clear(self, byte: int) -> None:
        self.output.arrange(self._place, self.initial, byte)

    def where(self, place: Placement) -> str:
        return place.value

    def finish(self) -> None:
        """Calls on a CPU return when they have ended."""

    def found(self) -> Array:
        return self.output.array

    def out_of_bounds(self) -> str:
        if found := self.output.out_of_bounds():
            return f"wrote outside the result: {found}"
        for name, memory in zip(("workspace", "packed filter", "packed filter"), self._memory, strict=True):
            if found := memory.out_of_bounds():
                memory.fill(NAN)
                return f"wrote outside the {name}: {found}"
        written = [place for place, tensor in enumerate(self.operands) if tensor.was_written]
        return f"wrote to argument {written[0]}, which it may only read" if written else ""


class HostPlan:
    """A plan with the addresses of a checker's tensors."""

    def __init__(self, executable: Executable, checker: HostChecker) -> None:
        self._executable, self._checker = executable, checker
        self._byte = NAN

    def fill(self, byte: int) -> None:
        self._byte = byte
        for place in range(3):
            self._memory(place).fill(byte)

    def prepare(self, second: bool = False, pieces: int = 0) -> None:
        if self._executable.prepares:
            packed = self._memory(1 + second)
            packed.unseal()
            self._run(packed, prepare=True, pieces=pieces)
            packed.seal()

    def run(self, second: bool = False, pieces: int = 0) -> None:
        self._run(self._memory(1 + second), pieces=pieces)

    def _run(self, packed: HostBytes, *, prepare: bool = False, pieces: int = 0) -> None:
        workspace = self._memory(0).address
        self._checker.watch(self._checker.regions())
        self._executable.run_at(
            self._checker.slots, packed.address, workspace, prepare=prepare, pieces=pieces, fill=self._byte
        )  # fmt: skip

    def _memory(self, place: int) -> HostBytes:
        plan = self._executable.plan
        return self._checker.memory_of(plan.packed_bytes if place else plan.workspace_bytes, place)


class RepeatedCall:
    """A plan called as programs call it, on 64-byte boundaries, and compared after its last call.

    These calls are timed. The comparison at the end finds a kernel that goes wrong during them.
    """

    def __init__(self, checker: HostChecker, executable: Executable, arrays: Sequence[Array]) -> None:
        """``arrays`` are ``aligned_arrays`` of the checker's first arguments."""
        self._checker = checker
        self._result = arrays[-1]
        self.packed = executable.prepare(arrays[FILTER_SLOT]) if executable.prepares else None
        self.run = executable.hold(arrays, self.packed)

    def compare(self) -> Accuracy:
        """Call once more, into memory that holds other numbers, and compare."""
        initial = self._checker.initial
        if initial is not None:
            self._result[...] = initial
        else:
            clear(self._result, NUMBER)
        self.run()
        return self.compare_last()

    def compare_last(self) -> Accuracy:
        """Compares the result of the last call."""
        verdict = self._checker.check_again(self._result)
        return verdict if verdict.ok else replace(verdict, message=f"after repeated calls: {verdict.message}")

    @property
    def adds(self) -> bool:
        """Whether each call adds to the result of the last one."""
        return self._checker.initial is not None


def verify_plan(
    executable: Executable, signature: Signature, seed: int = 0, truth: Oracle | None = None, specials: bool = False,
    watch: Callable[[Sequence[Region]], None] = lambda regions: None,
) -> Accuracy:  # fmt: skip
    """All checks of one plan; ``specials`` also plants NaN and Inf in each operand in turn.

    Without ``truth`` the oracle is asked in parts, so that memory holds large problems. ``watch`` is called before each
    run with the placement of the tensors.
    """
    if specials:

        def check_planted(values: tuple[Array, ...]) -> Accuracy:
            checker = HostChecker(signature, values, None, seed)
            checker.watch = watch
            return checker.check(checker.plan(executable))

        return plant_specials(check_planted, signature, seed)
    values = sample_args(signature, seed)
    checker = HostChecker(signature, values, truth, seed)
    checker.watch = watch
    plan = checker.plan(executable)
    verdict = checker.check(plan)
    if not verdict.ok:
        return verdict
    repeated = _repeated(checker, executable, values)
    certified = checker.certify(plan) if repeated.ok else repeated
    return verdict if certified.ok else certified


def _repeated(checker: HostChecker, executable: Executable, values: tuple[Array, ...]) -> Accuracy:
    calls = RepeatedCall(checker, executable, aligned_arrays(checker.signature, values))
    for _ in range(CALLS):
        calls.run()
    return calls.compare()
