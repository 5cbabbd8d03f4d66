"""Times of element types and layout changes on a device, untuned, and the errors of long sums.

python benchmarks/gpu/probes/elements.py long           long sums against float64: by how much of the bound they err
python benchmarks/gpu/probes/elements.py time           products of every type, NCHW in every way, and PyTorch
python benchmarks/gpu/probes/elements.py tables FILE    the tables of docs/benchmarks-gpu.md from such lines
Writes JSON lines to $OUT/elements.jsonl. Times are those of single calls with a cold L2, each beside PyTorch's.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[2] / "src")]
from checks_worker import CACHE  # noqa: E402
from gpu_cases import accepted, listed  # noqa: E402
from rows import times_of  # noqa: E402

from tilesmith.measure.device_bench import DeviceBench  # noqa: E402
from tilesmith.measure.device_oracle import device_oracle  # noqa: E402
from tilesmith.plan.assemble import assemble  # noqa: E402
from tilesmith.problems.conv import ConvSignature  # noqa: E402
from tilesmith.problems.gemm import GemmSignature  # noqa: E402
from tilesmith.problems.samples import sample_args  # noqa: E402
from tilesmith.problems.work import flops  # noqa: E402
from tilesmith.runtime.executable import Executable  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402

OUT = Path(os.environ.get("OUT", "."))
FAMILIES = ("mma_dense", "wgmma_conv", "wgmma_halo", "wgmma_gemm")


def note(**row):
    shown = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()}
    print(" ".join(f"{k}={v}" for k, v in shown.items()), flush=True)
    with (OUT / "elements.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def long_sums(target):
    """Filter gradients of many pixels: the untuned config, and one that splits less."""
    signatures = [s.canonical for _, mode, s in listed("volumetric") if mode == "wrw" and s.input_shape[-1] == 256][:1]
    signatures += [replace(signatures[0], kernel_dtype="fp32")]
    signatures += [GemmSignature(256, 256, 1 << 19, trans_a=True, dtype="bf16", c_dtype=c) for c in ("bf16", "fp32")]
    for signature in signatures:
        values = sample_args(signature)
        truth = partial(device_oracle, signature, values, target, 0, CACHE)
        bench = DeviceBench(signature, values, truth, target, 0, CACHE)
        for candidate in accepted(signature, target):
            if candidate.solver.name not in FAMILIES:
                continue
            g = candidate.geometry
            default = candidate.solver.default_config(g, target)
            space = candidate.solver.search_space(g, target)
            splits = [name for name in ("cluster_k", "split_k") if name in space.axes]
            configs = [default] + [default.replace(**{name: s}) for name in splits for s in (1, 2, 8)]
            for config in dict.fromkeys(c for c in configs if space.contains(c)):
                draft = candidate.solver.draft(g, config, target)
                made = [CACHE.get_or_build(source, target) for source in draft.sources]
                plan = assemble(draft, signature, candidate.name, str(config), target, [a.digest for a in made])
                paths = {a.digest: a.path for a in made}
                verdict = bench.check(Executable(plan, [paths[d] for d in plan.artifacts]))
                facts = {"key": signature.key()[:90], "solver": candidate.name, "config": str(config)}
                share = verdict.error / max(verdict.bound, 1e-300)
                note(part="long", **facts, ok=verdict.ok, share=share, error=verdict.error, message=verdict.message)


def timed(target):
    """Every family that takes a problem, in its untuned config."""
    for part, signature, families in (*products(), *conversions()):
        canonical = signature.canonical
        for candidate in accepted(canonical, target):
            if candidate.solver.name not in families:
                continue
            config = str(candidate.solver.default_config(candidate.geometry, target))
            facts = {"part": part, "key": canonical.key()[:100], "solver": candidate.name, "config": config}
            try:
                times = times_of(canonical, candidate.name, config, target)
            except ValueError as error:
                note(**facts, failed=str(error))
                continue
            us = times.get(("single", "early"), 0.0)
            row = facts | {"flops": flops(signature), "us": us, "tflops": us and flops(signature) / us * 1e-6}
            if ("single", "library") in times:
                row["torch_us"] = times["single", "library"]
            note(**row)


def products():
    """``(part, signature, families)`` of one size in every element type."""
    for types in ({"dtype": "bf16"}, {"dtype": "fp32", "acc_dtype": "tf32"}, {"dtype": "int8"},
                  {"dtype": "fp8e4m3", "c_dtype": "bf16"}):  # fmt: skip
        for ta, tb in ((False, True), (False, False), (True, False)):
            signature = GemmSignature(4096, 4096, 4096, trans_a=ta, trans_b=tb, **types)
            yield "gemm", signature, ("mma_dense",)
        more = {k: v for k, v in types.items() if k != "c_dtype"}
        for mode in ("fwd", "bwd", "wrw"):
            if not (types["dtype"] == "int8" and mode == "wrw"):
                signature = ConvSignature(
                    (32, 28, 28, 256), (256, 3, 3, 256), padding=1, mode=mode, shared_layout="NHWC", **more
                )
                yield "conv", signature, ("mma_dense",)


def conversions():
    """``(part, signature, families)`` of layouts that fast kernels do not read."""
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
            yield "nchw", signature, FAMILIES
    for channels in (35, 250):
        for mode in ("fwd", "bwd", "wrw"):
            x, w = (32, 28, 28, channels), (channels, 3, 3, channels)
            signature = ConvSignature(x, w, dtype="bf16", mode=mode, padding=1, shared_layout="NHWC")
            yield "odd", signature, FAMILIES
    for width in (4, 8):
        x, w = (32, 128 // width, 28, 28, width), (128, 128 // width, 3, 3, width)
        for mode in ("fwd", "bwd", "wrw"):
            signature = ConvSignature(x, w, dtype="fp16", mode=mode, padding=1, shared_layout=f"NCHWc{width}")
            yield "vectors", signature, FAMILIES


def tables(path):
    """Markdown: products of every type, and NCHW in every way."""
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    print("| 4096^3 GEMM | TFLOP/s | PyTorch, `n` x `t` |\n|---|---:|---:|")
    for row in (row for row in rows if row["part"] == "gemm"):
        a, b = (row["key"].split(";")[i].split("=")[1] for i in (5, 6))
        by = f"{row['flops'] / row['torch_us'] * 1e-6:.0f}" if "torch_us" in row else ""
        print(f"| `{a}` x `{b}`, {row['key'].split('acc=')[1].split(';')[0]} sums | {row['tflops']:.0f} | {by} |")
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
        shown = " | ".join(
            f"{times[name]:.0f}" if name in times else "" for name in ("mma_dense", "mma_dense_nhwc", "wgmma", "torch")
        )
        print(f"| {mode} {x.split(',')[-1]} * {w.split(',')[-1]} | {shown} |")


def main():
    if sys.argv[1:2] == ["tables"]:
        tables(sys.argv[2])
        return
    for word in sys.argv[1:] or ("long", "time"):
        {"long": long_sums, "time": timed}[word](cuda_target_of(0))


if __name__ == "__main__":
    main()
