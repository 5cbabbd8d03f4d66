"""The plain reference: every direction and dtype, one kernel for all sizes, and its guarded form."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

import levels
from chain import TWO_THREADS, executables, function
from tilesmith.codegen.c.scalar import TYPES, conversions
from tilesmith.codegen.symbols import make_source
from tilesmith.measure.accuracy import check, check_specials, verify
from tilesmith.measure.arrays import guarded_operands, guarded_result
from tilesmith.measure.oracle import oracle
from tilesmith.plan.records import Draft, Integer, Launch, Memset, Pointer, Space
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.epilogue import ACTIVATIONS, Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args
from tilesmith.solvers.c.reference.solver import ReferenceSolver, guarded_reference
from tilesmith.solvers.solver import Accepted
from tilesmith.targets.cpu import CPU_TARGETS

SOLVER = ReferenceSolver()
FLOATS = ("fp64", "fp32", "fp16", "bf16", "fp8e4m3", "fp8e5m2")


def draft(signature, target=TWO_THREADS):
    geometry = signature.geometry
    assert SOLVER.applicable(geometry, target) == Accepted()
    config = SOLVER.default_config(geometry, target)
    assert SOLVER.search_space(geometry, target).contains(config)
    return SOLVER.draft(geometry, config, target)


def problems_of(name):
    """Every direction, with tails in each loop, over several tiles, groups, phases and layouts."""
    for mode in ("fwd", "bwd", "wrw", "bgrad"):
        yield ConvSignature((2, 6, 9, 8), (38, 3, 3, 2), stride=2, padding=(2, 1), groups=2, dtype=name, mode=mode)
        yield ConvSignature((1, 5, 4, 6, 80), (20, 2, 3, 3, 80), shared_layout="NDHWC", padding=1, dilation=(2, 1, 1),
                            dtype=name, mode=mode)  # fmt: skip
        yield ConvSignature((7, 2, 6), (6, 3, 4), transposed=True, stride=3, output_padding=2, groups=2, padding=1,
                            dtype=name, mode=mode, input_layout="WNC", input_strides=(20, 8, 1))  # fmt: skip
    yield GemmSignature(m=35, n=18, k=70, batch=2, trans_b=True, alpha=0.5, beta=-2.0, dtype=name, lda=75)


def types_and_levels():
    """Every type on a level with vectors of 64 bytes and on one with smaller ones, which take turns.

    The text is the same on each but for conversions, which have a test on every level.
    """
    for place, name in enumerate(FLOATS):
        for wide in (False, True):
            alike = [level for level in levels.HERE if (level.vector_bytes == 64) == wide]
            for level in alike[place % max(1, len(alike)) :][:1]:
                yield pytest.param(name, level, id=f"{name}-{level.arch}")


@pytest.mark.parametrize(("name", "level"), list(types_and_levels()))
def test_every_direction(name, level, record_property):
    record_property("level", level.arch)
    signatures = list(problems_of(name))
    target = replace(level, cores=2)
    built_ones = executables([(s, draft(s, target)) for s in signatures], target)
    for signature, built in zip(signatures, built_ones, strict=True):
        call = function(built, signature)
        for verdict in (verify(call, signature, 1), check_specials(call, signature, 2)):
            assert verdict.ok, f"{signature.key()}: {verdict.message}"


def test_integers_are_exact(level):
    signatures = [
        ConvSignature((2, 40, 9, 8), (19, 40, 3, 3), padding=1, stride=2, dtype="int8",
                      epilogue=Epilogue(bias=True, residual=True, activation="clamp", low=-300.5, high=2000.0)),
        ConvSignature((2, 12, 6), (12, 5, 4), transposed=True, stride=3, groups=3, dtype="int8"),
        GemmSignature(m=40, n=20, k=100, alpha=-3.0, beta=2.0, dtype="int8"),
    ]  # fmt: skip
    built_ones = executables([(s, draft(s, level)) for s in signatures], level)
    for signature, built in zip(signatures, built_ones, strict=True):
        assert verify(function(built, signature), signature).ok


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_epilogues(activation):
    e = Epilogue(bias=True, residual=True, activation=activation, slope=-0.25, low=-1.0, high=0.5)
    modes = ("fwd", "bwd") if list(ACTIVATIONS).index(activation) % 2 else ("bwd", "fwd")
    signatures = [
        ConvSignature((2, 9, 7, 8), (17, 9, 3, 3), padding=1, dtype=name, mode=mode, epilogue=e)
        for name, mode in zip(("fp64", "fp32"), modes, strict=True)
    ]
    if modes[0] == "bwd":
        signatures.append(GemmSignature(m=7, n=17, k=3, dtype="fp64", beta=1.0, epilogue=e))
    for signature, built in zip(signatures, executables([(s, draft(s)) for s in signatures]), strict=True):
        call = function(built, signature)
        assert verify(call, signature).ok
        assert check_specials(call, signature).ok


def test_one_kernel_serves_every_size():
    small = ConvSignature((1, 1, 1, 1), (1, 1, 1, 1))
    large = ConvSignature((8, 256, 60, 70), (64, 64, 7, 5), stride=3, padding=2, groups=4, dilation=2,
                          input_strides=(2000000, 7000, 100, 1))  # fmt: skip
    vectors = ConvSignature((1, 2, 5, 4, 8), (3, 5, 4, 16), input_layout="NCHWc8", kernel_layout="NHWC")
    sources = {draft(s).sources for s in (small, large, vectors)}
    assert len(sources) == 1
    assert draft(replace(small, dtype="bf16", input_dtype="", kernel_dtype="", output_dtype="")).sources not in sources


@pytest.mark.parametrize("arch", sorted(CPU_TARGETS))
def test_text_is_reproducible_on_every_target(arch):
    target = CPU_TARGETS[arch]
    for signature in problems_of("fp32"):
        assert draft(signature, target) == draft(signature, target)


def test_a_huge_stride_makes_no_item_for_positions_that_are_not_there():
    signature = ConvSignature((1, 2, 3, 5), (4, 2, 1, 1), stride=2**30, mode="bwd")
    assert draft(signature).run[0].grid[0] < 100
    [built] = executables([(signature, draft(signature))])
    assert verify(function(built, signature), signature).ok


# --- rounding of narrow types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp8e4m3", "fp8e5m2"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_conversions_agree_with_ml_dtypes(name, level):
    """A 1x1 product with 1 loads every bit pattern, and stores float64 values around every rounding point."""
    kind = dtype(name).numpy()
    bits = np.arange(2 ** (8 * kind.itemsize), dtype=f"u{kind.itemsize}")
    up = GemmSignature(m=bits.size, n=1, k=1, a_dtype=name, b_dtype="fp64", c_dtype="fp64", acc_dtype="fp64")
    down = GemmSignature(m=6 * bits.size, n=1, k=1, a_dtype="fp64", b_dtype="fp64", c_dtype=name, acc_dtype="fp64")
    load, store = executables([(s, draft(s, level)) for s in (up, down)], level)
    every = bits.view(kind).reshape(-1, 1)
    one = np.ones((1, 1))
    wide = every.astype(np.float64)
    np.testing.assert_array_equal(load.bind(up)(every, one), wide)
    finite = np.sort(wide[np.isfinite(wide)])
    middle = (finite + np.append(finite[1:], 2 * finite[-1] - finite[-2])) / 2
    values = np.concatenate([finite, middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])
    values = np.resize(np.append(values, [np.inf, -np.inf, np.nan, 1e300, -1e-300, 0.0, -0.0]), (6 * bits.size, 1))
    found, want = store.bind(down)(values, one), values.astype(kind)
    if name != "fp16":  # ml_dtypes rounds float64 by way of float32, once too often; only what float32 holds compares
        keep = (values.astype(np.float32) == values) | ~np.isfinite(values)
        found, want = found[keep], want[keep]
    np.testing.assert_array_equal(found.astype(np.float64), want.astype(np.float64))


# --- guarded ---------------------------------------------------------------------------------------------------------


NOTE_BYTES = 64
NOTE = """
void @SYM@(void *const *p, const int64_t *s, void *scratch, int64_t begin, int64_t end) {
  (void)scratch;
  for (int64_t item = begin; item < end; item++) {
    int64_t at = 0;
    for (int64_t axis = 0, rest = item; axis < 6; rest /= s[axis++])
      at += rest % s[axis] * s[6 + axis];
    const double v = @SYM@_load_@D@(p[0], at);
    if (v - v != 0)
      *(int32_t *)p[1] = 1;
  }
}
"""


def guarded_draft(signature, view):
    """A note that says whether an element of the filter is an Inf or NaN, then the guarded reference alone."""
    note = Pointer(Space.PACKED)
    (k, c, *taps), (k_step, c_step, *steps) = view.shape, view.strides
    sizes = (k, c // view.vector, *taps, view.vector)
    body = conversions({view.dtype}) + NOTE.replace("@D@", view.dtype)
    check = make_source("c", "note", view.dtype, "s1", TWO_THREADS.arch, TYPES, body)
    numbers = (Integer(value) for value in (*sizes, k_step, c_step, *steps, 1))
    noted = Launch(1, check.symbol, (prod(sizes), 1, 1), (Pointer(Space.SLOT, 1), note, *numbers))
    source, launch = guarded_reference(signature.geometry, TWO_THREADS, note)
    return Draft((source, check), (launch,), (Memset(note, NOTE_BYTES), noted), packed_bytes=NOTE_BYTES)


@pytest.mark.parametrize(("name", "mode"), list(zip(FLOATS, ("fwd", "bwd") * 3, strict=True)))
def test_guarded_reference_runs_only_for_filters_that_are_not_finite(name, mode):
    signatures = [
        ConvSignature((1, 6, 5, 4), (8, 3, 3, 2), groups=2, padding=1, dtype=name, mode=mode),
        ConvSignature((1, 8, 5, 4), (8, 2, 3, 2, 4), kernel_layout="NCHWc4", dtype=name, mode=mode,
                      output_layout="NHWC", kernel_strides=(60, 28, 9, 4, 1)),
    ]  # fmt: skip
    drafts = [guarded_draft(s, s.geometry.w) for s in signatures]
    for signature, built in zip(signatures, executables(list(zip(signatures, drafts, strict=True))), strict=True):
        first, w = sample_args(signature, 0)
        operands = guarded_operands(signature, (first, w))
        assert not verify(function(built, signature), signature).ok
        for number, place in enumerate(np.ndindex(w.shape)):
            if number % 13 == 0:
                filter_ = guarded_operands(signature, (first, w))[1].array
                filter_[place] = (np.nan, np.inf, -np.inf)[number % 3]
                values = (operands[0].array, filter_)
                out = guarded_result(signature, values).array
                built.bind(signature)(*values, out=out)
                verdict = check(out, oracle(signature, values), signature)
                assert verdict.ok, f"{place}: {verdict.message}"
