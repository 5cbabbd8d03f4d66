"""Axes of size 1: their strides say nothing of memory, and decide only in which order PyTorch lays a result."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tilesmith import ConvSignature, conv, get_launchable
from tilesmith.dispatch import eager, kept_calls
from tilesmith.dispatch.launchable import forget_launchables
from tilesmith.dispatch.locations import open_databases
from tilesmith.problems.driver import parse_command
from tilesmith.problems.spellings import other_spellings
from tilesmith.torch_ops.trace import Trace


@pytest.fixture
def asked(monkeypatch):
    """The problems that ``conv`` asks for."""
    seen = []
    real = eager.get_launchable

    def watched(signature, **options):
        seen.append(signature)
        return real(signature, **options)

    monkeypatch.setattr(eager, "get_launchable", watched)
    return seen


def last(tensor):
    """The tensor channels-last, its unit axes too."""
    n, c, *sizes = tensor.shape
    steps = [c * int(np.prod(sizes[axis + 1 :])) for axis in range(len(sizes))]
    found = torch.empty_strided(tensor.shape, (c * int(np.prod(sizes)), 1, *steps), dtype=tensor.dtype)
    found.copy_(tensor)
    return found


def wild(tensor, rng):
    """The same memory with any strides for unit axes."""
    strides = [rng.choice([1, 2, 7, 1000]) if n == 1 else s for n, s in zip(tensor.shape, tensor.stride(), strict=True)]
    return tensor.as_strided(tensor.shape, strides)


def part(tensor, rng):
    """One of two in some axis of a larger tensor: an axis of size 1 with a stride that is not a dense one's."""
    for axis in range(tensor.dim()):
        if tensor.shape[axis] == 1 and rng.random() < 0.5:
            tensor = torch.cat([tensor, tensor + 1], axis)
            tensor = (last(tensor) if rng.random() < 0.5 else tensor).narrow(axis, 0, 1)
    return tensor


def turned(tensor, rng):
    """The axes in any order of memory."""
    order = rng.sample(range(tensor.dim()), tensor.dim())
    return tensor.permute(order).contiguous().permute([order.index(axis) for axis in range(tensor.dim())])


def laid(tensor, kind, rng):
    return {"first": lambda: tensor, "last": lambda: last(tensor), "wild": lambda: wild(tensor, rng),
            "part": lambda: part(tensor, rng), "turned": lambda: turned(tensor, rng)}[kind]()  # fmt: skip


def test_the_reported_cases():
    x, w = (torch.randn(s).to(memory_format=torch.channels_last) for s in ((8, 1, 28, 28), (16, 1, 3, 3)))
    for _ in range(3):
        y, want = conv(x, w, padding=1), F.conv2d(x, w, padding=1)
        assert y.stride() == want.stride()
        assert y.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(y, want, atol=1e-4, rtol=1e-4)
        plain = conv(x.contiguous(), w.contiguous(), padding=1)  # the same memory, and PyTorch's order for it
        assert plain.stride() == F.conv2d(x.contiguous(), w.contiguous(), padding=1).stride()
    x, w = (torch.randn(s).to(memory_format=torch.channels_last) for s in ((4, 6, 1, 7), (8, 6, 3, 3)))
    assert conv(x, w, padding=(2, 1)).stride() == F.conv2d(x, w, padding=(2, 1)).stride()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_results_lie_as_pytorchs_do(dims, transposed, monkeypatch):
    """Over shapes with unit axes, each operand in its own order.

    bf16: in three dimensions PyTorch's choice for fp32 and fp64 depends on the batch too, and that for bf16 is another
    one where oneDNN has no bf16: numbers alone are compared there; and of several images of one number, which it
    copies before it looks at their strides. With one dimension PyTorch knows no channels-last tensors. Its numbers are
    no reference: conv3d of (4, 1, 1, 1, 4) is zeros in PyTorch 2.13 where oneDNN multiplies tiles with two threads.
    """
    like_bf16 = dims < 3 or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    monkeypatch.setenv("TILESMITH_ONLY_SOLVER", "c_reference")
    rng = random.Random(f"{dims} {transposed}")
    op = getattr(F, f"conv{'_transpose' if transposed else ''}{dims}d")
    kinds = ("first", "last", "wild", "part") if dims > 1 else ("first",)
    for _ in range(60 if dims == 2 else 20):
        n, c, k = (rng.choice([1, 1, 3, 4]) for _ in range(3))
        size, taps = ([rng.choice([1, 1, most - 1, most]) for _ in range(dims)] for most in (5, 3))
        padding = 0 if transposed else 1
        x = laid(torch.randn(n, c, *size).bfloat16(), rng.choice((*kinds, "turned")), rng)
        w = torch.randn(*((c, k) if transposed else (k, c)), *taps).bfloat16()
        w = laid(w, rng.choice(kinds), rng)
        if not transposed and any(s + 2 < t for s, t in zip(size, taps, strict=True)):
            continue
        want, truth = op(x, w, padding=padding), op(x.double(), w.double(), padding=padding)
        for _ in range(1 + (dims == 2)):
            y = conv(x, w, padding=padding, transposed=transposed, mode="fast")
            lies_alike = like_bf16 and (n == 1 or x.numel() > n)
            told = f"x {tuple(x.shape)} {x.stride()}, w {tuple(w.shape)} {w.stride()}"
            assert y.stride() == want.stride() or not lies_alike, told
            assert torch.allclose(y.double(), truth, atol=0.05, rtol=0.01), told


