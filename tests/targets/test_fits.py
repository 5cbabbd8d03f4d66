"""Measured constants: one record a card, the nearest one scaled for cards that were not measured."""

from __future__ import annotations

from dataclasses import replace
from typing import get_type_hints

import pytest

from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.cuda.wgmma.solver import GemmSm90Solver
from tilesmith.targets.cpu import CPU_TARGETS, cpu_target
from tilesmith.targets.cuda import CUDA_TARGETS, cuda_target
from tilesmith.targets.fits.choose import cpu_fit_of, cpu_fits, fit_of, fits, tiles_fit_of
from tilesmith.targets.fits.emerald_rapids import EMERALD_RAPIDS
from tilesmith.targets.fits.epyc import EPYC
from tilesmith.targets.fits.h200 import H200
from tilesmith.targets.fits.scaling import parts_of, scaled
from tilesmith.targets.fits.units import Unit
from tilesmith.targets.target import CudaTarget


def named(card: str, **changes: float) -> CudaTarget:
    return replace(cuda_target("sm_90a"), card=card, **changes)


@pytest.mark.parametrize("fit", [*fits(), *cpu_fits()], ids=lambda fit: fit.card)
def test_every_constant_has_a_unit_and_a_sentence(fit):
    for part in parts_of(fit):
        record = getattr(fit, part.name)
        for name, hint in get_type_hints(type(record), include_extras=True).items():
            unit, says = hint.__metadata__
            assert isinstance(unit, Unit), name
            assert says == says[0].upper() + says[1:].rstrip(".") + ".", name


def test_the_measured_card_takes_what_was_measured():
    assert fit_of(cuda_target("sm_90a", 132)) is H200


def test_what_a_sheet_says_of_a_measured_card_changes_nothing():
    assert fit_of(named("h200", bytes_per_s=4.8e12, clock_hz=1.98e9)) == H200


def test_half_the_memory_halves_rates_of_bytes_alone():
    fit = fit_of(named("h100-pcie", bytes_per_s=H200.bytes_per_s / 2))
    assert fit.tile == replace(H200.tile, partial_bytes=H200.tile.partial_bytes / 2)
    assert fit.thin.partial_bytes == H200.thin.partial_bytes / 2


def test_half_the_clock_doubles_times_and_leaves_cycles():
    fit = scaled(H200, 132, H200.clock_hz / 2, H200.bytes_per_s)
    assert fit.tile.clock == H200.tile.clock / 2
    assert fit.thin.start == tuple(2 * seconds for seconds in H200.thin.start)
    assert fit.tile.latency == H200.tile.latency


def test_clusters_go_with_the_sms():
    assert fit_of(cuda_target("sm_90a", 114)).tile.clusters == tuple(
        tuple(count * 114 // 132 for count in row) for row in H200.tile.clusters
    )


@pytest.mark.parametrize("arch", CUDA_TARGETS)
def test_every_arch_has_a_fit(arch):
    target = cuda_target(arch)
    fit = fit_of(target)
    assert (fit.cores, fit.clock_hz, fit.bytes_per_s) == (target.cores, target.clock_hz, target.bytes_per_s)


@pytest.mark.parametrize("arch", CPU_TARGETS)
def test_every_cpu_has_a_fit(arch):
    wanted = EMERALD_RAPIDS if arch == "x86_64-v4-amx" else EPYC
    assert cpu_fit_of(cpu_target(arch)) is wanted
    assert tiles_fit_of(cpu_target(arch)) is EMERALD_RAPIDS.tiles  # of the nearest that has any


def test_a_card_with_less_memory_takes_longer():
    solver, problem = GemmSm90Solver(), GemmSignature(64, 4096, 4096, dtype="bf16").geometry
    h200, slower = cuda_target("sm_90a"), named("h100-pcie", bytes_per_s=2e12)
    config = solver.default_config(problem, h200)
    assert solver.predict(problem, config, slower) > 1.3 * solver.predict(problem, config, h200)
