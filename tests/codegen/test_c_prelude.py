"""The C prelude and the epilogues, against NumPy, ml_dtypes and fp64 PyTorch, for every vector width this CPU runs."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

import levels
from tilesmith.codegen.c.epilogue import scalar_activation, vector_activation
from tilesmith.codegen.c.prelude import c_prelude
from tilesmith.problems.epilogue import Epilogue
from tilesmith.targets.cpu import CPU_TARGETS
from tilesmith.targets.target import CpuTarget
from tilesmith.toolchain.compilers import find_compiler

NUMPY = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
SPECIAL = np.array(
    [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, -3e38, 65519.0, 65520.0, 1e-7, -6e-8, 448.0, 464.0, 465.0]
)


def build(text: str, target: CpuTarget, folder: Path) -> ctypes.CDLL:
    (folder / "k.c").write_text(text)
    compiler = find_compiler()
    flags = [flag for flag in compiler.flags(target) if flag != "-w"]
    # clang tells of functions of the prelude that a text does not use; gcc does not.
    command = [*compiler.command, *flags, "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    subprocess.run([*command, "-o", str(folder / "k.so"), str(folder / "k.c")], check=True)
    return ctypes.CDLL(str(folder / "k.so"))


def loop(head: str, step: str, statement: str) -> str:
    return f"void {head} {{ for (long i = 0; i < n; i += {step}) {statement}; }}\n"


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def samples() -> np.ndarray:
    rng = np.random.default_rng(1)
    spread = rng.standard_normal(3000) * 2.0 ** rng.integers(-40, 20, 3000)
    bits = rng.integers(0, 2**32, 6000, dtype=np.uint32).view(np.float32)
    return np.concatenate([SPECIAL.astype(np.float32), spread.astype(np.float32), bits])


def test_conversions_are_those_of_numpy(level, tmp_path):
    text = c_prelude(level)
    for d in ("fp32", "fp16", "bf16", "fp8e4m3", "fp8e5m2"):
        text += loop(f"put_{d}(const float *x, char *y, long n, long size)", "1", f"ts_put_{d}(y + i * size, x[i])")
        text += loop(f"get_{d}(const char *y, float *x, long n, long size)", "1", f"x[i] = ts_get_{d}(y + i * size)")
    for d in ("fp32", "fp16", "bf16"):
        store, load = (
            f"ts_store_{d}(y + i * size, ts_load_fp32(x + i))",
            f"ts_store_fp32(x + i, ts_load_{d}(y + i * size))",
        )
        text += loop(f"store_{d}(const float *x, char *y, long n, long size)", "TS_LANES", store)
        text += loop(f"load_{d}(const char *y, float *x, long n, long size)", "TS_LANES", load)
    lib = build(text, level, tmp_path)
    x = samples()
    x = x[: len(x) // 16 * 16]
    kinds = {**NUMPY, "fp8e4m3": ml_dtypes.float8_e4m3fn, "fp8e5m2": ml_dtypes.float8_e5m2}
    for name, kind in kinds.items():
        with np.errstate(over="ignore", invalid="ignore"):
            want = x.astype(kind)
        size = np.dtype(kind).itemsize
        for verb in ("put", "store") if name in NUMPY else ("put",):
            got = np.zeros_like(want)
            source = x
            if verb == "store" and name == "bf16" and level.bf16_dot:
                source, want = x[np.abs(x) >= 2.0**-126], want[np.abs(x) >= 2.0**-126]  # flushed by the instruction
                source, want = source[: len(source) // 16 * 16].copy(), want[: len(source) // 16 * 16]
                got = np.zeros_like(want)
            getattr(lib, f"{verb}_{name}")(
                pointer(source), pointer(got), ctypes.c_long(len(source)), ctypes.c_long(size)
            )
            nan = np.isnan(want.astype(np.float32))
            assert np.isnan(got.astype(np.float32))[nan].all()
            assert (got.view(f"u{size}") == want.view(f"u{size}"))[~nan].all(), (verb, name)
        every = np.arange(2 ** min(16, 8 * size), dtype=f"u{size}").view(kind)
        for verb in ("get", "load") if name in NUMPY else ("get",):
            got = np.zeros(len(every), np.float32)
            getattr(lib, f"{verb}_{name}")(pointer(every), pointer(got), ctypes.c_long(len(every)), ctypes.c_long(size))
            assert np.array_equal(got, every.astype(np.float32), equal_nan=True), (verb, name)


def test_partial_vectors_touch_only_their_lanes(level, tmp_path):
    text = c_prelude(level)
    for d in NUMPY:
        text += f"void copy_{d}(const void *x, void *y, int n) {{ ts_store_n_{d}(y, ts_load_n_{d}(x, n), n); }}\n"
        text += f"void whole_{d}(const void *x, float *y, int n) {{ ts_store_fp32(y, ts_load_n_{d}(x, n)); }}\n"
    lib = build(text, level, tmp_path)
    lanes = level.lanes(4)
    page = 4096
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    base = libc.mmap(None, 2 * page, 3, 0x22, -1, 0)
    assert libc.mprotect(ctypes.c_void_p(base + page), page, 0) == 0  # a read behind the lanes is a crash
    for d, kind in NUMPY.items():
        size = np.dtype(kind).itemsize
        for n in range(lanes + 1):
            values = np.arange(1, n + 1).astype(kind)
            end = base + page - n * size
            ctypes.memmove(end, values.ctypes.data, n * size)
            out = np.full(lanes + 4, 77, kind)
            getattr(lib, f"copy_{d}")(ctypes.c_void_p(end), pointer(out), n)
            assert (out[:n] == values).all()
            assert (out[n:] == 77).all()
            getattr(lib, f"copy_{d}")(pointer(out), ctypes.c_void_p(end), n)
            whole = np.full(lanes, 77, np.float32)
            getattr(lib, f"whole_{d}")(ctypes.c_void_p(end), pointer(whole), n)
            assert (whole[:n] == values.astype(np.float32)).all()
            assert (whole[n:] == 0).all()


ACTIVATIONS = [
    (Epilogue(), lambda x: x),
    (Epilogue(activation="relu"), torch.relu),
    (Epilogue(activation="leaky_relu", slope=0.2), lambda x: torch.nn.functional.leaky_relu(x, 0.2)),
    (Epilogue(activation="clamp", low=-1.5, high=float("inf")), lambda x: torch.clamp(x, -1.5)),
    (Epilogue(activation="clamp", low=-0.5, high=2.0), lambda x: torch.clamp(x, -0.5, 2.0)),
    (Epilogue(activation="silu"), torch.nn.functional.silu),
    (Epilogue(activation="gelu"), torch.nn.functional.gelu),
    # torch's own form cancels for negative x; 0.5 * (1 + tanh(u)) is the sigmoid of 2 * u
    (Epilogue(activation="gelu_tanh"), lambda x: x * torch.sigmoid((8 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
    (Epilogue(activation="sigmoid"), torch.sigmoid),
    (Epilogue(activation="tanh"), torch.tanh),
    (Epilogue(activation="hardswish"), torch.nn.functional.hardswish),
    (Epilogue(activation="hardsigmoid"), lambda x: (x + 3).clamp(0, 6) / 6),  # torch's divides by a float
]


def phi_gelu(x: np.ndarray) -> np.ndarray:
    t = torch.from_numpy(x)
    return (t * 0.5 * torch.special.erfc(-t / 2**0.5)).numpy()


def test_activations(level, tmp_path):
    text = c_prelude(level)
    for i, (epilogue, _) in enumerate(ACTIVATIONS):
        text += (vector_activation(epilogue) + scalar_activation(epilogue)).replace("@SYM@", f"e{i}")
        vector = f"ts_store_fp32(y + i, e{i}_act(ts_load_fp32(x + i)))"
        text += loop(f"v{i}(const float *x, float *y, long n)", "TS_LANES", vector)
        text += loop(f"s{i}(const double *x, double *y, long n)", "1", f"y[i] = e{i}_act1(x[i])")
    lib = build(text, level, tmp_path)
    rng = np.random.default_rng(2)
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, 88.8, -88.0, -104.0, -1000.0, 1000.0, 3e38, -3e38]
    x = np.concatenate([special, rng.uniform(-20, 20, 20_000), rng.standard_normal(4_000), rng.uniform(-110, -80, 83)])
    x = x.astype(np.float32)
    for i, (epilogue, reference) in enumerate(ACTIVATIONS):
        for scalar in (False, True):
            source = x.astype(np.float64) if scalar else x
            got = np.zeros_like(source)
            getattr(lib, f"{'s' if scalar else 'v'}{i}")(pointer(source), pointer(got), ctypes.c_long(len(x)))
            want = reference(torch.from_numpy(x.astype(np.float64))).numpy()
            if epilogue.activation == "gelu":
                finite = np.isfinite(x)
                want[finite] = phi_gelu(x.astype(np.float64)[finite])  # torch's own form cancels for negative x
            finite = np.isfinite(want)
            assert np.array_equal(got[~finite], want[~finite].astype(source.dtype), equal_nan=True), epilogue
            bound = (1e-13 if scalar else 8 * 2.0**-24) * np.abs(want[finite]) + (1e-300 if scalar else 2.0**-126)
            if epilogue.activation == "gelu_tanh" or (epilogue.activation == "gelu" and not scalar):
                bound *= 1 + 0.5 * np.minimum(
                    x[finite].astype(np.float64) ** 2, 200
                )  # exp(-x*x/2) magnifies x*x's error
            assert (np.abs(got[finite] - want[finite]) <= bound).all(), epilogue


@pytest.mark.parametrize("target", levels.HERE, ids=lambda t: t.arch)
def test_bf16_dot(target, tmp_path):
    """Levels without the instruction have no such function."""
    if not target.bf16_dot:
        assert "ts_dot_bf16" not in c_prelude(target)
        return
    text = c_prelude(target) + (
        "void dot(const void *a, const void *b, float *y) { ts_store_fp32(y, ts_dot_bf16(ts_load_fp32(y),"
        " *(const ts_vi_at *)a, ts_pair_bf16(b))); }\n"
        "void last(const void *a, const void *b, float *y) { ts_store_fp32(y, ts_dot_bf16(ts_load_fp32(y),"
        " *(const ts_vi_at *)a, ts_last_bf16(b))); }\n"
    )
    lib = build(text, target, tmp_path)
    rng = np.random.default_rng(3)
    a = rng.standard_normal((16, 2)).astype(ml_dtypes.bfloat16)
    b = np.array([1.5, -0.25, np.nan], ml_dtypes.bfloat16)
    y = rng.standard_normal(16).astype(np.float32)
    got = y.copy()
    lib.dot(pointer(a), pointer(b), pointer(got))
    assert np.allclose(got, y + a.astype(np.float64) @ b[:2].astype(np.float64), rtol=1e-6)
    got = y.copy()
    lib.last(pointer(a), pointer(b), pointer(got))
    assert np.allclose(got, y + a[:, 0].astype(np.float64) * 1.5, rtol=1e-6)


def test_the_text_is_reproducible():
    for target in CPU_TARGETS.values():
        assert c_prelude(target) == c_prelude(target)
        assert "#include" not in c_prelude(target)
