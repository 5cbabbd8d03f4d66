"""The calls of the C library, over plans that are linked in and plans of packages."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from dataclasses import replace

import numpy as np
import pytest
from c_problems import ABI_VERSION, BAD_ARGUMENT, BAD_PROBLEM, OK, Problems
from library_build import Build, make, package_of, record

from tilesmith.plan.slots import arguments
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.targets.cpu import archs_within
from tilesmith.targets.detect import host_target
from tilesmith.toolchain.cache import ArtifactCache

pytestmark = pytest.mark.needs_compiler
NOT_LOADED, CUDA_ERROR, BAD_PACKAGE, UNSUPPORTED = 4, 5, 7, 9  # of ts_status
NEAREST, NO_REFERENCE, BEST = 1, 2, 2**32 - 1
NHWC, FP32, INT8 = 0x2541, 2, 7
TARGET = host_target(2)
CONV = {"layout": NHWC, "n": 1, "c": 16, "k": 24, "in": (9, 8), "filter": (3, 3), "padding_low": (1, 1),
        "padding_high": (1, 1)}  # fmt: skip
GEMM = {"op": 1, "m": 20, "n": 24, "k": 33}
BIASED = Epilogue(bias=True, activation="relu")
SHAPES = {"input_shape": (1, 9, 8, 16), "kernel_shape": (24, 3, 3, 16), "padding": 1, "shared_layout": "NHWC"}
PITCH = (6 * 5 * 40, 5 * 40, 40, 1)

# A description, and the same problem in Python.
PROBLEMS = {
    "convolution": (CONV | {"bias": 1, "activation": 1}, ConvSignature(**SHAPES, epilogue=BIASED)),
    "depthwise": (
        CONV | {"n": 2, "c": 8, "k": 8, "groups": 8, "in": (7, 7)},
        ConvSignature((2, 7, 7, 8), (8, 3, 3, 1), padding=1, groups=8, shared_layout="NHWC"),
    ),
    "transposed": (
        {"transposed": 1, "layout": NHWC, "n": 1, "c": 35, "k": 8, "in": (6, 5), "filter": (2, 2), "stride": (2, 2),
         "x_pitch_c": 40, "bias": 1, "x_offset_c": 4},
        ConvSignature((1, 6, 5, 35), (35, 2, 2, 8), stride=2, transposed=True, shared_layout="NHWC",
                      input_strides=PITCH, epilogue=Epilogue(bias=True)),
    ),
    "gemm": (
        GEMM | {"bias": 1, "residual": 1, "activation": 4},
        GemmSignature(m=20, n=24, k=33, epilogue=Epilogue(bias=True, residual=True, activation="gelu")),
    ),
    "backward": (CONV | {"mode": 1}, ConvSignature(**SHAPES, mode="bwd")),
    "weights": (CONV | {"mode": 2}, ConvSignature(**SHAPES, mode="wrw")),
    "bias": (CONV | {"mode": 3}, ConvSignature(**SHAPES, mode="bgrad")),
    "int8": (
        GEMM | {"dtype": INT8, "y_dtype": INT8, "scale": 2},
        GemmSignature(m=20, n=24, k=33, dtype="int8", epilogue=Epilogue(scale="channel")),
    ),
}  # fmt: skip
OPERANDS = {"x": "x", "w": "w", "y": "y", "dx": "x", "dw": "w", "dy": "y", "a": "x", "b": "w", "c": "y", "db": "bias",
            "bias": "bias", "residual": "residual", "scale": "scale"}  # fmt: skip
Solution, Needs, Operands = record("ts_solution"), record("ts_needs"), record("ts_operands")
VISIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(record("ts_held_problem")))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The library of all problems but the last; of each the first solver, of the convolution two."""
    folder = tmp_path_factory.mktemp("library")
    cache = ArtifactCache(folder / "cache")
    plans = [plan for name, (_, s) in PROBLEMS.items() for plan in make(s, TARGET, cache, 1 + (name == "convolution"))]
    linked = plans[:-1]
    build = Build(folder, tuple(linked), TARGET, (package_of(linked, TARGET.name, linked=True, times=(7.5, 9.0)),))
    build.write()
    (folder / "whole.kdb").write_bytes(package_of(plans, TARGET.name, times=(5.5,)))
    return build, plans


@pytest.fixture(scope="module")
def c(built):
    return Library(built[0].link("libdeconv.so", "-fPIC", "-shared"))


class Library(Problems):
    """The calls through ctypes."""

    def __init__(self, path):
        super().__init__(path)
        self.c.ts_library_last_error.restype = self.c.ts_library_machine.restype = ctypes.c_char_p
        for call in (self.c.ts_library_prepare, self.c.ts_library_run):
            call.argtypes = [ctypes.c_void_p] * 5
        self.c.ts_library_version.restype = self.c.ts_library_status_string.restype = ctypes.c_char_p

    def __getattr__(self, name):
        call = getattr(self.c, f"ts_library_{name}")
        return lambda *words: call(*(ctypes.c_void_p(ctypes.addressof(w)) if isinstance(w, ctypes.Structure) else w for w in words))

    @property
    def error(self):
        return self.c.ts_library_last_error().decode()

    def open(self, device=-1, flags=NO_REFERENCE):
        handle = ctypes.c_void_p()
        assert self.create(ctypes.byref(handle), device, flags) == OK, self.error
        return handle

    def solutions(self, handle, desc, room=4):
        count, found = ctypes.c_uint32(), (Solution * room)()
        for each in found:
            each.struct_size = ctypes.sizeof(Solution)
        assert self.find(handle, desc, found, room, ctypes.byref(count)) == OK, self.error
        return list(found[: count.value])

    def plan(self, handle, desc, rank=BEST):
        plan = ctypes.c_void_p()
        assert self.plan_create(handle, desc, rank, ctypes.byref(plan)) == OK, self.error
        return plan

    def needs(self, plan):
        found = Needs(struct_size=ctypes.sizeof(Needs))
        assert self.plan_sizes(plan, found) == OK
        return found

    def call(self, plan, operands):
        """Prepare and run with memory of just the size that is needed, and a guard behind it."""
        needs = self.needs(plan)
        packed, workspace = (Memory(n, needs.alignment) for n in (needs.packed_bytes, needs.workspace_bytes))
        for status in (
            self.prepare(plan, operands, packed.address, workspace.address, None),
            self.run(plan, operands, packed.address, workspace.address, None),
        ):
            assert status == OK, self.error
        assert packed.is_whole and workspace.is_whole


