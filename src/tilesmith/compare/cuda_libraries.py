"""cuDNN and cuBLAS through PyTorch: every way to compute a problem, to be measured beside ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import torch

from tilesmith.compare.cublaslt import RESULTS, LtGemm
from tilesmith.compare.cuda_bytes import byte_calls
from tilesmith.compare.cuda_fused import fused_calls
from tilesmith.compare.cuda_groups import cleared, group_calls
from tilesmith.compare.rival import Setting, Way
from tilesmith.plan.slots import arguments
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.external.library import (
    BLAS,
    ConvCall,
    GemmCall,
    array_of,
    device_tensors,
    on_stream,
    uses_tf32,
)
from tilesmith.solvers.external.library import version as version_of
from tilesmith.solvers.external.tensors import TORCH_DTYPES

__all__ = ["version", "ways"]


def version(library: str) -> str:
    """``Rival.version``."""
    more = f" and of the first {RESULTS} results of cuBLASLt's heuristic" if library == "cublas" else ""
    return version_of(library) + more


@contextmanager
def ways(library: str, setting: Setting) -> Iterator[tuple[Way, ...]]:
    """``Rival.ways``, with PyTorch's work on the setting's stream inside. Ways that PyTorch refuses are left out."""
    with on_stream(setting.ordinal, setting.stream, uses_tf32(setting.signature)):
        yield tuple(way for way in _ways(library, setting) if _runs(way))


def _ways(library: str, setting: Setting) -> list[Way]:
    signature = setting.signature
    if isinstance(signature, GemmSignature) != (library == "cublas"):
        return []
    if isinstance(signature, GemmSignature) and signature.groups:
        return _of_groups(signature, setting)
    if not {slot.dtype for slot in arguments(signature)} <= set(TORCH_DTYPES):
        if not isinstance(signature, GemmSignature):
            return []
        row = device_tensors(signature, setting.values, setting.ordinal, setting.calls)
        laid = GemmCall(signature, "cublaslt").laid
        return [Way(name, calls, array_of, laid) for name, calls in byte_calls(signature, row).items()]
    if not isinstance(signature, GemmSignature) and signature.mode == "bgrad":
        return []
    row = device_tensors(signature, setting.values, setting.ordinal, setting.calls)
    if isinstance(signature, GemmSignature):
        both = {name: GemmCall(signature, name) for name in BLAS}
        found = [
            Way(name, [partial(call.compute, tensors) for tensors in row], array_of, call.laid)
            for name, call in both.items()
        ]
        with suppress(RuntimeError):  # a GEMM that cuBLASLt is not called for
            lt = LtGemm(signature)
            found += [Way(name, calls, array_of, both["cublas"].laid) for name, calls in lt.calls(row).items()]
        return found
    conv = ConvCall(signature)
    each, given = [conv.modes(tensors) for tensors in row], conv.given_mode(row[0])
    found = [Way(name, [ways[name] for ways in each], array_of, conv.laid, copied=name != given) for name in each[0]]
    return found + [Way(name, calls, array_of, conv.laid) for name, calls in fused_calls(signature, row).items()]


def _of_groups(signature: GemmSignature, setting: Setting) -> list[Way]:
    ends, product = setting.values[2], GemmCall(signature, "cublas")

    def laid(found: torch.Tensor) -> torch.Tensor:
        return product.laid(cleared(ends, found))

    row = device_tensors(signature, setting.values, setting.ordinal, setting.calls)
    return [Way(name, calls, array_of, laid) for name, calls in group_calls(signature, ends, row).items()]


def _runs(way: Way) -> bool:
    try:
        way.calls[0]()
    except (RuntimeError, NotImplementedError):  # no kernel for these types
        return False
    return True
