"""What makes the first result of a compiled model come sooner, and that it changes nothing else."""

import gc

import pytest
import torch
from torch import nn

from tilesmith.torch_ops.compile import folding  # noqa: F401
from tilesmith.torch_ops.compile.backend import garbage_left
from tilesmith.torch_ops.compile.loops import Loops, is_loop
from tilesmith.torch_ops.compile.probes import is_compiled

LOOP = '\n#include <torch/csrc/inductor/cpp_prefix.h>\nextern "C"  void  kernel(float* p)\n{\n    p[0] = %d;\n}\n'


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Begins with an empty cache of Inductor; gives the programs that it has compiled."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch.compiler.reset()
    yield lambda: list((tmp_path / "inductor").rglob("*.main.so"))
    torch.compiler.reset()


def two_loops(x):
    """Sorting is between them, and is none."""
    return torch.sort((x * 3).sin(), 0).values * 2


@pytest.mark.needs_compiler
def test_the_loops_of_a_graph_are_one_program(programs):
    torch.manual_seed(0)
    x = torch.randn(7, 30)
    want = two_loops(x.double())
    with torch.no_grad():
        found = torch.compile(two_loops, backend="tilesmith")(x)
        together = len(programs())
        torch.compiler.reset()
        plain = torch.compile(two_loops)(x)  # PyTorch's own ones stay as they are
    alone = len(programs()) - together
    assert together == 1 < alone
    for each in (found, plain):
        assert (each - want).abs().max() < 1e-5


@pytest.mark.needs_compiler
def test_of_loops_that_are_refused_together_each_is_compiled_alone(programs, monkeypatch, caplog):
    monkeypatch.setattr(Loops, "_text", lambda *given: ("no program", []))
    x = torch.randn(9, 40)  # of no other test: Inductor remembers programs
    with torch.no_grad():
        found = torch.compile(two_loops, backend="tilesmith")(x)
    assert (found - two_loops(x.double())).abs().max() < 1e-5
    assert "compiled one by one" in caplog.text
    assert len(programs()) > 1


def test_loops_are_compiled_when_the_first_is_asked_for(monkeypatch):
    """Many are spread over the cores; each keeps its place."""
    begun = []

    def program_of(text, functions, submit):
        begun.append((text, [name for name, _ in functions]))
        return lambda: type("Module", (), {name: staticmethod(lambda name=name: name) for name, _ in functions})

    monkeypatch.setattr("tilesmith.torch_ops.compile.loops.usable_cores", lambda: 2)
    monkeypatch.setattr("tilesmith.torch_ops.compile.loops._BYTES", 2 * len(LOOP % 0))
    loops = Loops(program_of, None)
    asked = [loops.add(["float*"], LOOP % n) for n in range(5)]
    assert not begun
    assert [each()() for each in asked] == [f"kernel_{n}" for n in range(5)]
    assert [names for _, names in begun] == [["kernel_0", "kernel_2", "kernel_4"], ["kernel_1", "kernel_3"]]
    assert 'extern "C" void kernel_3(float* p)\n{\n    p[0] = 3;' in begun[1][0]
    assert [text.count("#include") for text, _ in begun] == [1, 1]


def test_only_a_loop_alone_is_taken():
    assert is_loop(LOOP % 1)
    prefix, rest = (LOOP % 1).split("extern", 1)
    assert not is_loop(f"{prefix}template <int n> int f() {{ return n; }}\nextern{rest}")
    assert not is_loop(f"{LOOP % 1}\n#include <omp.h>\n")
    assert not is_loop(f"{LOOP % 1}\n#define x 1\n")


@pytest.mark.needs_compiler
def test_the_compiler_is_asked():
    from torch._inductor.cpp_builder import get_cpp_compiler

    compiler = get_cpp_compiler()
    assert is_compiled("int f() { return 1; }", compiler, [])
    assert not is_compiled("int f() { return 1; }", compiler, ["-mno-such-instructions"])
    assert not is_compiled('void f() { asm("no such instruction"); }', compiler, [])
    assert not is_compiled("int f() { return 1; }", "/nowhere/g++", [])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_batch_norm_folds_into_filter_and_bias(transposed, dtype):
    torch.manual_seed(0)
    conv = (nn.ConvTranspose2d if transposed else nn.Conv2d)(4, 6, 3).eval()
    norm = nn.BatchNorm2d(6).eval()
    with torch.no_grad():
        for each in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            each.uniform_(0.5, 2.0)
        x, w = torch.randn(2, 4, 7, 7), conv.weight.detach().to(dtype).to(memory_format=torch.channels_last)
        given = norm.running_var.to(dtype), norm.weight.to(dtype)
        folded = torch.ops.tilesmith.folded_filter(w, *given, norm.eps, 1 if transposed else 0)
        bias = torch.ops.tilesmith.folded_bias(
            conv.bias, norm.running_mean, *given, norm.bias, norm.eps, torch.float32, torch.float32
        )
        assert (folded.dtype, folded.stride()) == (dtype, w.stride())
        run = nn.functional.conv_transpose2d if transposed else nn.functional.conv2d
        found, want = run(x, folded.float(), bias), norm(conv(x))
    assert (found - want).abs().max() / want.abs().max() < (1e-5 if dtype is torch.float32 else 2e-2)
    checks = ("test_schema", "test_faketensor")
    shift = (None, norm.running_mean, *given, None, norm.eps, torch.float32, dtype)
    with torch.no_grad():
        torch.library.opcheck(
            torch.ops.tilesmith.folded_filter, (w, *given, norm.eps, int(transposed)), test_utils=checks
        )
        torch.library.opcheck(torch.ops.tilesmith.folded_bias, shift, test_utils=checks)


def test_garbage_is_looked_for_as_before_afterwards():
    before = gc.get_threshold()
    with garbage_left():
        assert gc.get_threshold()[0] > before[0]
    with pytest.raises(ZeroDivisionError), garbage_left():
        raise ZeroDivisionError
    assert gc.get_threshold() == before
    gc.set_threshold(0)
    try:
        with garbage_left():
            assert gc.get_threshold()[0] == 0  # the caller looks for none
    finally:
        gc.set_threshold(*before)
