"""Products whose tiles have all columns: 16 rows of any length leave in one piece. Numbers through the emulator."""

from __future__ import annotations

import pytest
from cuda_chain import check_numbers, executable

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import rewrites
from tilesmith.solvers.cuda.wgmma.copied import CopiedGemmSolver
from tilesmith.solvers.cuda.wgmma.solver import GemmSm90Solver
from tilesmith.targets.cuda import cuda_target

SOLVER, COPIED = GemmSm90Solver(), CopiedGemmSolver()
FEW = cuda_target("sm_90a", 3)  # blocks have several tiles
BIASED = Epilogue(bias=True, activation="leaky_relu")


def gemm(m, n, k, dtype="bf16", **more):
    return GemmSignature(m, n, k, dtype=dtype, **({"trans_b": True} | more))


def conv(mode, c, k, **more):
    return ConvSignature((3, 7, 9, c), (k, 1, 1, c), mode=mode, shared_layout="NHWC", dtype="bf16", **more)


# One, two and four chunks of 64 columns, the last of one column, of two, of many; tails of 1 to 15 rows, of which some
# are no whole pieces of 16 bytes; odd and even rows.
CASES = [
    (SOLVER, gemm(409, 255, 128, "fp16", epilogue=BIASED), {"warpgroups": 2, "block_n": 256, "pingpong": 1}),
    (SOLVER, gemm(487, 33, 64, alpha=0.5), {"warpgroups": 1, "products_m": 2, "block_n": 40}),
    (SOLVER, gemm(587, 65, 72, epilogue=BIASED), {"warpgroups": 2, "products_m": 2, "block_n": 72}),
    (SOLVER, gemm(333, 100, 64), {"warpgroups": 2, "block_n": 104, "resident": 1}),
    (COPIED, gemm(70, 66, 8, trans_a=True), {"warpgroups": 1, "block_n": 72}),
    (COPIED, conv("bwd", 71, 72), {"warpgroups": 2, "block_n": 96}),
    (COPIED, gemm(409, 127, 271), {"warpgroups": 2, "block_n": 128, "pingpong": 1}),
]


def named(value):
    return value.get_func_name()[:40] if hasattr(value, "get_func_name") else ""


def chosen(solver, geometry, wanted):
    asked = {"cluster_m": 1, "cluster_k": 1, "split_k": 1, "swap_mn": 0, "blocks_per_sm": 1} | wanted
    space = solver.search_space(geometry, FEW)
    found = [each for each in solver.ranked(geometry, FEW) if all(each[name] == v for name, v in asked.items())]
    default = solver.default_config(geometry, FEW).replace(stages=0, group_m=1, products_m=1, pingpong=0, resident=0)
    return next(each for each in (*found, default.replace(**asked)) if space.contains(each))


@pytest.mark.parametrize(("solver", "signature", "wanted"), CASES, ids=named)
def test_numbers(solver, signature, wanted, emulating):
    signature = signature.canonical
    geometry = rewrites(signature)[-1].signature.geometry
    config = chosen(solver, geometry, wanted)
    inner, form = (SOLVER, geometry) if solver is SOLVER else (solver.inner, solver.changed(geometry))
    assert inner.tile(form, config, FEW).store == "RUN"
    made = executable(signature, solver.draft(geometry, config, FEW), emulating, FEW)
    check_numbers(signature, made)


@pytest.mark.parametrize(
    ("signature", "store"),
    [
        (gemm(600, 255, 64), "RUN"),
        (gemm(600, 256, 64), "MAPPED"),
        (gemm(600, 255, 64, ldc=257), "LINES"),  # rows that do not lie densely
        (gemm(600, 511, 64), "LINES"),  # columns of two tiles
        (gemm(600, 255, 64, batch=3), "LINES"),  # whose second matrix may begin anywhere
        (gemm(600, 3, 64), "DIRECT"),  # rows of few columns
        (gemm(600, 255, 64, epilogue=Epilogue(residual=True)), "DIRECT"),
    ],
    ids=lambda v: v if isinstance(v, str) else named(v),
)
def test_what_leaves_in_one_piece(signature, store):
    geometry = signature.canonical.geometry
    default = SOLVER.default_config(geometry, FEW)
    wanted = {"swap_mn": 0, "cluster_k": 1, "split_k": 1, "block_n": 256, "blocks_per_sm": 1}
    assert SOLVER.tile(geometry, default.replace(**wanted), FEW).store == store
