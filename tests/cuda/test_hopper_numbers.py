"""The numbers of sm_90a kernels of 3-D convolutions, and of a few in 2-D, through an emulator of bulk copies and wgmma.

The emulator (``emulated_hopper.h``) finishes copies and products when they are asked for: it finds wrong addresses,
wrong order and waits without end, but not what is overwritten too soon.
"""

from __future__ import annotations

import numpy as np
import pytest
from cuda_chain import executable

from tilesmith.measure.accuracy import planted_copy
from tilesmith.measure.device_arrays import DeviceRechecker
from tilesmith.measure.oracle import oracle
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.device import device
from tilesmith.solvers.cuda.common import planes
from tilesmith.solvers.cuda.halo.solver import HaloSm90Solver
from tilesmith.solvers.cuda.wgmma.solver import ConvSm90Solver
from tilesmith.solvers.solver import Accepted
from tilesmith.targets.cuda import cuda_target

HALO, CONV = HaloSm90Solver(), ConvSm90Solver()
FEW = cuda_target("sm_90a", 3)  # blocks have several tiles
SOME = cuda_target("sm_90a", 16)  # for the largest clusters
FULL = Epilogue(bias=True, activation="relu", residual=True)


def volume(x, w, mode="fwd", dtype="bf16", **more):
    return ConvSignature(x, w, mode=mode, shared_layout="NDHWC", dtype=dtype, **({"padding": 1} | more))


def image(x, w, mode="fwd", dtype="bf16", **more):
    return ConvSignature(x, w, mode=mode, shared_layout="NHWC", dtype=dtype, **({"padding": 1} | more))


# Solver, target, problem, what the config has, whether planes are left out.
CASES = [
    (HALO, FEW, volume((2, 4, 5, 9, 24), (40, 3, 2, 3, 24)), {"pingpong": 1}, True),
    (HALO, FEW, volume((1, 5, 6, 7, 40), (96, 3, 3, 1, 40), dtype="fp16", epilogue=FULL), {"warpgroups": 2}, True),
    (HALO, FEW, volume((1, 3, 4, 9, 24), (96, 3, 3, 1, 24), "bwd"), {"block_k": 32, "pingpong": 1}, True),
    (HALO, FEW, volume((2, 2, 5, 9, 16), (72, 3, 1, 2, 16), "bwd", padding=(3, 0, 1), dilation=(2, 1, 1)), {}, True),
    (HALO, FEW, volume((1, 4, 5, 9, 24), (24, 3, 1, 3, 24)), {"resident": 1}, False),
    (HALO, FEW, image((2, 9, 7, 72), (40, 3, 3, 72)), {"pingpong": 1}, False),
    # With a stride: each residue's pixels have windows of their own.
    (HALO, FEW, image((2, 17, 14, 72), (40, 3, 3, 72), stride=2), {"pingpong": 1, "windows": 3}, False),
    (HALO, FEW, image((2, 16, 13, 48), (96, 3, 3, 48), stride=2, epilogue=FULL), {"resident": 1}, False),
    (HALO, FEW, image((1, 19, 22, 40), (72, 4, 5, 40), stride=(3, 2), padding=2, dtype="fp16"), {"windows": 4}, False),
    (HALO, FEW, image((2, 15, 11, 128), (96, 3, 2, 32), stride=(1, 2), groups=4), {}, False),
    (HALO, FEW, image((1, 22, 17, 24), (24, 3, 3, 24), stride=2, padding=(2, 4), dilation=(2, 3)), {}, False),
    (HALO, FEW, volume((1, 5, 9, 10, 24), (40, 3, 3, 3, 24), stride=2), {"pingpong": 1}, False),
    (HALO, FEW, volume((1, 4, 9, 8, 96), (96, 1, 3, 3, 96), stride=(1, 2, 2)), {"warpgroups": 3}, False),
    (HALO, FEW, image((3, 2, 9, 16), (24, 2, 3, 16), stride=4, padding=(0, 1)), {}, False),
    # Odd pixels alone are met.
    (HALO, FEW, image((2, 13, 12, 24), (24, 3, 2, 24), stride=2, dilation=2), {"windows": 2}, False),
    (HALO, FEW, volume((1, 6, 7, 6, 24), (24, 3, 1, 3, 24), stride=(2, 2, 1), dilation=2), {"windows": 2}, False),
    (CONV, SOME, volume((2, 4, 5, 9, 24), (40, 3, 2, 3, 24)), {"pingpong": 1}, True),
    (CONV, SOME, volume((1, 5, 6, 7, 40), (72, 3, 3, 1, 40), dtype="fp16", epilogue=FULL), {"taps_inner": 1}, True),
    (CONV, SOME, volume((2, 5, 5, 6, 16), (24, 3, 1, 2, 16), padding=2, stride=(2, 1, 1)), {"block_k": 16}, True),
    (CONV, SOME, volume((2, 7, 8, 13, 24), (24, 3, 3, 1, 24), "bwd"), {"products_m": 1}, True),
    # Groups whose channels end within a step: zeros follow, not those of the next group.
    (CONV, SOME, image((2, 9, 8, 80), (80, 3, 3, 40), stride=2, groups=2, epilogue=FULL), {"block_k": 16}, False),
    (CONV, SOME, image((3, 5, 6, 72), (120, 1, 1, 24), padding=0, groups=3, dtype="fp16"), {"block_k": 32}, False),
    (CONV, SOME, image((2, 9, 8, 48), (80, 3, 2, 24), "bwd", stride=2, groups=2, epilogue=FULL), {}, False),
    (CONV, SOME, image((3, 6, 7, 72), (72, 3, 3, 24), "bwd", groups=3, dilation=2, padding=2), {"block_k": 16}, False),
    (CONV, SOME, image((2, 6, 7, 144), (80, 1, 1, 72), "bwd", padding=0, stride=(1, 2), groups=2), {}, False),
    (CONV, SOME, image((2, 7, 6, 80), (48, 3, 3, 40), groups=2), {"split_k": 2}, False),
]


