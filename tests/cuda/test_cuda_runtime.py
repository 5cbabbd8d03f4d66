"""The CUDA half of the C runtime against the stand-in: launches, tensor maps, streams, devices, threads, errors."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from cuda_chain import CACHE, H200
from stand_in import LAUNCHER

from plan_samples import CUDA_SMALL, TILED, WINDOW
from tilesmith.errors import LaunchError
from tilesmith.plan.records import Integer, Launch, Memset, Pointer, Real, Source, Space
from tilesmith.runtime.device import DeviceMemory, Stream, device
from tilesmith.runtime.executable import Executable

EMPTY = Source("cuda", "ts_nothing", "", 'extern "C" __global__ void ts_nothing() {}\n')


@pytest.fixture
def artifact(cuda):
    return CACHE.get_or_build(EMPTY, H200)


class Caught:
    """The launches of a plan, their parameters read as a kernel would: ``kinds`` has a letter a parameter."""

    def __init__(self, cuda, kinds):
        self.parameters = []
        self.kinds = kinds
        self._callback = LAUNCHER(self._launch)
        cuda.library.fake_set_launcher(self._callback)

    def _launch(self, name, grid, block, shared, parameters):
        read = {
            "p": lambda at: ctypes.c_uint64.from_address(at).value,
            "i": lambda at: ctypes.c_int64.from_address(at).value,
            "r": lambda at: ctypes.c_double.from_address(at).value,
            "m": lambda at: ctypes.c_uint64.from_address(at).value,  # the stand-in's maps begin with the address
        }
        self.parameters.append([read[kind](parameters[i]) for i, kind in enumerate(self.kinds)])
        return 0


def load(artifact, **changes):
    plan = replace(CUDA_SMALL, artifacts=(artifact.digest,), **changes)
    return Executable(plan, [artifact.path])


def memory(ordinal=0):
    """One buffer for each slot, packed filter and workspace."""
    place = device(ordinal)
    return (
        [DeviceMemory(place, slot.nbytes) for slot in CUDA_SMALL.slots],
        DeviceMemory(place, 512),
        DeviceMemory(place, 256),
    )


def addresses(slots):
    return [buffer.address for buffer in slots]


def test_a_launch_is_what_the_plan_says(cuda, artifact):
    slots, packed, workspace = memory()
    caught = Caught(cuda, "mimpr")
    load(artifact).run_on(0, 0x77, addresses(slots), packed.address, workspace.address)
    log = cuda.log()
    assert "memset value=0 bytes=256 stream=77" in log
    assert "launch ts_kernel grid=6,2,1 block=384,1,1 cluster=2,1,1 shared=200000 early=1 stream=77 device=0" in log
    assert "allow ts_kernel attribute=8 value=200000" in log
    x, w, y = addresses(slots)
    assert caught.parameters == [[x, -3, w, y, 0.5]]


@pytest.mark.parametrize(("version", "early"), [("12020", 0), ("12030", 1)])
def test_no_launch_is_early_where_graphs_cannot_hold_it(version, early):
    """In a process of its own: a driver that was opened stays."""
    program = """
