"""The plain CUDA reference: one kernel a direction, tile shape and set of dtypes that computes every valid problem.

All floating-point sums are made in double, also where ``acc_dtype`` is fp32, so that the reference is exact to the last
rounding and can be the oracle on the device. int8 sums wrap modulo 2^32, as int32 does.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.codegen.cuda.scalar import POINTEE, scalar_prelude
from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Draft, Integer, Launch, Parameter, Pointer, Real, Source, Space
from tilesmith.plan.slots import slot_names
from tilesmith.problems.epilogue import ACTIVATIONS
from tilesmith.problems.features import EVERYTHING
from tilesmith.problems.geometry import ConvGeometry, GemmGeometry
from tilesmith.solvers.cuda.reference import text
from tilesmith.solvers.solver import Accepted, Config, Geometry, Rejected, SearchSpace, Unranked
from tilesmith.targets.fits.choose import fit_of
from tilesmith.targets.target import CudaTarget

_SCALARS = ("alpha", "beta", "slope", "low", "high")
_MOST_BLOCKS = 1 << 20  # beyond, blocks take several tiles


@dataclass(frozen=True)
class _Tile:
    """``m`` x ``n`` results of a block, ``q`` elements of the reduction at a time, ``rm`` x ``rn`` results a thread."""

    m: int
    n: int
    q: int
    rm: int
    rn: int

    @property
    def holes(self) -> dict[str, str]:
        return {
            "@TM@": str(self.m), "@TN@": str(self.n), "@Q@": str(self.q), "@RM@": str(self.rm), "@RN@": str(self.rn),
            "@TMT@": str(self.m // self.rm), "@TNT@": str(self.n // self.rn),
        }  # fmt: skip


_SQUARE = _Tile(64, 64, 16, 4, 4)
_NARROW = _Tile(256, 8, 8, 4, 2)  # for groups of few channels
_NARROW_COLUMNS = 8


class CudaReferenceSolver(Unranked):
    """Covers every problem; last in the table."""

    name = "cuda_reference"
    revision = 1
    features = EVERYTHING
    axes = ()

    def applicable(self, problem: Geometry, target: CudaTarget) -> Accepted | Rejected:
        return Accepted()

    def search_space(self, problem: Geometry, target: CudaTarget) -> SearchSpace:
        return SearchSpace({})

    def default_config(self, problem: Geometry, target: CudaTarget) -> Config:
        return Config(())

    def predict(self, problem: Geometry, config: Config, target: CudaTarget) -> float:
        """Tile after tile on each SM: a share of the fp64 rate at most, and what was measured for a tile."""
        fit = fit_of(target).reference
        tile, tiles, depth = _extent(problem)
        at_rate = 2.0 * tile.m * tile.n * depth * target.cores / (fit.fp64 * target.fp64_flops)
        alone, each = fit.narrow_tile if tile.n == _NARROW_COLUMNS else fit.square_tile
        return max(at_rate, (alone + each * depth) / target.clock_hz) * max(1.0, tiles / target.cores) + fit.start

    def draft(self, problem: Geometry, config: Config, target: CudaTarget) -> Draft:
        source, launch = _reference(problem, target, None)
        return Draft((source,), (launch,))


def guarded_reference(problem: Geometry, target: CudaTarget, flag: Pointer) -> tuple[Source, Launch]:
    """The reference launch that returns at once when the int32 at ``flag`` is 0.

    ``Launch.artifact`` is 0: the caller puts the source where it belongs and renumbers.
    """
    return _reference(problem, target, flag)


def _reference(problem: Geometry, target: CudaTarget, flag: Pointer | None) -> tuple[Source, Launch]:
    tile, tiles, _ = _extent(problem)
    if isinstance(problem, GemmGeometry):
        op, body, values = _gemm(problem)
    elif problem.direction in ("fwd", "bwd"):
        op, body, values = _conv(problem)
    elif problem.direction == "wrw":
        op, body, values = _wrw(problem)
    else:
        op, body, values = _bgrad(problem)
    values |= _activation_values(problem)
    pointers = _pointers(problem, guarded=flag is not None)
    parameters = [*pointers, *(f"{'double' if name in _SCALARS else 'ts_i64'} {name}" for name in values)]
    holes = _common_holes(problem, flag is not None) | tile.holes | {"@PARAMETERS@": ",\n    ".join(parameters)}
    kernel = text.COMMON + body
    while any(hole in kernel for hole in holes):  # a filling may hold holes
        for hole, filling in holes.items():
            kernel = kernel.replace(hole, filling)
    short = "".join(name.replace("fp", "f").replace("int", "i") for name in _dtype_order(problem))
    source = make_source(
        "cuda", f"reference{op}", short, f"m{tile.m}n{tile.n}q{tile.q}", target.arch, scalar_prelude(), kernel
    )  # fmt: skip
    given: list[Parameter] = [Pointer(Space.SLOT, i) for i in range(len(slot_names(problem)))]
    if flag is not None:
        given.append(flag)
    given += [Real(float(v)) if name in _SCALARS else Integer(int(v)) for name, v in values.items()]
    grid = (max(1, min(tiles, _MOST_BLOCKS)), 1, 1)
    return source, Launch(0, source.symbol, grid, tuple(given), (text.THREADS, 1, 1))


def _extent(problem: Geometry) -> tuple[_Tile, int, int]:
    """The tile, how many there are, and the length of the reduction."""
    if isinstance(problem, GemmGeometry):
        return _SQUARE, problem.batch * -(-problem.m // 64) * -(-problem.n // 64), problem.k
    g = problem
    if g.direction == "bgrad":
        return _SQUARE, g.k, g.reduction_length // 256 + 1
    taps = g.filter[0] * g.filter[1] * g.filter[2]
    kn, cn = g.k // g.groups, g.c // g.groups
    if g.direction == "wrw":
        rows, columns, depth = kn, cn * taps, g.reduction_length
    else:
        image = g.output if g.direction == "fwd" else g.input
        rows = g.n * image[0] * image[1] * image[2]
        columns, depth = (kn, cn * taps) if g.direction == "fwd" else (cn, kn * taps)
    tile = _NARROW if columns <= _NARROW_COLUMNS and g.direction != "wrw" else _SQUARE
    return tile, g.groups * -(-rows // tile.m) * -(-columns // tile.n), depth


def _pointers(problem: Geometry, guarded: bool) -> list[str]:
    """The kernel's parameters for the slots, in their order."""
    names = slot_names(problem)
    first, second, out = _dtype_order(problem)
    if isinstance(problem, GemmGeometry):
        operands = [("pa", first), ("pb", second)]
    else:
        operands = {
            "fwd": [("src", first), ("w", second)], "bwd": [("src", first), ("w", second)],
            "wrw": [("dy", first), ("x", second)], "bgrad": [("dy", first)],
        }[problem.direction]  # fmt: skip
    found = [f"const {POINTEE[dtype]} *{name}" for name, dtype in operands]
    known = {"z": ("residual", out), "s": ("scale", "fp32")}
    for name in names[len(operands) : -1]:
        called, dtype = known.get(name, ("bias", problem.epilogue.bias_dtype(out)))
        found.append(f"const {POINTEE[dtype]} *{called}")
    found.append(f"{POINTEE[out]} *y")
    return [*found, "const int *flag"] if guarded else found


