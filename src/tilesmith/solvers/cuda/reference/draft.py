"""The text of the reference: constants, arguments, the launch. Sizes are arguments: a text serves every problem."""

from __future__ import annotations

from pathlib import Path

from tilesmith.codegen.cuda.activation import activate_in_double
from tilesmith.codegen.cuda.scalar import POINTEE, scalar_prelude
from tilesmith.codegen.cuda.unit import Argument, Header, passed, template, unit
from tilesmith.plan.records import Integer, Launch, Parameter, Pointer, Real, Source, Space
from tilesmith.plan.slots import slot_names
from tilesmith.problems.epilogue import ACTIVATIONS
from tilesmith.problems.geometry import SCALE_K, GemmGeometry, TensorView
from tilesmith.solvers.cuda.reference.tile import extent
from tilesmith.solvers.solver import Geometry
from tilesmith.targets.target import CudaTarget

_FOLDER = Path(__file__).parent
_THREADS = 256
_MOST_BLOCKS = 1 << 20  # beyond, blocks take several tiles
# The names of the operands in the texts.
_OPERANDS = {"fwd": ("src", "w"), "bwd": ("src", "w"), "wrw": ("dy", "x"), "bgrad": ("dy",), "gemm": ("pa", "pb")}


def reference_kernel(problem: Geometry, target: CudaTarget, flag: Pointer | None = None) -> tuple[Source, Launch]:
    """The reference; with a ``flag`` its launch returns at once when the int32 there is 0.

    ``Launch.artifact`` is 0: the caller puts the source where it belongs and renumbers.
    """
    tile, tiles, _ = extent(problem)
    op = "gemm" if isinstance(problem, GemmGeometry) else problem.direction
    dtypes, e = _dtypes(problem), problem.epilogue
    names, ends = slot_names(problem), op in ("gemm", "fwd", "bwd")  # results that have an epilogue
    integer = problem.acc_dtype == "int32"
    activated = ends and e.activation != "none"
    arguments = (*_pointers(problem, op, flag), *_numbers(problem), *_activation(problem, activated))
    numbers = {
        "TM": tile.m,
        "TN": tile.n,
        "Q": tile.q,
        "RM": tile.rm,
        "RN": tile.rn,
        "THREADS": _THREADS,
        "SCALE_K": SCALE_K,
    }
    flags = {
        # A product that does not exist must not be 0 * Inf.
        "BACK": op == "bwd", "SKIPS": op == "bwd" and not integer, "GUARDED": flag is not None,
        "BIAS": ends and ("b" in names[2:] or "bias" in names), "RESIDUAL": ends and "z" in names,
        "ACTIVATED": activated, "SCALED": ends and e.is_scaled, "SCALE_AT_CHANNEL": e.scale == "channel",
        "ROUNDED": ends and dtypes[-1] == "int8",
        "ROW_GROUPS": "ends" in names, "FACTORS": "sa" in names,
    }  # fmt: skip
    types = {
        "Acc": "unsigned" if integer else "double", "Signed": "int" if integer else "double",
        "Value": "ts_i64" if integer and not e.is_scaled else "double",
    }  # fmt: skip
    functions = _loads(problem) + (activate_in_double(e) if activated else "") + template(_FOLDER, "shared")
    header = Header(numbers, flags, types, functions=functions, arguments=arguments)
    short = "".join(name.replace("fp", "f").replace("int", "i") for name in dtypes)
    text = template(_FOLDER, "conv" if op in ("fwd", "bwd") else op)
    source = unit(f"reference{op}", short, f"m{tile.m}n{tile.n}q{tile.q}", target.arch, scalar_prelude(), text, header)
    grid = (max(1, min(tiles, _MOST_BLOCKS)), 1, 1)
    return source, Launch(0, source.symbol, grid, passed(arguments), (_THREADS, 1, 1))


def _loads(problem: Geometry) -> str:
    """Loads and stores of one element, by what it is part of."""
    first, second, out = _dtypes(problem)
    of = {"first": first, "second": second, "result": out, "bias": problem.epilogue.bias_dtype(out)}
    value, head = "ts_i64" if out.startswith("int") else "double", "__device__ inline"
    lines = [
        f"{head} auto load_{name}(const {POINTEE[kind]} *from, ts_i64 i) {{ return ts_load_{kind}(from, i); }}\n"
        for name, kind in of.items()
    ]
    return (
        "".join(lines) + f"{head} void store({POINTEE[out]} *to, ts_i64 i, {value} v) {{ ts_store_{out}(to, i, v); }}\n"
    )


