"""Activations in the families of GPU kernels: their texts compile, for every arch."""

from __future__ import annotations

import pytest

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import LATER, Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.cuda.reference.solver import CudaReferenceSolver
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import candidates
from tilesmith.targets.cuda import CUDA_TARGETS
from tilesmith.toolchain.build import build_unit

NHWC = {"shared_layout": "NHWC", "padding": 1, "dtype": "bf16"}


def problems(name):
    e = Epilogue(bias=True, activation=name)
    yield ConvSignature((2, 20, 20, 64), (64, 3, 3, 64), epilogue=e, **NHWC)
    yield ConvSignature((2, 20, 20, 64), (64, 3, 3, 1), groups=64, epilogue=e, **NHWC)
    yield GemmSignature(512, 4, 512, dtype="fp32", epilogue=e)


def sources(name, target):
    """The untuned choice of each fast family that computes one of the problems, by symbol."""
    found = {}
    for problem in problems(name):
        for candidate in candidates(problem.canonical, target):
            if isinstance(candidate.verdict, Accepted) and not isinstance(candidate.solver, CudaReferenceSolver):
                solver, geometry = candidate.solver, candidate.geometry
                draft = solver.draft(geometry, solver.default_config(geometry, target), target)
                assert any("activate" in source.text for source in draft.sources), candidate.name
                found |= {source.symbol: source for source in draft.sources}  # what packs or copies has no activation
    return found


@pytest.mark.parametrize(
    ("arch", "name"), [*zip(CUDA_TARGETS, LATER, strict=False), ("sm_100a", "hardswish"), ("sm_120a", "gelu_tanh")]
)
def test_fast_kernels_compile(arch, name, tmp_path):
    """Every second kernel on an H200, one kernel on each other arch, in turn."""
    target = CUDA_TARGETS[arch]
    found = sources(name, target)
    kernels = list(found.items())
    turn = list(CUDA_TARGETS).index(arch) % len(kernels)
    found = dict(kernels[::2] if arch == "sm_90a" else kernels[turn : turn + 1])
    built = build_unit(list(found.values()), target, tmp_path / "unit.cubin")
    assert {kernel.symbol for kernel in built} == set(found)
    assert not [kernel for kernel in built if kernel.spill_store_bytes]


def test_the_reference_compiles(tmp_path):
    target, solver, found = CUDA_TARGETS["sm_80"], CudaReferenceSolver(), []
    for name in LATER[::2]:
        geometry = GemmSignature(40, 40, 40, epilogue=Epilogue(activation=name)).geometry
        found += solver.draft(geometry, solver.default_config(geometry, target), target).sources
    built = build_unit(found, target, tmp_path / "unit.cubin")
    assert {kernel.symbol for kernel in built} == {source.symbol for source in found}
    assert len(built) == len(LATER[::2])
