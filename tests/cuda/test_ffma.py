"""Exact fp32 matrix products: numbers through the emulator, choices, refusals, and the kernel's text for every arch."""

from __future__ import annotations

import pytest
from cuda_chain import H200, check_numbers, executable

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.cuda.ffma.solver import FfmaGemmSolver
from tilesmith.solvers.solver import Accepted, Config, Rejected
from tilesmith.solvers.table import candidates
from tilesmith.targets.cuda import CUDA_TARGETS, cuda_target
from tilesmith.toolchain.build import build_unit

SOLVER = FfmaGemmSolver()
TARGET = cuda_target("sm_90a", 3)  # few SMs: the blocks of one wave share few tiles
AXES = [axis.name for axis in SOLVER.axes]
FULL = Epilogue(bias=True, activation="silu", residual=True)


def gemm(m, n, k, ta, tb, **more):
    return GemmSignature(m, n, k, trans_a=ta, trans_b=tb, dtype="fp32", **more)


def config(*values: int) -> Config:
    return Config(tuple(zip(AXES, values, strict=True)))


CASES = [
    # Transposed by the copies, or not; 16-, 8- and 4-byte copies; pitches; tails of every size.
    (gemm(37, 70, 45, False, False, lda=64, ldb=80), config(32, 64, 8, 1, 1, 1, 3, 1, 0, 1, 0)),
    (gemm(37, 70, 45, True, True, lda=41), config(32, 32, 16, 1, 1, 8, 2, 2, 0, 1, 0)),
    (gemm(66, 132, 21, True, False, batch=2, epilogue=FULL), config(64, 128, 8, 2, 2, 1, 4, 1, 0, 1, 0)),
    (gemm(65, 97, 70, False, True, alpha=0.5, beta=2.0), config(64, 96, 16, 2, 1, 2, 3, 3, 0, 1, 0)),
    # Results through shared memory, 16 rows of a warp at a time: one by one, fused, with products in halves; parts.
    (gemm(70, 67, 45, False, True), config(64, 64, 8, 1, 1, 1, 3, 1, 0, 1, 0)),
    (gemm(70, 68, 45, True, False, epilogue=FULL), config(64, 64, 8, 1, 1, 1, 3, 1, 0, 1, 0)),
    (gemm(70, 131, 100, False, False, beta=0.5), config(32, 64, 8, 1, 1, 1, 2, 3, 0, 4, 0)),
    # Blocks share tiles evenly; some have the middle of a tile alone.
    (gemm(20, 33, 300, False, False), config(16, 32, 8, 1, 1, 1, 2, 1, 1, 1, 0)),
    (gemm(100, 140, 40, False, True, c_dtype="bf16"), config(16, 32, 16, 1, 1, 2, 3, 1, 1, 4, 0)),
    # A warpgroup copies and the others multiply: more steps than stages, a step in turns, parts, shared tiles whose
    # results leave from registers or take the ring's place.
    (gemm(130, 260, 75, False, False), config(128, 256, 16, 2, 4, 1, 3, 1, 0, 1, 1)),
    (gemm(72, 131, 100, True, True, beta=0.5), config(64, 128, 8, 2, 2, 1, 2, 3, 0, 1, 1)),
    (gemm(100, 300, 70, False, True), config(64, 64, 16, 2, 2, 1, 2, 1, 1, 1, 1)),
    (gemm(68, 396, 45, True, False, epilogue=FULL), config(64, 64, 8, 2, 2, 1, 3, 1, 1, 1, 1)),
]


@pytest.mark.parametrize(("signature", "chosen"), CASES, ids=lambda v: "" if isinstance(v, Config) else v.key()[:50])
def test_numbers(signature, chosen, emulating):
    signature = signature.canonical
    geometry = signature.geometry
    assert SOLVER.applicable(geometry, TARGET) == Accepted()
    assert SOLVER.search_space(geometry, TARGET).contains(chosen)
    made = executable(signature, SOLVER.draft(geometry, chosen, TARGET), emulating, TARGET)
    check_numbers(signature, made)


def test_the_table_chooses_it_for_exact_products_alone():
    for signature in (gemm(4096, 4096, 4096, False, True), gemm(7, 1000, 33, True, False)):
        found = {c.name: c for c in candidates(signature.canonical, H200)}
        taken = [name for name, c in found.items() if isinstance(c.verdict, Accepted)]
        assert taken == [SOLVER.name, "cuda_reference"]
        assert "ffma_gemm" in str(found["ffma_dense"].verdict)
    for signature, word in ((gemm(8, 8, 8, False, False, a_dtype="fp64"), "dtype"),
                            (ConvSignature((1, 8, 8, 4), (4, 1, 1, 4), shared_layout="NHWC", dtype="fp32"), "op"),
                            (gemm(8, 8, 8, False, False, beta=1.0, epilogue=FULL), "epilogue")):  # fmt: skip
        verdict = SOLVER.applicable(signature.canonical.geometry, H200)
        assert isinstance(verdict, Rejected)
        assert word in str(verdict)


@pytest.mark.parametrize(
    ("arch", "signature"),
    [
        ("sm_80", gemm(2048, 2048, 2048, False, True)),
        ("sm_100a", gemm(300, 301, 302, False, False)),
        ("sm_120a", gemm(2048, 2048, 2048, False, True)),
    ],
    ids=["sm_80", "sm_100a", "sm_120a, with producers"],
)
def test_untuned_kernels_compile_without_spills(arch, signature, tmp_path):
    target, geometry = CUDA_TARGETS[arch], signature.canonical.geometry
    chosen = SOLVER.default_config(geometry, target)
    assert SOLVER.search_space(geometry, target).contains(chosen)
    found = build_unit(SOLVER.draft(geometry, chosen, target).sources, target, tmp_path / "unit.cubin")
    assert b"Copies" not in (tmp_path / "unit.cubin").read_bytes()  # constants of its classes have no symbols
    assert [(r.symbol, r.spill_store_bytes) for r in found if r.spill_store_bytes or r.stack_bytes] == []


def test_a_warpgroup_copies_beside_others_in_whole_pieces():
    """One of four warps copies, so others are fours of warps; without transposing it copies 16 bytes at once."""
    wide = config(128, 256, 16, 2, 4, 1, 4, 1, 0, 1, 1)
    narrow = config(64, 64, 16, 2, 1, 1, 4, 1, 0, 1, 1)  # two warps
    for signature, arch, chosen, there in (
        (gemm(2048, 2048, 2048, False, False), "sm_90a", wide, True),
        (gemm(2048, 2048, 2048, False, False), "sm_80", wide, False),
        (gemm(2048, 2048, 2048, False, False), "sm_90a", narrow, False),
        (gemm(2048, 2047, 2048, False, True), "sm_90a", wide, True),  # both operands run along k
        (gemm(2048, 2047, 2048, False, False), "sm_90a", wide, False),
    ):
        space = SOLVER.search_space(signature.canonical.geometry, CUDA_TARGETS[arch])
        assert space.contains(chosen) == there, (signature, arch, chosen)
