"""What the epilogue of a fused kernel costs on CPUs: each form of a layer beside the kernel without epilogue.

    python benchmarks/fused.py [--batch 1 8] [--dtype fp32 bf16] [--only TEXT] [--rounds N] [--write]

Layers are those of benchmarks/problems/fused.txt that stand in LAYERS, with the batch and the element type exchanged,
and some with other activations. Each runs as: plain; with bias and activation; with the residual too; and without the
residual, followed by a sum over its bytes, which is what a residual may cost. All forms are measured in turns, with one
thread, whose clock is its CPU time; filters are packed before. Times are lower quartiles, which a busy neighbour moves
less than medians. --write leaves benchmarks/results/fused_cpu.json. The kernels are the untuned choices.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilesmith import ConvSignature, Epilogue, GemmSignature, get_launchable, host_target
from tilesmith.codegen.c.epilogue import LONG
from tilesmith.dispatch.locations import open_cache
from tilesmith.measure.host import host_facts
from tilesmith.measure.timing import Timing, interleave
from tilesmith.problems.keys import parse_key
from tilesmith.toolchain.compilers import find_compiler

ROOT = Path(__file__).parent
RESULT = ROOT / "results" / "fused_cpu.json"
LISTED = 64  # the batch of the list
# A part of a key of the list, and the activation to take instead of the key's.
LAYERS = (
    ("x=bf16,NHWC,64x56x56x64;w=bf16,NHWC,64x1x1x64;", ""), ("64x56x56x64;w=bf16,NHWC,256x1x1x64;", ""),
    ("64x56x56x64;w=bf16,NHWC,64x3x3x64;", ""), ("64x14x14x256;w=bf16,NHWC,1024x1x1x256;", ""),
    ("64x14x14x256;w=bf16,NHWC,256x3x3x256;", ""), ("64x224x224x3;w=bf16,NHWC,16x3x3x3;", ""),
    ("64x28x28x40;w=bf16,NHWC,240x1x1x40;", ""), ("64x14x14x112;w=bf16,NHWC,672x1x1x112;", ""),
    ("64x14x14x672;w=bf16,NHWC,112x1x1x672;", ""), ("w=bf16,NHWC,480x1x1x120;", ""),
    ("64x56x56x72;w=bf16,NHWC,72x3x3x1;", ""), ("64x28x28x240;w=bf16,NHWC,240x3x3x1;", ""),
    ("64x14x14x672;w=bf16,NHWC,672x5x5x1;", ""), ("w=bf16,NHWC,96x7x7x1;", ""), ("w=bf16,NHWC,384x7x7x1;", ""),
    ("m=200704;n=384;k=96;", ""), ("m=200704;n=96;k=384;", ""), ("m=12544;n=1536;k=384;", ""),
    ("64x32x32x512;w=bf16,NHWC,1024x2x2x512;", ""), ("64x16x16x512;w=bf16,NHWC,1024x3x3x512;", ""),
    ("64x56x56x64;w=bf16,NHWC,64x3x3x64;", "silu"), ("64x28x28x40;w=bf16,NHWC,240x1x1x40;", "silu"),
    ("64x14x14x480;w=bf16,NHWC,480x3x3x1;", "silu"), ("64x56x56x64;w=bf16,NHWC,64x3x3x64;", "tanh"),
    ("64x14x14x256;w=bf16,NHWC,256x3x3x256;", "sigmoid"), ("m=12544;n=1536;k=384;", "gelu_tanh"),
)  # fmt: skip
# Of ResNeXt-50: no network of the list has groups of several channels.
GROUPED = ConvSignature(
    (LISTED, 28, 28, 256), (256, 3, 3, 8), groups=32, padding=1, shared_layout="NHWC", dtype="bf16",
    epilogue=Epilogue(bias=True, activation="relu"),
)  # fmt: skip

Signature = ConvSignature | GemmSignature


@dataclass(frozen=True)
class Row:
    """Microseconds of each form of a layer."""

    name: str
    kernel: str
    plain: Timing
    activated: Timing
    residual: Timing
    read: Timing
    alike: bool  # all forms run the same config

    @property
    def activation(self) -> float:
        return self.activated.low_us / self.plain.low_us

    @property
    def added(self) -> float:
        """The time with the residual over that of reading its bytes apart."""
        return self.residual.low_us / self.read.low_us

    def values(self) -> dict[str, Any]:
        times = {name: getattr(self, name) for name in ("plain", "activated", "residual", "read")}
        return {
            "layer": self.name, "kernel": self.kernel, "same_config": self.alike,
            **{f"{name}_us": round(timing.low_us, 2) for name, timing in times.items()},
            **{f"{name}_spread_us": round(timing.spread_us, 2) for name, timing in times.items()},
            "bias_activation_ratio": round(self.activation, 4),
            "residual_ratio": round(self.added, 4),
        }  # fmt: skip


def listed() -> Iterator[tuple[Signature, str]]:
    keys = [line for line in (ROOT / "problems" / "fused.txt").read_text().splitlines() if not line.startswith("#")]
    for part, activation in LAYERS:
        signature = parse_key(next(key for key in keys if part in key))
        yield signature, activation or signature.epilogue.activation
    yield GROUPED.canonical, GROUPED.epilogue.activation


def retyped(signature: Signature, batch: int, name: str) -> Signature:
    """The same layer with another batch and element type, and without an epilogue."""
    if isinstance(signature, GemmSignature):
        m = max(1, signature.m * batch // LISTED)
        return replace(signature, m=m, dtype=name, a_dtype=name, b_dtype=name, c_dtype=name, epilogue=Epilogue())
    size = (batch, *signature.input_shape[1:])
    types = dict.fromkeys(("dtype", "input_dtype", "kernel_dtype", "output_dtype"), name)
    return replace(signature, input_shape=size, epilogue=Epilogue(), **types)


def measure(signature: Signature, activation: str, rounds: int, seconds: float) -> Row:
    target, cache = host_target(1), open_cache()
    forms = {
        "plain": Epilogue(),
        "activated": Epilogue(bias=True, activation=activation),
        "residual": Epilogue(bias=True, activation=activation, residual=True),
    }
    launches = {
        name: get_launchable(replace(signature, epilogue=epilogue), target=target, mode="fast", cache=cache)
        for name, epilogue in forms.items()
    }
    calls = {name: _call(launch) for name, launch in launches.items()}
    added = launches["residual"].signature.get_sample_args(seed=0)[3]
    calls["read"] = _reading(calls["activated"], np.ascontiguousarray(added).reshape(-1).view(np.uint64))
    times = interleave(calls, budget_s=seconds, rounds=rounds, threads=1)
    choices = {(launch.choice.solver, launch.choice.config) for launch in launches.values()}
    return Row(
        _short(signature, activation), launches["activated"].choice.solver, times["plain"], times["activated"],
        times["residual"], times["read"], len(choices) == 1,
    )  # fmt: skip


def _reading(call: Callable[[], object], words: np.ndarray[Any, Any]) -> Callable[[], object]:
    def both() -> object:
        call()
        return np.add.reduce(words)

    return both


def _call(launch: Any) -> Callable[[], object]:
    arguments = launch.signature.get_sample_args(seed=0)
    out = np.empty_like(launch(*arguments))
    if not launch.has_filter:
        return lambda: launch.bound(*arguments, out=out)
    prepared, rest = launch.prepare(arguments[1]), (arguments[0], *arguments[2:])
    return lambda: prepared(*rest, out=out)


def _short(signature: Signature, activation: str) -> str:
    if isinstance(signature, GemmSignature):
        return f"gemm {signature.m}x{signature.n}x{signature.k} {signature.a_dtype} {activation}"
    n, h, w, c = signature.input_shape
    k, r, s, _ = signature.kernel_shape
    groups = f" g{signature.groups}" if signature.groups > 1 else ""
    return f"{signature.mode} {r}x{s}{groups} {n}x{h}x{w}x{c} -> {k} {signature.input_dtype} {activation}"


def summary(rows: list[Row]) -> dict[str, tuple[float, float]]:
    """Geometric means of both ratios for each family of kernels, with short and with long activations."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        length = "long" if row.name.rpartition(" ")[2] in LONG else "short"
        found.setdefault(f"{row.kernel.partition('@')[0]}, {length} activations", []).append(row)
    return {
        group: (statistics.geometric_mean(r.activation for r in each), statistics.geometric_mean(r.added for r in each))
        for group, each in sorted(found.items())
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--dtype", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--only", default="", help="a part of a layer's name")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each layer")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    target = host_target(1)
    rows = []
    for batch in asked.batch:
        for name in asked.dtype:
            for signature, activation in listed():
                layer = retyped(signature, batch, name)
                if asked.only not in _short(layer, activation):
                    continue
                row = measure(layer, activation, asked.rounds, asked.seconds)
                rows.append(row)
                added, read = (each.low_us - row.activated.low_us for each in (row.residual, row.read))
                print(f"{row.name:54} {row.kernel:14} {row.plain.low_us:9.1f} us  x{row.activation:.3f}  residual "
                      f"{added:+8.1f} us, read apart {read:+8.1f} us  x{row.added:.3f}"
                      f"{'' if row.alike else '  (other config)'}", flush=True)  # fmt: skip
    means = summary(rows)
    for group, (activation, residual) in means.items():
        print(f"{group}: bias and activation x{activation:.3f}, residual x{residual:.3f} of what it may cost")
    if asked.write:
        host = host_facts(find_compiler().identity)
        facts = {"host": host.name, "date": host.date, "target": target.name, "threads": 1}
        RESULT.write_text(json.dumps(facts | {"means": means, "rows": [row.values() for row in rows]}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
