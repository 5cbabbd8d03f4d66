"""What only a GPU shows of the runtime: tensors of other libraries, streams, graphs, threads, devices, host time.

``checks_runtime.py RESULTS`` writes a JSON line a check; ``checks.py`` runs it. The database is empty at the start, so
that no earlier run decides anything.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from unittest.mock import patch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "src")]
import numpy as np  # noqa: E402
from checks_worker import CACHE  # noqa: E402

from tilesmith.dispatch.launchable import get_launchable  # noqa: E402
from tilesmith.problems.conv import ConvSignature  # noqa: E402
from tilesmith.problems.gemm import GemmSignature  # noqa: E402
from tilesmith.problems.samples import sample_args, torch_args  # noqa: E402

RESULTS = []


def report(name, ok, **facts):
    rounded = {key: round(value, 4) if isinstance(value, float) else str(value) for key, value in facts.items()}
    RESULTS.append({"name": f"runtime: {name}", "part": "runtime", "ok": bool(ok), **rounded})


def small(**options):
    options = {"dtype": "bf16", "padding": 1, "shared_layout": "NHWC"} | options
    return ConvSignature((2, 9, 10, 16), (24, 3, 3, 16), **options)


def launch(signature):
    return get_launchable(signature, device="cuda", mode="fast", cache=CACHE, external=False)


def truth_of(signature, arguments):
    import torch

    x, w = (a.double().permute(0, 3, 1, 2) for a in arguments[:2])
    return torch.nn.functional.conv2d(x, w, padding=1).permute(0, 2, 3, 1)


def close(found, truth, tolerance=0.02):
    return bool(((found.double() - truth).abs().max() <= tolerance * truth.abs().max()).item())


def check_torch():
    import torch

    signature = small()
    run = launch(signature)
    x, w = torch_args(sample_args(signature), "cuda")
    y = run(x, w)
    report("torch call", close(y, truth_of(signature, (x, w))), solver=run.solver, config=run.config)
    inner = torch.empty(x.numel() + 1, dtype=x.dtype, device="cuda")[1:].view(x.shape).copy_(x)
    report("torch misaligned", torch.equal(run(inner, w), y))
    from tilesmith import conv, gemm

    again = conv(x, w, padding=1, shared_layout="NHWC")
    report("conv by the tensors' device", torch.equal(again, y))
    a, b = (torch.randn(70, 80, device="cuda"), torch.randn(80, 90, device="cuda"))
    report("gemm by the tensors' device", close(gemm(a, b), a.double() @ b.double(), 1e-5))


def check_prepared_and_out():
    import torch

    signature = small()
    run = launch(signature)
    x, w = torch_args(sample_args(signature), "cuda")
    y = run(x, w)
    out = torch.full_like(y, float("nan"))
    report("out is returned", run(x, w, out=out) is out and torch.equal(out, y))
    report("prepared", torch.equal(run.prepare(w)(x), y))
    gemm = GemmSignature(33, 40, 24, beta=0.5, dtype="fp32")
    values = sample_args(gemm)
    a, b, c = torch_args(values, "cuda")
    found = launch(gemm)(a, b, c)
    report("gemm with beta", close(found, a.double() @ b.double() + 0.5 * c.double(), 1e-5))


def check_streams_and_graphs():
    import torch

    signature = small()
    run = launch(signature)
    x, w = torch_args(sample_args(signature), "cuda")
    truth = run(x, w)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        other = run(x, w)
    stream.synchronize()
    report("on another stream", torch.equal(other, truth))
    graph, static = torch.cuda.CUDAGraph(), x.clone()
    fresh = launch(small(dtype="fp16"))
    half, filter_ = x.half(), w.half()
    with torch.cuda.graph(graph):
        y = run(static, w)
        first = fresh(half, filter_)  # the first call ever: its kernels are loaded while the stream records
    static.copy_(torch.randn_like(x))
    y.fill_(float("nan"))
    first.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    report("graph replayed on new values", torch.equal(y, run(static, w)))
    report("first call inside a graph", torch.equal(first, fresh(half, filter_)))


def worst_error(found, *operands):
    """Of filters and biases with their batch norms inside, beside the largest value of each."""
    worst, count = 0.0, len(operands[0])
    for i, (w, mean, variance, gamma, beta) in enumerate(zip(*operands, strict=True)):
        scale = gamma.double() * (variance.double() + 1e-5).rsqrt()
        whole = w.double() * scale[:, None, None, None], beta.double() - mean.double() * scale
        for mine, want in zip((found[i], found[i + count]), whole, strict=True):
            worst = max(worst, ((mine.double() - want).abs().max() / want.abs().max()).item())
    return worst


def check_folded_norms():
    """Batch norms of many layers in a launch: against float64, and in a graph whose parameters change."""
    import torch

    from tilesmith.torch_ops.compile import folding  # noqa: F401  (the operator)

    shapes = [(8 * (i % 7 + 1), i % 5 + 1, *[(1, 1), (3, 3), (7, 7)][i % 3]) for i in range(61)] + [(2048, 512, 1, 1)]
    # Half a unit in the last place of the largest value, and the sums' own error.
    for dtype, norm, bound in ((torch.bfloat16, torch.bfloat16, 4e-3), (torch.float16, torch.float32, 5e-4)):
        filters = [torch.randn(shape, device="cuda").to(dtype) for shape in shapes]
        filters = [w.to(memory_format=torch.channels_last) if i % 2 else w for i, w in enumerate(filters)]
        means, variances, gammas, betas = (
            [torch.randn(shape[0], device="cuda").to(norm) for shape in shapes] for _ in range(4)
        )
        for each in variances:
            each.abs_().add_(0.5)
        operands = filters, means, variances, gammas, betas
        more = [], means, variances, gammas, betas, [1e-5] * len(shapes), [0] * len(shapes), dtype

        torch.ops.tilesmith.folded_norms(filters, *more)  # compiles
        eager = worst_error(torch.ops.tilesmith.folded_norms(filters, *more), *operands)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = torch.ops.tilesmith.folded_norms(filters, *more)
        variances[3].add_(2.0)
        filters[5].mul_(-3.0)
        graph.replay()
        torch.cuda.synchronize()
        replayed = worst_error(captured, *operands)
        report(f"folded norms of {dtype}", max(eager, replayed) < bound, eager=eager, replayed=replayed)


def check_chains():
    """Each call reads what the call ahead of it wrote, and writes what that one read: it may begin before that ends."""
    import torch

    image, pixels = {"padding": 1, "shared_layout": "NHWC", "dtype": "bf16"}, (8, 28, 28)
    problems = {
        "gemm": GemmSignature(256, 512, 512, dtype="bf16"),
        "gemm of few rows": GemmSignature(16, 4096, 4096, dtype="bf16"),
        "gemm of odd sizes": GemmSignature(77, 129, 129, dtype="fp16"),
        "conv": ConvSignature((*pixels, 64), (64, 3, 3, 64), **image),
        "conv of odd channels": ConvSignature((*pixels, 21), (21, 3, 3, 21), **image),
        "conv of planes": ConvSignature((8, 32, 28, 28), (32, 32, 3, 3), padding=1, dtype="bf16"),
        "depthwise": ConvSignature((*pixels, 64), (64, 3, 3, 1), groups=64, **image),
    }
    for name, signature in problems.items():
        run = launch(signature)
        x, w = torch_args(sample_args(signature), "cuda")
        w = w / (w.numel() // w.shape[0]) ** 0.5  # so that numbers neither grow nor vanish
        two = [x.clone(), torch.empty_like(x)]

        def chain(wait, run=run, w=w, two=two):
            for i in range(40):
                run(two[i % 2], w, out=two[(i + 1) % 2])
                if wait:
                    torch.cuda.synchronize()

        chain(True)
        truth = two[0].clone()
        two[0].copy_(x)
        chain(False)
        torch.cuda.synchronize()
        on_stream = torch.equal(two[0], truth)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            two[0].copy_(x)
            chain(False)
        two[0].fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        good = bool(truth.isfinite().all()) and bool((truth != x).any())
        report(
            f"chain of {name}", good and on_stream and torch.equal(two[0], truth), solver=run.solver,
            on_stream=on_stream, largest=float(truth.float().abs().max()),
        )  # fmt: skip


def check_threads():
    import torch

    signature = small()
    run = launch(signature)
    x, w = torch_args(sample_args(signature), "cuda")
    truth, wrong = run(x, w), []

    def work():
        mine = torch.cuda.Stream()
        with torch.cuda.stream(mine):
            for _ in range(200):
                y = run(x, w)
            mine.synchronize()
        if not torch.equal(y, truth):
            wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    report("eight threads", not wrong)


def check_cupy():
    import cupy
    import torch

    signature = small(dtype="fp16")
    run = launch(signature)
    values = sample_args(signature)
    x, w = torch_args(values, "cuda")
    found = run(*(cupy.asarray(value) for value in values))
    report("cupy call", isinstance(found, cupy.ndarray) and torch.equal(torch.from_dlpack(found), run(x, w)))


def check_dlpack():
    import torch

    class Foreign:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **options):
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    signature = small(dtype="fp32")
    run = launch(signature)
    x, w = torch_args(sample_args(signature), "cuda")
    torch.cuda.synchronize()
    found = run(Foreign(x), Foreign(w))
    report("dlpack call", torch.equal(torch.as_tensor(found, device="cuda"), run(x, w)))


def check_errors():
    import torch

    from tilesmith.errors import ArgumentError

    signature = small()
    run = launch(signature)
    x, w = torch_args(sample_args(signature), "cuda")
    for name, arguments, word in (
        ("on the CPU", (x.cpu(), w.cpu()), "device cpu"),
        ("dtype", (x.float(), w), "dtype bfloat16, got float32"),
        ("shape", (x[:1], w), "shape (2, 9, 10, 16), got (1, 9, 10, 16)"),
        ("numpy", (np.zeros(3), w), "NumPy"),
    ):
        try:
            run(*arguments)
            report(f"refuses {name}", False)
        except ArgumentError as error:
            report(f"refuses {name}", word in str(error), message=str(error))
    torch.cuda.synchronize()


def check_host_time():
    import torch

    signature = ConvSignature((1, 8, 8, 8), (8, 3, 3, 8), dtype="bf16", shared_layout="NHWC", padding=1)
    run = launch(signature).bound
    x, w = torch_args(sample_args(signature), "cuda")
    xt, wt = x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2)
    conv = torch.nn.functional.conv2d
    calls = {"ours": lambda: run(x, w), "torch": lambda: conv(xt, wt, padding=1)}
    flags = (tuple(x.shape), x.stride(), x.dtype)
    parts = {"new_empty_strided": lambda: x.new_empty_strided(flags[0], flags[1], dtype=flags[2]), "is_neg": x.is_neg}
    fast = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
    if fast is not None:
        parts["_empty_strided_cuda"] = lambda: fast(*flags)
    calls |= parts
    with torch.inference_mode():
        best = {}
        for _ in range(7):
            for name, call in calls.items():
                torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(300):
                    call()
                best[name] = min(best.get(name, 1.0), (time.perf_counter() - begin) / 300)
    ratio = best["ours"] / best["torch"]
    us = {name.replace(" ", "_"): seconds * 1e6 for name, seconds in best.items()}
    report("host time of a bound call", ratio <= 0.6, ratio=ratio, **us)


def check_host_time_of_calls():
    """``tilesmith.conv`` beside PyTorch's function, without and with gradients recorded: the untuned kernel, and what a
    search of the default mode leaves, which may be PyTorch's kernel."""
    import host
    import torch

    from tilesmith.dispatch import kept_calls

    x, w, a, v = host.tensors("cuda")
    for find in ("fast", "hybrid"):
        with patch.dict(os.environ, TILESMITH_FIND_MODE=find):
            kept_calls.forget()
            for mode, limit in host.LIMITS.items():
                w.requires_grad_(mode == "gradients")
                with torch.set_grad_enabled(mode == "gradients"):
                    calls = host.calls(x, w, a, v)
                    us = host.microseconds_on_gpu({name: calls[name] for name in ("torch conv2d", "tilesmith.conv")})
                ratio, kernel = us["tilesmith.conv"] / us["torch conv2d"], host.kernels(x, w.detach(), a, v)["conv"]
                facts = {"ratio": ratio, "ours": us["tilesmith.conv"], "torch": us["torch conv2d"], "kernel": kernel}
                report(f"host time of an eager call, {find}, {mode}", ratio <= limit, **facts)
    kept_calls.forget()


