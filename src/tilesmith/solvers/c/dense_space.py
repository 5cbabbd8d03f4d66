"""The dense solver's search space and its untuned choice."""

from __future__ import annotations

from tilesmith.solvers.c.dense_form import DenseForm, uses_dot
from tilesmith.solvers.c.dense_tiling import DIRECT, PANEL, STRIP, Tiling
from tilesmith.solvers.solver import Config, SearchSpace
from tilesmith.targets.target import Target

NAMES = ("mh", "mw", "nv", "rows", "cols", "unroll", "kg", "kout", "cb", "cpad", "pack", "pf")
MAX_STRIP = 64 * 1024 * 1024


def dense_space(form: DenseForm, target: Target) -> SearchSpace:
    """All axes; ``allowed`` keeps tiles that fit the registers and steps that divide."""
    height, width = form.count[1], form.count[2]
    limit = accumulators(target)
    widths = sorted({w for w in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 16, 20, 24, 28) if w <= min(width, limit)})
    if not form.flat:
        widths = sorted({*widths, *(-(-width // parts) for parts in range(1, 9) if -(-width // parts) <= limit)})
    heights = [h for h in (1, 2, 3, 4, 7) if h <= height and (h == 1 or h * min(width, 4) <= limit)]
    rows = sorted({r for r in (1, 2, 4, 7, 8, 14, 16, 28, 56, height) if r <= height})
    if form.flat or height == 1:
        cols = sorted({c for c in (16, 24, 28, 48, 56, 96, 112, 192, 224, 384, 448, 896) if c < width} | {0})
    else:
        cols = sorted({c for c in (32, 64, 128, 256) if c < width and width > 128} | {0})
    packs = [p for p in (DIRECT, STRIP, PANEL) if pack_fits(form, target, p)]
    blocks = [cb for cb in (0, 32, 64, 128, 256, 512) if cb_fits(form, cb)]
    nvs = [v for v in (1, 2, 3, 4, 6) if v <= max(1, -(-form.k // target.lanes(4)))]
    axes = {
        "mh": tuple(heights), "mw": tuple(widths), "nv": tuple(nvs), "rows": tuple(rows), "cols": tuple(cols),
        "unroll": (1, 2, 3, 4, 7), "kg": (1, 2, 4, 8, 16), "kout": (0, 1), "cb": tuple(blocks), "cpad": (0, 16),
        "pack": tuple(packs), "pf": (0, 8, 32, 96, 192),
    }  # fmt: skip

    def allowed(config: Config) -> bool:
        t = Tiling(form, config, target)
        pixels = config["mh"] * config["mw"]
        if pixels * config["nv"] > limit or config["mh"] > config["rows"]:
            return False
        if config["cols"] and config["mw"] > config["cols"]:
            return False
        if config["kg"] > t.blocks or (config["kout"] and config["kg"] == 1):
            return False
        if config["unroll"] > 1 and t.unroll != config["unroll"]:
            return False
        if config["pack"] != STRIP and config["cpad"]:
            return False
        if config["pack"] == PANEL and config["cb"]:
            return False
        return t.strip_bytes <= MAX_STRIP

    return SearchSpace(axes, allowed)


def accumulators(target: Target) -> int:
    """Registers for sums: the rest holds vectors of the filter and a splat."""
    return target.vector_registers - (4 if target.vector_registers > 16 else 4)


def pack_fits(form: DenseForm, target: Target, pack: int) -> bool:
    if pack == DIRECT:
        as_it_lies = uses_dot(form, target) or form.x_dtype == "fp32"
        return as_it_lies and not form.has_halo and (form.x_strides[2] == 1 or form.c == 1)
    return pack == STRIP or form.flat


def cb_fits(form: DenseForm, cb: int) -> bool:
    """Blocks of reduced channels keep partial sums in y, which must therefore be fp32 and not an operand."""
    return cb == 0 or (cb < form.c and form.c % cb == 0 and form.y_dtype == "fp32" and form.beta == 0.0)


def dense_default(form: DenseForm, target: Target) -> Config:
    """A good point in constant time."""
    lanes, limit = target.lanes(4), accumulators(target)
    height, width = form.count[1], form.count[2]
    vectors = -(-form.k // lanes)
    nv = 2 if vectors % 2 == 0 else 1
    mw = min(width, limit // nv)
    if not form.flat:
        mw = -(-width // -(-width // mw))
    rows = min(height, 4)
    packs = DIRECT if pack_fits(form, target, DIRECT) else STRIP
    cols = 112 if (form.flat or height == 1) and width > 112 else 0
    values = {
        "mh": 1, "mw": mw, "nv": nv, "rows": rows, "cols": cols, "unroll": 1, "kg": 1, "kout": 0, "cb": 0, "cpad": 0,
        "pack": packs, "pf": 0,
    }  # fmt: skip
    return Config(tuple((name, values[name]) for name in NAMES))
