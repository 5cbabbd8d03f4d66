"""Whether an untuned kernel is expected to win against PyTorch's: rules from published measurements.

NOTE: each rule names its evidence, ratios of PyTorch's best time to that of our untuned choice (geometric means).
CPUs: ``benchmarks/results/cpu_*.json``. GPUs, in bf16: ``gpu_bench_nvidia_h200.json`` for dense layers, where
``speedup`` of a search says how far the untuned choice lies behind the tuned one, and ``gpu_grouped``, ``gpu_deconv``,
``gpu_runs`` and ``gpu_irregular_random`` beside it for all others; ``gpu_fused_nvidia_h200.json`` for products with an
activation or a residual. fp16 takes the same kernels. Products on CPUs: ``products_*.json``; convolutions
of bf16 on CPUs with matrix tiles: ``convolutions_emerald-rapids_bf16.json``.
"""

from __future__ import annotations

import math

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import CpuTarget, Target

_HALVES = ("bf16", "fp16")
_FEW = 8  # channels: one vector of a 16-bit type
_MANY_TAPS = 64  # between the filters that were measured
_WIDE = 256  # of a product's sides, from which cuBLAS was measured
_WIDE_FUSED = 64  # with an activation or a residual in the kernel, for which PyTorch makes a pass of its own
_PLAIN_ARCHES = ("x86_64-v2", "x86_64-v3")  # on which PyTorch has no bf16 products of its own but plain loops
# Rows of a product on a CPU from which ours wins although it packs its filter at each call.
_MANY_ROWS, _MANY_PLAIN = 512, 48  # where PyTorch has fast ones, and plain loops
Expected = tuple[bool, str]


def expectation(signature: Signature, solver: str, target: Target, packed: bool = False) -> Expected:
    """Whether the kernel is expected to win, and why; ``packed``: its filter is packed once, not at each call."""
    if "reference" in solver:
        return False, "estimate: only the plain reference computes it"
    if isinstance(signature, ConvSignature):
        return _conv_on_cpu(signature) if target.family == "cpu" else _conv_on_gpu(signature.geometry, solver)
    if isinstance(target, CpuTarget):
        return _gemm_on_cpu(signature, target, packed)
    return _gemm_on_gpu(signature)


def _conv_on_cpu(signature: ConvSignature) -> Expected:
    """fp32: dense 1.18, depthwise 2.3, grouped 4.7, wrw 2.1, bwd 1.0; 16-bit types without instructions: 3.8 to 26."""
    # bf16 by matrix tiles: dense 1.0, their bwd 1.2, their wrw 1.3; in groups 1.5, 3.7 and 10.
    return True, "estimate: convolutions win on CPUs"


def _conv_on_gpu(problem: ConvGeometry, solver: str) -> Expected:
    if problem.x.dtype not in _HALVES:
        return False, "estimate: on GPUs PyTorch's kernels are kept for types other than bf16 and fp16"
    # Groups 1.7 to 3.6, depthwise 1.3 to 6.6 (one of 42 below 1.1), few channels 2 to 4, transposed 1.3.
    if problem.groups > 1:
        return True, f"estimate: {'depthwise' if problem.groups == problem.c else 'grouped'} convolutions win on GPUs"
    if solver.startswith("mma_runs_wrw") and math.prod(problem.filter) < _MANY_TAPS:
        return False, "estimate: weights of small filters, of pixels that are no vectors"  # 3x3: 0.65; 16x16: 1.7
    if solver.startswith("mma_runs"):
        return True, f"estimate: strided {problem.direction} of any channels wins on GPUs"  # fwd 1.0 to 2.0, bwd 3.8
    if problem.direction != "bwd" and any(n % 2 and n > _FEW for n in (problem.c, problem.k)):
        return False, "estimate: an odd number of channels"  # 0.5; bwd 2.7
    return True, f"estimate: dense {problem.direction} wins on GPUs"  # fwd 1.22, bwd 1.17, wrw 1.33


def _gemm_on_cpu(signature: GemmSignature, target: CpuTarget, packed: bool) -> Expected:
    name, amd = signature.dtype, target.card.startswith("zen")
    plain = name == "bf16" and target.arch in _PLAIN_ARCHES
    measured = plain or (name == "fp32" and amd) or (name == "bf16" and amd and target.bf16_dot)
    if signature.batch > 1 or not measured:
        # Nothing is published, or they are slower: bf16 by matrix tiles 0.90 (34 layers, packed; 0.64 to 1.63).
        return False, "estimate: such products on this CPU are kept for PyTorch"
    vast = 4 * signature.n * signature.k > target.l3_bytes
    if packed and signature.m == 1 and vast and not target.bf16_dot:  # Zen 3: 0.8, 0.95; Zen 4: 1.3, 2.0
        return False, "estimate: a product of one row with a filter beyond the caches"
    if not packed and signature.m < (_MANY_PLAIN if plain else _MANY_ROWS):
        return False, "estimate: a product of few rows, whose filter would be packed at each call"  # 0.01 to 0.9
    # Packed: fp32 1.18 on Zen 3 (least 0.93), 1.32 on Zen 4 (1.07); bf16 1.18 (1.01), by plain loops 6.5.
    return True, f"estimate: products of {name} win on this CPU"


def _gemm_on_gpu(signature: GemmSignature) -> Expected:
    sides = signature.m, signature.n, signature.k
    epilogue = signature.epilogue
    fused = epilogue.residual or epilogue.activation != "none"
    wide = min(sides) >= (_WIDE_FUSED if fused else _WIDE) and signature.n % _FEW == signature.k % _FEW == 0
    if signature.dtype not in _HALVES or not wide:
        return False, f"estimate: products of this type and size ({sides}) are kept for PyTorch"
    return True, f"estimate: {'fused' if fused else 'wide'} products win on GPUs"  # 1.7; 1.08
