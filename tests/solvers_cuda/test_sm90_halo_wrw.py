"""Backward weights by wgmma on windows with their halo, without a GPU: addresses in NumPy, the space, the text."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tensor_boxes import loaded_box

from tilesmith.plan.assemble import assemble
from tilesmith.plan.records import Launch, TensorMap
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.layouts import parse_layout
from tilesmith.problems.samples import sample_args
from tilesmith.solvers.cuda.common.conv_form import spatial_axes
from tilesmith.solvers.cuda.halo_wrw.solver import HaloWrwSm90Solver
from tilesmith.solvers.cuda.halo_wrw.tile import HaloWrwTile
from tilesmith.solvers.solver import Accepted, Config, Rejected
from tilesmith.targets.cuda import CUDA_TARGETS, cuda_target
from tilesmith.toolchain.build import build_unit
from torch_answer import torch_answer

H200 = cuda_target("sm_90a", 132)
SOLVER = HaloWrwSm90Solver()


def conv(x, w, layout="NHWC", mode="wrw", dtype="bf16", **more):
    return ConvSignature(input_shape=x, kernel_shape=w, mode=mode, shared_layout=layout, dtype=dtype, **more)


SMALL = [
    conv((2, 9, 11, 8), (8, 3, 3, 8), padding=1),
    conv((1, 8, 13, 72), (72, 3, 3, 72), padding=0),
    conv((2, 12, 9, 40), (136, 3, 2, 40), padding=(2, 1), dilation=(2, 3)),
    conv((1, 11, 12, 24), (16, 5, 7, 24), padding=(1, 3)),
    conv((2, 17, 6, 16), (8, 5, 1, 16), padding=(2, 0), dilation=(2, 1)),
    conv((2, 30, 16), (24, 7, 16), "NWC", padding=3),
    conv((1, 8300, 8), (8, 3, 8), "NWC", padding=1),
    conv((2, 5, 6, 7, 8), (8, 3, 3, 2, 8), "NDHWC", padding=1, dilation=(2, 1, 1)),
    conv((1, 6, 9, 112), (48, 3, 3, 56), padding=1, groups=2),
    conv((1, 5, 6, 5, 24), (48, 2, 3, 3, 8), "NDHWC", padding=1, groups=3),
]


def points(signature, count, seed=0):
    """The untuned choice and random points of the space."""
    geometry, rng = signature.canonical.geometry, random.Random(seed)
    space, found = SOLVER.search_space(geometry, H200), [SOLVER.default_config(geometry, H200)]
    for _ in range(30000):
        config = Config(tuple((name, rng.choice(values)) for name, values in space.axes.items()))
        if space.allowed(config):
            found.append(config)
        if len(found) == count:
            break
    return geometry, list(dict.fromkeys(found))


def run_block(t: HaloWrwTile, launch: Launch, part: tuple[int, int, int, int, int], dy, x, out):
    """One unit (group, blocks of K and C, plane of taps, part of its lines), all slices, as the kernel does it."""
    v, g = t.value, t.geometry
    group_at, kb, cb, plane, lines = part

    def at_channel(first, channels, *where):
        """Coordinates in a map: groups are an axis of their own, but for three spatial axes."""
        if t.groups == 1 or deep:
            return (group_at * channels + first, *where)
        return (first, group_at, *where)

    map_dy, map_x = (p for p in launch.parameters if isinstance(p, TensorMap))
    w_pitch = t.window[0]
    chunk = v["warpgroups_lines"] * v["lines"]
    tiles_w, tiles_h = t.across
    deep = spatial_axes(g) == 3
    sums = np.zeros((t.warpgroups, v["lines"], 64, t.columns))
    for tile in range(t.tiles):
        rest, wt = divmod(tile, tiles_w)
        rest, ht = divmod(rest, tiles_h)
        n, d = divmod(rest, g.output[0])
        w, h = wt * v["tile_w"], ht * v["tile_h"]
        window = np.full((t.x_rows, v["block_c"]), 0.0)
        at = (w - g.padding[2], h - g.padding[1] + t.part_rows[lines // chunk])
        depth = d - g.padding[0] + plane * g.dilation[0]
        at = at_channel(cb * v["block_c"], g.c, *at, *((depth, n) if deep else (n,)))
        loaded = loaded_box(x, map_x, at)
        window[: len(loaded)] = loaded
        for group in range(v["warpgroups_k"]):
            pixels = np.zeros((t.dy_rows, v["product_k"]))
            for i in range(1 if t.whole else v["tile_h"]):
                first = (kb * v["warpgroups_k"] + group) * v["product_k"]
                loaded = loaded_box(dy, map_dy, at_channel(first, g.k, w, h + i, *((d, n) if deep else (n,))))
                begin = t.dy_lead + i * w_pitch
                assert v["product_k"] == 64 or begin % 2 == 0  # copies begin at multiples of 128 bytes
                pixels[begin : begin + len(loaded)] = loaded
            a = pixels[: t.steps * 16]
            if v["product_k"] == 32:
                a = np.concatenate((a, pixels[t.row_step :][: t.steps * 16]), 1)
            assert a.shape == (t.steps * 16, 64)
            for line_group in range(v["warpgroups_lines"]):
                for i in range(v["lines"]):
                    first = t.line_rows[lines + line_group * v["lines"] + i]
                    for tap in range(v["taps"]):
                        rows = window[first + tap * t.tap_step :][: t.steps * 16]
                        assert len(rows) == t.steps * 16
                        wg = line_group * v["warpgroups_k"] + group
                        sums[wg, i][:, tap * v["block_c"] : (tap + 1) * v["block_c"]] += a.T @ rows
    for wg in range(t.warpgroups):
        for i in range(v["lines"]):
            line = lines + wg // v["warpgroups_k"] * v["lines"] + i
            for column in range(t.columns):
                across, along = line // t.pieces, line % t.pieces * v["taps"] + column // v["block_c"]
                r, s = (along, across) if t.along_h else (across * t.rows_each, along)
                c, k0 = (
                    cb * v["block_c"] + column % v["block_c"],
                    (kb * v["warpgroups_k"] + wg % v["warpgroups_k"]) * v["product_k"],
                )
                rows = sums[wg, i, :, column]
                for half in (0,) if v["product_k"] == 64 else (1, 0):  # the second row of taps comes first
                    if r + half < g.filter[1] and s < g.filter[2] and c < g.c and k0 < g.k:
                        found = rows if v["product_k"] == 64 else rows[32 * (1 - half) :][:32]
                        of_group = out[group_at * g.k : (group_at + 1) * g.k]
                        of_group[k0 : k0 + v["product_k"], plane, r + half, s, c] += found[: g.k - k0]


@pytest.mark.parametrize("signature", SMALL, ids=lambda s: s.key()[:70])
def test_windows_and_lines_add_up_to_the_weights(signature):
    signature = signature.canonical
    args = sample_args(signature, 3)
    dy, x = (np.ravel(arg).astype(np.float64) for arg in args)
    geometry, configs = points(signature, 4)
    for config in configs:
        t = SOLVER.tile(geometry, config, H200)
        launch = SOLVER.draft(geometry, config, H200).run[0]
        found = np.zeros((geometry.k, *geometry.filter, t.geometry.c))
        chunk = t.value["warpgroups_lines"] * t.value["lines"]
        for part in np.ndindex(t.groups, *t.blocks, geometry.filter[0], t.parts):
            run_block(t, launch, (*part[:4], part[4] * chunk), dy, x, found)
        layout = parse_layout(signature.kernel_layout)
        wanted = torch_answer(signature, args)  # K, C, [D, H, W]
        axes = [layout.order.index(a) for a in "NCDHW" if a in layout.order]
        shape = (geometry.k, *signature.kernel_shape[1:-1], t.geometry.c)
        assert np.allclose(found.reshape(shape).transpose(axes), wanted, atol=1e-9), str(config)


LARGE = [
    conv((64, 56, 56, 64), (64, 3, 3, 64), padding=1),
    conv((64, 7, 7, 512), (512, 3, 3, 512), padding=1),
    conv((2, 96, 96, 96, 32), (32, 3, 3, 3, 32), "NDHWC", padding=1),
    conv((8, 40, 40, 96), (96, 5, 7, 96), padding=(2, 3), dtype="fp16"),
    conv((64, 28, 28, 448), (448, 3, 3, 56), padding=1, groups=8),
]


@pytest.mark.parametrize("signature", SMALL + LARGE, ids=lambda s: s.key()[:70])
def test_choices_lie_in_the_space_and_make_plans(signature):
    geometry, configs = points(signature, 6)
    space, ranked = SOLVER.search_space(geometry, H200), SOLVER.ranked(geometry, H200)
    assert all(space.contains(config) for config in ranked[:50])
    for config in configs + ranked[:5]:
        assert 0 < SOLVER.predict(geometry, config, H200) < 1
        draft = SOLVER.draft(geometry, config, H200)
        assert draft == SOLVER.draft(geometry, config, H200)
        assert max(step.shared_bytes for step in draft.run) <= H200.shared_bytes_per_block
        assemble(draft, signature.canonical, SOLVER.name, str(config), H200, ["0" * 64] * len(draft.sources))


def test_sizes_are_no_part_of_the_text():
    signatures = (
        conv((64, 56, 56, 64), (64, 3, 3, 64), padding=1),
        conv((3, 58, 56, 128), (256, 3, 3, 128), padding=0),
    )
    config = SOLVER.default_config(signatures[0].geometry, H200).replace(tile_w=28, split_n=7)
    drafts = [SOLVER.draft(signature.geometry, config, H200) for signature in signatures]
    assert drafts[0].sources == drafts[1].sources
    assert drafts[0].run != drafts[1].run


def test_a_copy_brings_what_its_barrier_counts():
    """Bytes of the boxes of a stage, as the kernel announces them."""
    for signature in SMALL + LARGE:
        geometry, configs = points(signature, 8)
        for config in configs:
            t = SOLVER.tile(geometry, config, H200)
            launch = SOLVER.draft(geometry, config, H200).run[0]
            map_dy, map_x = (p for p in launch.parameters if isinstance(p, TensorMap))
            of_dy, of_x = ([size for size in made.box[1:] if size > 1] for made in (map_dy, map_x))
            assert np.prod(of_x) == np.prod(t.window)
            assert np.prod(of_dy) == (t.window[0] * t.value["tile_h"] if t.whole else t.value["tile_w"])
            assert np.prod(map_x.box) <= t.x_rows * t.value["block_c"]
            assert max(*map_x.box, *map_dy.box) <= 256
            assert np.prod(launch.grid) * t.block_quads * 16 == t.partial_bytes or t.value["split_n"] == 1


@pytest.mark.parametrize(
    ("signature", "word"),
    [
        (conv((2, 8, 8, 64), (64, 3, 3, 64)).canonical, ""),
        (conv((2, 8, 8, 64), (64, 1, 1, 64)), "tap"),
        (conv((2, 8, 9, 8, 64), (64, 3, 1, 1, 64), "NDHWC"), "tap"),
        (conv((2, 8, 8, 64), (64, 3, 3, 64), stride=2), "stride"),
        (conv((2, 8, 8, 64), (64, 3, 3, 64), mode="fwd"), "direction"),
        (conv((2, 8, 8, 36), (64, 3, 3, 36)), "16 bytes"),
        (conv((2, 8, 8, 64), (72, 3, 3, 16), groups=4), "groups of 16 and 18 channels"),
        (conv((2, 300, 8, 64), (64, 3, 3, 64), dilation=(120, 1)), "window"),
    ],
    ids=str,
)
def test_refusals_name_their_reason(signature, word):
    verdict = SOLVER.applicable(signature.canonical.geometry, H200)
    assert isinstance(verdict, Rejected if word else Accepted)
    assert word in str(verdict)
    for arch in sorted(set(CUDA_TARGETS) - {"sm_90a"}):
        assert isinstance(SOLVER.applicable(signature.canonical.geometry, CUDA_TARGETS[arch]), Rejected)


def test_kernels_compile_without_spills(tmp_path):
    drafts = []
    for signature in LARGE[::2]:
        geometry = signature.canonical.geometry
        drafts.append(SOLVER.draft(geometry, SOLVER.default_config(geometry, H200), H200))
    geometry, configs = points(LARGE[3], 40, 1)
    for name, value in (("warpgroups_k", 2), ("lines", 2), ("block_c", 32), ("taps", 1)):
        config = next(c for c in configs if c[name] == value).replace(split_n=1)
        drafts.append(SOLVER.draft(geometry, config, H200))
    sources = {source.symbol: source for draft in drafts for source in draft.sources}
    found = build_unit(list(sources.values()), H200, tmp_path / "unit.cubin")
    assert [(r.symbol, r.spill_store_bytes) for r in found if r.spill_store_bytes or r.stack_bytes] == []
    assert [r.warnings for r in found if any("C75" in w for w in r.warnings)] == []
