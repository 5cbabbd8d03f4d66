"""What the checks of a kernel see, of kernels that are wrong in one way each. They run in a process that may die."""

from __future__ import annotations

import signal
import subprocess
import sys
from mmap import PAGESIZE
from pathlib import Path

import numpy as np
import pytest

from tilesmith.measure import guard_pages
from tilesmith.measure.arrays import BAND_BYTES
from tilesmith.measure.guard_pages import GUARD_BYTES
from tilesmith.measure.host_check import HostChecker
from tilesmith.measure.host_tensors import HostBytes, HostTensor, Placement, negate
from tilesmith.measure.oracle import oracle
from tilesmith.plan.slots import arguments
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args

GEMM = GemmSignature(m=7, n=9, k=33)
PITCHED = ConvSignature((2, 4, 4, 5), (6, 1, 1, 5), shared_layout="NHWC", output_strides=(160, 40, 8, 1)).canonical
ADDED = GemmSignature(5, 7, 9, dtype="int8", alpha=2.0, beta=-3.0)
INT8 = ConvSignature((2, 9, 8, 5), (6, 3, 3, 5), shared_layout="NHWC", dtype="int8").canonical


class Right:
    """A plan that computes its problem on the checker's tensors, where they lie, with the filters that it packed."""

    def __init__(self, checker):
        self.checker, self.packed, self.runs = checker, {}, 0

    def fill(self, byte):
        pass

    def prepare(self, second=False, pieces=0):
        self.packed[second] = self.checker.operands[1].array.copy()

    def run(self, second=False, pieces=0):
        self.runs += 1
        operands = [tensor.array for tensor in self.checker.operands]
        operands[1] = self.packed[second]
        if self.checker.initial is not None:
            operands.append(self.checker.output.array.copy())
        self.write(operands, self.checker.output.array, pieces)

    def write(self, operands, out, pieces):
        with np.errstate(all="ignore"):
            value = oracle(self.checker.signature, operands).value
            out[...] = np.moveaxis(value, 1, -1) if value.ndim == 4 else value


def checker_of(signature):
    values = sample_args(signature)
    return HostChecker(signature, values, oracle(signature, values))


@pytest.mark.parametrize("signature", [GEMM, PITCHED, INT8, ADDED], ids=["gemm", "pitched", "int8", "added"])
def test_a_right_plan_passes_both_checks_again_and_again(signature):
    checker = checker_of(signature)
    plan = Right(checker)
    for _ in range(3):
        assert checker.check(plan).ok
        assert checker.certify(plan).ok


@pytest.mark.parametrize("signature", [GEMM, PITCHED], ids=["gemm", "pitched"])
def test_without_an_oracle_results_are_judged_in_parts(signature):
    checker = HostChecker(signature, sample_args(signature), None)
    plan = Right(checker)
    assert checker.check(plan).ok
    assert checker.certify(plan).ok
    plan.write = lambda operands, out, pieces: out.fill(0)
    assert "elements wrong" in checker.check(plan).message


def faulty(fault):
    class Faulty(Right):
        def write(self, operands, out, pieces):
            super().write(operands, out, pieces)
            fault(self, operands, out, pieces)

    return Faulty


def address(array):
    return array.__array_interface__["data"][0]


ADD = np.float32(0.01)
# In which check it shows, the fault, and what is said of it.
FAULTS = {
    "one element": ("check", lambda plan, ops, out, pieces: out.__setitem__((3, 4), out[3, 4] + ADD), "1 of 63"),
    "the third run": (
        "certify", lambda plan, ops, out, pieces: plan.runs > 2 and out.__setitem__((0, 0), 1), "1 of 63",
    ),
    "results on a page": ("check", lambda plan, ops, out, pieces: address(out) % PAGESIZE or out.fill(0), "of a page"),
    "results at a page's end": (
        "check", lambda plan, ops, out, pieces: (address(out) + out.nbytes) % PAGESIZE or out.fill(0), "end of a page",
    ),
    **{
        f"results {past} after 64": (
            "certify", lambda plan, ops, out, pieces, past=past: address(out) % PAGESIZE != past or out.fill(0), words,
        )
        for past, words in ((4, "one element after"), (16, "16 bytes after"), (32, "32 bytes"), (48, "48 bytes"))
    },
    "in pieces": ("certify", lambda plan, ops, out, pieces: pieces > 1 and out.fill(0), "in 7 pieces"),
    "alone": ("certify", lambda plan, ops, out, pieces: pieces == 1 and out.fill(0), "on one thread"),
    "NaN": ("certify", lambda plan, ops, out, pieces: np.nan_to_num(out, copy=False), "with NaN and Inf"),
    "a filter of either sign": (
        "check", lambda plan, ops, out, pieces: out.__imul__(np.sign(ops[1][0, 0])), "elements wrong",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_shows_in_the_check_that_looks_for_it(name):
    where, fault, words = FAULTS[name]
    checker = checker_of(GEMM)
    plan = faulty(fault)(checker)
    first = checker.check(plan)
    assert first.ok == (where == "certify"), first.message
    verdict = first if where == "check" else checker.certify(plan)
    assert not verdict.ok
    assert words in verdict.message
    assert checker.check(Right(checker)).ok


def test_one_of_two_packed_filters_must_not_change_the_other():
    class Shares(Right):
        def prepare(self, second=False, pieces=0):
            super().prepare(second)
            self.packed = dict.fromkeys((False, True), self.packed[second])

    checker = checker_of(GEMM)
    plan = Shares(checker)
    assert checker.check(plan).ok
    assert "with a second filter" in checker.certify(plan).message


def test_where_the_system_has_no_such_pages_bands_of_64_kb_show_writes(monkeypatch):
    monkeypatch.setattr(guard_pages, "_reserved", lambda size: None)
    checker = checker_of(GEMM)
    assert BAND_BYTES == 64 << 10

    def beside(offset):
        def fault(plan, operands, out, pieces):
            at = address(out) + offset
            np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * 1).from_address(at))[0] = 1

        return fault

    for offset, words in ((-1, "before the tensor"), (-60_000, "before"), (63 * 4, "behind"), (60_000, "behind")):
        verdict = checker.check(faulty(beside(offset))(checker))
        assert "wrote outside the result" in verdict.message
        assert words in verdict.message
    into = faulty(lambda plan, operands, out, pieces: operands[0].__setitem__((0, 0), 1))
    assert "wrote to argument 0" in checker.check(into(checker)).message
    assert checker.check(Right(checker)).ok


