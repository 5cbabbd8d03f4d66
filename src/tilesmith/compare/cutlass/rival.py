"""CUTLASS as a rival.

All of its kernels for a product race in a process of their own (``trial``), because one that crashes takes the process
with it. Their order is kept; the fastest are then measured beside ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from tilesmith import env
from tilesmith.compare.cutlass.build import LATE, Compiler
from tilesmith.compare.cutlass.checkout import INSTALL, NVCC, Checkout, find_checkout, find_nvcc, nvcc_version
from tilesmith.compare.cutlass.kernels import CutlassKernel, Product, kernels_for, product_of
from tilesmith.compare.places import kept_path, read_kept
from tilesmith.compare.rival import Setting, Way
from tilesmith.errors import ArgumentError, CompileError
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.targets.target import CudaTarget, Target

_BUILDING = 0.8  # of the time of a trial
_LARGE = 128 * 128  # results whose sums fill the registers of a warpgroup


class CutlassRival:
    """``Rival`` for the kernels of CUTLASS's library."""

    name = "cutlass"
    families = ("cuda",)

    def is_here(self) -> bool:
        return find_checkout() is not None and find_nvcc() is not None and find_spec("torch") is not None

    def version(self) -> str:
        checkout, compiler = self._found()
        return f"CUTLASS {checkout.version} by nvcc {compiler}"

    def needs_trial(self, signature: Signature, target: Target) -> bool:
        """Whether its kernels have not raced for this problem, or without some that were not compiled in time."""
        asked = _asked(signature, target)
        if asked is None:
            return False
        held = read_kept(self._kept(*asked))
        return self._order(*asked) is None or LATE in held.get("failed", {}).values()

    def build(
        self, signatures: Sequence[Signature], target: Target, seconds: float, tell: Callable[[str], None]
    ) -> None:
        """Compile the kernels of several problems together, before their trials; what is late is left out."""
        kernels: dict[str, CutlassKernel] = {}
        compilers = []
        for signature in signatures:
            if asked := _asked(signature, target):
                listed, compiler = self._kernels(*asked)
                kernels |= {each.text: each for each in listed}
                compilers.append(compiler)
        if compilers:
            compilers[0].build(sorted(kernels.values(), key=_turn), seconds, tell)

    def load(self, signature: Signature, target: Target) -> None:
        """Load its compiled kernels for a problem: the first call of each takes the device's runtime a while."""
        from tilesmith.compare.cutlass.library import CutlassGemm

        if asked := _asked(signature, target):
            kernels, compiler = self._kernels(*asked)
            for place in map(compiler.place, kernels):
                if place.exists():
                    CutlassGemm(place, asked[0], 1).load()

    def trial(self, setting: Setting, stream: Any, tell: Callable[[str], None]) -> None:
        """Compile its kernels, let them race, and keep their order; ``CompileError`` if none is compiled."""
        from tilesmith.compare.contest import hold_contest
        from tilesmith.compare.cutlass.race import makers
        from tilesmith.solvers.external.library import GemmCall, device_tensors

        asked = _asked(setting.signature, setting.target)
        if asked is None or not isinstance(setting.signature, GemmSignature):
            return
        product, target = asked
        kernels, compiler = self._kernels(product, target)
        built = compiler.build(kernels, _BUILDING * env.RIVAL_SECONDS.get(), tell)
        if kernels and not built.libraries:
            why = next(iter(built.failed.values()))
            raise CompileError(f"none of CUTLASS's {len(kernels)} kernels is compiled: {why}")
        (tensors,) = device_tensors(setting.signature, setting.values, setting.ordinal)
        truth = GemmCall(setting.signature, "cublas").compute(tensors)
        ways = makers(product, kernels, built.libraries, target.cores, tensors, truth, setting.stream)
        order, wrong = hold_contest(
            self._kept(product, target), ways, truth, stream, target, failed=built.failed, listed=len(kernels)
        )
        right = len(ways) - len(wrong)
        tell(f"CUTLASS: {right} ways of {len(built.libraries)} kernels run, {len(wrong)} fail; {len(order)} raced")

    @contextmanager
    def ways(self, setting: Setting) -> Iterator[Sequence[Way]]:
        import torch

        from tilesmith.compare.cutlass.library import CutlassGemm
        from tilesmith.compare.cutlass.race import split_of
        from tilesmith.solvers.external.library import GemmCall, array_of, device_tensors, on_stream

        asked = _asked(setting.signature, setting.target)
        order = None if asked is None else self._order(*asked)
        if asked is None or order is None or not isinstance(setting.signature, GemmSignature):
            yield ()
            return
        product, target = asked
        kernels, compiler = self._kernels(product, target)
        named = {kernel.name: kernel for kernel in kernels}
        call = GemmCall(setting.signature, "cublas")
        with on_stream(setting.ordinal, setting.stream, product.kind == "tf32"):
            row = device_tensors(setting.signature, setting.values, setting.ordinal, setting.calls)
            shape = (product.count, product.n, product.m)
            results = [torch.empty(shape, dtype=a.dtype, device=a.device) for a, *_ in row]
            ways = []
            for name in order:
                kernel, splits = split_of(name)
                calls = CutlassGemm(compiler.place(named[kernel]), product, splits).calls(row, results, setting.stream)
                if calls is not None:
                    ways.append(Way(name, calls, array_of, call.laid))
            yield ways

    def _found(self) -> tuple[Checkout, str]:
        checkout, nvcc = find_checkout(), find_nvcc()
        if checkout is None:
            raise ArgumentError(f"cutlass is not here; {INSTALL}")
        if nvcc is None:
            raise ArgumentError(NVCC)
        if find_spec("torch") is None:
            raise ArgumentError("cutlass is measured through PyTorch; install it: pip install torch")
        return checkout, nvcc_version(nvcc)

    def _kernels(self, product: Product, target: CudaTarget) -> tuple[tuple[CutlassKernel, ...], Compiler]:
        checkout, cuda = self._found()
        nvcc = find_nvcc()
        assert nvcc is not None
        return kernels_for(product, target, checkout, cuda), Compiler(nvcc, checkout, target)

    def _kept(self, product: Product, target: CudaTarget) -> Any:
        return kept_path("cutlass", str(product), target.name, self.version())

    def _order(self, product: Product, target: CudaTarget) -> list[str] | None:
        from tilesmith.compare.contest import kept_order

        return kept_order(self._kept(product, target))


def _turn(kernel: CutlassKernel) -> int:
    """Which kernels are compiled first, where there is no time for all: those of Hopper's persistent schedules whose
    sums fit into the registers of the two warpgroups that share a tile, or of the one that has it alone; others of
    earlier generations; stream-k, whose tiles those schedules have; and then what is seldom fast."""
    if not kernel.name.startswith("sm90"):
        return 1
    shared = {"cooperative": 2, "pingpong": 1}
    most = max((_LARGE * count for word, count in shared.items() if word in kernel.name), default=0)
    if math.prod(kernel.tile[:2]) > most:
        return 3
    return 2 if "stream_k" in kernel.name else 0


def _asked(signature: Signature, target: Target) -> tuple[Product, CudaTarget] | None:
    if not isinstance(signature, GemmSignature) or not isinstance(target, CudaTarget):
        return None
    product = product_of(signature)
    return None if product is None else (product, target)


RIVAL = CutlassRival()
