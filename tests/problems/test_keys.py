"""Keys and names: they round trip, and every field that changes the result changes them."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from problem_strategies import conv_signatures, gemm_signatures

from problem_changes import BASE, CONV_CHANGES, GEMM, GEMM_CHANGES, TRANSPOSED, conv_changes, gemm_changes
from tilesmith.errors import ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.key_text import epilogue_text
from tilesmith.problems.keys import parse_epilogue, parse_key


@given(conv_signatures())
@settings(max_examples=150, deadline=None)
def test_conv_round_trip(sig):
    text = sig.key()
    assert parse_key(text) == sig.canonical
    assert sig.canonical.canonical == sig.canonical
    assert sig.canonical.key() == text
    assert hash(parse_key(text)) == hash(sig.canonical)
    assert eval(repr(sig), globals() | {"inf": float("inf")}) == sig


@given(gemm_signatures())
@settings(max_examples=150, deadline=None)
def test_gemm_round_trip(sig):
    text = sig.key()
    assert parse_key(text) == sig.canonical
    assert sig.canonical.canonical == sig.canonical
    assert eval(repr(sig), globals() | {"inf": float("inf")}) == sig


@given(conv_signatures(), conv_signatures())
@settings(max_examples=150, deadline=None)
def test_names_differ_when_signatures_do(one, other):
    assert (one.get_func_name() == other.get_func_name()) == (one == other)
    assert (one.key() == other.key()) == (one.canonical == other.canonical)
    assert re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", one.get_func_name())


@given(gemm_signatures(), gemm_signatures())
@settings(max_examples=150, deadline=None)
def test_gemm_names_differ_when_signatures_do(one, other):
    assert (one.get_func_name() == other.get_func_name()) == (one == other)
    assert (one.key() == other.key()) == (one.canonical == other.canonical)
    assert re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", one.get_func_name())


@pytest.mark.parametrize("name", list(conv_changes()))
def test_every_field_takes_part(name):
    before, after = conv_changes()[name]
    assert before.key() != after.key()
    assert before.get_func_name() != after.get_func_name()


def test_no_field_is_forgotten():
    assert {field.name for field in fields(ConvSignature)} == set(CONV_CHANGES)
    derived = {"dtype", "shared_layout"}
    assert {name for name, value in CONV_CHANGES.items() if value is None} - set(conv_changes()) == derived


@pytest.mark.parametrize("name", list(GEMM_CHANGES))
def test_every_gemm_field_takes_part(name):
    before, after = gemm_changes()[name]
    assert before.key() != after.key()
    assert before.get_func_name() != after.get_func_name()


def test_no_gemm_field_is_forgotten():
    assert {field.name for field in fields(GemmSignature)} == set(GEMM_CHANGES) | {"dtype"}


def test_keys_are_stable():
    """Databases hold these texts: they never change."""
    assert BASE.key() == (
        "conv1;fwd;x=fp32,NHWC,2x9x11x8;w=fp32,NHWC,12x2x3x4;y=fp32,NHWC;"
        "stride=2x1;pad=1x2;dil=1x1;groups=2;acc=fp32"
    )  # fmt: skip
    assert TRANSPOSED.key() == (
        "conv1;bwd;x=fp32,NHWC,2x18x33x12;w=fp32,NHWC,8x2x3x6;y=fp32,NHWC;stride=2x3;pad=0x0;dil=1x1;groups=2;acc=fp32"
    )
    rich = replace(
        BASE, input_strides=(1000, 100, 9, 1), epilogue=Epilogue(bias=True, activation="leaky_relu"), deterministic=True
    )
    assert rich.key() == BASE.key() + ";xs=1000x100x9x1;epi=bias+leaky_relu(0.01);det"
    assert GEMM.key() == "gemm1;m=4;n=5;k=6;batch=2;a=fp32,n;b=fp32,n;c=fp32;acc=fp32;alpha=1.0;beta=0.0"
    assert replace(GEMM, lda=9, stride_b=0).key() == GEMM.key() + ";lda=9;sb=0"
    later = replace(
        BASE, padding=((1, 3), (2, 2)), output_dtype="fp8e4m3", workspace_limit=4096, deterministic=True,
        epilogue=Epilogue(scale="channel", bias=True),
    )  # fmt: skip
    assert later.key() == (
        "conv2;fwd;x=fp32,NHWC,2x9x11x8;w=fp32,NHWC,12x2x3x4;y=fp8e4m3,NHWC;stride=2x1;pad=1x2;dil=1x1;groups=2;"
        "acc=fp32;epi=scale_channel+bias;det;padhi=2x2;wlim=4096"
    )
    scaled = replace(GEMM, c_dtype="fp8e5m2", workspace_limit=0, epilogue=Epilogue(scale="tensor"))
    assert scaled.key() == (
        "gemm2;m=4;n=5;k=6;batch=2;a=fp32,n;b=fp32,n;c=fp8e5m2;acc=fp32;alpha=1.0;beta=0.0;epi=scale_tensor;wlim=0"
    )
    grouped = replace(GEMM, batch=1, groups=3, trans_b=True, ldb=7, workspace_limit=0)
    assert grouped.key() == (
        "gemm3;m=4;n=5;k=6;batch=1;a=fp32,n;b=fp32,t;c=fp32;acc=fp32;alpha=1.0;beta=0.0;ldb=7;wlim=0;groups=3"
    )
    assert parse_key(grouped.key()) == grouped
    blocks = GemmSignature(4, 5, 6, dtype="fp8e4m3", c_dtype="bf16", a_scale="1x128", b_scale="128x128")
    assert blocks.key() == (
        "gemm4;m=4;n=5;k=6;batch=1;a=fp8e4m3,n;b=fp8e4m3,n;c=bf16;acc=fp32;alpha=1.0;beta=0.0;scales=1x128,128x128"
    )
    assert parse_key(blocks.key()) == blocks
    swished = replace(BASE, epilogue=Epilogue(bias=True, activation="hardswish"))
    assert swished.key() == BASE.key().replace("conv1", "conv2") + ";epi=bias+hardswish"
    assert replace(GEMM, epilogue=Epilogue(activation="tanh")).key() == GEMM.key().replace("1", "2", 1) + ";epi=tanh"
    assert BASE.get_func_name() == "conv2d_fwd_fp32_x2x9x11x8_nhwc_w12x2x3x4_nhwc_y_nhwc_s2x1_p1x2_d1x1_g2"
    assert TRANSPOSED.get_func_name().startswith("deconv2d_fwd_fp32_x2x9x11x8_nhwc_w8x2x3x6")
    assert replace(GEMM, trans_b=True, alpha=-0.5).get_func_name() == "gemm_nt_fp32_m4_n5_k6_b2_alpham0p5"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "conv1",
        "conv2;fwd",
        BASE.key().replace("conv1", "conv2"),  # it uses nothing of version 2
        BASE.key().replace("conv1", "conv3"),
        BASE.key() + ";wlim=0",
        BASE.key().replace("conv1", "conv2") + ";wlim=0;padhi=3x2",
        BASE.key().replace("conv1", "conv2") + ";padhi=1x2;wlim=0",  # equal sides
        GEMM.key().replace("gemm1", "gemm2"),
        GEMM.key().replace("gemm1", "gemm3"),  # it has no groups
        GEMM.key() + ";groups=3",
        GEMM.key().replace("gemm1", "gemm4") + ";scales=tensor,tensor",  # of fp32
        GemmSignature(4, 5, 6, dtype="fp8e4m3").key().replace("gemm1", "gemm4") + ";scales=1x128",
        GemmSignature(4, 5, 6, dtype="fp8e4m3").key().replace("gemm1", "gemm4") + ";scales=1x128,tensor",
        GemmSignature(4, 5, 6, dtype="fp8e4m3").key().replace("gemm1", "gemm4") + ";scales=none,none",
        "gemm1;m=4",
        BASE.key() + ";",
        BASE.key() + ";more=1",
        BASE.key().replace("stride=2x1", "stride=2"),
        BASE.key().replace("stride=2x1", "stride=02x1"),
        BASE.key().replace("groups=2", "groups=5"),
        BASE.key().replace("NHWC", "nhwc"),
        BASE.key().replace("pad=1x2;dil=1x1", "dil=1x1;pad=1x2"),
        BASE.key() + ";xs=792x88x8x1",
        GEMM.key().replace("beta=0.0", "beta=0"),
        GEMM.key() + ";epi=bias+bias",
        GEMM.key() + ";epi=relu+silu",
        GEMM.key() + ";epi=tanh",  # of version 2
        GEMM.key() + ";epi=mish",
        None,
        7,
    ],
)
def test_bad_keys(text):
    with pytest.raises(ProblemError):
        parse_key(text)


def test_a_version_that_is_not_known_is_named():
    with pytest.raises(ProblemError, match="begin with conv1; or conv2; or gemm1; or gemm2; or gemm3; or gemm4;"):
        parse_key("conv3;fwd;x=fp32,NHWC,2x9x11x8")


def test_epilogue_text():
    for epilogue in (
        Epilogue(),
        Epilogue(bias=True, residual=True, activation="gelu"),
        Epilogue(activation="clamp", low=float("-inf"), high=1e20),
        Epilogue(scale="tensor", bias=True, activation="silu"),
    ):
        assert parse_epilogue(epilogue_text(epilogue)) == epilogue
    assert parse_epilogue("leaky_relu") == Epilogue(activation="leaky_relu")


def test_tf32_is_a_problem_of_its_own_wherever_products_are_made():
    for one in (BASE, GEMM):
        rounded = replace(one, acc_dtype="tf32")
        assert ";acc=tf32" in rounded.key()
        assert type(one).parse(rounded.key()) == rounded.canonical
        assert rounded.geometry.tf32
        assert replace(rounded.geometry, tf32=False) == one.geometry
    summed = replace(BASE, mode="bgrad")
    assert replace(summed, acc_dtype="tf32").key() == summed.key()