def named(value):
    return value.get_func_name()[:40] if isinstance(value, ConvSignature) else getattr(value, "name", "")


@pytest.mark.parametrize(("solver", "target", "signature", "wanted", "leaves_out"), CASES, ids=named)
def test_numbers(solver, target, signature, wanted, leaves_out, emulating, monkeypatch):
    """Forward looks at the filter, however few products it leaves out."""
    monkeypatch.setattr(planes, "look_seconds", lambda _target: 0.0)
    signature = signature.canonical
    g = signature.geometry
    assert solver.applicable(g, target) == Accepted()
    alone = {"cluster_m": 1, "cluster_k": 1, "split_k": 1} if solver is CONV else {}
    changed = {name: v for name, v in wanted.items() if name == "taps_inner"}  # the search changes it, later
    asked = {"resident": 0} | alone | {name: v for name, v in wanted.items() if name not in changed}
    ranked = (each for each in solver.ranked(g, target) if all(each[name] == v for name, v in asked.items()))
    config = next(ranked).replace(**changed)
    assert solver.search_space(g, target).contains(config)
    draft = solver.draft(g, config, target)
    assert (solver.tile(g, config, target).left_out > 0) == leaves_out
    sums = "split_k" in asked and asked["split_k"] > 1
    assert len(draft.run) == 1 + (leaves_out and signature.mode == "fwd") + sums
    made = executable(signature, draft, emulating, target)
    values = sample_args(signature)
    cases = [values]
    for place, value in enumerate(values[:2]):
        cases.append((*values[:place], planted_copy(value, (np.nan, np.inf), place), *values[place + 1 :]))
    with np.errstate(all="ignore"):
        for case in cases:
            checker = DeviceRechecker(signature, case, oracle(signature, case), device(0))
            verdict = checker.check_plan(checker.plan(made), poison=True)
            assert verdict.ok, verdict.message
