"""Names of CUDA devices and of their driver's library, without opening it."""

from __future__ import annotations

import re

from tilesmith import env
from tilesmith.errors import TargetError

_DEVICE = re.compile(r"cuda(?::([0-9]{1,9}))?")


def device_ordinal(device: str) -> int:
    """The ordinal that ``cuda`` or ``cuda:N`` names, -1 for ``cpu``; ``TargetError`` for anything else."""
    name = str(device) if type(device).__module__ == "torch" else device  # torch.device("cuda:1")
    if name == "cpu":
        return -1
    match = _DEVICE.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise TargetError(f"device {device!r} does not exist; write it as cpu, cuda or cuda:1")
    return int(match[1] or 0)


def library_path() -> str:
    """The library that counts as the CUDA driver."""
    return env.LIBCUDA.get() or "libcuda.so.1"
