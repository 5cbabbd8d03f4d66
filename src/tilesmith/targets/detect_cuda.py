"""Finds out which CUDA devices there are: the one place that asks. The answer is kept for the life of the process."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from functools import lru_cache

from tilesmith.errors import LaunchError, TargetError
from tilesmith.targets.cards import card_of, card_text
from tilesmith.targets.cuda import cuda_arch, with_card
from tilesmith.targets.cuda_driver import library_path
from tilesmith.targets.driver import driver
from tilesmith.targets.target import CudaTarget

_CLOCK_KHZ, _SMS, _MEMORY_KHZ, _BUS_BITS, _L2_BYTES, _MAJOR, _MINOR = 13, 16, 36, 37, 38, 75, 76


@dataclass(frozen=True)
class CudaDevice:
    """A device as its driver describes it; ``driver`` is the CUDA version that the driver offers, such as 13.0.

    ``clock_hz`` is the boost clock, ``bytes_per_s`` what the memory could move; 0 where the driver does not tell.
    """

    ordinal: int
    name: str
    major: int
    minor: int
    sms: int
    l2_bytes: int
    memory_bytes: int
    driver: str
    clock_hz: float = 0.0
    bytes_per_s: float = 0.0


def cuda_devices() -> tuple[CudaDevice, ...]:
    """Every device that this process may use; raises ``LaunchError`` without a driver."""
    return _devices(library_path())


def has_cuda() -> bool:
    """Whether there is a driver and a device."""
    try:
        return bool(cuda_devices())
    except LaunchError:
        return False


def cuda_target_of(ordinal: int = 0) -> CudaTarget:
    """The target of a device. Raises ``TargetError`` where there is none, or one that Tilesmith does not run on."""
    try:
        devices = cuda_devices()
    except LaunchError as error:
        raise TargetError(f"device cuda:{ordinal} cannot be used: {error}") from None
    if not 0 <= ordinal < len(devices):
        raise TargetError(f"device cuda:{ordinal} does not exist; this machine has {len(devices)} CUDA devices")
    device = devices[ordinal]
    return target_of_device(device)


@lru_cache(maxsize=64)
def target_of_device(device: CudaDevice) -> CudaTarget:
    """The target of a device: the record of its card, else facts estimated from what the driver tells."""
    arch = cuda_arch(device.major, device.minor)
    card = card_of(arch, card_text(device.name), device.sms, device.clock_hz, device.bytes_per_s)
    target = with_card(arch, card)
    return replace(target, l2_bytes=device.l2_bytes) if device.l2_bytes else target


@lru_cache(maxsize=4)
def _devices(path: str) -> tuple[CudaDevice, ...]:
    cuda = driver()
    count = ctypes.c_int()
    cuda.call("cuDeviceGetCount", ctypes.byref(count))
    return tuple(_device(ordinal) for ordinal in range(count.value))


def _device(ordinal: int) -> CudaDevice:
    cuda = driver()
    handle, name, memory = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
    cuda.call("cuDeviceGet", ctypes.byref(handle), ordinal)
    cuda.call("cuDeviceGetName", name, len(name), handle)
    cuda.call("cuDeviceTotalMem_v2", ctypes.byref(memory), handle)

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        cuda.call("cuDeviceGetAttribute", ctypes.byref(value), number, handle)
        return value.value

    # Memory moves bits at both edges of its clock.
    bytes_per_s = 2e3 * attribute(_MEMORY_KHZ) * attribute(_BUS_BITS) / 8

    version = f"{cuda.version // 1000}.{cuda.version % 1000 // 10}"
    return CudaDevice(
        ordinal, name.value.decode(errors="replace"), attribute(_MAJOR), attribute(_MINOR), attribute(_SMS),
        attribute(_L2_BYTES), memory.value, version, 1e3 * attribute(_CLOCK_KHZ), bytes_per_s,
    )  # fmt: skip
