"""Groups as layers of the window kernel, without a GPU: what its maps bring and take away, in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tensor_boxes import loaded_box, store_box

from tilesmith.plan.records import TensorMap
from tilesmith.plan.slots import slots_of
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.layouts import parse_layout
from tilesmith.problems.samples import sample_args
from tilesmith.solvers.cuda.halo.solver import HaloSm90Solver
from tilesmith.solvers.cuda.halo.tile import HaloTile
from tilesmith.solvers.solver import Accepted, Rejected
from tilesmith.targets.cuda import cuda_target
from tilesmith.toolchain.build import build_unit
from torch_answer import torch_answer

H200 = cuda_target("sm_90a", 132)
SOLVER = HaloSm90Solver()


def conv(x, w, mode, groups, layout="NHWC", **more):
    return ConvSignature(x, w, mode=mode, groups=groups, shared_layout=layout, dtype="bf16", **more).canonical


CASES = [
    *(conv((2, 6, 7, 112), (48, 3, 3, 56), mode, 2, padding=(1, 2)) for mode in ("fwd", "bwd")),
    *(conv((1, 7, 6, 216), (24, 3, 2, 72), mode, 3, padding=1, dilation=(2, 1)) for mode in ("fwd", "bwd")),
    *(conv((1, 3, 4, 5, 128), (128, 2, 3, 3, 64), mode, 2, "NDHWC", padding=1) for mode in ("fwd", "bwd")),
]


def tile_at(t: HaloTile, number: int) -> tuple[int, int, list[int]]:
    """Group, first channel and place (w, h, [d,] n) of a tile, in the kernel's order."""
    rest, channels = divmod(number, t.tiles_m)
    group, m = divmod(channels, t.tiles_each)
    place = []
    for count, size in zip(t.across, (t.value["tile_w"], t.value["tile_h"]), strict=True):
        rest, at = divmod(rest, count)
        place.append(at * size)
    for count in t.pixels.base[2:]:
        rest, at = divmod(rest, count)
        place.append(at)
    return group, m * t.block_m, [*place, rest]


def run(t: HaloTile, maps: list[TensorMap], pixels, filter_, out) -> None:
    """All tiles of ``t`` as ``halo/kernel.cu`` computes them."""
    form, (w_pitch, _, _), v = t.form, t.window, t.value
    map_pixels, map_filter, map_out = maps
    for number in range(t.tiles):
        group, first, place = tile_at(t, number)

        def at_channel(channel, channels, where, group=group):
            return (channel, group, *where) if len(where) == 3 else (group * channels + channel, *where)

        corner = [p + c for p, c in zip(place[:-1], t.pixels.corner, strict=True)]
        sums = np.zeros((t.block_m, t.block_n))
        for block in range(t.blocks):
            channel = block * t.block_k
            window = loaded_box(pixels, map_pixels, at_channel(channel, form.channels, (*corner, place[-1])))
            window = np.concatenate((window, np.full((t.block_n, t.block_k), np.nan)))  # of columns that are no pixels
            for row, tap in zip(t.rows, form.taps.index, strict=True):
                if form.b_columns:
                    a = [
                        loaded_box(filter_, map_filter, (first + q, tap, channel, group))
                        for q in range(0, t.block_m, 64)
                    ]
                    by = np.concatenate(a, 1).T
                else:
                    by = loaded_box(filter_, map_filter, (channel, tap, first, group))
                sums += by @ window[row : row + t.block_n].T
        wanted = [h * w_pitch + w for h in range(v["tile_h"]) for w in range(v["tile_w"])]
        for q in range(0, t.block_m, 64):
            store_box(out, map_out, at_channel(first + q, form.cols, place), sums[q : q + 64, wanted].T)


@pytest.mark.parametrize("signature", CASES, ids=lambda s: s.key()[:70])
def test_windows_and_filters_of_groups_add_up(signature):
    g = signature.geometry
    assert SOLVER.applicable(g, H200) == Accepted()
    args = sample_args(signature, 3)
    slots = [np.ravel(arg).astype(np.float64) for arg in args]
    wanted = torch_answer(signature, args)
    *_, spec = slots_of(signature)
    layout = parse_layout({"fwd": signature.output_layout, "bwd": signature.input_layout}[signature.mode])
    axes = [layout.order.index(a) for a in "NCDHW" if a in layout.order]
    ranked = SOLVER.ranked(g, H200)
    for config in {ranked[0], *(c for c in ranked[::40] if c["warpgroups"] != 2)}:
        t = SOLVER.tile(g, config, H200)
        (launch,) = SOLVER.draft(g, config, H200).run
        assert not t.value["resident"] or launch.grid[0] % t.tiles_m == 0  # a block's channels stay the same
        found = np.full(spec.nbytes // 2, np.nan)
        run(t, [p for p in launch.parameters if isinstance(p, TensorMap)], *slots, found)
        assert np.allclose(found.reshape(spec.shape).transpose(axes), wanted, atol=1e-9), str(config)


@pytest.mark.parametrize(
    ("signature", "word"),
    [
        (conv((2, 8, 8, 64), (64, 3, 3, 4), "fwd", 16), "groups of 4 and 4 channels"),
        (conv((2, 8, 8, 64), (72, 3, 3, 16), "fwd", 4), "groups of 16 and 18 channels"),
        (conv((1, 4, 8, 8, 112), (128, 3, 3, 3, 56), "fwd", 2, "NDHWC"), "window"),
    ],
    ids=str,
)
def test_refusals_name_their_reason(signature, word):
    verdict = SOLVER.applicable(signature.geometry, H200)
    assert isinstance(verdict, Rejected)
    assert word in str(verdict)


def test_kernels_of_groups_compile_without_spills(tmp_path):
    drafts = []
    for mode in ("fwd", "bwd"):
        g = conv((64, 28, 28, 448), (448, 3, 3, 56), mode, 8, padding=1).geometry
        drafts.append(SOLVER.draft(g, SOLVER.default_config(g, H200), H200))
    found = build_unit([s for d in drafts for s in d.sources], H200, tmp_path / "unit.cubin")
    assert [(r.symbol, r.spill_store_bytes) for r in found if r.spill_store_bytes or r.stack_bytes] == []
    assert [r.warnings for r in found if any("C75" in w for w in r.warnings)] == []
