"""Scaled int8 and fp8 results of the plain reference: rounding, saturation, NaN, and every form against float64."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import torch

from chain import TWO_THREADS, executables, function
from tilesmith import ConvSignature, GemmSignature, get_launchable
from tilesmith.errors import ArgumentError, NoSolutionError, ProblemError
from tilesmith.measure.accuracy import check, check_specials, verify
from tilesmith.measure.host_check import verify_plan
from tilesmith.measure.oracle import oracle
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.keys import parse_key
from tilesmith.problems.samples import sample_args
from tilesmith.solvers.c.reference.solver import ReferenceSolver
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import candidates
from tilesmith.targets.cuda import cuda_target
from torch_answer import torch_answer, torch_gemm

SOLVER = ReferenceSolver()
INT8, FULL = {"dtype": "int8"}, {"bias": True, "residual": True, "activation": "gelu"}


def problems():
    for scale in ("tensor", "channel"):
        for mode in ("fwd", "bwd"):
            for types in (INT8, {"dtype": "bf16", "input_dtype" if mode == "bwd" else "output_dtype": "fp8e4m3"}):
                for more in ({}, FULL):
                    yield ConvSignature((2, 12, 9, 8), (20, 6, 3, 3), padding=((1, 0), (0, 2)), groups=2, mode=mode,
                                        stride=2, epilogue=Epilogue(scale=scale, **more), **types)  # fmt: skip
        yield ConvSignature((2, 6, 5, 8), (8, 3, 2, 6), transposed=True, stride=2, shared_layout="NHWC", **INT8,
                            epilogue=Epilogue(scale=scale, bias=True, activation="relu"))  # fmt: skip
        yield ConvSignature((2, 7, 7, 33), (20, 1, 1, 33), shared_layout="NHWC", epilogue=Epilogue(scale=scale), **INT8)
        for types in (INT8, {"dtype": "fp8e4m3"}, {"dtype": "fp16", "c_dtype": "fp8e5m2"}):
            leaky = Epilogue(scale=scale, bias=True, residual=True, activation="leaky_relu")
            yield GemmSignature(35, 18, 70, batch=2, trans_b=True, alpha=-2.0, beta=3.0, epilogue=leaky, **types)


def test_every_form():
    cases = []
    for signature in problems():
        assert parse_key(signature.key()) == signature.canonical
        assert signature.key()[:6] in ("conv2;", "gemm2;")
        assert f";epi=scale_{signature.epilogue.scale}" in signature.key()
        values = sample_args(signature)
        truth = oracle(signature, values)
        want = (torch_gemm if isinstance(signature, GemmSignature) else torch_answer)(signature, values)
        np.testing.assert_allclose(truth.value, want, rtol=1e-9, atol=1e-9)
        found = [c for c in candidates(signature, TWO_THREADS) if isinstance(c.verdict, Accepted)]
        assert {c.name.partition("@")[0] for c in found} == {"c_reference"}
        cases += [(signature, c.solver.draft(c.geometry, c.solver.default_config(c.geometry, TWO_THREADS), TWO_THREADS))
                  for c in found]  # fmt: skip
    for (signature, _), executable in zip(cases, executables(cases), strict=True):
        call = function(executable, signature)
        for verdict in (verify(call, signature, 1), check_specials(call, signature, 2)):
            assert verdict.ok, f"{signature.key()}: {verdict.message}"


def test_the_whole_check_of_a_plan():
    """What a search asks of every config: tensors anywhere, pieces, NaN and Inf."""
    wanted = [signature.canonical for signature in list(problems())[:4]]
    drafts = [
        (s, SOLVER.draft(s.geometry, SOLVER.default_config(s.geometry, TWO_THREADS), TWO_THREADS)) for s in wanted
    ]
    for (signature, _), executable in zip(drafts, executables(drafts), strict=True):
        verdict = verify_plan(executable, signature)
        assert verdict.ok, verdict.message


def test_int8_is_rounded_to_nearest_even_and_saturated(tmp_path):
    signature = GemmSignature(1, 8, 1, dtype="int8", epilogue=Epilogue(scale="channel", bias=True))
    assert (signature.c_dtype, signature.acc_dtype) == ("int8", "int32")
    a, b = np.array([[1]], np.int8), np.array([[1, 3, -1, -3, 5, 127, -128, 0]], np.int8)
    scale = np.array([0.5, 0.5, 0.5, 0.5, 0.5, 2.0, 2.0, np.inf], np.float32)
    bias = np.array([0, 0, 0, 0, 100.25, 0, 0, 0], np.float32)
    launch = get_launchable(signature, mode="fast", cache=tmp_path)
    assert launch(a, b, bias, scale).tolist() == [[0, 2, 0, -2, 103, 127, -128, 0]]  # 0 * inf is NaN, which is 0
    one = replace(signature, epilogue=Epilogue(scale="tensor"))
    launch = get_launchable(one, mode="fast", cache=tmp_path)
    assert launch(a, b, scale[:1]).tolist() == [[0, 2, 0, -2, 2, 64, -64, 0]]
    with pytest.raises(ArgumentError, match=r"scale must have shape \(1,\), got \(\); type scale.reshape\(1\)"):
        launch(a, b, np.array(0.5, np.float32))
    fp8 = GemmSignature(1, 2, 1, dtype="fp8e4m3", epilogue=Epilogue(scale="tensor"))
    a8, b8 = np.ones((1, 1), ml_dtypes.float8_e4m3fn), np.array([[2, 3]], ml_dtypes.float8_e4m3fn)
    found = get_launchable(fp8, mode="fast", cache=tmp_path)(a8, b8, np.array([200], np.float32)).astype(np.float32)
    assert found[0, 0] == 384  # 400 to the nearest even of 384 and 416
    assert np.isnan(found[0, 1])  # 600 is beyond fp8e4m3


def test_sums_of_no_products_are_scaled_too():
    signature = GemmSignature(2, 3, 0, dtype="int8", epilogue=Epilogue(scale="tensor", bias=True))
    bias = np.array([2.5, -3.5, 300], np.float32)
    arrays = np.empty((2, 0), np.int8), np.empty((0, 3), np.int8), bias, np.ones(1, np.float32)
    launch = get_launchable(signature, mode="fast")
    assert launch(*arrays).tolist() == [[2, -4, 127]] * 2
    assert launch(*map(torch.from_numpy, arrays)).tolist() == [[2, -4, 127]] * 2
    assert launch(*arrays[:3], np.full(1, np.nan, np.float32)).tolist() == [[0] * 3] * 2


def test_a_wrong_rounding_or_scale_is_found():
    signature = next(problems())
    values = sample_args(signature)
    truth = oracle(signature, values)
    right = np.rint(truth.value).astype(np.int8)
    assert check(right, truth, signature).ok
    assert np.mean(np.abs(right.astype(int)) >= 127) > 0.005  # saturation is met
    wrong = right.copy()
    wrong[1, 3, 2, 1] += 1 if wrong[1, 3, 2, 1] < 100 else -1
    assert not check(wrong, truth, signature).ok
    assert not check(np.trunc(truth.value).astype(np.int8), truth, signature).ok
    other = oracle(signature, (*values[:-1], values[-1] * np.float32(1.01)))
    assert not check(np.rint(other.value).astype(np.int8), truth, signature).ok


def test_rules_and_refusals():
    scaled = Epilogue(scale="tensor")
    for changes, words in (
        ({"dtype": "fp32"}, "scale 'tensor' goes with an int8 or fp8 result, got fp32"),
        ({"dtype": "int8", "output_dtype": "int32"}, "with a scale integers come as int8 x int8 -> int8"),
        ({"dtype": "fp8e4m3", "mode": "wrw"}, "an epilogue goes with mode fwd or bwd"),
    ):
        with pytest.raises(ProblemError, match=words):
            ConvSignature((1, 4, 5, 5), (4, 4, 3, 3), epilogue=scaled, **changes)
    with pytest.raises(ProblemError, match="without a scale integers come as int8 x int8 -> int32"):
        GemmSignature(4, 4, 4, dtype="int8", c_dtype="int8")
    with pytest.raises(ProblemError, match="known: none, tensor, channel"):
        Epilogue(scale="row")
    target = cuda_target("sm_90a", 132)
    signature = ConvSignature((1, 8, 8, 64), (64, 3, 3, 64), shared_layout="NHWC", dtype="int8", epilogue=scaled)
    verdicts = {c.name: str(c.verdict) for c in candidates(signature, target)}
    assert verdicts["mma_dense"] == "feature not covered (scale_tensor)"
    with pytest.raises(NoSolutionError, match=r"c_dense: feature not covered \(acc=int32, scale_tensor\)"):
        get_launchable(signature, mode="fast", only="c_dense")
