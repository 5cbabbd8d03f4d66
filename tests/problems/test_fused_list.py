"""benchmarks/problems/fused.txt, the fused layers of networks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import Signature

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LIST = BENCHMARKS / "problems" / "fused.txt"
sys.path.insert(0, str(BENCHMARKS / "gpu"))
import fused  # noqa: E402


class Measured:
    """Problems whose plain form takes 100 us; each other one has its own time."""

    rivals = ("cudnn",)

    def __init__(self, times: dict[str, float]) -> None:
        self._times = times

    def launchable(self, signature: Signature, external: bool) -> Signature:
        return signature

    def benched(self, signature: Signature, seconds: float) -> dict:
        time_us = self._times.get(signature.key(), 100.0)
        return {"time_us": time_us, "status": "ok", "against": {}, "ratio": {"cudnn": 2.0} if self.rivals else {}}


def test_every_line_is_a_key():
    keys = [line for line in LIST.read_text().splitlines() if not line.startswith("#")]
    signatures = [(ConvSignature if key.startswith("conv") else GemmSignature).parse(key) for key in keys]
    assert [signature.key() for signature in signatures] == keys
    assert len(set(keys)) == len(keys) > 100
    assert not [key for key, signature in zip(keys, signatures, strict=True) if signature.epilogue.is_identity]
    assert {signature.epilogue.activation for signature in signatures} == {
        "none", "relu", "gelu", "hardswish", "hardsigmoid",
    }  # fmt: skip


def test_a_residual_is_allowed_its_bytes_and_three_percent_of_the_plain_problem():
    keys = [line for line in LIST.read_text().splitlines() if "residual" in line and "64x56x56x64;w=bf16" in line]
    bias = [line for line in LIST.read_text().splitlines() if line.endswith("epi=bias") and "64x56x56x64;" in line]
    (with_residual, *_), (without, *_) = keys, bias
    allowed_us = 103.0 + 64 * 56 * 56 * 256 * 2 / 4.3e12 * 1e6
    problems, plains = Measured({with_residual: allowed_us - 0.1, without: 102.0}), {}
    options = argparse.Namespace(tune_seconds=0.0, seconds=0.1)
    rows = [fused.row_of(problems, parse_key(key), plains, options) for key in (with_residual, without)]
    assert list(plains) == [fused.plain_of(parse_key(without)).key()]  # measured once for both
    found = fused.summary(rows)
    assert found["residual_over_allowed"] == pytest.approx((allowed_us - 0.1) / allowed_us)
    assert (found["residuals_within"], found["library_over_ours"]) == (1.0, 2.0)
    assert found["bias_activation"] == pytest.approx(1.02)
    late = fused.row_of(Measured({with_residual: allowed_us + 0.1}), parse_key(with_residual), plains, options)
    assert fused.summary([*rows, late])["residuals_within"] == 0.5
