"""The problems that PyTorch programs meet: named as they lie in memory, forward and backward, and counted."""

import json
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from torch.nn import functional

import tilesmith
from tilesmith import ConvSignature, Epilogue, GemmSignature, get_launchable
from tilesmith.cli.main import run
from tilesmith.problems.driver import command_of, read_commands
from tilesmith.torch_ops.trace import Trace


def met(call):
    with Trace() as trace:
        call()
    assert trace.others == {}
    return trace.problems


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


X, W, B = randn(2, 8, 9, 7), randn(6, 8, 3, 3), randn(6)


def test_a_convolution():
    assert met(lambda: functional.conv2d(X, W, B, stride=2, padding=(1, 0), dilation=(1, 2))) == {
        ConvSignature(
            (2, 8, 9, 7), (6, 8, 3, 3), stride=2, padding=(1, 0), dilation=(1, 2), epilogue=Epilogue(bias=True)
        ): 1
    }


def test_channels_last_is_nhwc():
    x = X.to(memory_format=torch.channels_last)
    w = W.to(memory_format=torch.channels_last)
    assert met(lambda: functional.conv2d(x, w)) == {ConvSignature((2, 9, 7, 8), (6, 3, 3, 8), shared_layout="NHWC"): 1}


def test_a_pitch_is_kept():
    x = randn(2, 9, 7, 12)[..., :8].permute(0, 3, 1, 2)
    (found,) = met(lambda: functional.conv2d(x, W))
    assert found.input_layout == "NHWC"
    assert found.input_strides == (756, 84, 12, 1)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_dimensions_and_types(dims, dtype):
    x, w = randn(1, 4, *[6] * dims, dtype=dtype), randn(4, 2, *[3] * dims, dtype=dtype)
    (found,) = met(lambda: getattr(functional, f"conv{dims}d")(x, w, groups=2, padding=1))
    names = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64"}
    assert (found.spatial_dims, found.groups, found.dtype) == (dims, 2, names[dtype])


def test_transposed():
    w = randn(8, 5, 3, 3)
    assert met(lambda: functional.conv_transpose2d(X, w, stride=2, padding=1, output_padding=1)) == {
        ConvSignature((2, 8, 9, 7), (8, 5, 3, 3), stride=2, padding=1, output_padding=1, transposed=True): 1
    }


def test_backward_meets_every_direction_that_is_wanted():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1, bias=False))

    def step():
        model(randn(2, 3, 8, 8)).sum().backward()

    with Trace() as trace:
        step()
        step()
    first = [(s.mode, s.kernel_shape, count) for s, count in trace.problems.items()]
    wide, narrow = (8, 3, 3, 3), (4, 8, 1, 1)
    assert sorted(first) == sorted([
        ("fwd", wide, 2), ("fwd", narrow, 2), ("bwd", narrow, 2), ("wrw", narrow, 2), ("wrw", wide, 2),
        ("bgrad", wide, 2),
    ])  # fmt: skip


def test_transposed_backward():
    x, w = X.clone().requires_grad_(), randn(8, 5, 3, 3).requires_grad_()
    found = met(lambda: functional.conv_transpose2d(x, w, stride=2).sum().backward())
    assert sorted(s.mode for s in found) == ["bwd", "fwd", "wrw"]
    assert all(s.transposed for s in found)


A, C = randn(5, 7), randn(7, 4)


