"""``conv`` and ``gemm`` on arrays as users have them: layouts, strides, kinds, and refusals."""

import itertools

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.nn import functional as F

import tilesmith
from tilesmith import conv, gemm
from tilesmith.errors import ArgumentError, ProblemError


def draw(shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(got, want, tolerance=2e-5):
    want = np.asarray(want, np.float64)
    got = np.asarray(got).astype(np.float64)
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= tolerance * max(1.0, np.abs(want).max())


def reference(x, w, b=None, transposed=False, **options):
    dims = x.ndim - 2
    op = getattr(F, f"conv{'_transpose' if transposed else ''}{dims}d")
    tensors = [None if t is None else torch.from_numpy(np.asarray(t).astype(np.float64)) for t in (x, w, b)]
    return op(*tensors, **options).numpy()


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_dimensions_and_kinds(dims, kind):
    x, w, b = draw((2, 4, *[7] * dims), 1), draw((6, 2, *[3] * dims), 2), draw((6,), 3)
    options = {"stride": 2, "padding": 1, "groups": 2}
    want = reference(x, w, b, **options)
    if kind == "torch":
        y = conv(torch.from_numpy(x), torch.from_numpy(w), torch.from_numpy(b), **options)
        assert isinstance(y, torch.Tensor)
    else:
        y = conv(x, w, b, **options)
        assert isinstance(y, np.ndarray)
    close(y, want)
    assert y.dtype == (torch.float32 if kind == "torch" else np.float32)


def test_transposed_with_lists_as_options():
    x, w = draw((2, 4, 5, 6), 1), draw((4, 3, 3, 3), 2)
    options = {"stride": [2, 3], "padding": [1, 1], "output_padding": [1, 2], "dilation": [1, 2]}
    close(conv(x, w, transposed=True, **options), reference(x, w, transposed=True, **options))


@pytest.mark.parametrize("order", ["".join(p) for p in itertools.permutations("NCHW")][::5])
def test_any_layout(order):
    sizes = {"N": 2, "C": 4, "H": 7, "W": 6}
    x, w = draw([sizes[a] for a in order], 1), draw((5, 4, 3, 3), 2)
    logical = x.transpose([order.index(a) for a in "NCHW"])
    y = conv(x, w, input_layout=order, kernel_layout="NCHW", output_layout="HWNC")
    close(y, reference(logical, w).transpose(2, 3, 0, 1))


def test_channels_last_tensors_stay_channels_last():
    x = torch.from_numpy(draw((2, 8, 7, 6), 1)).contiguous(memory_format=torch.channels_last)
    w = torch.from_numpy(draw((4, 8, 3, 3), 2)).contiguous(memory_format=torch.channels_last)
    z = torch.from_numpy(draw((2, 4, 7, 6), 3))
    y = conv(x, w, padding=1)
    assert y.is_contiguous(memory_format=torch.channels_last)
    close(y, reference(x.numpy(), w.numpy(), padding=1))
    for residual in (z, z.contiguous(memory_format=torch.channels_last)):
        close(conv(x, w, padding=1, residual=residual), reference(x.numpy(), w.numpy(), padding=1) + z.numpy())


def test_equal_sizes_in_another_order_are_not_confused():
    x, w = draw((4, 4, 4, 4), 1), draw((4, 4, 1, 1), 2)
    for order in itertools.permutations(range(4)):
        permuted = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
        close(conv(permuted, w), reference(x, w))


def test_strided_views():
    big, w = draw((2, 8, 12, 14), 1), draw((5, 4, 3, 3), 2)
    for view in (big[:, :4], big[:, ::2], big[:, :4, ::2, 1:9], big[:, 3::-1], big[:1, :4].repeat(2, 0)):
        close(conv(view, w), reference(view.copy(), w))
    close(conv(np.broadcast_to(big[:1, :4], (3, 4, 12, 14)), w), reference(big[:1, :4].repeat(3, 0), w))
    records = np.zeros((2, 4, 6, 6), np.dtype([("a", np.float32), ("b", np.int8)]))
    records["a"] = draw((2, 4, 6, 6), 4)
    close(conv(records["a"], w), reference(records["a"].copy(), w))
    wide = draw((10, 4, 3, 3), 5)
    close(conv(big[:, :4], wide[::2]), reference(big[:, :4].copy(), wide[::2].copy()))


def test_epilogue():
    x, w, b, z = draw((2, 4, 7, 6), 1), draw((5, 4, 3, 3), 2), draw((5,), 3), draw((2, 5, 5, 4), 4)
    want = reference(x, w, b) + z
    close(conv(x, w, b, residual=z, activation="relu"), np.maximum(want, 0))
    close(conv(x, w, b, residual=z, activation="clamp", low=-0.5, high=0.7), np.clip(want, -0.5, 0.7))
    close(conv(x, w, draw((10,), 6)[::2], activation="leaky_relu", slope=0.3),
          F.leaky_relu(torch.from_numpy(reference(x, w, draw((10,), 6)[::2])), 0.3).numpy())  # fmt: skip


def test_dtypes():
    x, w = draw((2, 8, 7, 6), 1), draw((8, 8, 3, 3), 2)
    close(conv(x.astype(np.float64), w.astype(np.float64)), reference(x, w), 1e-12)
    half = conv(x.astype(ml_dtypes.bfloat16), w.astype(ml_dtypes.bfloat16))
    assert half.dtype == ml_dtypes.bfloat16
    close(half, reference(x.astype(ml_dtypes.bfloat16), w.astype(ml_dtypes.bfloat16)), 2e-2)
    tensor = conv(torch.from_numpy(x).bfloat16(), torch.from_numpy(w).bfloat16())
    assert tensor.dtype == torch.bfloat16
    assert np.array_equal(tensor.float().numpy(), half.astype(np.float32))
    integers = np.random.default_rng(0).integers(-128, 128, (2, 4, 5, 5)).astype(np.int8)
    weights = np.random.default_rng(1).integers(-128, 128, (3, 4, 2, 2)).astype(np.int8)
    y = conv(integers, weights)
    assert y.dtype == np.int32
    assert np.array_equal(y, reference(integers, weights))


def test_results_are_new_memory_and_repeated_calls_follow_the_values():
    w = draw((5, 4, 3, 3), 2)
    results = [conv(draw((2, 4, 7, 6), seed), w) for seed in range(3)]
    for seed, y in enumerate(results):
        close(y, reference(draw((2, 4, 7, 6), seed), w))


def test_strides_may_change_between_calls_of_one_shape():
    x, w = draw((2, 4, 7, 6), 1), draw((5, 4, 3, 3), 2)
    want = reference(x, w)
    permuted = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    for each in (x, permuted, x, np.asfortranarray(x), permuted, x):
        close(conv(each, w), want)
    with pytest.raises(ArgumentError, match=r"float32|fp32.*fp64"):
        conv(x, w.astype(np.float64))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_one_filter_meets_many_inputs(kind):
    """The short way goes by the filter's identity: neither shapes, biases nor a new filter in its memory confuse it."""
    w, b = draw((5, 4, 3, 3), 2), draw((5,), 3)
    give = torch.from_numpy if kind == "torch" else lambda array: array
    given, bias = give(w), give(b)
    for turn in range(3):
        for n, size in ((1, 6), (1, 6), (2, 6), (1, 7)):
            x = draw((n, 4, size, size), turn + size)
            close(conv(give(x), given), reference(x, w))
            close(conv(give(x), given, bias), reference(x, w, b))
    for seed in range(20):  # each may get the address of one before it
        x, fresh = draw((1, 4, 6, 6), seed), draw((3 + seed % 3, 4, 3, 1 + seed % 2), seed)
        close(conv(give(x), give(fresh)), reference(x, fresh))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize(("ta", "tb"), [(False, False), (False, True), (True, False), (True, True)])
def test_gemm(ta, tb, kind):
    a, b = draw((7, 5) if ta else (5, 7), 1), draw((6, 7) if tb else (7, 6), 2)
    want = (a.T if ta else a).astype(np.float64) @ (b.T if tb else b).astype(np.float64)
    given = (torch.from_numpy(a), torch.from_numpy(b)) if kind == "torch" else (a, b)
    close(gemm(*given, trans_a=ta, trans_b=tb), want)
    close(gemm(*given, trans_a=ta, trans_b=tb, alpha=-0.5), -0.5 * want)


def test_gemm_batches_views_and_epilogue():
    a, b, c, bias = draw((3, 5, 7), 1), draw((3, 7, 6), 2), draw((3, 5, 6), 3), draw((6,), 4)
    want = a.astype(np.float64) @ b
    close(gemm(a, b), want)
    close(gemm(a[:1], b[:1]), want[:1])
    close(gemm(a, np.broadcast_to(b[:1], b.shape)), a.astype(np.float64) @ b[0])
    kept = c.copy()
    close(gemm(a, b, c, bias, beta=2.0, activation="relu"), np.maximum(want + 2 * c + bias, 0))
    assert np.array_equal(c, kept)
    wide = draw((5, 20), 5)
    close(gemm(wide[:, 3:10], b[0]), wide[:, 3:10].astype(np.float64) @ b[0])
    close(gemm(wide[:, ::-1][:, :7], b[0]), wide[:, ::-1][:, :7].astype(np.float64) @ b[0])
    close(gemm(a[0], b[0].T.copy().T), want[0])


def test_refusals_name_value_and_rule():
    x, w = draw((2, 4, 7, 6)), draw((5, 4, 3, 3))
    cases = [
        (ArgumentError, "fp32.*fp64", lambda: conv(x, w.astype(np.float64))),
        (ArgumentError, "complex64", lambda: conv(x.astype(np.complex64), w)),
        (ArgumentError, "list", lambda: conv(x.tolist(), w)),
        (ArgumentError, "NoneType", lambda: conv(x, None)),
        (ArgumentError, "device meta", lambda: conv(torch.zeros(2, 4, 7, 6, device="meta"), torch.from_numpy(w))),
        (ArgumentError, "nested", lambda: conv(torch.nested.nested_tensor([torch.zeros(4, 7, 6)] * 2), w)),
        (ArgumentError, r"\(4,\).*\(5,\)", lambda: conv(x, w, draw((4,)))),
        (ArgumentError, r"\(2, 5, 5, 5\).*\(2, 5, 5, 4\)", lambda: conv(x, w, residual=draw((2, 5, 5, 5)))),
        (ProblemError, "NHWX", lambda: conv(x, w, shared_layout="NHWX")),
        (ProblemError, "second axis", lambda: conv(x, draw((5, 3, 3, 3)))),
        (ProblemError, "wider", lambda: conv(x, draw((5, 4, 9, 3)))),
        (ProblemError, "stride", lambda: conv(x, w, stride=0)),
        (ProblemError, "groups 3", lambda: conv(x, w, groups=3)),
        (ProblemError, "axes", lambda: conv(x[0, 0], w)),
        (ProblemError, r"input_shape\[2\].*got 0", lambda: conv(x[:, :, :0], w)),
        (ProblemError, "low must be a number", lambda: conv(x, w, activation="clamp", low=np.zeros(2))),
        (ProblemError, "swish", lambda: conv(x, w, activation="swish")),
        (ArgumentError, "k = 4.*k = 5", lambda: gemm(draw((3, 4)), draw((5, 6)))),
        (ArgumentError, "no c is given", lambda: gemm(draw((3, 4)), draw((4, 6)), beta=1.0)),
        (ArgumentError, "two axes", lambda: gemm(draw((3,)), draw((4, 6)))),
        (ArgumentError, "batches", lambda: gemm(draw((2, 3, 4)), draw((3, 4, 6)))),
        (ArgumentError, "big-endian|>f4", lambda: conv(x.astype(">f4"), w)),
    ]  # fmt: skip
    for kind, message, call in cases:
        with pytest.raises(kind, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_a_gradient_is_recorded_also_after_calls_without_one():
    x, w = torch.from_numpy(draw((2, 4, 7, 6))), torch.nn.Parameter(torch.from_numpy(draw((5, 4, 3, 3))))
    b = torch.from_numpy(draw((5,)))
    for _ in range(2):  # the second call of its kind takes the short way
        assert conv(x, w).requires_grad
        with torch.no_grad():
            y = conv(x, w)
            close(y, reference(x.numpy(), w.detach().numpy()))
        assert not y.requires_grad
        assert not conv(x, w.detach(), b).requires_grad
    assert conv(x, w.detach(), b.requires_grad_()).requires_grad


def test_sums_are_made_as_asked():
    x, w = draw((2, 4, 7, 6)), draw((5, 4, 3, 3))
    exact = conv(x, w)
    assert np.array_equal(conv(x, w, acc_dtype="tf32"), exact)  # a CPU has nothing to round for
    close(conv(x, w, acc_dtype="fp64"), reference(x, w))
    a, b = draw((9, 8)), draw((8, 7))
    close(gemm(a, b, acc_dtype="tf32"), a.astype(np.float64) @ b)
    with pytest.raises(ProblemError, match="'tf32' goes with fp32 tensors"):
        gemm(a.astype(np.float16), b.astype(np.float16), acc_dtype="tf32")


def test_public_names():
    for name in tilesmith.__all__:
        assert getattr(tilesmith, name).__name__.rpartition(".")[2] == name  # tune is a package, too
    with pytest.raises(AttributeError, match="nonesuch"):
        tilesmith.nonesuch  # noqa: B018


def test_a_call_costs_little():
    """The whole of a 1x1x1x1 convolution beside PyTorch's, in the processor time of one thread."""
    import statistics
    import time

    x, w = torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1, 1)
    xn, wn = x.numpy(), w.numpy()

    def seconds(call):
        begin = time.thread_time()
        for _ in range(1000):
            call()
        return time.thread_time() - begin

    calls = (lambda: F.conv2d(x, w), lambda: conv(x, w), lambda: conv(xn, wn))
    with torch.inference_mode():
        # In turns, and compared within a turn: a processor that is slow for a while is slow for all of them.
        rounds = [[seconds(call) for call in calls] for _ in range(30)]
    assert statistics.median(tensors / theirs for theirs, tensors, _ in rounds) <= 1.5
    assert statistics.median(arrays / theirs for theirs, _, arrays in rounds) <= 1.5