def _pointers(problem: Geometry, op: str, flag: Pointer | None) -> tuple[Argument, ...]:
    """The arguments for the slots, in their order, and the flag."""
    names = slot_names(problem)
    *operands, out = _dtypes(problem)
    bias = problem.epilogue.bias_dtype(out)
    types = dict(zip(_OPERANDS[op], operands, strict=False))
    slots = {name: i for i, name in enumerate(types)}
    known = {"z": "residual", "s": "scale", "ends": "ends", "sa": "sa", "sb": "sb"}
    slots |= {known.get(name, "bias"): i for i, name in enumerate(names[:-1]) if i >= len(types)}
    types |= {"bias": bias, "residual": out, "scale": "fp32", "ends": "int32", "sa": "fp32", "sb": "fp32"}
    order = [*sorted(slots, key=lambda name: slots[name]), *(name for name in types if name not in slots)]
    return (
        *(Argument(name, f"const {POINTEE[types[name]]} *", Pointer(Space.SLOT, slots[name]) if name in slots else None)
          for name in order),
        Argument("y", f"{POINTEE[out]} *", Pointer(Space.SLOT, len(names) - 1)),
        Argument("flag", "const int *", flag),
    )  # fmt: skip


def _activation(problem: Geometry, activated: bool) -> tuple[Argument, ...]:
    e = problem.epilogue
    found: dict[str, Parameter] = {
        "activation": Integer(ACTIVATIONS.index(e.activation)), "slope": Real(float(e.slope)),
        "low": Real(float(e.low)), "high": Real(float(e.high)),
    }  # fmt: skip
    types = {"activation": "ts_i64"}
    return tuple(
        Argument(name, types.get(name, "double"), value if activated else None) for name, value in found.items()
    )


def _numbers(problem: Geometry) -> tuple[Argument, ...]:
    """Sizes and strides."""
    if isinstance(problem, GemmGeometry):
        g = problem
        values = {"m": g.m, "n": g.n, "k": g.k, "batches": g.batch + g.groups, "groups": g.groups}
        for matrix in (g.a, g.b, g.c):
            values |= {f"{matrix.name}{i}": stride for i, stride in enumerate(matrix.strides)}
        scalars = (Argument("alpha", "double", Real(float(g.alpha))), Argument("beta", "double", Real(float(g.beta))))
        return (*_integers(values), *_factors(g), *scalars)
    c = problem
    if c.direction == "bgrad":
        sizes = {"n": c.n, "k": c.k, "od": c.output[0], "oh": c.output[1], "ow": c.output[2]}
        return _integers(sizes | _strides("y", c.y))
    cn, kn = c.c // c.groups, c.k // c.groups
    image, spatial = c.output, c.input
    if c.direction == "wrw":
        values, views = {"n": c.n, "groups": c.groups, "cn": cn, "kn": kn}, (("x", c.x), ("w", c.w), ("y", c.y))
    else:
        on, rn, views = kn, cn, (("src", c.x), ("w", c.w), ("out", c.y))
        if c.direction == "bwd":
            on, rn, image, spatial, views = cn, kn, c.input, c.output, (("src", c.y), ("w", c.w), ("out", c.x))
        values = {"n": c.n, "groups": c.groups, "on": on, "rn": rn}
    for i, axis in enumerate("dhw"):
        values |= {f"o{axis}": image[i], f"i{axis}": spatial[i]}
    for i, axis in enumerate("dhw"):
        values |= {
            f"f{axis}": c.filter[i], f"s{axis}": c.stride[i], f"pad{axis}": c.padding[i], f"d{axis}": c.dilation[i],
        }  # fmt: skip
    for name, view in views:
        values |= _strides(name, view)
    return _integers(values)


def _factors(g: GemmGeometry) -> tuple[Argument, ...]:
    """How the factors of the operands lie."""
    found = [
        (f"{name}_{of}", step)
        for name in "ab"
        for of, step in zip(("share", "row", "along"), g.scale_steps(name), strict=True)
    ]
    return tuple(Argument(name, "ts_i64", Integer(step) if g.has_scales else None) for name, step in found)


def _integers(values: dict[str, int]) -> tuple[Argument, ...]:
    return tuple(Argument(name, "ts_i64", Integer(int(value))) for name, value in values.items())


def _strides(name: str, view: TensorView) -> dict[str, int]:
    return {f"{name}{i}": stride for i, stride in enumerate(view.strides)} | {f"{name}v": view.vector}


def _dtypes(problem: Geometry) -> tuple[str, str, str]:
    """Of the two operands and the result."""
    if isinstance(problem, GemmGeometry):
        return problem.a.dtype, problem.b.dtype, problem.c.dtype
    x, w, y = problem.x.dtype, problem.w.dtype, problem.y.dtype
    return {"fwd": (x, w, y), "bwd": (y, w, x), "wrw": (y, x, w), "bgrad": (y, y, w)}[problem.direction]
