"""libcuda through ctypes: tensor maps, modules and launches of a draft, apart from the package's own runtime."""

import ctypes
from pathlib import Path

import torch

from tilesmith.plan.records import Integer, Launch, Memset, Pointer, Real, Space, TensorMap

cu = ctypes.CDLL("libcuda.so.1")
_DTYPES = {"fp16": 6, "bf16": 9, "fp32": 7, "tf32": 11, "int8": 0, "fp8e4m3": 0, "fp8e5m2": 0, "int32": 4}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}
_DYNAMIC_SHARED = 8


def check(code, what):
    if code:
        text = ctypes.c_char_p()
        cu.cuGetErrorName(code, ctypes.byref(text))
        raise RuntimeError(f"{what}: {code} {text.value}")


class _Map(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_uint8 * 128),)


def _new_map():
    raw = (ctypes.c_uint8 * 192)()
    made = _Map.from_buffer(raw, -ctypes.addressof(raw) % 64)
    made.keep = raw
    return made


def _array(kind, values):
    return (kind * len(values))(*values)


def encode(made, address):
    """A tensor map of a record."""
    result = _new_map()
    rank = len(made.dims)
    head = (ctypes.byref(result), _DTYPES[made.dtype], rank, ctypes.c_void_p(address))
    sizes = (_array(ctypes.c_uint64, made.dims), _array(ctypes.c_uint64, made.strides))
    steps = _array(ctypes.c_uint32, made.element_strides)
    tail = (0, _SWIZZLES[made.swizzle], _PROMOTIONS[made.l2_promotion], 0)
    if made.im2col is None:
        code = cu.cuTensorMapEncodeTiled(*head, *sizes, _array(ctypes.c_uint32, made.box), steps, *tail)
    else:
        window = made.im2col
        corners = (_array(ctypes.c_int32, window.lower), _array(ctypes.c_int32, window.upper))
        code = cu.cuTensorMapEncodeIm2col(*head, *sizes, *corners, window.channels, window.pixels, steps, *tail)
    check(code, f"encode {made}")
    return result


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint),
    )  # fmt: skip


_modules = {}


def function(cubin, symbol, shared):
    if cubin not in _modules:
        module = ctypes.c_void_p()
        check(cu.cuModuleLoadData(ctypes.byref(module), Path(cubin).read_bytes()), "load")
        _modules[cubin] = module
    found = ctypes.c_void_p()
    check(cu.cuModuleGetFunction(ctypes.byref(found), _modules[cubin], symbol.encode()), symbol)
    check(cu.cuFuncSetAttribute(found, _DYNAMIC_SHARED, shared), f"{shared} bytes of shared memory")
    return found


class Bound:
    """A draft's ``run`` on tensors that do not move; its ``prepare`` runs at once."""

    def __init__(self, draft, cubins, slots):
        self.workspace = torch.empty(max(draft.workspace_bytes, 16), dtype=torch.uint8, device="cuda")
        self.packed = torch.empty(max(draft.packed_bytes, 16), dtype=torch.uint8, device="cuda")
        self.slots = slots
        self.calls = self._calls(draft.prepare, cubins)
        self()
        self.calls = self._calls(draft.run, cubins)

    def _calls(self, steps, cubins):
        return [self._memset(step) if isinstance(step, Memset) else self._launch(step, cubins) for step in steps]

    def _address(self, pointer):
        bases = {Space.WORKSPACE: self.workspace, Space.PACKED: self.packed}
        base = bases[pointer.space] if pointer.space in bases else self.slots[pointer.index]
        return base.data_ptr() + pointer.offset

    def _memset(self, step):
        address = self._address(step.pointer)
        return lambda stream: cu.cuMemsetD8Async(ctypes.c_uint64(address), step.value, step.nbytes, stream)

    def _launch(self, step: Launch, cubins):
        values = []
        for p in step.parameters:
            if isinstance(p, TensorMap):
                values.append(encode(p, self._address(p.pointer)))
            elif isinstance(p, Pointer):
                values.append(ctypes.c_uint64(self._address(p)))
            elif isinstance(p, Integer):
                values.append(ctypes.c_int64(p.value))
            elif isinstance(p, Real):
                values.append(ctypes.c_double(p.value))
        pointers = _array(ctypes.c_void_p, [ctypes.addressof(v) for v in values])
        found = function(cubins[step.artifact], step.symbol, step.shared_bytes)
        attribute = (_Attribute * 2)()
        count = 0
        if step.cluster != (1, 1, 1):
            attribute[0].id = 4
            attribute[0].value[:3] = step.cluster
            count = 1
        if step.programmatic:
            attribute[count].id = 6
            attribute[count].value[0] = 1
            count += 1
        config = _Config(step.grid, step.block, step.shared_bytes, None, attribute, count)

        def go(stream, keep=(values, attribute)):
            config.stream = stream
            return cu.cuLaunchKernelEx(ctypes.byref(config), found, pointers, None)

        return go

    def __call__(self):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for call in self.calls:
            check(call(stream), "launch")
