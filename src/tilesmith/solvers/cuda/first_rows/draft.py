"""The texts and launches: the filter's packing, once, and the convolution."""

from __future__ import annotations

from pathlib import Path

from tilesmith.codegen.cuda.activation import activate
from tilesmith.codegen.cuda.hopper import mma_product_text
from tilesmith.codegen.cuda.mma import TYPES, mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, scoped, template, unit
from tilesmith.plan.records import Draft, Launch, Pointer, Source, Space
from tilesmith.plan.slots import slot_names
from tilesmith.problems.geometry import TensorView
from tilesmith.solvers.cuda.first.draft import by_place, chosen, slots_of, table
from tilesmith.solvers.cuda.first_rows.tile import RowsTile

_FOLDER = Path(__file__).parent
_PACK_THREADS = 256


def rows_draft(t: RowsTile) -> Draft:
    """``prepare`` packs the filter, ``run`` is one launch."""
    g, early = t.g, t.target.has_cluster
    arguments, packing = _arguments(t), _pack_arguments(t)
    element, sizes = TYPES[g.x.dtype], {"C": g.c, "K": g.k, "BLOCK_N": t.block_n, "STEPS": t.steps}
    sizes["VARIANTS"] = t.variants
    planes, rows, pieces = t.window
    numbers = {
        **sizes, "BLOCKS_N": t.blocks_n, "WARPS": t.warps, "PARTS": t.parts, "TILE_H": t.tile[0], "TILE_W": t.tile[1],
        "IN_D": planes, "IN_H": rows, "ROW_CHUNKS": pieces, "SHIFT": t.shift, "VECTOR": t.vector,
        "OUT_VECTOR": t.out_vector, "SHARED_BYTES": t.shared_bytes, "MIN_BLOCKS": t.value["blocks_per_sm"],
        "DILATION_D": g.dilation[0],
    }  # fmt: skip
    numbers |= {f"STRIDE_{axis}": value for axis, value in zip("DHW", g.stride, strict=True)}
    flags = {
        "ADDS": g.epilogue.bias, "RELU": g.epilogue.activation == "relu", "WHOLE": t.whole, "DENSE": t.dense,
    }  # fmt: skip
    functions = activate(g.epilogue, "TS_MMA_DEVICE") + _places(t) + mma_product_text(t.block_n, g.x.dtype)
    types = {"Element": element, "Out": TYPES[g.y.dtype]}
    kernel = _source(t, "kernel", Header(numbers, flags, types, functions=functions, arguments=arguments))
    words = [0xFFFFFFFF if w is None else w.d << 26 | w.r << 18 | (w.element + 1) for w in t.words]
    header = Header(sizes | {"S": g.filter[2]}, {}, {"Element": element}, {"words": words}, arguments=packing)
    pack = _source(t, "pack", header)
    run = Launch(
        0, kernel.symbol, (t.blocks, 1, 1), passed(arguments), (32 * t.warps, 1, 1), shared_bytes=t.shared_bytes,
        programmatic=early,
    )  # fmt: skip
    blocks = -(-t.packed_elements // _PACK_THREADS)
    prepare = Launch(1, pack.symbol, (blocks, 1, 1), passed(packing), (_PACK_THREADS, 1, 1))
    return Draft((kernel, pack), (run,), (prepare,), packed_bytes=t.packed_elements * 2)


def _source(t: RowsTile, name: str, header: Header) -> Source:
    tile = "x".join(str(value) for _, value in t.config.values)
    text = f"namespace ts_mma {{\n{scoped(template(_FOLDER, name))}}} // namespace ts_mma\n"
    return unit(f"firstrows{name}", t.g.x.dtype, tile, t.target.arch, mma_prelude(), text, header)


def _steps(view: TensorView, first: str) -> dict[str, int]:
    axes = zip((first, *"cdhw"), view.strides, view.shape, strict=True)
    return {f"{view.name}_{axis}": step if size > 1 else 0 for axis, step, size in axes}


def _arguments(t: RowsTile) -> tuple[Argument, ...]:
    g = t.g
    slots = dict(zip(slot_names(g), slots_of(g), strict=True))
    sizes = {"tiles_h": t.tiles[0], "tiles_w": t.tiles[1]}
    for name, values in (("in", g.input), ("out", g.output), ("pad", g.padding)):
        sizes |= {f"{name}_{axis}": value for axis, value in zip("dhw", values, strict=True)}
    out = TYPES[g.y.dtype]
    return (
        Argument("x", "const Element *", slots["x"]), Argument("packed", "const uint4 *", Pointer(Space.PACKED)),
        Argument("y", "Out *", slots["y"]), Argument("bias", f"const {out} *", slots.get("b", slots["y"])),
        *integers("int", **sizes, **_steps(g.x, "n"), **_steps(g.y, "n")),
    )  # fmt: skip


def _pack_arguments(t: RowsTile) -> tuple[Argument, ...]:
    g = t.g
    slots = dict(zip(slot_names(g), slots_of(g), strict=True))
    return (
        Argument("packed", "Element *", Pointer(Space.PACKED)), Argument("w", "const Element *", slots["w"]),
        *integers("int", elements=t.packed_elements, **_steps(g.w, "k")),
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
