"""Prints the keys of random depthwise problems, with sizes as real networks have them: arguments COUNT SEED.

Three quarters are two-dimensional with filters up to 9, the others have large filters, one dimension or three. The
probe `benchmarks/gpu/probes/configs.py` reads them from a file named `*.keys`.
"""

from __future__ import annotations

import random
import sys

from tilesmith.problems.conv import ConvSignature

CHANNELS = (16, 24, 32, 40, 48, 64, 72, 80, 96, 112, 120, 128, 144, 160, 192, 240, 256, 288, 320, 384, 480, 512, 576,
            672, 768, 960, 1024, 1152, 1536)  # fmt: skip
IMAGES = (7, 8, 10, 12, 14, 15, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112)
LEAST, MOST = 1 << 20, 36 << 20  # elements of the input


def main() -> int:
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        signature = drawn(rng)
        if signature is not None:
            found.setdefault(signature.canonical.key())
    print("\n".join(found))
    return 0


def drawn(rng: random.Random) -> ConvSignature | None:
    """A problem, or None if its input is too small or too large."""
    kind = rng.choices(("usual", "large", "line", "volume"), (75, 10, 8, 7))[0]
    channels, mode = rng.choice(CHANNELS), rng.choice(("fwd", "bwd", "wrw"))
    batch = rng.choice((1, 2, 4, 8, 16, 32, 64, 128, 256))
    stride = rng.choices((1, 2), (80, 20))[0]
    dilation = rng.choices((1, 2), (92, 8))[0] if stride == 1 else 1
    if kind == "usual":
        size = (rng.choice(IMAGES),) * 2
        taps = (rng.choices((3, 5, 7, 9), (45, 25, 25, 5))[0],) * 2
    elif kind == "large":
        size, stride, dilation = (rng.choice((14, 28, 32, 56)),) * 2, 1, 1
        taps = rng.choice(((11, 11), (13, 13), (15, 15), (21, 21), (27, 27), (31, 31), (51, 5), (5, 51)))
    elif kind == "line":
        size, stride, dilation = (rng.choice((512, 1024, 2048, 4096, 8192)),), 1, 1
        taps = (rng.choice((3, 4, 4, 7, 31)),)
    else:
        size = (rng.choice((8, 16, 32)), *(rng.choice((14, 28, 56)),) * 2)
        taps, dilation = rng.choice(((3, 3, 3), (3, 3, 3), (5, 3, 3), (1, 5, 5), (5, 5, 5))), 1
    padding = tuple(dilation * (tap - 1) // 2 for tap in taps)
    if not LEAST <= batch * channels * _product(size) <= MOST:
        return None
    return ConvSignature(
        (batch, *size, channels), (channels, *taps, 1), groups=channels, mode=mode, stride=stride, dilation=dilation,
        padding=((taps[0] - 1, 0),) if kind == "line" else padding,
        dtype=rng.choices(("bf16", "fp16", "fp32"), (60, 20, 20))[0],
        shared_layout={1: "NWC", 2: "NHWC", 3: "NDHWC"}[len(size)],
    )  # fmt: skip


def _product(sizes: tuple[int, ...]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


if __name__ == "__main__":
    sys.exit(main())
