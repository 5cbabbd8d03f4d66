"""One record per CUDA arch: the only place with arch names of GPUs.

Limits are those of the CUDA C++ programming guide ("Technical Specifications per Compute Capability"). Peaks, the
size of the L2 cache and the number of SMs are those of one common card of the arch; ``targets.detect`` replaces the
latter two by the device's.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.errors import TargetError
from tilesmith.targets.target import CudaTarget

_MIB = 1024 * 1024

_SM_80 = CudaTarget(
    arch="sm_80",
    cores=108,
    cc_major=8,
    cc_minor=0,
    nvrtc_arch="sm_80",
    shared_bytes_per_block=163 * 1024,
    shared_bytes_per_sm=164 * 1024,
    registers_per_sm=65536,
    threads_per_sm=2048,
    blocks_per_sm=32,
    has_bf16=True,
    has_cp_async=True,
    has_fp8=False,
    has_tma=False,
    has_cluster=False,
    has_wgmma=False,
    has_tcgen05=False,
    fp64_mma=True,
    l2_bytes=40 * _MIB,
    clock_hz=1.41e9,
    bytes_per_s=1.555e12,
    bf16_flops=312e12,
    fp8_flops=0.0,
    int8_flops=624e12,
    tf32_flops=156e12,
    fp32_flops=19.5e12,
    fp64_flops=19.5e12,
)
_SM_86 = replace(
    _SM_80,
    arch="sm_86",
    cores=84,
    cc_minor=6,
    nvrtc_arch="sm_86",
    shared_bytes_per_block=99 * 1024,
    shared_bytes_per_sm=100 * 1024,
    threads_per_sm=1536,
    blocks_per_sm=16,
    fp64_mma=False,
    l2_bytes=6 * _MIB,
    clock_hz=1.74e9,
    bytes_per_s=0.696e12,
    bf16_flops=149.7e12,
    int8_flops=299e12,
    tf32_flops=74.8e12,
    fp32_flops=37.4e12,
    fp64_flops=0.58e12,
)
_SM_87 = replace(
    _SM_86,
    arch="sm_87",
    cores=16,
    cc_minor=7,
    nvrtc_arch="sm_87",
    shared_bytes_per_block=163 * 1024,
    shared_bytes_per_sm=164 * 1024,
    l2_bytes=4 * _MIB,
    clock_hz=1.3e9,
    bytes_per_s=0.204e12,
    bf16_flops=42e12,
    int8_flops=85e12,
    tf32_flops=21e12,
    fp32_flops=5.3e12,
    fp64_flops=0.083e12,
)
_SM_89 = replace(
    _SM_86,
    arch="sm_89",
    cores=142,
    cc_minor=9,
    nvrtc_arch="sm_89",
    blocks_per_sm=24,
    has_fp8=True,
    l2_bytes=96 * _MIB,
    clock_hz=2.49e9,
    bytes_per_s=0.864e12,
    bf16_flops=362e12,
    fp8_flops=724e12,
    int8_flops=724e12,
    tf32_flops=181e12,
    fp32_flops=90.5e12,
    fp64_flops=1.4e12,
)
_SM_90A = replace(
    _SM_80,
    arch="sm_90a",
    cores=132,
    cc_major=9,
    nvrtc_arch="sm_90a",
    shared_bytes_per_block=227 * 1024,
    shared_bytes_per_sm=228 * 1024,
    has_fp8=True,
    has_tma=True,
    has_cluster=True,
    has_wgmma=True,
    l2_bytes=60 * _MIB,
    clock_hz=1.755e9,
    # Measured on an H200: a large copy, and a large matrix product on random numbers.
    bytes_per_s=4.3e12,
    bf16_flops=790e12,
    fp8_flops=1580e12,
    int8_flops=1580e12,
    tf32_flops=395e12,
    fp32_flops=60e12,
    fp64_flops=60e12,
)
_SM_100A = replace(
    _SM_90A,
    arch="sm_100a",
    cores=148,
    cc_major=10,
    nvrtc_arch="sm_100a",
    has_wgmma=False,  # tcgen05 takes its place
    has_tcgen05=True,
    l2_bytes=126 * _MIB,
    clock_hz=1.85e9,
    bytes_per_s=7.7e12,
    bf16_flops=2250e12,
    fp8_flops=4500e12,
    int8_flops=4500e12,
    tf32_flops=1125e12,
    fp32_flops=75e12,
    fp64_flops=37e12,
)
_SM_120A = replace(
    _SM_89,
    arch="sm_120a",
    cores=170,
    cc_major=12,
    cc_minor=0,
    nvrtc_arch="sm_120a",
    has_tma=True,
    has_cluster=True,
    l2_bytes=96 * _MIB,
    clock_hz=2.4e9,
    bytes_per_s=1.79e12,
    bf16_flops=419e12,
    fp8_flops=838e12,
    int8_flops=838e12,
    tf32_flops=209e12,
    fp32_flops=104e12,
    fp64_flops=1.6e12,
)

CUDA_TARGETS: dict[str, CudaTarget] = {
    record.arch: record for record in (_SM_80, _SM_86, _SM_87, _SM_89, _SM_90A, _SM_100A, _SM_120A)
}
MAX_SMS = 1024


def cuda_target(arch: str, cores: int | None = None) -> CudaTarget:
    """The record of ``arch`` with ``cores`` SMs (default: those of a common card); ``TargetError`` if there is none."""
    record = CUDA_TARGETS.get(arch)
    if record is None:
        raise TargetError(f"target arch {arch!r} does not exist; known: {', '.join(CUDA_TARGETS)}")
    if cores is None:
        return record
    if isinstance(cores, bool) or not isinstance(cores, int) or not 1 <= cores <= MAX_SMS:
        raise TargetError(f"target cores {cores!r} is not an integer from 1 to {MAX_SMS}")
    return replace(record, cores=cores)


def cuda_arch(major: int, minor: int) -> str:
    """The arch of a device of compute capability ``major.minor``: its own record, else the newest that it runs."""
    for record in CUDA_TARGETS.values():
        if (record.cc_major, record.cc_minor) == (major, minor):
            return record.arch
    # Code without arch-specific instructions runs on later minors of the same major.
    family = [r for r in CUDA_TARGETS.values() if r.cc_major == major and r.cc_minor < minor and r.arch[-1] != "a"]
    if not family:
        raise TargetError(
            f"GPUs of compute capability {major}.{minor} are not supported; known: {', '.join(CUDA_TARGETS)}"
        )
    return max(family, key=lambda record: record.cc_minor).arch
