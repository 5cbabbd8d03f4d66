"""Compiled graphs on a CPU: kernels write their results into their part of a concatenation."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code
from torch.nn import functional
from torch.profiler import profile

from tilesmith.problems.keys import parse_key
from tilesmith.torch_ops import placed, undispatched
from tilesmith.torch_ops.arguments import ConvArguments
from tilesmith.torch_ops.compile import last_report

OPTIONS = {"freeze": True, "ours": "always"}


@pytest.fixture(autouse=True)
def _compiled_anew():
    torch.compiler.reset()
    torch.manual_seed(0)
    with torch._inductor.config.patch(force_disable_caches=True):
        yield


def compiled(model, *inputs, **options):
    """The function, its first result and its program."""
    found = torch.compile(model, backend="tilesmith", options={**OPTIONS, **options})
    y, codes = run_and_get_code(found, *inputs)
    return found, y, "\n".join(codes)


def written(code):
    return len(re.findall(r"_kernel_into\(", code))


def check(found, exact, bound=1e-5):
    many = isinstance(found, tuple)
    for mine, theirs in zip(found if many else (found,), exact if many else (exact,), strict=True):
        assert (mine.double() - theirs).abs().max() <= bound * theirs.abs().max()


class Several(nn.Module):
    """Models beside each other, each with an input of its own: one graph, whose loops the compiler sees once."""

    def __init__(self, *models):
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, *inputs):
        return tuple(model(x) for model, x in zip(self.models, inputs, strict=True))


def check_twice(found, results, model, inputs):
    """Of each model of ``Several``, within the bound of its type."""
    exact = [copy.deepcopy(each).double()(x.double()) for each, x in zip(model.models, inputs, strict=True)]
    for results_ in (results, found(*inputs), found(*inputs)):  # the first call finds the kernels
        for y, right, x in zip(results_, exact, inputs, strict=True):
            check(y, right, 0.03 if x.dtype == torch.bfloat16 else 1e-5)
    return exact


class Skip(nn.Module):
    """A step of a U-Net: a result, and one of a transposed convolution of a smaller image, side by side."""

    def __init__(self, width=32, dims=2):
        super().__init__()
        conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
        transposed = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 1]
        self.pool = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[dims - 1]
        self.first, self.up = conv(8, width, 3, padding=1), transposed(width, width, 2, 2)
        self.last = conv(2 * width, 5, 1)

    def forward(self, x):
        kept = self.first(x).relu()
        return self.last(torch.cat([kept, self.up(self.pool(kept, 2))], 1))


class Two(nn.Module):
    """Two results side by side along an axis: they lie without gaps, or with those between images."""

    def __init__(self, dim):
        super().__init__()
        self.first, self.second = (nn.Conv2d(8, 16, 3, padding=1) for _ in range(2))
        self.last, self.dim = nn.Conv2d(16, 5, 1), dim

    def forward(self, x):
        return self.last(torch.cat([self.first(x), self.second(x)], dim=self.dim))


class Products(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(24, 16), nn.Linear(24, 32), nn.Linear(48, 5)

    def forward(self, x):
        return self.last(torch.cat([self.first(x).relu(), self.second(x)], 1))


@torch.no_grad()
def test_both_parts_are_written_by_their_kernels(monkeypatch):
    """One and several images, both orders of axes, both types; products."""
    ran, find = [], ConvArguments.find

    def spy(*given):
        call = find(*given)
        ran.append(call.launch.signature.canonical.key())
        return call

    monkeypatch.setattr(ConvArguments, "find", spy)
    image = torch.randn(3, 8, 6, 10)
    last = image[:1].to(torch.bfloat16, memory_format=torch.channels_last)
    lasting = Skip().to(torch.bfloat16, memory_format=torch.channels_last)
    model, inputs = Several(Skip(), lasting, Products()).eval(), (image, last, torch.randn(7, 24))
    found, y, code = compiled(model, *inputs)
    lines = last_report().lines
    named = [line.problem for line in lines if line.problem.startswith("conv")]
    assert sorted(ran) == sorted(parse_key(each).canonical.key() for each in named)
    check_twice(found, y, model, inputs)
    assert written(code) == 6
    assert "cpp_fused_cat" not in code
    fused = [line.fused for line in lines]
    assert fused[:3] == fused[3:6] == [("bias", "relu", "concatenation"), ("bias", "concatenation"), ("bias",)]


@torch.no_grad()
def test_other_numbers_of_axes_and_other_axes():
    model = Several(Skip(16, 1), Skip(16, 3), Two(0), Two(-2)).eval()
    inputs = [torch.randn(2, 8, *sizes) for sizes in ((16,), (4, 6, 2), (6, 10), (6, 10))]
    found, y, code = compiled(model, *inputs)
    check_twice(found, y, model, inputs)
    assert written(code) == 2 * len(inputs)


class Parts(nn.Module):
    """A result in a concatenation; ``then`` says what else there is."""

    def __init__(self, then):
        super().__init__()
        self.first, self.second = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 1)
        self.last, self.then = nn.Conv2d(32, 16, 1), then

    def forward(self, x):
        then, y, other, more = self.then, self.first(x), x, None
        if then == "an earlier loop":
            other = y.sin()
        if then == "the same convolution":
            other = self.second(y)
        if then == "the same concatenation":
            other = y
        if then == "a residual":
            y = self.first(x) + x
        if then == "another type":
            other = x.double()
        whole = torch.cat([other, y], 1)
        z = whole.sum(1) if then == "another type" else self.last(whole)
        if then == "a later loop":
            more = y.cos() + z
        if then == "a later convolution":
            more = self.second(y)
        if then == "the caller":
            more = y
        if then == "the caller has the whole":
            more = whole
        if then == "two concatenations":
            more = self.last(torch.cat([y, x], 1))
        return z if more is None else (z, more)


READERS = {
    "a tensor of the caller": 1, "an earlier loop": 1, "a later loop": 1, "the caller has the whole": 1,
    "the same convolution": 1, "a later convolution": 0, "the caller": 0, "two concatenations": 0,
    "the same concatenation": 0, "a residual": 0, "another type": 0,
}  # fmt: skip


@pytest.mark.parametrize("count", [1, 0])
@torch.no_grad()
def test_what_else_reads_the_result(count):
    """All readers with which a part is written into its place, and all with which it is not: of each in one graph."""
    model = Several(*[Parts(then) for then in READERS if READERS[then] == count])
    model = model.eval().to(memory_format=torch.channels_last)
    inputs = [torch.randn(2, 16, 7, 9).to(memory_format=torch.channels_last) for _ in model.models]
    untouched = [x.clone() for x in inputs]
    found, y, code = compiled(model, *inputs)
    exact = check_twice(found, y, model, inputs)
    assert written(code) == count * len(inputs)
    assert all(map(torch.equal, inputs, untouched))
    with profile():  # calls the operators
        for mine, right in zip(found(*inputs), exact, strict=True):
            check(mine, right)


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(24, 40), nn.Linear(64, 16)

    def forward(self, x):
        return self.last(torch.cat([x, self.first(x)], -1))


@torch.no_grad()
def test_what_begins_within_a_line_and_rows_of_several_axes_are_copied():
    """The second one of two results of 24 channels in fp32 begins 96 bytes behind the first one."""
    model, inputs = Several(Skip(24), Rows()).eval(), (torch.randn(2, 8, 6, 10), torch.randn(2, 7, 24))
    found, y, code = compiled(model, *inputs)
    check_twice(found, y, model, inputs)
    assert re.findall(r"(\w+)_kernel_into\(", code) == ["convolution"]


REMEMBERED = """
import os, sys, traceback
import torch, torch._inductor.compile_fx
sys.path.insert(0, sys.argv[1])
from test_concatenations import Two
from tilesmith.torch_ops.compile import last_report

