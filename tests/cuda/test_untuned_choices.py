"""What is chosen on an H200 where nothing was measured: kernels that were far from the fastest must not return.

Times are those of benchmarks/results/gpu_defaults_h200.jsonl.
"""

import pytest

from tilesmith.codegen.cuda.layout import copied_unit
from tilesmith.dispatch.choice import Choice
from tilesmith.dispatch.choose import choose
from tilesmith.dispatch.facts import options_of
from tilesmith.problems.driver import parse_command
from tilesmith.problems.geometry import TensorView
from tilesmith.problems.rewrite import rewrites
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.relayout import CUDA_COPIES
from tilesmith.solvers.cuda.wgmma.solver import GemmSm90Solver
from tilesmith.solvers.relayout import channels_last
from tilesmith.solvers.solver import Accepted, Rejected, parse_config
from tilesmith.solvers.table import candidates
from tilesmith.targets.cuda import cuda_target

TARGET = cuda_target("sm_90a", 132)
NHWC = "-t 1 --in_layout NHWC --out_layout NHWC --fil_layout NHWC"


def signature(sizes, direction=1, filter_="-y 1 -x 1", verb="convbfp16"):
    command = f"{verb} {sizes} {filter_} -F {direction} {NHWC}"
    ((_, found),) = parse_command(command).signatures
    return found.canonical


@pytest.mark.parametrize(
    ("problem", "solver"),
    [
        # An H100: 6.7 us; mma_thin 10.5
        (signature("-n 32 -c 1 -H 128 -W 128 -k 5"), "ffma_thin@gemm"),
        # An H100: 4.8 us; mma_thin 6.0
        (signature("-n 32 -c 1 -H 128 -W 128 -k 5", 2), "ffma_thin@gemm"),
        # mma_thin: 25.5 us; with copies of x to 40 channels 39.8
        (signature("-n 64 -c 33 -H 56 -W 56 -k 96"), "wgmma_thin@gemm"),
        # mma_thin: 36 us; mma_dense 58.5
        (signature("-n 64 -c 100 -H 56 -W 56 -k 100"), "wgmma_thin@gemm"),
        (signature("-n 64 -c 127 -H 56 -W 56 -k 128"), "wgmma_thin@gemm"),
        # Of dy's whole rows; the filter alone is copied.
        (signature("-n 64 -c 127 -H 56 -W 56 -k 128", 2), "wgmma_gemm_copied@gemm"),
        # 18.1 us; mma_thin 19.0, with a copy of the filter 28.6
        (signature("-n 64 -c 33 -H 56 -W 56 -k 96", 2), "wgmma_thin@gemm"),
        # Whole rows of 16 bytes are for bulk tensor copies.
        (signature("-n 16 -c 64 -H 56 -W 56 -k 64"), "wgmma_gemm@gemm"),
        # mma_dense: 39.8 us; the plain reference 178
        (signature("-n 128 -c 8 -H 28 -W 28 -k 8 -g 4 -p 1 -q 1", 1, "-y 3 -x 3"), "mma_narrow_groups"),
        # mma_dense: 57 us; 172 with the filter's 20 channels padded to 24
        (signature("-n 33 -c 40 -H 56 -W 56 -k 40 -g 2 -p 1 -q 1", 1, "-y 3 -x 3"), "mma_narrow_groups"),
        # Several results a channel: as dense layers they had several times the estimate.
        (signature("-n 4 -c 1024 -H 38 -W 38 -k 2048 -g 1024 -p 4 -q 4", 1, "-y 9 -x 9"), "cuda_depthwise"),
        (signature("-n 4 -c 1024 -H 38 -W 38 -k 2048 -g 1024 -p 3 -q 3", 4, "-y 7 -x 7"), "cuda_depthwise"),
        (signature("-n 1 -c 96 -H 38 -W 38 -k 288 -g 96 -p 15 -q 15", 1, "-y 31 -x 31"), "cuda_depthwise"),
        (signature("-n 4 -c 1024 -H 38 -W 38 -k 2048 -g 1024 -p 3 -q 3", 1, "-y 7 -x 7"), "mma_narrow_groups"),
        # 178 us; ffma_dense 8991
        (signature("-n 1 -c 768 -H 112 -W 112 -k 768 -g 768 -p 6 -q 6", 1, "-y 13 -x 13", "conv"), "cuda_depthwise"),
        (signature("-n 64 -c 144 -H 7 -W 15 -k 144 -g 144 -p 6 -q 6", 4, "-y 13 -x 13", "conv"), "cuda_depthwise"),
        (signature("-n 32 -c 256 -H 28 -W 28 -k 256 -g 256 -p 6 -q 6 -u 2 -v 2", 2, "-y 13 -x 13"), "cuda_depthwise"),
        # Tensor cores have kernels for even channels, forward.
        (signature("-n 16 -c 96 -H 56 -W 56 -k 96 -g 96 -p 6 -q 6 -u 2 -v 2", 1, "-y 13 -x 13"), "mma_depthwise"),
        (signature("-n 32 -c 256 -H 14 -W 14 -k 256 -g 256 -p 6 -q 6", 4, "-y 13 -x 13"), "mma_depthwise"),
        # 35.3 us; mma_dense 72.8
        (signature("-n 32 -c 720 -H 28 -W 28 -k 720 -g 6 -p 1 -q 1 -u 2 -v 2", 2, "-y 3 -x 3"), "wgmma_conv"),
        # 58.8 us; mma_dense 145
        (signature("-n 256 -c 464 -H 16 -W 16 -k 464 -g 2"), "wgmma_conv"),
    ],
)
def test_few_channels_do_not_get_slow_kernels(problem, solver):
    found = choose(options_of(problem, TARGET), (), mode="fast")
    assert isinstance(found, Choice)
    assert found.solver == solver