def _common_holes(problem: Geometry, guarded: bool) -> dict[str, str]:
    integer = problem.acc_dtype == "int32"
    names, out = slot_names(problem), _dtype_order(problem)[-1]
    epilogue, scale, scaled = [], "", problem.epilogue.is_scaled
    if isinstance(problem, GemmGeometry) or problem.direction in ("fwd", "bwd"):
        if "b" in names[2:] or "bias" in names:
            epilogue.append(f"        v += ts_load_{problem.epilogue.bias_dtype(out)}(bias, channel);")
        if "z" in names:
            epilogue.append(f"        v += ts_load_{out}(residual, at);")
        if problem.epilogue.activation != "none":
            cast = "(ts_i64)" if integer and not scaled else ""
            epilogue.append(f"        v = {cast}ts_activate(v, activation, slope, low, high);")
        if scaled:
            scale = f"\n        v *= scale[{'channel' if problem.epilogue.scale == 'channel' else '0'}];"
        if out == "int8":
            epilogue.append("        v = v != v ? 0.0 : rint(v < -128.0 ? -128.0 : v > 127.0 ? 127.0 : v);")
    return {
        "@OPEN@": text.OPEN.strip("\n"),
        "@PRODUCT@": text.PRODUCT.strip("\n"),
        "@ACC@": "unsigned" if integer else "double",
        "@VALUE@": "ts_i64" if integer and not scaled else "double",
        "@SCALE@": scale,
        "@SIGNED@": "(int)" if integer else "",
        "@GUARD@": "  if (*flag == 0) return;" if guarded else "",
        "@EXISTS@": "",
        "@EPILOGUE@": "\n".join(epilogue),
    }