import os
from stand_in import stand_in
cuda = stand_in()
os.environ["TILESMITH_LIBCUDA"] = str(cuda.path)
from test_cuda_runtime import CACHE, EMPTY, H200, addresses, load, memory
slots, packed, workspace = memory()
load(CACHE.get_or_build(EMPTY, H200)).run_on(0, 0, addresses(slots), packed.address, workspace.address)
print(*cuda.log(), sep="\\n")
"""
    env = os.environ | {"FAKE_CUDA_VERSION": version, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert f" early={early} stream=0" in done.stdout, done.stderr


def test_tensor_maps_are_what_the_plan_says(cuda, artifact):
    slots, packed, workspace = memory()
    executable = load(artifact)
    cuda.log()
    executable.run_on(0, 0, addresses(slots), packed.address, workspace.address)
    log = cuda.log()
    assert (
        "im2col dtype=9 rank=4 dims=64,7,6,2 strides=128,896,5376 lower=-1,-1 upper=-1,-1 channels=64 pixels=128 "
        "steps=1,2,2,1 interleave=0 swizzle=3 l2=2 fill=0" in log
    )
    assert (
        "tiled dtype=9 rank=3 dims=64,9,32 strides=128,1152 box=64,1,32 steps=1,1,1 interleave=0 swizzle=3 l2=3 fill=0"
        in log
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "fp32", "dims": (16, 9, 32), "box": (16, 1, 32), "swizzle": 64}, "dtype=7 .* swizzle=2 l2=3"),
        ({"dtype": "tf32", "dims": (16, 9, 32), "box": (8, 1, 32), "swizzle": 32}, "dtype=11 .* swizzle=1"),
        ({"dtype": "fp8e4m3", "swizzle": 0, "l2_promotion": 0}, "dtype=0 .* swizzle=0 l2=0"),
        ({"dtype": "int8", "swizzle": 64, "l2_promotion": 64}, "dtype=0 .* swizzle=2 l2=1"),
        ({"dtype": "fp16", "l2_promotion": 128}, "dtype=6 .* swizzle=3 l2=2"),
        ({"dtype": "fp64", "dims": (4, 9, 32), "box": (4, 1, 32), "swizzle": 0}, "dtype=8 "),
        ({"dtype": "int32", "dims": (4, 9, 32), "box": (4, 1, 32), "swizzle": 0}, "dtype=3 "),
    ],
)
def test_types_and_swizzles(cuda, artifact, changes, words):
    import re

    made = replace(TILED, **changes)
    run = (Launch(0, "ts_kernel", (1, 1, 1), (made,), (32, 1, 1)),)
    slots, packed, workspace = memory()
    cuda.log()
    load(artifact, run=run, prepare=()).run_on(0, 0, addresses(slots), packed.address, workspace.address)
    assert any(re.search(words, line) for line in cuda.log())


def test_maps_are_encoded_once_and_pointed_anew(cuda, artifact):
    executable = load(artifact)
    first, second = memory(), memory()
    for (slots, packed, workspace), lines in ((first, ["im2col", "tiled"]), (first, []), (second, ["point", "point"])):
        caught = Caught(cuda, "mimpr")
        cuda.log()
        executable.run_on(0, 0, addresses(slots), packed.address, workspace.address)
        log = [line.split()[0] for line in cuda.log()]
        assert [word for word in log if word in ("im2col", "tiled", "point")] == lines
        assert caught.parameters[0][0] == slots[0].address
        assert caught.parameters[0][2] == slots[1].address


def test_prepare_reads_the_filter_alone(cuda, artifact):
    slots, packed, workspace = memory()
    caught = Caught(cuda, "mp")
    executable = load(artifact)
    executable.run_on(0, 5, [0, slots[1].address, 0], packed.address, workspace.address, prepare=True)
    assert caught.parameters == [[slots[1].address, packed.address]]
    assert any(
        "ts_pack grid=4,1,1 block=128,1,1 cluster=1,1,1 shared=0 early=0 stream=5" in line for line in cuda.log()
    )


def test_modules_are_loaded_once_a_device_and_shared_by_plans(cuda, tmp_path):
    source = replace(EMPTY, text=EMPTY.text + "// another digest\n__device__ int ts_other = 1;\n")
    artifact = CACHE.get_or_build(source, H200)
    one, two = load(artifact), load(artifact)
    cuda.log()
    for ordinal in (0, 1, 0, 1):
        slots, packed, workspace = memory(ordinal)
        for executable in (one, two):
            executable.run_on(ordinal, 0, addresses(slots), packed.address, workspace.address)
    log = cuda.log()
    assert sorted(line for line in log if line.startswith("load")) == ["load device=0", "load device=1"]
    assert {line.split()[-1] for line in log if line.startswith("launch")} == {"device=0", "device=1"}


def test_the_callers_context_comes_back(cuda, artifact):
    slots, packed, workspace = memory(1)
    place = device(0)
    now = ctypes.c_int()
    with place.current():
        load(artifact).run_on(1, 0, addresses(slots), packed.address, workspace.address)
        assert cuda.library.cuCtxGetDevice(ctypes.byref(now)) == 0
        assert now.value == 0
        cuda.log()
        here = memory(0)
        load(artifact).run_on(-1, 0, addresses(here[0]), here[1].address, here[2].address)
        assert cuda.log()[-1].endswith("device=0")
    assert cuda.library.cuCtxGetDevice(ctypes.byref(now)) == 201  # no context is left behind


def test_the_first_call_may_be_captured(cuda):
    source = replace(EMPTY, text=EMPTY.text + "__device__ int ts_captured = 1;\n")
    executable = load(CACHE.get_or_build(source, H200))
    slots, packed, workspace = memory()
    stream = Stream(device(0))
    with stream.capture() as graph:
        executable.run_on(0, stream.handle, addresses(slots), packed.address, workspace.address)
    graph.launch(stream)
    log = cuda.log()
    between = log[next(i for i, line in enumerate(log) if line.startswith("record ")) : log.index("recorded")]
    assert "load device=0" in between
    assert not any(line.startswith(("wait", "synchronize")) for line in between)


def test_many_threads(cuda, artifact):
    executable = load(artifact)
    wrong = []

    def work(ordinal):
        slots, packed, workspace = memory(ordinal)
        for _ in range(100):
            try:
                executable.run_on(ordinal, 0, addresses(slots), packed.address, workspace.address)
            except LaunchError as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sum(line.startswith("launch") for line in cuda.log()) == 800


def test_an_empty_grid_launches_nothing(cuda, artifact):
    run = (Launch(0, "ts_kernel", (0, 1, 1), (Integer(1), Real(1.0)), (32, 1, 1)), Memset(Pointer(Space.WORKSPACE), 0))
    slots, packed, workspace = memory()
    executable = load(artifact, run=run, prepare=())
    cuda.log()
    executable.run_on(0, 0, addresses(slots), packed.address, workspace.address)
    assert not [line for line in cuda.log() if line.startswith(("launch", "memset"))]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            "cuModuleLoadData",
            r"cannot load artifact 0 of a plan for sm_90a:132 on device 0: CUDA_ERROR_OUT_OF_MEMORY \(2\)",
        ),
        ("cuFuncSetAttribute", "cannot load kernel ts_kernel with 200000 bytes of shared memory"),
        ("cuTensorMapEncodeTiled", "cannot encode tensor map 1 of kernel ts_kernel: CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuTensorMapEncodeIm2col", "cannot encode tensor map 0 of kernel ts_kernel"),
        ("cuLaunchKernelEx", r"cannot launch kernel ts_kernel: CUDA_ERROR_OUT_OF_MEMORY \(2\), out of memory"),
        ("cuMemsetD8Async", "cannot fill memory: CUDA_ERROR_OUT_OF_MEMORY"),
    ],
)
def test_what_the_driver_refuses_is_told_and_may_be_tried_again(cuda, call, words):
    source = replace(EMPTY, text=EMPTY.text + f"__device__ int ts_for_{call} = 1;\n")
    executable = load(CACHE.get_or_build(source, H200))
    slots, packed, workspace = memory()
    cuda.fail_next(call, 2)
    with pytest.raises(LaunchError, match=words):
        executable.run_on(0, 0, addresses(slots), packed.address, workspace.address)
    executable.run_on(0, 0, addresses(slots), packed.address, workspace.address)


def test_wrong_arguments(cuda, artifact):
    executable = load(artifact)
    slots, packed, workspace = memory()
    x, w, y = addresses(slots)
    for device_, given, pack, work, words in (
        (0, [x + 8, w, y], packed.address, workspace.address, "slot x .* is not aligned to 16 bytes"),
        (0, [x, w, 0], packed.address, workspace.address, "slot y"),
        (0, [x, w, y], 0, workspace.address, "packed filter must be aligned to 256"),
        (0, [x, w, y], packed.address, workspace.address + 16, "workspace must be aligned to 256"),
        (7, [x, w, y], packed.address, workspace.address, r"cannot use the device: CUDA error \(101\)"),
        (64, [x, w, y], packed.address, workspace.address, "device 64 is not from 0 to 63"),
    ):
        with pytest.raises(LaunchError, match=words):
            executable.run_on(device_, 0, given, pack, work)
    with pytest.raises(ValueError, match="the plan has 3 slots"):
        executable.run_on(0, 0, [x, w], packed.address, workspace.address)


def test_a_missing_symbol_and_a_foreign_artifact(cuda, artifact, tmp_path):
    import hashlib

    slots, packed, workspace = memory()
    run = (Launch(0, "ts_missing", (1, 1, 1), (), (32, 1, 1)),)
    with pytest.raises(LaunchError, match="cannot load kernel ts_missing .*named symbol not found"):
        load(artifact, run=run, prepare=()).run_on(0, 0, addresses(slots), packed.address, workspace.address)
    path = tmp_path / "foreign.cubin"
    path.write_bytes(b"no cubin" * 9)
    plan = replace(CUDA_SMALL, artifacts=(hashlib.sha256(path.read_bytes()).hexdigest(),))
    with pytest.raises(LaunchError, match="cannot load artifact 0 .*CUDA_ERROR_INVALID_IMAGE"):
        Executable(plan, [path]).load_on(0)


def test_a_large_cluster_is_allowed_first(cuda, artifact):
    run = (Launch(0, "ts_wide", (32, 1, 1), (), (32, 1, 1), (16, 1, 1)),)
    slots, packed, workspace = memory()
    cuda.log()
    load(artifact, run=run, prepare=()).run_on(0, 0, addresses(slots), packed.address, workspace.address)
    assert "allow ts_wide attribute=14 value=1" in cuda.log()


def test_without_a_driver(tmp_path):
    """In a process of its own: a driver that was opened stays."""
    program = (
        "import sys\nfrom tilesmith.runtime._runtime import cuda_open\nfrom tilesmith.targets.detect_cuda import *\n"
        "assert not has_cuda()\n"
        "for call in (lambda: cuda_open('/nowhere/libcuda.so'), lambda: cuda_target_of(0)):\n"
        "    try:\n        call()\n        sys.exit(1)\n"
        "    except Exception as error:\n        print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={"TILESMITH_LIBCUDA": "/nowhere/libcuda.so", "PATH": ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert first.startswith("LaunchError no CUDA driver: /nowhere/libcuda.so")
    assert second.startswith("TargetError device cuda:0 cannot be used: no CUDA driver")


def test_the_im2col_window_reaches_the_map_unchanged(cuda, artifact):
    made = replace(WINDOW, im2col=replace(WINDOW.im2col, lower=(-3, 2), upper=(5, -7), pixels=256))
    run = (Launch(0, "ts_kernel", (1, 1, 1), (made,), (32, 1, 1)),)
    slots, packed, workspace = memory()
    cuda.log()
    load(artifact, run=run, prepare=()).run_on(0, 0, addresses(slots), packed.address, workspace.address)
    assert any("lower=-3,2 upper=5,-7 channels=64 pixels=256" in line for line in cuda.log())
