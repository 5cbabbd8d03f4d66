"""The fast check gives the verdicts of the full one."""

import numpy as np
import pytest

from tilesmith.measure.accuracy import check
from tilesmith.measure.oracle import logical, oracle
from tilesmith.measure.recheck import Rechecker
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args

SIGNATURES = {
    "nhwc": ConvSignature((2, 9, 8, 5), (6, 3, 3, 5), padding=1, shared_layout="NHWC"),
    "nchw": ConvSignature((2, 5, 9, 8), (6, 5, 3, 3), padding=1),
    "chwn": ConvSignature((2, 5, 9, 8), (6, 5, 3, 3), output_layout="CHWN"),
    "bf16": ConvSignature((2, 9, 8, 5), (6, 3, 3, 5), shared_layout="NHWC", dtype="bf16"),
    "wrw": ConvSignature((2, 9, 8, 5), (6, 3, 3, 5), shared_layout="NHWC", mode="wrw"),
    "bgrad": ConvSignature((2, 9, 8, 5), (6, 3, 3, 5), shared_layout="NHWC", mode="bgrad"),
    "int8": ConvSignature((2, 9, 8, 5), (6, 3, 3, 5), shared_layout="NHWC", dtype="int8"),
    "pitched": ConvSignature((2, 4, 4, 5), (6, 1, 1, 5), shared_layout="NHWC", output_strides=(160, 40, 8, 1)),
    "gemm": GemmSignature(m=7, n=9, k=33),
}


@pytest.fixture(params=SIGNATURES)
def case(request):
    signature = SIGNATURES[request.param]
    values = sample_args(signature, 3)
    return signature, Rechecker(signature, values, oracle(signature, values))


def answer(signature, truth, out):
    logical(signature, out)[...] = truth.value


def test_right_results_pass_with_the_same_evidence(case):
    signature, checker = case
    fast = checker.check_call(lambda *a: answer(signature, checker.truth, a[-1]))
    full = check(checker.result.array, checker.truth, signature)
    assert fast.ok
    assert full.ok
    assert fast.bound == pytest.approx(full.bound, abs=1e-30) or fast.error == full.error == 0
    assert fast.error == pytest.approx(full.error, rel=1e-9)


@pytest.mark.parametrize("spoil", ["one", "nan", "unwritten", "inf"])
def test_wrong_results_fail(case, spoil):
    signature, checker = case

    def call(*arrays):
        out = arrays[-1]
        answer(signature, checker.truth, out)
        at = tuple(size - 1 for size in out.shape)
        if out.dtype.kind == "i":
            out[at] += 1
        elif spoil == "unwritten":
            out.view(np.uint8 if out.dtype.itemsize == 1 else f"u{out.dtype.itemsize}")[at] = (
                2 ** (8 * out.dtype.itemsize) - 1
            )
        else:
            out[at] = {"one": out[at] + type(out[at])(1), "nan": np.nan, "inf": np.inf}[spoil]

    verdict = checker.check_call(call)
    assert not verdict.ok
    assert "1 of" in verdict.message
    assert verdict.message == check(checker.result.array, checker.truth, signature).message
    assert checker.check_call(lambda *a: answer(signature, checker.truth, a[-1])).ok


def test_writes_beside_the_result_and_into_operands_fail_and_do_not_last(case):
    signature, checker = case

    def beside(*arrays):
        answer(signature, checker.truth, arrays[-1])
        checker.result.memory[10] = 1

    def into(*arrays):
        answer(signature, checker.truth, arrays[-1])
        arrays[0].reshape(-1)[0] += type(arrays[0].reshape(-1)[0])(1)

    assert "outside" in checker.check_call(beside).message
    assert "argument 0" in checker.check_call(into).message
    assert checker.check_call(lambda *a: answer(signature, checker.truth, a[-1])).ok


def test_the_worst_element_is_named_in_logical_axes():
    signature = SIGNATURES["nhwc"]
    values = sample_args(signature, 3)
    truth = oracle(signature, values)
    checker = Rechecker(signature, values, truth)

    def call(*arrays):
        answer(signature, truth, arrays[-1])
        arrays[-1][1, 2, 3, 4] = np.nextafter(arrays[-1][1, 2, 3, 4], np.float32(9))

    verdict = checker.check_call(call)
    assert verdict.ok
    full = check(checker.result.array, truth, signature)
    assert verdict.worst_index == full.worst_index
