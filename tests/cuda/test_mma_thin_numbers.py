"""The numbers of the kernels for few channels through the emulator: odd rows, tails, NaN and Inf."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from cuda_chain import H200, check_numbers, executable

from tilesmith.measure.device_arrays import DeviceRechecker
from tilesmith.measure.oracle import oracle
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import rewrites
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.device import device
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.thin.reading import Reading
from tilesmith.solvers.cuda.thin.solver import FfmaThinSolver, MmaThinSolver, WgmmaThinSolver
from tilesmith.solvers.solver import Accepted, Config, Rejected
from tilesmith.targets.cuda import CUDA_TARGETS, cuda_target
from tilesmith.toolchain.build import build_unit

SOLVER, WIDE, FEW = MmaThinSolver(), WgmmaThinSolver(), FfmaThinSolver()


def config(*values: int) -> Config:
    return Config(tuple(zip(("warps", "stage_rows", "stages", "blocks_per_sm"), values, strict=True)))


def conv(mode: str, c: int, k: int, **more):
    return ConvSignature((3, 7, 9, c), (k, 1, 1, c), mode=mode, shared_layout="NHWC", dtype="bf16", **more)


def gemm(m: int, n: int, k: int, dtype="bf16", **more):
    return GemmSignature(m, n, k, dtype=dtype, **more)


BIASED = Epilogue(bias=True, activation="leaky_relu")
CASES = [
    *((conv("fwd", c, k), config(4, 32, 3, 1)) for c, k in ((35, 35), (33, 64), (36, 10), (1, 1))),
    *((conv("bwd", c, k), config(4, 16, 2, 1)) for c, k in ((17, 66), (64, 3), (40, 48))),
    *((conv("wrw", c, k), config(4, 16, 3, 1)) for c, k in ((35, 35), (34, 50), (1, 1))),
    *((conv("wrw", c, k), config(team, 32, 2, 1)) for c, k, team in ((33, 127, 2), (100, 128, 4))),
    (conv("wrw", 64, 64, kernel_dtype="fp32"), config(4, 16, 3, 1)),
    (conv("fwd", 35, 70, epilogue=BIASED), config(8, 32, 2, 1)),
    (gemm(300, 33, 130, "fp16", alpha=0.5), config(4, 32, 2, 1)),
    (gemm(250, 100, 200, trans_b=True, c_dtype="fp32"), config(4, 16, 2, 1)),
    (gemm(21, 39, 1000, "fp16", trans_a=True, alpha=2.0, epilogue=BIASED), config(8, 32, 4, 1)),
]
# Runs of 8, 4, 2 and 1 products, whole and cut short; odd rows on either side, on both, on none; blocks that have
# fewer slabs than warps.
WIDE_CASES = [
    *((conv("fwd", c, k), config(4, 16, 3, 1)) for c, k in ((127, 128), (100, 100), (9, 11))),
    *((conv("bwd", c, k), config(4, 16, 2, 1)) for c, k in ((33, 96), (35, 35), (36, 10))),
    *((conv("fwd", c, k), config(8, 32, 2, 1)) for c, k in ((37, 51), (64, 23))),
    (conv("fwd", 35, 70, epilogue=BIASED), config(4, 32, 2, 1)),
    (conv("fwd", 41, 33, epilogue=BIASED, output_dtype="fp32"), config(4, 16, 2, 1)),
    (gemm(296, 33, 130, "fp16", alpha=0.5), config(4, 32, 2, 1)),
    (gemm(250, 100, 200, trans_b=True, c_dtype="fp32"), config(4, 16, 2, 1)),
    (gemm(300, 255, 256), config(4, 16, 2, 1)),
    (gemm(250, 65, 31, "fp16", c_dtype="fp32"), config(12, 16, 2, 1)),
]
# On three SMs warps have several slabs, the last of which ends inside 16 bytes: stages are filled again where results
# left, by copies of either kind.
WIDE_TURNS = [
    (gemm(629, 127, 63), config(4, 16, 1, 1)),
    (gemm(821, 64, 63), config(4, 16, 3, 1)),
    (gemm(821, 33, 64), config(4, 16, 2, 1)),
    (gemm(489, 40, 72, trans_b=True), config(4, 16, 1, 1)),
    (gemm(613, 35, 33, c_dtype="fp32", trans_b=True, epilogue=BIASED), config(4, 16, 2, 1)),
]
# A residual: rows without gaps on both sides, on one, on none; runs of it as of results, one product or eight. On three
# SMs warps have several slabs, the last of which ends inside 16 bytes.
FUSED = Epilogue(bias=True, residual=True, activation="relu")
WIDE_RESIDUALS = [
    (conv("fwd", 16, 16, epilogue=FUSED), config(4, 32, 3, 1)),
    (conv("fwd", 17, 33, epilogue=FUSED), config(4, 16, 1, 1)),
    (conv("fwd", 5, 9, epilogue=FUSED), config(4, 32, 2, 1)),
    (conv("bwd", 24, 72, epilogue=FUSED), config(4, 16, 2, 1)),
    (gemm(629, 127, 63, epilogue=Epilogue(residual=True)), config(4, 16, 1, 1)),
    (gemm(821, 24, 72, "fp16", trans_b=True, epilogue=FUSED), config(4, 16, 3, 1)),
    (gemm(821, 33, 64, epilogue=FUSED, alpha=0.5), config(4, 16, 2, 1)),
    (gemm(489, 40, 24, trans_b=True, epilogue=FUSED), config(4, 32, 1, 1)),
    (gemm(821, 64, 63, "fp16", epilogue=FUSED), config(4, 16, 3, 1)),
    (gemm(491, 100, 100, epilogue=Epilogue(residual=True, activation="silu")), config(8, 16, 2, 1)),
    (gemm(613, 35, 33, c_dtype="fp32", trans_b=True, epilogue=FUSED), config(4, 16, 2, 1)),
    (gemm(613, 48, 72, "fp16", c_dtype="fp32", epilogue=FUSED), config(4, 16, 1, 1)),
    (gemm(613, 42, 70, c_dtype="fp32", epilogue=FUSED), config(4, 16, 3, 1)),
]

# The last eight pixels are fewer. On three SMs threads have several turns. Blocks of two sizes take turns.
FEW_CASES = [
    *(conv("fwd", c, k) for c, k in ((1, 5), (4, 8), (7, 4), (1, 1))),
    *(conv("bwd", c, k) for c, k in ((8, 3),)),
    conv("fwd", 3, 8, epilogue=BIASED),
    conv("fwd", 2, 7, epilogue=BIASED, output_dtype="fp32"),
    gemm(4003, 7, 4, "fp16", alpha=0.5, trans_b=True),
    gemm(12001, 8, 2, c_dtype="fp32"),
]


def named(value):
    return value.get_func_name()[:50] if hasattr(value, "get_func_name") else str(value)


@pytest.mark.parametrize(("signature", "chosen"), CASES, ids=named)
def test_numbers(signature, chosen, emulating):
    check(SOLVER, signature.canonical, chosen, emulating)


@pytest.mark.parametrize(("signature", "chosen"), WIDE_CASES, ids=named)
def test_numbers_of_warpgroups(signature, chosen, emulating):
    check(WIDE, signature.canonical, chosen, emulating)


@pytest.mark.parametrize(("signature", "chosen"), WIDE_TURNS, ids=named)
def test_numbers_of_stages_that_are_filled_again(signature, chosen, emulating):
    check(WIDE, signature.canonical, chosen, emulating, cuda_target("sm_90a", 3))


@pytest.mark.parametrize(("signature", "chosen"), WIDE_RESIDUALS, ids=named)
def test_numbers_with_a_residual(signature, chosen, emulating):
    target, signature = cuda_target("sm_90a", 3), signature.canonical
    made = check(WIDE, signature, chosen, emulating, target)
    # What is no number reaches its own result alone: every seventh element, neighbours in rows and in runs.
    values = list(sample_args(signature))
    values[-1].flat[::7] = np.nan
    checker = DeviceRechecker(signature, tuple(values), oracle(signature, values), device(0))
    verdict = checker.check_plan(checker.plan(made), poison=True)
    assert verdict.ok, verdict.message


@pytest.mark.parametrize(("place", "signature"), list(enumerate(FEW_CASES)), ids=named)
def test_numbers_of_threads(place, signature, emulating):
    signature = signature.canonical
    threads, blocks = ((128, 1), (256, 2))[place % 2]
    chosen = Config((("threads", threads), ("blocks_per_sm", blocks)))
    geometry = rewrites(signature)[-1].signature.geometry
    assert FEW.applicable(geometry, H200) == Accepted()
    made = executable(signature, FEW.draft(geometry, chosen, cuda_target("sm_90a", 3)), emulating)
    check_numbers(signature, made)


@pytest.mark.parametrize(
    "signature",
    [gemm(5000, 8, 5), gemm(5000, 9, 3), gemm(5000, 64, 3), gemm(5000, 3, 9), gemm(3, 4, 5000, trans_a=True)],
    ids=named,
)
def test_what_threads_would_not_hold_is_refused(signature):
    found = FEW.applicable(signature.canonical.geometry, H200)
    assert isinstance(found, Rejected)
    assert found.reason == reasons.CHANNELS


def check(solver, signature, chosen, emulating, target=H200):
    geometry = rewrites(signature)[-1].signature.geometry
    assert solver.applicable(geometry, target) == Accepted()
    assert solver.search_space(geometry, target).contains(chosen)
    made = executable(signature, solver.draft(geometry, chosen, target), emulating, target)
    check_numbers(signature, made)
    return made


@pytest.mark.parametrize(("n", "k"), [(101, 127), (127, 255), (63, 65), (255, 51), (73, 253)])
def test_lanes_meet_in_no_bank(n, k):
    """Operands of odd rows are read, and odd rows of results written, a word a lane at a time and at full speed."""
    geometry = gemm(20000, n, k).canonical.geometry
    tile = WIDE.tile(geometry, WIDE.default_config(geometry, H200), H200)
    assert tile.spreads == (4, 8)
    for width, run in ((k, 2 * 4), (n, 8)):  # words between two rows, and those of a lane's run
        for word in range(run):
            assert len({(group * width + place * run + word) % 32 for group in range(8) for place in range(4)}) == 32


def weights_tile(m, n):
    geometry = gemm(m, n, 200000, trans_a=True).canonical.geometry
    return SOLVER.tile(geometry, SOLVER.default_config(geometry, H200), H200)


@pytest.mark.parametrize(("m", "n"), [(127, 128), (64, 63), (127, 127), (57, 64)])
def test_weights_are_read_without_waiting_for_banks(m, n):
    """Lanes read whole words of both operands, at full speed: four rows, two of which may begin inside a word."""
    tile = weights_tile(m, n)
    run = (tile.tile[0] * 2, tile.tile[1])
    inside = [2 * (width % 2) for width in (tile.form.first, tile.form.second)]
    assert tile.reading.runs
    assert tile.reading.reads == 2 * sum(run) + sum(inside)


@pytest.mark.parametrize(
    ("m", "n", "runs"),
    [
        *((m, n, True) for m, n in ((127, 128), (128, 127), (65, 65), (24, 24), (72, 12), (121, 51), (33, 17), (5, 1))),
        *((m, n, False) for m, n in ((48, 27), (30, 90), (3, 64), (64, 3), (96, 33), (100, 100))),
    ],
)
def test_weights_are_read_by_runs_where_an_h100_is_faster(m, n, runs):
    assert weights_tile(m, n).reading.runs == runs


def test_turns_of_copies_count_rows_that_shift():
    """Eight chunks of 16 bytes are a turn; where a gap of one chunk lies among them, the first and the last meet."""
    even, shifted = Reading((64, 72), (4, 9), 1, runs=True), Reading((64, 72), (4, 9), 1, runs=False)
    assert even.pads == (8, 0)
    assert shifted.pads == (16, 8)
    assert even.turns - even.reads == 16 + 18
    assert shifted.turns - shifted.reads == 16 + 18 + 14


@pytest.mark.parametrize(("n", "k"), [(4, 8), (8, 4), (1, 1)])
def test_every_config_of_threads_has_an_estimate(n, k):
    """A block of 512 threads has 128 registers a thread, whatever the filter."""
    geometry = gemm(500000, n, k).canonical.geometry
    configs = [
        Config((("threads", threads), ("blocks_per_sm", blocks)))
        for threads in (128, 256, 512)
        for blocks in (1, 4, 32)
    ]
    for chosen in configs:
        assert 0 < FEW.predict(geometry, chosen, H200) < 1e-3


def test_what_is_not_of_warpgroups_is_refused():
    weights = gemm(64, 64, 5000, trans_a=True).canonical.geometry
    assert WIDE.applicable(weights, H200) == Rejected(reasons.DIRECTION, "sums over rows")
    rows = gemm(5000, 127, 127).canonical.geometry
    assert WIDE.applicable(rows, cuda_target("sm_80")) == Rejected(reasons.TARGET, "wgmma")
    assert SOLVER.applicable(gemm(5000, 255, 127).canonical.geometry, H200) == Rejected(
        reasons.CHANNELS, "5000 x 255 x 127"
    )
    assert WIDE.applicable(gemm(5000, 255, 127).canonical.geometry, H200) == Accepted()


def test_residuals_are_added_by_warpgroups_to_rows_alone():
    rows = gemm(5000, 7, 4, epilogue=FUSED).canonical
    assert WIDE.applicable(rows.geometry, H200) == Accepted()
    for solver in (SOLVER, FEW):  # by their features, in the table of solvers, and by themselves
        assert solver.applicable(rows.geometry, H200) == Rejected(reasons.EPILOGUE, "a residual, or beta")
        assert "residual" not in solver.features
    weights = gemm(64, 64, 5000, trans_a=True, epilogue=FUSED).canonical.geometry
    assert WIDE.applicable(weights, H200) == Rejected(reasons.EPILOGUE, "a residual, or beta")
    gaps = gemm(5000, 7, 4, ldc=8, epilogue=FUSED).canonical.geometry  # the residual lies as the result
    assert WIDE.applicable(gaps, H200) == Rejected(reasons.LAYOUT, "rows do not lie densely")


def test_a_residual_counts_as_memory():
    plain, fused = (gemm(200704, 24, 72, epilogue=each).canonical.geometry for each in (Epilogue(), FUSED))
    chosen = config(8, 16, 2, 1)
    tiles = [WIDE.tile(geometry, chosen, H200) for geometry in (plain, fused)]
    assert tiles[1].form.moved_bytes - tiles[0].form.moved_bytes == 200704 * 24 * 2
    assert tiles[1].turns > tiles[0].turns
    assert WIDE.predict(fused, chosen, H200) > WIDE.predict(plain, chosen, H200)


@pytest.mark.parametrize(("arch", "cases"), [("sm_90a", CASES[::5]), ("sm_80", CASES[2::9])], ids=["sm_90a", "sm_80"])
def test_untuned_kernels_compile_without_spills(arch, cases, tmp_path):
    target, sources = CUDA_TARGETS[arch], {}
    for signature, _ in cases:
        geometry = rewrites(signature.canonical)[-1].signature.geometry
        for source in SOLVER.draft(geometry, SOLVER.default_config(geometry, target), target).sources:
            sources[source.symbol] = source
    found = build_unit(list(sources.values()), target, tmp_path / "unit.cubin")
    assert [(r.symbol, r.spill_store_bytes, r.stack_bytes) for r in found if r.stack_bytes or r.spill_store_bytes] == []


@pytest.mark.parametrize("epilogue", [Epilogue(), FUSED], ids=["plain", "fused"])
@pytest.mark.parametrize(("n", "k"), [(128, 127), (33, 96), (255, 256)])
def test_sums_stay_in_registers(n, k, epilogue):
    geometry = gemm(200704, n, k, epilogue=epilogue).canonical.geometry
    source = WIDE.draft(geometry, WIDE.default_config(geometry, H200), H200).sources[0]
    with tempfile.TemporaryDirectory() as folder:
        (taken,) = build_unit([source], H200, Path(folder, "unit.cubin"))
    assert taken.spill_store_bytes == 0
    assert taken.warnings == ()  # such as products that are computed one after the other
