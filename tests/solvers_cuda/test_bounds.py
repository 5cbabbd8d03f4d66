"""Untuned choices look at few tiles: at those whose bound is below the best estimate. They are the choices of all."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tilesmith import ConvSignature, GemmSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.solvers.cuda.mma import solver as mma
from tilesmith.solvers.cuda.phases import solver as phases
from tilesmith.solvers.cuda.wgmma import solver as wgmma
from tilesmith.solvers.cuda.wgmma import space
from tilesmith.solvers.solver import Accepted
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.names import parse_target

H100, H200, FEWER = (parse_target(name) for name in ("sm_90a:132:h100", "sm_90a:132:h200", "sm_90a:78"))
A100 = parse_target("sm_80")
PROBLEMS = 9  # of each kind


def products(rng: random.Random) -> Iterator[GemmSignature]:
    """Small, odd, wide, batched ones and ones that memory bounds."""
    while True:
        m, n, k = (rng.choice((1, 8, 24, 72, 200, 264, 512, 1000, 1536, 4096, 11008)) for _ in range(3))
        dtype = rng.choice(("bf16", "fp16", "fp32", "int8", "fp8e4m3"))
        scales = {"a_scale": "1x128", "b_scale": "128x128"} if dtype == "fp8e4m3" and rng.random() < 0.5 else {}
        more = {} if scales else {"batch": rng.choice((1, 1, 1, 3, 64)), "trans_a": rng.random() < 0.3}
        residual = dtype != "int8" and rng.random() < 0.3
        yield GemmSignature(
            m, n, k, dtype=dtype, c_dtype="bf16" if scales else None, acc_dtype="tf32" if dtype == "fp32" else None,
            trans_b=rng.random() < 0.5, epilogue=Epilogue(bias=residual, residual=residual), **scales, **more,
        )  # fmt: skip


def convolutions(rng: random.Random) -> Iterator[ConvSignature]:
    """Of all directions and groups, with few and many channels."""
    while True:
        groups, size = rng.choice((1, 1, 1, 4)), rng.choice((7, 14, 30, 56))
        c, k = (groups * rng.choice((8, 16, 40, 64, 128, 320, 512)) for _ in range(2))
        mode, taps, spatial = rng.choice(("fwd", "bwd", "wrw")), rng.choice((1, 2, 3)), rng.choice((2, 2, 2, 3))
        size = min(size, 14) if spatial == 3 else size
        yield ConvSignature(
            (rng.choice((1, 8, 32)), *(size,) * spatial, c), (k, *(taps,) * spatial, c // groups),
            stride=rng.choice((1, 1, 2)), padding=taps // 2, groups=groups, mode=mode,
            dtype=rng.choice(("bf16", "fp16")), shared_layout="NHWC" if spatial == 2 else "NDHWC",
            epilogue=Epilogue(residual=mode != "wrw" and rng.random() < 0.3),
        )  # fmt: skip


CASES = {
    "wgmma_gemm": (wgmma.GemmSm90Solver(), products, (H100, H200, FEWER)),
    "wgmma_conv": (wgmma.ConvSm90Solver(), convolutions, (H100, H200, FEWER)),
    "mma_phases": (phases.PhasesSolver(), convolutions, (H200, A100)),
    "wgmma_phases": (phases.WgmmaPhasesSolver(), convolutions, (H100, H200)),
    "mma products": (mma.MmaDenseSolver(exact=False), products, (H200, A100)),
    "mma convolutions": (mma.MmaDenseSolver(exact=False), convolutions, (H200, A100)),
}


def some(name):
    """Problems and targets that the solver takes, each as ``(geometry, target)``."""
    solver, drawn, targets = CASES[name]
    rng, found = random.Random(name), 0
    for signature in drawn(rng):
        geometry, target = signature.canonical.geometry, targets[found % len(targets)]
        if isinstance(solver.applicable(geometry, target), Accepted):
            found += 1
            yield geometry, target
        if found == PROBLEMS:
            return


def sizes_of(solver, geometry, target):
    """The tiles of all sizes, and what makes a size's variants, bound and estimate."""
    if isinstance(solver, mma.MmaDenseSolver):
        form, fit = mma.dense_form(geometry), fit_of(target).mma
        sizes, variants = mma._sizes(form, mma._space(form, target), target), mma._changed
    elif isinstance(solver, phases.PhasesSolver):
        fit = phases._fit(target, solver.wgmma)
        sizes, variants = phases._sizes(phases._form(geometry), target, solver.wgmma), phases._changed
    else:
        found, fit = space.Space(solver.forms(geometry), target), fit_of(target).tile
        sizes, variants = found._sizes(), found._variants
    module, estimate = estimates_of(solver)
    return sizes, variants, lambda t: module.least_seconds(t, fit), lambda t: getattr(module, estimate)(t, fit)


def estimates_of(solver):
    """The module whose functions a solver's choice calls, and the name of the one that estimates."""
    if isinstance(solver, phases.PhasesSolver):
        return phases, "phases_seconds"
    return mma if isinstance(solver, mma.MmaDenseSolver) else space, "predicted_seconds"


def more_phases_than_sms():
    """Of a problem whose blocks of columns alone are more than the SMs."""
    signature = ConvSignature(
        (1, 36, 36, 36, 3), (32, 9, 9, 9, 3), stride=9, mode="bwd", dtype="bf16", shared_layout="NDHWC"
    )
    return signature.canonical.geometry, FEWER


@pytest.mark.parametrize("name", CASES)
def test_no_tile_is_estimated_below_its_bound(name):
    extra = [more_phases_than_sms()] if name == "mma_phases" else []
    for geometry, target in (*some(name), *extra):
        sizes, variants, least, seconds = sizes_of(CASES[name][0], geometry, target)
        for size in sizes:
            for tile in variants(size) if size.fits else ():
                assert not tile.fits or least(size) <= seconds(tile), (geometry, target.name, tile.config)


@pytest.mark.parametrize("name", CASES)
def test_the_choice_is_that_of_all_tiles(name, monkeypatch):
    solver, *_ = CASES[name]
    module, called = estimates_of(solver)
    estimate, asked = getattr(module, called), []

    def counted(tile, fit):
        asked.append(tile)
        return estimate(tile, fit)

    monkeypatch.setattr(module, called, counted)
    few = every = 0
    for geometry, target in some(name):
        choose = type(solver).default_config.__wrapped__  # which remembers nothing
        asked.clear()
        chosen = choose(solver, geometry, target)
        few += len(asked)
        with monkeypatch.context() as patch:
            patch.setattr(module, "least_seconds", lambda tile, fit: 0.0)
            asked.clear()
            assert choose(solver, geometry, target) == chosen, (geometry, target.name)
            every += len(asked)
    assert few < every / 2
