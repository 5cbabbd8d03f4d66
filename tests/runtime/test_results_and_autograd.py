"""Writing into ``out=`` behaves as PyTorch's operators do when they write in place."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from kernels import kernel, launch, load, scaled, slot

from tilesmith.errors import ArgumentError
from tilesmith.problems.gemm import GemmSignature


@pytest.fixture
def bound():
    sig, executable = scaled(5)
    return executable.bind(sig)


def tensor(*shape):
    return torch.randn(shape)


def test_out_raises_the_version_so_that_a_saved_tensor_is_missed(bound):
    x, w = tensor(5, 1, 1, 1), tensor(1, 1, 1, 1)
    for call in (lambda out: bound(x, w, out=out), lambda out: bound.prepare(w)(x, out=out),
                 lambda out: bound.run((x, w), out)):  # fmt: skip
        p = tensor(5, 1, 1, 1).requires_grad_()
        b = p.exp()  # its backward pass reads b again
        before = b._version
        call(b.detach())
        assert b._version == before + 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            b.sum().backward()


def test_out_that_is_refused_or_new_keeps_its_version(bound):
    x, w = tensor(5, 1, 1, 1), tensor(1, 1, 1, 1)
    wrong = tensor(5, 1, 1, 2)
    with pytest.raises(ArgumentError):
        bound(x, w, out=wrong)
    assert wrong._version == 0
    assert bound(x, w)._version == 0


def test_out_that_requires_a_gradient_is_refused_while_one_is_recorded(bound):
    x, w = tensor(5, 1, 1, 1), tensor(1, 1, 1, 1)
    leaf = tensor(5, 1, 1, 1).requires_grad_()
    flat = tensor(5).requires_grad_()
    with torch.no_grad():
        unrecorded_view = flat.view(5, 1, 1, 1)
    for out, words in (
        (leaf, "^out is a leaf that requires a gradient.*torch.no_grad.*out.detach"),
        (torch.nn.Parameter(tensor(5, 1, 1, 1)), "^out is a leaf"),
        (flat.view(5, 1, 1, 1), "^out requires a gradient, or is a view"),
        (unrecorded_view, "^out requires a gradient, or is a view"),
        (leaf * 2, "^out requires a gradient"),
    ):
        before = out.detach().clone()
        for call in (bound, bound.prepare(w)):
            with pytest.raises(ArgumentError, match=words):
                call(x, *(() if call is not bound else (w,)), out=out)
        assert torch.equal(out.detach(), before)
    with torch.no_grad():  # as PyTorch's own operators
        for out in (leaf, flat.view(5, 1, 1, 1)):
            before = out._version
            assert torch.equal(bound(x, w, out=out), x * w)
            assert out._version == before + 1


def test_out_in_inference_mode(bound):
    x, w = tensor(5, 1, 1, 1), tensor(1, 1, 1, 1)
    plain = tensor(5, 1, 1, 1)
    with torch.inference_mode():
        inference = tensor(5, 1, 1, 1)
        assert torch.equal(bound(x, w, out=inference), x * w)
        bound(x, w, out=plain)
    assert plain._version == 1
    # It has no version, and no backward pass can have saved it.
    assert torch.equal(bound(x, w * 2, out=inference), x * w * 2)


def test_an_initial_c_that_requires_a_gradient_records_none():
    sig = GemmSignature(m=3, n=2, k=1, beta=1.0)
    add = kernel("ts_addc2", "const float *a = p[0], *b = p[1]; float *c = p[2];"
                 "for (i64 i = begin; i < end; i++) for (int j = 0; j < 2; j++) c[2*i+j] += a[i] * b[j];")  # fmt: skip
    bound = load(sig, [add], [launch(0, add, 3, slot(0), slot(1), slot(2))]).bind(sig)
    a, b, c = tensor(3, 1), tensor(1, 2), tensor(3, 2).requires_grad_()
    y = bound(a, b, c)
    assert not y.requires_grad
    assert np.allclose(y, c.detach() + a * b)
    out = torch.empty(3, 2)
    bound(a, b, c, out=out)
    assert not out.requires_grad
    assert out._version == 1
