"""Depthwise convolutions through the emulator: numbers of every kernel, with tails, and NaN and Inf planted."""

from __future__ import annotations

import pytest
from cuda_chain import H200, check_numbers, executable

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.solvers.cuda.depthwise.solver import DepthwiseCudaSolver
from tilesmith.solvers.cuda.depthwise_mma.solver import DepthwiseMmaSolver
from tilesmith.solvers.cuda.depthwise_planes.solver import DepthwisePlanesSolver
from tilesmith.solvers.solver import Accepted, Config, Rejected
from tilesmith.toolchain.build import build_unit

# The values of configs are those of the solver's axes, in their order.
MMA, PLANES, GATHER = DepthwiseMmaSolver(), DepthwisePlanesSolver(), DepthwiseCudaSolver()
LONG = Epilogue(bias=True, activation="gelu", residual=True)
FULL = Epilogue(bias=True, activation="leaky_relu", residual=True)


def last(c, size, taps, mode="fwd", n=2, dtype="bf16", each=1, **more):
    layout = "NHWC" if len(size) == 2 else "NDHWC"
    more = {"mode": mode, "dtype": dtype, "shared_layout": layout, **more}
    return ConvSignature((n, *size, c), (c * each, *taps, 1), groups=c, **more)


def first(c, size, taps, mode="fwd", n=2, dtype="bf16", **more):
    layout = "NCW" if len(size) == 1 else "NCHW"
    return ConvSignature((n, c, *size), (c, 1, *taps), groups=c, mode=mode, dtype=dtype, shared_layout=layout, **more)


CASES = [
    (MMA, last(20, (9, 18), (3, 3), padding=1, epilogue=FULL), (16, 32, 1, 2, 2, 3, 0)),
    (MMA, last(8, (3, 11, 12), (2, 3, 2), padding=((1, 0), (2, 1), (0, 2)), stride=(1, 2, 3), dilation=(2, 3, 2),
               output_dtype="fp32"), (16, 16, 2, 1, 2, 2, 0)),
    (MMA, last(4, (12, 9), (9, 8), "bwd", padding=4, dtype="fp16"), (16, 16, 1, 2, 1, 2, 0)),  # the filter in memory
    (MMA, last(4, (9, 6), (35, 2), n=1, padding=(17, 1)), (16, 16, 1, 1, 1, 2, 0)),  # rows and columns exchanged
    (MMA, last(20, (6, 21), (5, 7), "wrw", padding=(2, 3), dtype="fp16"), (16, 32, 1, 2, 2, 3, 2)),
    (MMA, last(8, (4, 9, 13), (2, 3, 3), "wrw", padding=((1, 0), (1, 2), (0, 2)), stride=(1, 2, 3),
               dilation=(2, 1, 2)), (16, 16, 3, 1, 1, 2, 3)),
    (PLANES, first(3, (9, 12), (3, 5), padding=(1, 2), dilation=(2, 1), epilogue=FULL), (4, 2, 64, 0)),
    (PLANES, first(4, (24,), (4,), "bwd", padding=((3, 0),)), (8, 1, 64, 0)),
    (PLANES, first(4, (9, 12), (3, 3), "bwd", padding=1, dtype="fp16", epilogue=LONG), (4, 4, 64, 0)),
    (PLANES, first(3, (5, 6), (3, 2), "wrw", n=3, dtype="fp16", padding=((1, 1), (1, 0))), (2, 1, 64, 2)),
    (GATHER, last(20, (7, 9), (3, 2), padding=1, stride=(2, 1), epilogue=FULL), (4, 2, 3, 64, 1, 0, 0)),
    (GATHER, last(10, (5, 6), (7, 9), "bwd", dtype="fp16", padding=4), (2, 2, 3, 64, 1, 0, 0)),
    (GATHER, last(8, (5, 5), (3, 3), "bwd", padding=1, dtype="fp32", epilogue=LONG), (4, 4, 3, 64, 2, 0, 0)),
    (GATHER, last(4, (9, 11), (7, 7), padding=3, stride=2, dtype="fp16"), (2, 4, 4, 64, 1, 0, 0)),  # a loop over rows
    (GATHER, last(6, (7, 9), (3, 2), "wrw", n=3, dtype="fp32", padding=1, stride=2), (2, 2, 3, 64, 0, 2, 2)),
    (GATHER, last(4, (4, 5), (2, 2), "wrw", dtype="fp16"), (2, 4, 6, 64, 0, 2, 2)),  # x meets no dy beyond the image
    (GATHER, last(8, (5, 6, 7), (3, 3, 2), padding=((1, 2), (1, 0), (0, 1)), stride=(2, 1, 1), epilogue=FULL),
     (2, 2, 3, 64, 1, 0, 0)),
    (GATHER, last(6, (5, 4, 6), (3, 3, 3), "bwd", dtype="fp32", padding=1, stride=(2, 1, 1), dilation=(1, 2, 1)),
     (2, 2, 3, 64, 2, 0, 0)),
    (GATHER, last(10, (4, 6, 8), (2, 7, 9), "bwd", padding=(1, 3, 4), dilation=(2, 1, 1), epilogue=LONG),
     (2, 2, 3, 64, 1, 0, 0)),  # the filter in memory
    (GATHER, last(4, (4, 7, 5), (3, 3, 2), "wrw", n=3, padding=1, stride=(2, 2, 1), dilation=(1, 1, 2)),
     (2, 2, 3, 64, 0, 2, 2)),
    # Taps beyond 128: rows of inputs in a loop, whose rows of the filter are dilated, strided, or strided backwards.
    (GATHER, last(6, (9, 14), (13, 15), n=1, padding=(6, 7), dtype="fp32", epilogue=FULL), (2, 2, 4, 64, 1, 0, 0)),
    (GATHER, last(5, (9, 8), (13, 12), n=1, padding=(15, 13), stride=(2, 1), dilation=(3, 2), dtype="fp32"),
     (1, 3, 4, 64, 1, 0, 0)),
    (GATHER, last(5, (7, 8), (12, 13), "bwd", n=1, padding=(6, 5), stride=(2, 3), dtype="fp32"),
     (1, 4, 6, 64, 1, 0, 0)),
    (GATHER, last(6, (9, 8), (13, 11), "bwd", n=1, padding=(14, 6), stride=(3, 1), dilation=(2, 1), epilogue=LONG),
     (2, 3, 3, 64, 1, 0, 0)),
    (GATHER, last(5, (9, 14), (13, 15), "wrw", padding=(10, 7), dilation=(2, 1), dtype="fp32"), (1, 2, 4, 64, 0, 3, 2)),
    # Several results of a channel: as many as a thread has, more, fewer, and an odd number.
    (GATHER, last(10, (7, 9), (3, 2), each=2, padding=1, stride=(2, 1), epilogue=FULL), (2, 2, 3, 64, 1, 0, 0)),
    (GATHER, last(6, (7, 8), (9, 9), each=4, padding=4, dtype="fp16"), (2, 2, 3, 64, 1, 0, 0)),  # a loop over rows
    (GATHER, last(12, (5, 6), (3, 3), each=2, padding=1, dtype="fp32", epilogue=LONG), (4, 2, 3, 64, 1, 0, 0)),
    (GATHER, last(5, (4, 6, 5), (2, 3, 3), each=3, padding=1), (1, 2, 3, 64, 1, 0, 0)),
    (GATHER, last(6, (9, 14), (13, 15), each=2, n=1, padding=(6, 7)), (2, 3, 3, 128, 1, 0, 0)),  # taps beyond 128
    (GATHER, last(6, (5, 20), (12, 31), each=2, n=1, padding=((5, 6), (15, 15)), dtype="fp32"),
     (1, 2, 2, 128, 1, 0, 0)),
    (GATHER, last(6, (9, 14), (13, 15), "wrw", each=2, padding=(6, 7)), (2, 1, 6, 128, 0, 1, 2)),
    (GATHER, last(10, (7, 9), (3, 7), "wrw", each=2, padding=(1, 3), stride=2), (2, 2, 3, 64, 0, 2, 2)),
    (GATHER, last(6, (6, 7), (5, 5), "wrw", n=3, each=2, padding=2, dtype="fp16"), (4, 2, 3, 64, 0, 2, 2)),
    (GATHER, last(5, (3, 6, 5), (2, 3, 3), "wrw", each=3, padding=1, dtype="fp32"), (1, 2, 3, 64, 0, 2, 2)),
]  # fmt: skip


