"""Calls of CUDA plans on tensors of every kind, against the stand-in with emulated kernels."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import fake_tensors
import numpy as np
import pytest
from cuda_chain import H200, executable
from fake_tensors import Exporter, Interface, Tensor

from tilesmith.dispatch.empty import EmptyBound
from tilesmith.errors import ArgumentError
from tilesmith.measure.accuracy import check
from tilesmith.measure.oracle import oracle
from tilesmith.plan.records import Draft, Launch, Memset, Pointer, Source, Space
from tilesmith.plan.slots import arguments, relaid
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.device import DeviceArray, device
from tilesmith.solvers.cuda.reference.solver import CudaReferenceSolver
from tilesmith.solvers.solver import Config

CONV = ConvSignature((2, 5, 6, 3), (4, 3, 3, 3), shared_layout="NHWC", padding=1)
VALUES = sample_args(CONV)


@pytest.fixture(autouse=True)
def torch(emulating, monkeypatch):
    torch = fake_tensors.install()
    current = SimpleNamespace(current_stream=lambda i: SimpleNamespace(cuda_stream=fake_tensors.streams[i]))
    monkeypatch.setattr(torch, "cuda", current)
    Tensor.made.clear()
    return torch


def bound(signature, emulating, **changes):
    draft = CudaReferenceSolver().draft(signature.canonical.geometry, Config(()), H200)
    return executable(signature, draft, emulating).bind(signature)


def right(found, signature=CONV, values=VALUES):
    verdict = check(found, oracle(signature, values), signature)
    assert verdict.ok, verdict.message


def test_ends_of_groups_are_read_where_they_lie(emulating):
    signature = GemmSignature(40, 6, 5, groups=4, dtype="bf16")
    call, values = bound(signature, emulating), sample_args(signature)
    for ends in (values[2], np.array([9, 3, 60, -4], np.int32)):
        given = (*values[:2], ends)
        right(call(*map(Tensor, given)).array, signature, given)
    with pytest.raises(ArgumentError, match="int32"):
        call(*map(Tensor, (*values[:2], values[2].astype(np.float32))))


def test_pytorch_tensors_take_the_short_way(emulating):
    call = bound(CONV, emulating)
    x, w = map(Tensor, VALUES)
    right(call(x, w).array)
    first = list(Tensor.made)
    with device(0).current():
        right(call(x, w).array)
    assert Tensor.made[len(first) :] == [("_empty_strided_cuda", 0)]
    assert "stream=5000 device=0" in emulating.log()[-1]


def test_another_device_than_the_current_one(emulating):
    call = bound(CONV, emulating)
    y = call(*(Tensor(value, index=1) for value in VALUES))
    right(y.array)
    assert y.device.index == 1
    assert Tensor.made == [("new_empty_strided", 1)]
    assert "stream=5100 device=1" in emulating.log()[-1]


def test_out_and_prepared(emulating):
    call = bound(CONV, emulating)
    x, w = map(Tensor, VALUES)
    out = fake_tensors.empty((2, 5, 6, 4), (120, 24, 4, 1), "float32")
    assert call(x, w, out=out) is out
    right(out.array)
    right(call.prepare(w)(x).array)
    packed = call.pack(w)
    right(call.run((x, w), None, packed).array)


class Versioned(Tensor):
    """Counts how often it was written, as PyTorch's tensors do."""

    _version = 0
    is_leaf = True

    def _is_view(self):
        return False


def test_out_raises_the_version_and_a_leaf_is_refused(emulating, monkeypatch):
    from torch.autograd import graph

    def increment(tensor):
        tensor._version += 1

    monkeypatch.setattr(graph, "increment_version", increment)
    call = bound(CONV, emulating)
    x, w = map(Tensor, VALUES)
    for given in (x, Tensor(VALUES[0], skew=4)):  # the way through C, and the one through Python
        out = Versioned(np.zeros((2, 5, 6, 4), np.float32))
        call(given, w, out=out)
        assert out._version == 1
        call.prepare(w)(given, out=out)
        assert out._version == 2
        out.requires_grad = True
        with pytest.raises(ArgumentError, match="out is a leaf that requires a gradient"):
            call(given, w, out=out)
        assert out._version == 2


