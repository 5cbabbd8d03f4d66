"""Products of which a block computes one tile, and clusters that share rows and columns. Numbers through the emulator.

A block with one tile finds it by its place in the grid, and its first copies wait for nothing.
"""

from __future__ import annotations

import pytest
from cuda_chain import check_numbers, executable

from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.cuda.wgmma.solver import GemmSm90Solver
from tilesmith.targets.cuda import cuda_target

SOLVER = GemmSm90Solver()
SOME = cuda_target("sm_90a", 20)
FULL = Epilogue(bias=True, activation="relu", residual=True)
BIAS, BIAS_GELU = Epilogue(bias=True), Epilogue(bias=True, activation="gelu")
PLAIN = {
    "warpgroups": 1, "products_m": 1, "block_n": 64, "block_k": 64, "stages": 0, "pingpong": 0, "cluster_k": 1,
    "split_k": 1, "group_m": 1, "taps_inner": 0, "swap_mn": 0, "blocks_per_sm": 1, "mix_layers": 0, "store_buffers": 2,
    "slab_n": 64, "resident": 0, "cluster_m": 1,
}  # fmt: skip


def gemm(m, n, k, dtype="bf16", **more):
    return GemmSignature(m, n, k, dtype=dtype, **more)


# Sums shorter and longer than the ring, tails of rows, columns and k; groups of some rows of tiles, and of all.
ONCE = [
    (gemm(250, 136, 72, "fp16"), {"block_k": 128, "group_m": 2}),
    (gemm(190, 72, 520, trans_a=True, lda=192, epilogue=FULL), {"block_n": 32, "stages": 3, "group_m": 4}),
    (gemm(256, 264, 330, trans_b=True, ldb=336, lda=336), {"warpgroups": 2, "block_n": 88, "store_buffers": 4}),
    (gemm(72, 250, 128, trans_b=True, ldc=251), {"swap_mn": 1, "block_n": 24}),
    (gemm(200, 129, 64, trans_b=True), {"pingpong": 1, "warpgroups": 2, "block_n": 48}),
    (gemm(190, 129, 200, trans_b=True), {"pingpong": 1, "warpgroups": 3, "block_n": 48}),
    (gemm(320, 120, 400, trans_b=True), {"cluster_m": 2, "block_n": 48, "group_m": 3}),
    # A bias: of odd columns and a tail, of scaled sums, of one warpgroup or two.
    (gemm(250, 136, 200, alpha=0.5, trans_b=True, epilogue=BIAS), {"products_m": 2, "block_n": 40}),
    (gemm(256, 263, 72, "fp16", trans_b=True, ldc=264, epilogue=BIAS_GELU), {"warpgroups": 2, "block_n": 88}),
]
# Two by two: all four kinds of operands, edges in both directions, one tile a block and several.
SQUARES = [
    (gemm(300, 250, 328, "fp16", trans_b=True, ldc=256), {"warpgroups": 2, "block_n": 80, "stages": 3}),
    (gemm(200, 256, 136), {"block_n": 128, "group_m": 2}),
    (gemm(256, 200, 136, trans_a=True, epilogue=FULL, ldc=208), {"warpgroups": 2, "block_n": 128, "stages": 3}),
    (gemm(256, 200, 136, trans_a=True, trans_b=True), {"products_m": 2, "block_n": 64}),
    (gemm(520, 320, 136, trans_b=True, ldc=328), {"warpgroups": 2, "block_n": 64, "group_m": 2, "stages": 3}),
]

# Rows and columns of blocks up to four, whose parts divide or not; three kinds of operands, edges in both directions.
CLUSTERS = [
    (41, gemm(500, 200, 136, "fp16", trans_b=True, ldc=208), {"warpgroups": 2, "block_n": 72, "stages": 3}),  # turns
    (41, gemm(300, 320, 72), {"block_n": 96, "group_m": 2}),  # turns of two slabs
    (41, gemm(300, 200, 264, trans_b=True), {"pingpong": 1, "warpgroups": 2, "block_n": 48, "stages": 3}),
    (42, gemm(400, 210, 328, trans_b=True, epilogue=FULL, ldc=216), {"block_n": 104, "products_m": 2}),
    (42, gemm(300, 136, 136, trans_b=True), {"block_n": 32, "stages": 3, "group_m": 2}),  # several tiles a block
    (42, gemm(264, 200, 200, trans_a=True, trans_b=True), {"block_n": 64}),  # one slab of rows for two
    (24, gemm(200, 264, 264, "fp16", trans_b=True, lda=272), {"swap_mn": 1, "block_n": 40}),
    (24, gemm(250, 350, 136, batch=3, trans_b=True, ldc=360), {"block_n": 32, "warpgroups": 2}),
]


def named(value):
    return value.get_func_name()[:40] if hasattr(value, "get_func_name") else str(value) if type(value) is int else ""


def checked(signature, config, emulating):
    geometry = signature.geometry
    assert SOLVER.tile(geometry, config, SOME).fits
    check_numbers(signature, executable(signature, SOLVER.draft(geometry, config, SOME), emulating, SOME))


def config_of(signature, wanted):
    return SOLVER.default_config(signature.geometry, SOME).replace(**(PLAIN | wanted))


@pytest.mark.parametrize(("signature", "wanted"), ONCE, ids=named)
def test_one_tile_a_block(signature, wanted, emulating):
    signature = signature.canonical
    config = config_of(signature, wanted)
    tile = SOLVER.tile(signature.geometry, config, SOME)
    assert tile.once
    checked(signature, config, emulating)


@pytest.mark.parametrize(("signature", "wanted"), SQUARES, ids=named)
def test_clusters_of_two_by_two(signature, wanted, emulating):
    signature = signature.canonical
    checked(signature, config_of(signature, wanted | {"cluster_m": 4}), emulating)


@pytest.mark.parametrize(("blocks", "signature", "wanted"), CLUSTERS, ids=named)
def test_clusters(blocks, signature, wanted, emulating):
    signature = signature.canonical
    checked(signature, config_of(signature, wanted | {"cluster_m": blocks}), emulating)


def test_sums_that_a_cluster_shares(emulating):
    signature = gemm(130, 72, 600, trans_b=True).canonical
    checked(signature, config_of(signature, {"cluster_k": 3}), emulating)
