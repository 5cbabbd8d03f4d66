"""Random problems, their keys from Python and from C: ``python tests/runtime/problem_keys.py 100000 [SEED]``.

A case is a description in C and the signature of the same meaning in Python. Where Python refuses, C must, and the
reverse; else both must give the same key, the same other spellings and the same shape of the result. In every third
case any number may be out of range.
"""

from __future__ import annotations

import random
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from c_problems import BAD_PROBLEM, OK, Problems, build

from tilesmith.errors import ProblemError
from tilesmith.problems.conv import MODES, ConvSignature
from tilesmith.problems.epilogue import ACTIVATIONS, SCALES, Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.layouts import dense_strides, parse_layout
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.spellings import other_spellings

LETTERS = {1: "W", 2: "HW", 3: "DHW"}
DTYPES = ("", "fp64", "fp32", "fp16", "bf16", "fp8e4m3", "fp8e5m2", "int8", "int32")  # by their numbers in C
FLOATS = DTYPES[1:7]
PITCHES = {"N": "image", "C": "channel", "D": "plane", "H": "row", "W": "c"}
ODD = (-1, 0, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**31 + 1, 2**32, 2**59, 2**62, 2**62 + 1, 2**63 - 1)
REALS = (0.0, -0.0, 0.01, 1.0, 6.0, -1.5e-7, 1e16, 1e-5, 5e-324, 2.0**-44, float("inf"), float("-inf"), float("nan"))
UNKNOWN = 99


@dataclass(frozen=True)
class Case:
    """``values`` are fields of the description; ``signature`` makes the same problem in Python."""

    values: dict[str, object]
    signature: Callable[[], Signature]


@dataclass
class Report:
    keys: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)  # the lines of Python that refuse
    differ: list[str] = field(default_factory=list)


def dtypes(rng: random.Random, names: tuple[str, str, str], mode: str) -> tuple[dict[str, str], dict[str, int]]:
    """Types of the tensors and of the sums, for Python and for C."""
    chosen = dict.fromkeys(("dtype", *names, "acc_dtype"), "")
    kind = rng.choice((0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5))
    if mode in ("wrw", "bgrad") and kind > 2 and rng.random() < 0.9:
        kind = 0
    if kind == 0:
        chosen["dtype"] = rng.choice(FLOATS)
    elif kind == 1:
        chosen |= {name: rng.choice(("", *FLOATS)) for name in ("dtype", *names)}
        chosen["acc_dtype"] = rng.choice(("", "fp32", "fp64"))
    elif kind == 2:
        chosen |= {"dtype": rng.choice(("", "fp32")), "acc_dtype": "tf32"}
    elif kind == 3:
        chosen["dtype"] = "int8"
    elif kind == 4:
        results = ("int8", "int32", "")
        operand, result = (names[2], names[0]) if mode == "bwd" else (names[0], names[2])
        chosen |= {"dtype": rng.choice(("int8", "fp32")), operand: "int8", names[1]: "int8"}
        chosen |= {result: rng.choice(results), "acc_dtype": rng.choice(("", "int32"))}
    else:
        chosen |= {name: rng.choice((*DTYPES, "", "")) for name in chosen}
        chosen["acc_dtype"] = rng.choice((*DTYPES, "tf32", "", ""))
    if rng.random() < 0.01:
        chosen[rng.choice(list(chosen))] = "fp31"
    found = {}
    for name, own in zip(
        ("dtype", *names, "acc_dtype"), ("dtype", "x_dtype", "w_dtype", "y_dtype", "acc_dtype"), strict=True
    ):
        found[own] = DTYPES.index(chosen[name]) if chosen[name] in DTYPES else UNKNOWN
    if chosen["acc_dtype"] == "tf32":
        found |= {"acc_dtype": rng.choice((0, DTYPES.index("fp32"))), "math_mode": 1}
    return {"dtype": chosen.pop("dtype") or "fp32", **chosen}, found


def real(rng: random.Random) -> float:
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice(REALS)
    if kind == 1:
        return struct.unpack("<d", rng.randbytes(8))[0]
    if kind == 2:
        return rng.choice((-1, 1)) * rng.randrange(1, 10 ** rng.randrange(1, 18)) / 2.0 ** rng.randrange(60)
    return round(rng.uniform(-10, 10), rng.randrange(6))


