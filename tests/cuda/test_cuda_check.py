"""Results that are checked where they are: the device's verdicts beside those of the host."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from cuda_chain import H200, PTX_CACHE, executable

from tilesmith.measure import device_check
from tilesmith.measure.accuracy import error_bound
from tilesmith.measure.checker import Values
from tilesmith.measure.device_arrays import DeviceRechecker
from tilesmith.measure.device_bench import DeviceBench
from tilesmith.measure.device_check import DeviceChecker, can_check_on_device, sources_of_checks
from tilesmith.measure.oracle import oracle
from tilesmith.measure.special import plant
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import ACTIVATIONS, IDENTITY, Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.device import device
from tilesmith.solvers.cuda.reference.solver import CudaReferenceSolver
from tilesmith.solvers.solver import Config
from tilesmith.toolchain.build import build_unit

CONV = ConvSignature((2, 6, 7, 8), (5, 3, 3, 8), padding=1, stride=2, dtype="bf16", shared_layout="NHWC").canonical
PROBLEMS = (
    CONV,
    ConvSignature((1, 3, 6, 6), (5, 3, 3, 3), mode="bwd", dtype="fp16").canonical,
    ConvSignature((2, 5, 6, 4), (6, 3, 2, 4), mode="wrw", shared_layout="NHWC").canonical,
    GemmSignature(7, 9, 11, dtype="bf16", lda=16, alpha=-0.5).canonical,
    GemmSignature(30, 9, 11, dtype="bf16", groups=3).canonical,
    replace(CONV, epilogue=Epilogue(bias=True, activation="relu", residual=True)),
    ConvSignature((2, 5, 6, 4), (6, 5, 2, 3), dtype="fp16", epilogue=Epilogue(bias=True, activation="gelu")).canonical,
    ConvSignature((2, 3, 5, 5), (4, 3, 3, 3), mode="bwd", epilogue=Epilogue(bias=True, residual=True)).canonical,
    GemmSignature(7, 9, 11, batch=2, alpha=-0.5, epilogue=Epilogue(True, "hardsigmoid", True)).canonical,
    GemmSignature(7, 9, 11, dtype="bf16", epilogue=Epilogue(activation="clamp", low=-0.25, high=0.5)).canonical,
)


def checker(signature):
    return DeviceChecker(signature, sample_args(signature), H200, device(0), PTX_CACHE)


def reference(signature, emulator):
    return executable(signature, CudaReferenceSolver().draft(signature.geometry, Config(()), H200), emulator)


@pytest.mark.parametrize("signature", PROBLEMS, ids=lambda signature: signature.key()[:24])
def test_the_oracle_is_that_of_the_host(signature, checking):
    assert can_check_on_device(signature)
    found, known = checker(signature).truth, oracle(signature, sample_args(signature))
    assert found.length == known.length
    np.testing.assert_allclose(found.value, known.value, rtol=1e-12, atol=1e-12)
    bounds = error_bound(known, signature)
    np.testing.assert_allclose(error_bound(found, signature), bounds, rtol=1e-5)
    of = device_check._bound_of(signature)
    scale = abs(getattr(signature, "alpha", 1.0))
    line = of.norm / scale * known.norm + of.added * known.addends + of.value * np.abs(known.value) + of.fixed
    np.testing.assert_allclose(line, bounds, rtol=1e-6)


@pytest.mark.parametrize("signature", PROBLEMS, ids=lambda signature: signature.key()[:24])
def test_a_right_plan_passes(signature, checking):
    mine = checker(signature)
    plan = mine.plan(reference(signature, checking))
    for poison in (True, False):
        verdict = mine.check_plan(plan, poison=poison)
        assert verdict.ok, verdict.message
        assert 0 <= verdict.error <= verdict.bound


def test_kernels_of_checks_compile_without_spills(tmp_path):
    """Of the other tests here, which execute them, they are PTX."""
    found = build_unit(list(dict.fromkeys(sources_of_checks(PROBLEMS[6], H200))), H200, tmp_path / "unit.cubin")
    assert [(r.symbol, r.spill_store_bytes) for r in found if r.stack_bytes or r.spill_store_bytes] == []


class Faulty:
    """A plan that does something wrong to the result or its surroundings after it ran."""

    def __init__(self, plan, wrong):
        self.plan, self.wrong = plan, wrong
        self.prepare, self.poison = plan.prepare, plan.poison

    def run(self):
        self.plan.run()
        self.wrong()


def test_what_is_wrong_is_found_and_told(checking):
    mine = checker(CONV)
    plan = mine.plan(reference(CONV, checking))
    size = mine.result.array.nbytes

    def write(tensor, offset, data):
        return lambda: tensor.memory.write(np.frombuffer(data, np.uint8), tensor._pad + tensor.first + offset)

    nan, large = b"\xc0\x7f", b"\x80\x7f"
    cases = (
        (write(mine._output, 6, nan), r"1 of 120 elements wrong; at \(0, 3, 0, 0\): nan, should be"),
        (write(mine._output, 0, large), r"1 of 120 elements wrong; at \(0, 0, 0, 0\): inf, should be"),
        (lambda: mine.clear(0xFF), "120 of 120 elements wrong"),
        (write(mine._output, size, nan), "wrote outside the result: 2 bytes changed behind the tensor"),
        (write(mine._output, -2, b"\0\0"), "wrote outside the result: 2 bytes changed before the tensor"),
        (write(mine._output, -60_000, b"\0\0"), "2 bytes changed before the tensor, the nearest 59999 bytes"),
        (write(mine._output, size + 60_000, b"\0\0"), "2 bytes changed behind the tensor"),
        (write(mine._inputs[1], 8, nan), "wrote to argument 1, which it may only read"),
    )
    for wrong, message in cases:
        verdict = mine.check_plan(Faulty(plan, wrong), poison=False)
        assert not verdict.ok
        assert re.search(message, verdict.message), verdict.message
        assert mine.check_plan(plan, poison=True).ok  # everything was put right


class Spoiled:
    """A plan whose result ``spoil(array, address, runs)`` changes where it lies."""

    def __init__(self, plan, tensor, spoil):
        self.plan, self.tensor, self.spoil, self.runs = plan, tensor, spoil, 0
        self.prepare, self.fill = plan.prepare, plan.fill

    def run(self, second=False, pieces=0):
        self.runs += 1
        self.plan.run(second)
        array = np.empty(self.tensor.host.array.shape, self.tensor.host.array.dtype)
        self.tensor.read(array.reshape(-1).view(np.uint8), 0)
        self.spoil(array, self.tensor.address, self.runs)
        self.tensor.memory.write(array.reshape(-1).view(np.uint8), self.tensor._pad + self.tensor.first)


def lose_nans(array, address, runs):
    array[np.isnan(array.astype(np.float32))] = 0


# What certify must see, and what it says; all of it passes the first check.
LATE = {
    "NaN becomes 0": (lose_nans, "with NaN and Inf in the operands"),
    "wrong at multiples of 64": (lambda a, address, runs: address % 64 or a.fill(0), "64 bytes after"),
    "wrong 32 bytes after 512": (lambda a, address, runs: address % 512 != 32 or a.fill(0), "32 bytes after"),
    "wrong from the third run on": (lambda a, address, runs: runs > 2 and a.fill(0), "elements wrong"),
}  # fmt: skip


@pytest.mark.parametrize("on_device", [True, False], ids=["on the device", "on the host"])
def test_what_may_be_chosen_is_checked_further(on_device, checking):
    signature = PROBLEMS[3]
    values = sample_args(signature)
    made = reference(signature, checking)
    mine = checker(signature) if on_device else DeviceRechecker(signature, values, oracle(signature, values), device(0))
    for _ in range(2):
        assert mine.check(mine.plan(made)).ok
        verdict = mine.certify(mine.plan(made))
        assert verdict.ok, verdict.message
    for name, (spoil, words) in LATE.items():
        plan = Spoiled(mine.plan(made), mine._output, spoil)
        assert mine.check(plan).ok, name
        verdict = mine.certify(plan)
        assert not verdict.ok, name
        assert words in verdict.message, verdict.message
    assert mine.check(mine.plan(made)).ok


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_epilogue_makes_of_nan_and_inf_what_it_does_on_the_host(activation, checking):
    """It makes numbers of some: they are checked where they stand, and a plan that keeps the infinity is wrong."""
    signature = replace(PROBLEMS[3], epilogue=Epilogue(True, activation, True, low=-0.3, high=0.3))
    values = sample_args(signature)
    made, mine = reference(signature, checking), checker(signature)
    np.testing.assert_allclose(mine.truth.value, oracle(signature, values).value, rtol=1e-12, atol=1e-12)
    assert mine.check(mine.plan(made)).ok
    verdict = mine.certify(mine.plan(made))
    assert verdict.ok, verdict.message
    planted = plant(signature, values, 0).values
    with np.errstate(all="ignore"):
        lost = ~np.isfinite(oracle(replace(signature, epilogue=IDENTITY), planted[:2]).value)
        wanted = oracle(signature, planted).value
    numbers, infinite = np.isfinite(wanted) & lost, np.isinf(wanted)
    assert numbers.any() == (activation in ("relu", "clamp", "sigmoid", "tanh", "hardsigmoid"))
    assert infinite.any() == (activation not in ("clamp", "sigmoid", "tanh", "hardsigmoid"))
    for wrong, where in ((np.inf, numbers), (0.75, numbers), (0.75, infinite)):
        if not where.any():
            continue

        def spoil(array, address, runs, wrong=wrong, where=where):
            if mine._arranged[1] is Values.SPECIAL:
                array[where] = wrong

        plan = Spoiled(mine.plan(made), mine._output, spoil)
        assert mine.check(plan).ok
        verdict = mine.certify(plan)
        assert not verdict.ok
        assert "with NaN and Inf in the operands" in verdict.message


def test_what_was_timed_is_compared_after_its_last_call(checking):
    for signature in (PROBLEMS[3], GemmSignature(7, 9, 11, beta=0.5).canonical):
        values = sample_args(signature)
        bench = DeviceBench(signature, values, lambda: oracle(signature, values), H200, 0, PTX_CACHE)  # noqa: B023
        plan = bench.timed.plan(reference(signature, checking))
        bench.quick(plan.run)
        assert bench.compare_last().ok
        assert bench.compare(plan.run).ok
        assert "after repeated calls" in bench.compare(lambda place: None).message
        assert bench.checker.adds or "after repeated calls" in bench.compare_last().message


def test_what_the_host_must_check():
    for signature in (
        ConvSignature((1, 3, 6, 6), (5, 3, 3, 3), dtype="fp8e4m3", epilogue=Epilogue(scale="tensor")),
        ConvSignature((1, 3, 6, 6), (5, 3, 3, 3), mode="bgrad"),
        ConvSignature((1, 3, 6, 6), (5, 3, 3, 3), dtype="int8"),
        GemmSignature(4, 4, 4, beta=1.0),
        GemmSignature(4, 4, 4, alpha=0.0, epilogue=Epilogue(bias=True)),
        GemmSignature(4, 4, 4, ldc=8),
    ):
        assert not can_check_on_device(signature.canonical)


def test_a_bench_checks_on_the_device_where_it_can(checking):
    def host():
        raise AssertionError("the host was asked")

    bench = DeviceBench(CONV, sample_args(CONV), host, H200, 0, PTX_CACHE)
    assert bench.check(reference(CONV, checking)).ok
