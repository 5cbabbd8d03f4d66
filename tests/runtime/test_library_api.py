"""The calls of the C library, over plans that are linked in and plans of packages."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from dataclasses import replace

import numpy as np
import pytest

from c_problems import BAD_ARGUMENT, BAD_PROBLEM, OK, Desc
from library_build import package_of
from library_calls import (
    BAD_PACKAGE,
    BEST,
    NO_REFERENCE,
    UNSUPPORTED,
    Library,
    Memory,
    Needs,
    Operands,
    inputs,
    operands_of,
    record,
)  # fmt: skip
from library_problems import CONV, PROBLEMS, TARGET, built, shared
from tilesmith.problems.conv import ConvSignature
from tilesmith.targets.cpu import archs_within
from tilesmith.targets.detect import host_target

pytestmark = pytest.mark.needs_compiler
VISIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(record("ts_held_problem")))


@pytest.fixture(scope="module", name="built")
def _built():
    return built()


@pytest.fixture(scope="module")
def c():
    return Library(shared())


def offset_of(values):
    """Bytes before x: the library adds them."""
    return 4 * values.get("x_offset_c", 0)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("loaded", [False, True], ids=["linked", "loaded"])
def test_results_are_those_of_python(c, built, name, loaded):
    """Bit for bit, from kernels that are linked in and from those of a package, on any number of threads."""
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
    assert facts[:2] == [(0, plans[0].plan.solver, 7.5, 0, mine), (1, plans[1].plan.solver, 9.0, 0, mine)]
    assert facts[2][:4] == (2, "reference", 0.0, 2)
    assert [s.config.decode() for s in first[:2]] == [each.plan.config[:127] for each in plans[:2]]
    assert first[0].packed_bytes == plans[0].plan.packed_bytes
    assert {s.target.decode() for s in first[:2]} == {TARGET.name}
    assert c.load(handle, os.fsencode(build.folder / "whole.kdb")) == OK
    assert [(s.solver.decode(), s.time_us, s.origin) for s in c.solutions(handle, desc)] == [
        (plans[0].plan.solver, 5.5, 1), (plans[1].plan.solver, 0.0, 1), ("reference", 0.0, 2),
    ]  # fmt: skip
    count = ctypes.c_uint32()
    assert (c.find(handle, desc, None, 0, ctypes.byref(count)), count.value) == (OK, 3)
    older = (ctypes.c_uint32 * 8)(16, 9, 9, 9, 16, 9, 9, 9)  # two records of a caller who knows 16 bytes of them
    assert c.find(handle, desc, older, 2, ctypes.byref(count)) == OK
    assert (older[0], older[1], older[4], older[5]) == (16, 0, 16, 1)
    c.destroy(handle)


def test_an_older_or_stricter_question_finds_the_plan(c, built):
    """A plan that was made without a limit obeys one; records of newer callers are read."""
    values, _ = PROBLEMS["convolution"]
    handle = c.open()
    needed = [s.workspace_bytes for s in c.solutions(handle, c.desc(**values))]
    limited = c.desc(**values, workspace_limit=min(needed))
    assert [s.workspace_bytes for s in c.solutions(handle, limited)] == [min(needed)]
    assert c.is_supported(handle, c.desc(**values, workspace_limit=0)) == UNSUPPORTED
    assert f"needs a workspace of {needed[-1]} bytes; workspace_limit is 0" in c.error
    assert c.is_supported(handle, c.desc(**values, deterministic=1)) == UNSUPPORTED
    newer = struct.pack("I", ctypes.sizeof(Desc) + 16) + bytes(c.desc(**values))[4:] + bytes(16)
    assert c.is_supported(handle, newer) == OK
    c.destroy(handle)


def test_enumeration(c, built):
    """Each problem once, though a package that is loaded has it too."""
    build, plans = built
    handle, seen = c.open(), {}
    assert c.load(handle, os.fsencode(build.folder / "whole.kdb")) == OK

    @VISIT
    def visit(_, problem):
        held = problem.contents
        assert held.key.decode() not in seen
        seen[held.key.decode()] = held.target.decode(), held.solutions, held.time_us
        return len(seen) == stop

    stop = -1
    assert c.enumerate(handle, visit, None) == OK
    times = {each.plan.problem: 0.0 for each in plans} | {plans[0].plan.problem: 5.5}
    counts = {plans[0].plan.problem: 2}
    assert seen == {key: (TARGET.name, counts.get(key, 1), time) for key, time in times.items()}
    stop = 3
    seen.clear()
    assert c.enumerate(handle, visit, None) == OK
    assert len(seen) == 3
    c.destroy(handle)


def test_other_machines(c, built):
    """Plans of a lower arch and of more threads run here; nothing of another processor is taken."""
    build, plans = built
    names = {
        "lower": f"{archs_within(TARGET.arch)[0]}:2:generic", "more": f"{TARGET.arch}:64:generic",
        "gpu": "sm_90a:132:h200", "arm": "aarch64:2:generic",
    }  # fmt: skip
    if TARGET.arch == "aarch64":
        names["arm"] = "x86_64-v2:2:generic"
    gemm = next(p for p in plans if p.signature is PROBLEMS["int8"][1])
    for kind, name in names.items():
        other = replace(gemm, plan=replace(gemm.plan, target=name, threads=2))
        (build.folder / f"{kind}.kdb").write_bytes(package_of([other], name))
    desc, handle = c.desc(**PROBLEMS["int8"][0]), c.open()
    for kind in ("gpu", "arm"):
        path = build.folder / f"{kind}.kdb"
        text = f"{path} is for {names[kind]}; this machine is {host_target().name}: install the package for it"
        assert c.refused(c.load(handle, os.fsencode(path)), UNSUPPORTED, text)
    for kind in ("lower", "more"):  # the nearest one counts, not the newest
        assert c.load(handle, os.fsencode(build.folder / f"{kind}.kdb")) == OK
        (found,) = c.solutions(handle, desc)
        assert (found.target.decode(), found.origin) == (names[kind], 1)
    given, result, arrays = inputs(PROBLEMS["int8"][1])
    plan = c.plan(handle, desc)
    c.call(plan, operands_of(arrays))
    assert np.array_equal(result, np.asarray(gemm.executable.bind(gemm.signature)(*given)).ravel())
    c.plan_destroy(plan)
    c.destroy(handle)


def test_the_reference_computes_what_has_no_plan(c):
    """Last of all solutions, and only where the caller did not refuse it."""
    signature = ConvSignature((1, 5, 4, 6), (7, 3, 3, 6), shared_layout="NHWC", padding=1)
    values = CONV | {"c": 6, "k": 7, "in": (5, 4)}
    desc, handle = c.desc(**values), c.open(flags=0)
    assert c.is_supported(handle, desc) == OK
    (found,) = c.solutions(handle, desc)
    assert (found.solver, found.origin, found.workspace_bytes) == (b"reference", 2, 0)
    given, result, arrays = inputs(signature)
    plan = c.plan(handle, desc, 0)
    c.call(plan, operands_of(arrays))
    x, w = (a.astype(np.float64) for a in given)
    padded = np.pad(x[0], ((1, 1), (1, 1), (0, 0)))
    right = sum(np.tensordot(padded[i : i + 5, j : j + 4], w[:, i, j], (2, 1)) for i in range(3) for j in range(3))
    assert np.allclose(result, right.ravel(), rtol=1e-6, atol=1e-6)
    c.plan_destroy(plan)
    assert c.plan_create(handle, desc, 1, ctypes.byref(plan)) == BAD_ARGUMENT
    assert c.error == "rank 1 of 1 solutions"
    c.destroy(handle)
    handle = c.open()
    assert c.is_supported(handle, desc) == UNSUPPORTED
    assert c.error == (f"deconv has no plan for {signature.key()} on {host_target().name}; it is for {TARGET.name}")
    c.destroy(handle)


def test_refusals_name_the_value_and_the_rule(c, tmp_path):
    values, _ = PROBLEMS["convolution"]
    desc, handle, plan = c.desc(**values), c.open(), ctypes.c_void_p()
    place = ctypes.byref(plan)
    assert c.refused(c.create(place, -2, 0), BAD_ARGUMENT, "device -2 is neither -1, the CPU, nor a GPU")
    assert c.refused(c.create(place, -1, 64), BAD_ARGUMENT, "flags 0x40")
    assert c.refused(c.set_threads(handle, 1025), BAD_ARGUMENT, "threads 1025 is not from 0 to 1024")
    assert c.refused(c.is_supported(handle, c.desc(**values | {"n": -4})), BAD_PROBLEM, "n is -4")
    assert c.refused(c.is_supported(handle, None), BAD_ARGUMENT, "NULL")
    assert c.refused(c.plan_create(handle, desc, 2, place), BAD_ARGUMENT, "rank 2 of 2 solutions")
    assert c.refused(c.load(handle, os.fsencode(tmp_path / "none.kdb")), BAD_PACKAGE, "none.kdb")
    c.destroy(handle)
    c.destroy(None)


def test_a_damaged_kernel_is_never_run(c, built, tmp_path):
    """It is found when its plan is made, as a package is read only where it is needed."""
    desc, plan = c.desc(**PROBLEMS["int8"][0]), ctypes.c_void_p()
    data = package_of(built[1][-1:], TARGET.name)
    for flags in (NO_REFERENCE, 0):
        handle = c.open(flags=flags)
        damaged = bytearray(data)
        damaged[-9] ^= 1
        (tmp_path / "damaged.kdb").write_bytes(damaged)
        assert c.load(handle, os.fsencode(tmp_path / "damaged.kdb")) == OK
        status = c.plan_create(handle, desc, BEST, ctypes.byref(plan))
        assert c.refused(status, BAD_PACKAGE, "damaged: its checksum is wrong")
        assert plan.value is None
        c.destroy(handle)


def test_bad_operands(c):
    values, signature = PROBLEMS["convolution"]
    handle = c.open()
    plan = c.plan(handle, c.desc(**values))
    c.destroy(handle)  # a plan outlives its library
    needs = c.needs(plan)
    assert (needs.operands, needs.results, needs.must_prepare, needs.device) == (1 | 2 | 4 | 8, 4, 1, -1)
    _, _, arrays = inputs(signature)
    operands = operands_of(arrays)
    packed, workspace = (Memory(n, needs.alignment) for n in (needs.packed_bytes, needs.workspace_bytes))

    def refused(text, at=(packed.address, workspace.address, None), **changes):
        changed = Operands.from_buffer_copy(operands)
        for name, value in changes.items():
            setattr(changed, name, value)
        return c.refused(c.run(plan, changed, *at), BAD_ARGUMENT, text)

    assert refused("operand bias must not be NULL", bias=None)
    assert refused("is not aligned to 4 bytes", y=operands.y + 2)
    assert refused("struct_size 8 is no size of a ts_operands", struct_size=8)
    assert refused("abi_version of ts_operands is 2", abi_version=2)
    assert refused("packed at address", (None, workspace.address, None))
    assert refused("workspace at address", (packed.address, workspace.address + 8, None))
    assert refused("a plan of the CPU has none", (packed.address, workspace.address, 1))
    assert c.refused(c.prepare(plan, Operands.from_buffer_copy(bytes(8) + bytes(operands)[8:]), packed.address,
                               workspace.address, None), BAD_ARGUMENT, "struct_size 0")  # fmt: skip
    assert c.refused(c.plan_sizes(plan, Needs(struct_size=0)), BAD_ARGUMENT, "struct_size 0 is no size of a ts_needs")
    told = []
    thread = threading.Thread(target=lambda: told.append(c.error))
    thread.start()
    thread.join()
    assert told == [""]  # each thread has its own
    c.plan_destroy(plan)
    c.plan_destroy(None)


def test_names(c):
    handle = c.open()
    assert c.machine(handle).decode() == host_target().name
    assert c.version() == b"deconv 1.2"
    assert b"no kernel for the problem" in c.status_string(UNSUPPORTED)
    c.destroy(handle)