def test_phases_of_what_l2_does_not_keep_are_computed_side_by_side():
    # 30.8 us; 39.9 with one phase after the other, each of which reads 34 MB anew
    problem = signature("-m trans -n 8 -c 128 -H 128 -W 128 -k 64 -u 2 -v 2", 1, "-y 2 -x 2")
    found = choose(options_of(problem, TARGET), (), mode="fast")
    assert isinstance(found, Choice)
    assert found.solver.startswith("wgmma_conv")
    assert "mix_layers=1" in str(found.config)


def test_a_tile_of_few_warps_leaves_schedulers_idle():
    # 108 blocks have one warp each: 44.4 us with 4 products side by side, 17.0 with one, where 432 have
    problem = signature("-n 12 -c 96 -H 32 -W 32 -k 96 -g 3 -p 1 -q 1 -u 2 -v 2", 1, "-y 3 -x 3", "conv")
    (candidate,) = candidates(problem, TARGET, ("mma_narrow_groups",))
    config = parse_config("bundles=1 warps_m=1 products_n=4 tile_h=6 tile_w=16 stages=2 blocks_per_sm=1")
    wide, narrow = (candidate.solver.predict(candidate.geometry, config.replace(products_n=n), TARGET) for n in (4, 1))
    assert wide > 2 * narrow


def test_blocks_that_stay_with_their_columns_leave_few_sms_idle():
    """Each column has as many blocks as all can have: with 93 columns of 264 blocks 186 run."""
    problem = signature("-n 64 -c 112 -H 14 -W 14 -k 672")
    form, solver = rewrites(problem)[-1].signature.geometry, GemmSm90Solver()
    config = solver.default_config(form, TARGET).replace(
        warpgroups=1, products_m=1, block_n=144, pingpong=0, swap_mn=1, blocks_per_sm=2, resident=1
    )
    tile, few = (solver.tile(form, config.replace(block_n=block_n), TARGET) for block_n in (144, 136))
    assert (tile.grid, few.grid) == (264, 186)
    assert solver.seconds(few, TARGET) > solver.seconds(tile, TARGET)


def test_a_filter_is_not_padded_for_nothing():
    problem = signature("-n 33 -c 40 -H 56 -W 56 -k 40 -g 2 -p 1 -q 1", 1, "-y 3 -x 3")
    verdicts = {candidate.name: candidate.verdict for candidate in candidates(problem, TARGET)}
    assert isinstance(verdicts["mma_dense"], Accepted)
    assert verdicts["mma_dense_nhwc"] == Rejected(reasons.UNCHANGED)
    # Of a filter that lies otherwise a packed copy is worth making.
    command = "convbfp16 -n 2 -c 40 -H 56 -W 56 -k 40 -g 2 -y 3 -x 3 -F 1 -t 1 --in_layout NHWC --out_layout NHWC"
    ((_, other),) = parse_command(f"{command} --fil_layout NCHW").signatures
    verdicts = {candidate.name: candidate.verdict for candidate in candidates(other.canonical, TARGET)}
    assert isinstance(verdicts["mma_dense_nhwc"], Accepted)


def rows_of(channels):
    sizes = (8, channels, 1, 30, 30)
    return TensorView("x", "bf16", sizes, (900 * channels, 1, 900 * channels, 30 * channels, channels))


def test_copies_cost_by_what_moves_as_one():
    views = [rows_of(channels) for channels in (33, 34, 36, 40)]
    wanted = [channels_last(view, 8) for view in views]
    assert [copied_unit(*pair) for pair in zip(views, wanted, strict=True)] == [2, 4, 8, 16]
    # The four copies are equally long.
    seconds = [CUDA_COPIES.seconds(*pair, TARGET) for pair in zip(views, wanted, strict=True)]
    assert sorted(set(seconds), reverse=True) == seconds


def test_a_transposition_moves_whole_chunks():
    view = TensorView("x", "bf16", (8, 32, 1, 30, 30), (900 * 32, 900, 900, 30, 1))
    assert copied_unit(view, channels_last(view, 8)) == 16