def gathers(*values):
    names = ("channels_per_thread", "rows_per_thread", "columns_per_thread", "threads", "rows_ahead", "filter_rows",
             "blocks_per_sm")  # fmt: skip
    return Config(tuple(zip(names, values, strict=True)))


@pytest.mark.parametrize(
    ("signature", "values"),
    [
        (last(720, (1, 2048), (1, 7), padding=(0, 3)), (4, 1, 12)),
        (last(720, (1, 2048), (1, 7), padding=(0, 3)), (2, 1, 8)),
        (last(96, (40, 40), (3, 3), "bwd", stride=2, padding=1), (4, 6, 4)),
        (last(256, (28, 28), (13, 13), padding=6, dtype="fp32"), (1, 4, 7)),
        (last(128, (56, 56), (31, 31), "bwd", n=16, padding=15, dtype="fp32"), (1, 2, 6)),
    ],
)
def test_registers_are_about_those_that_the_compiler_takes(signature, values, tmp_path):
    """Blocks on an SM follow from them; the estimate was up to twice as high."""
    solver, problem = DepthwiseCudaSolver(), signature.canonical.geometry
    config = gathers(*values, 256, 1, 0, 0)
    (found,) = build_unit(solver.draft(problem, config, H200).sources, H200, tmp_path / "unit")
    assert 0.75 < solver.tile(problem, config, H200).held_registers / found.registers < 1.3


def named(value):
    return value.key()[6:70] if isinstance(value, ConvSignature) else getattr(value, "name", "")


@pytest.mark.parametrize(("solver", "signature", "values"), CASES, ids=named)
def test_numbers(solver, signature, values, emulating):
    signature = signature.canonical
    geometry, chosen = signature.geometry, Config(tuple(zip((a.name for a in solver.axes), values, strict=True)))
    assert solver.applicable(geometry, H200) == Accepted()
    assert solver.search_space(geometry, H200).contains(chosen)
    made = executable(signature, solver.draft(geometry, chosen, H200), emulating)
    check_numbers(signature, made)


def test_several_results_of_a_channel_are_for_sums_over_pixels_alone():
    def layer(each, mode="fwd"):
        return last(16, (9, 9), (3, 3), mode, each=each).canonical.geometry

    assert GATHER.applicable(layer(2), H200) == GATHER.applicable(layer(2, "wrw"), H200) == Accepted()
    assert isinstance(GATHER.applicable(layer(2, "bwd"), H200), Rejected)
    assert all(isinstance(solver.applicable(layer(2), H200), Rejected) for solver in (MMA, PLANES))
    # A thread has whole shares of a channel's results, or of whole channels.
    spaces = {each: GATHER.search_space(layer(each), H200) for each in (2, 3, 4)}
    fits = {
        each: [vec for vec in (1, 2, 4, 8) if space.contains(gathers(vec, 2, 3, 64, 1, 0, 0))]
        for each, space in spaces.items()
    }
    assert fits == {2: [1, 2, 4, 8], 3: [1], 4: [1, 2, 4, 8]}
