"""The C library on a GPU: embedded and loaded packages against the stand-in for the driver."""

from __future__ import annotations

import ctypes
import os
import shutil

import numpy as np
import pytest
from cuda_chain import CACHE, H200

from c_problems import BAD_ARGUMENT, OK
from library_build import Build, make, package_of
from library_calls import (
    BEST,
    CUDA_ERROR,
    NEAREST,
    OPERANDS,
    UNSUPPORTED,
    Library,
    Memory,
    Operands,
    inputs,
    operands_of,
)  # fmt: skip
from tilesmith.plan.records import Launch
from tilesmith.plan.slots import arguments
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.targets.names import parse_target

NHWC, BF16 = 0x2541, 4
CONV = {
    "layout": NHWC,
    "dtype": 0,
    "n": 1,
    "c": 4,
    "k": 6,
    "in": (5, 4),
    "filter": (3, 3),
    "bias": 1,
    "activation": 1,
    "x_pitch_c": 8,
}
EMULATED = ConvSignature(
    (1, 5, 4, 4), (6, 3, 3, 4), shared_layout="NHWC", epilogue=Epilogue(True, "relu"), input_strides=(160, 32, 8, 1)
)
GEMM = {"op": 1, "m": 128, "n": 256, "k": 512, "dtype": BF16}
FAST = GemmSignature(128, 256, 512, dtype="bf16")
OTHER = parse_target("sm_90a:114:h100-pcie")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The library with a plan that the emulator runs; a package with one of Hopper's kernels, one of another card."""
    folder = tmp_path_factory.mktemp("library")
    (slow,) = make(EMULATED, H200, CACHE, solver="cuda_reference")
    (fast,) = make(FAST, H200, CACHE)
    (folder / "fast.kdb").write_bytes(package_of([fast], H200.name))
    (folder / "other.kdb").write_bytes(package_of(make(FAST, OTHER, CACHE), OTHER.name))
    build = Build(folder, (), H200, (package_of([slow], H200.name),))
    build.write()
    return build.link("libdeconv.so", "-O0", "-fPIC", "-shared"), slow, fast


@pytest.fixture
def c(built, cuda):
    """The calls, with the stand-in as the driver."""
    library = Library(built[0])
    assert library.c.ts_cuda_open(os.fsencode(cuda.path), None) == OK
    return library


def test_results_are_those_of_python(c, built, emulating):
    _, slow, _ = built
    for source in slow.sources:
        emulating.emulate(source)
    handle = c.open(device=0)
    assert c.machine(handle).decode() == H200.name
    given, result, arrays = inputs(EMULATED)
    spans = {OPERANDS[slot.name]: slot.nbytes for slot in arguments(EMULATED)}
    aligned = {name: Memory(nbytes, 64) for name, nbytes in spans.items()}
    operands = operands_of(arrays)
    for name, memory in aligned.items():
        ctypes.memmove(memory.address, arrays[name].ctypes.data, memory.nbytes)
        setattr(operands, name, memory.address)
    plan = c.plan(handle, c.desc(**CONV))
    needs = c.needs(plan)
    assert (needs.device, needs.threads, needs.slot_alignment) == (0, 1, 16)
    c.call(plan, operands)
    x, w = (array.astype(np.float64) for array in given[:2])
    right = sum(np.tensordot(x[0, i : i + 3, j : j + 2], w[:, i, j], (2, 1)) for i in range(3) for j in range(3))
    right = np.maximum(right + given[2], 0).ravel()
    ctypes.memmove(result.ctypes.data, aligned["y"].address, result.nbytes)
    assert np.allclose(result, right, rtol=1e-5, atol=1e-5)
    assert np.any(right)
    unaligned = Operands.from_buffer_copy(operands)
    unaligned.y += 4
    status = c.run(plan, unaligned, None, None, None)
    assert c.refused(status, BAD_ARGUMENT, "is not aligned to 16 bytes")
    c.plan_destroy(plan)
    assert c.is_supported(handle, c.desc(**CONV, x_offset_c=4)) == OK
    shifted = c.is_supported(handle, c.desc(**CONV, x_offset_c=1))
    assert c.refused(shifted, UNSUPPORTED, "x_offset_c is 4 bytes: on a GPU a multiple of 16 is needed")
    c.destroy(handle)


def test_kernels_are_loaded_with_the_plan_and_queued_on_the_stream(c, built, cuda):
    """Nothing is loaded in ``run``; the plan outlives the library."""
    library, _, fast = built
    handle = c.open(device=1)
    assert c.load(handle, os.fsencode(library.parent / "fast.kdb")) == OK
    (found,) = c.solutions(handle, c.desc(**GEMM))
    assert (found.solver.decode(), found.origin, found.workspace_bytes) == (
        fast.plan.solver, 1, fast.plan.workspace_bytes,
    )  # fmt: skip
    cuda.log()
    plan = c.plan(handle, c.desc(**GEMM))
    assert any(line.startswith("load device=1") for line in cuda.log())
    c.destroy(handle)
    needs = c.needs(plan)
    memories = [Memory(slot.nbytes, 256) for slot in fast.plan.slots]
    operands = Operands(ctypes.sizeof(Operands), 1, *(memory.address for memory in memories))
    packed, workspace = (Memory(n, needs.alignment) for n in (needs.packed_bytes, needs.workspace_bytes))
    assert c.run(plan, operands, packed.address, workspace.address, 77) == OK
    log = cuda.log()
    launches = [step.symbol for step in fast.plan.run if isinstance(step, Launch)]
    assert [line for line in log if "load" in line] == []
    assert sum(any(symbol in line for symbol in launches) for line in log) == len(launches)
    c.plan_destroy(plan)


def test_another_card(c, built):
    path = built[0].parent / "other.kdb"
    desc, handle = c.desc(**GEMM), c.open(device=0)
    status = c.load(handle, os.fsencode(path))
    text = (
        f"{path} is for {OTHER.name}; this machine is {H200.name}: install the package for it, or allow this one with"
    )
    assert c.refused(status, UNSUPPORTED, text)
    assert c.refused(c.is_supported(handle, desc), UNSUPPORTED, f"has no plan for {FAST.key()} on {H200.name}")
    c.destroy(handle)
    handle = c.open(device=0, flags=NEAREST)
    assert c.load(handle, os.fsencode(path)) == OK
    (found,) = c.solutions(handle, desc)
    assert found.target.decode() == OTHER.name
    c.destroy(handle)


def test_a_machine_without_a_gpu(c, built, tmp_path):
    """The status says so, and the CPU is there all the same."""
    handle = ctypes.c_void_p()
    assert c.refused(c.create(ctypes.byref(handle), 2, 0), CUDA_ERROR, "device 2 of 2")
    alone = Library(shutil.copy(built[0], tmp_path / "alone.so"))  # with a driver of its own, not opened yet
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        assert alone.refused(alone.create(ctypes.byref(handle), 0, 0), CUDA_ERROR, "no CUDA driver")
        assert handle.value is None
    handle = alone.open(device=-1, flags=0)
    assert [each.solver for each in alone.solutions(handle, alone.desc(**CONV))] == [b"reference"]
    assert alone.plan_create(handle, alone.desc(**CONV), BEST, ctypes.byref(ctypes.c_void_p())) == OK
    alone.destroy(handle)
