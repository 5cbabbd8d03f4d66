"""Phases and taps as columns: numbers through the emulator, refusals, and texts for every arch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cuda_chain import H200, check_numbers, executable

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.features import features_of
from tilesmith.solvers.cuda.phases import tile
from tilesmith.solvers.cuda.phases.solver import PhasesSolver, WgmmaPhasesSolver
from tilesmith.solvers.solver import Accepted, Config, Rejected, refusal
from tilesmith.targets.cuda import CUDA_TARGETS
from tilesmith.toolchain.build import build_unit

SOLVER, WIDE = PhasesSolver(), WgmmaPhasesSolver()
NAMES = [axis.name for axis in SOLVER.axes]


def deconv(c=8, k=3, size=(5, 6), taps=(3, 3), n=2, dtype="bf16", **more):
    """``c`` channels of a transposed convolution's input, ``k`` of its results."""
    letters = "NDHWC" if len(size) == 3 else "NHWC"
    return ConvSignature((n, *size, c), (c, *taps, k), transposed=True, shared_layout=letters, dtype=dtype, **more)


def conv(c=8, k=3, size=(5, 6), taps=(3, 3), n=2, **more):
    return ConvSignature((n, *size, c), (k, *taps, c), shared_layout="NHWC", dtype="bf16", **more)


BIASED = Epilogue(bias=True, activation="relu")
FUSED = Epilogue(bias=True, residual=True, activation="relu")
# Phases as columns, then taps as columns. All have positions beyond a tile, and columns beyond a warp's.
CASES = [
    # odd channels; blocks of one row of phases; pads that differ; not all taps exist
    (deconv(21, 21, (3, 4), (5, 7), n=1, stride=4, padding=((2, 1), (1, 2))), (0, 1, 2, 4, 0, 1, 24, 1, 2, 2, 1)),
    # two blocks of channels, half of the last one empty; two images at a time
    (deconv(20, 3, n=3, taps=(4, 3), stride=(2, 3), epilogue=FUSED), (0, 2, 3, 3, 0, 2, 16, 2, 1, 3, 1)),
    (deconv(8, 8, (3, 3, 4), (2, 3, 2), n=1, stride=2, dtype="fp16"), (0, 1, 2, 3, 0, 4, 8, 1, 2, 2, 1)),
    (deconv(16, 2, (4, 6), (5, 4), n=1, stride=2, padding=(2, 1)), (1, 1, 2, 4, 3, 1, 16, 1, 2, 2, 1)),
    (conv(33, 3, (7, 6), n=1, padding=((2, 0), (1, 3)), epilogue=FUSED), (1, 1, 2, 5, 4, 1, 40, 1, 1, 2, 1)),
    # more columns of a position than lanes; pairs of results that two positions share
    (conv(16, 37, (4, 5), taps=(2, 3), n=1, padding=(1, 1)), (1, 1, 2, 4, 5, 1, 16, 1, 2, 2, 1)),
    # one result of a position, two stored at once
    (conv(8, 1, (4, 6), n=2, padding=1), (1, 1, 2, 4, 4, 1, 8, 1, 1, 2, 1)),
    (conv(8, 1, (4, 6), n=2, padding=1), (2, 1, 2, 4, 4, 1, 8, 1, 1, 2, 1)),
    # rows of taps as columns: all taps of a row exist, then not all; two strips; planes
    (deconv(16, 3, (5, 6), (4, 4), n=1, stride=2, padding=1), (2, 1, 2, 4, 3, 1, 16, 1, 2, 2, 1)),
    (deconv(24, 1, (4, 7), (5, 7), n=2, stride=3, padding=(2, 1)), (2, 1, 3, 5, 4, 1, 24, 2, 1, 3, 1)),
    (deconv(8, 2, (3, 3, 4), (2, 3, 3), n=1, stride=2, dtype="fp16"), (2, 2, 2, 3, 4, 1, 8, 1, 1, 2, 1)),
    # bulk copies store rows of results, which begin at half a piece of 16 bytes, at the image's edge inside of one
    (deconv(21, 5, (5, 6), (16, 16), n=2, stride=8, padding=4), (0, 1, 4, 5, 0, 1, 24, 2, 1, 2, 1)),
    (
        deconv(8, 2, (3, 5), (5, 6), n=2, stride=4, padding=1, dtype="fp16", epilogue=BIASED),
        (0, 1, 2, 2, 0, 1, 8, 1, 1, 2, 1),
    ),
    # results in place of all channels of a tile, which is a strip where columns are taps
    (deconv(24, 1, (4, 7), (5, 7), n=2, stride=3, padding=(2, 1)), (2, 1, 3, 5, 2, 1, 8, 2, 1, 1, 1)),
    (conv(33, 3, (7, 6), n=1, padding=((2, 0), (1, 3)), epilogue=FUSED), (1, 1, 6, 4, 4, 1, 16, 1, 1, 1, 1)),
    (deconv(20, 3, n=3, taps=(4, 3), stride=(2, 3), epilogue=FUSED), (0, 2, 3, 3, 0, 2, 16, 2, 1, 1, 1)),
    (deconv(21, 5, (5, 6), (16, 16), n=2, stride=8, padding=4), (0, 1, 4, 5, 0, 1, 16, 2, 1, 1, 1)),
    # bulk copies bring rows as they lie, then pixels, of two blocks of channels, in planes
    (deconv(24, 1, (4, 7), (5, 7), n=2, stride=3, padding=(2, 1)), (2, 1, 3, 5, 2, 1, 24, 2, 1, 1, 1)),
    (deconv(32, 3, (5, 6), (4, 4), n=1, stride=2, padding=1, dtype="fp16"), (2, 1, 4, 4, 3, 1, 16, 1, 2, 1, 1)),
    (deconv(16, 2, (3, 3, 4), (2, 3, 3), n=1, stride=2), (2, 2, 3, 3, 2, 1, 8, 2, 1, 1, 1)),
]
# The same with warpgroups: three pieces of a pixel and an odd number of taps; two warpgroups; a window of three planes.
WIDE_CASES = [
    (deconv(21, 21, (3, 4), (5, 7), n=1, stride=4, padding=((2, 1), (1, 2))), (0, 1, 2, 5, 0, 2, 24, 4, 1, 2, 1)),
    (deconv(21, 5, (5, 6), (16, 16), n=2, stride=8, padding=4), (0, 1, 3, 4, 0, 1, 24, 4, 1, 2, 1)),
    (deconv(20, 3, n=3, taps=(5, 7), stride=(2, 3), epilogue=FUSED), (0, 2, 4, 6, 0, 2, 8, 4, 2, 3, 1)),
    (deconv(16, 8, (3, 3, 4), (2, 3, 2), n=1, stride=2, dtype="fp16"), (0, 2, 2, 3, 0, 4, 16, 4, 1, 2, 1)),
    (conv(33, 3, (7, 6), n=1, padding=((2, 0), (1, 3)), epilogue=FUSED), (1, 1, 2, 5, 4, 1, 40, 4, 1, 2, 1)),
    (conv(33, 3, (7, 6), n=1, padding=((2, 0), (1, 3)), epilogue=FUSED), (2, 1, 2, 5, 4, 1, 40, 4, 1, 2, 1)),
]