def test_tensors_with_their_axes_in_another_order(emulating):
    """As ``conv`` binds them: of the operands, strides of unit axes count too, for they say how the result lies."""
    signature = ConvSignature((2, 5, 6, 1), (4, 3, 3, 1), shared_layout="NHWC", padding=1)
    values = sample_args(signature)
    draft = CudaReferenceSolver().draft(signature.canonical.geometry, Config(()), H200)
    x, w, y = arguments(signature)
    strides = ((30, 1, 6, 1), (9, 1, 3, 1), (120, 1, 24, 4))
    lying = (
        relaid(x, (2, 1, 5, 6), strides[0]),
        relaid(w, (4, 1, 3, 3), strides[1]),
        relaid(y, (2, 4, 5, 6), strides[2]),
    )
    call = executable(signature, draft, emulating).bind(signature, lying)
    turned = [value.transpose(0, 3, 1, 2) for value in values]
    got = call(*map(Tensor, turned, strides[:2]))
    assert got.strides == strides[2]
    right(got.array.transpose(0, 2, 3, 1), signature, values)
    for skew in (0, 4):  # the way through C, and the one through Python
        with pytest.raises(ArgumentError, match="x must have strides"):
            call(Tensor(turned[0], (30, 30, 6, 1), skew=skew), Tensor(turned[1], strides[1]))


def test_problems_without_elements(emulating):
    """Of an empty batch, and sums of no products: by the library of the tensors, without any kernel."""
    for kind in (Tensor, Interface, Exporter):
        x, w = kind(np.zeros((0, 4, 6, 6), np.float32)), kind(np.zeros((5, 4, 3, 3), np.float32))
        call = EmptyBound(ConvSignature((0, 4, 6, 6), (5, 4, 3, 3)), "cuda")
        assert tuple(call(x, w).shape) == (0, 5, 4, 4)
        assert tuple(call.prepare(w)(x).shape) == (0, 5, 4, 4)
        gradient = EmptyBound(ConvSignature((0, 4, 6, 6), (5, 4, 3, 3), mode="wrw"), "cuda")
        dy = kind(np.zeros((0, 5, 4, 4), np.float32))
        out = Tensor(np.ones((5, 4, 3, 3), np.float32))
        assert gradient(dy, x, out=out) is out
        assert not out.array.any()
        with pytest.raises(ArgumentError, match=r"x must have shape \(0, 4, 6, 6\)"):
            gradient(dy, kind(np.zeros((0, 4, 6, 7), np.float32)))
    zeros = [Interface(np.zeros(shape, np.float32)) for shape in ((3, 0), (0, 4), (4,))]
    biased = EmptyBound(GemmSignature(3, 4, 0, epilogue=Epilogue(bias=True)), "cuda")
    with pytest.raises(ArgumentError, match="computed for NumPy arrays and PyTorch tensors"):
        biased(*zeros)
    assert not [line for line in emulating.log() if "Launch" in line]


def test_a_tensor_that_begins_anywhere_is_copied(emulating):
    call = bound(CONV, emulating)
    x, w = Tensor(VALUES[0], skew=4), Tensor(VALUES[1])
    right(call(x, w).array)
    with pytest.raises(ArgumentError, match="a result must begin at a multiple of 16 bytes"):
        call(x, w, out=Tensor(np.zeros((2, 5, 6, 4), np.float32), skew=8))
    with pytest.raises(ArgumentError, match="x begins at .* no multiple of 16 bytes; copy it"):
        call(Interface(VALUES[0], skew=4), Interface(VALUES[1]))


