"""1x1 convolutions of images that lie channel by channel, as products of each image. Numbers through the emulator."""

from __future__ import annotations

import pytest
from cuda_chain import check_numbers, executable

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.solvers.cuda.wgmma.channels_first import ChannelsFirstSolver
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import candidates
from tilesmith.targets.cuda import cuda_target

SOLVER = ChannelsFirstSolver()
FEW = cuda_target("sm_90a", 3)  # blocks have several tiles
LONG = Epilogue(bias=True, activation="gelu")


def conv(mode, x, k, dtype="bf16", **more):
    kernel = (k, x[1], *[1] * (len(x) - 2))
    layout = {3: "NCW", 4: "NCHW", 5: "NCDHW"}[len(x)]
    return ConvSignature(x, kernel, mode=mode, shared_layout=layout, dtype=dtype, **more)


# Tails of rows and of columns, several tiles a block, each way of sharing; images whose pixels are no whole steps.
CASES = [
    (conv("fwd", (2, 72, 16, 16), 264, "fp16", epilogue=LONG), {"warpgroups": 2, "products_m": 2, "block_n": 128}),
    (conv("fwd", (2, 64, 16, 20), 136, epilogue=Epilogue(True, "relu", residual=True)), {"pingpong": 1}),
    (conv("fwd", (2, 64, 2, 8, 10), 72), {"blocks_per_sm": 2}),
    (conv("fwd", (4, 64, 168), 192, output_dtype="fp32"), {}),
    (conv("bwd", (2, 136, 16, 16), 64, "fp16", epilogue=Epilogue(bias=True, activation="hardswish")), {"pingpong": 1}),
    (conv("bwd", (2, 200, 4, 6), 72), {"block_n": 32}),
    (conv("wrw", (5, 200, 4, 6), 136, "fp16"), {"split_k": 3}),
    (conv("wrw", (4, 33, 8, 24), 70), {"cluster_k": 2}),
    (conv("wrw", (3, 256, 8, 17), 128), {"cluster_m": 4, "block_n": 64}),
]  # fmt: skip


def named(value):
    return value.get_func_name()[:60] if hasattr(value, "get_func_name") else "".join(value)


@pytest.mark.parametrize(("signature", "wanted"), CASES, ids=named)
def test_numbers(signature, wanted, emulating):
    signature = signature.canonical
    config = chosen(signature.geometry, wanted)
    check_numbers(signature, executable(signature, SOLVER.draft(signature.geometry, config, FEW), emulating, FEW))


def chosen(geometry, wanted):
    ranked = SOLVER.ranked(geometry, FEW)
    space = SOLVER.search_space(geometry, FEW)
    default = SOLVER.default_config(geometry, FEW).replace(
        stages=0, group_m=1, cluster_k=1, split_k=1, cluster_m=1, pingpong=0, products_m=1
    )
    several = (*ranked, default.replace(**wanted), default.replace(**({"warpgroups": 2, "blocks_per_sm": 1} | wanted)))
    fitting = (each for each in several if space.contains(each))
    return next(each for each in fitting if all(each[name] == value for name, value in wanted.items()))


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        (conv("fwd", (2, 64, 7, 7), 64), "multiples of 16 bytes"),
        (conv("fwd", (2, 3, 8, 8), 64), "multiples of 16 bytes"),  # the filter's rows
        (ConvSignature((2, 8, 8, 64), (64, 1, 1, 64), shared_layout="NHWC", dtype="bf16"), "contiguous"),
        (ConvSignature((2, 64, 8, 8), (64, 64, 3, 3), padding=1, dtype="bf16"), "padding"),
        (ConvSignature((2, 64, 8, 8), (64, 64, 1, 1), stride=2, dtype="bf16"), "stride"),
        (ConvSignature((2, 64, 8, 8), (64, 32, 1, 1), groups=2, dtype="bf16"), "groups"),
        (conv("fwd", (2, 64, 8, 8), 64, "fp32"), "dtype"),
    ],
    ids=lambda value: value if isinstance(value, str) else named(value),
)
def test_what_lies_otherwise_is_refused(signature, why):
    found = {each.name: each.verdict for each in candidates(signature.canonical, cuda_target("sm_90a", 132))}
    verdict = found[SOLVER.name]
    assert not isinstance(verdict, Accepted)
    assert why in str(verdict)


@pytest.mark.parametrize("mode", ["fwd", "bwd", "wrw"])
def test_images_that_lie_channel_by_channel_are_not_copied(mode):
    """With ResNet's layers of 28x28 and 56x56, this is what a user of channels first gets."""
    target = cuda_target("sm_90a", 132)
    for x, k in (((64, 256, 56, 56), 64), ((64, 128, 28, 28), 512)):
        accepted = [
            (each.solver.predict(each.geometry, each.solver.default_config(each.geometry, target), target), each.name)
            for each in candidates(conv(mode, x, k).canonical, target)
            if isinstance(each.verdict, Accepted) and not each.plain
        ]
        assert min(accepted)[1] == SOLVER.name