def config(values) -> Config:
    return Config(tuple(zip(NAMES, values, strict=True)))


def named(value):
    if hasattr(value, "get_func_name"):
        return value.get_func_name()[:60]
    return value.name if hasattr(value, "name") else "x".join(map(str, value))


@pytest.mark.parametrize(
    ("solver", "signature", "values"),
    [*((SOLVER, *case) for case in CASES), *((WIDE, *case) for case in WIDE_CASES)],
    ids=named,
)
def test_numbers(solver, signature, values, emulating):
    signature = signature.canonical
    geometry, chosen = signature.geometry, config(values)
    # Where a block has one tile, one with several is looked at.
    target = replace(H200, cores=2) if values[9] == 1 else H200
    assert solver.applicable(geometry, target) == Accepted()
    assert solver.tile(geometry, chosen, target).fits
    made = executable(signature, solver.draft(geometry, chosen, target), emulating)
    check_numbers(signature, made)


@pytest.mark.parametrize(("solver", "warps"), [(SOLVER, 1), (WIDE, 4)], ids=["warps", "warpgroups"])
def test_odd_channels_that_are_fetched_often_are_copied_first(solver, warps, emulating, monkeypatch):
    monkeypatch.setattr(tile, "_MOST_FETCHED", 100)
    signature = deconv(21, 5, (5, 6), (16, 16), n=2, stride=8, padding=4).canonical
    found = solver.tile(signature.geometry, config((0, 1, 3, 4, 0, 1, 24, warps, 1, 2, 1)), H200)
    draft = solver.draft(signature.geometry, found.config, H200)
    assert found.padded
    assert len(draft.run) == 2
    check_numbers(signature, executable(signature, draft, emulating))


