"""Opens a CUDA device in a thread of its own: the driver needs a quarter of a second, in which Python can import.

What it needs is imported in some milliseconds; neither NumPy nor the rest of the package is.
"""

from __future__ import annotations

import atexit
import ctypes
import threading

from tilesmith.errors import LaunchError, TargetError
from tilesmith.targets.cuda_driver import device_ordinal
from tilesmith.targets.driver import driver

_END_S = 10.0  # at the exit of the process: for the driver to come back
_lock = threading.Lock()
_opening: dict[int, threading.Thread] = {}


def open_device(device: str = "cuda") -> None:
    """Begin to open a GPU in the background, and return at once; later calls on that GPU wait for the rest alone.

    A process that starts with it spends the time of its imports on the driver, too. Where there is no driver or no such
    device, nothing happens: the call that uses the device raises. A process that forks must not have called it before,
    as CUDA's contexts do not survive a fork.

    Args:
        device: ``cuda``, or ``cuda:1`` for the device of ordinal 1.

    Raises:
        TargetError: The name is none of a CUDA device.
    """
    ordinal = device_ordinal(device)
    if ordinal < 0:
        raise TargetError(f"device {device!r} is no GPU; write it as cuda or cuda:1")
    with _lock:
        if ordinal in _opening:
            return
        thread = threading.Thread(target=_open, args=(ordinal,), name=f"tilesmith-open-{ordinal}", daemon=True)
        _opening[ordinal] = thread
    atexit.register(thread.join, _END_S)  # the driver's own exit must not meet it half-way
    thread.start()


def _open(ordinal: int) -> None:
    handle, context = ctypes.c_int(), ctypes.c_void_p()
    try:
        driver().call("cuDeviceGet", ctypes.byref(handle), ordinal)
        driver().call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)  # for the life of the process
    except LaunchError:
        pass  # the call that uses the device says it
