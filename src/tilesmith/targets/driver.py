"""The CUDA driver's library through ctypes: what detection, memory and timing need. Kernels go through the C runtime.

The library is opened at first use, ``TILESMITH_LIBCUDA`` or ``libcuda.so.1``; without one every call raises.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache

from tilesmith.errors import LaunchError
from tilesmith.targets.cuda_driver import library_path

OLDEST_VERSION = 12000


class Driver:
    """One opened library. ``call`` raises ``LaunchError`` in the driver's own words."""

    def __init__(self, path: str) -> None:
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise LaunchError(f"no CUDA driver: {error}; install NVIDIA's driver, or run on a CPU") from None
        self._functions: dict[str, Callable[..., int]] = {}
        self.call("cuInit", 0)
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(version))
        self.version = version.value
        if self.version < OLDEST_VERSION:
            raise LaunchError(
                f"the CUDA driver {path} is of version {self.version // 1000}.{self.version % 1000 // 10}; "
                f"{OLDEST_VERSION // 1000}.0 is the oldest that Tilesmith runs on"
            )

    def call(self, name: str, *arguments: object) -> None:
        result = self.result(name, *arguments)
        if result:
            raise LaunchError(f"{name} failed: {self._describe(result)}")

    def result(self, name: str, *arguments: object) -> int:
        """The raw result of a call; 0 is success."""
        function = self._functions.get(name)
        if function is None:
            try:
                function = self._functions[name] = getattr(self._library, name)
            except AttributeError:
                raise LaunchError(f"the CUDA driver is too old: it lacks {name}") from None
        return function(*arguments)

    def _describe(self, result: int) -> str:
        texts = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            getattr(self._library, name)(result, ctypes.byref(text))
            texts.append((text.value or b"unknown").decode())
        return f"{texts[0]} ({result}), {texts[1]}"


def driver() -> Driver:
    """The driver, opened once a process; ``LaunchError`` without one."""
    return _open(library_path())


@lru_cache(maxsize=4)
def _open(path: str) -> Driver:
    return Driver(path)
