"""Checks everything that needs a GPU: the runtime, tensors of other libraries, graphs, and every CUDA solver's numbers.

python benchmarks/gpu/build_runtime.py
python benchmarks/gpu/check.py [runtime] [kernels] [lists NAME ...] [tune]

runtime  PyTorch, CuPy and DLPack tensors, streams, graphs, threads, host time of a bound call
kernels  odd shapes in every dtype, direction and epilogue, through every solver's default config; NaN and Inf planted
lists    the problems of benchmarks/problems/NAME.txt through the first solver that accepts each
tune     one search of each kind, the worker process included
Writes a JSON line a result to $OUT/check.jsonl; the exit status is 1 if anything was wrong.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "src"))
import numpy as np  # noqa: E402
from check_cases import odd_problems  # noqa: E402

from tilesmith.dispatch.launchable import get_launchable  # noqa: E402
from tilesmith.measure.accuracy import planted_copy  # noqa: E402
from tilesmith.measure.device_arrays import DeviceRechecker  # noqa: E402
from tilesmith.measure.device_bench import DeviceBench  # noqa: E402
from tilesmith.measure.device_oracle import device_oracle  # noqa: E402
from tilesmith.plan.assemble import assemble  # noqa: E402
from tilesmith.problems.conv import ConvSignature  # noqa: E402
from tilesmith.problems.driver import parse_command  # noqa: E402
from tilesmith.problems.gemm import GemmSignature  # noqa: E402
from tilesmith.problems.samples import sample_args, torch_args  # noqa: E402
from tilesmith.problems.work import flops  # noqa: E402
from tilesmith.runtime.device import device  # noqa: E402
from tilesmith.runtime.executable import Executable  # noqa: E402
from tilesmith.solvers.solver import Accepted  # noqa: E402
from tilesmith.solvers.table import candidates  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_devices, cuda_target_of  # noqa: E402
from tilesmith.toolchain.cache import ArtifactCache  # noqa: E402

OUT = Path(os.environ.get("OUT", tempfile.gettempdir()))
CACHE = ArtifactCache(Path(tempfile.gettempdir()) / "tilesmith-check")
RESULTS = []


def report(name, ok, **facts):
    RESULTS.append({"name": name, "ok": bool(ok), **facts})
    text = " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in facts.items())
    print(f"{'ok  ' if ok else 'FAIL'} {name} {text}", flush=True)


def step(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        traceback.print_exc()
        report(f"{function.__name__} {' '.join(map(str, arguments))}"[:120], False, error=str(error)[:300])


# --- kernels ----------------------------------------------------------------------------------------------------------


def draft_of(candidate, target):
    config = candidate.solver.default_config(candidate.geometry, target)
    return candidate.solver.draft(candidate.geometry, config, target), str(config)


def load(signature, candidate, target):
    draft, config = draft_of(candidate, target)
    made = [CACHE.get_or_build(source, target) for source in draft.sources]
    plan = assemble(draft, signature, candidate.name, config, target, [artifact.digest for artifact in made])
    paths = {artifact.digest: artifact.path for artifact in made}
    return Executable(plan, [paths[digest] for digest in plan.artifacts]), config


def compile_all(pairs, target):
    """Every source once, as many compilers at a time as there are cores."""
    sources = {}
    for _, candidate in pairs:
        for source in draft_of(candidate, target)[0].sources:
            sources[source.symbol] = source
    begin = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda source: CACHE.get_or_build(source, target), sources.values()))
    print(f"compiled {len(sources)} kernels in {time.perf_counter() - begin:.1f} s", flush=True)


def planted(values):
    for place, value in enumerate(values):
        if value.dtype.kind not in "iu":
            for kinds in ((np.nan, np.nan), (np.inf, -np.inf)):
                yield (
                    f"{kinds[0]} in {place}",
                    (*values[:place], planted_copy(value, kinds, place), *values[place + 1 :]),
                )


def check_kernels(target):
    pairs = []
    for signature in odd_problems():
        canonical = signature.canonical
        for candidate in candidates(canonical, target):
            if isinstance(candidate.verdict, Accepted):
                pairs.append((canonical, candidate))
    compile_all(pairs, target)
    for signature, candidate in pairs:
        step(check_kernel, signature, candidate, target)


def check_kernel(signature, candidate, target):
    executable, config = load(signature, candidate, target)
    values = sample_args(signature)
    cases = [("", values), *(planted(values) if flops(signature) < 5e7 else ())]
    for special, case in cases:
        with np.errstate(all="ignore"):
            truth = device_oracle(signature, case, target, 0, CACHE)
            checker = DeviceRechecker(signature, case, truth, device(0))
            plan = checker.plan(executable)
            for poison in (True, False):
                verdict = checker.check_plan(plan, poison=poison)
                if not verdict.ok:
                    break
        if not verdict.ok or not special:
            report(f"{candidate.name} {signature.key()}", verdict.ok, config=config, special=special,
                   error=verdict.error, bound=verdict.bound, message=verdict.message)  # fmt: skip
        if not verdict.ok:
            return


def check_list(name, target):
    lines = [line.split("#")[0].strip() for line in (ROOT / f"benchmarks/problems/{name}.txt").read_text().splitlines()]
    problems = {}
    for line in filter(None, lines):
        for _, signature in parse_command(line).signatures:
            problems[signature.canonical.key()] = signature.canonical
    pairs = []
    for signature in problems.values():
        first = next(c for c in candidates(signature, target) if isinstance(c.verdict, Accepted))
        pairs.append((signature, first))
    compile_all(pairs, target)
    for signature, candidate in pairs:
        step(time_kernel, signature, candidate, target)


def time_kernel(signature, candidate, target):
    executable, config = load(signature, candidate, target)
    values = sample_args(signature)
    begin = time.perf_counter()
    bench = DeviceBench(signature, values, device_oracle(signature, values, target, 0, CACHE), target)
    setup = time.perf_counter() - begin
    checked = bench.check(executable)
    timing = bench.time({"": checked.plan.run}, budget_s=0.2, rounds=7)[""]
    report(f"{candidate.name} {signature.key()}", checked.verdict.ok, config=config, us=timing.median_us,
           spread=timing.spread_us, tflops=flops(signature) / timing.median_us * 1e-6, setup_s=setup,
           message=checked.verdict.message)  # fmt: skip


# --- runtime ----------------------------------------------------------------------------------------------------------


def check_runtime(target):
    checks = (check_torch, check_prepared_and_out, check_streams_and_graphs, check_threads, check_cupy, check_dlpack)
    for check in (*checks, check_errors, check_host_time):
        step(check)


def small(**options):
    options = {"dtype": "bf16", "padding": 1, "shared_layout": "NHWC"} | options
    return ConvSignature((2, 9, 10, 16), (24, 3, 3, 16), **options)


def launch(signature):
    return get_launchable(signature, device="cuda", mode="fast", cache=CACHE)


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
    fresh = get_launchable(small(dtype="fp16"), device="cuda", mode="fast", cache=CACHE)
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


# --- tuning -----------------------------------------------------------------------------------------------------------


def check_tune(target):
    from tilesmith.db.layers import open_layers
    from tilesmith.tune.session import tune

    with tempfile.TemporaryDirectory() as folder:
        database = open_layers([Path(folder) / "check.db"]).writable
        for signature in (
            ConvSignature((8, 28, 28, 128), (128, 3, 3, 128), dtype="bf16", shared_layout="NHWC", padding=1),
            GemmSignature(1000, 2000, 500, dtype="bf16"),
        ):
            begin = time.perf_counter()
            result = tune(signature, target, database=database, cache=CACHE, max_seconds=15)
            record = result.record
            report(f"tune {signature.key()}", record.ok, solver=record.solver, config=record.config,
                   us=record.time_us, trials=result.trials, failed=result.failed,
                   seconds=time.perf_counter() - begin, speedup=result.speedup)  # fmt: skip


def main():
    words = sys.argv[1:] or ["runtime", "kernels"]
    print(cuda_devices(), flush=True)
    target = cuda_target_of(0)
    if "runtime" in words:
        check_runtime(target)
    if "kernels" in words:
        check_kernels(target)
    if "lists" in words:
        for name in words[words.index("lists") + 1 :]:
            if (ROOT / f"benchmarks/problems/{name}.txt").exists():
                step(check_list, name, target)
    if "tune" in words:
        step(check_tune, target)
    wrong = [result for result in RESULTS if not result["ok"]]
    with open(OUT / "check.jsonl", "w") as file:
        file.writelines(json.dumps(result) + "\n" for result in RESULTS)
    print(f"{len(RESULTS) - len(wrong)} ok, {len(wrong)} wrong")
    for result in wrong:
        print("WRONG", {k: str(v)[:200] for k, v in result.items()})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
