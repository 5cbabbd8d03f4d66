"""One measurement at a time on a device, whoever of this user's workers measures there."""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tilesmith.errors import FleetError, LaunchError
from tilesmith.targets.cuda_driver import device_ordinal
from tilesmith.targets.driver import driver
from tilesmith.toolchain import files

WAIT_S = 60.0


@contextmanager
def device_lock(device: str, seconds: float = WAIT_S) -> Iterator[None]:
    """Holds a device of this machine. Raises ``FleetError`` if another worker still has it after so many seconds.

    Where the machine has no locks, nothing is held.
    """
    began = time.monotonic()
    with files.exclusive(_folder(), device_identity(device), seconds) as alone:
        if not alone and time.monotonic() - began >= seconds:
            raise FleetError(f"{device} has been in use by another worker of this machine for {seconds:.0f} s")
        yield


def _folder() -> Path:
    """A folder of this machine alone: other machines may share every other one."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"tilesmith-{user}"


def device_identity(device: str) -> str:
    """A name that a device keeps whatever CUDA_VISIBLE_DEVICES calls it: its UUID, where the driver tells it."""
    try:
        ordinal = device_ordinal(device)
    except ValueError:  # a device that only tests and simulations have
        return re.sub(r"[^A-Za-z0-9._-]", "-", device)
    if ordinal < 0:
        return "cpu"
    handle, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    try:
        driver().call("cuDeviceGet", ctypes.byref(handle), ordinal)
        driver().call("cuDeviceGetUuid", uuid, handle)
    except LaunchError:
        visible = re.sub(r"[^A-Za-z0-9]", "-", os.environ.get("CUDA_VISIBLE_DEVICES", ""))[:80]
        return f"cuda-{ordinal}-{visible}"
    return f"cuda-{bytes(uuid).hex()}"
