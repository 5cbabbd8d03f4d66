"""One record per CPU arch: the only place with arch names.

The sizes of the caches are those of a small server core; ``targets.detect`` replaces them by the host's.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.env import MAX_THREADS
from tilesmith.errors import TargetError
from tilesmith.targets.cards import CARD_LENGTH, CARD_TEXT, GENERIC
from tilesmith.targets.target import CpuTarget

_X86_64_V2 = CpuTarget(
    arch="x86_64-v2",
    cores=1,
    card=GENERIC,
    vector_bytes=16,
    vector_registers=16,
    bf16_dot=False,
    fp16_convert=False,
    fma_per_cycle=1,  # no fused multiply-add: a multiply and an add start together
    l1_bytes=32 * 1024,
    l2_bytes=256 * 1024,
    l3_bytes=8 * 1024 * 1024,
    flags=("-march=x86-64-v2",),
    zig_target="x86_64-linux-gnu",
)
_X86_64_V3 = replace(
    _X86_64_V2, arch="x86_64-v3", vector_bytes=32, fp16_convert=True, fma_per_cycle=2, l2_bytes=512 * 1024,
    l3_bytes=16 * 1024 * 1024, flags=("-march=x86-64-v3",),
)  # fmt: skip
_X86_64_V4 = replace(
    _X86_64_V3,
    arch="x86_64-v4",
    vector_bytes=64,
    vector_registers=32,
    l2_bytes=1024 * 1024,
    l3_bytes=32 * 1024 * 1024,
    # Compilers avoid 512-bit registers in copies unless they are told; kernels use them everywhere else.
    flags=("-march=x86-64-v4", "-mprefer-vector-width=512"),
)
_X86_64_V4_BF16 = replace(
    _X86_64_V4,
    arch="x86_64-v4-bf16",
    bf16_dot=True,
    l1_bytes=48 * 1024,  # every CPU with avx512_bf16 but Zen 4 has 48 KB
    flags=("-march=x86-64-v4", "-mavx512bf16", "-mprefer-vector-width=512"),
)
_X86_64_V4_AMX = replace(
    _X86_64_V4_BF16,
    arch="x86_64-v4-amx",
    bf16_tiles=True,
    l2_bytes=2 * 1024 * 1024,
    flags=(*_X86_64_V4_BF16.flags, "-DTS_TILES"),  # kernels hold the instructions as assembly
)
_AARCH64 = CpuTarget(
    arch="aarch64",
    cores=1,
    card=GENERIC,
    vector_bytes=16,
    vector_registers=32,
    bf16_dot=False,
    fp16_convert=True,  # fcvt is part of the base architecture
    fma_per_cycle=2,
    l1_bytes=64 * 1024,
    l2_bytes=1024 * 1024,
    l3_bytes=32 * 1024 * 1024,
    flags=("-march=armv8-a",),
    zig_target="aarch64-linux-gnu",
)

CPU_TARGETS: dict[str, CpuTarget] = {
    record.arch: record for record in (_X86_64_V2, _X86_64_V3, _X86_64_V4, _X86_64_V4_BF16, _X86_64_V4_AMX, _AARCH64)
}

# Processors with units half as wide as the vectors of their arch: they start half as many multiply-adds.
_HALF_AS_WIDE = {"zen4": 64}

# The kernel's names of the CPU features that each level of the x86-64 psABI (and our two steps) adds to the one below.
_X86_LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("x86_64-v2", frozenset("cx16 popcnt sse4_1 sse4_2 ssse3".split())),
    ("x86_64-v3", frozenset("avx avx2 bmi1 bmi2 f16c fma abm movbe".split())),
    ("x86_64-v4", frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())),
    ("x86_64-v4-bf16", frozenset({"avx512_bf16"})),
    ("x86_64-v4-amx", frozenset({"amx_tile", "amx_bf16"})),
)


def cpu_target(arch: str, cores: int = 1, caches: tuple[int, int, int] = (0, 0, 0), card: str = GENERIC) -> CpuTarget:
    """The record of ``arch`` with ``cores`` threads, bytes of its caches (0: the record's), and a processor's name.

    Raises ``TargetError`` if there is none.
    """
    record = CPU_TARGETS.get(arch)
    if record is None:
        raise TargetError(f"target arch {arch!r} does not exist; known: {', '.join(CPU_TARGETS)}")
    if isinstance(cores, bool) or not isinstance(cores, int) or not 1 <= cores <= MAX_THREADS:
        raise TargetError(f"target cores {cores!r} is not an integer from 1 to {MAX_THREADS}")
    check_card(card)
    l1, l2, l3 = caches
    if _HALF_AS_WIDE.get(card) == record.vector_bytes:
        record = replace(record, fma_per_cycle=record.fma_per_cycle // 2)
    return replace(
        record, cores=cores, card=card, l1_bytes=l1 or record.l1_bytes, l2_bytes=l2 or record.l2_bytes,
        l3_bytes=l3 or record.l3_bytes,
    )  # fmt: skip


def check_card(card: str) -> None:
    """``TargetError`` unless ``card`` may stand in a target's name."""
    if CARD_TEXT.fullmatch(card) is None or len(card) > CARD_LENGTH:
        raise TargetError(f"target card {card!r} is not lower-case words and digits joined by hyphens, such as h200")


def x86_arch(features: frozenset[str]) -> str:
    """The highest arch whose features (names as in ``/proc/cpuinfo``) are all there."""
    best = None
    for arch, needed in _X86_LEVELS:
        if not needed <= features:
            break
        best = arch
    if best is None:
        missing = ", ".join(sorted(_X86_LEVELS[0][1] - features))
        raise TargetError(f"this CPU lacks {missing}; x86_64-v2 is the least that Tilesmith runs on")
    return best


def archs_within(arch: str) -> tuple[str, ...]:
    """The archs whose kernels a CPU of ``arch`` runs, lowest first; ``arch`` is the last."""
    levels = [level for level, _ in _X86_LEVELS]
    return tuple(levels[: levels.index(arch) + 1]) if arch in levels else (arch,)
