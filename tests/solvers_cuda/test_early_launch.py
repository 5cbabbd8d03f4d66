"""Kernels that may begin before the one ahead of them has ended: each waits for it, before it ends itself."""

from __future__ import annotations

import re

import pytest

from tilesmith.plan.records import Launch
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import candidates
from tilesmith.targets.cuda import CUDA_TARGETS

WAITS = re.compile(r'\b(ts_)?wait_previous\(\);|"griddepcontrol\.wait;"')
NHWC = {"padding": 1, "shared_layout": "NHWC", "dtype": "bf16"}
PROBLEMS = (
    ConvSignature((8, 28, 28, 64), (64, 3, 3, 64), **NHWC),
    ConvSignature((64, 56, 56, 64), (64, 3, 3, 64), mode="wrw", **NHWC),
    ConvSignature((8, 64, 28, 28), (64, 64, 3, 3), padding=1, stride=2, dtype="fp16", mode="bwd"),
    ConvSignature((8, 12, 28, 28), (30, 6, 3, 3), groups=2, dtype="fp32"),
    ConvSignature((64, 112, 112, 4), (8, 1, 1, 4), shared_layout="NHWC", dtype="bf16", mode="wrw"),
    ConvSignature((8, 28, 28, 64), (64, 5, 5, 1), groups=64, mode="wrw", **NHWC),
    ConvSignature((8, 28, 28, 64), (64, 5, 5, 1), groups=64, **NHWC),
    ConvSignature((8, 28, 28, 64), (64, 3, 3, 64), mode="bgrad", **NHWC),
    GemmSignature(4096, 4, 16, dtype="bf16"),
    GemmSignature(512, 512, 65536, dtype="bf16"),
    GemmSignature(77, 129, 4099, dtype="fp32"),
)


def cases():
    """All problems on sm_90a, whose launches may be early, and on sm_80; each other arch has a third, in turn."""
    for number, arch in enumerate(CUDA_TARGETS):
        for signature in PROBLEMS if arch in ("sm_80", "sm_90a") else PROBLEMS[number % 3 :: 3]:
            yield pytest.param(arch, signature, id=f"{arch}-{signature.key()[:60]}")


@pytest.mark.parametrize(("arch", "signature"), list(cases()))
def test_every_early_kernel_waits(arch, signature):
    target, early = CUDA_TARGETS[arch], 0
    for candidate in candidates(signature.canonical, target):
        if not isinstance(candidate.verdict, Accepted):
            continue
        g = candidate.geometry
        draft = candidate.solver.draft(g, candidate.solver.default_config(g, target), target)
        for step in (*draft.prepare, *draft.run):
            if isinstance(step, Launch) and step.programmatic:
                early += 1
                source = draft.sources[step.artifact]
                assert target.has_cluster
                body = source.text[source.text.index("__global__") :]
                assert WAITS.search(body), (candidate.name, step.symbol)
                assert "__restrict__" not in source.text  # compilers may read through such pointers before the wait
    assert (early > 0) == target.has_cluster
