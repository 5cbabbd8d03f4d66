"""Random small problems of every family, for the numbers of kernels: `checks.py random`.

The layers are those of irregular_random.py and training_random.py with fewer channels, small images and odd sizes, and
with all else that a signature can say: dtypes, layouts, pitches, unequal padding, epilogues. Matrix products have every
dtype, transposition, batch, alpha and beta, and groups of rows.

Problems come in rows of a few that differ in what kernels take at run time: batch, image, padding, the sizes of a
product. One compiled kernel serves a row. (tests/sweep_problems.py draws for CPUs whatever a signature can say. It
knows no families and needs Hypothesis.)
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
from irregular_random import Layer
from training_random import NAMES as KINDS

from tilesmith.errors import ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import ACTIVATIONS, Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.layouts import parse_layout
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.work import flops

EACH, EACH_GEMM = 3, 5  # problems of a row
TRIES = 20  # draws of a row, of which those too large are left out
FLOPS, LARGE_FLOPS = 4e7, 8e8  # most of a problem
ELEMENTS = 3_000_000  # most of a tensor
LARGE = 0.08  # share of problems that have more tiles than a GPU has places for blocks
MODES = ("fwd", "bwd", "wrw")
RESULTS = {"fwd": "output_dtype", "bwd": "input_dtype", "wrw": "kernel_dtype"}
LETTERS = {1: "W", 2: "HW", 3: "DHW"}
SIDES = {1: 200, 2: 24, 3: 9}  # of small images
DEPTHWISE = (1, 2, 3, 5, 8, 12, 16, 17, 24, 31, 32, 33, 40, 48, 56, 63, 64, 72, 80, 96, 100, 128)
EXTRAS = (0, 1, 3, 8, 16)  # elements between rows
TYPES: dict[str, tuple[float, dict[str, str]]] = {
    "bf16": (36, {"dtype": "bf16"}), "fp16": (24, {"dtype": "fp16"}), "fp32": (16, {"dtype": "fp32"}),
    "tf32": (6, {"dtype": "fp32", "acc_dtype": "tf32"}), "e4m3": (4, {"dtype": "fp8e4m3"}),
    "e5m2": (2, {"dtype": "fp8e5m2"}), "int8": (6, {"dtype": "int8"}), "wide": (3, {"dtype": "bf16"}),
    "e4m3 to bf16": (2, {"dtype": "fp8e4m3"}), "mixed": (1, {"dtype": "fp8e4m3"}),
}  # fmt: skip
Row = tuple[str, list[Signature]]  # a family, and its problems
Family = Callable[[random.Random], list[Signature]]


def rows(seed: int, families: Sequence[str] = ()) -> Iterator[Row]:
    """Rows without end; families take turns. The first rows are the same however many are taken."""
    names = list(families or FAMILIES)
    seen: set[str] = set()
    for number in count():
        name = names[number % len(names)]
        row = FAMILIES[name](random.Random(f"{seed} {name} {number // len(names)}"))
        fresh = {signature.key(): signature for signature in row if signature.key() not in seen}
        seen |= fresh.keys()
        if fresh:
            yield name, list(fresh.values())


def drawn(seed: int, most: int, families: Sequence[str] = ()) -> list[Row]:
    """``most`` problems in rows."""
    found: list[Row] = []
    made = rows(seed, families)
    while most > 0:
        name, row = next(made)
        found.append((name, row[:most]))
        most -= len(row)
    return found


@dataclass(frozen=True)
class Base:
    """What the convolutions of a row share, most kernels among it. ``padding`` is mostly shared (None: it is not).

    ``extras`` are elements between the pixels of input, filter and output.
    """

    layer: Layer
    dilation: tuple[int, ...]
    padding: list[tuple[int, int]] | None
    layouts: tuple[str, str, str]
    extras: tuple[int, int, int]
    options: dict[str, Any]


def conv_row(rng: random.Random, kind: Callable[[random.Random], Layer]) -> list[Signature]:
    base = conv_base(rng, kind(rng))
    made = (conv_problem(rng, base) for _ in range(TRIES))
    return [signature.canonical for signature in islice(filter(None, made), EACH)]


def conv_base(rng: random.Random, layer: Layer) -> Base:
    axes = len(layer.window)
    layer = with_fewer_channels(rng, layer)
    if rng.random() < 0.12:
        layer = replace(layer, stride=tuple(rng.randint(1, 3) for _ in range(axes)))
    dilation = (layer.dilation,) * axes
    if rng.random() < 0.15:
        dilation = tuple(rng.randint(1, 3) if window > 1 else 1 for window in layer.window)
    mode, types = rng.choice(MODES), chosen_types(rng)
    options: dict[str, Any] = dict(TYPES[types][1])
    if types == "int8" and mode == "wrw":
        mode = rng.choice(MODES[:2])
    if types in ("wide", "e4m3 to bf16"):
        options[RESULTS[mode]] = "fp32" if types == "wide" else "bf16"
    if types == "mixed":  # as in training: e4m3 forward, e5m2 gradients
        options["output_dtype"] = "fp8e5m2"
    if mode != "wrw":
        narrow = types in ("e4m3", "e5m2", "mixed")
        options["epilogue"] = epilogue(rng, types == "int8", narrow)
    last, first = f"N{LETTERS[axes]}C", f"NC{LETTERS[axes]}"
    layouts = rng.choices(((last,) * 3, (first,) * 3, tuple(rng.choice((last, first)) for _ in range(3))), (12, 2, 1))[
        0
    ]
    pitched = rng.random() < 0.15
    extras = tuple(rng.choice(EXTRAS) if pitched else 0 for _ in range(3))
    options |= {"mode": mode, "groups": layer.groups, "transposed": layer.transposed,
                "stride": layer.stride, "dilation": dilation, "deterministic": rng.random() < 0.5}  # fmt: skip
    padding = None if rng.random() < 0.2 else paddings(rng, layer, reach_of(layer, dilation))
    return Base(layer, dilation, padding, layouts, extras, options)


def with_fewer_channels(rng: random.Random, layer: Layer) -> Layer:
    groups, channels, filters = layer.groups, layer.channels, layer.filters
    if groups == channels:
        channels = rng.choice(DEPTHWISE)
        return replace(layer, channels=channels, filters=channels * (filters // layer.channels), groups=channels)
    if groups > 1:
        width = max(2, channels // groups + rng.choice((0, 0, 0, 0, -1, 1, 3)))
        groups = rng.choice((2, 3, 4) if width > 31 else (2, 3, 4, 7, 8, 16, 20))
        other = rng.choice((width, width, width, width + rng.randint(1, 8)))
        return replace(layer, channels=width * groups, filters=other * groups, groups=groups)
    return replace(layer, channels=near(rng, channels), filters=near(rng, filters))


def near(rng: random.Random, channels: int) -> int:
    """At most some 160, and often no multiple of anything."""
    channels = channels if channels <= 160 else rng.choice((64, 96, 128, 136, 160))
    return max(1, channels + rng.choice((0, 0, 0, rng.randint(-3, 3)))) if channels > 8 else channels


def conv_problem(rng: random.Random, base: Base) -> ConvSignature | None:
    """A problem of the row; None if it is none, or too large."""
    layer, large = base.layer, rng.random() < LARGE
    reach = reach_of(layer, base.dilation)
    padding = base.padding or paddings(rng, layer, reach)
    most = SIDES[len(reach)] // (3 if layer.transposed else 1)
    image = []
    for size, (low, high), stride in zip(reach, padding, layer.stride, strict=True):
        least = 1 + max(0, -(-(low + high + 1 - size) // stride)) if layer.transposed else max(1, size - low - high)
        image.append(least + rng.randint(0, most) * (4 if large and rng.random() < 0.8 else 1))
    extra = [rng.randrange(s) if layer.transposed and rng.random() < 0.3 else 0 for s in layer.stride]
    images = rng.choice((8, 16, 32, 64)) if large else rng.choice((1, 1, 2, 3, 5, 8))
    first, second = layer.filters, layer.channels // layer.groups
    if layer.transposed:
        first, second = layer.channels, layer.filters // layer.groups
    x, w, y = (parse_layout(name) for name in base.layouts)
    shapes = x.layout_shape((images, layer.channels, *image)), w.layout_shape((first, second, *layer.window))
    try:
        made = ConvSignature(
            *shapes, padding=tuple(padding), output_padding=tuple(extra), input_layout=str(x), kernel_layout=str(w),
            output_layout=str(y), input_strides=pitched(shapes[0], base.extras[0]),
            kernel_strides=pitched(shapes[1], base.extras[1]), **base.options,
        )  # fmt: skip
        made = replace(made, output_strides=pitched(made.output_shape, base.extras[2]))
    except ProblemError:
        return None
    elements = max(math.prod(shape) for shape in (*shapes, made.output_shape))
    return made if elements <= ELEMENTS and flops(made) <= (LARGE_FLOPS if large else FLOPS) else None


def reach_of(layer: Layer, dilation: Sequence[int]) -> list[int]:
    return [d * (w - 1) + 1 for d, w in zip(dilation, layer.window, strict=True)]


def paddings(rng: random.Random, layer: Layer, reach: list[int]) -> list[tuple[int, int]]:
    """As the layer has it, any, or another at each end."""
    kind, most = rng.choice(("own", "own", "any", "unequal")), [min(4, size) for size in reach]
    if kind == "own":
        return [(pad, pad) for pad in layer.pad]
    if kind == "any":
        return [(pad, pad) for pad in (rng.randint(0, size) for size in most)]
    return [(rng.randint(0, size), rng.randint(0, size)) for size in most]


def pitched(shape: Sequence[int], extra: int) -> tuple[int, ...] | None:
    """Strides with ``extra`` elements behind each line of the innermost axis."""
    if not extra:
        return None
    strides = [1]
    for i, size in enumerate(reversed(shape[1:])):
        strides.append(strides[-1] * size + (extra if i == 0 else 0))
    return tuple(reversed(strides))


def chosen_types(rng: random.Random) -> str:
    return rng.choices(list(TYPES), [share for share, _ in TYPES.values()])[0]


def epilogue(rng: random.Random, integer: bool, narrow: bool) -> Epilogue:
    """None in six of ten; with factors for int8 and fp8 results."""
    scale = rng.choice(("none", "tensor", "channel")) if integer or narrow else "none"
    if rng.random() < 0.6:
        return Epilogue(scale=scale)
    names = ("none", "relu", "clamp") if integer and scale == "none" else ACTIVATIONS
    low = rng.choice((0.0, -1.0, -2.5))
    return Epilogue(
        bias=rng.random() < 0.7, residual=rng.random() < 0.4, activation=rng.choice(names), scale=scale,
        slope=rng.choice((0.01, 0.3, -0.5, 2.0)), low=low, high=low + rng.choice((0.0, 1.5, 6.0)),
    )  # fmt: skip


def gemm_row(rng: random.Random, types: Sequence[str], thin: bool) -> list[Signature]:
    """``thin``: few columns, dense, without ``beta``."""
    name = rng.choice(list(types))
    options: dict[str, Any] = dict(TYPES[name][1])
    if name in ("wide", "e4m3 to bf16"):
        options["c_dtype"] = "fp32" if name == "wide" else "bf16"
    if name == "mixed":
        options |= {"b_dtype": "fp8e5m2", "c_dtype": rng.choice(("bf16", "fp8e4m3", "fp32"))}
    narrow = options.get("c_dtype", options["dtype"]).startswith("fp8")
    factors = (1.0, 1.0, 2.0, -3.0) if name == "int8" else (1.0, 1.0, 0.5, -2.0)
    options |= {
        "trans_a": rng.random() < 0.5, "trans_b": rng.random() < 0.5, "deterministic": rng.random() < 0.5,
        "alpha": rng.choice(factors), "beta": rng.choice((0.0, 0.0, 0.0, *factors[1:])),
        "epilogue": epilogue(rng, name == "int8", narrow),
    }  # fmt: skip
    batches, steps = rng.random() < 0.25, rng.random() < 0.3
    extras = {name: rng.choice(EXTRAS) if rng.random() < 0.3 else 0 for name in "abc"}
    steps_of, shape = rng.choice(STEPS), rng.choice(list(SHAPES))
    if thin:
        options["beta"] = 0.0
        batches, extras, shape = False, dict.fromkeys("abc", 0), "thin"
    found: list[Signature] = []
    for _ in range(TRIES):
        m, n, k = (sized(rng, most, step) for most, step in zip(SHAPES[shape], steps_of, strict=True))
        memory = pitches(rng, options, (m, n, k), extras, steps and batches)
        signature = GemmSignature(m, n, k, batch=rng.randint(2, 5) if batches else 1, **memory, **options)
        if max(m * k, k * n, m * n) <= ELEMENTS and flops(signature) <= LARGE_FLOPS:
            found.append(signature.canonical)
    return found[:EACH_GEMM]


# The largest m, n and k.
SHAPES: dict[str, tuple[int, int, int]] = {
    "tiny": (40, 40, 40), "middle": (300, 300, 300), "tall": (6000, 70, 70), "wide": (70, 6000, 70),
    "deep": (100, 100, 6000), "few rows": (16, 1500, 1500), "one row": (1, 2000, 1500), "large": (2400, 2400, 100),
    "thin": (9000, 120, 120),
}  # fmt: skip


# What m, n and k are multiples of, as vectors are chosen by it; 1: odd.
STEPS = ((1, 1, 1), (1, 16, 16), (16, 16, 16), (8, 8, 8), (1, 8, 8), (2, 4, 2), (8, 1, 8), (1, 8, 1), (4, 2, 4))


def sized(rng: random.Random, most: int, step: int) -> int:
    size = rng.randint(1, most)
    return size | 1 if step == 1 else max(step, size // step * step)


def pitches(
    rng: random.Random, options: dict[str, Any], sizes: tuple[int, int, int], extras: dict[str, int], steps: bool
) -> dict[str, int]:
    """Pitches of the stored rows, and of the matrices of a batch; operands may be shared by all."""
    m, n, k = sizes
    stored = {
        "a": (k, m) if options["trans_a"] else (m, k), "b": (n, k) if options["trans_b"] else (k, n), "c": (m, n),
    }  # fmt: skip
    found = {}
    for name, (lines, columns) in stored.items():
        lead = columns + extras[name]
        if extras[name]:
            found[f"ld{name}"] = lead
        if steps:
            found[f"stride_{name}"] = lines * lead + 8 if name == "c" or rng.random() < 0.6 else 0
    return found


def row_groups(rng: random.Random) -> list[Signature]:
    """Products of groups of rows (experts of a mixture)."""
    name = rng.choice(("bf16", "bf16", "fp16", "fp16", "bf16", "e4m3", "fp32"))
    trans_b, groups, step = rng.random() < 0.6, rng.choice((1, 3, 8, 40)), rng.choice((16, 16, 8, 8, 1))
    found: list[Signature] = []
    for _ in range(EACH_GEMM):
        m, n, k = rng.randint(1, 900), sized(rng, 400, step), sized(rng, 300, step)
        options = TYPES[name][1]
        found.append(GemmSignature(m, n, k, groups=groups, trans_b=trans_b, **options).canonical)
    return found


def strided_rows(rng: random.Random) -> Layer:
    """Channels that are no multiple of 8, and a stride that makes a step of 16 bytes of them."""
    channels = rng.choice((3, 5, 6, 7, 9, 12, 20, 21, 35))
    stride = 8 // math.gcd(8, channels)
    window, filters = stride + rng.choice((0, 0, 1, -1)), rng.choice((5, 16, 21, 32, 64))
    size = rng.randint(2, 5) * stride
    return Layer(channels, filters, (size, size), (window,) * 2, (stride,) * 2, (rng.randint(0, 2),) * 2)


def groups_volume(rng: random.Random) -> Layer:
    """Groups of few channels in three dimensions."""
    width, groups = rng.choice((2, 3, 4, 4, 6, 8, 8, 12, 16)), rng.choice((4, 8, 16, 32))
    window = rng.choice(((3, 3, 3), (3, 3, 3), (2, 3, 3), (3, 1, 1), (1, 3, 3), (5, 3, 2)))
    stride = rng.choice(((1, 1, 1), (1, 1, 1), (1, 2, 2), (2, 2, 2), (2, 1, 1)))
    channels = width * groups
    return Layer(channels, channels, (8, 14, 14), window, stride, tuple(size // 2 for size in window), groups)


def pixelwise(rng: random.Random) -> list[Signature]:
    """1x1 convolutions of images that lie channel by channel."""
    axes = rng.choice((1, 2, 2, 2, 3))
    ones, sizes = (1,) * axes, (24, 40, 64, 72, 128, 160, 200)
    layer = Layer(rng.choice(sizes), rng.choice(sizes), (16,) * axes, ones, ones, (0,) * axes)
    base = conv_base(rng, layer)
    first, options = f"NC{LETTERS[axes]}", base.options | {"stride": ones, "dilation": ones}
    layer = replace(base.layer, stride=ones)
    base = replace(base, layer=layer, layouts=(first,) * 3, padding=[(0, 0)] * axes, dilation=ones, options=options)
    made = (conv_problem(rng, base) for _ in range(TRIES))
    return [signature.canonical for signature in islice(filter(None, made), EACH)]


def _conv(kind: Callable[[random.Random], Layer]) -> Family:
    return lambda rng: conv_row(rng, kind)


def _gemm(*types: str, thin: bool = False) -> Family:
    return lambda rng: gemm_row(rng, types, thin)


FAMILIES: dict[str, Family] = {
    **{name: _conv(kind) for name, kind in KINDS.items()}, "strided_rows": _conv(strided_rows),
    "groups_volume": _conv(groups_volume), "pixelwise": pixelwise,
    "gemm_halves": _gemm("bf16", "fp16", "bf16", "fp16", "wide"), "gemm_fp32": _gemm("fp32"),
    "gemm_thin": _gemm("bf16", "fp16", "wide", thin=True), "gemm_tf32": _gemm("tf32"),
    "gemm_fp8": _gemm("e4m3", "e5m2", "e4m3 to bf16", "mixed"),
    "gemm_int8": _gemm("int8"), "gemm_row_groups": row_groups,
}  # fmt: skip
