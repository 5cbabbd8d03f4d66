"""The clocks of ``benchmarks/gpu/probes/inside.py`` find their places in today's kernels, and the kernels compile."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cuda_chain import H200

from tilesmith.problems.driver import parse_problem
from tilesmith.solvers.table_cuda import CUDA_SOLVERS
from tilesmith.toolchain.build import build_unit

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "gpu" / "probes"))
import inside

CONV = (
    "convbfp16 -n 8 -c 64 -H 28 -W 28 -k 64 -y 3 -x 3 -p 1 -q 1 -F 1 "
    "--in_layout NHWC --fil_layout NHWC --out_layout NHWC"
)
SOLVERS = {solver.name: solver for solver in CUDA_SOLVERS}


def source_of(name, command):
    ((_, signature),) = parse_problem(command).signatures
    solver, geometry = SOLVERS[name], signature.canonical.geometry
    return solver.draft(geometry, solver.default_config(geometry, H200), H200).sources[0]


@pytest.mark.parametrize(
    ("name", "command"),
    [("wgmma_gemm", "gemmbfp16 -m 1024 -n 1024 -k 1024"), ("wgmma_conv", CONV), ("wgmma_halo", CONV)],
)
def test_every_clock_is_read(name, command, tmp_path):
    source = source_of(name, command)
    text = inside.patched(source.text)
    assert all(f"TS_STAMP({place}," in text for place in (*inside.NAMES.values(), 6, 7))
    kernels = build_unit([replace(source, text=text)], H200, tmp_path / "unit.cubin")
    assert [kernel.spill_store_bytes for kernel in kernels] == [0, 0]  # the other one reads the clocks


def test_a_kernel_without_a_place_is_refused():
    with pytest.raises(ValueError, match="no place for a clock: the kernel has no"):
        inside.patched(source_of("mma_dense", "gemmbfp16 -m 1024 -n 1024 -k 1024").text)