@pytest.mark.parametrize(
    ("more", "bulk"),
    [({}, True), ({"k": 4}, False), ({"size": (5, 7), "output_padding": 1}, False), ({"epilogue": FUSED}, False)],
    ids=["whole pieces", "columns of no whole pieces", "rows of no whole pieces", "a residual"],
)
def test_rows_of_whole_pieces_are_stored_by_bulk_copies(more, bulk):
    signature = deconv(21, **{"k": 5, "size": (5, 6), "taps": (16, 16), "stride": 8, "padding": 4, **more}).canonical
    tile = WIDE.tile(signature.geometry, config((0, 1, 3, 4, 0, 1, 24, 4, 1, 2, 1)), H200)
    assert (tile.bulk, tile.stored_lines == 0) == (bulk, bulk)


@pytest.mark.parametrize("signature", [deconv(56, 1, (9, 40), (9, 9), stride=3, padding=4, output_padding=2), conv()])
def test_results_that_are_stored_at_once_are_aligned(signature):
    geometry = signature.canonical.geometry
    for chosen in SOLVER.ranked(geometry, H200):
        tile, form = SOLVER.tile(geometry, chosen, H200), SOLVER.tile(geometry, chosen, H200).form
        begins = [(first * form.stride[2] - form.pad[2]) * form.cols for first in
                  range(form.first[2], form.first[2] + form.base[2], tile.box[2])]  # fmt: skip
        steps = [*begins, form.out_size[2] * form.cols, *form.result[:3]]
        assert not any(step % tile.out_vector for step in steps), chosen


@pytest.mark.parametrize(
    ("signature", "word"),
    [
        (conv(padding=2, dilation=2), "dilation"),
        (ConvSignature((2, 5, 6, 8), (4, 3, 3, 4), groups=2, shared_layout="NHWC", dtype="bf16"), "group"),
        (conv(stride=2), "stride"),
        (conv(taps=(1, 1)), "one tap"),
        (conv(8, 200), "200 results of a pixel"),
        (deconv(8, 300, stride=2), "600 columns"),
        (deconv(8, 3, dtype="fp32"), "dtype"),
        (ConvSignature((2, 8, 5, 6), (8, 3, 3, 3), transposed=True, dtype="bf16"), "layout"),
        (conv(mode="wrw"), "wrw"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_refusals_name_their_reason(signature, word):
    problem = signature.canonical.geometry
    verdict = refusal(SOLVER.features, features_of(problem)) or SOLVER.applicable(problem, H200)
    assert isinstance(verdict, Rejected)
    assert word in str(verdict), verdict


def test_warpgroups_need_their_instructions():
    problem = deconv(24, 3, stride=2).canonical.geometry
    assert WIDE.applicable(problem, H200) == Accepted()
    assert isinstance(WIDE.applicable(problem, CUDA_TARGETS["sm_80"]), Rejected)
    assert isinstance(WIDE.applicable(problem, CUDA_TARGETS["sm_120a"]), Rejected)


@pytest.mark.parametrize(
    ("solver", "arch", "signature"),
    [
        (SOLVER, "sm_80", deconv(24, 3, (40, 40), stride=2, padding=1)),
        (SOLVER, "sm_120a", conv(64, 3, (40, 40), padding=1)),
        (SOLVER, "sm_90a", conv(64, 1, (40, 40), padding=1)),
        (WIDE, "sm_90a", deconv(56, 48, (40, 40), stride=4, padding=1)),
    ],
    ids=["sm_80", "sm_120a", "one result", "warpgroups"],
)
def test_untuned_kernels_compile_without_spills(solver, arch, signature, tmp_path):
    target, geometry = CUDA_TARGETS[arch], signature.canonical.geometry
    chosen = solver.default_config(geometry, target)
    assert solver.search_space(geometry, target).contains(chosen)
    sources = solver.draft(geometry, chosen, target).sources
    found = build_unit(list(sources), target, tmp_path / "unit.cubin")
    assert [(r.symbol, r.spill_store_bytes, r.stack_bytes) for r in found if r.stack_bytes or r.spill_store_bytes] == []


def test_rows_that_a_warp_stores_one_after_another_are_counted():
    """An H200: 18.2 us with the narrow tiles, whose rows of 96 bytes two warps store; 10.3 with the wide ones."""
    geometry = deconv(32, 3, (56, 56), (2, 2), n=64, stride=2).canonical.geometry
    narrow, wide, low = (
        Config(tuple(zip(NAMES, (0, 1, *values), strict=True)))
        for values in ((8, 8, 0, 2, 32, 2, 1, 2, 8), (8, 56, 0, 2, 32, 4, 1, 2, 2), (2, 56, 0, 2, 32, 2, 1, 2, 8))
    )
    lines = [SOLVER.tile(geometry, each, H200).stored_lines for each in (narrow, wide, low)]
    assert lines == [8, 4, 2]
    assert SOLVER.predict(geometry, narrow, H200) > SOLVER.predict(geometry, low, H200)
    assert SOLVER.default_config(geometry, H200)["tile_w"] == 56
