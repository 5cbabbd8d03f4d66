"""Weight and bias gradients against PyTorch's float64 answer: tails, strips, pairs of rows, groups, layouts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from narrow_cases import (
    assert_defaults_are_right,
    assert_right,
    draft_all,
    sweep_configs,
    with_dtype,
)

from tilesmith.problems.conv import ConvSignature
from tilesmith.solvers.c.bgrad.solver import BgradSolver
from tilesmith.solvers.c.wrw.solver import WrwSolver
from tilesmith.solvers.c.wrw.tile import flattened, strip_shape
from tilesmith.solvers.c.wrw_grouped.solver import WrwGroupedSolver
from tilesmith.solvers.c.wrw_grouped.tile import passes
from tilesmith.solvers.solver import Accepted, Rejected
from tilesmith.targets.cpu import CPU_TARGETS, cpu_target

NHWC = {"shared_layout": "NHWC", "mode": "wrw"}
MIXED = {"input_layout": "NHWC", "output_layout": "NHWC", "kernel_layout": "NCHW", "mode": "wrw"}

DENSE = [
    ConvSignature((2, 9, 11, 5), (19, 3, 3, 5), padding=1, **NHWC),
    ConvSignature((3, 7, 7, 32), (40, 3, 3, 32), padding=1, **NHWC),  # odd rows
    ConvSignature((1, 15, 14, 3), (64, 7, 7, 3), stride=2, padding=3, **NHWC),
    ConvSignature((2, 8, 9, 24), (33, 1, 1, 24), **NHWC),
    ConvSignature((1, 7, 7, 24), (32, 1, 1, 24), **NHWC),  # an odd number of pixels
    ConvSignature((2, 9, 9, 16), (17, 1, 1, 16), stride=2, **NHWC),
    ConvSignature((2, 10, 9, 6), (12, 6, 3, 2), padding=(2, 1), dilation=(1, 2), stride=(2, 1), **MIXED),
    ConvSignature((2, 8, 7, 40), (48, 3, 3, 20), padding=1, groups=2, **NHWC),
    ConvSignature((1, 50, 12), (20, 5, 12), padding=2, shared_layout="NWC", mode="wrw"),
    ConvSignature((2, 4, 5, 6, 3), (20, 3, 2, 3, 3), padding=1, stride=(1, 2, 1), shared_layout="NDHWC", mode="wrw"),
    ConvSignature((1, 6, 7, 20), (17, 3, 3, 20), input_strides=(1200, 200, 24, 1), output_strides=(600, 110, 19, 1),
                  **NHWC),
    ConvSignature((2, 6, 7, 5), (5, 3, 3, 24), transposed=True, stride=2, padding=1, **NHWC),
    ConvSignature((1, 4, 4, 8), (16, 2, 2, 8), padding=3, **NHWC),  # strips without any input
]  # fmt: skip
NARROW = [
    ConvSignature((2, 9, 11, 19), (19, 3, 3, 1), padding=1, groups=19, **NHWC),
    ConvSignature((1, 8, 9, 32), (32, 7, 7, 1), padding=3, groups=32, **NHWC),  # several passes
    ConvSignature((1, 10, 12, 18), (18, 3, 2, 1), padding=(3, 1), stride=(2, 3), dilation=(2, 1), groups=18, **NHWC),
    ConvSignature((2, 7, 6, 8), (16, 3, 3, 1), padding=1, groups=8, **NHWC),
    ConvSignature((2, 7, 9, 40), (40, 4, 3, 3), padding=1, groups=10, **MIXED),
    ConvSignature((1, 7, 9, 30), (30, 3, 3, 2), padding=1, groups=15, **NHWC),
    ConvSignature((1, 3, 5, 6, 17), (17, 3, 3, 3, 1), padding=1, groups=17, shared_layout="NDHWC", mode="wrw"),
    ConvSignature((1, 6, 7, 32), (8, 3, 3, 8), padding=1, groups=4, **NHWC),
]
BIAS = [
    ConvSignature((2, 9, 11, 4), (19, 1, 1, 4), shared_layout="NHWC", mode="bgrad"),
    ConvSignature((3, 4, 9, 11), (150, 4, 1, 1), mode="bgrad"),
    ConvSignature((1, 4, 700), (3, 4, 1), mode="bgrad"),
    ConvSignature((2, 3, 5, 6, 4), (130, 1, 1, 1, 4), shared_layout="NDHWC", mode="bgrad"),
    ConvSignature(
        (1, 40, 50, 4), (36, 1, 1, 4), output_strides=(99999, 2000, 39, 1), shared_layout="NHWC", mode="bgrad"
    ),
]


def narrow_for(target):
    """Problems with two groups or more in a vector: five of them on any target."""
    found = [s for s in NARROW if WrwGroupedSolver().applicable(s.geometry, target) == Accepted()]
    assert len(found) >= 5
    return found


def test_defaults_are_right(level):
    assert_defaults_are_right(WrwSolver(), DENSE, level)
    assert_defaults_are_right(BgradSolver(), BIAS, level)


def test_narrow_defaults_are_right(level):
    assert_defaults_are_right(WrwGroupedSolver(), narrow_for(level), level)


def test_random_configs_are_right(level):
    sweep_configs(WrwSolver(), DENSE, level, 5)
    sweep_configs(BgradSolver(), BIAS, level, 6)
    sweep_configs(WrwGroupedSolver(), narrow_for(level), level, 7)


def test_several_threads_share_the_work():
    problem = DENSE[1].geometry
    for solver, p in ((WrwSolver(), problem), (WrwGroupedSolver(), NARROW[0].geometry)):
        target = cpu_target("x86_64-v4-bf16", 4)
        draft = solver.draft(p, solver.default_config(p, target), target)
        assert draft.run[0].grid[0] >= 8


def test_results_do_not_depend_on_who_computes(level):
    """Split sums are added in a fixed order, whatever the order of the items."""
    from draft_call import call_draft

    from tilesmith.problems.samples import sample_args

    signature = DENSE[0]
    solver, problem = WrwSolver(), signature.geometry
    config = solver.default_config(problem, level).replace(split_n=4, strip_pixels=64)
    draft = solver.draft(problem, config, level)
    arguments = sample_args(signature, 8)
    results = [call_draft(draft, level, signature, arguments, chunk) for chunk in (0, 1)]
    assert np.array_equal(*results)


def test_long_sums_keep_their_precision(level):
    for solver, signature in (
        (WrwSolver(), ConvSignature((1, 300, 301, 2), (4, 1, 1, 2), **NHWC)),
        (WrwGroupedSolver(), ConvSignature((1, 300, 301, 8), (8, 1, 1, 1), groups=8, **NHWC)),
        (BgradSolver(), ConvSignature((1, 300, 301, 2), (4, 1, 1, 2), shared_layout="NHWC", mode="bgrad")),
    ):
        assert_right(signature, draft_all(solver, [signature], level)[0], level)


def test_passes_hold_every_tap_once():
    for filter_, steps, budget in (((1, 3, 3), 1, 9), ((1, 7, 7), 1, 25), ((3, 3, 3), 4, 12), ((1, 2, 5), 16, 20)):
        parts = passes(filter_, steps, budget)
        cells = [cell for part in parts for cell in part]
        assert len(cells) == len(set(cells)) == filter_[0] * filter_[1] * filter_[2] * steps
        assert max(map(len, parts)) <= budget


def test_strips_are_even_where_rows_go_in_pairs():
    problem = DENSE[0].geometry
    for pixels in (64, 128, 1024):
        _, rows, cols = strip_shape(problem, pixels, True)
        assert rows == problem.output[1] or rows % 2 == 0
        assert cols <= problem.output[2]


def test_flat_problems_keep_their_pixels():
    target = CPU_TARGETS["x86_64-v4-bf16"]
    shapes = []
    for dtype in ("fp32", "bf16"):
        form = flattened(with_dtype(DENSE[3], dtype).geometry, target)
        shapes.append(form.output)
        assert form.n == 1
        assert form.output[1] * form.output[2] == 2 * 8 * 9
    assert shapes[0][1] == 1
    assert shapes[1][1] % 2 == 0
    strided = DENSE[5].geometry
    assert flattened(strided, target) == strided


def test_refusals_have_reasons():
    target = CPU_TARGETS["x86_64-v3"]
    for solver, signature, reason in [
        (WrwSolver(), ConvSignature((1, 8, 9, 9), (8, 8, 3, 3), mode="wrw"), "layout not read"),
        (WrwSolver(), ConvSignature((1, 9, 9, 8), (8, 3, 3, 8), dtype="fp64", **NHWC), "dtype not covered"),
        (WrwGroupedSolver(), DENSE[0], "group width not covered"),
        (BgradSolver(), DENSE[0], "direction not covered"),
    ]:
        verdict = solver.applicable(signature.geometry, target)
        assert isinstance(verdict, Rejected)
        assert verdict.reason == reason


def test_predictions_prefer_full_registers():
    """The model must tell good tiles from bad ones: that is what untuned choices rest on."""
    target = CPU_TARGETS["x86_64-v4"]
    problem = ConvSignature((8, 56, 56, 64), (64, 3, 3, 64), padding=1, **NHWC).geometry
    solver = WrwSolver()
    config = solver.default_config(problem, target)
    times = [
        solver.predict(problem, config.replace(tile_m=mr, vectors=nv), target)
        for mr, nv in ((12, 2), (6, 2), (2, 2), (1, 1))
    ]
    assert all(a < b for a, b in pairwise(times))
