"""Memory, streams, events and graphs of a CUDA device, through the driver: for measuring, and for foreign tensors.

Everything happens in the device's primary context, which PyTorch and CuPy use too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tilesmith.targets.driver import driver

_NON_BLOCKING = 1
_CAPTURE_RELAXED = 2
_POINTER_DEVICE = 9
_NOT_READY = 600


class Device:
    """A device's primary context, retained for the life of the process."""

    def __init__(self, ordinal: int) -> None:
        handle = ctypes.c_int()
        self.ordinal = ordinal
        self._context = ctypes.c_void_p()
        driver().call("cuDeviceGet", ctypes.byref(handle), ordinal)
        driver().call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), handle)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Inside, the context is the thread's own."""
        driver().call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            driver().call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def synchronize(self) -> None:
        """Wait for everything on the device; raises ``LaunchError`` for a kernel that has failed."""
        with self.current():
            driver().call("cuCtxSynchronize")

    def zero(self, address: int, nbytes: int, stream: int) -> None:
        """Queue zeros for ``nbytes`` from ``address`` on."""
        with self.current():
            driver().call(
                "cuMemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(0), ctypes.c_size_t(nbytes),
                ctypes.c_void_p(stream),
            )  # fmt: skip

    @property
    def free_bytes(self) -> int:
        """Bytes of free memory."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with self.current():
            driver().call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value


@lru_cache(maxsize=64)
def device(ordinal: int) -> Device:
    return Device(ordinal)


def device_of(address: int) -> int:
    """The ordinal of the device that owns the memory at ``address``."""
    ordinal = ctypes.c_int()
    driver().call("cuPointerGetAttribute", ctypes.byref(ordinal), _POINTER_DEVICE, ctypes.c_uint64(address))
    return ordinal.value


class DeviceMemory:
    """``nbytes`` of a device's memory, given back when the object goes. Copies wait until they are done."""

    def __init__(self, place: Device, nbytes: int) -> None:
        self.device = place
        self.nbytes = nbytes
        self.address = 0
        found = ctypes.c_uint64()
        with place.current():
            driver().call("cuMemAlloc_v2", ctypes.byref(found), ctypes.c_size_t(max(nbytes, 1)))
        self.address = found.value

    def write(self, values: np.ndarray[Any, Any], offset: int = 0) -> None:
        """Copy the bytes of a contiguous array to ``offset`` bytes from the beginning."""
        assert values.flags.c_contiguous
        assert 0 <= offset <= self.nbytes - values.nbytes
        with self.device.current():
            driver().call(
                "cuMemcpyHtoD_v2", ctypes.c_uint64(self.address + offset), ctypes.c_void_p(values.ctypes.data),
                ctypes.c_size_t(values.nbytes),
            )  # fmt: skip
            # NOTE: the copy returns once pageable memory is staged, with its transfer still in the default stream, for
            # which other streams do not wait; seen as results that a late transfer had overwritten.
            driver().call("cuStreamSynchronize", ctypes.c_void_p(None))

    def read(self, into: np.ndarray[Any, Any], offset: int = 0) -> None:
        """Copy ``into.nbytes`` bytes from ``offset`` on into a contiguous array."""
        assert into.flags.c_contiguous
        assert 0 <= offset <= self.nbytes - into.nbytes
        with self.device.current():
            driver().call(
                "cuMemcpyDtoH_v2", ctypes.c_void_p(into.ctypes.data), ctypes.c_uint64(self.address + offset),
                ctypes.c_size_t(into.nbytes),
            )  # fmt: skip

    def copy_from(self, other: DeviceMemory, offset: int = 0) -> None:
        """Copy all of another piece of memory on the same device to ``offset`` bytes from the beginning."""
        assert 0 <= offset <= self.nbytes - other.nbytes
        copy_on_device(self.device, self.address + offset, other.address, other.nbytes)

    def fill(self, value: int, stream: Stream | None = None, begin: int = 0, end: int | None = None) -> None:
        """Set every byte, or those from ``begin`` to before ``end``; on ``stream`` without waiting."""
        end = self.nbytes if end is None else end
        assert 0 <= begin <= end <= self.nbytes
        with self.device.current():
            driver().call(
                "cuMemsetD8Async", ctypes.c_uint64(self.address + begin), ctypes.c_ubyte(value),
                ctypes.c_size_t(end - begin), ctypes.c_void_p(stream.handle if stream else None),
            )  # fmt: skip

    def __del__(self) -> None:
        if self.address:
            try:
                with self.device.current():
                    driver().result("cuMemFree_v2", ctypes.c_uint64(self.address))
            except Exception:  # the interpreter or the driver is going
                self.address = 0


class DeviceArray:
    """A tensor for libraries whose tensors cannot be made here: read it through ``__cuda_array_interface__``.

    ``strides`` count elements.
    """

    def __init__(
        self, memory: DeviceMemory, shape: tuple[int, ...], strides: tuple[int, ...], kind: np.dtype[Any]
    ) -> None:
        self.memory = memory
        self.shape = shape
        self.strides = strides
        self.dtype = kind
        steps = tuple(step * kind.itemsize for step in strides)
        self.__cuda_array_interface__ = {
            "version": 3, "shape": shape, "strides": steps, "typestr": kind.str, "data": (memory.address, False),
            "stream": 1,
        }  # fmt: skip


