"""Depthwise and grouped kernels against PyTorch's float64 answer: widths, borders, phases, tails, special values."""

from __future__ import annotations

import pytest
from draft_call import compile_drafts
from narrow_cases import (
    assert_defaults_are_right,
    assert_right,
    assert_specials_spread,
    draft_all,
    in_turns,
    sweep_configs,
)

import levels
from tilesmith.package.records import Kind, new_entry
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.solvers.c.common.axis import axis_phases, column_tiles
from tilesmith.solvers.c.grouped.solver import DepthwiseSolver, GroupedSolver
from tilesmith.solvers.c.grouped.tile import GroupedTile, grouped_tile
from tilesmith.solvers.solver import Config, Rejected
from tilesmith.targets.cpu import CPU_TARGETS
from tilesmith.toolchain.build import build_unit

NHWC = {"shared_layout": "NHWC"}
NDHWC = {"shared_layout": "NDHWC"}
ALL = Epilogue(bias=True, activation="relu", residual=True)
SWISHED, BENT = (Epilogue(bias=True, activation=name, residual=True) for name in ("hardswish", "gelu_tanh"))

DEPTHWISE = [
    ConvSignature((2, 9, 11, 19), (19, 3, 3, 1), padding=1, groups=19, **NHWC),
    ConvSignature((1, 5, 6, 80), (80, 3, 3, 1), padding=1, groups=80, **NHWC),  # two blocks of twins, one vector more
    ConvSignature((1, 8, 9, 32), (32, 5, 5, 1), padding=2, groups=32, epilogue=SWISHED, **NHWC),
    ConvSignature((1, 10, 12, 18), (18, 3, 2, 1), padding=(3, 1), stride=(2, 3), dilation=(2, 1), groups=18, **NHWC),
    ConvSignature((1, 7, 6, 5), (15, 3, 3, 1), padding=1, groups=5, **NHWC),  # multiplier 3
    ConvSignature((1, 7, 6, 8), (16, 3, 3, 1), padding=1, groups=8, mode="bwd", **NHWC),
    ConvSignature((2, 9, 8, 33), (33, 3, 3, 1), padding=1, stride=2, groups=33, mode="bwd", epilogue=BENT, **NHWC),
    ConvSignature((1, 9, 8, 16), (16, 1, 2, 1), stride=3, groups=16, mode="bwd", **NHWC),  # phases without taps
    ConvSignature((1, 40, 20), (20, 31, 1), padding=15, groups=20, shared_layout="NWC"),
    ConvSignature((1, 3, 5, 6, 17), (17, 3, 3, 3, 1), padding=1, groups=17, shared_layout="NDHWC"),
    ConvSignature((1, 4, 5, 3, 17), (17, 2, 3, 3, 1), stride=2, padding=1, groups=17, mode="bwd", **NDHWC),
    ConvSignature((1, 6, 6, 4), (4, 2, 2, 1), padding=4, groups=4, **NHWC),  # pads wider than the filter
    ConvSignature((1, 8, 8, 24), (24, 3, 3, 1), padding=1, groups=24, input_strides=(3000, 300, 37, 1), **NHWC),
]  # fmt: skip
GROUPED = [
    ConvSignature((2, 7, 9, 40), (40, 3, 3, 4), padding=1, groups=10, **NHWC),
    ConvSignature((1, 7, 9, 15), (25, 3, 3, 3), padding=1, groups=5, epilogue=ALL, **NHWC),
    ConvSignature((1, 6, 7, 48), (24, 3, 3, 8), padding=1, stride=2, groups=6, epilogue=SWISHED, **NHWC),
    ConvSignature((1, 6, 7, 60), (90, 2, 3, 20), padding=1, dilation=2, groups=3, **NHWC),
    ConvSignature((1, 6, 7, 14), (34, 3, 3, 7), padding=(0, 2), groups=2, **NHWC),
    ConvSignature((1, 6, 7, 20), (50, 3, 3, 2), padding=1, stride=2, groups=10, mode="bwd", **NHWC),
    ConvSignature((1, 6, 7, 66), (10, 3, 3, 33), padding=2, groups=2, mode="bwd", epilogue=ALL, **NHWC),
    ConvSignature((1, 12, 24), (24, 4, 6), padding=1, groups=4, shared_layout="NWC", mode="bwd", stride=3),
]
ONE = Config((("tile_h", 1), ("tile_w", 1), ("vectors", 1), ("item_blocks", 1), ("stream_stores", 0), ("prefetch", 0)))
# Without compact texts each would be stored in more than 10 kB for AVX-512.
LONG = [
    (DepthwiseSolver(), ConvSignature((64, 7, 7, 768), (768, 7, 7, 1), padding=3, groups=768, dtype="bf16", **NHWC)),
    (DepthwiseSolver(), ConvSignature((64, 14, 14, 200), (200, 3, 3, 1), padding=1, groups=200, dtype="bf16",
                                      epilogue=SWISHED, **NHWC)),
    (GroupedSolver(), ConvSignature((64, 28, 28, 256), (256, 3, 3, 8), padding=1, groups=32, dtype="bf16", **NHWC)),
    (GroupedSolver(), ConvSignature((32, 48, 48, 128), (128, 5, 5, 8), padding=2, stride=2, groups=16, dtype="bf16",
                                    mode="bwd", **NHWC)),
]  # fmt: skip


