"""Training with the operators: it follows PyTorch, and what a call has kept stays bounded."""

import copy
import gc
import resource

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import tilesmith
from tilesmith.dispatch import eager, kept_calls
from tilesmith.torch_ops import arguments, calls, frozen, gradients
from torch_signatures import Zeros

STEPS, SHAPES = 20, 50


def theirs(x, ws):
    y = F.relu(F.conv2d(x, ws[0], ws[1], padding=1))
    y = F.silu(F.conv2d(y, ws[2], padding=1, groups=2) + y)
    y = F.relu(F.conv_transpose2d(y, ws[3], stride=2))
    return F.linear(y.mean((2, 3)), ws[4], ws[5])


def mine(x, ws):
    y = tilesmith.conv(x, ws[0], ws[1], padding=1, activation="relu")
    y = tilesmith.conv(y, ws[2], padding=1, groups=2, residual=y, activation="silu")
    y = tilesmith.conv(y, ws[3], stride=2, transposed=True, activation="relu")
    return tilesmith.gemm(y.mean((2, 3)), ws[4], bias=ws[5], trans_b=True)


def problem():
    """Weights, images and labels."""
    draw = torch.Generator().manual_seed(1)
    shapes = ((8, 3, 3, 3), (8,), (8, 4, 3, 3), (8, 6, 2, 2), (4, 6), (4,))
    ws = [(0.3 * torch.randn(*shape, generator=draw)).requires_grad_() for shape in shapes]
    return ws, torch.randn(8, 3, 10, 10, generator=draw), torch.randint(4, (8,), generator=draw)


def losses(net):
    ws, x, labels = problem()
    optimizer = torch.optim.SGD(ws, lr=0.1, momentum=0.9)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x, ws), labels)
        (loss * 1024).backward()  # a scaled loss, as mixed precision has it
        for w in ws:
            w.grad /= 1024
        optimizer.step()
        found.append(loss.item())
    return found


def test_a_net_learns_as_with_pytorch():
    want, found = losses(theirs), losses(mine)
    assert want[-1] < 0.9 * want[0]
    assert all(abs(one - other) < 0.01 * other for one, other in zip(found, want, strict=True))


def scaled_steps(forward, ws, x, labels):
    """Scaled steps, each of the gradients of two halves of the batch, each of them twice through one graph.

    The second step and the fourth have checkpoints. The gradients of the third overflow: the scaler leaves it out.
    """
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    optimizer = torch.optim.SGD(ws, lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        for images, wanted in zip(x.chunk(2), labels.chunk(2), strict=True):
            y = checkpoint(forward, images, use_reentrant=False) if step % 2 else forward(images)
            loss = scaler.scale(F.cross_entropy(y, wanted) * (torch.inf if step == 2 else 0.25))
            loss.backward(retain_graph=True)
            loss.backward()
        scaler.step(optimizer)
        scaler.update()
    return [*[w.detach().clone() for w in ws], torch.tensor(scaler.get_scale())]


@pytest.mark.parametrize("way", ["calls", "layers"])
def test_scaling_accumulation_checkpoints_and_retained_graphs(way, monkeypatch):
    monkeypatch.setenv("TILESMITH_FIND_MODE", "fast")
    tilesmith.forget()
    ws, x, labels = problem()
    if way == "calls":
        twins = [w.detach().clone().requires_grad_() for w in ws]
        found = scaled_steps(lambda images: mine(images, ws), ws, x, labels)
        want = scaled_steps(lambda images: theirs(images, twins), twins, x, labels)
        began = problem()[0]
    else:
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.ConvTranspose2d(4, 4, 2, 2), nn.Conv2d(4, 4, 16))
        net.append(nn.Flatten())
        began, twin, fast = [w.detach().clone() for w in net.parameters()], copy.deepcopy(net), tilesmith.optimize(net)
        found = scaled_steps(fast, list(fast.parameters()), x, labels)
        want = scaled_steps(twin, list(twin.parameters()), x, labels)
    assert want[-1] == found[-1] == 512
    for one, other, first in zip(found, want, [*began, torch.tensor(0.0)], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
        assert (other - first).abs().max() > 1e-3


def count_of_tensors():
    """In this process; other tests may keep some."""
    gc.collect()
    return sum(type(each) is torch.Tensor for each in gc.get_objects())


def test_steps_with_changing_shapes_leak_nothing(monkeypatch):
    limit = 24
    for module in (eager, gradients):
        monkeypatch.setattr(module, "get_launchable", Zeros)
    limits = ((eager, "LIMIT"), (kept_calls, "LIMIT"), (gradients, "_MEMO_LIMIT"), (arguments, "_LIMIT"))
    for module, name in (*limits, (calls, "_LIMIT")):
        monkeypatch.setattr(module, name, limit)
    tilesmith.forget()
    bias = torch.randn(4, requires_grad=True)
    used, before = [], count_of_tensors()
    for step in range(SHAPES * 4):  # each step has a filter of its own
        w = torch.randn(4, 3, 3, 3, requires_grad=True)
        x = torch.randn(1, 3, 8 + step % SHAPES, 256)
        tilesmith.conv(x, w, bias, padding=1 + step % 2, activation="silu").sum().backward()
        with torch.no_grad():
            torch.ops.tilesmith.convolution(x, w, bias, None, [1], [1], [1], False, [0], 1, frozen=True)
        if step % SHAPES == SHAPES - 1:
            gc.collect()
            used.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    tables = [
        kept_calls.by_arrays,
        kept_calls.by_shapes,
        kept_calls.by_filter,
        kept_calls.with_gradients,
        gradients._memo,
        arguments._known,
        calls._forms,
    ]
    assert all(len(table) <= limit for table in tables)
    assert all(len(each._bound) <= limit and len(each._gradients) <= limit for each in arguments._known.values())
    del w
    gc.collect()
    assert not frozen._filters
    assert count_of_tensors() < before + 100
    assert used[-1] - used[0] < 20_000  # KiB: less than what the images of the last three turns have
    tilesmith.forget()
