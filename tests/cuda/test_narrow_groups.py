"""The numbers of the kernels of narrow groups through the emulator: odd widths, strides, tails, NaN and Inf."""

from __future__ import annotations

import pytest
from cuda_chain import H200, check_numbers, executable

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.solvers.cuda.narrow_groups.solver import AXES, NarrowGroupsSolver
from tilesmith.solvers.solver import Accepted, Config

SOLVER = NarrowGroupsSolver()
BEFORE = ((2, 0), (0, 1))
FULL = Epilogue(bias=True, activation="leaky_relu", residual=True)


def config(*values: int) -> Config:
    return Config(tuple((axis.name, value) for axis, value in zip(AXES, values, strict=True)))


def conv(mode, groups, c, k, size=(7, 9), taps=(3, 3), dtype="bf16", **more):
    more = {"padding": 1} | more
    return ConvSignature((2, *size, groups * c), (groups * k, *taps, c), mode=mode, groups=groups, dtype=dtype,
                         shared_layout="NHWC" if len(size) == 2 else "NDHWC", **more)  # fmt: skip


CASES = [
    (conv("fwd", 5, 8, 8), config(4, 1, 1, 3, 9, 2, 2)),
    (conv("bwd", 5, 8, 8), config(2, 2, 1, 7, 5, 3, 1)),
    (conv("fwd", 4, 16, 24, (5, 6), dtype="fp16", epilogue=FULL), config(2, 1, 2, 2, 6, 2, 1)),
    (conv("fwd", 6, 4, 8, stride=2, epilogue=Epilogue(bias=True, activation="relu")), config(2, 1, 1, 4, 3, 2, 1)),
    (conv("fwd", 8, 3, 5, (8, 5), (2, 3), dilation=(2, 1)), config(1, 1, 3, 4, 5, 2, 1)),
    (conv("bwd", 8, 8, 2, stride=2), config(1, 2, 2, 4, 5, 2, 1)),
    (conv("bwd", 4, 24, 16, (6, 5), stride=(1, 2), padding=BEFORE, epilogue=FULL), config(2, 1, 3, 3, 3, 2, 1)),
    (conv("bwd", 2, 8, 12, (9, 4), (3, 1), stride=(3, 1), dilation=(2, 1)), config(1, 1, 1, 3, 4, 2, 1)),
    (conv("wrw", 5, 8, 8), config(4, 1, 1, 3, 9, 2, 2)),
    (conv("wrw", 4, 4, 24, (6, 5), stride=(1, 2), padding=BEFORE, dtype="fp16"), config(1, 2, 4, 6, 2, 3, 1)),
    (conv("wrw", 2, 24, 8, (9, 4), (3, 1), dilation=(2, 1), kernel_dtype="fp32"), config(2, 1, 1, 4, 2, 2, 1)),
    (conv("wrw", 12, 2, 2, (5, 5), (2, 5)), config(2, 4, 1, 5, 3, 2, 1)),
    # one group, whose pixels are 8 and 4 bytes times something; a row of pixels that is no whole piece
    (conv("wrw", 1, 20, 70, (7, 10), stride=2), config(1, 2, 3, 4, 5, 2, 1)),
    (conv("fwd", 3, 8, 12, dtype="fp32", epilogue=FULL), config(2, 1, 1, 7, 9, 2, 1)),
    (conv("bwd", 4, 4, 10, stride=2, dtype="fp32"), config(2, 1, 1, 4, 5, 3, 1)),
    # steps larger than the filter: phases of no taps
    (conv("bwd", 4, 8, 8, (17, 19), (1, 2), stride=3, padding=0), config(2, 1, 1, 4, 7, 2, 1)),
    # many products: the text has a row of the filter, and the rows are its turns
    (conv("fwd", 2, 8, 8, (12, 16), (3, 2), dtype="fp32", dilation=(2, 1)), config(2, 1, 1, 10, 16, 2, 1)),
    (conv("bwd", 2, 4, 8, (16, 16), (5, 3), stride=(2, 1), dtype="fp32"), config(2, 1, 1, 8, 16, 2, 1)),
    # the filter comes in parts, as there is no room for all; two warps share it
    (conv("fwd", 4, 48, 48, (5, 6), stride=2), config(2, 1, 2, 3, 3, 2, 1)),
    (conv("bwd", 4, 24, 24, (6, 7)), config(4, 1, 3, 3, 4, 2, 1)),
    # volumes
    (conv("fwd", 4, 4, 8, (4, 6, 7), (3, 2, 3), stride=(2, 1, 2), padding=((1, 0), (1, 1), (0, 2)), epilogue=FULL),
     config(2, 1, 1, 3, 4, 2, 1)),
    (conv("bwd", 8, 8, 3, (5, 4, 6), (3, 3, 3), stride=(2, 1, 1), dilation=(1, 2, 1)), config(1, 1, 1, 2, 6, 2, 1)),
    (conv("bwd", 2, 24, 16, (4, 5, 6), (2, 3, 1), dilation=(2, 1, 1), dtype="fp16"), config(2, 1, 3, 3, 3, 2, 1)),
    (conv("wrw", 5, 4, 8, (4, 5, 7), (3, 3, 2), stride=(2, 1, 2)), config(2, 2, 1, 3, 4, 2, 1)),
    (conv("fwd", 3, 8, 12, (4, 5, 6), (3, 3, 3), dtype="fp32", dilation=(1, 2, 1)), config(2, 1, 1, 3, 6, 2, 1)),
    (conv("bwd", 4, 4, 10, (5, 6, 4), (3, 2, 3), stride=(2, 2, 1), dtype="fp32"), config(2, 1, 1, 3, 4, 2, 1)),
]  # fmt: skip


def named(value):
    return "" if isinstance(value, Config) else value.get_func_name()[:50]


@pytest.mark.parametrize(("signature", "chosen"), CASES, ids=named)
def test_numbers(signature, chosen, emulating):
    signature = signature.canonical
    geometry = signature.geometry
    assert SOLVER.applicable(geometry, H200) == Accepted()
    assert SOLVER.search_space(geometry, H200).contains(chosen)
    made = executable(signature, SOLVER.draft(geometry, chosen, H200), emulating)
    check_numbers(signature, made)