def test_interface_and_dlpack(emulating):
    call = bound(CONV, emulating)
    for kind in (Interface, Exporter):
        x, w = map(kind, VALUES)
        y = call(x, w)
        assert isinstance(y, DeviceArray)
        facts = y.__cuda_array_interface__
        found = np.zeros(facts["shape"], facts["typestr"])
        y.memory.read(found)
        right(found)
    assert x.asked == 1  # DLPack's name of the legacy default stream
    out = Interface(np.zeros((2, 5, 6, 4), np.float32))
    assert call(*map(Interface, VALUES), out=out) is out
    right(out.array)
    assert "stream=1 " in emulating.log()[-1]


def test_gemm_with_an_initial_c(emulating):
    signature = GemmSignature(5, 7, 6, beta=0.5)
    values = sample_args(signature)
    call = bound(signature, emulating)
    a, b, c = map(Tensor, values)
    right(call(a, b, c).array, signature, values)
    np.testing.assert_array_equal(c.array, values[2])
    assert call(a, b, c, out=c) is c
    right(c.array, signature, values)


def test_workspace_and_packed_filter_come_from_the_tensors_library(emulating):
    text = 'extern "C" __global__ void ts_noting(const unsigned char *packed, const unsigned char *work, float *y) {' \
           " y[0] = packed[0] + 2.0f * work[0]; }\n"  # fmt: skip
    source = Source("cuda", "ts_noting", "", text)
    packed, work = Pointer(Space.PACKED), Pointer(Space.WORKSPACE)
    run = (Memset(work, 300, 20), Launch(0, "ts_noting", (1, 1, 1), (packed, work, Pointer(Space.SLOT, 2)), (1, 1, 1)))
    draft = Draft((source,), run, (Memset(packed, 700, 3),), packed_bytes=700, workspace_bytes=300)
    call = executable(CONV, draft, emulating).bind(CONV)
    x, w = map(Tensor, VALUES)
    assert call(x, w).array[0, 0, 0, 0] == 43
    assert Tensor.made.count(("new_empty", 0)) == 2
    Tensor.made.clear()
    prepared = call.prepare(w)
    gc.collect()
    for _ in range(2):
        assert prepared(x).array[0, 0, 0, 0] == 43
    assert Tensor.made.count(("new_empty", 0)) == 2 + 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: (VALUES[0], Tensor(VALUES[1])), "x must be on a CUDA device, got a NumPy array"),
        (lambda: (Tensor(VALUES[0]), "w"), "w must be a tensor on a CUDA device .* got builtins.str"),
        (lambda: (Tensor(VALUES[0].astype(np.float16)), Tensor(VALUES[1])), "x must have dtype float32, got float16"),
        (lambda: (Tensor(VALUES[0][:1]), Tensor(VALUES[1])), r"x must have shape \(2, 5, 6, 3\), got \(1, 5, 6, 3\)"),
        (lambda: (Tensor(VALUES[0], (120, 24, 4, 1)), Tensor(VALUES[1])), r"strides \(90, 18, 3, 1\) .* got \(120,"),
        (lambda: (Tensor(VALUES[0]), Tensor(VALUES[1], index=1)), "w is on device 1, others are on device 0"),
        (lambda: (Tensor(VALUES[0]),), r"takes 2 tensors \(x, w\), got 1"),
    ],
)
def test_what_is_refused(emulating, make, words):
    with pytest.raises(ArgumentError, match=words):
        bound(CONV, emulating)(*make())


def test_more_that_is_refused(emulating):
    call = bound(CONV, emulating)
    x, w = map(Tensor, VALUES)
    x.negated = True
    with pytest.raises(ArgumentError, match="lazily negated"):
        call(x, w)
    x.negated = False
    host = Exporter(VALUES[0])
    host.device_type = 1
    with pytest.raises(ArgumentError, match="DLPack device type 1"):
        call(host, Exporter(VALUES[1]))
    same = ConvSignature((1, 4, 4, 2), (2, 1, 1, 2), shared_layout="NHWC")
    values = sample_args(same)
    y = Tensor(values[0])
    with pytest.raises(ArgumentError, match="out overlaps x"):
        bound(same, emulating)(y, Tensor(values[1]), out=y)
