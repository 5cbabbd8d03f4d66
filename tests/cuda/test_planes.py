"""Planes of 3-D filters that are left out: which ones, what the zeros times them add, and the launches."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from cuda_chain import H200
from stand_in import stand_in

from tilesmith.codegen.cuda.unit import Argument, Header, integers, unit
from tilesmith.plan.records import Pointer, Space
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.solvers.cuda.common.form import Sm90Form
from tilesmith.solvers.cuda.common.groups import grouped_form
from tilesmith.solvers.cuda.common.planes import leaves_out, look, look_bytes, multiplies_padding, planes, share_beyond
from tilesmith.solvers.cuda.common.sm90 import shared_text
from tilesmith.solvers.cuda.halo.solver import HaloSm90Solver
from tilesmith.solvers.cuda.wgmma.solver import ConvSm90Solver
from tilesmith.toolchain.build import build_unit

SOLVERS = (HaloSm90Solver(), ConvSm90Solver())
LARGE = (1, 6, 240, 416, 96), (96, 3, 3, 3, 96)
SMALL = (1, 6, 4, 4, 96), (96, 3, 3, 3, 96)
# Depth of the input, planes of the filter, padding, dilation, step.
CASES = [
    (9, 3, 1, 1, 1),
    (1, 3, 1, 1, 1),
    (4, 5, 2, 1, 1),
    (2, 3, 3, 2, 1),
    (7, 4, 3, 1, 2),
    (3, 2, 0, 1, 1),
    (5, 3, 4, 1, 1),
]


def volume(x=LARGE[0], w=LARGE[1], mode="fwd", dtype="bf16", **more):
    more = {"padding": 1} | more
    return ConvSignature(x, w, mode=mode, shared_layout="NDHWC", dtype=dtype, **more)


def form_of(signature) -> Sm90Form:
    found = grouped_form(signature.canonical.geometry)
    assert isinstance(found, Sm90Form)
    return found


def deep(case, mode):
    size, count, padding, dilation, step = case
    return form_of(
        volume((2, size, 3, 3, 8), (8, count, 2, 2, 8), mode, padding=(padding, 0, 0), dilation=(dilation, 1, 1),
               stride=(step, 1, 1))
    )  # fmt: skip


def depths(form):
    """For each first plane of a result's window whether each plane of the filter meets pixels."""
    window = form.a
    begins = [i * window.step[2] + window.corner[2] for i in range(window.base[2])]
    offsets = sorted({offset >> 16 for offset in form.taps.offset})
    return {begin: [0 <= begin + offset < window.dims[3] for offset in offsets] for begin in begins}


def launched(source, launch, pointers):
    emulator = stand_in()
    emulator.emulate(source)
    taken = iter(pointers)
    values = [next(taken) if isinstance(p, Pointer) else p.value for p in launch.parameters]
    cells = (ctypes.c_longlong * len(values))(*values)
    parameters = (ctypes.c_void_p * len(values))(*(ctypes.addressof(cells) + 8 * i for i in range(len(values))))
    emulator.kernels[source.symbol]((ctypes.c_uint * 3)(*launch.grid), (ctypes.c_uint * 3)(*launch.block), parameters)


@pytest.mark.parametrize("case", CASES)
def test_a_tile_leaves_out_planes_that_meet_no_pixels_and_no_others(case):
    """``planes.cu``, for tiles of one depth and of several."""
    form = deep(case, "fwd")
    meets = depths(form)
    begins = sorted(meets)
    out = np.zeros((len(begins), len(begins), 2), np.int32)
    arguments = (
        Argument("out", "int *", Pointer(Space.SLOT, 0)), Argument("beyond", "const float *", None),
        *integers("int", in_size_d=form.a.dims[3], begin=begins[0], step=form.a.step[2], count=len(begins)),
    )  # fmt: skip
    body = (
        """namespace @SYM@_scope {
@HEADER@
"""
        + shared_text("planes")
        + """
extern "C" __global__ void @SYM@(TS_PARAMETERS) {
  const Run run = TS_RUN;
  for (int i = 0; i < run.count; i++)
    for (int j = i; j < run.count; j++) {
      const Planes p = planes_between(run, run.begin + i * run.step, run.begin + j * run.step);
      int *to = run.out + (i * run.count + j) * 2;
      to[0] = p.first, to[1] = p.last;
    }
}
} // namespace @SYM@_scope
"""
    )
    header = Header(
        {"TAPS": len(form.taps.offset), "PLANES": planes(form)}, {"LEAVES_OUT": True},
        tables={"tap_offset": form.taps.offset}, arguments=arguments,
        functions="typedef unsigned ts_u32;\n#define TS_DEVICE static\n",
    )  # fmt: skip
    source = unit("planes", "bf16", "t", H200.arch, "", body, header)
    emulator = stand_in()
    emulator.emulate(source)
    values = [out.ctypes.data, *(a.parameter.value for a in arguments[2:])]
    cells = (ctypes.c_longlong * len(values))(*values)
    parameters = (ctypes.c_void_p * len(values))(*(ctypes.addressof(cells) + 8 * i for i in range(len(values))))
    emulator.kernels[source.symbol]((ctypes.c_uint * 3)(1, 1, 1), (ctypes.c_uint * 3)(1, 1, 1), parameters)
    for i in range(len(begins)):
        for j in range(i, len(begins)):
            first, last = out[i, j]
            kept = [any(meets[begin][plane] for begin in begins[i : j + 1]) for plane in range(planes(form))]
            assert 0 <= first < last <= planes(form)
            assert not any(kept[:first] + kept[last:])
            if any(kept):
                # Several depths are a run: what lies between their first and last planes is computed too.
                assert (first, last) == (kept.index(True), len(kept) - kept[::-1].index(True))
            else:
                assert last == first + 1
    lost = sum(planes(form) - int(out[i, i, 1] - out[i, i, 0]) for i in range(len(begins)))
    assert share_beyond(form) == pytest.approx(lost / (len(begins) * planes(form)))


