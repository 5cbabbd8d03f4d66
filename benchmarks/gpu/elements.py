"""Checks and times element types and layout changes on a device.

python benchmarks/gpu/elements.py check          check_cases.py's problems of types and layouts, through tensor cores
python benchmarks/gpu/elements.py long           long sums against float64: by how much of the bound they err
python benchmarks/gpu/elements.py time           products of every type, layout copies, NCHW in every way, and PyTorch
python benchmarks/gpu/elements.py tables FILE    the tables of docs/benchmarks-gpu.md from such lines
Writes JSON lines to $OUT/elements.jsonl.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]
import gpu_test  # noqa: E402
from check_cases import laid_out_problems, typed_problems  # noqa: E402
from gpu_cases import Case, accepted, listed  # noqa: E402
from sm90 import BUILD, TARGET, compile_all, flush_buffer, microseconds  # noqa: E402

from tilesmith.codegen.cuda.layout import layout_copy  # noqa: E402
from tilesmith.plan.records import Draft, Pointer, Space  # noqa: E402
from tilesmith.problems.conv import ConvSignature  # noqa: E402
from tilesmith.problems.dtypes import dtype  # noqa: E402
from tilesmith.problems.gemm import GemmSignature  # noqa: E402
from tilesmith.problems.geometry import TensorView  # noqa: E402
from tilesmith.problems.samples import sample_args  # noqa: E402
from tilesmith.problems.work import flops  # noqa: E402
from tilesmith.solvers.relayout import channels_last  # noqa: E402

OUT = Path(os.environ.get("OUT", "."))
LIMIT_S = 110.0  # of the checks
FAMILIES = ("mma_dense", "wgmma_conv", "wgmma_halo", "wgmma_gemm")


def note(**row):
    shown = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()}
    print(" ".join(f"{k}={v}" for k, v in shown.items()), flush=True)
    with (OUT / "elements.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def check():
    gpu_test.FOLDER.mkdir(parents=True, exist_ok=True)
    cases = []
    for signature in (*typed_problems(), *laid_out_problems()):
        canonical = signature.canonical
        for candidate in accepted(canonical, TARGET):
            if candidate.solver.name == "mma_dense" or candidate.solver.name.endswith("_nhwc"):
                cases += [Case("kernels", canonical.key(), candidate.name, number) for number in range(2)]
    random.Random(0).shuffle(cases)  # what the time allows is a sample of all
    state = gpu_test.State(OUT / "elements_state.jsonl", True)
    gpu_test.run_cases(cases, state, time.monotonic() + LIMIT_S)
    wrong = [row for row in state.rows.values() if not row["ok"]]
    note(part="check", cases=len(cases), rows=len(state.rows), wrong=len(wrong))
    return len(wrong)


def long_sums():
    """Filter gradients of many pixels: the untuned config, and one that splits less."""
    from gpu_worker import CACHE

    from tilesmith.measure.device_bench import DeviceBench
    from tilesmith.measure.device_oracle import device_oracle
    from tilesmith.plan.assemble import assemble
    from tilesmith.runtime.executable import Executable

    signatures = [s.canonical for _, mode, s in listed("volumetric") if mode == "wrw" and s.input_shape[-1] == 256][:1]
    signatures += [replace(signatures[0], kernel_dtype="fp32")]
    signatures += [GemmSignature(256, 256, 1 << 19, trans_a=True, dtype="bf16", c_dtype=c) for c in ("bf16", "fp32")]
    for signature in signatures:
        values = sample_args(signature)
        truth = partial(device_oracle, signature, values, TARGET, 0, CACHE)
        bench = DeviceBench(signature, values, truth, TARGET, 0, CACHE)
        for candidate in accepted(signature, TARGET):
            if candidate.solver.name not in FAMILIES:
                continue
            g = candidate.geometry
            default = candidate.solver.default_config(g, TARGET)
            space = candidate.solver.search_space(g, TARGET)
            configs = [default] + [
                default.replace(**{n: s}) for n in ("cluster_k", "split_k") for s in (1, 2, 8) if n in space.axes
            ]
            for config in dict.fromkeys(c for c in configs if space.contains(c)):
                draft = candidate.solver.draft(g, config, TARGET)
                made = [CACHE.get_or_build(source, TARGET) for source in draft.sources]
                plan = assemble(draft, signature, candidate.name, str(config), TARGET, [a.digest for a in made])
                paths = {a.digest: a.path for a in made}
                verdict = bench.check(Executable(plan, [paths[d] for d in plan.artifacts]))
                facts = {"key": signature.key()[:90], "solver": candidate.name, "config": str(config)}
                share = verdict.error / max(verdict.bound, 1e-300)
                note(part="long", **facts, ok=verdict.ok, share=share, error=verdict.error, message=verdict.message)


# --- times ------------------------------------------------------------------------------------------------------------


def tensor_of(kind, count):
    import torch

    return torch.randint(0, 100, (count * kind,), dtype=torch.uint8, device="cuda")


def timed():
    import torch
    from device import Bound

    flush = flush_buffer()
    jobs = [*copies(), *products(), *conversions()]
    failed = set(compile_all([draft for _, draft, *_ in jobs]))
    for facts, draft, slots, rival in jobs:
        if failed & {source.symbol for source in draft.sources}:
            note(**facts, failed=True)
            continue
        held = slots()
        bound = Bound(draft, [str(BUILD / f"{s.symbol}.cubin") for s in draft.sources], held)
        bound()
        us = microseconds(bound, flush, 9)
        row = {**facts, "us": us}
        if "bytes" in facts:
            row["gb_s"] = 2e-3 * facts["bytes"] / us
        if "flops" in facts:
            row["tflops"] = facts["flops"] / us * 1e-6
        if rival is not None:
            try:
                call = rival(held)
                call()
                row["torch_us"] = microseconds(call, flush, 9)
            except RuntimeError as error:
                row["torch"] = str(error)[:80]
        note(**row)
        del held, bound
        torch.cuda.empty_cache()


def copies():
    sizes = ((64, 256, 56, 56), (16, 64, 112, 112), (64, 512, 7, 7), (32, 3, 224, 224), (8, 320, 64, 64))
    for name in ("bf16", "fp32", "int8"):
        for n, c, h, w in sizes:
            planes = TensorView("x", name, (n, c, 1, h, w), (c * h * w, h * w, h * w, w, 1))
            yield copy_job("planes", planes, channels_last(planes))
            yield copy_job("pixels", channels_last(planes), planes)
            yield copy_job("padded", planes, channels_last(planes, 8))
    for width in (4, 8):
        n, c, h, w = sizes[0]
        strides = (c * h * w, h * w * width, 0, w * width, width)
        vectors = TensorView("x", "fp16", (n, c, 1, h, w), strides, width)
        yield copy_job(f"c{width}", vectors, channels_last(vectors))


def copy_job(what, source, result):
    made, launch = layout_copy(source, result, Pointer(Space.SLOT, 0), Pointer(Space.SLOT, 1), TARGET)
    size = dtype(source.dtype).nbytes
    count = source.shape[0] * source.shape[1] * source.shape[3] * source.shape[4]
    facts = {"part": "copy", "dtype": source.dtype, "shape": str(source.shape), "of": what, "bytes": count * size}
    room = source.shape[0] * max(8, source.shape[1]) * source.shape[3] * source.shape[4]
    return facts, Draft((made,), (launch,)), lambda: [tensor_of(size, room), tensor_of(size, room)], None


def device_slots(signature):
    """The arguments of a plan as bytes on the device, the result last."""
    import numpy as np
    import torch

    from tilesmith.plan.slots import slots_of

    specs = slots_of(signature)
    values = sample_args(signature.canonical)
    held = [torch.from_numpy(np.ascontiguousarray(v).reshape(-1).view(np.uint8)).cuda() for v in values]
    return [*held, torch.zeros(specs[-1].nbytes, dtype=torch.uint8, device="cuda")]


def products():
    for types in ({"dtype": "bf16"}, {"dtype": "fp32", "acc_dtype": "tf32"}, {"dtype": "int8"},
                  {"dtype": "fp8e4m3", "c_dtype": "bf16"}):  # fmt: skip
        for ta, tb in ((False, True), (False, False), (True, False)):
            signature = GemmSignature(4096, 4096, 4096, trans_a=ta, trans_b=tb, **types)
            yield from jobs_of("gemm", signature, ("mma_dense",), partial(torch_gemm, types))
        more = {k: v for k, v in types.items() if k != "c_dtype"}
        for mode in ("fwd", "bwd", "wrw"):
            if not (types["dtype"] == "int8" and mode == "wrw"):
                signature = ConvSignature(
                    (32, 28, 28, 256), (256, 3, 3, 256), padding=1, mode=mode, shared_layout="NHWC", **more
                )
                yield from jobs_of("conv", signature, ("mma_dense",), None)


def jobs_of(part, signature, solvers, rival):
    for candidate in accepted(signature, TARGET):
        if candidate.solver.name.removesuffix("_nhwc") in solvers:
            config = candidate.solver.default_config(candidate.geometry, TARGET)
            draft = candidate.solver.draft(candidate.geometry, config, TARGET)
            predicted = candidate.solver.predict(candidate.geometry, config, TARGET) * 1e6
            facts = {"part": part, "key": signature.canonical.key()[:100], "solver": candidate.name,
                     "config": str(config), "flops": flops(signature), "predicted_us": predicted}  # fmt: skip
            yield facts, draft, partial(device_slots, signature), rival
            rival = None


def torch_gemm(types, held):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    kind = {"bf16": torch.bfloat16, "fp32": torch.float32, "int8": torch.int8, "fp8e4m3": torch.float8_e4m3fn}[
        types["dtype"]
    ]
    a, b = (h.view(kind).view(4096, 4096) for h in held[:2])
    if kind == torch.int8:
        return lambda: torch._int_mm(a, b.t())
    if kind == torch.float8_e4m3fn:
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)
    return lambda: a @ b.t()


def conversions():
    for x, w, options in (
        ((64, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
        ((64, 256, 14, 14), (256, 256, 3, 3), {"padding": 1}),
        ((64, 512, 7, 7), (512, 512, 3, 3), {"padding": 1}),
        ((64, 256, 56, 56), (64, 256, 1, 1), {}),
        ((32, 3, 224, 224), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
        ((4, 320, 64, 64), (320, 320, 3, 3), {"padding": 1}),
        ((16, 32, 28, 28), (48, 32, 3, 3), {"padding": 1}),
    ):
        for mode in ("fwd", "bwd", "wrw"):
            signature = ConvSignature(x, w, dtype="bf16", mode=mode, **options)
            yield from jobs_of("nchw", signature, FAMILIES, partial(torch_conv, signature))
    for channels in (35, 250):
        for mode in ("fwd", "bwd", "wrw"):
            x, w = (32, 28, 28, channels), (channels, 3, 3, channels)
            signature = ConvSignature(x, w, dtype="bf16", mode=mode, padding=1, shared_layout="NHWC")
            yield from jobs_of("odd", signature, FAMILIES, None)
    for width in (4, 8):
        x, w = (32, 128 // width, 28, 28, width), (128, 128 // width, 3, 3, width)
        for mode in ("fwd", "bwd", "wrw"):
            signature = ConvSignature(x, w, dtype="fp16", mode=mode, padding=1, shared_layout=f"NCHWc{width}")
            yield from jobs_of("vectors", signature, FAMILIES, None)


def torch_conv(signature, held):
    import torch

    torch.backends.cudnn.benchmark = True
    x, w, y = signature.input_shape, signature.kernel_shape, signature.output_shape
    first, second = {"fwd": (x, w), "bwd": (y, w), "wrw": (y, x)}[signature.mode]
    a, b = (h.view(torch.bfloat16).view(s) for h, s in zip(held, (first, second), strict=False))
    options = (list(signature.stride), list(signature.padding), list(signature.dilation), False, [0, 0], 1)
    if signature.mode == "fwd":
        return lambda: torch.nn.functional.conv2d(a, b, None, *options[:3])
    back = torch.ops.aten.convolution_backward
    if signature.mode == "bwd":
        empty = torch.empty(x, dtype=torch.bfloat16, device="cuda")
        return lambda: back(a, empty, b, None, *options, [True, False, False])
    empty = torch.empty(w, dtype=torch.bfloat16, device="cuda")
    return lambda: back(a, b, empty, None, *options, [False, True, False])


def tables(path):
    """Markdown: products of every type, and NCHW in every way."""
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    print("| 4096^3 GEMM | TFLOP/s | PyTorch, `n` x `t` |\n|---|---:|---:|")
    for row in (row for row in rows if row["part"] == "gemm"):
        a, b = (row["key"].split(";")[i].split("=")[1] for i in (5, 6))
        by = row["flops"] / row["torch_us"] * 1e-6
        print(f"| `{a}` x `{b}`, {row['key'].split('acc=')[1].split(';')[0]} sums | {row['tflops']:.0f} | {by:.0f} |")
    heads = ("bf16, all tensors NCHW, us", "in place", "copies, mma.sync", "copies, wgmma", "PyTorch, NCHW")
    print("\n| " + " | ".join(heads) + " |\n|---|---:|---:|---:|---:|")
    found = {}
    for row in (row for row in rows if row["part"] == "nchw"):
        times = found.setdefault(row["key"], {})
        name = "wgmma" if row["solver"].startswith("wgmma") else row["solver"]
        times[name] = min(times.get(name, 1e9), row["us"])
        times |= {"torch": row["torch_us"]} if "torch_us" in row else {}
    for key, times in found.items():
        _, mode, x, w = key.split(";")[:4]
        shown = " | ".join(f"{times[name]:.0f}" for name in ("mma_dense", "mma_dense_nhwc", "wgmma", "torch"))
        print(f"| {mode} {x.split(',')[-1]} * {w.split(',')[-1]} | {shown} |")


def main():
    wrong = 0
    if sys.argv[1:2] == ["tables"]:
        return tables(sys.argv[2])
    for word in sys.argv[1:] or ("check", "long", "time"):
        wrong += {"check": check, "long": long_sums, "time": timed}[word]() or 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