class Memory:
    GUARD = 256

    def __init__(self, nbytes, alignment):
        self.nbytes = nbytes
        self.bytes = np.full(nbytes + alignment + self.GUARD, 0xA5, np.uint8)
        self.begin = -self.bytes.ctypes.data % alignment
        self.address = self.bytes.ctypes.data + self.begin if nbytes else None

    @property
    def is_whole(self):
        return bool((self.bytes[self.begin + self.nbytes :] == 0xA5).all())


def inputs(signature, seed=1):
    """``(arrays, result, operands)``: those of the signature, in memory as its strides say."""
    given = [np.asarray(each) for each in signature.get_sample_args(seed=seed)]
    *slots, last = arguments(signature)
    result = np.full(last.nbytes // given[0].itemsize, 77, given[0].dtype) if last.dtype == "int8" else np.full(
        last.nbytes // 4, np.nan, np.float32)  # fmt: skip
    return given, result, {OPERANDS[s.name]: a for s, a in zip(slots, given, strict=True)} | {OPERANDS[last.name]: result}


def operands_of(arrays, offset=0):
    made = Operands(struct_size=ctypes.sizeof(Operands), abi_version=ABI_VERSION)
    for name, array in arrays.items():
        setattr(made, name, array.ctypes.data - (offset if name == "x" else 0))
    return made


def offset_of(values):
    """Bytes before x: the library adds them."""
    return 4 * values.get("x_offset_c", 0)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("loaded", [False, True], ids=["linked", "loaded"])
def test_results_are_those_of_python(c, built, name, loaded):
    """Bit for bit, from kernels that are linked in and from those of a package; on one thread and on more than planned."""
    values, signature = PROBLEMS[name]
    build, plans = built
    desc, handle = c.desc(**values), c.open()
    if loaded:
        assert c.load(handle, os.fsencode(build.folder / "whole.kdb")) == OK, c.error
    elif name == "int8":
        assert c.is_supported(handle, desc) == UNSUPPORTED
        return
    (made, *_) = (each for each in plans if each.signature is signature)
    given, result, arrays = inputs(signature)
    right = np.asarray(made.executable.bind(signature)(*given)).ravel()
    for threads in (0, 1, 5):
        assert c.set_threads(handle, threads) == OK
        plan = c.plan(handle, desc)
        needs = c.needs(plan)
        assert needs.threads == (threads or min(2, len(os.sched_getaffinity(0))))
        assert needs.workspace_bytes == made.plan.scratch_offset + needs.threads * made.plan.scratch_stride
        result[:] = 77 if result.dtype == np.int8 else np.nan
        c.call(plan, operands_of(arrays, offset_of(values)))
        assert result.tobytes() == right.tobytes()
        c.plan_destroy(plan)
    assert np.any(right)
    c.destroy(handle)


def test_solutions_are_ranked(c, built):
    """Those of a package that is loaded come first; a plan that both have is listed once."""
    build, plans = built
    desc, handle = c.desc(**PROBLEMS["convolution"][0]), c.open(flags=0)
    first = c.solutions(handle, desc)
    facts = [(s.rank, s.solver.decode(), s.time_us, s.origin, s.threads) for s in first]
    mine = min(2, len(os.sched_getaffinity(0)))
    cores = len(os.sched_getaffinity(0))
    assert facts[:2] == [(0, plans[0].plan.solver, 7.5, 0, mine), (1, plans[1].plan.solver, 9.0, 0, mine)]
    assert facts[2][:4] == (2, "reference", 0.0, 2) and facts[2][4] >= min(1, cores)
    assert [s.config.decode() for s in first[:2]] == [each.plan.config[:127] for each in plans[:2]]
    assert first[0].packed_bytes == plans[0].plan.packed_bytes
    assert {s.target.decode() for s in first[:2]} == {TARGET.name}
    assert c.load(handle, os.fsencode(build.folder / "whole.kdb")) == OK
    assert [(s.solver.decode(), s.time_us, s.origin) for s in c.solutions(handle, desc)] == [
        (plans[0].plan.solver, 5.5, 1), (plans[1].plan.solver, 0.0, 1), ("reference", 0.0, 2),
    ]  # fmt: skip
    count = ctypes.c_uint32()
    assert c.find(handle, desc, None, 0, ctypes.byref(count)) == OK and count.value == 3
    short = (Solution * 2)(Solution(struct_size=16), Solution(struct_size=16))
    packed = ctypes.create_string_buffer(32)
    ctypes.memmove(packed, (ctypes.c_uint32 * 8)(16, 0, 0, 0, 16), 32)
    assert c.find(handle, desc, packed, 2, ctypes.byref(count)) == OK
    assert np.frombuffer(packed, np.uint32)[[0, 1, 4, 5]].tolist() == [16, 0, 16, 1]  # an older caller's records
    del short
    c.destroy(handle)
