"""Draws benchmarks/problems/network_layers.txt: convolutions of published networks that are in no other list.

    python benchmarks/network_layers.py [--seed 20261] [--each 3] [--write]

The list judges choices and estimates, so nothing is ever fitted to it; ``--write`` writes it anew. A few layers are
drawn from each network of torchvision below and from each that is written here. Batches are drawn so that the tensors
together take between 2 and 400 MB and the products at most 300 GFLOP, directions evenly.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "models"), str(HERE / "gpu")]
import torch  # noqa: E402
from gpu_cases import listed  # noqa: E402
from irregular_random import BATCHES, DIRECTIONS, Layer, show_or_write  # noqa: E402
from torch import nn  # noqa: E402
from zoo import torchvision_package  # noqa: E402

from tilesmith.problems.driver import parse_command  # noqa: E402

LIST = HERE / "problems" / "network_layers.txt"
SEED, EACH = 20261, 3
#: Of torchvision, with the shape of an input.
VISION: dict[str, tuple[int, ...]] = {
    "alexnet": (3, 224, 224), "densenet201": (3, 224, 224), "efficientnet_b4": (3, 380, 380),
    "googlenet": (3, 224, 224), "inception_v3": (3, 299, 299), "mnasnet1_3": (3, 224, 224),
    "mobilenet_v2": (3, 224, 224), "regnet_x_3_2gf": (3, 224, 224), "regnet_y_8gf": (3, 224, 224),
    "resnext50_32x4d": (3, 224, 224), "shufflenet_v2_x2_0": (3, 224, 224), "squeezenet1_1": (3, 224, 224),
    "wide_resnet50_2": (3, 224, 224), "convnext_base": (3, 224, 224), "maxvit_t": (3, 224, 224),
    "vit_b_16": (3, 224, 224), "segmentation.deeplabv3_resnet50": (3, 520, 520),
    "segmentation.lraspp_mobilenet_v3_large": (3, 520, 520), "video.mc3_18": (3, 16, 112, 112),
    "video.r2plus1d_18": (3, 16, 112, 112), "video.s3d": (3, 16, 224, 224), "video.mvit_v1_b": (3, 16, 224, 224),
}  # fmt: skip


def line(
    channels: int, filters: int, length: int, window: int, stride: int = 1, pad: int = 0, dilation: int = 1,
    groups: int = 1, transposed: bool = False,
) -> Layer:  # fmt: skip
    return Layer(channels, filters, (length,), (window,), (stride,), (pad,), groups, transposed, dilation)


def plane(
    channels: int, filters: int, side: int, window: int, stride: int = 1, pad: int = 0, dilation: int = 1,
    groups: int = 1, transposed: bool = False,
) -> Layer:  # fmt: skip
    return Layer(channels, filters, (side,) * 2, (window,) * 2, (stride,) * 2, (pad,) * 2, groups, transposed, dilation)


def volume(channels: int, filters: int, image: tuple[int, ...], window: int, stride: int = 1, pad: int = 0,
           groups: int = 1, transposed: bool = False) -> Layer:  # fmt: skip
    return Layer(channels, filters, image, (window,) * 3, (stride,) * 3, (pad,) * 3, groups, transposed)


#: Networks for sound, images and volumes that torchvision does not have, by their publications.
WRITTEN: dict[str, tuple[Layer, ...]] = {
    "HiFi-GAN V1": (
        line(80, 512, 64, 7, pad=3), line(512, 256, 64, 16, 8, 4, transposed=True), line(256, 256, 512, 11, pad=25,
        dilation=5), line(256, 128, 512, 16, 8, 4, transposed=True), line(64, 32, 8192, 4, 2, 1, transposed=True),
        line(32, 32, 16384, 7, pad=9, dilation=3), line(32, 1, 16384, 7, pad=3),
    ),
    "Whisper": (line(80, 768, 3000, 3, pad=1), line(768, 768, 3000, 3, 2, 1), line(128, 1280, 3000, 3, pad=1)),
    "Conformer": (line(512, 512, 800, 31, pad=15, groups=512), plane(256, 256, 80, 3, 2, 1), line(256, 1024, 800, 1)),
    "Demucs": (
        line(2, 48, 65536, 8, 4, 2), line(48, 96, 16384, 8, 4, 2), line(384, 768, 512, 1),
        line(96, 48, 4096, 8, 4, 2, transposed=True), line(48, 2, 16384, 8, 4, 2, transposed=True),
    ),
    "WaveNet": (line(64, 128, 16000, 2, dilation=64), line(64, 256, 16000, 1), line(32, 64, 16000, 2, dilation=8)),
    "Mamba": (line(5120, 5120, 2048, 4, pad=3, groups=5120), line(1536, 1536, 4096, 4, pad=3, groups=1536)),
    "StyleGAN2": (plane(512, 256, 64, 3, 2, 0, transposed=True), plane(128, 3, 256, 1), plane(128, 128, 256, 3, pad=1)),
    "ESRGAN": (plane(64, 32, 128, 3, pad=1), plane(160, 32, 128, 3, pad=1), plane(64, 3, 512, 3, pad=1)),
    "pix2pix": (plane(6, 64, 256, 4, 2, 1), plane(256, 512, 32, 4, 1, 1), plane(1024, 256, 16, 4, 2, 1,
                transposed=True), plane(128, 3, 128, 4, 2, 1, transposed=True)),
    "U-2-Net": (plane(64, 16, 160, 3, pad=1), plane(16, 16, 40, 3, pad=4, dilation=4), plane(64, 1, 320, 3, pad=1)),
    "HRNet-W48": (plane(48, 48, 64, 3, pad=1), plane(96, 96, 32, 3, pad=1), plane(48, 96, 64, 3, 2, 1),
                  plane(720, 19, 128, 1)),
    "YOLOv8-m": (plane(3, 48, 640, 3, 2, 1), plane(48, 96, 320, 3, 2, 1), plane(288, 192, 80, 1),
                 plane(192, 192, 40, 3, pad=1), plane(64, 64, 80, 3, pad=1)),
    "SegFormer-B2": (plane(3, 64, 512, 7, 4, 3), plane(64, 64, 128, 8, 8), plane(256, 256, 128, 3, pad=1, groups=256),
                     plane(768, 150, 128, 1)),
    "RepLKNet": (plane(128, 128, 56, 31, pad=15, groups=128), plane(512, 512, 14, 27, pad=13, groups=512)),
    "SD3 decoder": (plane(16, 512, 64, 3, pad=1), plane(512, 256, 256, 3, pad=1), plane(128, 3, 512, 3, pad=1)),
    "3D U-Net": (volume(1, 32, (64, 64, 64), 3, pad=1), volume(64, 64, (32, 32, 32), 3, pad=1),
                 volume(256, 128, (16, 16, 16), 2, 2, transposed=True), volume(32, 3, (64, 64, 64), 1)),
    "V-Net": (volume(16, 16, (64, 64, 32), 5, pad=2), volume(32, 64, (32, 32, 16), 2, 2),
              volume(128, 128, (16, 16, 8), 5, pad=2)),
    "X3D-M": (volume(54, 54, (16, 56, 56), 3, pad=1, groups=54), Layer(24, 24, (16, 112, 112), (5, 1, 1), (1, 1, 1),
              (2, 0, 0), 24), volume(108, 48, (16, 28, 28), 1)),
    "SlowFast": (Layer(3, 8, (32, 112, 112), (5, 7, 7), (1, 2, 2), (2, 3, 3)), Layer(32, 8, (32, 56, 56), (3, 1, 1),
                 (1, 1, 1), (1, 0, 0)), Layer(8, 16, (32, 56, 56), (7, 1, 1), (8, 1, 1), (3, 0, 0))),
}  # fmt: skip


def layers_of(model: nn.Module, shape: tuple[int, ...]) -> list[Layer]:
    """The model's convolutions with padding of zeros, each once."""
    found: dict[Layer, None] = {}

    def note(module: Any, given: tuple[torch.Tensor, ...], result: torch.Tensor) -> None:
        if module.padding_mode == "zeros" and not isinstance(module.padding, str) and len(set(module.dilation)) == 1:
            found[
                Layer(
                    module.in_channels, module.out_channels, tuple(given[0].shape[2:]), module.kernel_size,
                    module.stride, module.padding, module.groups, dilation=module.dilation[0],
                )
            ] = None  # fmt: skip

    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Conv3d):
            module.register_forward_hook(note)
    model.eval()(torch.empty(1, *shape, device="meta"))
    return list(found)


