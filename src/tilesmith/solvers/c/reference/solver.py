"""The plain reference: one kernel a direction, activation and set of dtypes that computes every valid problem.

All floating-point sums are made in double, also where ``acc_dtype`` is fp32: gathering dominates, so double costs
little, and the reference is then exact to the last rounding even for the longest reductions. int8 sums wrap modulo
2^32, as int32 does.
"""

from __future__ import annotations

from tilesmith.codegen.c.epilogue import scalar_activation
from tilesmith.codegen.c.scalar import TYPES, conversions
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Integer, Launch, Parameter, Pointer, Real, Source, Space
from tilesmith.plan.slots import slot_names
from tilesmith.problems.features import EVERYTHING
from tilesmith.problems.geometry import ConvGeometry, GemmGeometry
from tilesmith.solvers.c.reference import text
from tilesmith.solvers.solver import Accepted, Config, Geometry, Rejected, SearchSpace, Unranked
from tilesmith.targets.target import CpuTarget

_SCALARS = ("alpha", "beta")


class ReferenceSolver(Unranked):
    """Covers every problem; last in the table."""

    name = "c_reference"
    revision = 1
    features = EVERYTHING
    axes = ()

    def applicable(self, problem: Geometry, target: CpuTarget) -> Accepted | Rejected:
        return Accepted()

    def search_space(self, problem: Geometry, target: CpuTarget) -> SearchSpace:
        return SearchSpace({})

    def default_config(self, problem: Geometry, target: CpuTarget) -> Config:
        return Config(())

    def predict(self, problem: Geometry, config: Config, target: CpuTarget) -> float:
        """A gathered operand costs about 2 ns, and a tile's channels share it."""
        if isinstance(problem, GemmGeometry):
            products, channels = problem.batch * problem.m * problem.n * problem.k, problem.n
        else:
            products, channels = _results(problem) * problem.reduction_length, _result_channels(problem)
            if problem.direction == "bwd":
                products //= problem.stride[0] * problem.stride[1] * problem.stride[2]
        return products * 2e-9 / min(text.N, channels) / target.cores + 5e-6

    def draft(self, problem: Geometry, config: Config, target: CpuTarget) -> Draft:
        source, launch = _reference(problem, target, None)
        return Draft((source,), (launch,))


def guarded_reference(problem: Geometry, target: CpuTarget, flag: Pointer) -> tuple[Source, Launch]:
    """The reference launch that returns at once when the int32 at ``flag`` is 0.

    It follows a fast kernel that is exact only for finite filters. ``Launch.artifact`` is 0: the caller puts the
    source where it belongs and renumbers. ``solvers.c.finite`` has the step that writes the flag.
    """
    return _reference(problem, target, flag)


def _reference(problem: Geometry, target: CpuTarget, flag: Pointer | None) -> tuple[Source, Launch]:
    if isinstance(problem, GemmGeometry):
        op, body, values, items = _gemm(problem)
    elif problem.direction in ("fwd", "bwd"):
        op, body, values, items = _conv(problem)
    elif problem.direction == "wrw":
        op, body, values, items = _wrw(problem)
    else:
        op, body, values, items = _bgrad(problem)
    holes = _common_holes(problem, target, flag is not None)
    fields = "".join(f"  {'double' if n in _SCALARS else 'int64_t'} {n};\n" for n in values)
    head = f"typedef struct {{\n{fields}}} @SYM@_sizes;\n"
    dtypes = {problem.a.dtype, problem.b.dtype, problem.c.dtype} if isinstance(problem, GemmGeometry) else {
        problem.x.dtype, problem.w.dtype, problem.y.dtype
    }  # fmt: skip
    kernel = head + conversions(dtypes)
    if problem.epilogue.activation != "none":
        kernel += scalar_activation(problem.epilogue)
    kernel += text.MULTIPLY + body
    while any(hole in kernel for hole in holes):  # a filling may hold holes
        for hole, filling in holes.items():
            kernel = kernel.replace(hole, filling)
    short = "".join(_short(d) for d in _dtype_order(problem))
    source = make_source(
        "c", f"reference{op}", short, f"m{text.M}n{text.N}q{text.Q}", target.arch, TYPES, kernel
    )  # fmt: skip
    pointers: list[Parameter] = [Pointer(Space.SLOT, i) for i in range(len(slot_names(problem)))]
    if flag is not None:
        pointers.append(flag)
    numbers = [Real(float(v)) if n in _SCALARS else Integer(int(v)) for n, v in values.items()]
    acc_bytes = 4 if problem.acc_dtype == "int32" else 8
    scratch = (text.M * text.Q + text.Q * text.N + text.M * text.N) * acc_bytes
    scratch += (16 * text.M + 8 * text.Q) * 8 + text.M * text.Q
    launch = Launch(0, source.symbol, (items, 1, 1), (*pointers, *numbers), shared_bytes=scratch)
    return source, launch


