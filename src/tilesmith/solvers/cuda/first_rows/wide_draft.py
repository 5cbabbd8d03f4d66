"""The text and launches of backward weights by warpgroups, and the sum of them."""

from __future__ import annotations

from tilesmith.codegen.cuda.hopper import hopper_prelude, product_text
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, scoped, template, unit
from tilesmith.plan.records import Draft, Launch, Pointer, Space, TensorMap
from tilesmith.plan.slots import slot_names
from tilesmith.solvers.cuda.common.conv_form import pixel_axes
from tilesmith.solvers.cuda.common.form import steps_along
from tilesmith.solvers.cuda.common.sm90 import TYPES
from tilesmith.solvers.cuda.first.draft import sizes_of, slots_of
from tilesmith.solvers.cuda.first_rows.draft import FOLDER, rows_constants, total_launch
from tilesmith.solvers.cuda.first_rows.wide import WideRowsTile


def wide_draft(t: WideRowsTile) -> Draft:
    """The kernel, and after it the sum of its blocks' sums."""
    g, partial = t.g, Pointer(Space.WORKSPACE)
    slots = dict(zip(slot_names(g), slots_of(g), strict=True))
    rows = {name: value for name, value in rows_constants(t).items() if name not in ("WARPS", "VECTOR", "DILATION_D")}
    numbers = {
        **rows, "C": g.c, "VARIANTS": t.variants, "MATRICES": t.matrices, "GROUP": t.group, "ELEMENTS": t.elements,
        "WARPGROUPS": t.warpgroups, "PARTS": t.parts, "COLUMNS": t.columns, "SPAN": t.span, "STAGES": t.stages,
        "BATCH": t.batch, "BLOCKS_M": t.blocks_m, "SHARED_BYTES": t.shared_bytes,
    }  # fmt: skip
    tables = {
        "word_offsets": [0 if word is None else t.offset(word) for word in t.words],
        "word_elements": [t.element(word) for word in t.words],
    }
    arguments = (
        Argument("partial", "float *", partial),
        *integers("int", tiles=t.all_tiles, tiles_h=t.tiles[0], tiles_w=t.tiles[1], **sizes_of(g)),
    )
    functions = product_text("product", t.columns, g.x.dtype, False, True, loaded=True)
    header = Header(
        numbers, {"RAGGED": t.ragged}, {"Element": TYPES[g.x.dtype]}, tables,
        functions, ("map_dy", "map_x"), arguments,
    )  # fmt: skip
    tile = "x".join(str(value) for _, value in t.config.values)
    text = scoped(template(FOLDER, "wide"))
    source = unit("firstrowswide", g.x.dtype, tile, t.target.arch, hopper_prelude(), text, header)
    launch = Launch(
        0, source.symbol, (t.slices, t.blocks_m, 1), (*_maps(t, slots), *passed(arguments)), (32 * t.warps, 1, 1),
        shared_bytes=t.shared_bytes, programmatic=True,
    )  # fmt: skip
    total, second = total_launch(t, slots["w"], partial)
    return Draft((source, total), (launch, second), workspace_bytes=t.partial_bytes)


def _maps(t: WideRowsTile, slots: dict[str, Pointer]) -> tuple[TensorMap, TensorMap]:
    """dy: the channels of a part of the pixels of a variant. x: rows of the window, two elements at a time."""
    g, (h, w) = t.g, t.tile
    dy = pixel_axes(slots["y"], g.y, 3)
    pixels = TensorMap(
        dy.pointer, g.y.dtype, dy.dims, tuple(2 * stride for stride in dy.strides), (t.span // 2, w, h, 1, 1),
        (1, t.variants, 1, 1, 1), t.span,
    )  # fmt: skip
    planes, rows, pieces = t.window
    step = g.dilation[0] if planes > 1 else 1
    n, d, height = (g.x.shape[0], g.x.shape[2], g.x.shape[3])
    strides = steps_along((height, d, n), (g.x.strides[3], g.x.strides[2], g.x.strides[0]))
    lines = TensorMap(
        slots["x"], "fp32", (g.input[2] * g.c // 2, height, d, n), tuple(2 * stride for stride in strides),
        (4 * pieces, rows, (planes - 1) * step + 1, 1), (1, 1, step, 1), 0,
    )  # fmt: skip
    return pixels, lines