def _activation_values(problem: Geometry) -> dict[str, float]:
    """The run-time numbers of the activation; none when there is none."""
    e = problem.epilogue
    if e.activation == "none" or (isinstance(problem, ConvGeometry) and problem.direction in ("wrw", "bgrad")):
        return {}
    return {"activation": ACTIVATIONS.index(e.activation), "slope": e.slope, "low": e.low, "high": e.high}


def _axes(g: ConvGeometry) -> dict[str, float]:
    values: dict[str, float] = {}
    for i, axis in enumerate("dhw"):
        values |= {
            f"f{axis}": g.filter[i], f"s{axis}": g.stride[i], f"pad{axis}": g.padding[i], f"d{axis}": g.dilation[i],
        }  # fmt: skip
    return values


def _conv(g: ConvGeometry) -> tuple[str, str, dict[str, float]]:
    forward = g.direction == "fwd"
    source, result = (g.x, g.y) if forward else (g.y, g.x)
    rn, on = (g.c // g.groups, g.k // g.groups) if forward else (g.k // g.groups, g.c // g.groups)
    image, spatial = (g.output, g.input) if forward else (g.input, g.output)
    values: dict[str, float] = {"n": g.n, "groups": g.groups, "on": on, "rn": rn}
    for i, axis in enumerate("dhw"):
        values |= {f"o{axis}": image[i], f"i{axis}": spatial[i]}
    values |= _axes(g)
    for name, view in (("src", source), ("w", g.w), ("out", result)):
        values |= {f"{name}{i}": stride for i, stride in enumerate(view.strides)} | {f"{name}v": view.vector}
    by_k, by_c = "(group * {0} + {1}) * w0", "@SYM@_channel({0}, w1, wv)"
    holes = {
        "@LOCATE@": text.LOCATE[g.direction],
        "@W_RESULT@": by_k.format("on", "channel") if forward else by_c.format("channel"),
        "@W_SOURCE@": by_c.format("r") if forward else by_k.format("rn", "r"),
        "@SRC@": source.dtype, "@W@": g.w.dtype, "@OUT@": result.dtype, "@BWD_FLAGS@": "", "@BWD_NOTE@": "",
    }  # fmt: skip
    if not forward and g.acc_dtype != "int32":
        # A product that does not exist must not be 0 * Inf.
        holes["@BWD_FLAGS@"] = "  __shared__ bool exists[@Q@][@TM@];"
        holes["@BWD_NOTE@"] = "        exists[q][m] = at >= 0;"
        holes["@PRODUCT@"] = text.PRODUCT.strip("\n").replace(
            "@EXISTS@", "          if (!exists[q][tm + i * @TMT@]) continue;"
        )
    return g.direction, _fill(text.CONV, holes), values


def _wrw(g: ConvGeometry) -> tuple[str, str, dict[str, float]]:
    values: dict[str, float] = {"n": g.n, "groups": g.groups, "cn": g.c // g.groups, "kn": g.k // g.groups}
    for i, axis in enumerate("dhw"):
        values |= {f"o{axis}": g.output[i], f"i{axis}": g.input[i]}
    values |= _axes(g)
    for name, view in (("x", g.x), ("w", g.w), ("y", g.y)):
        values |= {f"{name}{i}": stride for i, stride in enumerate(view.strides)} | {f"{name}v": view.vector}
    return "wrw", _fill(text.WRW, {"@X@": g.x.dtype, "@Y@": g.y.dtype, "@W@": g.w.dtype}), values


def _bgrad(g: ConvGeometry) -> tuple[str, str, dict[str, float]]:
    values: dict[str, float] = {"n": g.n, "k": g.k, "od": g.output[0], "oh": g.output[1], "ow": g.output[2]}
    values |= {f"y{i}": stride for i, stride in enumerate(g.y.strides)} | {"yv": g.y.vector}
    return "bgrad", _fill(text.BGRAD, {"@Y@": g.y.dtype, "@W@": g.w.dtype}), values


def _gemm(g: GemmGeometry) -> tuple[str, str, dict[str, float]]:
    values: dict[str, float] = {"m": g.m, "n": g.n, "k": g.k, "batches": g.batch}
    for view in (g.a, g.b, g.c):
        values |= {f"{view.name}{i}": stride for i, stride in enumerate(view.strides)}
    values |= {"alpha": g.alpha, "beta": g.beta}
    return "gemm", _fill(text.GEMM, {"@A@": g.a.dtype, "@B@": g.b.dtype, "@OUT@": g.c.dtype}), values


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
