"""Facts about the machine that a kernel is for. Solvers ask for facts, never for an arch's name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CpuTarget:
    """A CPU: ``cores`` is the number of threads a plan uses; sizes are bytes per core but for ``l3_bytes``.

    ``vector_bytes`` and ``vector_registers`` describe the widest vectors; ``bf16_dot`` says that it multiplies
    pairs of bf16 into fp32. ``fma_per_cycle`` counts vector multiply-adds that one core starts in a cycle.
    """

    arch: str
    cores: int
    vector_bytes: int
    vector_registers: int
    bf16_dot: bool
    fp16_convert: bool
    fma_per_cycle: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    flags: tuple[str, ...]  # for gcc and clang
    zig_target: str

    family = "cpu"

    @property
    def name(self) -> str:
        """``arch:cores``, such as ``x86_64-v4:2``; the database key of the target."""
        return f"{self.arch}:{self.cores}"

    def lanes(self, nbytes: int) -> int:
        """Elements of ``nbytes`` in one vector."""
        return self.vector_bytes // nbytes


Target = CpuTarget