def _common_holes(problem: Geometry, target: CpuTarget, guarded: bool) -> dict[str, str]:
    """What every direction's text needs: types, tile, vector code, pointers and the epilogue."""
    integer = problem.acc_dtype == "int32"
    width = 4 if integer else 8
    lanes = min(target.vector_bytes // width, text.N)
    per_row = min(2, text.N // lanes)
    rows = range(4)
    pairs = [(m, v) for m in rows for v in range(per_row)]
    load = "\n".join(
        f"      @SYM@_vec c{m}{v} = *(const @SYM@_vec *)(c + {m * text.N} + n + {v * lanes});" for m, v in pairs
    )
    fma = [
        f"        const @SYM@_vec b{v} = *(const @SYM@_vec *)(b + i * @N@ + n + {v * lanes});" for v in range(per_row)
    ]
    fma += [f"        c{m}{v} += a[{m * text.Q} + i] * b{v};" for m, v in pairs]
    store = "\n".join(f"      *(@SYM@_vec *)(c + {m * text.N} + n + {v * lanes}) = c{m}{v};" for m, v in pairs)
    slots = slot_names(problem)
    scaled = problem.epilogue.is_scaled
    pointers, epilogue, scale = [], [], ""
    if not (isinstance(problem, ConvGeometry) and problem.direction in ("wrw", "bgrad")):
        out = _dtype_order(problem)[-1]
        for kind, names in (("bias", ("b", "bias")), ("residual", ("z",))):
            where = next((i for i, n in enumerate(slots) if n in names and i >= 2), None)
            if where is not None:
                pointers.append(f"  const void *{kind} = p[{where}];")
                index = "channel" if kind == "bias" else "at"
                term = f"@SYM@_load_{out}({kind}, {index})"
                if scaled and kind == "bias":
                    term = "((const float *)bias)[channel]"
                epilogue.append(f"        v += {term};")
        if scaled:
            pointers.append(f"  const float *scale = p[{slots.index('s')}];")
            scale = f"\n        v *= scale[{'channel' if problem.epilogue.scale == 'channel' else '0'}];"
        pointers.append(f"  void *result = p[{len(slots) - 1}];")
        if problem.epilogue.activation != "none":
            epilogue.append("        v = @SYM@_act1(v);")
        if out == "int8":
            epilogue.append(text.SATURATE)
    if guarded:
        pointers.append(f"  if (*(const int32_t *)p[{len(slots)}] == 0)\n    return;")
    return {
        "@ACC@": "uint32_t" if integer else "double",
        "@VALUE@": "int64_t" if integer and not scaled else "double",
        "@SCALE@": scale,
        "@SIGNED@": "(int32_t)" if integer else "",
        "@VB@": str(lanes * width),
        "@MR@": str(len(rows)),
        "@NR@": str(lanes * per_row),
        "@LOAD@": load,
        "@FMA@": "\n".join(fma),
        "@STORE@": store,
        "@POINTERS@": "\n".join(pointers),
        "@EPILOGUE@": "\n".join(epilogue),
        "@M@": str(text.M),
        "@N@": str(text.N),
        "@Q@": str(text.Q),
    }


def _conv(g: ConvGeometry) -> tuple[str, str, dict[str, float], int]:
    forward = g.direction == "fwd"
    source, result = (g.x, g.y) if forward else (g.y, g.x)
    rn, on = (g.c // g.groups, g.k // g.groups) if forward else (g.k // g.groups, g.c // g.groups)
    image, spatial = (g.output, g.input) if forward else (g.input, g.output)
    # bwd: positions of one tile have one remainder by the stride; a remainder beyond the image has no position.
    phases = (1, 1, 1) if forward else tuple(min(s, size) for s, size in zip(g.stride, image, strict=True))
    most = g.n
    for size, step in zip(image, phases, strict=True):
        most *= -(-size // step)
    tiles = -(-most // text.M)
    values: dict[str, float] = {"n": g.n, "groups": g.groups, "on": on, "rn": rn, "tiles": tiles}
    for i, axis in enumerate("dhw"):
        values |= {
            f"o{axis}": image[i], f"i{axis}": spatial[i], f"f{axis}": g.filter[i], f"s{axis}": g.stride[i],
            f"p{axis}": g.padding[i], f"d{axis}": g.dilation[i], f"e{axis}": phases[i],
        }  # fmt: skip
    for name, view in (("src", source), ("w", g.w), ("out", result)):
        values |= {f"{name}{i}": stride for i, stride in enumerate(view.strides)} | {f"{name}v": view.vector}
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
    return (
        g.direction,
        _fill(body, holes),
        values,
        tiles * phases[0] * phases[1] * phases[2] * g.groups * -(-on // text.N),
    )


def _wrw(g: ConvGeometry) -> tuple[str, str, dict[str, float], int]:
    kn, cn = g.k // g.groups, g.c // g.groups
    values: dict[str, float] = {"n": g.n, "cn": cn, "kn": kn}
    for i, axis in enumerate("dhw"):
        values |= {
            f"o{axis}": g.output[i], f"i{axis}": g.input[i], f"f{axis}": g.filter[i],
            f"s{axis}": g.stride[i], f"p{axis}": g.padding[i], f"d{axis}": g.dilation[i],
        }  # fmt: skip
    for name, view in (("x", g.x), ("w", g.w), ("y", g.y)):
        values |= {f"{name}{i}": stride for i, stride in enumerate(view.strides)} | {f"{name}v": view.vector}
    taps = g.filter[0] * g.filter[1] * g.filter[2]
    items = g.groups * -(-kn // text.N) * -(-cn * taps // text.M)
    return "wrw", _fill(text.WRW, {"@X@": g.x.dtype, "@Y@": g.y.dtype, "@W@": g.w.dtype}), values, items


def _bgrad(g: ConvGeometry) -> tuple[str, str, dict[str, float], int]:
    values: dict[str, float] = {"n": g.n, "k": g.k, "od": g.output[0], "oh": g.output[1], "ow": g.output[2]}
    values |= {f"y{i}": stride for i, stride in enumerate(g.y.strides)} | {"yv": g.y.vector}
    return "bgrad", _fill(text.BGRAD, {"@Y@": g.y.dtype, "@W@": g.w.dtype}), values, -(-g.k // text.N)


def _gemm(g: GemmGeometry) -> tuple[str, str, dict[str, float], int]:
    values: dict[str, float] = {"m": g.m, "n": g.n, "k": g.k}
    for view in (g.a, g.b, g.c):
        values |= {f"{view.name}{i}": stride for i, stride in enumerate(view.strides)}
    values |= {"alpha": g.alpha, "beta": g.beta}
    body = _fill(text.GEMM, {"@A@": g.a.dtype, "@B@": g.b.dtype, "@OUT@": g.c.dtype})
    return "gemm", body, values, g.batch * -(-g.m // text.M) * -(-g.n // text.N)


def _fill(body: str, holes: dict[str, str]) -> str:
    for hole, filling in holes.items():
        body = body.replace(hole, filling)
    return body


def _dtype_order(problem: Geometry) -> tuple[str, str, str]:
    """Dtypes of the two operands and the result."""
    if isinstance(problem, GemmGeometry):
        return problem.a.dtype, problem.b.dtype, problem.c.dtype
    x, w, y = problem.x.dtype, problem.w.dtype, problem.y.dtype
    return {"fwd": (x, w, y), "bwd": (y, w, x), "wrw": (y, x, w), "bgrad": (y, y, w)}[problem.direction]


def _short(name: str) -> str:
    return name.replace("fp", "f").replace("int", "i")


def _result_channels(g: ConvGeometry) -> int:
    return (g.c if g.direction == "bwd" else g.k) // g.groups


def _results(g: ConvGeometry) -> int:
    """Elements of the result."""
    shape = {"fwd": g.y.shape, "bwd": g.x.shape, "wrw": g.w.shape, "bgrad": (g.k, 1, 1, 1, 1)}[g.direction]
    count = 1
    for size in shape:
        count *= size
    return count
