"""Kernels whose text has a part of a thread's results, to whose registers the others move: numbers, by the emulator."""

from __future__ import annotations

import re

import pytest
from cuda_chain import H200, check_numbers, executable

from tilesmith.codegen.cuda.unit import resolved
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.cuda.depthwise_mma.solver import DepthwiseMmaSolver
from tilesmith.solvers.cuda.first.solver import FirstLayerSolver
from tilesmith.solvers.cuda.narrow_groups.solver import NarrowGroupsSolver
from tilesmith.solvers.cuda.wgmma.solver import ConvSm90Solver, GemmSm90Solver
from tilesmith.solvers.solver import Accepted, Config
from tilesmith.targets.cuda import cuda_target

GEMM, CONV = GemmSm90Solver(), ConvSm90Solver()
FIRST, NARROW, DEPTHWISE = FirstLayerSolver(), NarrowGroupsSolver(), DepthwiseMmaSolver()
FEW = cuda_target("sm_90a", 3)  # blocks have several tiles
PLAIN = {
    "warpgroups": 1, "products_m": 1, "block_n": 64, "block_k": 64, "stages": 0, "pingpong": 0, "cluster_k": 1,
    "split_k": 1, "group_m": 1, "taps_inner": 0, "swap_mn": 0, "blocks_per_sm": 1, "mix_layers": 0, "store_buffers": 2,
    "slab_n": 64, "resident": 0, "cluster_m": 1,
}  # fmt: skip
ROWS, COLUMNS = {"products_m": 2, "block_n": 128}, {"block_n": 256}  # what two parts are of
GELU, TANH = Epilogue(bias=True, activation="gelu"), Epilogue(bias=True, activation="tanh")
ALTERNATING = {"warpgroups": 2, "pingpong": 1}  # each warpgroup finishes results beside the other's products
IN_THREES = {"warpgroups": 3, "pingpong": 1, "block_n": 128}
K32, BIAS = {"block_k": 32}, Epilogue(bias=True)
K128 = {"block_k": 128, "warpgroups": 2}
EVEN = {"stride": 2, "padding": 0}
FULL, ADDED = Epilogue(bias=True, residual=True, activation="gelu"), Epilogue(residual=True, activation="relu")


def gemm(m, n, k=72, dtype="bf16", **more):
    return GemmSignature(m, n, k, dtype=dtype, **({"trans_b": True} | more))


def tf32(m, n, **more):
    return gemm(m, n, 72, "fp32", acc_dtype="tf32", **more)


def fp8(m, n, **more):
    return gemm(m, n, 144, "fp8e4m3", **more)


def conv(x, w, mode="fwd", dtype="bf16", **more):
    return ConvSignature(x, w, mode=mode, dtype=dtype, shared_layout="NHWC", **({"padding": 1} | more))


def of(solver, *values: int) -> Config:
    return Config(tuple(zip((axis.name for axis in solver.axes), values, strict=True)))


