"""benchmarks/problems/fused.txt, the fused layers of networks."""

from __future__ import annotations

from pathlib import Path

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature

LIST = Path(__file__).parents[2] / "benchmarks" / "problems" / "fused.txt"


def test_every_line_is_a_key():
    keys = [line for line in LIST.read_text().splitlines() if not line.startswith("#")]
    signatures = [(ConvSignature if key.startswith("conv") else GemmSignature).parse(key) for key in keys]
    assert [signature.key() for signature in signatures] == keys
    assert len(set(keys)) == len(keys) > 100
    assert not [key for key, signature in zip(keys, signatures, strict=True) if signature.epilogue.is_identity]
    assert {signature.epilogue.activation for signature in signatures} == {
        "none", "relu", "gelu", "hardswish", "hardsigmoid",
    }  # fmt: skip
