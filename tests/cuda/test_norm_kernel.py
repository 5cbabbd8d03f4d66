"""The kernel that folds batch norms: numbers through the emulator, its text for some archs, and where there is none."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from cuda_chain import H200, ptx

from tilesmith.errors import NoCompilerError
from tilesmith.plan.records import Plan
from tilesmith.problems.dtypes import dtype as dtype_of
from tilesmith.runtime.device import DeviceMemory, device
from tilesmith.runtime.executable import Executable
from tilesmith.targets.cuda import CUDA_TARGETS
from tilesmith.toolchain.build import build_unit
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.torch_ops.compile.norm_kernel import Layer, Norms, norms_kernel, norms_plan

BOUND = {"fp32": 1e-6, "fp16": 5e-4, "bf16": 4e-3}  # of the largest value: half a unit of its last place
LAYERS = (
    Layer(64 * 147, 64, 147, 1e-5),  # rows of 147: a vector may be of two channels
    Layer(24 * 40, 24, 40, 1e-3),
    Layer(7 * 5, 7, 5, 0.25),  # shorter than a block, with a tail
    Layer(3 * 10 * 4, 10, 4, 1e-5),  # of a transposed filter: channels begin anew
    Layer(9 * 11, 11, 1, 1e-5),
    Layer(5, 1, 5, 1e-5),
    Layer(300 * 100, 300, 100, 1e-5),  # more channels than threads, more elements than a block
)


def made_for(norms, emulator):
    sources, launches, slots = norms_plan(norms, H200)
    paths = []
    for source in sources:
        emulator.emulate(source)
        paths.append(ptx(source, H200.nvrtc_arch))
    digests = tuple(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths)
    plan = Plan("norms", H200.name, "test", "", slots, digests, (), tuple(launches), 0, 0, 0, 0, 1, 256, family="cuda")
    return Executable(plan, paths), slots


def run(norms, emulator):
    """The values of the slots before the run, in float64, and the results behind it."""
    made, slots = made_for(norms, emulator)
    rng, given, memory = np.random.default_rng(3), [], []
    for slot in slots:
        values = rng.standard_normal(slot.shape).astype(dtype_of(slot.dtype).numpy())
        if slot.name.startswith("variance"):
            values = (abs(values.astype(np.float64)) + 0.5).astype(values.dtype)
        memory.append(DeviceMemory(device(0), slot.nbytes))
        memory[-1].fill(0xFF)
        if not slot.is_output:
            memory[-1].write(values.view(np.uint8))
        given.append(values.astype(np.float64))
    made.run_on(0, 0, [each.address for each in memory], 0, 0)
    device(0).synchronize()
    found = []
    for slot, place in zip(slots, memory, strict=True):
        values = np.empty(slot.nbytes, np.uint8)
        place.read(values)
        found.append(values.view(dtype_of(slot.dtype).numpy()).astype(np.float64))
    names = [slot.name for slot in slots]
    return dict(zip(names, given, strict=True)), dict(zip(names, found, strict=True))


@pytest.mark.parametrize(
    ("filter_", "norm", "bias", "result", "affine"),
    [
        ("bf16", "bf16", "", "bf16", True),
        ("fp16", "fp32", "fp16", "fp16", True),
        ("fp32", "fp32", "fp32", "bf16", True),
        ("fp32", "fp32", "", "fp32", False),
    ],
)
def test_numbers(emulating, filter_, norm, bias, result, affine):
    norms = Norms(LAYERS, filter_, norm, bias, result, affine)
    given, found = run(norms, emulating)
    for i, layer in enumerate(LAYERS):
        scale = (given[f"variance_{i}"] + layer.eps) ** -0.5 * (given[f"gamma_{i}"] if affine else 1.0)
        channel = np.arange(layer.elements) // layer.each % layer.channels
        want = given[f"filter_{i}"] * scale[channel]
        assert abs(found[f"filter_out_{i}"] - want).max() <= BOUND[result] * abs(want).max()
        want = ((given[f"bias_{i}"] if bias else 0.0) - given[f"mean_{i}"]) * scale
        want = want + given[f"beta_{i}"] if affine else want
        assert abs(found[f"bias_out_{i}"] - want).max() <= BOUND[result] * abs(want).max() + 1e-6


def test_more_layers_than_a_launch_takes(emulating):
    norms = Norms(tuple(Layer(8 * (i + 1), 8, i + 1, 1e-5) for i in range(61)), "bf16", "bf16", "", "bf16", True)
    given, found = run(norms, emulating)
    for i in (0, 29, 30, 59, 60):
        scale = (given[f"variance_{i}"] + 1e-5) ** -0.5 * given[f"gamma_{i}"]
        want = given[f"filter_{i}"] * np.repeat(scale, i + 1)
        assert abs(found[f"filter_out_{i}"] - want).max() <= BOUND["bf16"] * abs(want).max()


def test_launches_that_are_alike_have_one_kernel(emulating):
    norms = Norms((Layer(8 * 9, 8, 9, 1e-5),) * 60, "bf16", "bf16", "", "bf16", True)
    sources, launches, _ = norms_plan(norms, H200)
    assert len({source.symbol for source in sources}) == 1
    assert len(launches) == 2
    given, found = run(norms, emulating)
    for i in (0, 59):
        want = given[f"filter_{i}"] * np.repeat((given[f"variance_{i}"] + 1e-5) ** -0.5 * given[f"gamma_{i}"], 9)
        assert abs(found[f"filter_out_{i}"] - want).max() <= BOUND["bf16"] * abs(want).max()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
def test_it_compiles_without_spills(arch, tmp_path):
    norms = Norms(LAYERS, "bf16", "fp32", "bf16", "bf16", True)
    (source,), _, _ = norms_plan(norms, CUDA_TARGETS[arch])
    (taken,) = build_unit([source], CUDA_TARGETS[arch], tmp_path / "norms.cubin")
    assert taken.stack_bytes == taken.spill_store_bytes == 0
    assert not taken.warnings


@pytest.fixture
def own_cache(cuda, monkeypatch, tmp_path):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path))
    norms_kernel.cache_clear()
    yield tmp_path
    norms_kernel.cache_clear()


def test_a_later_process_compiles_nothing(own_cache, monkeypatch):
    norms = Norms(LAYERS[:2], "bf16", "bf16", "", "bf16", True)
    monkeypatch.setenv("TILESMITH_FIND_MODE", "strict")
    assert norms_kernel(norms, "cuda:0") is None  # PyTorch folds then
    norms_kernel.cache_clear()
    monkeypatch.delenv("TILESMITH_FIND_MODE")
    made = norms_kernel(norms, "cuda:0")
    assert made is not None
    norms_kernel.cache_clear()
    monkeypatch.setattr(ArtifactCache, "get_or_build_many", lambda *_: pytest.fail("it compiles"))
    monkeypatch.setenv("TILESMITH_FIND_MODE", "strict")
    found = norms_kernel(norms, "cuda:0")
    assert found is not None
    assert found.data == made.data


def test_where_nothing_compiles_there_is_no_kernel(own_cache, monkeypatch):
    def refused(*_):
        raise NoCompilerError("there is no NVRTC")

    monkeypatch.setattr(ArtifactCache, "get_or_build_many", refused)
    assert norms_kernel(Norms(LAYERS[:2], "fp16", "fp16", "", "fp16", False), "cuda:0") is None