def epilogue(rng: random.Random, often: float) -> tuple[dict[str, object], dict[str, object]]:
    if rng.random() > often:
        return {}, {}
    chosen = {
        "bias": rng.random() < 0.5, "residual": rng.random() < 0.3, "scale": rng.choice(("none", *SCALES)),
        "activation": rng.choice(("none", *ACTIVATIONS)), "slope": real(rng), "low": real(rng), "high": real(rng),
    }  # fmt: skip
    if chosen["activation"] == "clamp" and rng.random() < 0.8 and chosen["low"] > chosen["high"]:
        chosen["low"], chosen["high"] = chosen["high"], chosen["low"]
    if rng.random() < 0.7:
        chosen["scale"] = "none"
    if rng.random() < 0.01:
        chosen[rng.choice(("bias", "residual", "activation", "scale"))] = UNKNOWN
    found = dict(chosen)
    for name, known in (("scale", SCALES), ("activation", ACTIVATIONS)):
        found[name] = known.index(chosen[name]) if chosen[name] in known else UNKNOWN
    return chosen, found


def layout_number(text: str) -> int:
    order, _, vector = text.partition("c")
    return sum(("NCDHW".index(letter) + 1) << 4 * at for at, letter in enumerate(order)) | int(vector or 0) << 24


def layout_name(rng: random.Random, dims: int, channels: int) -> str:
    kind = rng.randrange(20)
    if kind < 6:
        return "N" + LETTERS[dims] + "C"
    if kind < 9:
        return "NC" + LETTERS[dims]
    if kind < 11:
        return ""
    order = "".join(rng.sample("NC" + LETTERS[dims], 2 + dims))
    if kind < 16:
        width = rng.choice((4, 8, 16, 32))
        return f"{order}c{width}" if channels % width == 0 or rng.random() < 0.1 else order
    if rng.random() < 0.1:
        return rng.choice((order[1:], order[0] + order[1:-1] + order[0], f"{order}c5", f"{order}c1", "NWC", "NCDHW"))
    return order


