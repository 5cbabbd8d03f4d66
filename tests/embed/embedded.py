"""Libraries for the tests: their problems, how they are built, and programs that use them."""

from __future__ import annotations

import ctypes
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tilesmith.cli.main import run as command
from tilesmith.plan.slots import arguments
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.keys import parse_key
from tilesmith.problems.samples import pitched_empty, sample_args
from tilesmith.targets.detect import host_target
from tilesmith.toolchain.compilers import find_compiler

HERE = Path(__file__).parent
LIMIT_S = 600


def conv(n, c, k, size, taps, **more):
    """A convolution of square images; channels last unless it says otherwise."""
    groups, layout = more.pop("groups", 1), more.pop("shared_layout", "NHWC")
    first, second = (c, k // groups) if more.get("transposed") else (k, c // groups)
    channels_last = layout == "NHWC"
    return ConvSignature(
        (n, size, size, c) if channels_last else (n, c, size, size),
        (first, taps, taps, second) if channels_last else (first, second, taps, taps),
        groups=groups, shared_layout=layout, **more,
    )  # fmt: skip


# 2x2 up-sampling whose result has pixels with room for more channels, as the users of deconvolution libraries have it.
PITCHED = conv(
    1, 35, 16, 12, 2, transposed=True, stride=2, output_strides=(24 * 24 * 20, 24 * 20, 20, 1),
    epilogue=Epilogue(bias=True),
)  # fmt: skip
RELU = Epilogue(bias=True, activation="relu")
# Layers of ResNet-50, MobileNet, U-Net, an int8 network and a transformer, with images that a test can afford.
SMALL = (
    PITCHED,
    conv(1, 32, 32, 14, 3, padding=1, groups=32, epilogue=RELU),
    conv(1, 24, 40, 14, 3, padding=1, dtype="fp16"),
    GemmSignature(m=48, n=40, k=64, alpha=0.5, beta=2.0),
)
REAL = (
    *SMALL,
    conv(1, 3, 64, 56, 7, padding=3, stride=2, epilogue=RELU),
    conv(1, 64, 64, 14, 3, padding=1, epilogue=RELU),
    conv(1, 64, 256, 14, 1, epilogue=Epilogue(bias=True, residual=True, activation="relu")),
    conv(1, 256, 128, 14, 1, stride=2),
    conv(2, 128, 128, 7, 3, padding=1, dtype="bf16"),
    conv(1, 64, 64, 14, 3, padding=1, mode="bwd"),
    conv(1, 64, 64, 14, 3, padding=1, mode="wrw"),
    conv(1, 96, 96, 14, 5, padding=2, stride=2, groups=96, epilogue=Epilogue(activation="hardswish")),
    conv(1, 32, 64, 14, 3, padding=1, groups=4),
    conv(1, 32, 32, 14, 3, padding=2, dilation=2, shared_layout="NCHW"),
    conv(1, 64, 32, 14, 2, transposed=True, stride=2, dtype="fp16"),
    conv(1, 32, 16, 7, 4, transposed=True, stride=2, padding=1, epilogue=Epilogue(activation="leaky_relu", slope=0.2)),
    conv(1, 64, 64, 14, 3, padding=1, dtype="int8"),
    ConvSignature((1, 6, 8, 8, 16), (24, 3, 3, 3, 16), padding=1, shared_layout="NDHWC"),
    GemmSignature(m=64, n=256, k=128, batch=2, trans_b=True, dtype="bf16"),
    GemmSignature(m=1, n=512, k=256, epilogue=Epilogue(bias=True, activation="gelu")),
)
TARGET = host_target(2)


@dataclass(frozen=True)
class Built:
    folder: Path
    name: str
    keys: tuple[str, ...]

    def make(self, *words):
        return run("make", "-s", "-C", self.folder, f"CC={' '.join(find_compiler().command)}", *words)


def run(*words, **more):
    """A command that must succeed; what it printed."""
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=LIMIT_S, check=False, **more
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def program(path: Path, command: str, last: str = "") -> None:
    """A program that runs this command with its own arguments, and ``last`` behind them."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {command} "$@" {last}\n')
    path.chmod(0o755)


def quick(folder):
    """The C compiler without optimisation: CMake and projects have flags of their own, behind those of the caller."""
    program(folder / "quick" / "cc", shlex.join(find_compiler().command), "-O0")
    return folder / "quick" / "cc"


def built(folder, name, signatures, flags):
    keys = tuple(signature.key() for signature in signatures)
    (folder / "problems.txt").write_text("".join(f"{key}\n" for key in keys))
    place = ["--target", TARGET.name, "--name", name, "-o", str(folder / name)]
    assert command(["embed", str(folder / "problems.txt"), *place, *flags]) == 0
    return Built(folder / name, name, keys)


def linked(library, source, out, *flags, compiler=None, kind="a", standard="c99"):
    """A program of a C file of the tests and a library."""
    macros = [f"-DPREFIX(x)={library.name}_##x", f'-DHEADER="{library.name}.h"']
    run(
        *(compiler or find_compiler().command), f"-std={standard}", "-O1", "-Wall", "-Wextra", *macros,
        f"-I{library.folder}/include", f"-I{library.folder}/tests", HERE / source, "-o", out,
        library.folder / "lib" / f"{library.name}.{kind}", *flags, "-lpthread", "-ldl", "-lm",
    )  # fmt: skip
    return out


def operands(key):
    """Random arguments of a problem in the order of a call, the result last; its gaps are NaN."""
    signature = parse_key(key)
    slots = arguments(signature)
    given = sample_args(signature, seed=7)
    result = slots[-1]
    if len(given) < len(slots):
        given = (*given, pitched_empty(result.shape, result.strides, dtype(result.dtype).numpy()))
    return signature, slots, given


def memory(array, nbytes):
    """The bytes from the first to the last element of an array, those of gaps included."""
    return ctypes.string_at(array.ctypes.data, nbytes)