def test_defaults_are_right(level):
    assert_defaults_are_right(DepthwiseSolver(), DEPTHWISE, level)
    assert_defaults_are_right(GroupedSolver(), GROUPED, level)


def test_any_filter_layout_is_read(level):
    solver = GroupedSolver()
    signature = ConvSignature((1, 6, 7, 24), (16, 6, 3, 3), groups=4, padding=1, kernel_layout="NCHW",
                              input_layout="NHWC", output_layout="NHWC")  # fmt: skip
    assert_right(signature, draft_all(solver, [signature], level)[0], level)


def test_random_configs_are_right(level):
    sweep_configs(DepthwiseSolver(), DEPTHWISE, level, 3)
    sweep_configs(GroupedSolver(), GROUPED, level, 4)


@pytest.mark.parametrize("looped", [False, True], ids=["results alone", "results in a loop"])
def test_compact_texts_are_right(level, looped, monkeypatch):
    """Texts of kernels that would be long: loops over rows and results, borders that ask what lies in the image."""
    for solver, signatures in ((DepthwiseSolver(), DEPTHWISE), (GroupedSolver(), GROUPED)):
        chosen = in_turns(signatures[looped::2] if level is levels.HIGHEST else signatures[looped::3], level)
        configs = [solver.default_config(signature.geometry, level) for signature in chosen]
        with monkeypatch.context() as patch:
            patch.setattr(GroupedTile, "compact", True)
            patch.setattr(GroupedTile, "results_looped", looped)
            drafts = [
                solver.draft(each.geometry, config.replace(tile_h=2, tile_w=3), level)
                for each, config in zip(chosen, configs, strict=True)
            ]
        compile_drafts(drafts, level)
        for signature, draft in zip(chosen, drafts, strict=True):
            assert_right(signature, draft, level)
            assert_specials_spread(signature, draft, level)


@pytest.mark.parametrize("arch", ["x86_64-v4", "x86_64-v4-bf16"])
def test_a_kernel_adds_less_than_10_kb_to_a_package(arch, tmp_path):
    target = CPU_TARGETS[arch]
    for number, (solver, signature) in enumerate(LONG):
        config = solver.default_config(signature.geometry, target)
        source = solver.draft(signature.geometry, config, target).sources[0]
        build_unit([source], target, tmp_path / f"{number}.so")
        binary = (tmp_path / f"{number}.so").read_bytes()
        assert len(new_entry(Kind.BINARY, "0" * 64, binary).stored) < 10_000, (signature, str(config))
        assert len(binary) < 60_000, (signature, str(config))


