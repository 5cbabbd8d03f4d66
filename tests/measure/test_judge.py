"""The fast judge gives the verdicts of the full check."""

import numpy as np
import pytest

from tilesmith.measure import special
from tilesmith.measure.accuracy import check
from tilesmith.measure.arrays import guarded_result
from tilesmith.measure.judge import PartsJudge, WholeJudge
from tilesmith.measure.oracle import logical, oracle
from tilesmith.measure.special import plant
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
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


class Case:
    def __init__(self, signature, values):
        self.signature, self.values = signature, values
        self.truth = oracle(signature, values)
        self.out = guarded_result(signature, values).array
        self.judge = WholeJudge(signature, self.truth, self.out)

    def answer(self):
        with np.errstate(all="ignore"):
            logical(self.signature, self.out)[...] = self.truth.value
        return self.out


@pytest.fixture(params=SIGNATURES)
def case(request):
    signature = SIGNATURES[request.param]
    return Case(signature, sample_args(signature, 3))


def test_right_results_pass_with_the_same_evidence(case):
    full = check(case.answer(), case.truth, case.signature)
    for judge in (case.judge, PartsJudge(case.signature, case.values)):
        found = judge(case.out)
        assert found.ok
        assert full.ok
        assert found.bound == pytest.approx(full.bound, abs=1e-30) or found.error == full.error == 0
        assert found.error == pytest.approx(full.error, rel=1e-9)


@pytest.mark.parametrize("spoil", ["one", "nan", "unwritten", "inf"])
def test_wrong_results_fail(case, spoil):
    out = case.answer()
    at = tuple(size - 1 for size in out.shape)
    if out.dtype.kind == "i":
        out[at] += 1
    elif spoil == "unwritten":
        out.view(np.uint8 if out.dtype.itemsize == 1 else f"u{out.dtype.itemsize}")[at] = 2 ** (8 * out.itemsize) - 1
    else:
        out[at] = {"one": out[at] + type(out[at])(1), "nan": np.nan, "inf": np.inf}[spoil]
    verdict = case.judge(out)
    assert not verdict.ok
    assert "1 of" in verdict.message
    assert verdict.message == check(out, case.truth, case.signature).message
    assert case.judge(case.answer()).ok


def test_the_worst_element_is_named_in_logical_axes():
    case = Case(SIGNATURES["nhwc"], sample_args(SIGNATURES["nhwc"], 3))
    out = case.answer()
    out[1, 2, 3, 4] = np.nextafter(out[1, 2, 3, 4], np.float32(9))
    verdict = case.judge(out)
    assert verdict.ok
    assert verdict.worst_index == check(out, case.truth, case.signature).worst_index


SPECIAL = {
    "fwd": SIGNATURES["nchw"],
    "nhwc": SIGNATURES["nhwc"],
    "bwd": ConvSignature((2, 5, 9, 8), (6, 5, 3, 3), padding=1, stride=2, mode="bwd"),
    "grouped": ConvSignature((3, 6, 9, 8), (9, 2, 3, 3), padding=1, groups=3, mode="bwd"),
    "wrw": SIGNATURES["wrw"],
    "bgrad": SIGNATURES["bgrad"],
    "relu": ConvSignature((2, 5, 9, 8), (6, 5, 3, 3), padding=1, epilogue=Epilogue(bias=True, activation="relu")),
    "clamp": ConvSignature((2, 5, 9, 8), (6, 5, 3, 3), epilogue=Epilogue(activation="clamp", low=-1.0, high=1.0)),
    "fp8e4m3": ConvSignature((2, 5, 9, 8), (6, 5, 3, 3), dtype="fp8e4m3"),
    "wrw fp8e4m3": ConvSignature((2, 5, 9, 8), (6, 5, 3, 3), dtype="fp8e4m3", mode="wrw"),
    "pitched": SIGNATURES["pitched"],
    "gemm": GemmSignature(m=9, n=11, k=33, batch=3, trans_a=True, trans_b=True),
    "residual": GemmSignature(m=9, n=11, k=33, beta=0.5, epilogue=Epilogue(bias=True, residual=True)),
}


class SpecialCase:
    """A right result with NaN and Inf in the operands, and what checks it."""

    def __init__(self, signature):
        values = sample_args(signature, 5)
        self.case = Case(signature, values)
        self.known = self.case.answer().copy()
        self.specials = plant(signature, values, 7)
        self.found = guarded_result(signature, values).array
        with np.errstate(all="ignore"):
            logical(signature, self.found)[...] = oracle(signature, self.specials.values).value

    def verdict(self):
        return self.specials.check(self.found, self.known, self.case.judge)


@pytest.mark.parametrize("name", SPECIAL)
def test_nan_and_inf_are_where_the_oracle_of_all_images_has_them(name):
    case = SpecialCase(SPECIAL[name].canonical)
    numbers = case.found.astype(np.float64)
    assert not np.isfinite(numbers).all()
    assert case.verdict().ok, case.verdict().message


@pytest.mark.parametrize("name", SPECIAL)
def test_a_nan_that_is_lost_or_leaks_shows(name):
    case = SpecialCase(SPECIAL[name].canonical)
    specials, right = case.specials, case.found.copy()
    inside = np.zeros(right.shape, bool)  # the image that the oracle was asked about
    inside[specials.part.result] = True
    looked_at = np.ones(right.shape, bool)  # all but the channels of other images that the filter reaches
    channels = (..., specials.reached) if right.ndim < 4 else (slice(None), specials.reached)
    logical(specials.signature, looked_at)[channels] = False
    numbers = right.astype(np.float64)
    for where, value in ((inside & np.isnan(numbers), 0), ((inside | looked_at) & np.isfinite(numbers), np.nan)):
        places = np.argwhere(where)
        assert len(places)
        for at in map(tuple, places[:: max(1, len(places) // 5)]):
            case.found[at] = value
            assert not case.verdict().ok
            case.found[...] = right


def test_only_one_image_is_asked_about(monkeypatch):
    asked = []
    monkeypatch.setattr(special, "oracle", lambda signature, arguments: asked.append(signature) or oracle(
        signature, arguments))  # fmt: skip
    signature = ConvSignature((16, 5, 9, 8), (6, 5, 3, 3), padding=1).canonical
    plant(signature, sample_args(signature), 0)
    assert [each.input_shape[0] for each in asked] == [1, 1]
