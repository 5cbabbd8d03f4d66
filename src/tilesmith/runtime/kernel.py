"""One kernel of a cubin or PTX text on a device, launched with plain numbers: for measuring. Plans go through C."""

from __future__ import annotations

import ctypes
from pathlib import Path

from tilesmith.runtime.device import Device, Stream
from tilesmith.targets.cuda_driver import driver


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint),
    )  # fmt: skip


class Kernel:
    """``symbol`` of the image at ``path`` (or the image itself), loaded on ``place``."""

    def __init__(self, image: Path | bytes, symbol: str, place: Device) -> None:
        data = image if isinstance(image, bytes) else image.read_bytes()
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        with place.current():
            driver().call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(data))
            driver().call("cuModuleGetFunction", ctypes.byref(self._function), module, ctypes.c_char_p(symbol.encode()))

    def launch(self, stream: Stream, blocks: int, threads: int, *values: int | float) -> None:
        """Queue it; integers are passed as 64 bits (addresses too), floats as doubles."""
        held = [ctypes.c_double(v) if isinstance(v, float) else ctypes.c_uint64(v) for v in values]
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(value) for value in held))
        sizes = ctypes.c_uint * 3
        config = _Config(sizes(blocks, 1, 1), sizes(threads, 1, 1), 0, stream.handle, None, 0)
        with stream.device.current():
            driver().call("cuLaunchKernelEx", ctypes.byref(config), self._function, pointers, None)
