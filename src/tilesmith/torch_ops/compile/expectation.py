"""Whether an untuned kernel is expected to win against PyTorch's: rules from published measurements.

NOTE: sources are the results of ``benchmarks/`` (``results/cpu_*.json``, oneDNN beside ours). On CPUs, ours win in
every convolution of the list within noise (1.00 to 4.7 in fp32), by the largest factor with groups and in
16-bit types on processors without instructions for them. Matrix products of fp32 are MKL's field; without a
measurement they are left to it.
"""

from __future__ import annotations

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import Target

LEAST_FLOPS = 1e5  # below that, a call is host time, where PyTorch's own operators cost less


def expectation(signature: Signature, solver: str, target: Target) -> tuple[bool, str]:
    """Whether the kernel is expected to win, and why."""
    if "reference" in solver:
        return False, "no fast kernel fits"
    if isinstance(signature, ConvSignature):
        return True, "estimate: convolutions of this kind win in the published results"
    if target.family == "cpu":
        return False, "estimate: products on a CPU are PyTorch's without a measurement"
    return _is_wide(signature), "estimate"


def _is_wide(signature: Signature) -> bool:
    return False