def check_devices():
    """One plan on every device at once, from several threads each."""
    import torch

    signature = small()
    run = launch(signature)
    values = sample_args(signature)
    wanted = run(*torch_args(values, "cuda:0")).cpu()
    wrong = []

    def work(ordinal):
        try:
            x, w = torch_args(values, f"cuda:{ordinal}")
            with torch.cuda.device(ordinal), torch.cuda.stream(torch.cuda.Stream(ordinal)) as stream:
                for _ in range(100):
                    y = run(x, w)
                torch.cuda.current_stream().synchronize()
            del stream
            if y.device.index != ordinal or not torch.equal(y.cpu(), wanted):
                wrong.append(ordinal)
        except Exception as error:
            wrong.append(f"{ordinal}: {error}")

    count = torch.cuda.device_count()
    threads = [threading.Thread(target=work, args=(number % count,)) for number in range(4 * count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    report(f"{len(threads)} threads on {count} devices", not wrong, wrong=wrong)


def check_tuning_on_each_device():
    """A search on ``cuda:N`` has its tensors, its stream and its answer there, for ours and for PyTorch's kernels."""
    import torch

    from tilesmith.db.opening import open_database
    from tilesmith.measure.device_oracle import device_oracle
    from tilesmith.runtime.device import device_of
    from tilesmith.targets.detect_cuda import cuda_target_of
    from tilesmith.tune.crash_report import CrashReport
    from tilesmith.tune.device_worker import DeviceWorker
    from tilesmith.tune.messages import Load, Loaded, Setup
    from tilesmith.tune.session import tune

    signature = small(stride=2).canonical
    values, wrong = sample_args(signature), []
    with tempfile.TemporaryDirectory() as folder:
        for ordinal in range(torch.cuda.device_count()):
            target = cuda_target_of(ordinal)
            setup = Setup(signature.key(), 0, "", ordinal, str(CACHE.directory))
            worker = DeviceWorker(
                setup, CrashReport(Path(folder) / f"note{ordinal}"),
                lambda setup, t=target: device_oracle(signature, values, t, setup.device, CACHE),
            )  # fmt: skip
            places = {device_of(address) for address in worker.bench.checker.slots}
            stream = worker.bench.checker.stream.device.ordinal
            before = torch.cuda.memory_allocated(ordinal)
            reply = worker.load(Load("theirs", solver="torch_cudnn"))
            there = torch.cuda.memory_allocated(ordinal) > before
            worker.close()
            database = open_database(Path(folder) / f"{ordinal}.db")
            found = tune(
                signature, target, database=database, cache=CACHE, device=ordinal, max_trials=3, external=False
            )
            if places != {ordinal} or stream != ordinal or not there or not isinstance(reply, Loaded) or found.failed:
                wrong.append(f"cuda:{ordinal}: {places} {stream} {there} {reply} {found.failed} failed")
    report(f"tuning on each of {torch.cuda.device_count()} devices", not wrong, wrong=wrong)


def check_external():
    """PyTorch's own kernels as a launchable's choice, asked for by name."""
    import torch

    for signature, solver in ((small(), "torch_cudnn"), (GemmSignature(70, 90, 80, dtype="bf16"), "torch_cublas")):
        run = get_launchable(signature, device="cuda", only=solver, external=True, mode="fast", cache=CACHE)
        own = launch(signature)
        tensors = torch_args(sample_args(signature), "cuda")
        found, wanted = run(*tensors), own(*tensors)
        report(f"{solver} is called", run.solver == solver and close(found, wanted.double()), plan=run.plan.solver)
        same = found.shape == wanted.shape and found.stride() == wanted.stride()
        report(f"{solver} lays its result", same, strides=found.stride())
        report(f"{solver} prepared", close(run.prepare(tensors[1])(tensors[0]), wanted.double()))
        out = torch.full_like(wanted, float("nan"))
        report(f"{solver} with out=", run(*tensors, out=out) is out and torch.equal(out, wanted))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = run(*tensors)
        y.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        report(f"{solver} in a graph", close(y, wanted.double()))
        seen = []
        thread = threading.Thread(target=lambda run=run, tensors=tensors, seen=seen: seen.append(run(*tensors)))
        thread.start()
        thread.join()
        report(f"{solver} in another thread", bool(seen) and close(seen[0], wanted.double()))


CHECKS = (
    check_torch, check_prepared_and_out, check_streams_and_graphs, check_chains, check_threads, check_cupy,
    check_dlpack, check_errors, check_devices, check_external, check_host_time, check_host_time_of_calls,
    check_tuning_on_each_device,
)  # fmt: skip


def main(path: str) -> int:
    with tempfile.TemporaryDirectory() as folder, open(path, "a") as file:
        os.environ["TILESMITH_DB_PATH"] = str(Path(folder, "tilesmith.db"))
        for check in CHECKS:
            RESULTS.clear()
            begin = time.perf_counter()
            try:
                check()
            except Exception as error:
                traceback.print_exc()
                report(check.__name__, False, message=f"{type(error).__name__}: {error}"[:300])
            for row in RESULTS:
                file.write(json.dumps(row | {"seconds": round(time.perf_counter() - begin, 3)}) + "\n")
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
