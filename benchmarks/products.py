"""Products of models on a CPU: our untuned choice beside PyTorch's, each with the bias and activation behind it.

    python benchmarks/products.py [--dtype fp32] [--only TEXT] [--rounds N] [--write]

The layers are those of ConvNeXt-T, ViT-B, Swin-T and BERT-base with batch 1, heads of classifiers, and single tokens of
language models. Ours is the operator of a compiled graph, with the filter packed once, and at each call. PyTorch's is
the faster of ``linear`` and of the product that Inductor's freezing takes (MKL or oneDNN, with the filter packed once),
then the activation and the residual in one compiled pass over memory; in bf16 also the product with the activation in
oneDNN's kernel, which files of before 2026-11-29 do not have. All are measured in turns, with one thread, whose
clock is its CPU time. --write leaves benchmarks/results/products_<card>_<dtype>.json, which the rules of
src/tilesmith/torch_ops/compile/expectation.py are made from.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

import tilesmith.torch_ops  # noqa: F401
from tilesmith import host_target
from tilesmith.measure.host import host_facts
from tilesmith.measure.timing import interleave
from tilesmith.toolchain.compilers import find_compiler

RESULTS = Path(__file__).parent / "results"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
Forward = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Layer:
    """``activation(x @ w.T + bias) + residual``, with ``m`` rows, ``n`` columns and ``k`` terms of each sum."""

    name: str
    m: int
    n: int
    k: int
    activation: str = "none"
    residual: bool = False


def blocks(name: str, rows: int, width: int) -> list[Layer]:
    """The products of a transformer's block."""
    return [
        Layer(f"{name} qkv", rows, 3 * width, width),
        Layer(f"{name} projection", rows, width, width, residual=True),
        Layer(f"{name} up", rows, 4 * width, width, "gelu"),
        Layer(f"{name} down", rows, width, 4 * width, residual=True),
    ]


LAYERS = [
    *[
        layer
        for rows, width in ((3136, 96), (784, 192), (196, 384), (49, 768))
        for layer in (
            Layer(f"convnext_tiny {width} up", rows, 4 * width, width, "gelu"),
            Layer(f"convnext_tiny {width} down", rows, width, 4 * width, residual=True),
            Layer(f"convnext_tiny {width} up, batch 8", 8 * rows, 4 * width, width, "gelu"),
            Layer(f"convnext_tiny {width} down, batch 8", 8 * rows, width, 4 * width, residual=True),
        )
    ],
    *blocks("vit_b_16", 197, 768), *blocks("swin_t", 784, 192), *blocks("bert_base, 128 tokens", 128, 768),
    Layer("head of mobilenet_v3_large", 1, 1280, 960, "hardswish"), Layer("head of resnet50", 1, 1000, 2048),
    Layer("head of resnet50, batch 8", 8, 1000, 2048), Layer("mlp, batch 64", 64, 512, 512, "relu"),
    Layer("token, 2048", 1, 8192, 2048, "silu"), Layer("8 tokens, 2048", 8, 8192, 2048, "silu"),
]  # fmt: skip
_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda x: x, "gelu": functional.gelu, "hardswish": functional.hardswish, "relu": torch.relu,
    "silu": functional.silu,
}  # fmt: skip
_FUSED = {"silu": "swish"}  # oneDNN's names where they are others


def ways(layer: Layer, dtype: torch.dtype) -> dict[str, Forward]:
    """Ours and PyTorch's ways to compute a layer. All give the same numbers: checked here."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    x, w, bias = drawn(layer.m, layer.k), drawn(layer.n, layer.k) / layer.k**0.5, drawn(layer.n)
    z = drawn(layer.m, layer.n) if layer.residual else None
    turned = w.t()
    gemm = torch.ops.tilesmith.gemm.default
    activate = _ACTIVATIONS[layer.activation]
    behind: Any = activate
    if layer.activation != "none" or z is not None:
        torch._dynamo.reset()  # what it compiled for other layers counts against its limit
        behind = torch.compile(lambda y: activate(y) if z is None else activate(y) + z)
    options: dict[str, Any] = {"activation": layer.activation, "mode": "fast", "threads": 1}
    found: dict[str, Forward] = {
        "ours": lambda: gemm(x, turned, bias, z, frozen=True, **options),
        "ours, not packed": lambda: gemm(x, turned, bias, z, **options),
        "linear": lambda: behind(functional.linear(x, w, bias)),
    }
    if dtype is torch.float32 and torch.backends.mkl.is_available():
        mkl: Any = torch.ops.mkl
        packed = mkl._mkl_reorder_linear_weight(w, layer.m)
        found["packed"] = lambda: behind(mkl._mkl_linear(x, packed, w, bias, layer.m))
    elif torch.ops.mkldnn._is_mkldnn_bf16_supported():
        ops: Any = torch.ops.mkldnn
        prepared = ops._reorder_linear_weight(w, layer.m)
        found["packed"] = lambda: behind(ops._linear_pointwise(x, prepared, bias, "none", [], ""))
        if layer.activation != "none":  # as Inductor's freezing has it
            fused, form = _FUSED.get(layer.activation, layer.activation), "none" if layer.activation == "gelu" else ""
            found["fused"] = lambda: ops._linear_pointwise(x, prepared, bias, fused, [], form)
    exact = functional.linear(x.double(), w.double(), bias.double())
    wanted = activate(exact) if z is None else activate(exact) + z.double()
    bound = 1e-4 if dtype is torch.float32 else 4e-2
    for name, call in found.items():
        error = float((call().double() - wanted).abs().max() / wanted.abs().max())
        if error > bound:
            raise SystemExit(f"{layer.name}, {name}: an error of {error:.2g}, above {bound:.2g}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=list(DTYPES), default="fp32")
    parser.add_argument("--only", default="", help="a part of a layer's name")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each layer")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with torch.no_grad():
        for layer in LAYERS:
            if asked.only not in layer.name:
                continue
            calls = ways(layer, DTYPES[asked.dtype])
            times = interleave(calls, budget_s=asked.seconds, rounds=asked.rounds, threads=1)
            us = {name: timing.low_us for name, timing in times.items()}
            theirs = min(time for name, time in us.items() if not name.startswith("ours"))
            packed, unpacked = (round(theirs / us[name], 3) for name in ("ours", "ours, not packed"))
            rows.append({
                "layer": layer.name, "m": layer.m, "n": layer.n, "k": layer.k, "activation": layer.activation,
                "residual": layer.residual, "us": {name: round(time, 1) for name, time in us.items()},
                "ratio": packed, "ratio_not_packed": unpacked,
            })  # fmt: skip
            print(f"{layer.name:32} {layer.m}x{layer.n}x{layer.k} {layer.activation:9}"
                  f"{'+ residual' if layer.residual else '':10} {packed:6.2f} {unpacked:6.2f}  "
                  + "  ".join(f"{name} {time:.1f}" for name, time in us.items()), flush=True)  # fmt: skip
    for how, name in (("once", "ratio"), ("at each call", "ratio_not_packed")):
        ratios = [row[name] for row in rows]
        print(
            f"PyTorch's faster time over ours, {len(rows)} layers, the filter packed {how}: "
            f"{statistics.geometric_mean(ratios):.3f}, least {min(ratios)}"
        )
    if asked.write and not asked.only:
        target, host = host_target(1), host_facts(find_compiler().identity)
        facts = {"host": host.name, "date": host.date, "target": target.name, "dtype": asked.dtype, "threads": 1}
        path = RESULTS / f"products_{target.card}_{asked.dtype}.json"
        path.write_text(json.dumps(facts | {"torch": torch.__version__, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
