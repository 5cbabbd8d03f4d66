"""``ConvSignature``: rules, shapes, and the canonical form against PyTorch in the user's own words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from evaluate import activate, evaluate, flat, span
from hypothesis import given, settings
from problem_strategies import conv_signatures

from tilesmith.errors import ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.layouts import parse_layout
from tilesmith.problems.samples import sample_args
from torch_answer import convolved

LETTERS = {1: "W", 2: "HW", 3: "DHW"}


def logical(array: np.ndarray, layout_name: str) -> torch.Tensor:
    """``(N, C, *spatial)`` in float64 of an array in a layout."""
    layout = parse_layout(layout_name)
    if layout.vector > 1:
        at = layout.order.index("C")
        array = np.moveaxis(array, -1, at + 1)
        array = array.reshape(*array.shape[:at], -1, *array.shape[at + 2 :])
    order = [layout.order.index(axis) for axis in "NC" + LETTERS[layout.spatial_dims]]
    return torch.from_numpy(array.transpose(order).astype(np.float64))


def in_layout(tensor: torch.Tensor, layout_name: str) -> np.ndarray:
    layout = parse_layout(layout_name)
    letters = "NC" + LETTERS[layout.spatial_dims]
    array = tensor.numpy()
    if layout.vector > 1:
        array = np.moveaxis(array.reshape(array.shape[0], -1, layout.vector, *array.shape[2:]), 2, -1)
        return array.transpose([letters.index(axis) for axis in layout.order] + [len(letters)])
    return array.transpose([letters.index(axis) for axis in layout.order])


def reference(sig: ConvSignature, args: tuple[np.ndarray, ...]) -> np.ndarray:
    """PyTorch's own convolution, transposed convolution or gradient, on the user's arguments."""
    dims = sig.spatial_dims
    x = torch.zeros(sig.input_logical, dtype=torch.float64)
    w = torch.zeros(sig.kernel_logical, dtype=torch.float64)
    if sig.mode == "fwd":
        x, w = logical(args[0], sig.input_layout), logical(args[1], sig.kernel_layout)
    elif sig.mode == "bwd":
        w = logical(args[1], sig.kernel_layout)
    elif sig.mode == "wrw":
        x = logical(args[1], sig.input_layout)
    x.requires_grad_(), w.requires_grad_()
    bias = torch.zeros(sig.output_logical[1], dtype=torch.float64, requires_grad=True)
    y = convolved(sig, x, w, bias)
    assert tuple(y.shape) == sig.output_logical
    if sig.mode == "fwd":
        result, layout = y, sig.output_layout
    else:
        wanted = {"bwd": x, "wrw": w, "bgrad": bias}[sig.mode]
        (result,) = torch.autograd.grad(y, wanted, logical(args[0], sig.output_layout))
        layout = {"bwd": sig.input_layout, "wrw": sig.kernel_layout, "bgrad": ""}[sig.mode]
    result = result.detach()
    if sig.mode == "bgrad":
        return result.numpy()
    rest = list(args[2:]) if sig.mode in ("fwd", "bwd") else []
    if sig.epilogue.is_scaled:
        result = result * torch.from_numpy(rest.pop().astype(np.float64)).reshape(1, -1, *([1] * dims))
    if sig.epilogue.bias:
        result = result + torch.from_numpy(rest.pop(0).astype(np.float64)).reshape(1, -1, *([1] * dims))
    if sig.epilogue.residual:
        result = result + logical(rest.pop(0), layout)
    return in_layout(activate(result, sig.epilogue), layout)


@given(conv_signatures(max_size=6))
@settings(max_examples=300, deadline=None)
def test_canonical_form_means_the_same(sig):
    """What solvers read (geometry on flat memory) is what the user asked for (PyTorch on arrays)."""
    args = sample_args(sig, 3)
    want = reference(sig, args)
    result = {"fwd": "output", "bwd": "input", "wrw": "kernel"}.get(sig.mode)
    strides = getattr(sig, f"{result}_strides") if result else None
    memory = evaluate(sig.geometry, [flat(args[i]) for i in sig.canonical_order], span(want.shape, strides))
    if strides:
        have = np.lib.stride_tricks.as_strided(memory, want.shape, [8 * s for s in strides])
        assert (memory == 7.0).sum() >= memory.size - want.size  # the gaps are not written
    else:
        have = memory.reshape(want.shape)
    np.testing.assert_allclose(have, want, rtol=1e-9, atol=1e-9 * (1 + np.abs(want).max()))


@given(conv_signatures())
@settings(max_examples=100, deadline=None)
def test_slots_of_rewritten_arguments(sig):
    """``canonical_order`` names each argument once, and none that the user does not give."""
    assert sorted(sig.canonical_order) == list(range(len(sample_args(sig))))


def test_transposed_forward_is_backward_data():
    sig = ConvSignature(
        input_shape=(2, 6, 5, 4), kernel_shape=(6, 3, 3, 2), stride=(2, 3), padding=1, output_padding=(1, 0),
        transposed=True, mode="fwd",
    )  # fmt: skip
    same = ConvSignature(input_shape=sig.output_shape, kernel_shape=(6, 3, 3, 2), stride=(2, 3), padding=1, mode="bwd")
    assert sig.canonical == same == same.canonical
    assert sig.key() == same.key()


def test_equal_problems_are_one():
    one_d = ConvSignature(input_shape=(2, 8, 30), kernel_shape=(4, 8, 3), padding=1)
    two_d = ConvSignature(input_shape=(2, 8, 1, 30), kernel_shape=(4, 8, 1, 3), padding=(0, 1))
    assert one_d.canonical == two_d.canonical
    point = ConvSignature(input_shape=(1, 8, 8, 8), kernel_shape=(4, 8, 1, 1))
    assert ConvSignature(input_shape=(1, 8, 8, 8), kernel_shape=(4, 8, 1, 1), dilation=3).key() == point.key()
    whole = ConvSignature(input_shape=(1, 8, 5, 5), kernel_shape=(4, 8, 5, 5))
    assert ConvSignature(input_shape=(1, 8, 5, 5), kernel_shape=(4, 8, 5, 5), stride=4).key() == whole.key()
    dy = {"input_shape": (2, 8, 6, 6), "kernel_shape": (4, 8, 3, 3), "mode": "bgrad"}
    other = {"input_shape": (2, 6, 4, 4), "kernel_shape": (4, 6, 1, 1), "mode": "bgrad"}
    assert ConvSignature(**dy).key() == ConvSignature(**other).key()
    # The stride of an axis of one element is never used.
    a = ConvSignature(input_shape=(1, 4, 4, 8), kernel_shape=(2, 1, 1, 8), shared_layout="NHWC",
                      input_strides=(999, 40, 10, 1))  # fmt: skip
    b = ConvSignature(input_shape=(1, 4, 4, 8), kernel_shape=(2, 1, 1, 8), shared_layout="NHWC",
                      input_strides=(7, 40, 10, 1))  # fmt: skip
    assert a == b
    assert a.input_strides == (160, 40, 10, 1)


def test_padding_in_words_is_pytorchs_and_keras():
    generator = torch.Generator().manual_seed(1)
    for taps, dilation in ((4, 1), (5, 2), (2, 3), (1, 4)):
        x, w = (torch.randn(s, generator=generator, dtype=torch.float64) for s in ((2, 3, 17), (4, 3, taps)))
        for word in ("same", "valid"):
            sig = ConvSignature(x.shape, w.shape, padding=word, dilation=dilation, dtype="fp64")
            want = torch.nn.functional.conv1d(x, w, padding=word, dilation=dilation)
            assert sig.output_logical == tuple(want.shape)
            torch.testing.assert_close(convolved(sig, x, w), want)
        # Keras: position t sees positions up to t * stride alone.
        for stride in (1, 2, 3):
            sig = ConvSignature(x.shape, w.shape, padding="causal", dilation=dilation, stride=stride, dtype="fp64")
            assert sig.output_logical == (2, 4, -(-17 // stride))
            left = torch.nn.functional.pad(x, (dilation * (taps - 1), 0))
            want = torch.nn.functional.conv1d(left, w, stride=stride, dilation=dilation)
            torch.testing.assert_close(convolved(sig, x, w), want)
    assert ConvSignature((2, 3, 9, 9), (4, 3, 4, 5), padding="same").padding == ((1, 2), (2, 2))
    assert ConvSignature((2, 3, 9, 9), (4, 3, 3, 5), padding="same").padding == (1, 2)
    assert ConvSignature((2, 3, 9), (4, 3, 3), padding=((1, 2),)).padding == ((1, 2),)
    with pytest.raises(ProblemError, match=r"type padding=\(\(1, 2\),\)"):
        ConvSignature((2, 3, 9), (4, 3, 3), padding=(1, 2))


def test_padding_that_no_tap_reaches_names_no_other_problem():
    """Only what is read counts: low, and the output's size. Where equal sides give it, the key has version 1."""

    def key(padding, stride=2, size=9):
        return ConvSignature((1, 4, size), (4, 4, 3), stride=stride, padding=padding).key()

    assert key(((1, 2),)) == key(((1, 1),)) == key(1)
    assert key(1).startswith("conv1;")
    assert key(((1, 3),)) == key(((1, 4),)) != key(1)
    assert key(((1, 3),)).startswith("conv2;")
    assert key(((1, 3),)).endswith(";acc=fp32;padhi=0x3")
    assert key(((0, 1),)) == key(0)
    assert key(((3, 0),), size=8) == key(((3, 1),), size=8) != key(3, size=8)
    # A single output position has no stride.
    assert key(((0, 2),), 9, 3) == key(0, 1, 3)
    assert key(((0, 1),), 1, 2) == key(((0, 1),), 5, 2)


