"""One record per CUDA arch: the only place with arch names of GPUs.

A ``compute_`` arch is PTX, which the driver of a later GPU assembles when it is loaded: for GPUs that no record knows.

Limits are those of the CUDA C++ programming guide ("Technical Specifications per Compute Capability"). What differs
from card to card stands in ``targets/cards.py``.
"""

from __future__ import annotations

from dataclasses import asdict, replace

from tilesmith.errors import TargetError
from tilesmith.targets.cards import CARDS, card_of, common_card
from tilesmith.targets.cpu import check_card
from tilesmith.targets.target import Card, CudaArch, CudaTarget

_SM_80 = CudaArch(
    arch="sm_80", cc_major=8, cc_minor=0, nvrtc_arch="sm_80", shared_bytes_per_block=163 * 1024,
    shared_bytes_per_sm=164 * 1024, registers_per_sm=65536, threads_per_sm=2048, blocks_per_sm=32, has_bf16=True,
    has_cp_async=True, has_fp8=False, has_tma=False, has_cluster=False, has_wgmma=False, has_tcgen05=False,
    fp64_mma=True,
)  # fmt: skip
_SM_86 = replace(
    _SM_80, arch="sm_86", cc_minor=6, nvrtc_arch="sm_86", shared_bytes_per_block=99 * 1024,
    shared_bytes_per_sm=100 * 1024, threads_per_sm=1536, blocks_per_sm=16, fp64_mma=False,
)  # fmt: skip
_SM_87 = replace(
    _SM_86, arch="sm_87", cc_minor=7, nvrtc_arch="sm_87", shared_bytes_per_block=163 * 1024,
    shared_bytes_per_sm=164 * 1024,
)  # fmt: skip
_SM_89 = replace(
    _SM_86, arch="sm_89", cc_minor=9, nvrtc_arch="sm_89", blocks_per_sm=24, has_fp8=True,
)  # fmt: skip
_SM_90A = replace(
    _SM_80, arch="sm_90a", cc_major=9, nvrtc_arch="sm_90a", shared_bytes_per_block=227 * 1024,
    shared_bytes_per_sm=228 * 1024, has_fp8=True, has_tma=True, has_cluster=True, has_wgmma=True,
)  # fmt: skip
_SM_100A = replace(
    _SM_90A,
    arch="sm_100a",
    cc_major=10,
    nvrtc_arch="sm_100a",
    has_wgmma=False,  # tcgen05 takes its place
    has_tcgen05=True,
)
_SM_120A = replace(
    _SM_89, arch="sm_120a", cc_major=12, cc_minor=0, nvrtc_arch="sm_120a", has_tma=True, has_cluster=True,
)  # fmt: skip

# With the least shared memory and threads that a GPU of theirs has.
_COMPUTE_80 = replace(_SM_86, arch="compute_80", cc_minor=0, nvrtc_arch="compute_80")
_COMPUTE_89 = replace(_SM_89, arch="compute_89", nvrtc_arch="compute_89", blocks_per_sm=16)

CUDA_ARCHS: dict[str, CudaArch] = {
    record.arch: record for record in (_SM_80, _SM_86, _SM_87, _SM_89, _SM_90A, _SM_100A, _SM_120A)
}
PTX_ARCHS: dict[str, CudaArch] = {record.arch: record for record in (_COMPUTE_80, _COMPUTE_89)}
GPU_ARCHS = CUDA_ARCHS | PTX_ARCHS
MAX_SMS = 1024


def cuda_target(arch: str, cores: int | None = None, card: str = "") -> CudaTarget:
    """``arch`` with ``cores`` SMs on a card: what is left out is that of the arch's common card.

    Raises ``TargetError`` for an arch that has no record, a number that no GPU has, or a text that names no card.
    """
    if arch not in GPU_ARCHS:
        raise TargetError(f"target arch {arch!r} does not exist; known: {', '.join(GPU_ARCHS)}")
    name = card or common_card(arch).name
    check_card(name)
    if cores is None:
        cores = CARDS[name].cores if name in CARDS else common_card(arch).cores
    if isinstance(cores, bool) or not isinstance(cores, int) or not 1 <= cores <= MAX_SMS:
        raise TargetError(f"target cores {cores!r} is not an integer from 1 to {MAX_SMS}")
    if name in CARDS and CARDS[name].arch != arch and arch not in PTX_ARCHS:
        raise TargetError(f"target card {name!r} is a card of {CARDS[name].arch}, not of {arch}")
    return with_card(arch, card_of(arch, name, cores))


def with_card(arch: str, card: Card) -> CudaTarget:
    """The target of an arch on a card with these facts."""
    return CudaTarget(
        **asdict(GPU_ARCHS[arch]), cores=card.cores, card=card.name, l2_bytes=card.l2_bytes, clock_hz=card.clock_hz,
        bytes_per_s=card.bytes_per_s, bf16_flops=card.bf16_flops, fp8_flops=card.fp8_flops, int8_flops=card.int8_flops,
        tf32_flops=card.tf32_flops, fp32_flops=card.fp32_flops, fp64_flops=card.fp64_flops, estimated=card.estimated,
    )  # fmt: skip


# Each arch on its common card.
CUDA_TARGETS: dict[str, CudaTarget] = {arch: cuda_target(arch) for arch in CUDA_ARCHS}


def cuda_arch(major: int, minor: int) -> str:
    """The arch of a device of compute capability ``major.minor``: its own record, else the newest code that it runs."""
    for record in CUDA_ARCHS.values():
        if (record.cc_major, record.cc_minor) == (major, minor):
            return record.arch
    # Code without arch-specific instructions runs on later minors of the same major, PTX on all that is later.
    family = [r for r in CUDA_ARCHS.values() if r.cc_major == major and r.cc_minor < minor and r.arch[-1] != "a"]
    family = family or [r for r in PTX_ARCHS.values() if (r.cc_major, r.cc_minor) < (major, minor)]
    if not family:
        raise TargetError(
            f"GPUs of compute capability {major}.{minor} are not supported; known: {', '.join(CUDA_ARCHS)}"
        )
    return max(family, key=lambda record: record.cc_minor).arch


def ptx_target(target: CudaTarget) -> CudaTarget:
    """The target whose PTX later GPUs than that of ``target`` run, with its SMs and card."""
    arch = "compute_89" if target.has_fp8 else "compute_80"
    return cuda_target(arch, target.cores, target.card)
