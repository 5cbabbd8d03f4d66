"""Draws benchmarks/problems/irregular_random.txt: 120 convolutions of the kinds that libraries neglect.

    python benchmarks/irregular_random.py [--seed 20260] [--each 10] [--write]

The list judges choices and estimates, so nothing is to be fitted to it; ``--write`` writes it anew. Each kind has ten
problems. Channels, images, filters and strides are drawn among those of published networks, batches so that the tensors
together take between 2 and 400 MB and the products at most 300 GFLOP, and directions evenly.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).parent / "problems" / "irregular_random.txt"
SEED, EACH = 20260, 10
LEAST_BYTES, MOST_BYTES, MOST_FLOP = 2e6, 4e8, 3e11
BATCHES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)
IMAGES = (7, 8, 10, 12, 14, 15, 16, 19, 20, 24, 28, 30, 32, 38, 40, 48, 56, 60, 64, 75, 80, 96, 112, 128, 150, 160, 192,
          224, 240, 256, 300, 320, 384, 512)  # fmt: skip
WIDTHS = (16, 24, 32, 40, 48, 64, 72, 80, 88, 96, 112, 120, 128, 144, 160, 184, 192, 224, 240, 256, 288, 320, 384, 448,
          480, 512, 576, 640, 672, 720, 768, 960, 1024, 1152, 1344)  # fmt: skip
DIRECTIONS = {"fwd": 1, "bwd": 2, "wrw": 4}


@dataclass(frozen=True)
class Layer:
    """A layer but for its batch. ``image``, ``window``, ``stride`` and ``pad`` have one number for each spatial axis,
    depth first; of a transposed layer, ``channels`` are those of its input."""

    channels: int
    filters: int
    image: tuple[int, ...]
    window: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    dilation: int = 1

    @property
    def result(self) -> tuple[int, ...]:
        sizes = zip(self.image, self.window, self.stride, self.pad, strict=True)
        if self.transposed:
            return tuple((i - 1) * s - 2 * p + w for i, w, s, p in sizes)
        return tuple((i + 2 * p - self.dilation * (w - 1) - 1) // s + 1 for i, w, s, p in sizes)

    def nbytes(self, batch: int) -> float:
        pixels = self.channels * math.prod(self.image) + self.filters * math.prod(self.result)
        return 2.0 * (batch * pixels + self.filters * self.channels // self.groups * math.prod(self.window))

    def flop(self, batch: int) -> float:
        pixels = math.prod(self.image if self.transposed else self.result)
        return 2.0 * batch * pixels * self.filters * self.channels // self.groups * math.prod(self.window)

    def fits(self, batch: int) -> bool:
        """Whether tensors and products are neither small nor large."""
        large = self.nbytes(batch) > MOST_BYTES or self.flop(batch) > MOST_FLOP
        return not large and self.nbytes(batch) >= LEAST_BYTES and min(self.result) > 0

    def command(self, batch: int, direction: int) -> str:
        axes = ("d", "H", "W")[-len(self.image) :]
        names = {
            "d": ("--in_d", "--fil_d", "--pad_d", "--conv_stride_d", "--dilation_d"),
            "H": ("-H", "-y", "-p", "-u", "-l"),
            "W": ("-W", "-x", "-q", "-v", "-j"),
        }
        sizes = zip(axes, self.image, self.window, self.pad, self.stride, strict=True)
        said = " ".join(
            f"{flag} {value}"
            for axis, *values in sizes
            for flag, value in zip(names[axis], [*values, self.dilation], strict=True)
        )
        layout = {1: "NWC", 2: "NHWC", 3: "NDHWC"}[len(self.image)]
        axes_count = "" if len(self.image) == 2 else f" --spatial_dim {len(self.image)}"
        return (
            f"convbfp16 -n {batch} -c {self.channels} -k {self.filters} {said} -g {self.groups} "
            f"-m {'trans' if self.transposed else 'conv'} -F {direction}{axes_count} "
            f"--in_layout {layout} --out_layout {layout} --fil_layout {layout}"
        )


def square(rng: random.Random, least: int, most: int) -> tuple[int, int]:
    """An image, square two times of three."""
    sides = [side for side in IMAGES if least <= side <= most]
    height = rng.choice(sides)
    return height, height if rng.random() < 0.67 else rng.choice(sides)


def _plane(channels: int, filters: int, image: tuple[int, int], window: int, stride: int = 1, **more: int) -> Layer:
    pad = more.pop("pad", (window - 1) // 2)
    return Layer(channels, filters, image, (window,) * 2, (stride,) * 2, (pad,) * 2, **more)


def depthwise(rng: random.Random) -> Layer:
    channels, window = rng.choice(WIDTHS), rng.choice((3, 3, 3, 5, 5, 7, 9, 13))
    stride = rng.choice((1, 1, 2)) if window <= 5 else 1
    return _plane(
        channels, channels * rng.choice((1, 1, 1, 1, 2)), square(rng, 7, 112), window, stride, groups=channels
    )


def depthwise_line(rng: random.Random) -> Layer:
    channels, window = rng.choice(WIDTHS), rng.choice((3, 4, 5, 7, 15, 31))
    length = rng.choice((256, 500, 512, 1000, 1024, 1500, 2048, 3000, 4096))
    return Layer(channels, channels, (length,), (window,), (1,), ((window - 1) // 2,), groups=channels)


def depthwise_volume(rng: random.Random) -> Layer:
    channels, side = rng.choice(WIDTHS[:24]), rng.choice((7, 14, 16, 20, 28, 32, 56))
    depth, window = rng.choice((4, 8, 16, side)), rng.choice((3, 3, 5))
    stride = rng.choice((1, 1, 2))
    return Layer(
        channels, channels, (depth, side, side), (window,) * 3, (1, stride, stride), (window // 2,) * 3, groups=channels
    )


def groups_narrow(rng: random.Random) -> Layer:
    width, groups = rng.choice((2, 4, 4, 8, 8, 16, 24)), rng.choice((8, 16, 32, 32, 64))
    return _plane(
        width * groups, width * groups, square(rng, 7, 56), rng.choice((3, 3, 3, 5)), rng.choice((1, 1, 2)),
        groups=groups,
    )  # fmt: skip


def groups_wide(rng: random.Random) -> Layer:
    width, groups = rng.choice((32, 40, 48, 56, 64, 80, 112, 128, 232)), rng.choice((2, 3, 4, 8, 16))
    return _plane(
        width * groups, width * groups, square(rng, 7, 56), rng.choice((1, 3, 3, 3, 5)), rng.choice((1, 1, 2)),
        groups=groups,
    )  # fmt: skip


def first_layer(rng: random.Random) -> Layer:
    window, stride = rng.choice(((3, 1), (3, 2), (5, 1), (5, 2), (7, 2), (7, 2), (9, 1), (11, 4)))
    return _plane(rng.choice((1, 2, 3, 3, 3, 4)), rng.choice(WIDTHS[:12]), square(rng, 96, 512), window, stride)


def patches(rng: random.Random) -> Layer:
    window = rng.choice((2, 4, 8, 14, 16, 16, 32))
    side = window * rng.choice((7, 12, 14, 16, 24))
    return _plane(
        rng.choice((1, 3, 3, 4)) if window > 2 else rng.choice(WIDTHS[:20]), rng.choice(WIDTHS[5:]), (side, side),
        window, window, pad=0,
    )  # fmt: skip


def few_outputs(rng: random.Random) -> Layer:
    return _plane(rng.choice(WIDTHS[1:18]), rng.choice((1, 2, 3, 3, 4, 6, 8)), square(rng, 56, 512),
                  rng.choice((1, 3, 3, 5, 7, 9)))  # fmt: skip


def transposed(rng: random.Random) -> Layer:
    window, stride, pad = rng.choice(((2, 2, 0), (2, 2, 0), (3, 2, 1), (4, 2, 1), (4, 2, 1), (5, 2, 2), (4, 4, 0),
                                      (8, 4, 2), (8, 8, 0), (9, 3, 4), (16, 8, 4)))  # fmt: skip
    filters = rng.choice((1, 3, 12, 21, *WIDTHS[:16]))
    return _plane(rng.choice(WIDTHS[:30]), filters, square(rng, 7, 96), window, stride, pad=pad, transposed=True)


def strided(rng: random.Random) -> Layer:
    channels = rng.choice(WIDTHS[3:30])
    return _plane(channels, rng.choice((channels, 2 * channels)), square(rng, 14, 128), rng.choice((1, 2, 3, 3, 4, 5)),
                  2)  # fmt: skip


def volume(rng: random.Random) -> Layer:
    side, depth = rng.choice((7, 14, 16, 24, 28, 32, 48, 56, 64)), rng.choice((4, 8, 12, 16, 24, 32))
    window = rng.choice(((3, 3, 3), (3, 3, 3), (1, 3, 3), (3, 1, 1), (2, 2, 2)))
    stride = rng.choice((1, 1, 2)) if window != (2, 2, 2) else 2
    pad = tuple((w - 1) // 2 for w in window)
    channels = rng.choice(WIDTHS[:24])
    return Layer(channels, rng.choice((channels, *WIDTHS[:20])), (depth, side, side), window,
                 tuple(stride if w > 1 else 1 for w in window), pad)  # fmt: skip


def odd_channels(rng: random.Random) -> Layer:
    channels, filters = (rng.choice((3, 5, 11, 19, 27, 35, 51, 67, 91, 131, 150, 201, 255)) for _ in range(2))
    return _plane(channels, filters, square(rng, 14, 160), rng.choice((1, 1, 3)), rng.choice((1, 1, 1, 2)))


KINDS: tuple[Callable[[random.Random], Layer], ...] = (
    depthwise, depthwise_line, depthwise_volume, groups_narrow, groups_wide, first_layer, patches, few_outputs,
    transposed, strided, volume, odd_channels,
)  # fmt: skip


def drawn(seed: int, each: int) -> list[str]:
    """The lines of the list."""
    rng, lines = random.Random(seed), []
    for kind in KINDS:
        lines.append(f"# {kind.__name__.replace('_', ' ')}")
        found: list[str] = []
        while len(found) < each:
            layer = kind(rng)
            fits = [n for n in BATCHES if layer.fits(n)]
            ways = ("bwd", "wrw") if kind is strided else tuple(DIRECTIONS)
            if fits:
                found.append(layer.command(rng.choice(fits), DIRECTIONS[ways[len(found) % len(ways)]]))
        lines += found
    return lines


def show_or_write(
    path: Path, what: str, drawn: Callable[[int, int], list[str]], seed: int, each: int, each_of: str, about: str
) -> int:  # fmt: skip
    """The command line of a program that draws the list ``path`` of ``what``, with its defaults."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--seed", type=int, default=seed)
    parser.add_argument("--each", type=int, default=each, help=each_of)
    parser.add_argument("--write", action="store_true", help=f"write {path.name}")
    args = parser.parse_args()
    head = f"# {what}, drawn by benchmarks/{path.stem}.py, seed {args.seed}; bf16, channels last"
    text = "\n".join([head, *drawn(args.seed, args.each)]) + "\n"
    if args.write:
        path.write_text(text)
    else:
        print(text, end="")
    return 0


def main() -> int:
    return show_or_write(
        LIST, "irregular convolutions", drawn, SEED, EACH, "problems of each kind", __doc__.splitlines()[0]
    )


if __name__ == "__main__":
    raise SystemExit(main())
