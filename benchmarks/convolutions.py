"""Convolutions of models on a CPU: our untuned choice beside PyTorch's, in every direction.

    python benchmarks/convolutions.py [--dtype bf16] [--only TEXT] [--rounds N] [--seconds S] [--write]
    python benchmarks/convolutions.py --shown FILE.json                         prints what such a run has written

The layers are those of ResNet-50, MobileNetV3-L, ConvNeXt-T, a U-Net, a decoder and a super-resolution net, channels
last, with batch 1. Ours is the operator of a compiled graph; the forward filter is packed once, and at each call.
PyTorch's is the faster of ``conv2d`` (or ``conv_transpose2d``) and of what Inductor's freezing takes (oneDNN, with the
filter packed once), and ``convolution_backward`` for each gradient by itself. All are measured in turns, with one
thread, whose clock is its CPU time, and their numbers are checked. --write leaves
benchmarks/results/convolutions_<card>_<dtype>.json, which rules of src/tilesmith/torch_ops/compile/expectation.py are
made from.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
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
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
BOUNDS = {"fp32": 1e-4, "bf16": 4e-2, "fp16": 1e-2}
Forward = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Layer:
    """``c`` to ``k`` channels of an image of ``size`` x ``size``, with a square filter."""

    name: str
    c: int
    k: int
    size: int
    taps: int = 1
    stride: int = 1
    groups: int = 1
    transposed: bool = False

    @property
    def padding(self) -> int:
        return 0 if self.transposed else self.taps // 2

    @property
    def multiply_adds(self) -> int:
        pixels = (self.size if self.transposed else -(-self.size // self.stride)) ** 2
        return pixels * self.c * self.k // self.groups * self.taps**2


LAYERS = [
    Layer("resnet50 first", 3, 64, 224, 7, 2),
    *[
        layer
        for width, size in ((64, 56), (128, 28), (256, 14), (512, 7))
        for layer in (
            Layer(f"resnet50 {width} 3x3", width, width, size, 3),
            Layer(f"resnet50 {width} up", width, 4 * width, size),
            Layer(f"resnet50 {width} down", 4 * width, width, size),
        )
    ],
    Layer("resnet50 128 3x3 stride 2", 128, 128, 56, 3, 2),
    Layer("mobilenet first", 3, 16, 224, 3, 2),
    Layer("mobilenet 24 up", 24, 72, 56), Layer("mobilenet 40 up", 40, 120, 28), Layer("mobilenet 80 up", 80, 480, 14),
    Layer("mobilenet 160 up", 160, 960, 7), Layer("mobilenet 960 down", 960, 160, 7),
    Layer("mobilenet 112 depthwise", 672, 672, 14, 3, 1, 672), Layer("mobilenet 72 depthwise", 72, 72, 56, 5, 2, 72),
    Layer("convnext 96 depthwise", 96, 96, 56, 7, 1, 96), Layer("convnext 384 depthwise", 384, 384, 14, 7, 1, 384),
    Layer("resnext 128 groups", 128, 128, 56, 3, 1, 32), Layer("regnet 24 wide", 168, 168, 28, 3, 1, 7),
    Layer("unet 64 3x3", 64, 64, 96, 3), Layer("unet 256 up", 256, 128, 24, 2, 2, 1, True),
    Layer("decoder 128 3x3", 128, 128, 128, 3), Layer("decoder last", 128, 3, 128, 3),
    Layer("super_resolution first", 3, 64, 96, 5), Layer("super_resolution last", 32, 3, 96, 3),
]  # fmt: skip


def ways(layer: Layer, dtype: torch.dtype) -> dict[str, dict[str, Forward]]:
    """Ours and PyTorch's ways to compute a layer, by direction."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        found = torch.randn(*shape, generator=generator).to(dtype)
        return found.to(memory_format=torch.channels_last)

    filters = (layer.c, layer.k) if layer.transposed else (layer.k, layer.c)
    x = drawn(1, layer.c, layer.size, layer.size)
    w = drawn(filters[0], filters[1] // layer.groups, layer.taps, layer.taps) / (layer.c * layer.taps**2) ** 0.5
    bias, two = drawn(1, layer.k, 1, 1).flatten(), [layer.padding] * 2
    shape: tuple[Any, ...] = ([layer.stride] * 2, two, [1, 1], layer.transposed, [0, 0], layer.groups)
    options: dict[str, Any] = {"mode": "fast", "threads": 1}
    ours, gradients = torch.ops.tilesmith.convolution.default, torch.ops.tilesmith.convolution_backward.default
    plain = functional.conv_transpose2d if layer.transposed else functional.conv2d
    rest: dict[str, Any] = {"stride": layer.stride, "padding": layer.padding, "groups": layer.groups}
    fwd: dict[str, Forward] = {
        "ours": lambda: ours(x, w, bias, None, *shape, frozen=True, **options),
        "ours, not packed": lambda: ours(x, w, bias, None, *shape, **options),
        "conv2d": lambda: plain(x, w, bias, **rest),
    }
    if not layer.transposed and torch.backends.mkldnn.is_available():
        ops: Any = torch.ops.mkldnn
        packed = ops._reorder_convolution_weight(w, two, shape[0], [1, 1], layer.groups, list(x.shape))
        fwd["packed"] = lambda: ops._convolution_pointwise(
            x, packed, bias, two, shape[0], [1, 1], layer.groups, "none", [], ""
        )
    dy = torch.randn_like(plain(x, w, bias, **rest))
    found = {"fwd": fwd}
    for at, direction in enumerate(("bwd", "wrw")):
        mask = [at == 0, at == 1, False]
        found[direction] = {
            "ours": lambda mask=mask, at=at: gradients(dy, x, w, *shape, mask, **options)[at],
            "backward": lambda mask=mask, at=at: torch.ops.aten.convolution_backward(
                dy, x, w, None, *shape, mask
            )[at],
        }  # fmt: skip
    return found


def check(layer: Layer, direction: str, calls: dict[str, Forward], bound: float) -> None:
    """All ways give the same numbers, or the program ends."""
    wanted = next(call for name, call in calls.items() if not name.startswith("ours"))().double()
    for name, call in calls.items():
        error = float((call().double() - wanted).abs().max() / wanted.abs().max())
        if error > bound:
            raise SystemExit(f"{layer.name}, {direction}, {name}: an error of {error:.2g}, above {bound:.2g}")


def show(rows: list[dict[str, Any]]) -> None:
    """The geometric means of each direction, of dense layers and of those in groups."""
    for direction in ("fwd", "bwd", "wrw"):
        found = [row for row in rows if row["direction"] == direction]
        for which, some in (
            ("all", found), ("dense", [row for row in found if row["groups"] == 1]),
            ("in groups", [row for row in found if row["groups"] > 1]),
        ):  # fmt: skip
            ratios = [row["ratios"]["ours"] for row in some]
            if ratios:
                print(f"{direction}, {which}: PyTorch's faster time over ours, {len(ratios)} layers: "
                      f"{statistics.geometric_mean(ratios):.3f}, {min(ratios)} to {max(ratios)}")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=list(DTYPES), default="bf16")
    parser.add_argument("--only", default="", help="a part of a layer's name")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.4, help="of each layer and direction")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--shown", type=Path, metavar="FILE", help="measure nothing; print this file's means")
    asked = parser.parse_args()
    if asked.shown:
        show(json.loads(asked.shown.read_text())["rows"])
        return 0
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        for layer in (each for each in LAYERS if asked.only in each.name):
            for direction, calls in ways(layer, DTYPES[asked.dtype]).items():
                check(layer, direction, calls, BOUNDS[asked.dtype])
                times = interleave(calls, budget_s=asked.seconds, rounds=asked.rounds, threads=1)
                us = {name: timing.low_us for name, timing in times.items()}
                theirs = min(time for name, time in us.items() if not name.startswith("ours"))
                ratios = {name: round(theirs / us[name], 3) for name in us if name.startswith("ours")}
                rows.append(asdict(layer) | {
                    "multiply_adds": layer.multiply_adds, "direction": direction,
                    "us": {name: round(time, 1) for name, time in us.items()}, "ratios": ratios,
                })  # fmt: skip
                print(f"{layer.name:28} {direction} {layer.multiply_adds / 1e6:8.1f} M  "
                      f"{'  '.join(f'{ratio:6.2f}' for ratio in ratios.values()):15} "
                      + "  ".join(f"{name} {time:.1f}" for name, time in us.items()), flush=True)  # fmt: skip
    show(rows)
    if asked.write and not asked.only:
        target, host = host_target(1), host_facts(find_compiler().identity)
        facts = {"host": host.name, "date": host.date, "target": target.name, "dtype": asked.dtype, "threads": 1}
        path = RESULTS / f"convolutions_{target.card}_{asked.dtype}.json"
        path.write_text(json.dumps(facts | {"torch": torch.__version__, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