def test_one_key_however_unit_axes_lie(asked):
    rng = random.Random(3)
    for shape, filter_ in (
        ((4, 64, 1, 100), (8, 64, 1, 3)), ((8, 1, 9, 7), (16, 1, 3, 3)), ((2, 16, 1, 1), (8, 16, 1, 1)),
        ((1, 16, 5, 5), (8, 16, 1, 1)), ((1, 8, 1, 6, 5), (4, 8, 1, 3, 3)),
    ):  # fmt: skip
        x, w = last(torch.randn(shape)), last(torch.randn(filter_))
        keys = set()
        for some in (x, *(wild(x, rng) for _ in range(5))):  # PyTorch does not take all of them for channels-last
            asked.clear()
            kept_calls.forget()
            y = conv(some, wild(w, rng), mode="fast")
            order = "N" + "DHW"[-(len(shape) - 2) :] + "C"
            if all(n == 1 or s == t for n, s, t in zip(y.shape, y.stride(), last(y).stride(), strict=True)):
                keys.add(asked[0].key())
                assert {asked[0].input_layout, asked[0].kernel_layout, asked[0].output_layout} == {order}
        assert len(keys) == 1


@pytest.mark.parametrize(
    ("x", "w", "padding", "command"),
    [
        ((4, 64, 1, 100), (64, 64, 1, 3), (0, 1), "conv -n 4 -c 64 -H 1 -W 100 -k 64 -y 1 -x 3 -p 0 -q 1"),
        ((4, 1, 9, 9), (8, 1, 3, 3), (1, 1), "conv -n 4 -c 1 -H 9 -W 9 -k 8 -y 3 -x 3 -p 1 -q 1"),
        ((2, 16, 6, 6), (8, 16, 1, 1), (0, 0), "conv -n 2 -c 16 -H 6 -W 6 -k 8 -y 1 -x 1 -p 0 -q 0"),
    ],
)
def test_what_was_tuned_for_nhwc_is_hit_by_channels_last_tensors(asked, x, w, padding, command):
    ((_, signature),) = parse_command(f"{command} -F 1 -I NHWC -f NHWC -O NHWC").signatures
    get_launchable(signature, mode="hybrid")
    forget_launchables()
    x, w = last(torch.randn(x)), last(torch.randn(w))
    y = conv(x, w, padding=padding, mode="strict")
    assert y.stride() == F.conv2d(x, w, padding=padding).stride()
    assert asked[-1].key() == signature.key()
    with Trace() as trace:
        F.conv2d(x, w, padding=padding)
    assert [met.key() for met in trace.problems] == [signature.key()]


# What databases may hold of one problem on one memory: as commands name it, and as arrays were once named.
SAME = [
    (
        ConvSignature((4, 1, 100, 64), (8, 1, 3, 64), shared_layout="NHWC"),
        ConvSignature((4, 100, 1, 64), (8, 3, 1, 64), shared_layout="NWHC"),
    ),
    (
        ConvSignature((2, 6, 6, 16), (8, 1, 1, 16), shared_layout="NHWC"),
        ConvSignature((2, 6, 6, 16), (8, 16, 1, 1), shared_layout="NHWC", kernel_layout="NCHW"),
    ),
    (
        ConvSignature((4, 1, 1, 16), (8, 1, 1, 16), shared_layout="NHWC"),
        ConvSignature((4, 16, 1, 1), (8, 16, 1, 1), shared_layout="NCHW"),
    ),
]


MODES = ("fast", "hybrid", "strict", "trust_verify")


@pytest.mark.parametrize(
    ("one", "other", "modes"), [(*SAME[0], MODES), *((one, other, ("strict",)) for one, other in SAME[1:]),
                                *((other, one, ("strict",)) for one, other in SAME)],
)  # fmt: skip
def test_a_record_under_another_key_of_the_problem_is_found(one, other, modes):
    assert one.key() != other.key()
    made = get_launchable(other, mode="hybrid")
    x, w = one.get_sample_args(seed=1)
    want = made(x.reshape(other.input_shape), w.reshape(other.kernel_shape)).ravel()
    for mode in modes:
        forget_launchables()
        found = get_launchable(one, mode=mode)
        assert (found.choice.basis, found.solver, found.config) == ("database", made.solver, made.config)
        np.testing.assert_array_equal(found(x, w).ravel(), want)


def test_a_problems_own_record_comes_first():
    one, other = SAME[2]
    made = get_launchable(one, mode="hybrid")
    database = open_databases().writable
    (record, *_) = database.ranking(one.key(), made.target.name)
    database.put_result(replace(record, problem=other.key(), solver="c_reference", config="", time_us=1e-3))
    forget_launchables()
    assert get_launchable(one, mode="hybrid").solver == made.solver


def test_other_spellings_are_the_same_memory():
    for one, other in SAME:
        assert one in [each.canonical for each in (*other_spellings(other), one)]
        assert other.canonical in other_spellings(one)
        for each in (*other_spellings(one), *other_spellings(other)):
            assert each.output_logical == one.output_logical
    assert other_spellings(ConvSignature((2, 8, 7, 6), (4, 8, 3, 3))) == ()