@pytest.mark.parametrize("case", CASES)
def test_backward_data_leaves_out_the_products_that_do_not_exist(case):
    form = deep(case, "bwd")
    if case[-1] > 1:  # phases have filters of their own
        assert share_beyond(form) == 0.0
        return
    gone = [not meet for meets in depths(form).values() for meet in meets]
    none = sum(not any(meets) for meets in depths(form).values())
    assert share_beyond(form) == pytest.approx((sum(gone) - none) / len(gone))
    assert not multiplies_padding(form) or share_beyond(form) == 0.0


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("planted", [math.nan, math.inf, -math.inf])
def test_what_zeros_times_a_plane_add_is_found(dtype, planted):
    """``beyond.cu``: NaN for the planes and channels where the filter has an Inf or NaN."""
    form = form_of(volume((1, 4, 5, 5, 1048), (5, 3, 2, 2, 1048), dtype=dtype))
    channels, rows, taps = form.channels, form.cols, len(form.taps.offset)
    rng = np.random.default_rng(1)
    filter_ = rng.standard_normal((rows, 3, taps // 3, channels)).astype(np.float32)
    filter_[2, 1, 3, 1047], filter_[0, 0, 0, 0], filter_[4, 2, 1, 517] = planted, planted, planted
    filter_[3] = np.finfo(np.float16).max  # large, and a number
    bits = (
        filter_.astype(np.float16).view(np.uint16)
        if dtype == "fp16"
        else (filter_.view(np.uint32) >> 16).astype(np.uint16)
    )
    if dtype == "bf16" and math.isnan(planted):
        assert np.isnan((bits.astype(np.uint32) << 16).view(np.float32)).sum() == 3
    room = np.zeros(bits.size + 8, np.uint16)
    held = room[-(room.ctypes.data // 2) % 8 :][: bits.size]
    held[:] = bits.ravel()
    found = np.full(look_bytes(form) // 4 + 1, 7.0, np.float32)
    source, launch = look(form, H200, 0)
    launched(source, launch, (held.ctypes.data, found.ctypes.data))
    assert found[-1] == 7.0
    wanted = np.zeros((3, rows))
    wanted[1, 2] = wanted[0, 0] = wanted[2, 4] = math.nan
    np.testing.assert_array_equal(found[:-1].reshape(3, rows), wanted)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)
def test_forward_looks_at_the_filter_first(solver):
    for mode, launches in (("fwd", 2), ("bwd", 1)):
        geometry = volume(mode=mode).canonical.geometry
        config = solver.default_config(geometry, H200)
        tile, draft = solver.tile(geometry, config, H200), solver.draft(geometry, config, H200)
        assert tile.left_out == pytest.approx(2 / 18)
        assert len(draft.run) == len(draft.sources) == launches
        assert draft.workspace_bytes == (4 * 3 * 96 if mode == "fwd" else 0)
        assert [draft.sources[step.artifact].symbol for step in draft.run] == [step.symbol for step in draft.run]


def test_what_is_not_worth_it_is_computed():
    kinds = {
        "few products": volume(*SMALL), "no padding": volume(padding=0), "weights": volume(mode="wrw"),
        "deep": volume((1, 96, 240, 416, 96), padding=1), "no depth": volume(w=(96, 1, 3, 3, 96), padding=(0, 1, 1)),
        "integers": volume(dtype="int8", acc_dtype="int32", output_dtype="int32"),
    }  # fmt: skip
    assert {name: leaves_out(form_of(signature), H200) for name, signature in kinds.items()} == dict.fromkeys(
        kinds, 0.0
    )
    assert leaves_out(form_of(volume(*SMALL, mode="bwd")), H200) > 0


def test_tiles_that_leave_planes_out_compile_without_spills(tmp_path):
    full, sources = Epilogue(bias=True, activation="gelu", residual=True), {}
    for signature in (volume(mode="bwd"), volume(epilogue=full)):
        for solver in SOLVERS:
            g = signature.canonical.geometry
            draft = solver.draft(g, solver.default_config(g, H200), H200)
            sources |= {source.symbol: source for source in draft.sources}
    found = build_unit(list(sources.values()), H200, tmp_path / "unit.cubin")
    assert [(r.symbol, r.spill_store_bytes) for r in found if r.spill_store_bytes or r.stack_bytes] == []
    assert [r.warnings for r in found if any("C75" in w for w in r.warnings)] == []
