"""Random convolutions in groups, in random configs of every solver that computes no others: numbers.

For more of them, add to ``SEEDS``.
"""

from __future__ import annotations

import random

import pytest
from cuda_chain import H200, check_numbers, executable

from tilesmith.errors import TilesmithError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import ACTIVATIONS, Epilogue
from tilesmith.solvers.solver import Accepted, Config
from tilesmith.solvers.table import Candidate, candidates
from tilesmith.tune.space import random_point

SEEDS = (0, 1, 3, 4, 5, 7, 8, 11, 12, 15, 20, 21, 22, 34)  # each solver in each direction that it has
SOLVERS = {"mma_narrow_groups", "cuda_depthwise", "mma_depthwise", "cuda_depthwise_planes"}
LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def drawn(rng: random.Random) -> ConvSignature:
    """A small convolution; raises ``TilesmithError`` where there is none of these sizes."""
    depthwise, dims = rng.random() < 0.55, rng.choice((1, 2, 2, 2, 3))
    inputs = 1 if depthwise else rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16))
    outputs = 1 if depthwise else rng.choice((inputs, inputs, 1, 2, 3, 4, 6, 8, 9, 12))
    groups = rng.choice((8, 12, 16, 20, 24, 32) if depthwise else (2, 3, 4, 5, 8))
    size = tuple(rng.randint(4, 6 if dims == 3 else 13) for _ in range(dims))
    taps = tuple(rng.choice((1, 2, 3) if dims == 3 else (1, 2, 3, 3, 4, 5, 5, 7, 9)) for _ in range(dims))
    mode, first = rng.choice(("fwd", "bwd", "wrw")), depthwise and rng.random() < 0.25
    epilogue = Epilogue()
    if mode != "wrw" and rng.random() < 0.6:
        activation = rng.choice([name for name in ACTIVATIONS if name not in ("leaky_relu", "clamp")])
        epilogue = Epilogue(bias=rng.random() < 0.6, activation=activation, residual=rng.random() < 0.4)

    def placed(outer: int, inner: int, pixels: tuple[int, ...]) -> tuple[int, ...]:
        return (outer, inner, *pixels) if first else (outer, *pixels, inner)

    return ConvSignature(
        placed(rng.randint(1, 3), groups * inputs, size), placed(groups * outputs, inputs, taps), groups=groups,
        mode=mode, stride=rng.choice((1, 1, 2, 3)), padding=tuple(rng.choice((t // 2, 0, t - 1)) for t in taps),
        dilation=rng.choice((1, 1, 1, 2)), dtype=rng.choice(("bf16", "fp16", "fp32")), epilogue=epilogue,
        shared_layout=LAYOUTS[dims][0 if first else 1],
    ).canonical  # fmt: skip


def case(seed: int) -> tuple[ConvSignature, Candidate, Config]:
    rng = random.Random(seed)
    while True:
        try:
            signature = drawn(rng)
        except TilesmithError:
            continue
        able = [c for c in candidates(signature, H200) if c.name in SOLVERS and isinstance(c.verdict, Accepted)]
        if able:
            chosen = rng.choice(able)
            point = random_point(chosen.solver.search_space(chosen.geometry, H200), rng)
            return signature, chosen, point or chosen.solver.default_config(chosen.geometry, H200)


@pytest.mark.parametrize("seed", SEEDS)
def test_numbers(seed, emulating):
    signature, chosen, config = case(seed)
    print(chosen.name, config, signature.key())
    check_numbers(signature, executable(signature, chosen.solver.draft(chosen.geometry, config, H200), emulating, H200))
