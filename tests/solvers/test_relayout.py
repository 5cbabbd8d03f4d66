"""Layout copies, and solvers reached through them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from chain import TWO_THREADS as TARGET
from chain import executables, function
from tilesmith.codegen.axes import common_axes
from tilesmith.codegen.c.layout import layout_copy
from tilesmith.measure.accuracy import check_specials, verify
from tilesmith.measure.arrays import guarded
from tilesmith.plan.records import Draft, Launch, Memset, Pointer, Space
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import TensorView
from tilesmith.problems.layouts import dense_strides, parse_layout
from tilesmith.solvers import reasons
from tilesmith.solvers.c.common.relayout import CPU_COPIES
from tilesmith.solvers.c.dense.solver import DenseSolver
from tilesmith.solvers.c.reference.solver import ReferenceSolver
from tilesmith.solvers.relayout import Relayout
from tilesmith.solvers.solver import Accepted, Rejected
from tilesmith.targets.cpu import cpu_target

LAYOUTS = ("NCDHW", "NDHWC", "NCDHWc4", "NCDHWc8", "DCHNW")
SHAPES = ((2, 24, 2, 5, 7), (1, 64, 1, 9, 37), (3, 8, 1, 1, 1), (1, 40, 3, 1, 1))


class Picky(ReferenceSolver):
    """A solver that reads dense channels-last activations and plain filters alone."""

    name = "picky"

    def applicable(self, problem, target):
        views = (problem.x, problem.y)
        plain = all(view.channels_last for view in views) and problem.w.vector == 1
        return Accepted() if plain else Rejected(reasons.LAYOUT)


def view_of(layout_name, shape, name, gap=0):
    """A view, with its shape and strides in memory; ``gap`` elements follow each innermost row."""
    layout = parse_layout(layout_name)
    sizes = layout.layout_shape(shape)
    rows = dense_strides((*sizes[:-1], sizes[-1] + gap))
    return TensorView("x", name, shape, layout.logical_strides(rows), layout.vector), sizes, rows


def addresses(view):
    n, c, d, h, w = np.ogrid[tuple(slice(size) for size in view.shape)]
    sn, sc, sd, sh, sw = view.strides
    return n * sn + (c // view.vector) * sc + c % view.vector + d * sd + h * sh + w * sw


@pytest.mark.parametrize("name", ["fp64", "fp32", "bf16", "int8"])
def test_copies_between_all_layouts(name, level):
    kind = np.dtype(f"u{dtype(name).nbytes}")
    cases = [
        (shape, a, b, gap)
        for shape, a, b in product(SHAPES, LAYOUTS, LAYOUTS)
        for gap in ((0, 3) if "c" not in a + b else (0,))
    ]
    copies, sources = [], {}
    for shape, a, b, gap in cases:
        (v, sizes, strides), (u, to_sizes, to_strides) = view_of(a, shape, name, gap), view_of(b, shape, name, gap)
        source, launch = layout_copy(v, u, Pointer(Space.SLOT, 0), Pointer(Space.SLOT, 1), level)
        sources[source] = None
        copies.append((v, u, sizes, strides, to_sizes, to_strides, source, launch))
    assert len(sources) == 1  # sizes and strides are run-time numbers
    for v, u, sizes, strides, to_sizes, to_strides, source, launch in copies:
        values = np.random.default_rng(0).integers(0, 250, sizes).astype(kind)
        read, write = guarded(kind, sizes, strides, values), guarded(kind, to_sizes, to_strides)
        run_copy(source, launch, read.array, write.array, level)
        found, want = (np.lib.stride_tricks.as_strided(a.array, (10**9,), (kind.itemsize,)) for a in (write, read))
        np.testing.assert_array_equal(found[addresses(u)], want[addresses(v)])
        assert write.out_of_bounds() == ""


def run_copy(source, launch, read, write, target):
    """Every item on its own, last first."""
    import draft_call

    library = draft_call._library((source,), target)
    pointers = {0: read.ctypes.data, 1: write.ctypes.data}
    draft_call._launch(library, launch, lambda pointer: pointers[pointer.index], 1)


def test_axes_that_lie_alike_are_merged():
    a, _, _ = view_of("NCDHW", (4, 16, 3, 5, 7), "fp32")
    b, _, _ = view_of("NDHWC", (4, 16, 3, 5, 7), "fp32")
    assert common_axes(a, b) == [(4, 1680, 1680), (105, 1, 16), (16, 105, 1)]
    assert common_axes(a, a) == [(6720, 1, 1)]


def test_copies_refuse_other_shapes():
    a, _, _ = view_of("NCDHW", (4, 16, 3, 5, 7), "fp32")
    b, _, _ = view_of("NCDHW", (4, 16, 3, 7, 5), "fp32")
    with pytest.raises(ValueError, match="keeps shape"):
        layout_copy(a, b, Pointer(Space.SLOT), Pointer(Space.SLOT, 1), TARGET)


E = Epilogue(bias=True, residual=True, activation="leaky_relu", slope=0.5)
SIGNATURES = [
    ConvSignature((2, 9, 8, 7), (12, 9, 3, 3), padding=1, epilogue=E),
    ConvSignature((2, 9, 8, 7), (12, 9, 3, 3), padding=1, mode="bwd", stride=2, epilogue=E, output_layout="NHWC"),
    ConvSignature((2, 8, 7, 9), (12, 9, 3, 3), padding=1, mode="wrw", input_layout="NHWC", output_layout="CHNW"),
    ConvSignature((2, 2, 8, 7, 4), (12, 1, 3, 3, 4), groups=2, input_layout="NCHWc4", kernel_layout="NCHWc4"),
    ConvSignature(
        (2, 2, 8, 7, 4), (12, 1, 3, 3, 4), groups=2, input_layout="NCHWc4", kernel_layout="NCHWc4", mode="wrw"
    ),
    ConvSignature((3, 8, 6), (8, 1, 3), groups=8, dtype="int8", input_strides=(100, 12, 2)),
    ConvSignature((1, 6, 5, 4, 3), (4, 6, 2, 2, 2), dtype="bf16", output_strides=(500, 100, 20, 4, 2)),
]


@pytest.mark.parametrize("signature", SIGNATURES, ids=range(len(SIGNATURES)))
def test_a_solver_for_dense_tensors_reaches_every_layout(signature):
    geometry, solver = signature.geometry, Relayout(Picky(), CPU_COPIES)
    assert isinstance(Picky().applicable(geometry, TARGET), Rejected)
    assert solver.applicable(geometry, TARGET) == Accepted()
    config = solver.default_config(geometry, TARGET)
    assert solver.search_space(geometry, TARGET).contains(config)
    draft = solver.draft(geometry, config, TARGET)
    assert draft.workspace_bytes % 64 == 0
    [built] = executables([(signature, draft)])
    call = function(built, signature)
    for verdict in (verify(call, signature), check_specials(call, signature)):
        assert verdict.ok, verdict.message
    inside = Picky().predict(geometry, config, TARGET)
    assert solver.predict(geometry, config, TARGET) > inside


def test_there_must_be_a_layout_to_change():
    solver = Relayout(DenseSolver(), CPU_COPIES)
    assert solver.name == "c_dense_nhwc"
    last = ConvSignature((2, 8, 7, 9), (12, 3, 3, 9), shared_layout="NHWC")
    assert solver.applicable(last.geometry, TARGET) == Rejected(reasons.UNCHANGED)
    assert solver.applicable(GemmSignature(m=2, n=3, k=4).geometry, TARGET) == Rejected(reasons.OP)
    # What the solver refuses for other reasons stays refused.
    other = ConvSignature((2, 9, 8, 7), (12, 9, 3, 3), dtype="fp64")
    assert solver.applicable(other.geometry, TARGET) == Rejected(reasons.FEATURE, "acc=fp64")


def test_steps_of_the_inner_solver_keep_their_workspace():
    """The inner solver's workspace comes first; ours begins behind it."""

    class Roomy(Picky):
        def draft(self, problem, config, target):
            inner = super().draft(problem, config, target)
            note = Memset(Pointer(Space.WORKSPACE, 0, 8), 24, 0)
            result = Memset(Pointer(Space.SLOT, 2, 4), 8, 0)
            return Draft(inner.sources, (note, result, *inner.run), inner.prepare, 0, 100)

    signature = SIGNATURES[0].__class__((2, 9, 8, 7), (12, 9, 3, 3), padding=1)
    draft = Relayout(Roomy(), CPU_COPIES).draft(
        signature.geometry, Roomy().default_config(signature.geometry, TARGET), TARGET
    )
    copy_in, note, result, launch, copy_out = draft.run
    assert note == Memset(Pointer(Space.WORKSPACE, 0, 8), 24, 0)
    x, y = copy_in.parameters[1], copy_out.parameters[0]
    assert x == Pointer(Space.WORKSPACE, 0, 128)
    assert result.pointer == Pointer(Space.WORKSPACE, 0, y.offset + 4)
    assert isinstance(launch, Launch)
    assert launch.parameters[0] == x
    assert launch.parameters[1] == Pointer(Space.SLOT, 1)
    assert launch.parameters[2] == y
    assert y.offset >= x.offset + 2 * 9 * 8 * 7 * 4
    assert draft.workspace_bytes >= y.offset + 2 * 12 * 8 * 7 * 4


@pytest.mark.parametrize("arch", ["x86_64-v2", "x86_64-v3", "x86_64-v4", "aarch64"])
def test_copies_are_reproducible_on_every_target(arch):
    geometry = SIGNATURES[0].geometry
    target = cpu_target(arch, 2)
    solver = Relayout(Picky(), CPU_COPIES)
    config = solver.default_config(geometry, target)
    assert solver.draft(geometry, config, target) == solver.draft(geometry, config, target)
