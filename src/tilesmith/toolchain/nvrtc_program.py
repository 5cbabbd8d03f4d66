"""The process that compiles one CUDA unit: ``python -I -S nvrtc_program.py LIBRARY OUTPUT FLAG...``, text on stdin.

It imports the standard library alone, so that it starts in milliseconds; several run side by side, and one that
crashes costs one unit. The cubin, or PTX where the flags name a virtual architecture, is written to OUTPUT, the
compiler's log to stdout; the exit status is 1 when the compiler refused the text, or says that it had to move registers
that asynchronous products write: numbers of such kernels have been wrong.
"""

import ctypes
import glob
import os
import sys
from collections.abc import Callable

# ptxas says that it has injected a wait or an arrival of a warpgroup "to allow use of registers".
_MOVED = (b"(C7517)", b"(C7519)")


def main(library: str, output: str, flags: list[str], text: bytes) -> int:
    # NVRTC looks for its second library by name alone; from a wheel it is found when it is loaded already.
    for path in sorted(glob.glob(os.path.join(os.path.dirname(library) or ".", "libnvrtc-builtins.so*"))):
        ctypes.CDLL(path)
    nvrtc = ctypes.CDLL(library)
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    program = ctypes.c_void_p()
    create = nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"unit.cu", 0, None, None)
    if create:
        print(f"error: {nvrtc.nvrtcGetErrorString(create).decode()}")
        return 1
    options = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
    result = nvrtc.nvrtcCompileProgram(program, len(flags), options)
    log = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).rstrip(b"\0\n")
    sys.stdout.buffer.write(log + b"\n")
    if result:
        print(f"error: {nvrtc.nvrtcGetErrorString(result).decode()}")
        return 1
    if any(code in log for code in _MOVED):
        print("error: registers are moved while asynchronous products write them")
        return 1
    if any(flag.startswith("--gpu-architecture=compute_") for flag in flags):
        code = _read(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)  # text that ends with a NUL
    else:
        code = _read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    if not code:
        print("error: no machine code came out: the flags name no architecture")
        return 1
    with open(output, "wb") as file:
        file.write(code)
    return 0


def _read(size_of: Callable[..., int], read: Callable[..., int], program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    if size_of(program, ctypes.byref(size)) or not size.value:
        return b""
    buffer = ctypes.create_string_buffer(size.value)
    return b"" if read(program, buffer) else buffer.raw


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:], sys.stdin.buffer.read()))