def test_names_that_users_bring():
    sig = ConvSignature(input_shape=[2, 16, 32, 3], kernel_shape=[10, 2, 2, 3], shared_layout="NHWC", mode="wrw")
    assert [a.shape for a in sig.get_sample_args()] == [(2, 15, 31, 10), (2, 16, 32, 3)]
    assert ConvSignature(input_shape=(2, 3, 9), kernel_shape=(4, 3, 3), shared_layout="NCH").input_layout == "NCW"
    assert ConvSignature((1, 1, 4, 4), (1, 1, 1, 1), dtype=torch.bfloat16).input_dtype == "bf16"
    assert ConvSignature(torch.Size((1, 1, 4, 4)), np.array((1, 1, 1, 1)), stride=np.int64(2)).stride == (2, 2)
    assert ConvSignature((1, 4, 4, 1), (1, 1, 1, 1), shared_layout="nchw", input_layout="NHWC").input_layout == "NHWC"
    int8 = ConvSignature((1, 4, 4, 4), (4, 4, 1, 1), dtype="int8", mode="bwd")
    assert (int8.input_dtype, int8.kernel_dtype, int8.output_dtype) == ("int32", "int8", "int8")


GOOD = {"input_shape": (2, 4, 8, 8), "kernel_shape": (6, 4, 3, 3)}


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        ({"input_shape": (2, 4)}, "has 2 axes"),
        ({"input_shape": (2, 4, 8, 8, 8, 8)}, "has 6 axes"),
        ({"input_shape": 7}, "sequence of integers"),
        ({"input_shape": "2488"}, "sequence of integers"),
        ({"input_shape": (2, 4, 8, 8.0)}, "8.0"),
        ({"input_shape": (2, 4, 8, True)}, "True"),
        ({"input_shape": (2, 4, 8, np.True_)}, "True"),
        ({"input_shape": (2, 4, 8, float("nan"))}, "nan"),
        ({"input_shape": (2, 4, 0, 8)}, "got 0"),
        ({"input_shape": (2, 4, 2**31, 8)}, "2147483648"),
        ({"input_shape": (2**31 - 1, 4, 2**31 - 1, 8)}, "spans"),
        ({"input_shape": (2, 4, 10**30, 8)}, "2^31-1"),
        ({"kernel_shape": (6, 4, 3)}, "has 3 axes"),
        ({"kernel_shape": (6, 3, 3, 3)}, "the input has 4 channels"),
        ({"kernel_shape": (6, 4, 9, 3)}, "wider than the padded input 8"),
        ({"stride": 0}, "stride must be an integer from 1"),
        ({"stride": (1, 2, 3)}, "3 values"),
        ({"stride": 1.5}, "1.5"),
        ({"stride": "2"}, "stride"),
        ({"padding": -1}, "padding must be an integer from 0"),
        ({"padding": (1, 2, 3)}, "3 values"),
        ({"padding": ((1, 2), (3,))}, "(3,) of an axis has 1 values"),
        ({"padding": ((1, 2), (0, -1))}, "got -1"),
        ({"padding": "SAME"}, "type padding='same'"),
        ({"padding": " 1 "}, "type padding=1"),
        ({"padding": "full"}, "'valid', 'same', 'causal'"),
        ({"padding": "same", "stride": 2}, "type padding=((0, 1), (0, 1))"),
        ({"padding": "causal"}, "one spatial axis, the problem has 2"),
        ({"padding": "same", "transposed": True, "kernel_shape": (4, 6, 3, 3)}, "transposed=False"),
        ({"kernel_shape": (6, 4, 9, 12), "padding": ((1, 0), (1, 2))}, "input 8 + 1 + 2"),
        ({"dilation": 4}, "reach 9"),
        ({"dilation": 2**31 - 1}, "wider"),
        ({"groups": 3}, "groups 3 does not divide the 4"),
        ({"groups": 4, "kernel_shape": (6, 1, 3, 3)}, "groups 4 does not divide the 6"),
        ({"groups": 0}, "groups"),
        ({"groups": True}, "groups"),
        ({"transposed": 1}, "transposed must be True or False"),
        ({"output_padding": 1}, "transposed=True"),
        ({"transposed": True, "kernel_shape": (4, 6, 3, 3), "output_padding": 1}, "smaller than the stride 1"),
        ({"transposed": True, "kernel_shape": (4, 6, 3, 3), "padding": 5}, "output size 0"),
        ({"mode": "forward"}, "'forward'"),
        ({"dtype": "float31"}, "'float31'"),
        ({"dtype": None}, "'None'"),
        ({"acc_dtype": "bf16"}, "fp32, fp64 or tf32"),
        ({"acc_dtype": "tf32", "output_dtype": "bf16"}, "'tf32' goes with fp32 tensors, got fp32, fp32, bf16"),
        ({"input_dtype": "tf32"}, "'tf32' does not exist"),
        ({"dtype": "fp64", "acc_dtype": "fp32"}, "narrower"),
        ({"dtype": "int8", "mode": "wrw"}, "int8 x int8"),
        ({"dtype": "int8", "output_dtype": "fp32"}, "int8 x int8"),
        ({"dtype": "int32"}, "int8 x int8"),
        ({"dtype": "int8", "epilogue": Epilogue(activation="gelu")}, "floating-point"),
        ({"shared_layout": "NHCC"}, "'NHCC'"),
        ({"shared_layout": "NDHWC"}, "5"),
        ({"input_layout": "NCHWc4"}, "axes"),
        ({"input_layout": "NCHWc5"}, "vector width 5"),
        ({"input_layout": "NHWC", "kernel_layout": "NDHWC"}, "3 spatial axes"),
        ({"input_strides": (1, 2, 3)}, "3 values"),
        ({"input_strides": (256, 64, 8, 0)}, "got 0"),
        ({"input_strides": (256, 64, 7, 1)}, "overlap"),
        ({"output_strides": (2**63, 36, 6, 1)}, "2^62"),
        ({"mode": "wrw", "epilogue": Epilogue(bias=True)}, "epilogue goes with"),
        ({"epilogue": "relu"}, "must be an Epilogue"),
        ({"deterministic": None}, "deterministic"),
    ],
)
def test_rules(changes, needs):
    with pytest.raises(ProblemError) as caught:
        ConvSignature(**(GOOD | changes))
    assert needs in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [{"bias": 1}, {"activation": "mish"}, {"activation": "clamp", "low": 1.0, "high": 0.0}, {"low": float("nan"),
     "activation": "clamp"}, {"slope": "x"}, {"activation": "leaky_relu", "slope": float("nan")}, {"high": 10**400}],
)  # fmt: skip
def test_epilogue_rules(changes):
    with pytest.raises(ProblemError):
        Epilogue(**changes)


def test_epilogues_that_read_the_same_are_equal():
    assert Epilogue(slope=3) == Epilogue()
    assert Epilogue(activation="clamp", low=0, high=6) == Epilogue(activation="clamp", low=-0.0)
