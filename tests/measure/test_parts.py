"""A problem in parts has the oracle, the verdict and the places of the whole."""

import numpy as np
import pytest

from tilesmith.measure.accuracy import check, verify
from tilesmith.measure.oracle import logical, oracle
from tilesmith.measure.parts import parts, truth_of
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args

FULL = Epilogue(bias=True, activation="relu", residual=True)
PROBLEMS = [
    ConvSignature((7, 4, 9, 8), (6, 2, 3, 3), stride=2, padding=1, groups=2, epilogue=FULL),
    ConvSignature((7, 9, 8, 4), (6, 3, 3, 4), padding=1, shared_layout="NHWC", mode="bwd"),
    ConvSignature((4, 9, 8, 5), (4, 3, 3, 6), input_layout="CHWN", kernel_layout="CHWN", output_layout="NHWC"),
    ConvSignature((5, 4, 6, 5), (4, 6, 3, 3), stride=2, transposed=True, output_padding=1, epilogue=FULL),
    ConvSignature((5, 4, 6, 5), (4, 6, 3, 3), stride=2, transposed=True, mode="bwd"),
    ConvSignature((5, 4, 6, 5), (4, 6, 3, 3), stride=2, transposed=True, mode="wrw"),
    ConvSignature((7, 4, 9, 8), (6, 4, 3, 3), mode="wrw", dtype="bf16"),
    ConvSignature((7, 4, 9, 8), (6, 4, 3, 3), mode="bgrad"),
    ConvSignature((7, 4, 9), (6, 4, 3), dtype="int8"),
    GemmSignature(m=11, n=5, k=7, trans_a=True, alpha=0.5, beta=-1.5, epilogue=FULL),
    GemmSignature(m=6, n=5, k=7, batch=3, lda=9, beta=2.0),
    ConvSignature(
        (7, 4, 9, 8),
        (6, 2, 3, 3),
        padding=((0, 1), (2, 0)),
        groups=2,
        dtype="int8",
        epilogue=Epilogue(True, "silu", True, scale="channel"),
    ),
    GemmSignature(m=11, n=5, k=7, c_dtype="fp8e5m2", beta=-1.5, epilogue=Epilogue(True, "none", True, scale="channel")),
]


@pytest.mark.parametrize("signature", PROBLEMS, ids=lambda s: s.key()[:60])
@pytest.mark.parametrize("elements", [1, 700, 10**9])
def test_parts_make_the_whole(signature, elements):
    values = sample_args(signature, 3)
    whole = oracle(signature, values)
    cover = np.zeros(logical(signature, np.zeros(_result_shape(signature))).shape, int)
    for part in parts(signature, values, elements):
        truth = truth_of(part, elements)
        place = np.zeros(_result_shape(signature), bool)
        place[part.result] = True
        mine = logical(signature, place)
        cover += mine
        assert truth.length == whole.length
        for name in ("value", "norm", "addends"):
            np.testing.assert_allclose(
                getattr(truth, name).reshape(-1), getattr(whole, name)[mine], rtol=1e-6, atol=1e-9
            )
    assert (cover == 1).all()


@pytest.mark.parametrize("signature", [PROBLEMS[0], PROBLEMS[2], PROBLEMS[9]], ids=["NCHW", "CHWN", "GEMM"])
def test_a_wrong_element_of_a_part_is_found_where_it_is(signature, monkeypatch):
    monkeypatch.setattr("tilesmith.measure.parts.ELEMENTS", 1)
    monkeypatch.setattr("tilesmith.measure.parts.parts.__defaults__", (1,))
    right = oracle(signature, sample_args(signature)).value
    at = tuple(size - 1 for size in right.shape)

    def call(*arguments):
        out = logical(signature, arguments[-1])
        out[...] = right
        out[at] += 1.0

    verdict = verify(call, signature)
    assert not verdict.ok
    assert verdict.worst_index == at
    assert str(at) in verdict.message


def test_nan_and_inf_stand_in_the_parts_that_hold_them():
    signature = PROBLEMS[1]
    dy, w = sample_args(signature)
    dy[5, 2, 2, 1], dy[1, 0, 0, 0] = np.nan, np.inf
    whole = oracle(signature, (dy, w))
    result = np.zeros(signature.input_shape, np.float32)
    logical(signature, result)[...] = whole.value
    for part in parts(signature, (dy, w), 1):
        assert check(result[part.result], truth_of(part), part.signature, part.origin).ok


def _result_shape(signature):
    if isinstance(signature, GemmSignature):
        return signature.c_shape
    return {
        "fwd": signature.output_shape, "bwd": signature.input_shape, "wrw": signature.kernel_shape,
        "bgrad": (signature.output_logical[1],),
    }[signature.mode]  # fmt: skip