def run():
    torch.manual_seed(0)
    model, x = Two(-2).eval(), torch.randn(2, 8, 6, 10)
    with torch.no_grad():
        y = torch.compile(model, backend="tilesmith", options={"ours": "always"})(x)
        assert (y.double() - model.double()(x.double())).abs().max() < 1e-5
    print(last_report().remembered, sum("concatenation" in line.fused for line in last_report().lines))
    print(*sorted(name for _, _, names in os.walk(os.environ["TILESMITH_CACHE_DIR"]) for name in names), flush=True)

for _ in range(2):  # two processes that have imported PyTorch and compiled nothing
    child = os.fork()
    if not child:
        try:
            run()
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_a_remembered_program_compiles_no_kernel(tmp_path):
    environment = os.environ | {
        "TILESMITH_CACHE_DIR": str(tmp_path / "cache"), "TILESMITH_DB_PATH": str(tmp_path / "user.db"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
    }  # fmt: skip
    command = [sys.executable, "-c", REMEMBERED, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    told = done.stdout.splitlines()
    assert told[::2] == ["False 2", "True 2"], done.stderr
    assert told[1] == told[3] != ""


@torch.no_grad()
def test_an_inductor_that_lacks_what_is_needed(monkeypatch):
    from torch._inductor import ir, lowering

    operator = torch.ops.tilesmith.convolution.default
    compiled(nn.Conv2d(8, 4, 1).eval(), torch.randn(2, 8, 6, 10))  # the lowering is there
    monkeypatch.delitem(lowering.lowerings, operator)
    monkeypatch.setattr(placed, "_lowered", [])
    with monkeypatch.context() as without:
        without.delattr(ir, "ExternKernelOut")
        undispatched._lower(operator, "torch.ops.tilesmith.convolution_kernel", lowering)
    torch.compiler.reset()
    model, inputs = Several(Two(-2)).eval(), [torch.randn(2, 8, 6, 10)]
    found, y, code = compiled(model, *inputs)
    check_twice(found, y, model, inputs)
    assert written(code) == 0
    assert "convolution_kernel(" in code


@torch.no_grad()
def test_memory_of_another_order_is_copied_to():
    x, w = torch.randn(2, 8, 6, 10), torch.randn(16, 8, 3, 3)
    x = x.to(memory_format=torch.channels_last)
    exact = functional.conv2d(x.double(), w.double())
    shape = [1, 1], [0, 0], [1, 1], False, [0, 0], 1
    for batch in (2, 1, 2):
        dense, pitched = torch.empty(batch, 16, 4, 8), torch.empty(batch, 4, 8, 48).permute(0, 3, 1, 2)[:, 16:32]
        for out in (dense, pitched, torch.empty(4, 8, 16, batch).permute(3, 2, 0, 1)):
            for _ in range(2):
                torch.ops.tilesmith.convolution_kernel_into(x[:batch], w, None, None, *shape, out=out.fill_(3))
                check(out, exact[:batch])
