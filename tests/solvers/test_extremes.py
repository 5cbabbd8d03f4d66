"""Problems of extreme sizes: long rows, tensors of billions of elements, big filters. Every solver takes or refuses."""

from __future__ import annotations

import math

import pytest

from tilesmith.problems.conv import ConvSignature
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import candidates
from tilesmith.targets.names import parse_target

TARGETS = ("sm_90a:132:h200", "sm_80:108", "x86_64-v4:2:zen5")
# input, filter, options
SIZES = [
    ((96, 1, 16384, 32), (32, 1, 7, 32), {"padding": (0, 9), "dilation": (1, 3)}),
    ((1, 1, 1000000, 8), (16, 1, 25, 8), {"padding": (0, 12)}),
    ((1, 100000, 3, 64), (64, 5, 1, 64), {"stride": (2, 1)}),
    ((4, 1, 300000, 256), (256, 1, 4, 1), {"padding": (0, 3), "groups": 256}),
    ((2, 9000, 9000, 53), (53, 3, 3, 53), {"padding": 1}),
    ((3, 20000, 16384, 3), (5, 9, 9, 3), {"padding": 4, "stride": (1, 2)}),
    ((4096, 64, 64, 255), (255, 1, 1, 255), {}),
    ((300, 1, 82920, 109), (1594, 1, 1, 109), {}),
    ((1, 700, 700, 1), (8, 61, 61, 1), {"padding": 30, "stride": 31}),
    ((1, 64, 64, 16384), (16384, 3, 3, 4), {"groups": 4096, "dilation": 17}),
    ((65537, 1, 1, 7), (3, 1, 1, 7), {}),
]


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("mode", ["fwd", "bwd", "wrw"])
def test_every_solver_takes_or_refuses(mode, name):
    target = parse_target(name)
    for x, w, options in SIZES:
        signature = ConvSignature(x, w, mode=mode, shared_layout="NHWC", dtype="bf16", **options).canonical
        took = [each for each in candidates(signature, target) if isinstance(each.verdict, Accepted)]
        assert took, signature.key()
        for each in took:
            config = each.solver.default_config(each.geometry, target)
            assert 0 < each.solver.predict(each.geometry, config, target) < math.inf
            assert each.solver.draft(each.geometry, config, target).run
