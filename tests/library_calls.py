"""The calls of the C library through ctypes."""

from __future__ import annotations

import ctypes

import numpy as np

from c_problems import ABI_VERSION, OK, Problems
from library_build import record
from tilesmith.plan.slots import arguments

CUDA_ERROR, BAD_PACKAGE, UNSUPPORTED = 5, 7, 9  # of ts_status
NEAREST, NO_REFERENCE, BEST = 1, 2, 2**32 - 1
OPERANDS = {"x": "x", "w": "w", "y": "y", "dx": "x", "dw": "w", "dy": "y", "a": "x", "b": "w", "c": "y", "db": "bias",
            "bias": "bias", "residual": "residual", "scale": "scale"}  # fmt: skip
Solution, Needs, Operands = record("ts_solution"), record("ts_needs"), record("ts_operands")


class Library(Problems):
    """The calls through ctypes."""

    def __init__(self, path):
        super().__init__(path)
        self.c.ts_library_last_error.restype = self.c.ts_library_machine.restype = ctypes.c_char_p
        for call in (self.c.ts_library_prepare, self.c.ts_library_run):
            call.argtypes = [ctypes.c_void_p] * 5
        self.c.ts_library_version.restype = self.c.ts_library_status_string.restype = ctypes.c_char_p

    def __getattr__(self, name):
        call = getattr(self.c, f"ts_library_{name}")

        def called(*words):
            return call(
                *(ctypes.c_void_p(ctypes.addressof(w)) if isinstance(w, ctypes.Structure) else w for w in words)
            )

        return called

    @property
    def error(self):
        return self.c.ts_library_last_error().decode()

    def refused(self, status, wanted, text):
        """Whether a call failed with this status and a message that has this text."""
        return status == wanted and text in self.error

    def open(self, device=-1, flags=NO_REFERENCE):
        handle = ctypes.c_void_p()
        assert self.create(ctypes.byref(handle), device, flags) == OK, self.error
        return handle

    def solutions(self, handle, desc, room=4):
        count, found = ctypes.c_uint32(), (Solution * room)()
        for each in found:
            each.struct_size = ctypes.sizeof(Solution)
        assert self.find(handle, desc, found, room, ctypes.byref(count)) == OK, self.error
        return list(found[: count.value])

    def plan(self, handle, desc, rank=BEST):
        plan = ctypes.c_void_p()
        assert self.plan_create(handle, desc, rank, ctypes.byref(plan)) == OK, self.error
        return plan

    def needs(self, plan):
        found = Needs(struct_size=ctypes.sizeof(Needs))
        assert self.plan_sizes(plan, found) == OK
        return found

    def call(self, plan, operands):
        """Prepare and run with memory of just the size that is needed, and a guard behind it."""
        needs = self.needs(plan)
        packed, workspace = (Memory(n, needs.alignment) for n in (needs.packed_bytes, needs.workspace_bytes))
        for status in (
            self.prepare(plan, operands, packed.address, workspace.address, None),
            self.run(plan, operands, packed.address, workspace.address, None),
        ):
            assert status == OK, self.error
        assert packed.is_whole
        assert workspace.is_whole


class Memory:
    GUARD = 256

    def __init__(self, nbytes, alignment):
        self.nbytes = nbytes
        self.bytes = np.full(nbytes + alignment + self.GUARD, 0xA5, np.uint8)
        self.begin = -self.bytes.ctypes.data % alignment
        self.address = self.bytes.ctypes.data + self.begin if nbytes else None

    @property
    def is_whole(self):
        return bool((self.bytes[self.begin + self.nbytes :] == 0xA5).all())


def inputs(signature, seed=1):
    """``(arrays, result, operands)``: those of the signature, in memory as its strides say."""
    given = [np.asarray(each) for each in signature.get_sample_args(seed=seed)]
    *slots, last = arguments(signature)
    kind, fill = (np.int8, 77) if last.dtype == "int8" else (np.float32, np.nan)
    result = np.full(last.nbytes // np.dtype(kind).itemsize, fill, kind)
    arrays = {OPERANDS[slot.name]: array for slot, array in zip(slots, given, strict=True)}
    return given, result, arrays | {OPERANDS[last.name]: result}


def operands_of(arrays, offset=0):
    made = Operands(struct_size=ctypes.sizeof(Operands), abi_version=ABI_VERSION)
    for name, array in arrays.items():
        setattr(made, name, array.ctypes.data - (offset if name == "x" else 0))
    return made
