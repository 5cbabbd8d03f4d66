"""The texts and launches: the filter's packing, once, and the convolution; backward weights and the sum of them."""

from __future__ import annotations

from pathlib import Path

from tilesmith.codegen.cuda.activation import activate
from tilesmith.codegen.cuda.hopper import mma_product_text
from tilesmith.codegen.cuda.mma import TYPES, divisors, mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, scoped, template, unit
from tilesmith.plan.records import Draft, Launch, Pointer, Source, Space
from tilesmith.plan.slots import slot_names
from tilesmith.solvers.cuda.first.draft import by_place, chosen, sizes_of, slots_of, steps_of, table
from tilesmith.solvers.cuda.first_rows.tile import RowsTile
from tilesmith.solvers.cuda.first_rows.weights import RowsWeightsTile
from tilesmith.solvers.cuda.first_rows.window import RowsWindow

FOLDER = Path(__file__).parent
_PACK_THREADS = 256
_ONES = {"bf16": 0x3F80, "fp16": 0x3C00}  # the bits of 1


def rows_draft(t: RowsTile) -> Draft:
    """``prepare`` packs the filter, ``run`` is one launch."""
    g, early = t.g, t.target.has_cluster
    arguments, packing = _arguments(t), _pack_arguments(t)
    element, sizes = TYPES[g.x.dtype], {"C": g.c, "K": g.k, "BLOCK_N": t.block_n, "STEPS": t.steps}
    sizes["VARIANTS"] = t.variants
    numbers = {
        **sizes, **rows_constants(t), "BLOCKS_N": t.blocks_n, "PARTS": t.parts, "OUT_VECTOR": t.out_vector,
        "SHARED_BYTES": t.shared_bytes, "MOST": t.at_once, "ONE": _ONES[g.x.dtype],
    }  # fmt: skip
    flags = {
        "ADDS": t.biases > 0, "MULTIPLIES_BIAS": t.bias_in_products, "RELU": g.epilogue.activation == "relu",
        "WHOLE": t.whole, "DENSE": t.dense, "FLAT": g.output[0] == 1, "STAYS": t.stays,
    }  # fmt: skip
    functions = activate(g.epilogue, "TS_MMA_DEVICE", g.y.dtype) + _places(t) + mma_product_text(t.block_n, g.x.dtype)
    types = {"Element": element, "Out": TYPES[g.y.dtype]}
    kernel = _source(t, ("rows", "kernel"), Header(numbers, flags, types, functions=functions, arguments=arguments))
    words = [0xFFFFFFFF if w is None else w.d << 26 | w.r << 18 | (w.element + 1) for w in t.words]
    header = Header(sizes | {"S": g.filter[2]}, {}, {"Element": element}, {"words": words}, arguments=packing)
    pack = _source(t, ("pack",), header, f"{t.block_n}x{t.steps}")
    run = Launch(
        0, kernel.symbol, t.grid, passed(arguments), (32 * t.warps, 1, 1), shared_bytes=t.shared_bytes,
        programmatic=early,
    )  # fmt: skip
    blocks = -(-t.packed_elements // _PACK_THREADS)
    prepare = Launch(1, pack.symbol, (blocks, 1, 1), passed(packing), (_PACK_THREADS, 1, 1))
    return Draft((kernel, pack), (run,), (prepare,), packed_bytes=t.packed_elements * 2)


def rows_weights_draft(t: RowsWeightsTile) -> Draft:
    """The kernel, and after it the sum of its blocks' sums."""
    g, early = t.g, t.target.has_cluster
    element, partial = TYPES[g.x.dtype], Pointer(Space.WORKSPACE)
    slots = dict(zip(slot_names(g), slots_of(g), strict=True))
    numbers = {
        **_sums(t), **rows_constants(t), "VARIANTS": t.variants, "MATRICES": t.matrices, "GROUP": t.group,
        "DY_VECTOR": t.dy_vector, "SHARED_BYTES": t.shared_bytes, "UNROLL": 2,
    }  # fmt: skip
    arguments = (
        Argument("x", "const Element *", slots["x"]), Argument("dy", "const Element *", slots["y"]),
        Argument("partial", "float *", partial),
        *integers("int", rows=g.k, tiles=t.all_tiles, tiles_h=t.tiles[0], tiles_w=t.tiles[1]),
        *integers("int", **sizes_of(g), **steps_of(g.x, "n"), **steps_of(g.y, "n")),
    )  # fmt: skip
    tables = {
        "word_offsets": [0 if word is None else t.offset(word) for word in t.words],
        "word_elements": [t.element(word) for word in t.words],
    }
    header = Header(numbers, {"RAGGED": t.ragged}, {"Element": element}, tables, arguments=arguments)
    source = _source(t, ("rows", "weights"), header)
    launch = Launch(
        0, source.symbol, (t.slices * t.blocks_m, 1, 1), passed(arguments), (32 * t.warps, 1, 1),
        shared_bytes=t.shared_bytes, programmatic=early,
    )  # fmt: skip
    total, second = total_launch(t, slots["w"], partial)
    return Draft((source, total), (launch, second), workspace_bytes=t.partial_bytes)


def total_launch(t: RowsWeightsTile, w: Pointer, partial: Pointer) -> tuple[Source, Launch]:
    """The sum of the blocks' sums."""
    g, slices = t.g, t.slices
    shares = 1 << max(0, min(4, (slices // 4).bit_length() - 1))
    arguments = (
        Argument("partial", "const float *", partial), Argument("w", "Out *", w),
        *integers("int", rows=g.k, slices=slices, **steps_of(g.w, "k")),
    )  # fmt: skip
    numbers = {**_sums(t), "R": g.filter[1], "S": g.filter[2], "SHARES": shares}
    header = Header(numbers, {}, {"Out": TYPES[g.w.dtype]}, arguments=arguments)
    total = _source(t, ("total",), header, f"{t.elements}x{t.tiles_n}")
    blocks = -(-t.blocks_m * t.sums_bytes // 16 * shares // 256)
    step = Launch(
        1, total.symbol, (blocks, 1, 1), passed(arguments), (256, 1, 1), programmatic=t.target.has_cluster
    )  # fmt: skip
    return total, step


def _sums(t: RowsWeightsTile) -> dict[str, int]:
    return {"C": t.g.c, "TILES_N": t.tiles_n, "BLOCKS_M": t.blocks_m, "ELEMENTS": t.elements}


def _source(t: RowsWindow, names: tuple[str, ...], header: Header, shared: str = "") -> Source:
    """``shared`` names a text that many configs have."""
    tile = shared or "x".join(str(value) for _, value in t.config.values)
    text = scoped(*(template(FOLDER, name) for name in names))
    text = f"namespace ts_mma {{\n{text}}} // namespace ts_mma\n"
    return unit(f"firstrows{names[-1]}", t.g.x.dtype, tile, t.target.arch, mma_prelude(), text, header)


def rows_constants(t: RowsWindow) -> dict[str, int]:
    """Constants of ``rows.cu``, and tiles."""
    planes, rows, pieces = t.window
    numbers = {
        "WARPS": t.warps, "TILE_H": t.tile[0], "TILE_W": t.tile[1], "IN_D": planes, "IN_H": rows, "ROW_CHUNKS": pieces,
        "SHIFT": t.shift, "VECTOR": t.vector, "DILATION_D": t.g.dilation[0], "MIN_BLOCKS": t.value["blocks_per_sm"],
    }  # fmt: skip
    return numbers | {f"STRIDE_{axis}": value for axis, value in zip("DHW", t.g.stride, strict=True)}


def _arguments(t: RowsTile) -> tuple[Argument, ...]:
    g = t.g
    slots = dict(zip(slot_names(g), slots_of(g), strict=True))
    out = TYPES[g.y.dtype]
    tiles = (*integers("int", tiles=t.all_tiles), *divisors(tiles_h=t.tiles[0], tiles_w=t.tiles[1], planes=g.output[0]))
    return (
        Argument("x", "const Element *", slots["x"]), Argument("packed", "const uint4 *", Pointer(Space.PACKED)),
        Argument("y", "Out *", slots["y"]), Argument("bias", f"const {out} *", slots.get("b", slots["y"])),
        *integers("int", **sizes_of(g), **steps_of(g.x, "n"), **steps_of(g.y, "n")), *tiles,
    )  # fmt: skip


def _pack_arguments(t: RowsTile) -> tuple[Argument, ...]:
    g = t.g
    slots = dict(zip(slot_names(g), slots_of(g), strict=True))
    return (
        Argument("packed", "Element *", Pointer(Space.PACKED)), Argument("w", "const Element *", slots["w"]),
        *integers("int", elements=t.packed_elements, **steps_of(g.w, "k")),
    )  # fmt: skip


def _places(t: RowsTile) -> str:
    """Places and masks of a lane's words, by fours of words: the first lane's place, how the others lie to it."""
    fours = [t.words[i : i + 4] for i in range(0, len(t.words), 4)]
    starts, ways, masks = [], [], []
    for four in fours:
        # Where there is no word, the last one is read again.
        offsets: list[int] = []
        for word in four:
            offsets.append((offsets[-1] if offsets else 0) if word is None else t.offset(word))
        starts.append(offsets[0])
        ways.append(tuple(offset - offsets[0] for offset in offsets))
        masks.append([t.mask(word) for word in four])
    known = list(dict.fromkeys(ways))
    torn = [(i, mask) for i, mask in enumerate(masks) if any(each != 0xFFFFFFFF for each in mask)]
    return "".join((
        table("int way_of(int four)", "four", [(i, str(known.index(way))) for i, way in enumerate(ways)]),
        table("int start_of(int four)", "four", [(i, str(start)) for i, start in enumerate(starts)]),
        table("int way_at(int way, int place)", "way", [(i, by_place(way)) for i, way in enumerate(known)]),
        table("bool masked(int four)", "four", [(i, "true") for i, _ in torn]),
        table(
            "u32 word_mask(int four, int place)", "four",
            [(i, f"{mask[0]}u" if len(set(mask)) == 1 else chosen(mask, "u")) for i, mask in torn],
        ),
    ))  # fmt: skip
