"""Prints random convolutions for the constants of estimates: the kinds of irregular_random.txt, from another seed.

    python benchmarks/training_random.py [--seed 7] [--each 8] [--kinds NAME ...]

Each problem is followed by a neighbour, which has another batch or another image within a factor of 2: with timings of
both one can also say how well a kernel that was tuned for one suits the other. Kinds take turns, so that a measurement
that ends early has some of each. No problem of irregular_random.txt is printed: that list judges.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from dataclasses import replace

from irregular_random import BATCHES, DIRECTIONS, IMAGES, KINDS, LIST, SEED, WIDTHS, Layer, square, strided

Kind = Callable[[random.Random], Layer]
LEAST_BYTES, MOST_BYTES, MOST_FLOP = 2e6, 1.2e8, 6e10


def dense(rng: random.Random) -> Layer:
    """What irregular_random.txt has none of: a layer of one group, of many channels."""
    channels, window, dilation = rng.choice(WIDTHS[4:]), rng.choice((1, 1, 3, 3, 3)), rng.choice((1, 1, 1, 1, 2))
    dilation = dilation if window > 1 else 1
    pad, filters = dilation * (window - 1) // 2, rng.choice((channels, *WIDTHS[4:]))
    return Layer(channels, filters, square(rng, 7, 112), (window,) * 2, (1, 1), (pad,) * 2, dilation=dilation)


NAMES: dict[str, Kind] = {kind.__name__: kind for kind in (*KINDS, dense)}


def neighbour(rng: random.Random, layer: Layer, batch: int) -> tuple[Layer, int] | None:
    """The layer with another batch, or all sides of its image by one factor, at most 2; None if none was met."""
    for _ in range(20):
        if rng.random() < 0.5:
            other = layer, rng.choice([n for n in BATCHES if n != batch and batch <= 2 * n <= 4 * batch] or [batch])
        else:
            side = layer.image[-1]
            factor = rng.choice([n for n in IMAGES if n != side and side <= 2 * n <= 4 * side] or [side]) / side
            image = tuple(max(1, round(size * factor)) for size in layer.image[-2:])
            other = replace(layer, image=(*layer.image[:-2], *image)), batch
        if other != (layer, batch) and other[0].fits(other[1]):
            return other
    return None


def drawn(seed: int, each: int, kinds: list[Kind]) -> list[str]:
    """Commands, each problem with its neighbour behind it."""
    rng, judged = random.Random(seed), set(LIST.read_text().splitlines())
    found: dict[str, None] = {}
    for _ in range(each):
        for kind in kinds:
            direction = rng.choice(("bwd", "wrw") if kind is strided else tuple(DIRECTIONS))
            while True:
                layer, batch = kind(rng), rng.choice(BATCHES)
                other = neighbour(rng, layer, batch) if layer.fits(batch) else None
                if other is None:
                    continue
                pair = [one.command(n, DIRECTIONS[direction]) for one, n in ((layer, batch), other)]
                if not judged.intersection(pair) and not any(line in found for line in pair):
                    found.update(dict.fromkeys(pair))
                    break
    return list(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--each", type=int, default=8, help="problems of each kind, without their neighbours")
    parser.add_argument("--kinds", nargs="+", default=list(NAMES), choices=NAMES, metavar="NAME",
                        help="one that is named twice has twice as many")  # fmt: skip
    args = parser.parse_args()
    if args.seed == SEED:
        parser.error(f"{SEED} is the seed of {LIST.name}, which judges")
    print("\n".join(drawn(args.seed, args.each, [NAMES[name] for name in args.kinds])))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
