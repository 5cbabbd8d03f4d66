"""The text and the launch of convolutions of few input channels."""

from __future__ import annotations

from pathlib import Path

from tilesmith.codegen.cuda.activation import activate
from tilesmith.codegen.cuda.hopper import mma_product_text
from tilesmith.codegen.cuda.mma import TYPES, mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, resolved, scoped, template, unit
from tilesmith.plan.records import Draft, Launch, Pointer, Source, Space
from tilesmith.plan.slots import slot_names
from tilesmith.problems.geometry import ConvGeometry, TensorView
from tilesmith.solvers.cuda.first.tile import FirstTile
from tilesmith.solvers.cuda.first.weights import WeightsTile
from tilesmith.solvers.cuda.first.window import Unit, Window

_FOLDER = Path(__file__).parent
_ONES = {"bf16": 0x3F80, "fp16": 0x3C00}  # the bits of 1


def first_draft(t: FirstTile) -> Draft:
    arguments = _arguments(t)
    source = _source(t, arguments)
    launch = Launch(
        0, source.symbol, (t.blocks, 1, 1), passed(arguments), (32 * t.warps, 1, 1), shared_bytes=t.shared_bytes,
        programmatic=t.target.has_cluster,
    )  # fmt: skip
    return Draft((source,), (launch,))


def _source(t: FirstTile, arguments: tuple[Argument, ...]) -> Source:
    g = t.g
    numbers = {
        **t.text_numbers, "UNITS": len(t.units), "PARTS": t.parts, "BLOCK_N": t.block_n, "OUT_VECTOR": t.out_vector,
        "SHARED_BYTES": t.shared_bytes, "BIAS_UNIT": t.bias_unit, "ONE": _ONES[g.x.dtype],
    }  # fmt: skip
    flags = {
        "WGMMA": t.wgmma, "ADDS": g.epilogue.bias and t.bias_unit < 0, "CHANNELS_LAST": g.x.channels_last,
        "WHOLE": t.whole, "RELU": g.epilogue.activation == "relu",
    }  # fmt: skip
    functions = activate(g.epilogue, "TS_MMA_DEVICE", g.y.dtype) + _unit_functions(t)
    functions += mma_product_text(t.block_n, t.g.x.dtype) + template(_FOLDER, "wgmma") if t.wgmma else _NO_WGMMA
    header = Header(
        numbers, flags, {"Element": TYPES[g.x.dtype], "Out": TYPES[g.y.dtype]}, {"unit_taps": _words(t.units)},
        functions, arguments=arguments,
    )  # fmt: skip
    tile = f"{t.tile[0]}x{t.tile[1]}x{t.block_n}w{t.warps}"
    kernel = resolved(template(_FOLDER, "kernel"), IN_TURNS=t.in_turns)
    return _unit("firstfwd", t, tile, (template(_FOLDER, "units"), kernel), header)


def _unit(op: str, t: Window, tile: str, parts: tuple[str, ...], header: Header) -> Source:
    text = scoped(*parts)
    text = f"namespace ts_mma {{\n{text}}} // namespace ts_mma\n"
    return unit(op, t.g.x.dtype, tile, t.target.arch, mma_prelude(), text, header)


