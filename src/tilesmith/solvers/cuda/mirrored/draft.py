"""The launch that computes again what Inf and NaN have reached."""

from __future__ import annotations

from pathlib import Path

from tilesmith.codegen.cuda.activation import activate
from tilesmith.codegen.cuda.mma import TYPES, mma_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, integers, passed, scoped, template, unit
from tilesmith.plan.records import Launch, Source
from tilesmith.plan.slots import slot_names
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.solvers.cuda.first.draft import sizes_of, slots_of, steps_of
from tilesmith.targets.target import CudaTarget

_FOLDER = Path(__file__).parent
_THREADS = 256


def mending(g: ConvGeometry, target: CudaTarget) -> tuple[Source, Launch]:
    """A block for each channel of dx, or each pair of channels of dw; it ends at once where all it sees are numbers."""
    slots = dict(zip(slot_names(g), slots_of(g), strict=True))
    weights = g.direction == "wrw"
    result, element = g.w if weights else g.x, TYPES[g.y.dtype]
    out, steps = TYPES[result.dtype], {**steps_of(g.x, "n"), **steps_of(g.w, "k"), **steps_of(g.y, "n")}
    kinds = {"x": f"const {element}", "w": f"const {element}", result.name: out}
    arguments = (
        Argument("dy", f"const {element} *", slots["y"]), Argument("x", f"{kinds['x']} *", slots["x"]),
        Argument("w", f"{kinds['w']} *", slots["w"]),
        Argument("bias", f"const {out} *", slots.get("b", slots[result.name])),
        *integers("int", images=g.n, channels=g.c, **sizes_of(g), **steps),
    )  # fmt: skip
    depth, r, s = g.filter
    numbers = {"K": g.k, "DEPTH": depth, "R": r, "S": s}
    numbers |= {f"DILATION_{axis}": step for axis, step in zip("DHW", g.dilation, strict=True)}
    header = Header(
        numbers, {"ADDS": g.epilogue.bias}, {"Element": element, "Out": out},
        functions=activate(g.epilogue, "TS_MMA_DEVICE", result.dtype), arguments=arguments,
    )  # fmt: skip
    parts = (template(_FOLDER, name) for name in ("numbers", "weights" if weights else "data"))
    text = f"namespace ts_mma {{\n{scoped(*parts)}}} // namespace ts_mma\n"
    name = "x".join(map(str, (*g.filter, *g.dilation)))
    source = unit(f"mend{g.direction}", g.y.dtype, name, target.arch, mma_prelude(), text, header)
    blocks = g.c * g.k if weights else g.c
    return source, Launch(
        0, source.symbol, (blocks, 1, 1), passed(arguments), (_THREADS, 1, 1), programmatic=target.has_cluster
    )  # fmt: skip
