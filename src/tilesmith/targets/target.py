"""Facts about the machine that a kernel is for. Solvers ask for facts, never for an arch's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CpuTarget:
    """A CPU: ``cores`` is the number of threads a plan uses; sizes are bytes per core but for ``l3_bytes``.

    ``card`` names the processor (``zen4``), ``generic`` where it is not known.

    ``vector_bytes`` and ``vector_registers`` describe the widest vectors; ``bf16_dot`` says that it multiplies
    pairs of bf16 into fp32, ``bf16_tiles`` that it multiplies matrix tiles of bf16 (AMX).
    ``fma_per_cycle`` counts vector multiply-adds that one core starts in a cycle.
    """

    arch: str
    cores: int
    card: str
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
    bf16_tiles: bool = False

    family = "cpu"

    @property
    def name(self) -> str:
        """``arch:cores:card``, such as ``x86_64-v4:2:zen5``; the database key of the target."""
        return f"{self.arch}:{self.cores}:{self.card}"

    def lanes(self, nbytes: int) -> int:
        """Elements of ``nbytes`` in one vector."""
        return self.vector_bytes // nbytes


@dataclass(frozen=True)
class Card:
    """A GPU card: what it sustains. Peaks count a multiply-add as two, on dense operands; 0: its arch lacks the type.

    ``clock_hz`` is the boost clock, ``bytes_per_s`` what a large copy moves. ``measured`` figures were taken on such a
    card; ``estimated`` ones are scaled from another card of the arch, as there is no record of this one. ``of_sheet``:
    what share of the data sheet's peaks they are, of operations and of bytes.
    """

    name: str
    arch: str
    cores: int
    l2_bytes: int
    clock_hz: float
    bytes_per_s: float
    bf16_flops: float
    fp8_flops: float
    int8_flops: float
    tf32_flops: float
    fp32_flops: float
    fp64_flops: float
    measured: bool = False
    estimated: bool = False
    of_sheet: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class CudaArch:
    """The facts that all GPUs of an arch share. Sizes are bytes, ``shared_bytes_per_block`` at most of a block.

    ``has_tma``: bulk tensor copies and tensor maps; ``has_wgmma``: warpgroup products (sm_90a alone); ``has_tcgen05``:
    tensor-memory products; ``fp64_mma``: fp64 tensor cores.
    """

    arch: str
    cc_major: int
    cc_minor: int
    nvrtc_arch: str
    shared_bytes_per_block: int
    shared_bytes_per_sm: int
    registers_per_sm: int
    threads_per_sm: int
    blocks_per_sm: int
    has_bf16: bool
    has_cp_async: bool
    has_fp8: bool
    has_tma: bool
    has_cluster: bool
    has_wgmma: bool
    has_tcgen05: bool
    fp64_mma: bool


@dataclass(frozen=True)
class CudaTarget(CudaArch):
    """A CUDA GPU: its arch, ``cores`` SMs, and the facts of its card (``Card`` says what they mean)."""

    cores: int
    card: str
    l2_bytes: int
    clock_hz: float
    bytes_per_s: float
    bf16_flops: float
    fp8_flops: float
    int8_flops: float
    tf32_flops: float
    fp32_flops: float
    fp64_flops: float
    estimated: bool = False

    family = "cuda"

    @property
    def name(self) -> str:
        """``arch:SMs:card``, such as ``sm_90a:132:h200``; the database key of the target."""
        return f"{self.arch}:{self.cores}:{self.card}"


Target = CpuTarget | CudaTarget


def target_from(family: str, facts: dict[str, Any]) -> Target:
    """The target of these facts (``dataclasses.asdict``, as JSON leaves them); ``TypeError`` for others."""
    named: dict[str, Any] = {name: tuple(fact) if isinstance(fact, list) else fact for name, fact in facts.items()}
    return CpuTarget(**named) if family == "cpu" else CudaTarget(**named)