def copy_on_device(place: Device, to: int, source: int, nbytes: int) -> None:
    """Copy bytes between two addresses of a device; done when this returns."""
    with place.current():
        driver().call("cuMemcpyDtoD_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(nbytes))
        driver().call("cuStreamSynchronize", ctypes.c_void_p(None))


def to_device(place: Device, values: np.ndarray[Any, Any]) -> DeviceArray:
    """A copy of an array on a device, its strides kept."""
    strides = tuple(step // values.itemsize for step in values.strides)
    memory = DeviceMemory(place, _span(values).nbytes)
    memory.write(_span(values))
    return DeviceArray(memory, values.shape, strides, values.dtype)


def to_host(given: DeviceArray) -> np.ndarray[Any, Any]:
    """The values of an array on a device."""
    size = given.dtype.itemsize
    whole = np.empty(given.memory.nbytes, np.uint8)
    given.memory.device.synchronize()
    given.memory.read(whole)
    # NumPy cannot stride over every type of ml_dtypes, so it strides over integers of the same size.
    plain = whole[: given.memory.nbytes // size * size].view(f"u{size}")
    seen = np.lib.stride_tricks.as_strided(plain, given.shape, [step * size for step in given.strides])
    return np.ascontiguousarray(seen).view(given.dtype)


def _span(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bytes from the first to the last element."""
    nbytes = sum((n - 1) * step for n, step in zip(values.shape, values.strides, strict=True)) + values.itemsize
    raw = (ctypes.c_uint8 * nbytes).from_address(values.__array_interface__["data"][0])
    return np.ctypeslib.as_array(raw)


class Stream:
    """A stream that does not wait for the default one."""

    def __init__(self, place: Device) -> None:
        found = ctypes.c_void_p()
        with place.current():
            driver().call("cuStreamCreate", ctypes.byref(found), _NON_BLOCKING)
        self.device = place
        self.handle = found.value or 0

    def synchronize(self) -> None:
        with self.device.current():
            driver().call("cuStreamSynchronize", ctypes.c_void_p(self.handle))

    @contextmanager
    def capture(self) -> Iterator[Graph]:
        """Work queued inside the block becomes the graph, which is ready once the block has ended."""
        graph = Graph(self.device)
        with self.device.current():
            driver().call("cuStreamBeginCapture_v2", ctypes.c_void_p(self.handle), _CAPTURE_RELAXED)
        recorded = ctypes.c_void_p()
        try:
            yield graph
        finally:
            with self.device.current():
                driver().call("cuStreamEndCapture", ctypes.c_void_p(self.handle), ctypes.byref(recorded))
        graph.instantiate(recorded)

    def __del__(self) -> None:
        if getattr(self, "handle", 0):
            try:
                with self.device.current():
                    driver().result("cuStreamDestroy_v2", ctypes.c_void_p(self.handle))
            except Exception:  # the interpreter or the driver is going
                self.handle = 0


class Graph:
    """A captured graph: ``launch`` queues all of it."""

    def __init__(self, place: Device) -> None:
        self.device = place
        self._executable = ctypes.c_void_p()

    def instantiate(self, recorded: ctypes.c_void_p) -> None:
        """Make the recorded graph ready for launching, and give the record back."""
        with self.device.current():
            try:
                driver().call(
                    "cuGraphInstantiateWithFlags", ctypes.byref(self._executable), recorded, ctypes.c_ulonglong(0)
                )
            finally:
                driver().result("cuGraphDestroy", recorded)

    def launch(self, stream: Stream) -> None:
        with self.device.current():
            driver().call("cuGraphLaunch", self._executable, ctypes.c_void_p(stream.handle))

    def __del__(self) -> None:
        if self._executable:
            try:
                with self.device.current():
                    driver().result("cuGraphExecDestroy", self._executable)
            except Exception:  # the interpreter or the driver is going
                self._executable = ctypes.c_void_p()


class Event:
    """A point on a stream, with its time."""

    def __init__(self, place: Device) -> None:
        self.device = place
        self._handle = ctypes.c_void_p()
        with place.current():
            driver().call("cuEventCreate", ctypes.byref(self._handle), 0)

    def record(self, stream: Stream) -> None:
        with self.device.current():
            driver().call("cuEventRecord", self._handle, ctypes.c_void_p(stream.handle))

    def synchronize(self) -> None:
        with self.device.current():
            driver().call("cuEventSynchronize", self._handle)

    @property
    def passed(self) -> bool:
        """Whether the device has come to it; a failed kernel, which ``synchronize`` tells of, counts as passed."""
        with self.device.current():
            return driver().result("cuEventQuery", self._handle) != _NOT_READY

    def microseconds_since(self, earlier: Event) -> float:
        """Time between two recorded events that have passed."""
        found = ctypes.c_float()
        with self.device.current():
            driver().call("cuEventElapsedTime", ctypes.byref(found), earlier._handle, self._handle)
        return found.value * 1e3

    def __del__(self) -> None:
        if self._handle:
            try:
                with self.device.current():
                    driver().result("cuEventDestroy_v2", self._handle)
            except Exception:  # the interpreter or the driver is going
                self._handle = ctypes.c_void_p()


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
