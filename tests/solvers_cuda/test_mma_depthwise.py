"""Depthwise kernels without a GPU: choices, refusals, plans, and their text compiled for every arch."""

from __future__ import annotations

import pytest

from tilesmith.plan.assemble import assemble
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.solvers.cuda.depthwise.solver import DepthwiseCudaSolver
from tilesmith.solvers.cuda.depthwise.tile import DepthwiseTile, vector_of
from tilesmith.solvers.cuda.depthwise_mma.solver import DepthwiseMmaSolver
from tilesmith.solvers.cuda.depthwise_planes.solver import DepthwisePlanesSolver
from tilesmith.solvers.solver import Accepted, Rejected
from tilesmith.targets.cuda import CUDA_TARGETS, cuda_target
from tilesmith.toolchain.build import build_unit

H200 = cuda_target("sm_90a", 132)
SOLVER, MMA, PLANES = DepthwiseCudaSolver(), DepthwiseMmaSolver(), DepthwisePlanesSolver()
MODES = ("fwd", "bwd", "wrw")


def depthwise(c, size, taps, mode, dtype="bf16", **more):
    return ConvSignature(
        input_shape=(2, *size, c), kernel_shape=(c, *taps, 1), groups=c, mode=mode, dtype=dtype, shared_layout="NHWC",
        **more,
    )  # fmt: skip


PROBLEMS = [
    *(depthwise(144, (56, 56), (3, 3), mode, padding=1) for mode in MODES),
    *(depthwise(35, (27, 29), (3, 3), mode, padding=1, stride=2, dtype="fp32") for mode in MODES),
    *(depthwise(48, (14, 16), (5, 4), mode, padding=(2, 1), stride=(1, 2), dilation=(2, 1)) for mode in MODES),
]


LINES = ConvSignature((2, 96, 512), (96, 1, 4), groups=96, padding=((3, 0),), shared_layout="NCW", dtype="bf16")
CHOSEN = [
    *((SOLVER, signature) for signature in PROBLEMS),
    *((MMA, depthwise(96, (28, 28), (7, 7), mode, padding=3)) for mode in MODES),
    (MMA, depthwise(48, (40, 40), (31, 31), "bwd", padding=15)),  # the gathering kernel refuses so large a filter
    (PLANES, LINES),
    (PLANES, ConvSignature((2, 96, 14, 14), (96, 1, 3, 3), groups=96, padding=1, mode="wrw", dtype="fp16")),
]


@pytest.mark.parametrize(("solver", "signature"), CHOSEN, ids=lambda v: v.key()[:50] if hasattr(v, "key") else v.name)
def test_the_untuned_choice_lies_in_the_space_and_makes_a_plan(solver, signature):
    geometry = signature.canonical.geometry
    for arch in ("sm_80", "sm_90a"):
        target = CUDA_TARGETS[arch]
        assert isinstance(solver.applicable(geometry, target), Accepted)
        config = solver.default_config(geometry, target)
        assert solver.search_space(geometry, target).contains(config)
        assert 0 < solver.predict(geometry, config, target) < 1
        draft = solver.draft(geometry, config, target)
        assert draft == solver.draft(geometry, config, target)
        assemble(draft, signature, solver.name, str(config), target, ["0" * 64] * len(draft.sources))


@pytest.mark.parametrize("signature", PROBLEMS, ids=lambda s: s.key()[:50])
def test_blocks_cover_all_channels_and_pixels(signature):
    geometry = signature.canonical.geometry
    t = DepthwiseTile(geometry, SOLVER.default_config(geometry, H200), H200)
    assert t.lanes * t.slots <= 256
    assert t.channel_blocks * t.lanes * t.value["channels_per_thread"] >= geometry.c
    assert (t.channel_blocks - 1) * t.lanes * t.value["channels_per_thread"] < geometry.c
    if not t.weights:
        assert t.parts * t.slots >= t.tiles
    if t.back:
        assert t.value["rows_per_thread"] % geometry.stride[1] == 0
        assert t.value["columns_per_thread"] % geometry.stride[2] == 0


def test_channels_move_together_as_strides_allow():
    pitched = depthwise(36, (8, 8), (3, 3), "fwd", padding=1, input_strides=(8 * 8 * 38, 8 * 38, 38, 1))
    assert vector_of(pitched.geometry) == 2
    assert vector_of(depthwise(36, (8, 8), (3, 3), "fwd", padding=1).geometry) == 4
    assert vector_of(depthwise(40, (8, 8), (3, 3), "fwd", padding=1).geometry) == 8
    assert vector_of(depthwise(40, (8, 8), (3, 3), "fwd", "fp32", padding=1).geometry) == 4


@pytest.mark.parametrize(
    ("signature", "word"),
    [
        (ConvSignature((2, 8, 8, 16), (16, 3, 3, 4), groups=4, shared_layout="NHWC", dtype="bf16"), "group"),
        (ConvSignature((2, 16, 8, 8), (16, 1, 3, 3), groups=16, shared_layout="NCHW", dtype="bf16"), "layout"),
        (depthwise(16, (8, 8), (3, 3), "bgrad"), "direction"),
        (depthwise(16, (8, 8), (3, 3), "fwd", kernel_dtype="fp16"), "dtype"),
        (depthwise(16, (3, 512), (2, 500), "fwd"), "filter"),
    ],
)
def test_refusals_name_their_reason(signature, word):
    verdict = SOLVER.applicable(signature.canonical.geometry, H200)
    assert isinstance(verdict, Rejected)
    assert word in str(verdict)


@pytest.mark.parametrize(
    ("solver", "signature", "word"),
    [
        (MMA, depthwise(16, (8, 8), (3, 3), "fwd", dtype="fp32"), "dtype"),
        (MMA, depthwise(18, (8, 8), (3, 3), "fwd"), "multiples of 4"),
        (MMA, depthwise(16, (8, 8), (3, 3), "bwd", padding=1, stride=2), "stride"),
        (PLANES, depthwise(16, (8, 8), (3, 3), "fwd"), "rows are not contiguous"),
        (PLANES, ConvSignature((1, 8, 32, 32), (8, 1, 8, 8), groups=8, dtype="bf16"), "filter"),
    ],
)
def test_other_families_name_their_reasons(solver, signature, word):
    verdict = solver.applicable(signature.canonical.geometry, H200)
    assert isinstance(verdict, Rejected)
    assert word in str(verdict)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
def test_untuned_kernels_compile_without_spills(arch, tmp_path):
    """Every kernel on one arch."""
    target = CUDA_TARGETS[arch]
    full = Epilogue(bias=True, activation="gelu", residual=True)
    sources = {}
    fused = depthwise(40, (12, 13), (3, 3), "bwd", padding=1, epilogue=full)
    for signature in {"sm_80": PROBLEMS[1:2], "sm_120a": PROBLEMS[3:4]}.get(arch, (PROBLEMS[0], PROBLEMS[2], fused)):
        geometry = signature.canonical.geometry
        for source in SOLVER.draft(geometry, SOLVER.default_config(geometry, target), target).sources:
            sources[source.symbol] = source
    for solver, signature in CHOSEN[len(PROBLEMS) + 1 :] if arch == "sm_90a" else ():
        geometry = signature.canonical.geometry
        for source in solver.draft(geometry, solver.default_config(geometry, target), target).sources:
            sources[source.symbol] = source
    found = build_unit(list(sources.values()), target, tmp_path / "unit.cubin")
    assert [(r.symbol, r.spill_store_bytes, r.stack_bytes) for r in found if r.stack_bytes or r.spill_store_bytes] == []
