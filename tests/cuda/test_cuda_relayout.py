"""Layout copies for GPUs through the emulator, solvers reached through them, and their machine code for every arch."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda_chain import H200, executable
from stand_in import stand_in

from tilesmith.codegen.cuda import layout as layouts
from tilesmith.codegen.cuda.layout import layout_copy
from tilesmith.measure.accuracy import planted_copy
from tilesmith.measure.device_arrays import DeviceRechecker
from tilesmith.measure.oracle import oracle
from tilesmith.plan.records import Pointer, Space
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.geometry import TensorView
from tilesmith.problems.layouts import dense_strides, parse_layout
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.device import device
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.common.relayout import CUDA_COPIES
from tilesmith.solvers.cuda.mma.solver import MmaDenseSolver
from tilesmith.solvers.relayout import Relayout, channels_last, view_bytes
from tilesmith.solvers.solver import Accepted, Config, Rejected
from tilesmith.solvers.table import candidates
from tilesmith.targets.cuda import CUDA_TARGETS
from tilesmith.toolchain.build import build_unit

READ, WRITE = Pointer(Space.SLOT, 0), Pointer(Space.SLOT, 1)
# dtype, shape, from layout, to layout, pitch of the innermost row beyond its length
COPIES = [
    ("bf16", (2, 72, 1, 9, 8), "NCDHW", "NDHWC", 0),
    ("bf16", (2, 24, 1, 7, 7), "NDHWC", "NCDHW", 0),
    ("bf16", (3, 35, 1, 5, 3), "NCDHW", "NDHWC", 3),
    ("fp32", (1, 20, 2, 5, 8), "NCDHW", "NDHWC", 0),
    ("fp32", (40, 3, 1, 2, 5), "CDHWN", "NDHWC", 0),
    ("int8", (2, 68, 1, 6, 12), "NCDHW", "NDHWC", 0),
    ("int8", (1, 5, 1, 7, 9), "NDHWC", "NCDHW", 0),
    ("fp8e4m3", (2, 16, 1, 5, 4), "NCDHWc4", "NDHWC", 0),
    ("fp16", (2, 64, 1, 5, 7), "NCDHWc8", "NDHWC", 0),
    ("fp16", (2, 24, 1, 5, 7), "NDHWC", "NCDHWc4", 0),
    ("fp64", (2, 6, 1, 33, 5), "NCDHW", "NDHWC", 0),
    ("bf16", (2, 9, 1, 5, 7), "NDHWC", "NDHWC", 7),
    ("fp16", (2, 32, 1, 3, 5), "NCDHWc8", "NCDHWc4", 0),
    ("bf16", (300, 2, 1, 3, 1), "CDHWN", "WHDNC", 1),
]


def view_of(name, layout_name, shape, gap):
    layout = parse_layout(layout_name)
    sizes = layout.layout_shape(shape)
    rows = dense_strides((*sizes[:-1], sizes[-1] + gap))
    return TensorView("x", name, shape, layout.logical_strides(rows), layout.vector)


def addresses(view):
    n, c, d, h, w = np.ogrid[tuple(slice(size) for size in view.shape)]
    sn, sc, sd, sh, sw = view.strides
    return n * sn + (c // view.vector) * sc + c % view.vector + d * sd + h * sh + w * sw


def launched(made, launch, read, write):
    """Runs a copy, through the emulator."""
    pointers = iter((read.ctypes.data, write.ctypes.data) * 2)
    values = [next(pointers) if isinstance(p, Pointer) else p.value for p in launch.parameters]
    cells = (ctypes.c_longlong * len(values))(*values)
    parameters = (ctypes.c_void_p * len(values))(*(ctypes.addressof(cells) + 8 * i for i in range(len(values))))
    emulator = stand_in()
    emulator.emulate(made)
    emulator.kernels[made.symbol]((ctypes.c_uint * 3)(*launch.grid), (ctypes.c_uint * 3)(*launch.block), parameters)


def aligned_bytes(count):
    memory = np.empty(count + 64, np.uint8)
    return memory[-memory.ctypes.data % 64 :][:count]


@pytest.mark.parametrize("case", COPIES, ids=lambda c: f"{c[0]}-{c[2]}-{c[3]}-{c[4]}")
def test_copies_move_every_element_and_nothing_else(case):
    name, shape, before, after, gap = case
    kind = np.dtype(f"u{dtype(name).nbytes}")
    source, result = view_of(name, before, shape, 0), view_of(name, after, shape, gap)
    made, launch = layout_copy(source, result, READ, WRITE, H200)
    at, to = addresses(source), addresses(result)
    raw = np.random.default_rng(0).integers(1, 250, (int(at.max()) + 64) * kind.itemsize + 64, dtype=np.uint8)
    out = np.zeros((int(to.max()) + 64) * kind.itemsize + 64, np.uint8)
    read, write = (a[-a.ctypes.data % 64 :][: (a.size - 64) // kind.itemsize * kind.itemsize] for a in (raw, out))
    launched(made, launch, read, write)
    want = np.zeros(write.size // kind.itemsize, kind)
    want[to] = read[: write.size + read.size].view(kind)[at]
    np.testing.assert_array_equal(write.view(kind), want)


def test_units_beyond_32_bits_are_counted_in_64(monkeypatch):
    """Through a limit of 1,000 units, as no machine here has room for 2^32."""
    source, result = (view_of("bf16", "NDHWC", (2, 9, 1, 33, 7), gap) for gap in (0, 7))
    small, _ = layout_copy(source, result, READ, WRITE, H200)
    monkeypatch.setattr(layouts, "_MOST_UNITS", 1000)
    made, launch = layout_copy(source, result, READ, WRITE, H200)
    assert small.text != made.text
    read, write = aligned_bytes(view_bytes(source)), aligned_bytes(2 * 33 * 7 * 16 * 2)
    read[:], write[:] = np.random.default_rng(0).integers(1, 250, read.size), 0
    launched(made, launch, read, write)
    want = np.zeros((2 * 33 * 7, 16), np.uint16)
    want[:, :9] = read.view(np.uint16).reshape(-1, 9)
    np.testing.assert_array_equal(write.view(np.uint16).reshape(-1, 16), want)


# dtype, shape, from layout: copies whose pixels get gaps up to the next 16 bytes.
PADDED = [
    ("bf16", (2, 34, 1, 5, 7), "NDHWC"),
    ("bf16", (2, 35, 1, 6, 8), "NCDHW"),
    ("fp16", (3, 3, 2, 5, 4), "NDHWC"),
    ("fp32", (2, 9, 1, 3, 70), "NCDHW"),
    ("int8", (1, 35, 2, 3, 9), "NCDHW"),
    ("int8", (2, 3, 1, 5, 7), "NDHWC"),
]


@pytest.mark.parametrize("case", PADDED, ids=lambda c: f"{c[0]}-{c[1][1]}-{c[2]}")
def test_gaps_that_a_copy_owns_are_written(case):
    """Kernels read whole 16 bytes of a pixel: compute-sanitizer calls what nothing wrote there uninitialised."""
    name, shape, before = case
    kind = np.dtype(f"u{dtype(name).nbytes}")
    source = view_of(name, before, shape, 0)
    result = CUDA_COPIES.wanted(source)
    made, launch = layout_copy(source, result, READ, WRITE, H200)
    at, to = addresses(source), addresses(result)
    raw = np.random.default_rng(0).integers(1, 250, source_bytes := view_bytes(source), dtype=np.uint8)
    read, write = aligned_bytes(source_bytes), aligned_bytes(result.strides[0] * shape[0] * kind.itemsize + 64)
    read[:], write[:] = raw, 0xFF
    launched(made, launch, read, write)
    want = read.view(kind)[at]
    found = write.view(kind)
    np.testing.assert_array_equal(found[to], want)
    pixels = found[: result.strides[0] * shape[0]].reshape(-1, result.strides[4])
    gaps = pixels[:, shape[1] :]
    if before == "NCDHW":
        assert gaps.size
        assert not gaps.any()
    else:
        following = np.append(read.view(kind), np.zeros(gaps.shape[1], kind))
        for row, gap in enumerate(gaps):
            np.testing.assert_array_equal(gap, following[(row + 1) * shape[1] :][: gap.size])
    assert (write[-64:] == 0xFF).all()


def test_what_lies_together_on_both_sides_moves_together():
    def units(before, after):
        shape = (2, 64, 1, 8, 8)
        made, _ = layout_copy(view_of("fp16", before, shape, 0), view_of("fp16", after, shape, 0), READ, WRITE, H200)
        return made.symbol.split("__")[0]

    assert units("NCDHWc8", "NDHWC").startswith("ts_layout_b128_")
    assert units("NCDHWc4", "NDHWC").startswith("ts_layout_b64_")
    assert units("NCDHW", "NDHWC").endswith("64x64x8x8")


E = Epilogue(bias=True, residual=True, activation="relu")
SIGNATURES = [
    ConvSignature((2, 9, 8, 7), (12, 9, 3, 3), padding=1, dtype="bf16", epilogue=E),
    ConvSignature((2, 9, 8, 7), (12, 9, 3, 3), padding=1, mode="bwd", stride=2, dtype="fp16", output_layout="NHWC"),
    ConvSignature((2, 8, 7, 9), (12, 9, 3, 3), padding=1, mode="wrw", dtype="bf16", input_layout="NHWC",
                  output_layout="CHNW"),
    ConvSignature((2, 2, 8, 7, 4), (12, 1, 3, 3, 4), groups=2, dtype="fp16", input_layout="NCHWc4",
                  kernel_layout="NCHWc4"),
    ConvSignature((3, 5, 5, 7), (4, 1, 1, 7), dtype="bf16", shared_layout="NHWC"),
]  # fmt: skip


@pytest.mark.parametrize("signature", SIGNATURES, ids=range(len(SIGNATURES)))
def test_solvers_reach_every_layout(signature, emulating):
    signature = signature.canonical
    geometry, solver = signature.geometry, Relayout(MmaDenseSolver(exact=False), CUDA_COPIES)
    assert solver.applicable(geometry, H200) == Accepted()
    config = Config(
        (
            ("block_m", 16),
            ("block_n", 32),
            ("block_k", 32),
            ("warps_m", 1),
            ("warps_n", 1),
            ("stages", 2),
            ("split_k", 1),
            ("group_m", 1),
        )
    )
    assert solver.search_space(geometry, H200).contains(config)
    draft = solver.draft(geometry, config, H200)
    assert bool(draft.prepare) == (signature.mode != "wrw")
    made = executable(signature, draft, emulating)
    values = sample_args(signature)
    cases = [values]
    for place, value in enumerate(values[:2]):
        cases.append((*values[:place], planted_copy(value, (np.nan, np.inf), place), *values[place + 1 :]))
    with np.errstate(all="ignore"):
        for case in cases:
            checker = DeviceRechecker(signature, case, oracle(signature, case), device(0))
            verdict = checker.check_plan(checker.plan(made), poison=True)
            assert verdict.ok, verdict.message
    inside = solver.inner.predict(solver.changed(geometry), config, H200)
    assert solver.predict(geometry, config, H200) > inside


def test_pixels_are_padded_where_the_copy_engine_needs_it():
    odd = TensorView("x", "bf16", (2, 35, 1, 4, 5), (35 * 20, 1, 35 * 20, 35 * 5, 35))
    assert CUDA_COPIES.wanted(odd) == channels_last(odd, 8)
    assert CUDA_COPIES.wanted(odd).strides == (800, 1, 800, 200, 40)
    even = TensorView("x", "bf16", (2, 32, 1, 4, 5), (32 * 20, 1, 32 * 20, 32 * 5, 32))
    assert CUDA_COPIES.wanted(even) is even
    solver = Relayout(MmaDenseSolver(exact=False), CUDA_COPIES)
    plain = ConvSignature((2, 8, 8, 16), (16, 3, 3, 16), dtype="bf16", shared_layout="NHWC")
    assert solver.applicable(plain.geometry, H200) == Rejected(reasons.UNCHANGED)


def test_no_layout_is_left_to_the_reference():
    for layout in ("NCHW", "NCHWc4", "NCHWc8", "CHWN"):
        vector = parse_layout(layout).vector
        for mode in ("fwd", "bwd", "wrw"):
            x, w = (parse_layout(layout).layout_shape(s) for s in ((8, 32, 14, 14), (64, 32, 3, 3)))
            signature = ConvSignature(x, w, padding=1, dtype="fp16", shared_layout=layout, mode=mode)
            accepted = [c.name for c in candidates(signature, H200) if isinstance(c.verdict, Accepted)]
            assert "wgmma_conv_nhwc" in accepted
            assert ("mma_dense" in accepted) == (vector == 1)


def test_copies_pay_where_loads_are_narrow_or_scattered():
    """As measured on an H200: copies and wgmma are 3 to 14 times as fast as reading such tensors in place."""
    for options in (
        {"shared_layout": "NCHW", "input_shape": (64, 64, 56, 56), "kernel_shape": (64, 64, 3, 3)},
        {"shared_layout": "NCHW", "input_shape": (64, 256, 56, 56), "kernel_shape": (64, 256, 1, 1), "padding": 0},
        {"shared_layout": "NHWC", "input_shape": (32, 28, 28, 250), "kernel_shape": (250, 3, 3, 250)},
    ):
        for mode in ("fwd", "bwd", "wrw"):
            signature = ConvSignature(dtype="bf16", mode=mode, **({"padding": 1} | options))
            found = {}
            for c in candidates(signature, H200):
                if isinstance(c.verdict, Accepted) and c.solver.name in ("mma_dense", "wgmma_conv_nhwc"):
                    config = c.solver.default_config(c.geometry, H200)
                    found[c.solver.name] = c.solver.predict(c.geometry, config, H200)
            assert found["wgmma_conv_nhwc"] < 0.6 * found["mma_dense"], (signature.key(), found)


@pytest.mark.parametrize("arch", CUDA_TARGETS)
def test_copies_compile_without_spills(arch, tmp_path):
    """Every copy on one arch, in turn."""
    target = CUDA_TARGETS[arch]
    sources = {}
    for name, shape, before, after, gap in COPIES[list(CUDA_TARGETS).index(arch) :: len(CUDA_TARGETS)]:
        views = view_of(name, before, shape, 0), view_of(name, after, shape, gap)
        source, _ = layout_copy(*views, READ, WRITE, target)
        sources[source.symbol] = source
    for kernel in build_unit(list(sources.values()), target, tmp_path / "unit.cubin"):
        assert (kernel.spill_store_bytes, kernel.stack_bytes) == (0, 0), kernel
        assert kernel.shared_bytes <= 12 * 1024
