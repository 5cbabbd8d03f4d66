"""Rewrites: each form of a problem, evaluated on the same memory, writes the same result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evaluate import evaluate, flat, span
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from problem_strategies import LETTERS, conv_signatures, epilogues, gemm_signatures, pitches

from tilesmith.errors import ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.layouts import parse_layout
from tilesmith.problems.rewrite import rewrites
from tilesmith.problems.samples import sample_args


@st.composite
def simple_convolutions(draw) -> ConvSignature:
    """Unpadded problems whose tensors often merge: channels last, filters of 1, of the input or of the stride."""
    dims = draw(st.integers(1, 3))
    order = st.one_of(
        st.just("N" + LETTERS[dims] + "C"), st.just("NC" + LETTERS[dims]), st.permutations("NC" + LETTERS[dims])
    ).map("".join)
    layouts = [parse_layout(draw(order)) for _ in range(3)]
    c, k = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    axes = []
    for _ in range(dims):
        kind = draw(st.sampled_from(("point", "whole", "patch", "unit", "any")))
        size = 1 if kind == "unit" else draw(st.integers(1, 4))
        tap = {"point": 1, "unit": 1, "whole": size}.get(kind, draw(st.integers(1, size)))
        if kind == "patch":
            size *= tap
        axes.append((size, tap, tap if kind == "patch" else draw(st.sampled_from((1, 1, 2)))))
    mode = draw(st.sampled_from(("fwd", "bwd", "wrw", "bgrad")))
    input_shape = layouts[0].layout_shape((draw(st.integers(1, 3)), c, *(a[0] for a in axes)))
    kernel_shape = layouts[1].layout_shape((k, c, *(a[1] for a in axes)))
    sig = ConvSignature(
        input_shape=input_shape,
        kernel_shape=kernel_shape,
        stride=tuple(a[2] for a in axes),
        dilation=draw(st.sampled_from((1, 1, 1, 2))) if all(a[1] == 1 for a in axes) else 1,
        mode=mode,
        dtype="fp64",
        input_layout=str(layouts[0]),
        kernel_layout=str(layouts[1]),
        output_layout=str(layouts[2]),
        input_strides=draw(pitches(input_shape, 1)) if draw(st.booleans()) else None,
        kernel_strides=draw(pitches(kernel_shape, 1)) if draw(st.booleans()) else None,
        epilogue=draw(epilogues) if mode in ("fwd", "bwd") else Epilogue(),
    )
    return replace(sig, output_strides=draw(pitches(sig.output_shape, 1)) if draw(st.booleans()) else None)


def forms_agree(sig: ConvSignature | GemmSignature) -> None:
    forms = rewrites(sig)
    assert (forms[0].name, forms[0].signature) == ("", sig.canonical)
    assert len({form.name for form in forms}) == len(forms)
    args = sample_args(sig, 1)
    slots = [flat(args[i]) for i in sig.canonical_order]
    if isinstance(sig, GemmSignature):
        size = span(sig.c_shape, sig.c_strides)
    else:
        sig = sig.canonical
        shape, strides = {
            "fwd": (sig.output_shape, sig.output_strides), "bwd": (sig.input_shape, sig.input_strides),
            "wrw": (sig.kernel_shape, sig.kernel_strides), "bgrad": (sig.output_logical[1:2], None),
        }[sig.mode]  # fmt: skip
        size = span(shape, strides)
    want = evaluate(sig.geometry, slots, size)
    for form in forms[1:]:
        assert form.signature == form.signature.canonical
        assert form.signature.epilogue == sig.epilogue
        have = evaluate(form.signature.geometry, slots, size)
        np.testing.assert_allclose(have, want, rtol=1e-10, atol=1e-10 * (1 + np.abs(want[np.isfinite(want)]).max()))


@given(simple_convolutions())
@settings(max_examples=300, deadline=None)
def test_simple_convolutions(sig):
    forms_agree(sig)


@given(conv_signatures(max_size=4))
@settings(max_examples=100, deadline=None)
def test_any_convolution(sig):
    assume("fp8" not in sig.key() and "int" not in sig.dtype)
    forms_agree(sig)


@given(gemm_signatures())
@settings(max_examples=200, deadline=None)
def test_gemms(sig):
    assume("fp8" not in sig.key())
    forms_agree(sig)


def form(sig, name: str):
    return {rewrite.name: rewrite.signature for rewrite in rewrites(sig)}.get(name)


def nhwc(mode: str = "fwd", **changes) -> ConvSignature:
    fields = {"input_shape": (2, 8, 6, 16), "kernel_shape": (32, 1, 1, 16), "shared_layout": "NHWC", "mode": mode}
    return ConvSignature(**(fields | changes))


def test_pointwise_is_gemm():
    assert form(nhwc(), "gemm") == GemmSignature(m=96, n=32, k=16, trans_b=True)
    assert form(nhwc("bwd"), "gemm") == GemmSignature(m=96, n=16, k=32)
    assert form(nhwc("wrw"), "gemm") == GemmSignature(m=32, n=16, k=96, trans_a=True)
    bias = Epilogue(bias=True, activation="relu", residual=True)
    assert form(nhwc(epilogue=bias), "gemm") == GemmSignature(m=96, n=32, k=16, trans_b=True, epilogue=bias)
    for scale in ("tensor", "channel"):
        scaled = Epilogue(scale=scale)
        as_gemm = form(nhwc(dtype="int8", epilogue=scaled), "gemm")
        assert (as_gemm.c_dtype, as_gemm.epilogue) == ("int8", scaled)
        whole = nhwc("bwd", kernel_shape=(32, 8, 6, 16), epilogue=scaled, dtype="int8")
        assert (form(whole, "gemm") is None) == (scale == "channel")  # columns of that GEMM are taps and channels
    pitched = nhwc(input_strides=(960, 120, 20, 1))
    assert form(pitched, "gemm") == GemmSignature(m=96, n=32, k=16, trans_b=True, lda=20)
    rows = nhwc(input_strides=(1000, 120, 20, 1))
    assert form(rows, "gemm").batch == 2
    assert form(nhwc(dtype="int8"), "gemm").c_dtype == "int32"


def test_whole_and_patch_filters_are_gemm():
    whole = nhwc(kernel_shape=(32, 8, 6, 16))
    assert form(whole, "gemm") == GemmSignature(m=2, n=32, k=768, trans_b=True)
    assert form(replace(whole, mode="bwd"), "gemm") == GemmSignature(m=2, n=768, k=32)
    patch = ConvSignature(input_shape=(2, 12, 16), kernel_shape=(32, 4, 16), stride=4, shared_layout="NWC")
    assert form(patch, "gemm") == GemmSignature(m=6, n=32, k=64, trans_b=True)
    assert form(replace(patch, mode="bwd"), "gemm") == GemmSignature(m=6, n=64, k=32)
    # Two pixels of the gradient get nothing.
    uneven = ConvSignature(input_shape=(2, 14, 16), kernel_shape=(32, 4, 16), stride=4, shared_layout="NWC")
    assert form(replace(uneven, mode="bwd"), "gemm") is None


def test_what_is_no_gemm():
    assert form(nhwc(padding=1), "gemm") is None
    assert form(nhwc(kernel_shape=(32, 3, 3, 16)), "gemm") is None
    assert form(nhwc(kernel_shape=(32, 1, 1, 8), groups=2), "gemm") is None
    assert form(nhwc("bwd", stride=2), "gemm") is None
    assert form(nhwc(shared_layout="NCHW", input_shape=(2, 16, 8, 6), kernel_shape=(32, 16, 1, 1)), "gemm") is None
    # A bias is one per channel, not one per column.
    assert form(nhwc("bwd", kernel_shape=(32, 8, 6, 16), epilogue=Epilogue(bias=True)), "gemm") is None


def test_flat():
    video = ConvSignature(
        input_shape=(2, 4, 8, 8, 3), kernel_shape=(5, 1, 3, 3, 3), padding=(0, 1, 1), shared_layout="NDHWC"
    )
    assert form(video, "flat") == ConvSignature((8, 8, 8, 3), (5, 3, 3, 3), padding=1, shared_layout="NHWC")
    column = ConvSignature((2, 3, 9, 1), (5, 3, 3, 1), padding=(1, 0))
    assert form(column, "flat") == ConvSignature((2, 3, 1, 9), (5, 3, 1, 3), padding=(0, 1))
    assert form(nhwc(), "flat") is None
    shared = GemmSignature(m=4, n=5, k=6, batch=3, stride_b=0)
    assert form(shared, "flat") == GemmSignature(m=12, n=5, k=6)


@pytest.mark.parametrize("mode", ["fwd", "bwd", "wrw"])
@pytest.mark.parametrize(
    ("size", "tap", "stride", "padding"),
    [(12, 4, 4, 0), (12, 8, 4, ((1, 0), (2, 2))), (12, 4, 2, 2), (12, 4, 4, ((0, 0), (2, 6))), (12, 12, 4, (1, 4))],
)
def test_wide(mode, size, tap, stride, padding):
    sig = ConvSignature(
        (2, 3, size, 3), (5, 2, tap, 3), stride=(1, stride), padding=padding, mode=mode, dtype="fp64",
        shared_layout="NHWC", input_strides=(200, 50, 3, 1),
        epilogue=Epilogue(residual=True, activation="relu") if mode == "bwd" else Epilogue(),
    )  # fmt: skip
    merged = form(sig, "wide")
    assert merged.input_shape[2:] == (size // merged.input_shape[3] * 3, merged.input_shape[3])
    assert merged.output_shape == sig.output_shape
    assert merged.input_shape[3] > 3
    forms_agree(sig)


def test_what_is_not_wide():
    patch = {"input_shape": (2, 8, 12, 3), "kernel_shape": (5, 4, 4, 3), "stride": 4}
    assert form(nhwc(**patch), "wide") == ConvSignature(
        (2, 8, 3, 12), (5, 4, 1, 12), stride=(4, 1), shared_layout="NHWC"
    )
    assert form(nhwc(**patch, padding=(0, 1)), "wide") is None
    assert form(nhwc(**patch, dilation=2), "wide") is None
    assert form(nhwc(**patch, input_strides=(400, 50, 4, 1)), "wide") is None
    assert form(nhwc(**patch, kernel_strides=(80, 20, 4, 1)), "wide") is None
    first = {"input_shape": (2, 3, 8, 12), "kernel_shape": (5, 3, 4, 4), "shared_layout": "NCHW"}
    assert form(nhwc(**patch | first), "wide") is None
    assert form(nhwc(**patch | {"kernel_shape": (6, 4, 4, 1)}, groups=3), "wide") is None
    assert form(nhwc("bwd", **patch, epilogue=Epilogue(bias=True)), "wide") is None


def test_too_large_to_fold():
    try:
        sig = GemmSignature(m=2**30, n=1, k=1, batch=2, stride_b=0)
    except ProblemError:
        return
    assert form(sig, "flat") is None
