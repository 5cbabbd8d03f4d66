"""Activations of GPU kernels as numbers: their texts, compiled for the host, against float64.

Exact GELU has a text for each width of results.
"""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilesmith.codegen.cuda.activation import activate
from tilesmith.codegen.cuda.gelu import FEW_BITS
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.epilogue import ACTIVATIONS, Epilogue

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from gelu_tail import AIMS, fitted, worst

HEAD = """#include <math.h>
#include <string.h>
static inline float __int_as_float(int v) { float f; memcpy(&f, &v, 4); return f; }
static inline float __saturatef(float v) { return v > 0.0f ? (v < 1.0f ? v : 1.0f) : 0.0f; }
"""
CALL = """extern "C" void all_@KIND@(const float *from, float *to, int n) {
  for (int i = 0; i < n; i++) to[i] = @KIND@::activate(from[i]);
}
"""
ROUNDING = 2.0**-24
GELU_ERRORS = [("bf16", 3e-4), ("fp16", 1e-4), ("fp8e4m3", 0.01), ("fp8e5m2", 0.01)]  # relative ones, by result


def text_of(name, result):
    epilogue = Epilogue(activation=name, slope=0.1, low=-1.5, high=2.5)
    return f"namespace {name}_{result} {{\n{activate(epilogue, 'static inline', result)}}}\n"


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """``computed(name, values, result)``: the values of an activation, whose texts are all in one library."""
    folder = tmp_path_factory.mktemp("activations")
    source, library = folder / "activations.cc", folder / "activations.so"
    kinds = [*((name, "fp32") for name in ACTIVATIONS), *(("gelu", result) for result, _ in GELU_ERRORS)]
    texts = (text_of(*kind) + CALL.replace("@KIND@", "_".join(kind)) for kind in kinds)
    source.write_text(HEAD + "".join(texts))
    subprocess.run(["c++", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    calls, pointer = ctypes.CDLL(str(library)), ctypes.POINTER(ctypes.c_float)

    def of(name, values, result="fp32"):
        found = np.empty_like(values)
        call = getattr(calls, f"all_{name}_{result}")
        call(values.ctypes.data_as(pointer), found.ctypes.data_as(pointer), len(values))
        return found

    return of


def exact(name, v):
    sigmoid = np.vectorize(lambda u: 1 / (1 + math.exp(-u)) if u > -700 else 0.0)
    gate = np.clip(v / 6 + 0.5, 0, 1)
    return {
        "none": lambda: v,
        "relu": lambda: np.maximum(v, 0),
        "leaky_relu": lambda: np.where(v > 0, v, 0.1 * v),
        "clamp": lambda: np.clip(v, -1.5, 2.5),
        "silu": lambda: v * sigmoid(v),
        "gelu": lambda: v * 0.5 * np.vectorize(math.erfc)(-v / math.sqrt(2)),
        "gelu_tanh": lambda: v * sigmoid(2 * math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)),
        "sigmoid": lambda: sigmoid(v),
        "tanh": lambda: np.tanh(v),
        "hardswish": lambda: v * gate,
        "hardsigmoid": lambda: gate,
    }[name]()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_against_float64(name, computed):
    """Within eight roundings of the argument, which is what the check of a kernel's results allows the epilogue."""
    rng = np.random.default_rng(7)
    drawn = np.concatenate([rng.uniform(-12, 12, 40_000), rng.normal(0, 1, 40_000), 10 ** rng.uniform(-30, 30, 2000)])
    values = np.concatenate([drawn, -drawn[-2000:], [0.0, -0.0]]).astype(np.float32)
    result, want = computed(name, values), exact(name, values.astype(np.float64))
    magnitude = np.abs(values.astype(np.float64)) + (name in ("sigmoid", "hardsigmoid"))
    assert np.all(np.abs(result - want) <= 8 * ROUNDING * magnitude)
    if name == "gelu":  # as its text says, and small results too
        assert np.all(np.abs(result - want) <= 1.6e-7 * magnitude)
        tail = (values < -1e-3) & (values > -9)
        assert np.all(np.abs(result[tail] / want[tail] - 1) <= 6e-5)


@pytest.mark.parametrize(("result", "relative"), GELU_ERRORS)
def test_gelu_of_few_bits(result, relative, computed):
    """Of every number of 16 bits: within 0.65 of what the check of a kernel's results allows an epilogue: eight
    roundings of the argument and 2^-10 of the result's. Rounded, it is the right result or one beside it."""
    held = dtype("fp16" if result == "fp16" else "bf16").numpy()
    values = np.arange(1 << 16, dtype=np.uint16).view(held).astype(np.float32)
    values = values[np.isfinite(values)]
    found, v = computed("gelu", values, result).astype(np.float64), values.astype(float)
    want = exact("gelu", v)
    allowed = 8 * ROUNDING * np.abs(v) + 2.0**-10 * dtype(result).epsilon * np.abs(want)
    assert np.all(np.abs(found - want) <= 0.65 * allowed + 2.0**-126)
    least = {"bf16": -9.0, "fp16": -6.0}.get(result, -5.0)  # beyond, an fp16 result is 0, or a byte
    inner = (v > least) & (np.abs(v) >= 2.0**-126)
    assert np.all(np.abs(found[inner] / want[inner] - 1) <= relative)
    whole = dtype(result).numpy()
    stored, right = (each[inner].astype(np.float32).astype(whole) for each in (found, want))
    bits = np.dtype(f"i{whole.itemsize}")
    assert np.all(np.abs(stored.view(bits).astype(int) - right.view(bits)) <= 1)
    assert np.all(np.abs(found[v < -14]) < 2.0**-126)


@pytest.mark.parametrize("result", FEW_BITS)
def test_gelu_is_fitted(result):
    """As ``benchmarks/gelu_tail.py`` fits it, which finds nothing better."""
    left = worst(AIMS[result], FEW_BITS[result])
    assert left < 1.0
    assert left <= 1.001 * worst(AIMS[result], fitted(AIMS[result]))


@pytest.mark.parametrize("result", ["fp32", "bf16", "fp16", "fp8e4m3"])
def test_gelu_of_zeros_and_limits(result, computed):
    found = computed("gelu", np.float32([0.0, -0.0, np.nan, np.inf, -np.inf]), result)
    np.testing.assert_array_equal(found, np.float32([0.0, 0.0, np.nan, np.inf, np.nan]))
    np.testing.assert_array_equal(np.signbit(found[:2]), [False, True])


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_inf_and_nan(name, computed):
    result = computed(name, np.float32([np.nan, np.inf, -np.inf]))
    limits = {"clamp": (2.5, -1.5), "sigmoid": (1, 0), "hardsigmoid": (1, 0), "tanh": (1, -1), "relu": (np.inf, 0)}
    gated = name in ("silu", "gelu", "gelu_tanh", "hardswish")
    want = limits.get(name, (np.inf, np.nan if gated else -np.inf))
    np.testing.assert_array_equal(result, np.float32([np.nan, *want]))
