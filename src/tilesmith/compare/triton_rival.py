"""Triton as a rival: a matrix product in its language, autotuned.

All configs race in a trial; the fastest are then measured beside ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tilesmith.compare.places import kept_path
from tilesmith.compare.rival import Setting, Way
from tilesmith.errors import ArgumentError
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import CudaTarget, Target

if TYPE_CHECKING:
    import torch

    from tilesmith.compare.triton_matmul import TritonConfig

_TYPES = ("fp32", "fp16", "bf16")


class TritonRival:
    """``Rival`` for a product in Triton."""

    name = "triton"
    families = ("cuda",)

    def is_here(self) -> bool:
        return find_spec("triton") is not None and find_spec("torch") is not None

    def version(self) -> str:
        for package in ("triton", "pytorch-triton"):
            try:
                return f"Triton {version(package)}, autotuned"
            except PackageNotFoundError:
                continue
        raise ArgumentError("triton is not here; install it: pip install torch triton")

    def needs_trial(self, signature: Signature, target: Target) -> bool:
        """Whether its configs have not raced for this problem."""
        from tilesmith.compare.contest import kept_order

        return _computes(signature) and kept_order(self._kept(signature, target)) is None

    def trial(self, setting: Setting, stream: Any, tell: Callable[[str], None]) -> None:
        """Let its configs race, and keep their order."""
        from tilesmith.compare.contest import hold_contest
        from tilesmith.compare.triton_matmul import CONFIGS
        from tilesmith.solvers.external.library import GemmCall, device_tensors

        signature, target = setting.signature, setting.target
        if not isinstance(signature, GemmSignature) or not isinstance(target, CudaTarget):
            return
        (tensors,) = device_tensors(signature, setting.values, setting.ordinal)
        truth = GemmCall(signature, "cublas").compute(tensors)
        tell(f"Triton: {len(CONFIGS)} configs")
        ways = {config.name: partial(_call, signature, config, tensors) for config in CONFIGS}
        hold_contest(self._kept(signature, target), ways, truth, stream, target)

    @contextmanager
    def ways(self, setting: Setting) -> Iterator[Sequence[Way]]:
        signature = setting.signature
        if not _computes(signature) or not isinstance(signature, GemmSignature):
            yield ()
            return
        from tilesmith.compare.contest import kept_order
        from tilesmith.compare.triton_matmul import CONFIGS
        from tilesmith.solvers.external.library import GemmCall, array_of, device_tensors, on_stream

        named = {config.name: config for config in CONFIGS}
        laid = GemmCall(signature, "cublas").laid
        with on_stream(setting.ordinal, setting.stream, signature.geometry.tf32):
            row = device_tensors(signature, setting.values, setting.ordinal, setting.calls)
            yield [
                Way(name, [_call(signature, named[name], tensors) for tensors in row], array_of, laid)
                for name in kept_order(self._kept(signature, setting.target)) or () if name in named
            ]  # fmt: skip

    def _kept(self, signature: Signature, target: Target) -> Any:
        return kept_path("triton", signature.key(), target.name, self.version())


def _computes(signature: Signature) -> bool:
    if not isinstance(signature, GemmSignature):
        return False
    g = signature.geometry
    same = not g.groups and g.a.dtype == g.b.dtype == g.c.dtype and g.a.dtype in _TYPES and g.acc_dtype == "fp32"
    return same and g.beta == 0 and g.epilogue.is_identity and g.c.strides[2] == 1


def _call(
    signature: GemmSignature, config: TritonConfig, tensors: Sequence[torch.Tensor]
) -> Callable[[], torch.Tensor]:
    import torch

    from tilesmith.compare.triton_matmul import multiply

    g = signature.geometry
    a, b = (
        tensor.as_strided((view.batch, view.rows, view.columns), view.strides)
        for tensor, view in zip(tensors, (g.a, g.b), strict=False)
    )
    result = torch.empty((g.batch, g.m, g.n), dtype=a.dtype, device=a.device)

    def call() -> torch.Tensor:
        multiply(a, b, result, g.alpha, config, g.tf32)
        return result

    return call


RIVAL = TritonRival()
