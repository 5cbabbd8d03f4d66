"""The wgmma kernels without a GPU: their forms in NumPy, spaces, plans, and their text compiled for sm_90a."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tilesmith.plan.assemble import assemble
from tilesmith.plan.records import Space, TensorMap
from tilesmith.plan.slots import slots_of
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.layouts import parse_layout
from tilesmith.problems.samples import sample_args
from tilesmith.solvers.cuda.common.form import Sm90Form
from tilesmith.solvers.cuda.common.groups import grouped_form
from tilesmith.solvers.cuda.halo.solver import HaloSm90Solver
from tilesmith.solvers.cuda.wgmma.solver import ConvSm90Solver, GemmSm90Solver
from tilesmith.solvers.solver import Accepted, Rejected
from tilesmith.solvers.table import candidates
from tilesmith.targets.cuda import CUDA_TARGETS, cuda_target
from tilesmith.toolchain.build import build_unit
from torch_answer import torch_answer

H200 = cuda_target("sm_90a", 132)
SOLVERS = (GemmSm90Solver(), HaloSm90Solver(), ConvSm90Solver())
MODES = ("fwd", "bwd", "wrw")
FULL = Epilogue(bias=True, activation="gelu", residual=True)


def conv(x, w, mode="fwd", layout="NHWC", dtype="bf16", **more):
    return ConvSignature(input_shape=x, kernel_shape=w, mode=mode, shared_layout=layout, dtype=dtype, **more)


def gemm(m, n, k, dtype="bf16", **more):
    return GemmSignature(m=m, n=n, k=k, a_dtype=dtype, b_dtype=dtype, **({"c_dtype": dtype} | more))


CONVS = [
    *(conv((2, 5, 6, 8), (8, 3, 2, 8), mode, padding=1) for mode in MODES),
    *(conv((1, 9, 7, 8), (16, 3, 3, 8), mode, padding=(2, 0), stride=(2, 3)) for mode in MODES),
    *(conv((2, 8, 9, 8), (8, 2, 3, 8), mode, padding=1, dilation=(3, 2), stride=(2, 1)) for mode in MODES),
    *(conv((1, 4, 4, 5, 8), (8, 2, 3, 2, 8), mode, "NDHWC", padding=1, stride=(2, 1, 2)) for mode in MODES),
    *(conv((2, 6, 8, 16), (8, 1, 1, 16), mode, stride=2) for mode in MODES),
    *(conv((2, 7, 8), (16, 3, 8), mode, "NWC", padding=2) for mode in MODES),
    *(conv((2, 5, 4, 48), (48, 3, 2, 16), mode, stride=2, padding=1, groups=3) for mode in MODES),
    conv((1, 5, 4, 24), (48, 3, 2, 8), "wrw", padding=1, groups=3),
]


def pixels_of(form, window, at, tap, flat):
    """What a tensor map in im2col mode loads for base pixel number ``at`` and a tap: channels, or zeros outside."""
    base = window.base
    place, rest = [], at
    for size in base:
        place.append(rest % size)
        rest //= size
    offset = [tap >> 8 * i & 255 for i in range(len(base))]
    where = [p * s + c + o for p, s, c, o in zip(place, window.step, window.corner, offset, strict=True)]
    if any(not 0 <= w < size for w, size in zip(where, window.dims[1:-1], strict=True)):
        return np.zeros(window.dims[0])
    start = int(np.dot((*where, rest), window.strides))
    return flat[start : start + window.dims[0]]


def row_of(form: Sm90Form, layer: int, row: int) -> int | None:
    layer, group = divmod(layer, form.groups)
    found = row_of_phase(form, layer, row)
    return None if found is None else found + group * form.placed.group


def row_of_phase(form: Sm90Form, layer: int, row: int) -> int | None:
    placed = form.placed
    if placed.pixels is None:
        return layer * placed.layer + row * placed.row
    place, rest = [], row
    for size in (*form.a.base, *(1,) * (3 - len(form.a.base))):
        place.append(rest % size)
        rest //= size
    pw, ph, _ = placed.phases
    phase = (layer % pw, layer // pw % ph, layer // pw // ph)
    where = [p * s + f for p, s, f in zip(place, placed.phases, phase, strict=True)]
    if any(w >= size for w, size in zip(where, placed.sizes, strict=True)):
        return None
    return int(np.dot((rest, *reversed(where)), placed.pixels))


def evaluate(form: Sm90Form, slots: list[np.ndarray], out: np.ndarray) -> None:
    taps = form.taps
    if form.kind == "wrw":
        dims, (pixel, _) = form.a.dims, form.a.strides
        for at, group in np.ndindex(dims[1], form.groups):
            dy = slots[0][at * pixel : at * pixel + dims[0]]
            for tap, index in zip(taps.offset, taps.index, strict=True):
                x = pixels_of(form, form.b, at, tap, slots[1])[group * form.channels :][: form.channels]
                for k in range(form.rows):
                    to = k * form.placed.row + index * form.placed.tap + group * form.placed.group
                    out[to : to + form.channels] += dy[group * form.rows + k] * x
        return
    channels, _, rows = form.b.dims
    rows //= form.groups
    tap_step, row_step = form.b.strides
    for layer in range(form.layers):
        phase, group = divmod(layer, form.groups)
        for row in range(form.rows):
            to = row_of(form, layer, row)
            if to is None:
                continue
            sums = np.zeros(form.cols)
            for i in range(taps.first[phase], taps.first[phase + 1]):
                x = pixels_of(form, form.a, row, taps.offset[i], slots[0])[group * form.channels :][: form.channels]
                w = np.lib.stride_tricks.as_strided(
                    slots[1][taps.index[i] * tap_step + group * rows * row_step :], (rows, channels), (8 * row_step, 8)
                )
                sums += x @ w if form.b_columns else w @ x
            out[to : to + form.cols] = sums


@pytest.mark.parametrize("signature", CONVS, ids=lambda s: s.key()[:70])
def test_the_form_says_what_the_problem_says(signature):
    signature = signature.canonical
    form = grouped_form(signature.geometry)
    assert isinstance(form, Sm90Form)
    args = sample_args(signature, 3)
    slots = [np.ravel(arg).astype(np.float64) for arg in args]
    *_, spec = slots_of(signature)
    out = np.full(spec.nbytes // 2, 0.0 if form.kind == "wrw" else np.nan)
    evaluate(form, slots, out)
    layouts = {"fwd": signature.output_layout, "bwd": signature.input_layout, "wrw": signature.kernel_layout}
    layout = parse_layout(layouts[signature.mode])
    axes = [layout.order.index(a) for a in "NCDHW" if a in layout.order]
    assert np.allclose(out.reshape(spec.shape).transpose(axes), torch_answer(signature, args), atol=1e-9)


@pytest.mark.parametrize("signature", [s for s in CONVS if s.mode != "wrw"], ids=lambda s: s.key()[:70])
def test_windows_hold_what_their_taps_read(signature):
    g = signature.canonical.geometry
    solver = HaloSm90Solver()
    if isinstance(solver.applicable(g, H200), Rejected):
        return
    t = solver.tile(g, solver.default_config(g, H200), H200)
    w, h, d = t.window
    last = max(t.rows) + (t.value["tile_h"] - 1) * w + t.value["tile_w"] - 1
    assert last < w * h * d
    corner = (*t.pixels.corner, 0)
    for row, tap in zip(t.rows, t.taps, strict=True):
        met = zip((row % w, row // w % h, row // w // h), t.step, t.corner, tap.phase, strict=True)
        for i, (place, step, first, phase) in enumerate(met):
            assert place * step + first + phase == corner[i] + (tap.offset >> 8 * i & 255)
    of = {tap.offset: tap.index for tap in t.taps}
    assert of == dict(zip(t.form.taps.offset, t.form.taps.index, strict=True))
    places = [t.phases.index(tap.phase) for tap in t.taps]
    assert places == sorted(places)


PROBLEMS = [
    gemm(4096, 4096, 4096),
    gemm(1, 4096, 4096, trans_b=True),
    gemm(333, 1000, 72, "fp16", trans_a=True, trans_b=False, ldc=1003, lda=336),
    gemm(130, 201, 136, trans_b=True, c_dtype="fp32", epilogue=Epilogue(bias=True, activation="silu")),
    gemm(96, 256, 512, epilogue=FULL),
    gemm(512, 512, 65536, alpha=0.5, beta=1.0),
    gemm(128, 72, 136, batch=5, trans_b=True),
    *(conv((64, 56, 56, 64), (64, 3, 3, 64), mode, padding=1) for mode in MODES),
    *(conv((64, 28, 28, 512), (1024, 1, 1, 512), mode, stride=2) for mode in MODES),
    *(conv((2, 6, 9, 10, 40), (48, 3, 3, 3, 40), mode, "NDHWC", padding=1, dtype="fp16") for mode in MODES),
    conv((1, 64, 64, 128), (3, 3, 3, 128), padding=1),
    conv((2, 14, 14, 64), (72, 3, 3, 64), "bwd", padding=1, stride=2, epilogue=FULL),
    conv((2, 14, 14, 64), (72, 3, 3, 64), padding=1, epilogue=Epilogue(bias=True, activation="relu")),
]


def accepting(signature):
    geometry = signature.canonical.geometry
    found = [s for s in SOLVERS if isinstance(s.applicable(geometry, H200), Accepted)]
    assert found
    return geometry, found


@pytest.mark.parametrize("signature", PROBLEMS, ids=lambda s: s.key()[:70])
def test_choices_lie_in_the_space_and_make_plans(signature):
    geometry, solvers = accepting(signature)
    rng = random.Random(0)
    for solver in solvers:
        space, default = solver.search_space(geometry, H200), solver.default_config(geometry, H200)
        assert space.contains(default)
        points = [default, *solver.ranked(geometry, H200)[:8]]
        for _ in range(100):
            point = type(default)(tuple((name, rng.choice(values)) for name, values in space.axes.items()))
            if space.allowed(point):
                points.append(point)
        for config in points:
            assert 0 < solver.predict(geometry, config, H200) < 1
            draft = solver.draft(geometry, config, H200)
            assert draft == solver.draft(geometry, config, H200)
            assert max(step.shared_bytes for step in draft.run) <= H200.shared_bytes_per_block
            assemble(draft, signature, solver.name, str(config), H200, ["0" * 64] * len(draft.sources))


@pytest.mark.parametrize("trans_b", [False, True])
def test_clusters_along_k_read_the_larger_operand_once(trans_b):
    geometry, solver = gemm(128, 4096, 14336, trans_b=trans_b).canonical.geometry, GemmSm90Solver()
    t = solver.tile(geometry, solver.default_config(geometry, H200), H200)
    assert t.value["cluster_k"] > 1
    assert (t.tiles_n if t.form.rows > t.form.cols else t.tiles_m) == 1  # 33 us on an H200, 44 where it is two


def test_sizes_are_no_part_of_the_text():
    solver, texts = ConvSm90Solver(), set()
    config = solver.default_config(conv((8, 56, 56, 128), (128, 3, 3, 128), padding=1).geometry, H200)
    for signature in (
        conv((8, 56, 56, 128), (128, 3, 3, 128), padding=1),
        conv((3, 31, 45, 512), (256, 3, 3, 512), padding=0, stride=2),
    ):
        texts.add(solver.draft(signature.geometry, config, H200).sources)
    assert len(texts) == 1


def test_maps_read_zeros_beyond_the_last_channel_on_both_sides():
    """A NaN weight must not meet a zero that stands for a channel that does not exist, nor the other way around."""
    geometry = conv((2, 8, 8, 72), (40, 3, 3, 72), padding=1).geometry
    for solver in (ConvSm90Solver(), HaloSm90Solver()):
        (launch,) = solver.draft(geometry, solver.default_config(geometry, H200), H200).run[:1]
        pixels, filter_ = (p for p in launch.parameters[:2] if isinstance(p, TensorMap))
        assert pixels.dims[0] == filter_.dims[0] == 72


ODD = [
    *(conv((1, 3, 3, 35), (37, 3, 3, 35), mode) for mode in MODES),
    *(conv((2, 8, 8, 35), (40, 1, 1, 35), mode, input_strides=(2560, 320, 40, 1)) for mode in MODES),
    *(conv((2, 7, 8, 37), (45, 3, 3, 37), mode, padding=1, input_strides=(2240, 320, 40, 1), dtype="fp16",
           output_strides=(2688, 384, 48, 1), kernel_strides=(360, 120, 40, 1)) for mode in MODES),
    *(conv((2, 8, 8, 35), (41, 3, 3, 35), mode, padding=1) for mode in MODES),
    gemm(1, 77, 96, trans_b=True), gemm(5, 77, 96, trans_b=True, ldc=80), gemm(5, 77, 96, trans_b=True),
]  # fmt: skip


@pytest.mark.parametrize("signature", ODD, ids=lambda s: s.key())
def test_maps_store_whole_rows_into_the_users_result(signature):
    """What a tensor map stores ends at a multiple of 16 bytes: a row of 35 elements would take 5 of what follows."""
    result = len(slots_of(signature)) - 1
    drafts = 0
    for candidate in candidates(signature, H200):
        if not isinstance(candidate.verdict, Accepted) or "wgmma" not in candidate.name:
            continue
        solver, geometry = candidate.solver, candidate.geometry
        for config in (solver.default_config(geometry, H200), *solver.ranked(geometry, H200)[:20]):
            drafts += 1
            parameters = [p for step in solver.draft(geometry, config, H200).run for p in step.parameters]
            for held in (p for p in parameters if isinstance(p, TensorMap)):
                assert (held.pointer.space, held.pointer.index) != (Space.SLOT, result) or held.dims[0] % 8 == 0
    assert drafts


def test_copies_in_the_workspace_are_stored_through_maps():
    signature = conv((2, 8, 8, 35), (41, 3, 3, 35), padding=1)
    found = next(c for c in candidates(signature, H200) if c.name == "wgmma_conv_nhwc")
    config = found.solver.default_config(found.geometry, H200)
    (inner,) = (step for step in found.solver.draft(found.geometry, config, H200).run if "wgmma" in step.symbol)
    stored = inner.parameters[2]
    assert isinstance(stored, TensorMap)
    assert (stored.pointer.space, stored.dims[0]) == (Space.WORKSPACE, 41)


def test_results_that_are_repaired_one_by_one_are_pairs_otherwise():
    """The second of a pair, repaired alone, reads one element of its residual: the emulator refuses odd pairs."""
    shape = ((2, 14, 14, 64), (72, 3, 3, 64), "bwd")
    for epilogue in (FULL, Epilogue(bias=True, activation="gelu")):
        geometry = conv(*shape, padding=1, stride=2, epilogue=epilogue).canonical.geometry
        solver = ConvSm90Solver()
        for config in solver.ranked(geometry, H200)[:20]:
            source = solver.draft(geometry, config, H200).sources[0]
            assert "enum : bool { EVEN = true };" in source.text


@pytest.mark.parametrize(
    ("signature", "word"),
    [
        (conv((2, 8, 8, 35), (40, 3, 3, 35)), "16 bytes"),
        (conv((2, 8, 8, 64), (64, 3, 3, 4), groups=16), "groups"),
        (conv((2, 64, 8, 8), (64, 64, 3, 3), layout="NCHW"), "channels-last"),
        (conv((2, 8, 8, 64), (64, 3, 3, 64), dtype="fp32"), "dtype"),
        (conv((2, 300, 8, 64), (64, 3, 1, 64), dilation=(130, 1)), "dilation"),
        (conv((2, 64, 64, 64), (64, 9, 9, 64), stride=9), "stride"),
        (gemm(64, 64, 30), "16 bytes"),
        (gemm(64, 64, 64, "fp32"), "dtype"),
        (gemm(64, 64, 64, beta=1.0, epilogue=FULL), "epilogue"),
    ],
)
def test_refusals_name_their_reason(signature, word):
    geometry = signature.canonical.geometry
    verdicts = [solver.applicable(geometry, H200) for solver in SOLVERS]
    assert all(isinstance(verdict, Rejected) for verdict in verdicts)
    assert any(word in str(verdict) for verdict in verdicts)


@pytest.mark.parametrize("arch", sorted(set(CUDA_TARGETS) - {"sm_90a"}))
def test_other_archs_are_refused(arch):
    for signature in PROBLEMS[:8]:
        for solver in SOLVERS:
            assert isinstance(solver.applicable(signature.canonical.geometry, CUDA_TARGETS[arch]), Rejected)


def compiled(drafts, folder):
    sources = {source.symbol: source for draft in drafts for source in draft.sources}
    return build_unit(list(sources.values()), H200, folder / "unit.cubin")


def test_untuned_kernels_compile_without_spills(tmp_path):
    drafts = []
    for signature in (PROBLEMS[0], PROBLEMS[3], *PROBLEMS[7:10], PROBLEMS[11], PROBLEMS[-1]):
        geometry, solvers = accepting(signature)
        drafts += [s.draft(geometry, s.default_config(geometry, H200), H200) for s in solvers]
    found = compiled(drafts, tmp_path)
    assert [(r.symbol, r.spill_store_bytes) for r in found if r.spill_store_bytes or r.stack_bytes] == []
    assert [r.warnings for r in found if any("C75" in w for w in r.warnings)] == []


def test_windows_with_a_filter_of_many_taps_compile(tmp_path):
    """49 taps that stay: more than the barriers that a block has."""
    epilogue = Epilogue(bias=True, activation="relu", residual=True)
    drafts, solver = [], HaloSm90Solver()
    for mode in ("fwd", "bwd"):
        geometry = conv((8, 32, 32, 32), (64, 7, 7, 32), mode, padding=3, epilogue=epilogue).canonical.geometry
        default = solver.default_config(geometry, H200)
        kept = next((c for c in solver.ranked(geometry, H200) if c["resident"]), default)
        assert kept["resident"] or mode == "bwd"
        drafts += [solver.draft(geometry, each, H200) for each in {kept, default}]
    found = compiled(drafts, tmp_path)
    assert [(r.symbol, r.spill_store_bytes) for r in found if r.spill_store_bytes or r.stack_bytes] == []


def test_staged_residuals_compile_without_spills(tmp_path):
    epilogue, drafts = Epilogue(bias=True, activation="gelu", residual=True), []
    for size, c, k, taps, most in ((56, 64, 256, 1, 1), (28, 72, 40, 1, 1), (14, 256, 256, 3, 1)):
        signature = conv((64, size, size, c), (k, taps, taps, c), padding=taps // 2, epilogue=epilogue)
        geometry, solvers = accepting(signature)
        drafts += [s.draft(geometry, each, H200) for s in solvers for each in s.ranked(geometry, H200)[:most]]
    found = compiled(drafts, tmp_path)
    assert [(r.symbol, r.spill_store_bytes) for r in found if r.spill_store_bytes or r.stack_bytes] == []
    assert [r.warnings for r in found if any("C75" in w for w in r.warnings)] == []


@pytest.mark.parametrize(
    "want",
    [
        {"pingpong": 1},
        {"split_k": 3},
        {"warpgroups": 3},
        {"blocks_per_sm": 2},
        {"block_k": 16},
        {"block_k": 256, "warpgroups": 1, "products_m": 1, "split_k": 1},
        {"stages": 24, "split_k": 1},
        {"resident": 1},
        {"cluster_k": 3, "block_n": 16},
        {"cluster_m": 2, "swap_mn": 1},
        {"cluster_m": 4},
    ],
    ids=str,
)
def test_corners_compile(want, tmp_path):
    rng, drafts = random.Random(1), []
    for signature in (PROBLEMS[1], PROBLEMS[4], PROBLEMS[9], PROBLEMS[13], PROBLEMS[7], PROBLEMS[0]):
        geometry, solvers = accepting(signature)
        for solver in solvers:
            space, default = solver.search_space(geometry, H200), solver.default_config(geometry, H200)
            if any(value not in space.axes.get(name, ()) for name, value in want.items()):
                continue
            for _ in range(4000):
                values = {name: rng.choice(choices) for name, choices in space.axes.items()} | want
                config = type(default)(tuple(values.items()))
                if space.allowed(config):
                    drafts.append(solver.draft(geometry, config, H200))
                    break
    assert drafts, want
    assert compiled([rng.choice(drafts[:2])], tmp_path)  # one of the first two
