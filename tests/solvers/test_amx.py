"""The kernels of matrix tiles against PyTorch's float64 answer: written in C wherever vectors have 64 bytes, and by the
processor's instructions where it has them."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from draft_call import call_draft, compile_drafts, logical
from narrow_cases import assert_right, assert_specials_spread, with_dtype
from test_dense import GELU, GEMMS, NHWC, SIGNATURES, answer, assert_close, check_specials, initial
from test_wrw import DENSE
from test_wrw import NHWC as WRW_NHWC

import levels
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args
from tilesmith.solvers.c.tiles.solver import TilesSolver
from tilesmith.solvers.c.tiles.tile import DIRECT, ROWS, STRIP
from tilesmith.solvers.c.tiles_wrw.solver import TilesWrwSolver
from tilesmith.solvers.solver import Accepted, Rejected

SOLVER = TilesSolver()
WIDE = [level for level in levels.HERE if level.vector_bytes == 64]
MORE = [
    ConvSignature((1, 14, 14, 64), (48, 3, 3, 64), padding=1, epilogue=Epilogue(bias=True, activation="relu"), **NHWC),
    ConvSignature((2, 7, 7, 64), (40, 1, 1, 64), epilogue=GELU, **NHWC),
    ConvSignature((1, 5, 20, 32), (33, 1, 1, 32), stride=(2, 1), **NHWC),
    ConvSignature((1, 9, 33, 32), (70, 1, 1, 32), output_strides=(30000, 3000, 72, 1), **NHWC),
    ConvSignature((2, 11, 13, 3), (20, 7, 7, 3), padding=3, stride=2, **NHWC),
    ConvSignature((1, 13, 9, 24), (32, 3, 3, 24), padding=2, dilation=2, stride=(1, 2), **NHWC),
    # Phases that no tap meets: their results are the bias.
    ConvSignature(
        (1, 20, 24, 64), (64, 3, 3, 48), transposed=True, stride=2, dilation=2, epilogue=Epilogue(bias=True), **NHWC
    ),
    GemmSignature(m=70, n=50, k=64, trans_b=True, epilogue=Epilogue(bias=True)),
    GemmSignature(m=33, n=100, k=96, lda=128, epilogue=GELU),
    GemmSignature(m=40, n=24, k=64, batch=3, alpha=0.5, beta=0.25),
]


def targets():
    """In C, compiled for a level without the instructions; and by the instructions."""
    plain = [level for level in WIDE if not level.bf16_tiles][-1:]
    found = [pytest.param(replace(level, bf16_tiles=True), id=f"{level.arch} in C") for level in plain]
    found += [pytest.param(level, id=level.arch) for level in WIDE if level.bf16_tiles]
    return found or [pytest.param(None, id="none")]


pytestmark = [pytest.mark.needs_wide_vectors, pytest.mark.parametrize("target", targets())]
CASES = [with_dtype(signature, "bf16") for signature in (*SIGNATURES, *GEMMS, *MORE)]
CASES += [replace(with_dtype(MORE[at], "bf16"), output_dtype=name) for at, name in ((0, "fp32"), (3, "fp16"))]
CASES.append(replace(with_dtype(MORE[7], "bf16"), c_dtype="fp32"))


WRW = [
    with_dtype(signature, "bf16")
    for signature in (
        *(each for each in DENSE if each.groups == 1 or each.geometry.k // each.groups >= 8),
        ConvSignature(
            (2, 13, 12, 40),
            (20, 40, 3, 3),
            padding=1,
            stride=2,
            kernel_layout="NCHW",
            mode="wrw",
            input_layout="NHWC",
            output_layout="NHWC",
        ),
        ConvSignature((1, 11, 14, 16), (16, 3, 2, 16), padding=2, dilation=(2, 3), stride=(1, 3), **WRW_NHWC),
        ConvSignature((1, 5, 6, 7, 8), (9, 3, 3, 3, 8), padding=1, stride=(2, 1, 2), shared_layout="NDHWC", mode="wrw"),
        ConvSignature((2, 10, 9, 48), (48, 3, 3, 16), padding=1, groups=3, **WRW_NHWC),
        ConvSignature((1, 33, 40, 16), (16, 1, 1, 16), **WRW_NHWC),
        ConvSignature((1, 33, 26, 3), (16, 8, 8, 3), stride=(5, 9), **WRW_NHWC),
        ConvSignature((1, 40, 30, 20), (17, 3, 3, 20), padding=1, **WRW_NHWC),  # parts of lines
    )
]

WRW.append(replace(WRW[0], kernel_dtype="fp32"))


def fits(signature):
    geometry = signature.geometry
    return not (isinstance(signature, ConvSignature) and signature.groups > 1 and geometry.k // geometry.groups < 16)


def run(target, cases, chunks=(0,), specials=False):
    compile_drafts([draft for _, draft, _ in cases], target)
    for signature, draft, config in cases:
        arguments = sample_args(signature, 2)
        want = answer(signature, arguments)
        for chunk in chunks:
            got = call_draft(draft, target, signature, arguments, chunk, initial(signature, arguments))
            assert_close(signature, logical(signature, got), want), config
        if specials and isinstance(signature, ConvSignature) and signature.epilogue.is_identity:
            check_specials(target, signature, draft)


def test_defaults_are_right(target):
    """Numbers, and where NaN and Inf go: odd channels, padding, tails and phases."""
    cases = []
    for signature in CASES:
        problem = signature.geometry
        verdict = SOLVER.applicable(problem, target)
        if isinstance(verdict, Rejected):
            assert not fits(signature), verdict
            continue
        assert verdict == Accepted()
        config = SOLVER.default_config(problem, target)
        assert SOLVER.search_space(problem, target).contains(config)
        cases.append((signature, SOLVER.draft(problem, config, target), config))
    assert len(cases) >= len(CASES) - 3
    run(target, cases, specials=True)


def test_random_configs_are_right(target):
    rng, cases, packs = random.Random(11), [], set()
    for signature in CASES:
        problem = signature.geometry
        if not fits(signature):
            continue
        space, default = SOLVER.search_space(problem, target), SOLVER.default_config(problem, target)
        for pack in space.axes["pack"]:
            for _ in range(300):
                config = default.replace(**{name: rng.choice(values) for name, values in space.axes.items()})
                config = config.replace(pack=pack)
                if space.contains(config):
                    packs.add(pack)
                    cases.append((signature, SOLVER.draft(problem, config, target), config))
                    break
    assert packs == {DIRECT, STRIP, ROWS}
    run(target, cases, chunks=(0, 1))


def test_a_result_over_the_residual(target):
    """Bit for bit what it is elsewhere: a tile that begins again in the one before it writes its own pixels alone."""
    cases = []
    for signature in (each for each in CASES if each.epilogue.residual and fits(each)):
        problem = signature.geometry
        space, default = SOLVER.search_space(problem, target), SOLVER.default_config(problem, target)
        for pack in space.axes["pack"]:
            config = default.replace(pack=pack, strip_pad=0)
            if space.contains(config):
                cases.append((signature, SOLVER.draft(problem, config, target), config))
    assert {config["pack"] for *_, config in cases} >= {DIRECT, STRIP}
    compile_drafts([draft for _, draft, _ in cases], target)
    for signature, draft, _ in cases:
        assert draft.in_place
        arguments = sample_args(signature, 1)
        apart = call_draft(draft, target, signature, arguments, 1)
        assert np.array_equal(apart, call_draft(draft, target, signature, arguments, 1, over="z"))


def test_weights_are_right(target):
    """Every config: odd pixels, strides, dilation, depth, groups, filters in either layout."""
    solver, cases = TilesWrwSolver(), []
    for signature in WRW:
        problem = signature.geometry
        assert solver.applicable(problem, target) == Accepted(), signature
        space, default = solver.search_space(problem, target), solver.default_config(problem, target)
        assert space.contains(default)
        for m in space.axes["tiles_m"]:
            for n in space.axes["tiles_n"]:
                for steps in {0, *space.axes["line_steps"][1:2]}:
                    config = default.replace(tiles_m=m, tiles_n=n, line_steps=steps)
                    cases.append((signature, (m, n) == (1, 1), solver.draft(problem, config, target)))
    compile_drafts([draft for *_, draft in cases], target)
    for signature, once, draft in cases:
        for chunk in (0, 1):
            assert_right(signature, draft, target, 2, chunk)
        if once:
            assert_specials_spread(signature, draft, target)