def weights_draft(t: WeightsTile) -> Draft:
    """The kernel, and after it the sum of its blocks' sums."""
    g, early = t.g, t.target.has_cluster
    sizes = {"UNIT_WARPS": t.unit_warps, "PARTS": t.parts, "GROUPS": t.groups, "ELEMENTS": t.elements}
    numbers = {
        **t.text_numbers, **sizes, "DY_VECTOR": t.dy_vector, "SHARED_BYTES": t.shared_bytes, "UNROLL": 2,
    }  # fmt: skip
    element, partial = TYPES[g.x.dtype], Pointer(Space.WORKSPACE)
    dy, x = (Argument(name, f"const {element} *", slot) for name, slot in zip(("dy", "x"), slots_of(g), strict=False))
    arguments = (
        x, dy, Argument("partial", "float *", partial),
        *integers("int", rows=g.k, blocks_m=t.blocks_m, **_tiles(t), **sizes_of(g)),
        *integers("int", **steps_of(g.x, "n"), **steps_of(g.y, "n")),
    )  # fmt: skip
    tile = f"{t.tile[0]}x{t.tile[1]}x{t.parts}x{t.groups}w{t.warps}"
    offsets = {"unit_offsets": [t.offset(unit) for unit in t.columns]}
    header = Header(
        numbers,
        {"RAGGED": t.ragged, "CHANNELS_LAST": g.x.channels_last},
        {"Element": element},
        offsets,
        arguments=arguments,
    )
    parts = template(_FOLDER, "units"), template(_FOLDER, "weights")
    source = _unit("firstwrw", t, tile, parts, header)
    launch = Launch(
        0, source.symbol, (t.slices * t.blocks_m, 1, 1), passed(arguments), (32 * t.warps, 1, 1),
        shared_bytes=t.shared_bytes, programmatic=early,
    )  # fmt: skip
    out, shares = TYPES[g.w.dtype], 1 << max(0, min(4, (t.slices // 4).bit_length() - 1))
    adding = (
        Argument("partial", "const float *", partial), Argument("w", f"{out} *", slots_of(g)[2]),
        *integers("int", rows=g.k, blocks_m=t.blocks_m, slices=t.slices, **steps_of(g.w, "k")),
    )  # fmt: skip
    numbers = {"C": g.c, "S": g.filter[2], "TAPS": t.taps, **sizes, "SHARES": shares}
    header = Header(numbers, {}, {"Out": out}, {"unit_taps": _words(t.columns)}, arguments=adding)
    total = _unit("firsttotal", t, tile, (template(_FOLDER, "total"),), header)
    blocks = -(-t.blocks_m * t.quads * shares // 256)
    second = Launch(1, total.symbol, (blocks, 1, 1), passed(adding), (256, 1, 1), programmatic=early)
    return Draft((source, total), (launch, second), workspace_bytes=t.partial_bytes)


def slots_of(g: ConvGeometry) -> list[Pointer]:
    return [Pointer(Space.SLOT, index) for index in range(len(slot_names(g)))]


def _words(units: tuple[Unit | None, ...]) -> list[int]:
    return [0xFFFFFFFF if u is None else u.d << 24 | u.r << 16 | u.s << 8 | u.channels for u in units]


def _arguments(t: FirstTile) -> tuple[Argument, ...]:
    g = t.g
    slots = dict(zip(slot_names(g), slots_of(g), strict=True))
    element, out = TYPES[g.x.dtype], TYPES[g.y.dtype]
    pointers = (
        Argument("x", f"const {element} *", slots["x"]), Argument("w", f"const {element} *", slots["w"]),
        Argument("y", f"{out} *", slots["y"]), Argument("bias", f"const {out} *", slots.get("b", slots["y"])),
    )  # fmt: skip
    return pointers + integers(
        "int",
        columns=g.k,
        blocks_n=t.blocks_n,
        **_tiles(t),
        **sizes_of(g),
        **steps_of(g.x, "n"),
        **steps_of(g.w, "k"),
        **steps_of(g.y, "n"),
    )


def _tiles(t: Window) -> dict[str, int]:
    return {"tiles": t.all_tiles, "tiles_h": t.tiles[0], "tiles_w": t.tiles[1]}


def sizes_of(g: ConvGeometry) -> dict[str, int]:
    """Of the images of x and y, and the padding before them."""
    return {
        f"{name}_{axis}": value
        for name, values in (("in", g.input), ("out", g.output), ("pad", g.padding))
        for axis, value in zip("dhw", values, strict=True)
    }


def steps_of(view: TensorView, first: str) -> dict[str, int]:
    """Strides by axis; axes of one element have none."""
    axes = zip((first, *"cdhw"), view.strides, view.shape, strict=True)
    return {f"{view.name}_{axis}": step if size > 1 else 0 for axis, step, size in axes}


def _unit_functions(t: FirstTile) -> str:
    """Places and masks of a lane's unit, by the product: its first lane's place, and the way the others lie to it."""
    fours = [t.units[i : i + 4] for i in range(0, len(t.units), 4)]
    starts, ways, masks = [], [], []
    for four in fours:
        # Where there is no unit, the last one is read again.
        offsets: list[int] = []
        for one in four:
            offsets.append(offsets[-1] if one is None else t.offset(one))
        starts.append(offsets[0])
        ways.append(tuple(offset - offsets[0] for offset in offsets))
        masks.append([t.kept(one) for one in four])
    known = list(dict.fromkeys(ways))
    whole = [all(mask == (0xFFFFFFFF, 0xFFFFFFFF) for mask in four) for four in masks]
    torn = [(step, four) for step, four in enumerate(masks) if not whole[step]]
    return "".join((
        table("int way_of(int step)", "step", [(i, str(known.index(way))) for i, way in enumerate(ways)]),
        table("int step_at(int step)", "step", [(i, str(start)) for i, start in enumerate(starts)]),
        table("int lane_at(int way, int place)", "way", [(i, by_place(way)) for i, way in enumerate(known)]),
        table("bool masked(int step)", "step", [(step, "true") for step, _ in torn]),
        table(
            "u32 unit_mask(int step, int place, int word)", "step * 2 + word",
            [(2 * i + word, chosen([m[word] for m in four], "u")) for i, four in torn for word in range(2)],
        ),
    ))  # fmt: skip


def table(head: str, by: str, values: list[tuple[int, str]]) -> str:
    """A device function that returns a value by a number; 0 for others."""
    lines = "".join(f"  case {number}: return {value};\n" for number, value in values)
    return f"TS_MMA_DEVICE {head} {{\n  switch ({by}) {{\n{lines}  }}\n  return 0;\n}}\n"


def by_place(offsets: tuple[int, ...]) -> str:
    """``offsets`` by the lane's place: a multiple of it where they lie evenly."""
    step = offsets[1]
    return f"place * {step}" if offsets == (0, step, 2 * step, 3 * step) else chosen(list(offsets), "")


def chosen(values: list[int], suffix: str) -> str:
    """The value of the lane's place among four."""
    a, b, c, d = (f"{value}{suffix}" for value in values)
    return f"place < 2 ? (place == 0 ? {a} : {b}) : (place == 2 ? {c} : {d})"


_NO_WGMMA = """TS_MMA_DEVICE void weights_written() {}
template <int COUNT>
TS_MMA_DEVICE void multiply_all(float (&)[COUNT][BLOCK_N / 2], const unsigned char *, const unsigned char *,
                                const int (&)[COUNT][2], int) {}
"""