def shape_of(name: str, dims: int, logical: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
    """The shape that Python is given, and the axes it names, the outermost first."""
    order = "NC" + LETTERS[dims]
    if not name:
        return logical, order
    layout = parse_layout(name)
    return (layout.layout_shape(logical), layout.order) if layout.spatial_dims == dims else (logical, order)


def pitches(
    rng: random.Random, letter: str, shape: tuple[int, ...], order: str, odd: bool
) -> tuple[tuple[int, ...], dict[str, int]]:
    """Strides with gaps. Where there is no gap, C may be left to find the stride itself."""
    vector = shape[len(order) :]
    inner, strides, found, wrong = (vector or (1,))[0], [1] * len(vector), {}, False
    for at in reversed(range(len(order))):
        gap = rng.choice((0, 0, 0, 1, 3, 16, 1000))
        stride = max(1, inner + gap)
        if odd and rng.random() < 0.1:
            stride, wrong = rng.choice((stride - 1, *ODD)) or 1, True
        given = wrong or stride != inner or rng.random() < 0.5
        strides.insert(0, stride)
        if given:
            found[f"{letter}_pitch_{PITCHES[order[at]]}"] = min(stride, ODD[-1])
        inner = stride * shape[at]
    return tuple(strides), found


def conv_case(rng: random.Random) -> Case:
    odd = rng.random() < 0.3
    dims, mode, transposed = rng.choice((1, 2, 2, 2, 3)), rng.choice(MODES), rng.random() < 0.35

    def size(least: int, most: int, often: float = 0.04) -> int:
        return rng.choice(ODD) if odd and rng.random() < often else rng.randint(least, most)

    groups = rng.choice((1, 1, 1, 2, 3, 4, 8))
    per_group = (1, 1, 2, 3, 4, 8, 16, 32)
    n, c, k = (
        size(1, 4),
        *(rng.choice(ODD) if odd and rng.random() < 0.04 else rng.choice(per_group) * groups for _ in "ck"),
    )
    if rng.random() < 0.04:
        n, c = rng.choice(((0, c), (n, 0), (0, 0)))
    if odd and rng.random() < 0.04:
        groups = rng.choice((-1, 0, 5, 6, 2**31, k or 1))
    image = [size(1, 15) for _ in range(dims)]
    taps = [size(1, 4) for _ in range(dims)]
    stride = [size(1, 4) for _ in range(dims)]
    dilation = [size(1, 3) for _ in range(dims)]
    if not transposed and rng.random() < 0.8:
        image = [max(i, min(d * (t - 1) + 1, 999)) for i, t, d in zip(image, taps, dilation, strict=True)]
    low = [size(0, 3) for _ in range(dims)]
    high = [size(0, 3) for _ in range(dims)] if rng.random() < 0.3 else low
    extra = [rng.randrange(max(1, min(s, 5))) if transposed else 0 for s in stride]
    if odd and rng.random() < 0.04:
        extra[-1] += rng.choice((1, 2, 3))
    divisor = max(groups, 1)
    first, second = (c, k // divisor) if transposed else (k, c // divisor)
    names = {tensor: layout_name(rng, dims, channels) for tensor, channels in (("x", c), ("w", second), ("y", k))}
    shared = layout_name(rng, dims, c) if rng.random() < 0.5 else ""
    types, c_types = dtypes(rng, ("input_dtype", "kernel_dtype", "output_dtype"), mode)
    epi, c_epi = epilogue(rng, 0.6 if mode in ("fwd", "bwd") else 0.01)
    deterministic = rng.random() < 0.2
    limit = rng.choice((0, 1, 2**20, 2**62, 2**62 + 1 if odd else 5)) if rng.random() < 0.2 else None
    values: dict[str, object] = {
        "mode": MODES.index(mode), "transposed": transposed, "dims": dims, "n": n, "c": c, "k": k, "groups": groups,
        "in": image, "filter": taps, "stride": stride, "dilation": dilation, "padding_low": low, "padding_high": high,
        "output_padding": extra, "deterministic": deterministic, "workspace_limit": -1 if limit is None else limit,
        "layout": layout_number(shared), **{f"{t}_layout": layout_number(name) for t, name in names.items()},
        **c_types, **c_epi,
    }  # fmt: skip
    words = rng.choice(("valid", "same", "causal")) if rng.random() < 0.05 else ""
    seed = rng.random()

    def signature() -> ConvSignature:
        if transposed and k % divisor:
            raise ProblemError("a filter of C x K / groups says no such k")
        local = random.Random(seed)
        logical = {"x": (n, c, *image), "w": (first, second, *taps)}
        arguments: dict[str, object] = {}
        shapes = {}
        for tensor, name in (("x", "input"), ("w", "kernel")):
            shape, order = shapes[tensor] = shape_of(names[tensor] or shared, dims, logical[tensor])
            arguments[f"{name}_shape"] = shape
            if local.random() < 0.25:
                arguments[f"{name}_strides"], found = pitches(local, tensor, shape, order, odd)
                values.update(found)
        padding = tuple(low) if low == high and local.random() < 0.8 else tuple(zip(low, high, strict=True))
        common = {
            "stride": tuple(stride), "dilation": tuple(dilation), "groups": groups, "transposed": transposed,
            "output_padding": tuple(extra), "mode": mode, "shared_layout": shared,
            "input_layout": names["x"], "kernel_layout": names["w"], "output_layout": names["y"],
            "epilogue": Epilogue(**epi), "deterministic": deterministic, "workspace_limit": limit, **types,
        }  # fmt: skip
        if words:
            try:
                padding = ConvSignature(padding=words, **arguments, **common).padding  # type: ignore[arg-type]
            except ProblemError:
                pass
            else:
                pairs = [side if isinstance(side, tuple) else (side, side) for side in padding]
                values.update(padding_low=[side[0] for side in pairs], padding_high=[side[1] for side in pairs])
        sig = ConvSignature(padding=padding, **arguments, **common)  # type: ignore[arg-type]
        if local.random() < 0.25:
            order = parse_layout(sig.output_layout).order
            strides, found = pitches(local, "y", sig.output_shape, order, odd)
            values.update(found)
            sig = ConvSignature(padding=padding, output_strides=strides, **arguments, **common)  # type: ignore[arg-type]
        if local.random() < 0.2:
            values["out"] = list(sig.output_logical[2:])
            if local.random() < 0.05:
                values["out"][0] += 1  # type: ignore[index]
                raise ProblemError("another output")
        return sig

    return Case(values, signature)


def gemm_case(rng: random.Random) -> Case:
    odd = rng.random() < 0.3

    def size() -> int:
        return rng.choice(ODD) if odd and rng.random() < 0.06 else rng.choice((1, 1, 2, 3, 4, 5, 17, 64, 1000))

    m, n, k, batch = size(), size(), size(), rng.choice((1, 1, 2, 3, size()))
    if rng.random() < 0.03:
        m, n, k, batch = (rng.choice((0, value)) for value in (m, n, k, batch))
    trans = {"a": rng.random() < 0.5, "b": rng.random() < 0.5, "c": False}
    memory: dict[str, int | None] = {}
    for name, plain in {"a": (m, k), "b": (k, n), "c": (m, n)}.items():
        rows, columns = reversed(plain) if trans[name] else plain
        lead = columns + rng.choice((0, 1, 16)) if rng.random() < 0.4 else None
        tight = rows * (lead or columns)
        step = rng.choice((tight, tight + 3, 0, columns, tight - 1, 10**9)) if rng.random() < 0.4 else None
        if odd and rng.random() < 0.15:
            lead = rng.choice(ODD)
        if odd and rng.random() < 0.15:
            step = rng.choice((-2, *ODD[1:]))
        memory[f"ld{name}"] = lead or None  # 0 is None in C
        memory[f"stride_{name}"] = None if step is None or step == -1 else min(step, 2**63 - 1)
    types, c_types = dtypes(rng, ("a_dtype", "b_dtype", "c_dtype"), "fwd")
    epi, c_epi = epilogue(rng, 0.6)
    alpha, beta = (rng.choice((0.0, 1.0, -3.0, 2.0**31, real(rng))) for _ in "ab")
    beta = 0.0 if rng.random() < 0.4 else beta
    deterministic = rng.random() < 0.2
    limit = rng.choice((0, 1, 2**20, 2**62, 2**62 + 1 if odd else 5)) if rng.random() < 0.2 else None
    values: dict[str, object] = {
        "op": 1, "m": m, "n": n, "k": k, "batch": batch, "trans_a": trans["a"], "trans_b": trans["b"], "alpha": alpha,
        "beta": beta, "deterministic": deterministic, "workspace_limit": -1 if limit is None else limit, **c_types,
        **c_epi,
    }  # fmt: skip
    for name, value in memory.items():
        unset = 0 if name.startswith("ld") else -1
        values[name] = unset if value is None else min(value, 2**63 - 1)
    return Case(values, lambda: GemmSignature(
        m=m, n=n, k=k, batch=batch, trans_a=trans["a"], trans_b=trans["b"], alpha=alpha, beta=beta, **memory,
        epilogue=Epilogue(**epi), deterministic=deterministic, workspace_limit=limit, **types,
    ))  # fmt: skip  # type: ignore[arg-type]


def compare(count: int, start: int, c: Problems) -> Report:
    rng, report = random.Random(start), Report()
    for number in range(count):
        case = (gemm_case if number % 4 == 1 else conv_case)(rng)
        try:
            sig = case.signature()
            wanted, why = sig.key(), ""
        except ProblemError as error:
            wanted, why = "", str(error)
            *_, (frame, line) = traceback.walk_tb(error.__traceback__)
            report.rules[f"{Path(frame.f_code.co_filename).name}:{line}"] += 1
        desc = c.desc(**case.values)
        status, key, message = c.key(desc)
        where = f"case {number}: {case.values}"
        if (status, key) != ((OK, wanted) if wanted else (BAD_PROBLEM, "")):
            report.differ.append(f"{where}\n  Python: {wanted or why}\n  C:      {status} {key or message}")
        elif not wanted:
            report.counts["refused by both"] += 1
            if not message or len(message) > 254:
                report.differ.append(f"{where}\n  C refuses without a reason that fits: {message!r}")
        else:
            report.keys.add(key)
            report.counts["empty" if sig.is_empty else "with a key"] += 1
            expected = shape_of_result(sig)
            if number % 3 == 0:  # they cost as much as all the rest
                keys = [wanted, *(each.key() for each in other_spellings(sig))]
                report.counts["with other spellings"] += len(keys) > 1
                if c.spellings(desc) != keys:
                    report.differ.append(f"{where}\n  Python: {keys}\n  C:      {c.spellings(desc)}")
            if c.shape(desc) != expected:
                report.differ.append(f"{where}\n  Python: {expected}\n  C:      {c.shape(desc)}")
    return report


def shape_of_result(sig: Signature) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    if isinstance(sig, GemmSignature):
        shape, strides = sig.c_shape, sig.c_strides
    else:
        shape, strides = sig.output_shape, sig.output_strides or dense_strides(sig.output_shape)
    span = 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    return shape, strides, span


def main() -> int:
    count, start = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        begin = time.perf_counter()
        report = compare(count, start, library)
    for line in report.differ[:20]:
        print(line)
    print(f"{count} problems (seed {start}) in {time.perf_counter() - begin:.1f} s: {dict(report.counts)}, "
          f"{len(report.keys)} different keys, {len(report.rules)} rules, {len(report.differ)} differ")  # fmt: skip
    return int(bool(report.differ))


if __name__ == "__main__":
    sys.exit(main())
