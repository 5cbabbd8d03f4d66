"""Calls: what they take, what they return, and what they say about anything else."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import torch
from kernels import PACKED, SCALE, depthwise, kernel, launch, load, scaled, slot, squared

from tilesmith.errors import ArgumentError, LaunchError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature

RNG = np.random.default_rng(3)


def numbers(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def tensor(*shape):
    return torch.from_numpy(numbers(*shape))


@pytest.fixture
def bound():
    sig, executable = scaled(5)
    return executable.bind(sig)


@pytest.mark.parametrize("make", [numbers, tensor])
def test_call_returns_its_arguments_kind(bound, make):
    x, w = make(5, 1, 1, 1), make(1, 1, 1, 1)
    y = bound(x, w)
    assert type(y) is type(x)
    assert y.dtype == x.dtype
    assert np.array_equal(y, x * w)
    out = make(5, 1, 1, 1)
    assert bound(x, w, out=out) is out
    assert np.array_equal(out, x * w)
    assert np.array_equal(bound(x, w, out=None), x * w)
    assert np.array_equal(bound.prepare(w)(x), x * w)
    assert np.array_equal(bound.prepare(w)(x, out=out), x * w)


def test_read_only_unwritable_and_memmap_inputs(bound, tmp_path):
    x, w = numbers(5, 1, 1, 1), numbers(1, 1, 1, 1)
    x.flags.writeable = False
    mapped = np.memmap(tmp_path / "w", np.float32, "w+", shape=(1, 1, 1, 1))
    mapped[:] = w
    y = bound(x, mapped)
    assert type(y) is np.ndarray
    assert np.array_equal(y, x * w)


def test_parameters_and_grad(bound):
    w = torch.nn.Parameter(tensor(1, 1, 1, 1))
    x = tensor(5, 1, 1, 1).requires_grad_()
    y = bound(x, w)
    assert type(y) is torch.Tensor
    assert not y.requires_grad
    assert torch.equal(y, (x * w).detach())


class Odd:
    """No tensor, and it answers nothing."""

    def __getattr__(self, name):
        raise RuntimeError("no")


def test_whatever_is_given_is_refused_in_one_line(bound):
    x, w = numbers(5, 1, 1, 1), numbers(1, 1, 1, 1)
    t, u = torch.from_numpy(x), torch.from_numpy(w)
    swapped = x.astype(">f4")
    shifted = np.frombuffer(b"\0" * 21, np.uint8)[1:].view(np.float32).reshape(5, 1, 1, 1)
    with torch.no_grad():
        fake = [
            (torch.empty(5, 1, 1, 1, device="meta"), "device meta"),
            (t.to_sparse(), "plain strided"),
            (t.double(), "dtype float32, got float64"),
            (t.bfloat16(), "got bfloat16"),
            (t.repeat(1, 1, 1, 2)[..., :1], r"strides \(1, 1, 1, 1\) \(in elements\), got \(2, 2, 2, 1\)"),
            (torch._neg_view(t), "resolve_neg"),
            (t.to_mkldnn(), "plain strided"),
            (t[:4], "shape"),
            (t.reshape(5), r"shape \(5, 1, 1, 1\), got \(5,\)"),
            (t[0, 0, 0, 0], r"got \(\)"),
        ]
    cases = [
        *(
            (value, "PyTorch CPU tensor, got")
            for value in (None, 1, 2.5, "x", b"x", [1.0], (), {}, object(), Odd(), bound)
        ),
        *((value, "PyTorch CPU tensor, got") for value in (np.float32(1), memoryview(x), np.ndarray, torch.Tensor)),
        (swapped, r"big-endian \(>f4\)"),
        (x.astype(np.float64), "got float64"),
        (np.zeros((5, 1, 1, 1), object), "got object"),
        (np.zeros((5, 1, 1, 1), [("a", np.float32)]), "dtype float32"),
        (np.zeros((5, 1, 1, 1), "M8[s]"), "datetime64"),
        (np.zeros((), np.float32), r"got \(\)"),
        (np.zeros((0, 1, 1, 1), np.float32), "shape"),
        (np.zeros((5, 1, 1), np.float32), "shape"),
        (np.zeros((5, 1, 1, 2), np.float32)[..., :1], "strides"),
        (x[::-1], r"got \(-1, 1, 1, 1\)"),
        (np.broadcast_to(x[:1], x.shape), r"got \(0, 0, 0, 0\)|got \(0, 1, 1, 1\)"),
        (shifted, "aligned to its elements of 4 bytes"),
        (np.ma.masked_array(x.astype(np.float16)), "float16"),
        (np.ma.masked_array(x), "has a mask"),
        (np.ma.masked_array(x, x > 0), r"pass numpy.ma.filled\(...\)"),
    ]
    for value, words in cases:
        with pytest.raises(ArgumentError, match=words) as caught:
            bound(value, w)
        assert "\n" not in str(caught.value)
        with pytest.raises(ArgumentError):
            bound(x, value)
        with pytest.raises(ArgumentError):
            bound.prepare(value)
        if value is not None:
            with pytest.raises(ArgumentError):
                bound(x, w, out=value)
    for value, words in fake:
        with pytest.raises(ArgumentError, match=words) as caught:
            bound(value, u)
        assert "\n" not in str(caught.value)
        with pytest.raises(ArgumentError):
            bound(t, u, out=value)


def test_counts_keywords_and_kinds(bound):
    x, w = numbers(5, 1, 1, 1), numbers(1, 1, 1, 1)
    for arguments in ((), (x,), (x, w, w)):
        with pytest.raises(ArgumentError, match=rf"takes 2 tensors \(x, w\), got {len(arguments)}"):
            bound(*arguments)
    with pytest.raises(ArgumentError, match=r"takes 1 tensors \(x\), got 2"):
        bound.prepare(w)(x, w)
    with pytest.raises(ArgumentError, match="keyword 'ot'"):
        bound(x, w, ot=x)
    with pytest.raises(ArgumentError, match="one kind"):
        bound(x, torch.from_numpy(w))
    for arguments in ((), (w, w)):
        with pytest.raises(ArgumentError, match="prepare takes the filter alone"):
            bound.prepare(*arguments)
    with pytest.raises(ArgumentError, match="at most, where to pack it"):
        bound.pack(w, w, w)
    with pytest.raises(ArgumentError, match="no filter that this plan has packed"):
        bound.pack(w, w)
    with pytest.raises(TypeError):
        type(bound)()
    with pytest.raises(TypeError):
        type(bound.prepare(w))()


def test_result_must_have_memory_of_its_own(bound):
    w = numbers(1, 1, 1, 1)
    x = numbers(5, 1, 1, 1)
    with pytest.raises(ArgumentError, match="out overlaps x"):
        bound(x, w, out=x)
    memory = numbers(9)
    with pytest.raises(ArgumentError, match="out overlaps x"):
        bound(memory[:5].reshape(5, 1, 1, 1), w, out=memory[4:].reshape(5, 1, 1, 1))
    read_only = numbers(5, 1, 1, 1)
    read_only.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        bound(x, w, out=read_only)


@pytest.mark.parametrize("make", [numbers, tensor])
def test_a_result_over_the_residual(make):
    """Where the plan says that each element is read before it is written, and at the very same place."""
    sig = replace(depthwise(5), epilogue=Epilogue(residual=True))
    add = kernel(
        "ts_addz", "float *x = p[0], *z = p[1], *y = p[2]; for (; begin < end; begin++) y[begin] = x[begin] + z[begin];"
    )
    step = launch(0, add, 5, slot(0), slot(2), slot(3))
    bound = load(sig, [add], [step], in_place=True).bind(sig)
    x, w, z, memory = make(5, 1, 1, 1), make(1, 1, 1, 1), make(5, 1, 1, 1), make(6, 1, 1, 1)
    want = x + z
    assert bound.in_place
    assert bound.prepare(w).in_place
    assert bound(x, w, z, out=z) is z
    assert np.array_equal(z, want)
    assert np.array_equal(bound.prepare(w)(x, z, out=z), x + want)
    with pytest.raises(ArgumentError, match="out overlaps residual"):
        bound(x, w, memory[:5], out=memory[1:])
    with pytest.raises(ArgumentError, match="out overlaps x"):
        bound(x, w, z, out=x)
    silent = load(sig, [add], [step]).bind(sig)
    assert not silent.in_place
    with pytest.raises(ArgumentError, match="out overlaps residual"):
        silent(x, w, z, out=z)


def test_interleaved_memory_is_no_overlap():
    """Two channel ranges of one buffer: their bytes interleave, their elements do not meet."""
    sig = ConvSignature(
        input_shape=(3, 1, 1, 2), kernel_shape=(2, 1, 1, 2), shared_layout="NHWC",
        input_strides=(4, 4, 4, 1), output_strides=(4, 4, 4, 1),
    )  # fmt: skip
    copy = kernel(
        "ts_copy4",
        "const float *x = p[0]; float *y = p[1];"
        "for (i64 i = begin; i < end; i++) for (int c = 0; c < 2; c++) y[4*i+c] = x[4*i+c];",
    )
    bound = load(sig, [copy], [launch(0, copy, 3, slot(0), slot(2))]).bind(sig)
    memory, w = numbers(3, 1, 1, 4), numbers(2, 1, 1, 2)
    bound(memory[..., :2], w, out=memory[..., 2:])
    assert np.array_equal(memory[..., :2], memory[..., 2:])
    with pytest.raises(ArgumentError, match="out overlaps x"):
        bound(memory[..., :2], w, out=memory[..., 1:3])
    # A result that is allocated has the pitch, too.
    for x in (memory[..., :2], torch.from_numpy(memory)[..., :2]):
        y = bound(x, w if isinstance(x, np.ndarray) else torch.from_numpy(w))
        assert np.array_equal(y, x)
        steps = y.strides if isinstance(y, np.ndarray) else [4 * s for s in y.stride()]
        assert steps[0] == 16


DTYPES = {
    "fp64": (np.float64, torch.float64), "fp32": (np.float32, torch.float32), "fp16": (np.float16, torch.float16),
    "bf16": (ml_dtypes.bfloat16, torch.bfloat16), "fp8e4m3": (ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn),
    "fp8e5m2": (ml_dtypes.float8_e5m2, torch.float8_e5m2),
}  # fmt: skip


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype(name):
    numpy_type, torch_type = DTYPES[name]
    size = np.dtype(numpy_type).itemsize
    sig = ConvSignature(input_shape=(6, 1, 1, 1), kernel_shape=(1, 1, 1, 1), dtype=name)
    copy = kernel(f"ts_bytes{size}", f"__builtin_memcpy(p[1], p[0], end * {size});")
    bound = load(sig, [copy], [launch(0, copy, 6, slot(0), slot(2), chunk=6)]).bind(sig)
    x, w = numbers(6, 1, 1, 1).astype(numpy_type), numbers(1, 1, 1, 1).astype(numpy_type)
    y = bound(x, w)
    assert y.dtype == np.dtype(numpy_type)
    assert y.tobytes() == x.tobytes()
    t, u = (torch.from_numpy(a.view(np.uint8)).view(torch_type).reshape(a.shape) for a in (x, w))
    z = bound(t, u)
    assert z.dtype == torch_type
    assert torch.equal(z.view(torch.uint8), t.view(torch.uint8))
    for other, (other_numpy, other_torch) in DTYPES.items():
        if other != name:
            with pytest.raises(ArgumentError, match="dtype"):
                bound(np.zeros((6, 1, 1, 1), other_numpy), w)
            with pytest.raises(ArgumentError, match="dtype"):
                bound(torch.zeros(6, 1, 1, 1).to(other_torch), u)


def test_int8_gives_int32():
    sig = ConvSignature(input_shape=(6, 1, 1, 1), kernel_shape=(1, 1, 1, 1), dtype="int8")
    widen = kernel(
        "ts_widen", "const signed char *x = p[0]; int *y = p[1]; for (i64 i = begin; i < end; i++) y[i] = x[i];"
    )
    bound = load(sig, [widen], [launch(0, widen, 6, slot(0), slot(2))]).bind(sig)
    x = RNG.integers(-128, 128, (6, 1, 1, 1), np.int8)
    assert bound(x, x[:1].copy()).dtype == np.int32
    y = bound(torch.from_numpy(x), torch.from_numpy(x[:1].copy()))
    assert y.dtype == torch.int32
    assert np.array_equal(y, x)


class OldTorch:
    """What a tensor of a PyTorch without the exchange table offers."""

    def __init__(self, tensor, **changes):
        self._tensor, self._changes = tensor, changes

    def __getattr__(self, name):
        return self.__dict__["_changes"].get(name) or getattr(self.__dict__["_tensor"], name)

    def data_ptr(self):
        return self._tensor.data_ptr()

    def new_empty_strided(self, *args, **kwargs):
        return OldTorch(self._tensor.new_empty_strided(*args, **kwargs))

    def is_neg(self):
        return self._tensor.is_neg()


def test_a_pytorch_without_the_exchange_table(bound):
    x, w = tensor(5, 1, 1, 1), tensor(1, 1, 1, 1)
    y = bound(OldTorch(x), OldTorch(w))
    assert torch.equal(y._tensor, x * w)
    wrong = [
        (OldTorch(x.double()), "float64"),
        (OldTorch(x[:3]), "shape"),
        (OldTorch(x.repeat(1, 1, 1, 2)[..., :1]), "strides"),
        (OldTorch(torch.empty(5, 1, 1, 1, device="meta")), "device meta"),
        (OldTorch(x.to_sparse()), "plain strided"),
        (OldTorch(x, shape=7), "cannot be read"),
        (OldTorch(x, dtype="float32"), "no memory that can be read"),
    ]
    for value, words in wrong:
        with pytest.raises(ArgumentError, match=words):
            bound(value, OldTorch(w))


def test_gemm_begins_with_c():
    sig = GemmSignature(m=3, n=2, k=1, beta=1.0, ldc=5)
    add = kernel(
        "ts_addc",
        "const float *a = p[0], *b = p[1]; float *c = p[2];"
        "for (i64 i = begin; i < end; i++) for (int j = 0; j < 2; j++) c[5*i+j] += a[i] * b[j];",
    )
    bound = load(sig, [add], [launch(0, add, 3, slot(0), slot(1), slot(2))]).bind(sig)
    a, b, memory = numbers(3, 1), numbers(1, 2), numbers(3, 5)
    c, want = memory[:, :2], memory[:, :2] + a * b
    assert np.allclose(bound(a, b, c), want)
    assert np.allclose(bound.prepare(b)(a, c), want)
    other = np.full((3, 5), 7, np.float32)
    bound(a, b, c, out=other[:, :2])
    assert np.allclose(other[:, :2], want)
    assert np.all(other[:, 2:] == 7)  # the gaps of out belong to somebody else
    beyond = memory[:, 2:].copy()
    bound(a, b, c, out=c)  # in place
    assert np.allclose(c, want)
    assert np.array_equal(memory[:, 2:], beyond)
    with pytest.raises(ArgumentError, match="out overlaps c"):
        bound(a, b, c, out=memory[:, 1:3])
    with pytest.raises(ArgumentError, match=r"takes 3 tensors \(a, b, c\), got 2"):
        bound(a, b)
    t = [torch.from_numpy(v) for v in (a, b, c)]
    assert np.allclose(bound(*t), c + a * b)


def test_transposed_weight_gradient_swaps_its_arguments():
    sig = ConvSignature(input_shape=(1, 2, 1, 3), kernel_shape=(2, 4, 1, 1), transposed=True, mode="wrw")
    take = kernel("ts_take", "const float *y = p[0], *x = p[1]; float *w = p[2]; w[0] = y[0]; w[1] = x[0];")
    bound = load(sig, [take], [launch(0, take, 1, slot(0), slot(1), slot(2))]).bind(sig)
    dy, x = numbers(1, 4, 1, 3), numbers(1, 2, 1, 3)
    dw = bound(dy, x)
    # The canonical problem's dy is the transposed one's x.
    assert (dw.flat[0], dw.flat[1]) == (x.flat[0], dy.flat[0])
    with pytest.raises(ArgumentError, match="no filter to prepare"):
        bound.prepare(x)


def test_epilogue_arguments():
    sig = replace(depthwise(4), epilogue=Epilogue(bias=True, residual=True))
    add = kernel(
        "ts_all", "const float *x = p[0], *w = p[1], *b = p[2], *z = p[3]; float *y = p[4];"
        "for (i64 i = begin; i < end; i++) y[i] = x[i] * w[0] + b[0] + z[i];",
    )  # fmt: skip
    bound = load(sig, [add], [launch(0, add, 4, *(slot(i) for i in range(5)))]).bind(sig)
    x, w, b, z = numbers(4, 1, 1, 1), numbers(1, 1, 1, 1), numbers(1), numbers(4, 1, 1, 1)
    assert np.allclose(bound(x, w, b, z), x * w + b + z)
    assert np.allclose(bound.prepare(w)(x, b, z), x * w + b + z)
    with pytest.raises(ArgumentError, match="bias must have shape"):
        bound(x, w, z, z)


def test_prepared_keeps_what_was_packed():
    sig, executable = squared(6)
    bound = executable.bind(sig)
    x, w = numbers(6, 1, 1, 1), numbers(1, 1, 1, 1)
    want = x * w * w
    assert np.allclose(bound(x, w), want)
    prepared = bound.prepare(w)
    others = [bound.prepare(w + i) for i in range(1, 20)]
    executable.poison()
    assert np.allclose(prepared(x), want)
    assert np.allclose(others[3](x), x * (w + 4) ** 2)
    del bound, executable, w
    assert np.allclose(prepared(x), want)
    assert prepared.packed is not None


def test_executable_runs_slot_by_slot():
    sig, executable = squared(6)
    x, w, y = numbers(6, 1, 1, 1), numbers(1, 1, 1, 1), numbers(6, 1, 1, 1)
    assert (executable.prepares, executable.threads) == (True, 2)
    packed = executable.prepare(w)
    assert executable.run([x, w, y], packed) is y
    assert np.allclose(y, x * w * w)
    assert executable.prepare(2 * w, packed) is packed
    executable.hold([x, w, y], packed)()
    assert np.allclose(y, 4 * x * w * w)
    executable.run([x, w, y])
    assert np.allclose(y, x * w * w)
    with pytest.raises(ArgumentError, match="no filter that this plan has packed"):
        squared(6)[1].run([x, w, y], packed)
    with pytest.raises(LaunchError, match="the plan is for"):
        executable.bind(depthwise(7))


def test_packed_and_workspace_show_poison():
    """A kernel that reads memory which nobody wrote computes NaN after ``poison``."""
    sig = depthwise(3)
    run = [launch(0, SCALE, 3, slot(0), PACKED, slot(2))]
    executable = load(sig, [SCALE], run, packed_bytes=4)
    executable.poison()
    x, w = numbers(3, 1, 1, 1), numbers(1, 1, 1, 1)
    assert np.isnan(executable.bind(sig)(x, w)).all()
