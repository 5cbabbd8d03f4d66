"""Real problems of a CPU, described in C and in Python, and the library that is built of them once a process."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from library_build import Build, Made, make, package_of
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.targets.detect import host_target
from tilesmith.toolchain.cache import ArtifactCache

NHWC, INT8 = 0x2541, 7
TARGET = host_target(2)
CONV = {"layout": NHWC, "n": 1, "c": 16, "k": 24, "in": (9, 8), "filter": (3, 3), "padding_low": (1, 1),
        "padding_high": (1, 1)}  # fmt: skip
GEMM = {"op": 1, "m": 20, "n": 24, "k": 33}
BIASED = Epilogue(bias=True, activation="relu")
SHAPES = {"input_shape": (1, 9, 8, 16), "kernel_shape": (24, 3, 3, 16), "padding": 1, "shared_layout": "NHWC"}
PITCH = (6 * 5 * 40, 5 * 40, 40, 1)

# A description, and the same problem in Python.
PROBLEMS = {
    "convolution": (CONV | {"bias": 1, "activation": 1}, ConvSignature(**SHAPES, epilogue=BIASED)),
    "depthwise": (
        CONV | {"n": 2, "c": 8, "k": 8, "groups": 8, "in": (7, 7)},
        ConvSignature((2, 7, 7, 8), (8, 3, 3, 1), padding=1, groups=8, shared_layout="NHWC"),
    ),
    "transposed": (
        {"transposed": 1, "layout": NHWC, "n": 1, "c": 35, "k": 8, "in": (6, 5), "filter": (2, 2), "stride": (2, 2),
         "x_pitch_c": 40, "bias": 1, "x_offset_c": 4},
        ConvSignature((1, 6, 5, 35), (35, 2, 2, 8), stride=2, transposed=True, shared_layout="NHWC",
                      input_strides=PITCH, epilogue=Epilogue(bias=True)),
    ),
    "gemm": (
        GEMM | {"bias": 1, "residual": 1, "activation": 4},
        GemmSignature(m=20, n=24, k=33, epilogue=Epilogue(bias=True, residual=True, activation="gelu")),
    ),
    "backward": (CONV | {"mode": 1}, ConvSignature(**SHAPES, mode="bwd")),
    "weights": (CONV | {"mode": 2}, ConvSignature(**SHAPES, mode="wrw")),
    "bias": (CONV | {"mode": 3}, ConvSignature(**SHAPES, mode="bgrad")),
    "int8": (
        GEMM | {"dtype": INT8, "y_dtype": INT8, "scale": 2},
        GemmSignature(m=20, n=24, k=33, dtype="int8", epilogue=Epilogue(scale="channel")),
    ),
}  # fmt: skip

_folder = tempfile.TemporaryDirectory(prefix="tilesmith-test-")  # goes when the process ends


@cache
def built() -> tuple[Build, list[Made]]:
    """The library of all problems but the last, of the convolution with two solvers; `whole.kdb` has them all."""
    folder = Path(_folder.name)
    artifacts = ArtifactCache(folder / "cache")
    plans = [
        plan
        for name, (_, signature) in PROBLEMS.items()
        for plan in make(signature, TARGET, artifacts, 1 + (name == "convolution"))
    ]
    linked = plans[:-1]
    build = Build(folder, tuple(linked), TARGET, (package_of(linked, TARGET.name, linked=True, times=(7.5, 9.0)),))
    build.write()
    (folder / "whole.kdb").write_bytes(package_of(plans, TARGET.name, times=(5.5,)))
    return build, plans


@cache
def shared() -> Path:
    """It as a shared library."""
    return built()[0].link("libdeconv.so", "-O0", "-fPIC", "-shared")