@pytest.mark.parametrize(
    ("call", "want"),
    [
        (lambda: A @ C, GemmSignature(5, 4, 7)),
        (lambda: torch.mm(A, randn(4, 7).t()), GemmSignature(5, 4, 7, trans_b=True)),
        (lambda: torch.mm(randn(7, 5).t(), C), GemmSignature(5, 4, 7, trans_a=True)),
        (lambda: torch.mm(randn(5, 9)[:, :7], C), GemmSignature(5, 4, 7, lda=9)),
        (lambda: torch.bmm(randn(3, 5, 7), randn(3, 7, 4)), GemmSignature(5, 4, 7, batch=3)),
        (lambda: torch.bmm(randn(3, 5, 7), randn(3, 4, 7).mT), GemmSignature(5, 4, 7, batch=3, trans_b=True)),
        (
            lambda: torch.bmm(randn(3, 5, 7), C.expand(3, 7, 4)),
            GemmSignature(5, 4, 7, batch=3, stride_b=0),
        ),
        (
            lambda: functional.linear(A, randn(4, 7), randn(4)),
            GemmSignature(5, 4, 7, trans_b=True, epilogue=Epilogue(bias=True)),
        ),
        (lambda: functional.linear(randn(2, 5, 7), randn(4, 7)), GemmSignature(10, 4, 7, trans_b=True)),
        (lambda: torch.addmm(randn(5, 4), A, C, beta=0.5, alpha=2), GemmSignature(5, 4, 7, alpha=2.0, beta=0.5)),
        (lambda: A @ randn(7), GemmSignature(5, 1, 7)),
        (lambda: torch.einsum("bij,bjk->bik", randn(3, 5, 7), randn(3, 7, 4)), GemmSignature(5, 4, 7, batch=3)),
    ],
)
def test_products(call, want):
    assert met(call) == {want: 1}
    with torch.no_grad():
        assert met(call) == {want: 1}
    with torch.inference_mode():
        assert met(call) == {want: 1}


def test_linear_backward():
    layer = torch.nn.Linear(7, 4, bias=False)
    x = A.clone().requires_grad_()
    found = met(lambda: layer(x).sum().backward())
    assert {(s.m, s.n, s.k) for s in found} == {(5, 4, 7), (5, 7, 4), (4, 7, 5)}


def test_what_is_met_is_what_was_computed():
    """A problem that was met computes PyTorch's numbers on PyTorch's tensors."""
    x, w = X.to(memory_format=torch.channels_last), W.to(memory_format=torch.channels_last)
    with Trace() as trace:
        want = functional.conv2d(x, w, B, padding=1)
        product = torch.addmm(randn(4), A, C.contiguous())
    conv, gemm = trace.problems
    y = get_launchable(conv, mode="fast", only="c_reference")(x.permute(0, 2, 3, 1), w.permute(0, 2, 3, 1), B)
    assert np.allclose(y.permute(0, 3, 1, 2), want, atol=1e-4)
    assert gemm.epilogue.bias
    assert tuple(product.shape) == (gemm.m, gemm.n)


def test_meta_tensors_need_no_memory():
    with torch.device("meta"):
        found = met(lambda: functional.conv2d(torch.empty(64, 512, 512, 512), torch.empty(512, 512, 3, 3)))
    assert next(iter(found)).input_shape == (64, 512, 512, 512)


def test_what_has_no_signature_is_told():
    with Trace() as trace:
        torch.mm(A.to(torch.complex64), C.to(torch.complex64))
    assert trace.problems == {}
    ((text, count),) = trace.others.items()
    assert "torch.complex64" in text
    assert count == 1


def test_calls_of_tilesmith_itself_are_met_and_their_results_are_right():
    small = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")
    product = GemmSignature(5, 4, 7)
    x, w = small.get_sample_args()
    before = get_launchable(small, mode="fast")

    def program():
        for _ in range(2):
            tilesmith.gemm(A, C, mode="fast")  # tensors of PyTorch
            tilesmith.gemm(A.numpy(), C.numpy(), mode="fast")
        layer = get_launchable(small, mode="fast")
        packed = layer.prepare(w)
        assert np.allclose(layer(x, w), packed(x))
        assert np.allclose(before(x, w), packed(x, out=np.empty(small.output_shape, np.float32)))

    for _ in range(2):  # each trace begins with nothing
        tilesmith.gemm(A, C, mode="fast")  # known before, as in a program that has run for a while
        assert met(program) == {product: 4, small: 3}
    assert get_launchable(small, mode="fast")(x, w).shape == small.output_shape


def test_what_tilesmith_asks_of_pytorch_is_met_once():
    """Copies of tensors that lie as no kernel reads them, and PyTorch's own kernel where that is the choice."""
    turned = randn(7, 5).t()
    problems = met(lambda: (tilesmith.gemm(turned, C, mode="fast"), A @ C))
    assert problems == {GemmSignature(5, 4, 7): 2}