def networks() -> Iterator[tuple[str, list[Layer]]]:
    models = torchvision_package().models
    for name, shape in VISION.items():
        kind = models
        for part in name.split("."):
            kind = getattr(kind, part)
        options: dict[str, Any] = {"weights_backbone": None} if name.startswith("segmentation") else {}
        if name in ("googlenet", "inception_v3"):
            options["init_weights"] = False  # their own weights take long
        yield name.rpartition(".")[2], layers_of(kind(weights=None, **options).to("meta"), shape)
    for name, layers in WRITTEN.items():
        yield name, list(layers)


def drawn(seed: int, each: int) -> list[str]:
    """The lines of the list."""
    rng, lines = random.Random(seed), []
    lists = [path.stem for path in LIST.parent.glob("*.txt") if path != LIST and not path.stem.startswith("gemm")]
    ways = list(DIRECTIONS.values())
    known = {signature.canonical.key() for name in lists for _, _, signature in listed(name)}
    for name, layers in networks():
        lines.append(f"# {name}")
        found: list[str] = []
        for layer in rng.sample(layers, len(layers)):
            fits = [n for n in BATCHES if layer.fits(n)]
            if not fits or len(found) == each:
                continue
            command = layer.command(rng.choice(fits), ways[(len(lines) + len(found)) % len(ways)])
            ((_, signature),) = parse_command(command).signatures
            if signature.canonical.key() not in known:
                known.add(signature.canonical.key())
                found.append(command)
        lines += found
    return lines


def main() -> int:
    return show_or_write(
        LIST, "layers of networks", drawn, SEED, EACH, "layers of each network, at most", __doc__.splitlines()[0]
    )


if __name__ == "__main__":
    raise SystemExit(main())
