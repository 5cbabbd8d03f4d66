"""The plain reference in C: every kind of problem against float64, exact numbers, and what a call refuses."""

from __future__ import annotations

import ctypes
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from c_problems import BAD_ARGUMENT, BAD_PROBLEM, OK, REFERENCE, Error, build
from problem_keys import DTYPES
from reference_problems import ROOM, Reference, check, sanitized

from tilesmith.problems.gemm import GemmSignature


@pytest.fixture(scope="module")
def c(tmp_path_factory):
    return build(tmp_path_factory.mktemp("reference"), "-O1", only=REFERENCE)


def test_random_problems(c):
    report = check(120, 4, c)
    assert not report.wrong, "\n".join(report.wrong[:5])
    for kind in ("fwd", "bwd", "wrw", "bgrad", "gemm", "empty", *DTYPES[1:]):
        assert report.counts[kind] > 0, kind
    assert report.counts["with NaN and Inf"] > 40


def test_random_problems_under_the_sanitizers(c):
    done = sanitized(40, 5, Path(c.c._name))
    assert (done.returncode, done.stdout.endswith(" 0 wrong\n")) == (0, True), done.stdout + done.stderr


def product(c, a, b, name, **more):
    """``a`` (a column) times ``b`` (one number), as a result of dtype ``name``."""
    kinds = {np.dtype(np.float64): "fp64", np.dtype(np.float16): "fp16", np.dtype(np.int8): "int8"}
    kinds |= {np.dtype(ml_dtypes.bfloat16): "bf16", np.dtype(ml_dtypes.float8_e4m3fn): "fp8e4m3"}
    kinds |= {np.dtype(ml_dtypes.float8_e5m2): "fp8e5m2"}
    numpy = {name: kind for kind, name in kinds.items()} | {"int32": np.int32}
    out = np.full(a.shape[0], 7).astype(numpy[name])
    m, k = a.shape
    more.setdefault("acc_dtype", DTYPES.index("int32" if name == "int32" else "fp64"))
    numbers = {"x_dtype": kinds[a.dtype], "w_dtype": kinds[b.dtype], "y_dtype": name}
    desc = c.desc(op=1, m=m, n=1, k=k, **{key: DTYPES.index(value) for key, value in numbers.items()}, **more)
    Reference(c, desc, GemmSignature(m=m, n=1, k=k))(a, b, out)
    return out


@pytest.mark.parametrize(
    ("name", "kind"),
    [("fp16", np.float16), ("bf16", ml_dtypes.bfloat16), ("fp8e4m3", ml_dtypes.float8_e4m3fn),
     ("fp8e5m2", ml_dtypes.float8_e5m2)],
)  # fmt: skip
def test_every_narrow_number_is_read_and_rounded_as_its_type_says(c, name, kind):
    bits = np.arange(1 << 8 * np.dtype(kind).itemsize).astype(f"u{np.dtype(kind).itemsize}")
    every, one = bits.view(kind), np.ones((1, 1))
    with np.errstate(invalid="ignore"):
        wide = every.astype(np.float64)
    np.testing.assert_array_equal(product(c, every[:, None], one, "fp64"), wide)
    same = product(c, wide[:, None], one, name)
    np.testing.assert_array_equal(same.astype(np.float64), wide)
    # Between two neighbours: halfway, which goes to the even one, and a little to both sides of it.
    finite = np.sort(wide[np.isfinite(wide)])
    middle = (finite[:-1] + finite[1:]) / 2
    largest = finite[-1] + (finite[-1] - finite[-2]) * np.array([0.4, 0.5, 0.6, 1e9])
    near = np.concatenate([middle, middle * (1 + 1e-6), middle * (1 - 1e-6), largest, -largest, [np.inf, 1e-300]])
    near = near.astype(np.float32).astype(np.float64) if name != "bf16" else near
    with np.errstate(over="ignore"):
        wanted = near.astype(np.float32).astype(kind) if name != "bf16" else round_bf16(near)
    found = product(c, near[:, None], one, name)
    np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(np.float64))


def round_bf16(values):
    """To nearest even in one rounding: float32 has more bits than it needs but for numbers next to a middle."""
    scale = np.exp2(np.maximum(np.frexp(values)[1], -125) - 8.0)
    with np.errstate(all="ignore"):
        rounded = np.where(np.isfinite(values), np.rint(values / scale) * scale, values)
        return rounded.astype(np.float32).astype(ml_dtypes.bfloat16)


def test_int32_sums_wrap_and_factors_are_exact(c):
    """Beyond 2^31, and beyond the 53 bits of a double."""
    a, b = np.full((3, 140_001), -128, np.int8), np.full((140_001, 1), -128, np.int8)
    a[1:] = 127
    a[2, 1::2] = 3
    sums = [int(row.astype(np.int64).sum()) * -128 for row in a]
    assert sums[0] > 2**31
    wrapped = [(total + 2**31) % 2**32 - 2**31 for total in sums]
    np.testing.assert_array_equal(product(c, a, b, "int32"), wrapped)
    alpha, beta = -(2**31 - 1), 2**31 - 1
    wanted = [(total * alpha + 7 * beta + 2**31) % 2**32 - 2**31 for total in wrapped]
    np.testing.assert_array_equal(product(c, a, b, "int32", alpha=alpha, beta=beta), wanted)


def test_refusals(c):
    room, error = ctypes.create_string_buffer(ROOM), Error()
    opened = c.c.ts_reference_open
    opened.argtypes = [ctypes.c_void_p] * 3
    wrong = c.desc(op=1, m=4, n=5, k=6, lda=5)
    assert opened(ctypes.addressof(wrong), room, ctypes.addressof(error)) == BAD_PROBLEM
    assert error.text == b"lda is 5, smaller than a stored row of 6 elements"
    desc = c.desc(op=1, m=4, n=5, k=6)
    assert opened(None, room, None) == opened(ctypes.addressof(desc), None, None) == BAD_ARGUMENT
    reference = Reference(c, desc, GemmSignature(m=4, n=5, k=6))
    run, memory = c.c.ts_reference_run, np.ones(64, np.float32)
    for missing in range(3):
        slots = (ctypes.c_void_p * 3)(*[None if i == missing else memory.ctypes.data for i in range(3)])
        assert run(reference.room, slots, 1) == BAD_ARGUMENT
    slots = (ctypes.c_void_p * 3)(*[memory.ctypes.data] * 3)
    assert run(reference.room, slots, 0) == run(reference.room, None, 1) == BAD_ARGUMENT
    assert run(reference.room, slots, 100_000) == OK
