"""What a wrong call is told: the value, the rule, and what to type."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilesmith import CachePopulator, ConvSignature, Epilogue, conv, gemm, get_launchable, host_target
from tilesmith.dispatch.locations import open_databases
from tilesmith.errors import ArgumentError, CommandError, ProblemError, TargetError
from tilesmith.problems.driver import parse_command
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.tune.session import tune

X, W = np.ones((2, 4, 7, 6), np.float32), np.ones((5, 4, 3, 3), np.float32)
TX, TW = torch.ones(2, 4, 7, 6), torch.ones(5, 4, 3, 3)
SIGNATURE = ConvSignature((2, 4, 7, 6), (5, 4, 3, 3))


def launch(*tensors, **options):
    return get_launchable(SIGNATURE)(*tensors, **options)


CASES = {
    "padding same, strided": (
        lambda: conv(X, W, padding="same", stride=2),
        ProblemError,
        r"padding 'same' goes with stride 1, got \(2, 2\); .*type padding=\(\(",
    ),
    "padding in capitals": (lambda: conv(X, W, padding="SAME"), ProblemError, "type padding='same'$"),
    "padding text": (lambda: conv(X, W, padding="1"), ProblemError, "padding '1' does not exist; .*type padding=1$"),
    "padding causal": (lambda: conv(X, W, padding="causal"), ProblemError, "one spatial axis, the problem has 2"),
    "stride text": (lambda: conv(X, W, stride="2"), ProblemError, "stride '2' is text; .*type stride=2$"),
    "dilation text": (lambda: conv(X, W, dilation="two"), ProblemError, "dilation 'two' is text; "),
    "too many": (
        lambda: conv(X, W, padding=(1, 1, 1)),
        ProblemError,
        "3 values, the problem has 2 spatial axes; give one value",
    ),
    "relu6": (
        lambda: conv(X, W, activation="relu6"),
        ProblemError,
        r"'relu6' does not exist; type activation='clamp', low=0.0, high=6.0$",
    ),
    "hardtanh": (
        lambda: conv(X, W, activation="hardtanh"),
        ProblemError,
        "type activation='clamp', low=-1.0, high=1.0$",
    ),
    "swish": (lambda: conv(X, W, activation="swish"), ProblemError, "type activation='silu'$"),
    "upper case": (lambda: conv(X, W, activation="ReLU"), ProblemError, "type activation='relu'$"),
    "no activation": (lambda: conv(X, W, activation=None), ProblemError, "type activation='none'$"),
    "module": (lambda: Epilogue(activation=torch.nn.LeakyReLU(0.1)), ProblemError, "type activation='leaky_relu'$"),
    "gelu of tanh": (
        lambda: Epilogue(activation=torch.nn.GELU(approximate="tanh")),
        ProblemError,
        "type activation='gelu_tanh'$",
    ),
    "hard swish": (lambda: conv(X, W, activation="Hard_Swish"), ProblemError, "type activation='hardswish'$"),
    "mish": (lambda: conv(X, W, activation="mish"), ProblemError, "'mish' does not exist; known: none, relu, "),
    "two precisions": (
        lambda: conv(X, W.astype(np.float64)),
        ArgumentError,
        r"x has dtype fp32, w has dtype fp64: they must be equal; type w.astype\(np.float32\)$",
    ),
    "two precisions of PyTorch": (
        lambda: gemm(TX[0, 0], TX[0, 0].T.double()),
        ArgumentError,
        r"a .*fp32, b .*fp64.*; type b.to\(torch.float32\)$",
    ),
    "launchable, two precisions": (
        lambda: launch(X, W.astype(np.float64)),
        ArgumentError,
        r"w must have dtype float32, got float64; " r"type w.astype\(np.float32\)$",
    ),
    "launchable, two precisions of PyTorch": (
        lambda: launch(TX.double(), TW),
        ArgumentError,
        r"x must .*float32, got float64; type x.to\(torch.float32\)$",
    ),
    "big-endian": (
        lambda: conv(X.astype(">f4"), W),
        ArgumentError,
        r"x is big-endian \(>f4\).*type x.astype\(x.dtype.newbyteorder\('='\)\)$",
    ),
    "launchable, big-endian": (
        lambda: launch(X, W.astype(">f4")),
        ArgumentError,
        r"w is big-endian \(>f4\).*type w.astype\(w.dtype.newbyteorder\('='\)\)$",
    ),
    "uint8": (
        lambda: conv(X.astype(np.uint8), W),
        ArgumentError,
        r"x has dtype uint8; known: .*type x.astype\(np.float32\)",
    ),
    "bool": (lambda: conv(TX.bool(), TW), ArgumentError, r"torch.bool; known: .*type x.to\(torch.float32\)"),
    "quantised": (
        lambda: conv(torch.quantize_per_tensor(TX, 1.0, 0, torch.qint8), TW),
        ArgumentError,
        r"type x.dequantize\(\)$",
    ),
    "sparse": (lambda: conv(TX.to_sparse(), TW), ArgumentError, r"type x.to_dense\(\)$"),
    "two kinds": (
        lambda: conv(TX, W),
        ArgumentError,
        r"x is a PyTorch tensor, w is a NumPy array: .*type torch.from_numpy\(w\)$",
    ),
    "two kinds, the bias": (
        lambda: conv(X, W, torch.ones(5)),
        ArgumentError,
        r"b is a PyTorch tensor: .*type b.numpy\(\)$",
    ),
    "launchable, two kinds": (lambda: launch(X, TW), ArgumentError, r"w is a PyTorch tensor: .*type w.numpy\(\)$"),
    "no batch": (
        lambda: conv(X[0], W),
        ArgumentError,
        r"x \(4, 7, 6\) has 3 axes, w \(5, 4, 3, 3\) has 4.*type x\[None\]$",
    ),
    "channels last, not named": (
        lambda: conv(X.transpose(0, 2, 3, 1), W.transpose(0, 2, 3, 1)),
        ProblemError,
        "is 3, the input has 7 channels; axes are read as NCHW, .*shared_layout=",
    ),
    "memory format": (
        lambda: conv(X, W, shared_layout=torch.channels_last),
        ProblemError,
        "layout torch.channels_last .*type 'NHWC'$",
    ),
    "batch of one": (
        lambda: gemm(np.ones((2, 3, 4), np.float32), np.ones((4, 5), np.float32)),
        ArgumentError,
        r"type np.broadcast_to\(b, \(2, 4, 5\)\)$",
    ),
    "batch of one of PyTorch": (
        lambda: gemm(torch.ones(3, 4), torch.ones(2, 4, 5)),
        ArgumentError,
        r"type a.expand\(2, 3, 4\)$",
    ),
    "no c": (
        lambda: gemm(X[0, 0], X[0, 0].T, beta=1.0),
        ArgumentError,
        "beta is 1.0, and no c is given; pass c, or beta=0",
    ),
    "strides": (
        lambda: launch(X.transpose(0, 1, 3, 2).copy().transpose(0, 1, 3, 2), W),
        ArgumentError,
        r"x must have strides .*type np.ascontiguousarray\(x\)$",
    ),
    "strides of PyTorch": (
        lambda: launch(TX.to(memory_format=torch.channels_last), TW),
        ArgumentError,
        r"type x.contiguous\(\)$",
    ),
    "out": (lambda: launch(X, W, out=X), ArgumentError, r"^out must have shape \(2, 5, 5, 4\), got \(2, 4, 7, 6\)"),
    "threads": (lambda: conv(X, W, threads=0), TargetError, "^threads 0 is not an integer from 1 to"),
    "threads, not whole": (
        lambda: get_launchable(SIGNATURE, threads=1.5),
        TargetError,
        "^threads 1.5 is not an integer",
    ),
    "device 0": (lambda: get_launchable(SIGNATURE, device=0), TargetError, "device 0 does not exist; .*cuda:1"),
    "no device": (lambda: get_launchable(SIGNATURE, device=""), TargetError, "device '' does not exist; .*cuda:1"),
    "target": (lambda: get_launchable(SIGNATURE, target="zen"), TargetError, "'zen' does not exist; known: x86_64"),
    "target of another kind": (lambda: get_launchable(SIGNATURE, target=5), TargetError, "target 5 .*x86_64-v4:2"),
    "pad_val": (
        lambda: parse_command("conv -r 1"),
        CommandError,
        r"--pad_val \(-r\) 1 is not supported: .*type -r 0, or leave it out",
    ),
    "pad_h same": (lambda: parse_command("conv -p same"), CommandError, r"--pad_h \(-p\) 'same' .*type -z same$"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_call_is_told_what_to_type(case):
    call, kind, words = CASES[case]
    with pytest.raises(kind, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_what_the_words_say_to_type_works():
    same = torch.nn.functional.conv2d(TX, TW, padding="same", dilation=(2, 1))
    for padding in ("same", (2, 1), [[2, 2], [1, 1]]):
        assert torch.allclose(conv(TX, TW, padding=padding, dilation=(2, 1)), same)
    even = torch.nn.functional.conv2d(TX, TW[..., :2], padding="same")
    for padding in ("same", ((1, 1), (0, 1))):
        assert torch.allclose(conv(TX, TW[..., :2], padding=padding), even)
    assert np.array_equal(conv(X, W, activation="clamp", low=0.0, high=6.0), np.clip(conv(X, W), 0, 6))
    swapped = X.astype(">f4")
    assert np.array_equal(conv(swapped.astype(swapped.dtype.newbyteorder("=")), W), conv(X, W))
    a, b = np.ones((2, 3, 4), np.float32), np.ones((4, 5), np.float32)
    assert gemm(a, np.broadcast_to(b, (2, 4, 5))).shape == (2, 3, 5)


def test_a_target_may_be_text_wherever_a_target_is_taken(tmp_path, monkeypatch):
    name = host_target(1).name
    arch = name.partition(":")[0]
    found = get_launchable(SIGNATURE, target=name)
    assert found.target.name == name
    assert get_launchable(SIGNATURE, target=f"{arch}:2").target.cores == 2
    other = "aarch64:4" if arch.startswith("x86") else "x86_64-v2:4"
    with pytest.raises(TargetError, match=f"target {other}:generic does not run on this machine"):
        get_launchable(SIGNATURE, target=other)
    populator = CachePopulator(signatures=[SIGNATURE], devices=[""], target=other, out=tmp_path)
    populator.run()
    assert populator.get_failures() == {}
    database, cache = open_databases(tmp_path / "t.db").writable, ArtifactCache(tmp_path)
    result = tune(SIGNATURE, name, database=database, cache=cache, strategy="defaults", max_trials=1)
    assert result.target == name


def test_a_device_of_pytorch_is_a_device():
    assert get_launchable(SIGNATURE, device=torch.device("cpu")).target.family == "cpu"