def test_rows_that_meet_alike_are_one_run():
    """Every product of a tile appears once, in the runs as in the rows."""
    for signature in (*DEPTHWISE, *GROUPED):
        problem = signature.geometry
        for rows in (1, 2, 4):
            tile = grouped_tile(problem, ONE.replace(tile_h=rows), CPU_TARGETS["x86_64-v3"])
            for kind in tile.strips:
                found = [
                    (depth, run.first + at, i, r + run.step * at + kind.depth_step(problem.filter[1]) * depth)
                    for depth in range(len(kind.depth.taps))
                    for run in kind.runs(problem.filter[1])
                    for at in range(run.count)
                    for i, r in run.users
                ]
                of_all = kind.input_rows(problem.filter[1])
                deep = len(of_all) // max(1, len(kind.depth.taps))
                want = [(at // deep, at % deep, i, r) for at, row in enumerate(of_all) for i, r in row.users]
                assert found == want


@pytest.mark.parametrize("target", [each for each in levels.HERE if each.vector_bytes >= 32], ids=lambda t: t.arch)
def test_streaming_stores_are_right(target):
    """Stores past the caches need aligned addresses; odd channel counts do not have them."""
    solver = DepthwiseSolver()
    for dtype in ("fp32", "bf16"):
        for channels in (32, 35):
            signature = ConvSignature(
                (1, 6, 7, channels), (channels, 3, 3, 1), padding=1, groups=channels, dtype=dtype, **NHWC
            )
            config = solver.default_config(signature.geometry, target).replace(stream_stores=1)
            assert_right(signature, solver.draft(signature.geometry, config, target), target)


def test_one_artifact_serves_every_batch():
    target, solver = CPU_TARGETS["x86_64-v4-bf16"], DepthwiseSolver()
    first, second = (ConvSignature((n, 9, 9, 32), (32, 3, 3, 1), padding=1, groups=32, **NHWC).geometry for n in (1, 5))
    config = solver.default_config(first, target)
    assert solver.draft(first, config, target).sources == solver.draft(second, config, target).sources


def test_drafts_are_reproducible():
    target, solver = CPU_TARGETS["aarch64"], GroupedSolver()
    problem = GROUPED[0].geometry
    config = solver.default_config(problem, target)
    assert solver.draft(problem, config, target) == solver.draft(problem, config, target)


def test_refusals_have_reasons():
    target = CPU_TARGETS["x86_64-v3"]
    shape = ((1, 9, 9, 8), (8, 3, 3, 4))
    for solver, signature, reason in [
        (DepthwiseSolver(), ConvSignature((1, 8, 9, 9), (8, 1, 3, 3), groups=8), "layout not read"),
        (DepthwiseSolver(), GROUPED[0], "group width not covered"),
        (GroupedSolver(), DEPTHWISE[0], "group width not covered"),
        (GroupedSolver(), ConvSignature((1, 9, 9, 8), (8, 3, 3, 8), **NHWC), "group width not covered"),
        (GroupedSolver(), ConvSignature(*shape, groups=2, mode="wrw", **NHWC), "direction not covered"),
        (GroupedSolver(), ConvSignature(*shape, groups=2, dtype="fp64", **NHWC), "dtype not covered"),
    ]:  # fmt: skip
        verdict = solver.applicable(signature.geometry, target)
        assert isinstance(verdict, Rejected)
        assert verdict.reason == reason


def test_phases_cover_every_result_once():
    for stride, dilation, pad, taps in ((1, 1, 1, 3), (2, 1, 0, 1), (3, 2, 4, 3), (2, 2, 1, 2), (5, 1, 2, 3)):
        signature = ConvSignature((1, 17, 17, 4), (4, taps, taps, 1), stride=stride, dilation=dilation, padding=pad,
                                  groups=4, mode="bwd", **NHWC)  # fmt: skip
        problem = signature.geometry
        met = {}
        for phase in axis_phases(problem, 1):
            for u in range(phase.count):
                position = phase.out_start + u * phase.out_step
                assert position not in met
                met[position] = {(t.index, u * phase.in_step + t.offset) for t in phase.taps}
        assert sorted(met) == list(range(17))
        for h, pairs in met.items():
            inside = {(r, o) for r, o in pairs if 0 <= o < problem.output[1]}
            assert inside == {
                (r, o) for r in range(taps) for o in range(problem.output[1]) if o * stride - pad + r * dilation == h
            }


def test_column_tiles_cover_the_axis():
    phase = axis_phases(DEPTHWISE[0].geometry, 2)[0]
    tiles = column_tiles(phase, 4)
    columns = [t.start + i * t.width + j for t in tiles for i in range(t.repeat) for j in range(t.width)]
    assert columns == list(range(11))
    assert [t.inside for t in tiles] == [False, True, False]


def test_half_lines_are_streamed_by_small_tiles_alone():
    """A vector of 32 bytes is half a line; few lines wait for their other half at a time."""
    problem = ConvSignature((8, 56, 56, 144), (144, 3, 3, 1), groups=144, padding=1, shared_layout="NHWC").geometry
    solver = DepthwiseSolver()
    for arch, cells in (("x86_64-v2", ()), ("x86_64-v3", (2, 6)), ("x86_64-v4", (2, 6, 8, 10))):
        target = CPU_TARGETS[arch]
        space, default = solver.search_space(problem, target), solver.default_config(problem, target)
        assert space.contains(default)
        streamed = [n for n in (2, 6, 8, 10) if space.contains(default.replace(tile_h=1, tile_w=n, stream_stores=1))]
        assert tuple(streamed) == cells
        assert default["stream_stores"] == (arch != "x86_64-v2")


def test_half_lines_wait_for_no_sum_over_a_groups_channels():
    """A store of half a line that is followed by much arithmetic goes to memory by itself."""
    large = {"shared_layout": "NHWC", "padding": 1, "groups": 32}
    geometry = ConvSignature((16, 56, 56, 128), (128, 3, 3, 4), **large).geometry
    for arch, streams in (("x86_64-v3", 0), ("x86_64-v4", 1)):
        assert GroupedSolver().default_config(geometry, CPU_TARGETS[arch])["stream_stores"] == streams
