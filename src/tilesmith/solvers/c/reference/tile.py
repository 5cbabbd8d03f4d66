"""From any problem to the sizes, items and text of its reference kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tilesmith.codegen.c.epilogue import scalar_activation
from tilesmith.codegen.c.scalar import conversions
from tilesmith.plan.records import Integer, Parameter, Real
from tilesmith.plan.slots import slot_names
from tilesmith.problems.geometry import SCALE_K, ConvGeometry, GemmGeometry, TensorView, Triple
from tilesmith.solvers.c.reference import text
from tilesmith.solvers.c.reference.text import M, N, Q
from tilesmith.solvers.solver import Geometry
from tilesmith.targets.target import CpuTarget

_SCALARS = ("alpha", "beta")
_ROWS = 4  # of the block that ``multiply`` keeps in registers


@dataclass(frozen=True)
class ReferenceTile:
    """The kernel of ``problem``: its text, its arguments ``sizes`` by their names in C, and its items."""

    problem: Geometry
    op: str
    body: str
    sizes: Mapping[str, float]
    items: int

    @property
    def dtypes(self) -> tuple[str, str, str]:
        """Of the two operands and the result."""
        problem = self.problem
        if isinstance(problem, GemmGeometry):
            return problem.a.dtype, problem.b.dtype, problem.c.dtype
        x, w, y = problem.x.dtype, problem.w.dtype, problem.y.dtype
        return {"fwd": (x, w, y), "bwd": (y, w, x), "wrw": (y, x, w), "bgrad": (y, y, w)}[problem.direction]

    @property
    def numbers(self) -> list[Parameter]:
        return [Real(float(v)) if name in _SCALARS else Integer(int(v)) for name, v in self.sizes.items()]

    @property
    def scratch_bytes(self) -> int:
        accumulators = (M * Q + Q * N + M * N) * (4 if self.problem.acc_dtype == "int32" else 8)
        return accumulators + (16 * M + 8 * Q) * 8 + M * Q

    def text(self, target: CpuTarget, guarded: bool) -> str:
        """The kernel's text; ``guarded``: it returns at once where the int32 behind its tensors is 0."""
        problem = self.problem
        fields = "".join(f"  {'double' if n in _SCALARS else 'int64_t'} {n};\n" for n in self.sizes)
        views = ("a", "b", "c") if isinstance(problem, GemmGeometry) else ("x", "w", "y")
        kernel = f"typedef struct {{\n{fields}}} @SYM@_sizes;\n"
        kernel += conversions({getattr(problem, name).dtype for name in views})
        if problem.epilogue.activation != "none":
            kernel += scalar_activation(problem.epilogue)
        kernel += text.MULTIPLY + self.body
        holes = self._vectors(target) | self._slots(guarded)
        while any(hole in kernel for hole in holes):  # a filling may hold holes
            kernel = _fill(kernel, holes)
        return kernel

    def _vectors(self, target: CpuTarget) -> dict[str, str]:
        """Types, tile, and the vector code of ``multiply``."""
        integer = self.problem.acc_dtype == "int32"
        width = 4 if integer else 8
        lanes = min(target.vector_bytes // width, N)
        across = range(min(2, N // lanes))
        cells = [(m, v) for m in range(_ROWS) for v in across]
        places = {(m, v): f"*(@SYM@_vec *)(c + {m * N} + n + {v * lanes})" for m, v in cells}
        products = [
            *(f"        const @SYM@_vec b{v} = *(const @SYM@_vec *)(b + i * @N@ + n + {v * lanes});" for v in across),
            *(f"        c{m}{v} += a[{m * Q} + i] * b{v};" for m, v in cells),
        ]
        return {
            "@ACC@": "uint32_t" if integer else "double",
            "@VALUE@": "int64_t" if integer and not self.problem.epilogue.is_scaled else "double",
            "@SIGNED@": "(int32_t)" if integer else "",
            "@VB@": str(lanes * width), "@MR@": str(_ROWS), "@NR@": str(lanes * len(across)),
            "@LOAD@": "\n".join(
                f"      @SYM@_vec c{m}{v} = {place.replace('(@', '(const @', 1)};" for (m, v), place in places.items()
            ),
            "@FMA@": "\n".join(products),
            "@STORE@": "\n".join(f"      {place} = c{m}{v};" for (m, v), place in places.items()),
            "@M@": str(M), "@N@": str(N), "@Q@": str(Q),
        }  # fmt: skip

    def _slots(self, guarded: bool) -> dict[str, str]:
        """The pointers behind the operands, and the epilogue that uses them."""
        problem, epilogue = self.problem, self.problem.epilogue
        slots, out = slot_names(problem), self.dtypes[-1]
        pointers, lines, scale = [], [], ""
        if not (isinstance(problem, ConvGeometry) and problem.direction in ("wrw", "bgrad")):
            if epilogue.bias:
                place = problem.first_extra if isinstance(problem, GemmGeometry) else 2
                pointers.append(f"  const void *bias = p[{place}];")
                one = "((const float *)bias)[channel]" if epilogue.is_scaled else f"@SYM@_load_{out}(bias, channel)"
                lines.append(f"        v += {one};")
            if epilogue.residual:
                pointers.append(f"  const void *residual = p[{slots.index('z')}];")
                lines.append(f"        v += @SYM@_load_{out}(residual, at);")
            if epilogue.is_scaled:
                pointers.append(f"  const float *scale = p[{slots.index('s')}];")
                scale = f"\n        v *= scale[{'channel' if epilogue.scale == 'channel' else '0'}];"
            pointers.append(f"  void *result = p[{len(slots) - 1}];")
            if epilogue.activation != "none":
                lines.append("        v = @SYM@_act1(v);")
            if out == "int8":
                lines.append(text.SATURATE)
        if guarded:
            pointers.append(f"  if (*(const int32_t *)p[{len(slots)}] == 0)\n    return;")
        return {"@SCALE@": scale, "@POINTERS@": "\n".join(pointers), "@EPILOGUE@": "\n".join(lines)}


def reference_tile(problem: Geometry) -> ReferenceTile:
    if isinstance(problem, GemmGeometry):
        return _gemm(problem)
    return {"fwd": _conv, "bwd": _conv, "wrw": _wrw, "bgrad": _bgrad}[problem.direction](problem)


def _conv(g: ConvGeometry) -> ReferenceTile:
    forward = g.direction == "fwd"
    source, result = (g.x, g.y) if forward else (g.y, g.x)
    rn, on = (g.c // g.groups, g.k // g.groups) if forward else (g.k // g.groups, g.c // g.groups)
    image, spatial = (g.output, g.input) if forward else (g.input, g.output)
    # bwd: positions of one tile have one remainder by the stride; a remainder beyond the image has no position.
    d, h, w = (1 if forward else min(step, size) for step, size in zip(g.stride, image, strict=True))
    tiles = -(-g.n * prod(-(-size // step) for size, step in zip(image, (d, h, w), strict=True)) // M)
    sizes = {"n": g.n, "groups": g.groups, "on": on, "rn": rn, "tiles": tiles}
    sizes |= _window(g, image, spatial, (d, h, w)) | _steps(("src", source), ("w", g.w), ("out", result))
    filter_k = "(group * g->{0} + {1}) * g->w0"
    filter_c = "@SYM@_channel({0}, g->w1, g->wv)"
    safe = "n0 + (n < cols ? n : 0)"
    holes = {
        "@W_RESULT@": filter_k.format("on", safe) if forward else filter_c.format(safe),
        "@W_SOURCE@": filter_c.format("r0 + i") if forward else filter_k.format("rn", "r0 + i"),
        "@SRC@": source.dtype, "@W@": g.w.dtype, "@OUT@": result.dtype,
        "@BWD_SCRATCH@": "", "@BWD_EXISTS@": "", "@FLUSH@": "@SYM@_multiply(c, a, b, rows, q);",
    }  # fmt: skip
    for axis, tap in zip("dhw", "dht", strict=True):
        skip = f"if ((p{axis}[0] + g->p{axis} - {tap} * g->d{axis}) % g->s{axis}) continue;"
        holes[f"@SKIP_{axis.upper()}@"] = "" if forward else skip
    body = text.LOCATE[g.direction] + text.CONV
    if not forward and g.acc_dtype != "int32":
        holes |= text.BWD
        body = text.MULTIPLY_EXISTING + body
    return ReferenceTile(g, g.direction, _fill(body, holes), sizes, tiles * d * h * w * g.groups * -(-on // N))


def _wrw(g: ConvGeometry) -> ReferenceTile:
    kn, cn = g.k // g.groups, g.c // g.groups
    sizes = {
        "n": g.n,
        "cn": cn,
        "kn": kn,
        **_window(g, g.output, g.input),
        **_steps(("x", g.x), ("w", g.w), ("y", g.y)),
    }
    body = _fill(text.WRW, {"@X@": g.x.dtype, "@Y@": g.y.dtype, "@W@": g.w.dtype})
    return ReferenceTile(g, "wrw", body, sizes, g.groups * -(-kn // N) * -(-cn * prod(g.filter) // M))


def _bgrad(g: ConvGeometry) -> ReferenceTile:
    sizes = {"n": g.n, "k": g.k, "od": g.output[0], "oh": g.output[1], "ow": g.output[2], **_steps(("y", g.y))}
    return ReferenceTile(g, "bgrad", _fill(text.BGRAD, {"@Y@": g.y.dtype, "@W@": g.w.dtype}), sizes, -(-g.k // N))


def _gemm(g: GemmGeometry) -> ReferenceTile:
    sizes: dict[str, float] = {"m": g.m, "n": g.n, "k": g.k}
    for view in (g.a, g.b, g.c):
        sizes |= {f"{view.name}{i}": stride for i, stride in enumerate(view.strides)}
    sizes |= {"alpha": g.alpha, "beta": g.beta}
    holes = {"@GROUP@": "", "@FIRST@": "batch * g->a0", "@FIRST_OUT@": "batch * g->c0"}
    if g.groups:
        sizes["groups"] = g.groups
        holes = {"@GROUP@": text.ROWS_OF_GROUP, "@FIRST@": "0", "@FIRST_OUT@": "0"}
    if g.has_scales:
        for name in "ab":
            sizes |= zip((f"{name}m", f"{name}r", f"{name}k"), g.scale_steps(name), strict=True)
    factors = text.FACTORS if g.has_scales else dict.fromkeys(text.FACTORS, "")
    holes |= {**factors, "@SCALE_K@": str(SCALE_K)}
    body = _fill(text.GEMM, {**holes, "@A@": g.a.dtype, "@B@": g.b.dtype, "@OUT@": g.c.dtype})
    return ReferenceTile(g, "gemm", body, sizes, (g.batch + g.groups) * -(-g.m // M) * -(-g.n // N))


def _window(g: ConvGeometry, image: Triple, spatial: Triple, phases: Triple | None = None) -> dict[str, int]:
    """The values of ``o i f s p d`` (and ``e`` for phases) in the text, for each spatial axis."""
    of = {"o": image, "i": spatial, "f": g.filter, "s": g.stride, "p": g.padding, "d": g.dilation}
    if phases:
        of["e"] = phases
    return {f"{name}{axis}": values[i] for i, axis in enumerate("dhw") for name, values in of.items()}


def _steps(*views: tuple[str, TensorView]) -> dict[str, int]:
    """The strides and the vector width of each tensor."""
    found: dict[str, int] = {}
    for name, view in views:
        found |= {f"{name}{i}": stride for i, stride in enumerate(view.strides)} | {f"{name}v": view.vector}
    return found


def _fill(body: str, holes: Mapping[str, str]) -> str:
    for hole, filling in holes.items():
        body = body.replace(hole, filling)
    return body