# Results through a tensor map, along rows and along columns; a residual that copies bring, all of a tile's or in rounds
# (floats); bytes; pairs from registers; rows of 16 bytes and of 4; 16 whole rows; backward data, where what is no
# number is repaired.
WGMMA = [
    (GEMM, gemm(300, 256, dtype="fp16", epilogue=TANH), COLUMNS | ALTERNATING, 2),
    (GEMM, gemm(200, 260, epilogue=TANH), ROWS | {"swap_mn": 1}, 2),
    (GEMM, gemm(700, 260, epilogue=FULL), IN_THREES, 2),
    (GEMM, gemm(700, 392, 200, epilogue=GELU), IN_THREES | {"block_n": 192, "resident": 1}, 3),
    (GEMM, gemm(300, 136, epilogue=FULL), ROWS | {"warpgroups": 2}, 2),
    (GEMM, gemm(200, 131, epilogue=ADDED), ROWS | ALTERNATING, 2),
    (GEMM, gemm(200, 257, epilogue=GELU), ROWS, 2),
    (GEMM, gemm(300, 127, epilogue=GELU), ROWS, 2),
    (GEMM, gemm(200, 136, beta=0.5), ROWS | ALTERNATING, 2),
    (GEMM, gemm(264, 130, c_dtype="fp32", epilogue=FULL), ROWS, 4),
    (GEMM, tf32(300, 264, epilogue=FULL), COLUMNS | ALTERNATING | K32, 2),
    (GEMM, tf32(264, 300, epilogue=FULL), COLUMNS | K32 | {"swap_mn": 1}, 2),
    (GEMM, fp8(200, 272, epilogue=FULL), COLUMNS | K128, 2),
    (GEMM, fp8(200, 135, epilogue=FULL), {"products_m": 2, "block_n": 112} | K128, 2),
    (GEMM, gemm(200, 200, epilogue=TANH), {"block_n": 192}, 3),
    (GEMM, gemm(200, 90, epilogue=TANH), {"products_m": 2, "block_n": 96}, 2),
    (CONV, conv((2, 9, 7, 136), (72, 3, 3, 136), "bwd", stride=2, epilogue=FULL), ROWS | {"mix_layers": 1}, 4),
    (CONV, conv((2, 9, 7, 256), (72, 2, 2, 256), "bwd", **EVEN, epilogue=TANH), COLUMNS, 4),
]  # fmt: skip
# Whose numbers are those of the ones above in another tile; those that have short results in one turn, too.
COUNTED = [
    (GEMM, gemm(300, 136, epilogue=GELU), ROWS, 2),
    (GEMM, gemm(200, 136, beta=0.5, epilogue=GELU), COLUMNS, 4),
    (GEMM, gemm(200, 264, epilogue=GELU), COLUMNS | {"swap_mn": 1}, 2),
    (GEMM, gemm(200, 256, epilogue=FULL), COLUMNS, 2),
    (GEMM, gemm(200, 131, epilogue=ADDED), ROWS, 2),
    (GEMM, gemm(200, 513, epilogue=TANH), COLUMNS, 2),
    (GEMM, gemm(200, 136, beta=0.5), ROWS, 2),
    (GEMM, gemm(200, 264, beta=0.5, epilogue=GELU), {"block_n": 144, "swap_mn": 1}, 1),  # no parts of whole chunks
    (GEMM, tf32(300, 136, epilogue=FULL), ROWS | K32, 2),
    (GEMM, tf32(300, 136, epilogue=ADDED), ROWS | ALTERNATING | K32, 1),
    (GEMM, tf32(200, 136, epilogue=FULL), ROWS | K32 | {"swap_mn": 1}, 2),
    (GEMM, tf32(264, 300, epilogue=ADDED), {"block_n": 96, "block_k": 32}, 1),
    (GEMM, tf32(264, 304, epilogue=BIAS), COLUMNS | K32, 1),
    (GEMM, fp8(300, 144, epilogue=FULL), ROWS | K128, 2),
    (GEMM, fp8(200, 272, epilogue=ADDED), COLUMNS | K128, 1),
    (GEMM, fp8(200, 272, epilogue=BIAS), COLUMNS | K128, 1),
    (GEMM, fp8(200, 272, beta=0.5), COLUMNS | K128, 2),
    (CONV, conv((2, 9, 7, 136), (72, 3, 3, 136), "bwd", stride=2, epilogue=ADDED), ROWS, 4),
    (CONV, conv((2, 9, 7, 136), (72, 2, 2, 136), "bwd", **EVEN, epilogue=GELU), ROWS | {"mix_layers": 1}, 4),
]  # fmt: skip
OTHERS = [
    (FIRST, conv((2, 15, 33, 3), (21, 3, 3, 3), epilogue=GELU), of(FIRST, 8, 4, 4, 32, 0, 1)),
    (FIRST, conv((2, 15, 33, 3), (64, 3, 3, 3), epilogue=TANH, output_dtype="fp32"), of(FIRST, 16, 4, 2, 64, 0, 1)),
]
ONCE = [
    (conv((2, 13, 18, 20), (20, 3, 3, 1), groups=20, epilogue=FULL), of(DEPTHWISE, 16, 32, 1, 2, 2, 3, 0)),
    (conv((2, 15, 9, 8), (8, 5, 5, 1), groups=8, padding=2, epilogue=TANH), of(DEPTHWISE, 16, 16, 2, 1, 4, 2, 0)),
    (conv((2, 9, 9, 8), (8, 7, 7, 1), "bwd", groups=8, padding=3, epilogue=Epilogue(activation="gelu")),
     of(DEPTHWISE, 16, 16, 1, 1, 4, 4, 0)),
]  # fmt: skip