@pytest.mark.parametrize("place", Placement)
@pytest.mark.parametrize("signature", [GEMM, PITCHED, INT8, ADDED], ids=["gemm", "pitched", "int8", "added"])
def test_a_tensor_lies_where_it_is_laid(signature, place):
    for slot, values in zip(arguments(signature), sample_args(signature), strict=False):
        tensor = HostTensor(slot)
        for values_negated in (False, values.dtype.kind == "f"):
            tensor.arrange(place, values, negated=values_negated)
            np.testing.assert_array_equal(tensor.array, -values if values_negated else values)
            assert tensor.address == address(tensor.array)
            assert tensor.out_of_bounds() == ""
        past = {"LOW": 0, "ELEMENT": tensor.array.itemsize, "PAST_16": 16, "PAST_32": 32, "PAST_48": 48}
        if place is Placement.HIGH:
            assert (tensor.address + slot.nbytes) % PAGESIZE == 0
        else:
            assert tensor.address % 64 == past[place.name]


def test_signs_are_turned_of_every_number():
    for kind in (np.float16, np.float32, np.float64):
        values = np.array([0.0, -0.0, 1.5, -2.0, np.inf, np.nan], kind)
        negated = np.empty_like(values)
        negate(values, negated)
        np.testing.assert_array_equal(negated, -values)
        assert list(np.signbit(negated)) == [not sign for sign in np.signbit(values)]


ACCESSES = {
    "read before": "operand(0).arrange(Placement.LOW, None); peek(operand(0).address - 3600)",
    "read behind": "operand(0).arrange(Placement.HIGH, None); peek(operand(0).address + operand(0).slot.nbytes)",
    "far before": "operand(0).arrange(Placement.LOW, None); peek(operand(0).address - GUARD_BYTES)",
    "write before": "operand(2).arrange(Placement.LOW, None); poke(operand(2).address - 1)",
    "write behind": "operand(2).arrange(Placement.HIGH, None); poke(operand(2).address + operand(2).slot.nbytes)",
    "write to a sealed tensor": "operand(0).arrange(Placement.LOW, None); operand(0).seal(); poke(operand(0).address)",
    "write behind a workspace": "memory = HostBytes(640); memory.fill(0); poke(memory.address + 640)",
    "write to a sealed packed filter": "memory = HostBytes(640); memory.seal(); poke(memory.address)",
}


@pytest.mark.needs_guard_pages
def test_what_lies_beyond_a_tensor_cannot_be_touched():
    """One process that forks for each access: it costs a start of Python once."""
    script = f"""
import ctypes, os, signal
from tilesmith.measure.guard_pages import GUARD_BYTES
from tilesmith.measure.host_tensors import Placement, HostBytes, HostTensor
from tilesmith.plan.slots import arguments
from tilesmith.problems.gemm import GemmSignature
tensors = [HostTensor(slot) for slot in arguments(GemmSignature(m=7, n=9, k=33))]
operand = tensors.__getitem__
peek = ctypes.string_at
def poke(address): ctypes.memset(address, 1, 1)
for access in {list(ACCESSES.values())!r}:
    child = os.fork()
    if child == 0:
        exec(access)
        os._exit(0)
    print(-os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    fault = {signal.SIGSEGV, signal.SIGBUS}
    found = dict(zip(ACCESSES, map(int, done.stdout.split()), strict=True))
    assert {name for name, number in found.items() if number not in fault} == set()


@pytest.mark.needs_linux
def test_guard_pages_are_given_back():
    def mapped():
        return sum("-" in line for line in Path("/proc/self/maps").read_text().splitlines())

    before = mapped()
    for _ in range(50):
        HostBytes(GUARD_BYTES).fill(1)
    kept = HostTensor(arguments(GEMM)[0]).array  # an array alone keeps its pages
    kept[...] = 1
    assert mapped() < before + 20
