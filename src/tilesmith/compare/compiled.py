"""``torch.compile`` in its mode ``max-autotune`` as a rival, on GPUs and CPUs.

A trial compiles the product once; PyTorch keeps what it compiled and measured on the disk, for the process that
measures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tilesmith.compare.places import keep, kept_path, read_kept
from tilesmith.compare.rival import Setting, Way
from tilesmith.errors import ArgumentError
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import CudaTarget, Target

if TYPE_CHECKING:
    import torch

_TYPES = ("fp32", "fp16", "bf16", "fp64")
_MODE = "max-autotune-no-cudagraphs"  # a graph's replay would copy results


class CompiledRival:
    """``Rival`` for products that ``torch.compile`` has compiled."""

    name = "torch_compile"
    families = ("cpu", "cuda")

    def is_here(self) -> bool:
        return find_spec("torch") is not None

    def version(self) -> str:
        if not self.is_here():
            raise ArgumentError("torch_compile is not here; install it: pip install torch")
        return f"torch.compile of torch {version('torch')}, max-autotune"

    def needs_trial(self, signature: Signature, target: Target) -> bool:
        """Whether it has not compiled this problem."""
        return _computes(signature) and read_kept(self._kept(signature, target)) is None

    def trial(self, setting: Setting, stream: Any, tell: Callable[[str], None]) -> None:
        """Compile the product."""
        tell("torch.compile: max-autotune")
        with self.ways(setting) as ways:
            for way in ways:
                way.calls[0]()
        keep(self._kept(setting.signature, setting.target), {"compiled": True})

    @contextmanager
    def ways(self, setting: Setting) -> Iterator[Sequence[Way]]:
        signature = setting.signature
        if not _computes(signature) or not isinstance(signature, GemmSignature):
            yield ()
            return
        import torch

        with ExitStack() as held:
            held.enter_context(torch.no_grad())
            multiply = _compiled(signature.alpha)
            if isinstance(setting.target, CudaTarget):
                from tilesmith.solvers.external.library import GemmCall, array_of, device_tensors, on_stream

                held.enter_context(on_stream(setting.ordinal, setting.stream, signature.geometry.tf32))
                row = device_tensors(signature, setting.values, setting.ordinal, setting.calls)
                calls = [_call(multiply, signature, tensors) for tensors in row]
                yield [Way("max-autotune", calls, array_of, GemmCall(signature, "cublas").laid)]
                return
            from tilesmith.solvers.external.tensors import from_numpy, to_numpy

            call = _call(multiply, signature, [from_numpy(value) for value in setting.values])
            yield [Way("max-autotune", (call,), to_numpy)]

    def _kept(self, signature: Signature, target: Target) -> Any:
        return kept_path("torch_compile", signature.key(), target.name, self.version())


def _computes(signature: Signature) -> bool:
    if not isinstance(signature, GemmSignature):
        return False
    g = signature.geometry
    same = not g.groups and g.a.dtype == g.b.dtype == g.c.dtype and g.a.dtype in _TYPES
    return same and g.beta == 0 and g.epilogue.is_identity


@lru_cache(maxsize=8)
def _compiled(alpha: float) -> Callable[..., torch.Tensor]:
    import torch

    def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        found = torch.matmul(a, b)
        return found if alpha == 1.0 else found * alpha

    return torch.compile(multiply, mode=_MODE, dynamic=False)


def _call(
    multiply: Callable[..., torch.Tensor], signature: GemmSignature, tensors: Sequence[torch.Tensor]
) -> Callable[[], torch.Tensor]:
    """The call, whose result is ``(batch, m, n)``; one product alone is multiplied as matrices."""
    g = signature.geometry
    a, b = (
        tensor.as_strided((view.batch, view.rows, view.columns), view.strides)
        for tensor, view in zip(tensors, (g.a, g.b), strict=False)
    )
    if g.batch > 1:
        return partial(multiply, a, b)
    one, other = a[0], b[0]
    return lambda: multiply(one, other)[None]


RIVAL = CompiledRival()
