"""Random problems for the sweep: everything that a signature can say, with sizes that reach tails and several tiles."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import reject
from hypothesis import strategies as st

from tilesmith.errors import ProblemError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import ACTIVATIONS, Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.layouts import dense_strides, parse_layout
from tilesmith.problems.rewrite import Signature

LETTERS = {1: "W", 2: "HW", 3: "DHW"}
FLOATS = ("fp32", "bf16", "fp16", "fp64", "fp8e4m3", "fp8e5m2")
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 32, 33, 40, 48, 64, 65)
MOST_PRODUCTS = 4_000_000


@st.composite
def dtypes(draw, names: tuple[str, str, str]) -> dict[str, str]:
    """Mostly one dtype that fast kernels know; sometimes another, one for each tensor, int8, or sums in fp64."""
    kind = draw(st.integers(0, 19))
    if kind < 13:
        return {"dtype": draw(st.sampled_from(("fp32", "fp32", "bf16", "fp16")))}
    if kind < 15:
        return {"dtype": draw(st.sampled_from(FLOATS))}
    if kind < 18:
        known = FLOATS if kind == 17 else FLOATS[:3]
        three = [draw(st.sampled_from(known)) for _ in range(3)]
        return {"dtype": three[0]} | {f"{n}_dtype": t for n, t in zip(names, three, strict=True)}
    return {"dtype": "int8"} if kind == 18 else {"dtype": draw(st.sampled_from(FLOATS)), "acc_dtype": "fp64"}


@st.composite
def epilogues(draw, integer: bool) -> Epilogue:
    if draw(st.booleans()):
        return Epilogue()
    names = ("none", "relu", "clamp") if integer else ACTIVATIONS
    low = draw(st.sampled_from((0.0, -1.0, -2.5)))
    return Epilogue(
        bias=draw(st.booleans()), residual=draw(st.booleans()), activation=draw(st.sampled_from(names)),
        slope=draw(st.sampled_from((0.01, 0.3, -0.5, 2.0))), low=low, high=low + draw(st.sampled_from((0.0, 1.5, 6.0))),
    )  # fmt: skip


def scaled(draw, epilogue: Epilogue) -> Epilogue:
    return replace(epilogue, scale=draw(st.sampled_from(("none", "tensor", "channel"))))


@st.composite
def pitches(draw, shape: tuple[int, ...], vector: int) -> tuple[int, ...] | None:
    """Strides with gaps, or None."""
    if draw(st.integers(0, 3)):
        return None
    strides = list(dense_strides(shape))
    grown = 1
    for axis in reversed(range(len(shape))):
        if axis == len(shape) - 1:
            strides[axis] = 1 if vector > 1 else draw(st.sampled_from((1, 1, 1, 2)))
        else:
            strides[axis] = grown + draw(st.sampled_from((0, 0, 1, 3, 16)))
        grown = strides[axis] * shape[axis]
    return tuple(strides)


@st.composite
def layouts(draw, dims: int, channels: tuple[int, int, int]) -> list[str]:
    """Layouts of x, w and y: channels-last or channels-first for all, mixed, any order, or in vectors."""
    kind = draw(st.integers(0, 9))
    last, first = "N" + LETTERS[dims] + "C", "NC" + LETTERS[dims]
    if kind < 4:
        return [last] * 3
    if kind < 6:
        return [first] * 3
    if kind < 8:
        return [draw(st.sampled_from((last, first))) for _ in range(3)]
    names = ["".join(draw(st.permutations("NC" + LETTERS[dims]))) for _ in range(3)]
    if kind == 9:
        names = [
            f"{name}c{width}" if width > 1 and count % width == 0 else name
            for name, count, width in zip(
                names, channels, [draw(st.sampled_from((1, 4, 8))) for _ in names], strict=True
            )
        ]
    return names


@st.composite
def conv_problems(draw) -> ConvSignature:
    dims = draw(st.sampled_from((1, 2, 2, 2, 3)))
    mode = draw(st.sampled_from(("fwd", "fwd", "fwd", "bwd", "bwd", "bwd", "wrw", "wrw", "bgrad")))
    transposed = draw(st.integers(0, 3)) == 0
    kind = draw(st.sampled_from(("dense", "dense", "dense", "grouped", "grouped", "depthwise", "depthwise")))
    groups = 1 if kind == "dense" else draw(st.sampled_from((2, 3, 4, 8)))
    if kind == "depthwise":
        groups = draw(st.sampled_from(WIDTHS[1:]))
        c, k = groups, groups * draw(st.sampled_from((1, 1, 1, 1, 2, 3)))
        c, k = draw(st.sampled_from(((c, k), (c, k), (k, c))))
    else:
        c, k = (draw(st.sampled_from(WIDTHS if groups == 1 else WIDTHS[:12])) * groups for _ in range(2))
    large = draw(st.integers(0, 4)) == 0
    spatial = [draw(st.integers(1, 40 if large else 13)) for _ in range(dims)]
    taps = [draw(st.sampled_from((1, 1, 2, 3, 3, 4, 5, 7))) for _ in range(dims)]
    same = draw(st.booleans())
    stride = [draw(st.sampled_from((1, 1, 1, 2, 2, 3, 5))) for _ in range(dims)]
    padding = [t // 2 if same else draw(st.integers(0, 4)) for t in taps]
    dilation = [draw(st.sampled_from((1, 1, 1, 1, 2, 3))) for _ in range(dims)]
    extra = [draw(st.integers(0, s - 1)) if transposed else 0 for s in stride]
    for i, (tap, s, p, d) in enumerate(zip(taps, stride, padding, dilation, strict=True)):
        missing = 2 * p + transposed - d * (tap - 1) - 1 - extra[i] if transposed else d * (tap - 1) + 1 - 2 * p
        spatial[i] = max(spatial[i], 1 + -(-missing // s) if transposed else missing)
    if draw(st.integers(0, 4)) == 0:
        padding = [(p, draw(st.integers(0, 4))) for p in padding]
    first, second = (c, k // groups) if transposed else (k, c // groups)
    chosen = dict(draw(dtypes(("input", "kernel", "output"))))
    integer = chosen["dtype"] == "int8"
    if integer:
        mode = draw(st.sampled_from(("fwd", "bwd")))
        if mode == "bwd":
            chosen = {"dtype": "int32", "input_dtype": "int32", "kernel_dtype": "int8", "output_dtype": "int8"}
    epilogue = draw(epilogues(integer)) if mode in ("fwd", "bwd") else Epilogue()
    result = chosen.get("input_dtype" if mode == "bwd" else "output_dtype", chosen["dtype"])
    if mode in ("fwd", "bwd") and (integer or result.startswith("fp8")):
        epilogue = scaled(draw, epilogue)
    if integer and epilogue.is_scaled:
        chosen = {"dtype": "int8"}
    images = draw(st.integers(1, 3))
    while (size := images * c * k // groups * math.prod(spatial) * math.prod(taps)) > MOST_PRODUCTS and math.prod(
        spatial
    ) > 1:
        widest = spatial.index(max(spatial))
        if spatial[widest] < 14 and size < 4 * MOST_PRODUCTS:
            images = 1
            break
        spatial[widest] = max(1, spatial[widest] * 2 // 3)
    x, w, y = (parse_layout(name) for name in draw(layouts(dims, (c, second, k))))
    input_shape = x.layout_shape((images, c, *spatial))
    kernel_shape = w.layout_shape((first, second, *taps))
    try:
        sig = ConvSignature(
            input_shape, kernel_shape, stride=tuple(stride), padding=tuple(padding), dilation=tuple(dilation),
            groups=groups, transposed=transposed, output_padding=tuple(extra), mode=mode,
            input_layout=str(x), kernel_layout=str(w), output_layout=str(y),
            input_strides=draw(pitches(input_shape, x.vector)), kernel_strides=draw(pitches(kernel_shape, w.vector)),
            epilogue=epilogue, **chosen,
        )  # fmt: skip
        sig = replace(sig, output_strides=draw(pitches(sig.output_shape, y.vector)))
    except ProblemError:
        reject()
    pixels = sig.input_logical if transposed else sig.output_logical
    if pixels[0] * c * k // groups * math.prod(pixels[2:]) * math.prod(taps) > 4 * MOST_PRODUCTS:
        reject()
    return sig


@st.composite
def gemm_problems(draw) -> GemmSignature:
    sizes = st.one_of(st.integers(1, 20), st.sampled_from((31, 32, 33, 48, 64, 65, 100, 130)))
    m, n, k, batch = draw(sizes), draw(sizes), draw(sizes), draw(st.sampled_from((1, 1, 2, 3)))
    trans = {"a": draw(st.booleans()), "b": draw(st.booleans())}
    stored = {"a": (k, m) if trans["a"] else (m, k), "b": (n, k) if trans["b"] else (k, n), "c": (m, n)}
    memory: dict[str, int | None] = {}
    for name, (rows, columns) in stored.items():
        lead = columns + draw(st.sampled_from((0, 0, 1, 16)))
        memory[f"ld{name}"] = lead
        steps = (None, None, rows * lead + 5) if name == "c" else (None, None, rows * lead + 5, 0)
        memory[f"stride_{name}"] = draw(st.sampled_from(steps))
    chosen = draw(dtypes(("a", "b", "c")))
    integer = chosen["dtype"] == "int8"
    groups = 0 if integer else draw(st.sampled_from((0, 0, 0, 3, 40)))
    if groups:
        memory = {name: memory[name] for name in ("ldb", "stride_b", "ldc")}
        return GemmSignature(m=m, n=n, k=k, groups=groups, trans_b=trans["b"], **memory, **chosen)
    epilogue = draw(epilogues(integer))
    if integer or chosen.get("c_dtype", chosen["dtype"]).startswith("fp8"):
        epilogue = scaled(draw, epilogue)
    scalars = (1.0, 1.0, 2.0, -3.0) if integer else (1.0, 1.0, 0.5, -2.0)
    return GemmSignature(
        m=m, n=n, k=k, batch=batch, trans_a=trans["a"], trans_b=trans["b"], alpha=draw(st.sampled_from(scalars)),
        beta=draw(st.sampled_from((0.0, 0.0, *scalars[1:]))), epilogue=epilogue, **memory, **chosen,
    )  # fmt: skip


def problems() -> st.SearchStrategy[Signature]:
    return st.integers(0, 6).flatmap(lambda kind: gemm_problems() if kind == 6 else conv_problems())