def test_calls_in_threads_of_the_program_are_met():
    def program():
        threads = [threading.Thread(target=lambda: tilesmith.gemm(A.numpy(), C.numpy(), mode="fast")) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert met(program) == {GemmSignature(5, 4, 7): 4}


def test_every_problem_has_a_command():
    model = torch.nn.Sequential(torch.nn.Conv1d(3, 4, 3), torch.nn.ConvTranspose1d(4, 2, 3), torch.nn.Linear(8, 2))
    for signature in met(lambda: model(randn(2, 3, 8)).sum().backward()):
        assert command_of(signature)


# --- the verb -----------------------------------------------------------------------------------------------------

SCRIPT = """
import sys, torch
from beside import width
model = torch.nn.Sequential(torch.nn.Conv2d(3, width, 3), torch.nn.Flatten(), torch.nn.Linear(width * 36, 5))
for _ in range(int(sys.argv[2])):
    model(torch.randn(2, 3, 8, 8)).sum().backward()
print("trained", sys.argv[1:], __name__)
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "beside.py").write_text("width = 8\n")
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_the_verb(script, tmp_path):
    out = tmp_path / "problems.txt"
    words = ["trace", "--out", str(out), str(script), "--epochs", "3"]
    done = subprocess.run(
        [sys.executable, "-c", "from tilesmith.cli.main import main; main()", *words],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained ['--epochs', '3'] __main__\n"
    lines = list(read_commands(out))
    assert [line.error for line in lines] == [None] * len(lines)
    found = [signature for line in lines for _, signature in line.command.signatures]
    assert sorted(getattr(s, "mode", "gemm") for s in found) == ["bgrad", "fwd", "gemm", "gemm", "gemm", "wrw"]
    assert out.read_text().count("# 3 calls") == 6


def test_failing_scripts_keep_what_was_met(script, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    monkeypatch.syspath_prepend(str(tmp_path))
    script.write_text(SCRIPT + "\nraise SystemExit(7)\n")
    assert run(["trace", "--json", str(script), "--epochs", "1"]) == 7
    out, err = capsys.readouterr()
    assert {json.loads(line)["calls"] for line in out.splitlines()} == {1}
    assert "trained" in err  # not among the data
    script.write_text("import torch\ntorch.ones(2, 2) @ torch.ones(2, 2)\nraise ValueError('broken')\n")
    assert run(["trace", str(script)]) == 1
    out, err = capsys.readouterr()
    assert "ValueError: broken" in err
    assert out.splitlines() == [f"# met by {script}", "gemm --a_h 2 --a_w 2 --b_w 2 --transA 0 --transB 0  # 1 call"]
    assert sys.argv[0] != str(script)


def test_the_verb_sees_a_program_that_calls_tilesmith_alone(script, capsys):
    script.write_text("import numpy, tilesmith\na = numpy.ones((4, 6), 'f')\ntilesmith.gemm(a, a, trans_b=True)\n")
    assert run(["trace", str(script)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1:] == ["gemm --a_h 4 --a_w 6 --b_w 4 --transA 0 --transB 1  # 1 call"]
    assert err == "1 problems met in 1 calls, 0 calls not described\n"


def test_a_problem_without_a_command_is_written_as_its_key(script, tmp_path):
    out = tmp_path / "problems.txt"
    call = "tilesmith.conv(x, w, padding=((0, 1), (1, 0)), activation='relu', mode='fast')"
    script.write_text(f"import numpy, tilesmith\nx, w = (numpy.ones((1, 4, n, n), 'f') for n in (6, 3))\n{call}\n")
    assert run(["trace", "--out", str(out), str(script)]) == 0
    (line,) = read_commands(out)
    assert line.text.startswith("conv2;fwd;")
    ((_, found),) = line.command.signatures
    assert (found.padding_low, found.padding_high, found.epilogue.activation) == ((0, 1), (1, 0), "relu")
    assert run(["parse", str(out)]) == 0


def test_a_script_that_is_not_there(tmp_path, capsys):
    assert run(["trace", str(tmp_path / "nothing.py")]) == 2
    assert "no such file" in capsys.readouterr().err
    (tmp_path / "script.py").write_text("")
    assert run(["trace", "--out", str(tmp_path / "no" / "list.txt"), str(tmp_path / "script.py")]) == 2
    assert "cannot be written" in capsys.readouterr().err