def named(value):
    return value.get_func_name()[:50] if hasattr(value, "get_func_name") else ""


def checked(solver, signature, config, target, emulating):
    made = executable(signature, solver.draft(signature.geometry, config, target), emulating, target)
    check_numbers(signature, made)


@pytest.mark.parametrize(("solver", "signature", "wanted", "turns"), WGMMA, ids=named)
def test_turns_of_a_tile(solver, signature, wanted, turns, emulating):
    signature = signature.canonical
    config = Config(tuple((PLAIN | wanted).items()))
    tile = solver.tile(signature.geometry, config, FEW)
    assert (tile.fits, tile.turns) == (True, turns)
    checked(solver, signature, config, FEW, emulating)


def test_how_many_turns_a_tile_has():
    for solver, signature, wanted, turns in COUNTED:
        tile = solver.tile(signature.canonical.geometry, Config(tuple((PLAIN | wanted).items())), FEW)
        assert (tile.fits, tile.turns) == (True, turns), signature


@pytest.mark.parametrize(("solver", "signature", "config"), OTHERS, ids=named)
def test_turns_of_other_tiles(solver, signature, config, emulating):
    signature = signature.canonical
    assert solver.applicable(signature.geometry, H200) == Accepted()
    assert solver.tile(signature.geometry, config, H200).in_turns
    checked(solver, signature, config, H200, emulating)


@pytest.mark.parametrize(("signature", "config"), ONCE, ids=named)
def test_rows_of_depthwise_results(signature, config, emulating):
    """Copies, and the place where what is no number is mended, are once in the text."""
    signature = signature.canonical
    (source,) = DEPTHWISE.draft(signature.geometry, config, H200).sources
    assert len(re.findall(r"\bmend\(", source.text)) == 1
    checked(DEPTHWISE, signature, config, H200, emulating)


@pytest.mark.parametrize("epilogue", [GELU, FULL, Epilogue(activation="tanh")], ids=["gelu", "full", "tanh"])
def test_long_results_of_narrow_groups_in_fp32(epilogue, emulating):
    """They are finished as they leave: the text has a vector's, and not those of all of a thread's pixels."""
    signature = conv((1, 9, 9, 8), (12, 3, 3, 4), dtype="fp32", groups=2, epilogue=epilogue).canonical
    config = of(NARROW, 2, 1, 1, 8, 9, 2, 1)
    (source,) = NARROW.draft(signature.geometry, config, H200).sources
    assert re.search(r"\bLATE = (1|true)\b", source.text)
    checked(NARROW, signature, config, H200, emulating)


@pytest.mark.parametrize("epilogue", [Epilogue(), Epilogue(bias=True, activation="relu")], ids=["plain", "relu"])
def test_short_results_stand_side_by_side(epilogue):
    """And the text has no trace of the other version."""
    problems = [
        (GEMM, gemm(300, 128, epilogue=epilogue)),
        (CONV, conv((2, 9, 7, 136), (136, 3, 3, 136), epilogue=epilogue)),
    ]
    for solver, signature in problems:
        config = Config(tuple((PLAIN | ROWS).items()))
        assert solver.tile(signature.geometry, config, FEW).turns == 1
        (source,) = solver.draft(signature.geometry, config, FEW).sources
        assert not re.search(r"\b(IN_TURNS|TURNS|PART_N)\b", source.text)


def test_lines_of_one_version():
    text = "a\n#if LONG\nb\n#else\nc\n#endif\nd\n#if LONG\ne\n#endif\n#if OTHER\n#endif\n"
    assert resolved(text, LONG=True) == "a\nb\nd\ne\n#if OTHER\n#endif\n"
    assert resolved(text, LONG=False) == "a\nc\nd\n#if OTHER\n#endif\n"
    with pytest.raises(ValueError, match="SHORT"):
        resolved(text, SHORT=True)
