"""Random signatures over everything a user can spell."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from tilesmith import errors
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import ACTIVATIONS, Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.layouts import dense_strides, parse_layout

LETTERS = {1: "W", 2: "HW", 3: "DHW"}
FLOATS = ("fp64", "fp32", "fp16", "bf16", "fp8e4m3", "fp8e5m2")

epilogues = st.builds(
    Epilogue,
    bias=st.booleans(),
    residual=st.booleans(),
    activation=st.sampled_from(ACTIVATIONS),
    slope=st.sampled_from((0.01, 0.2, -1.5e-7, 1e20)),
    low=st.sampled_from((0.0, -1.0, float("-inf"))),
    high=st.sampled_from((6.0, 1e20, float("inf"))),
)


def scaled(draw, epilogue: Epilogue) -> Epilogue:
    """With a scale, at times."""
    return replace(epilogue, scale=draw(st.sampled_from(("none", "tensor", "channel"))))


@st.composite
def pitches(draw, shape: tuple[int, ...], vector: int) -> tuple[int, ...] | None:
    """Strides of a tensor whose axes may be padded, or None."""
    if draw(st.booleans()):
        return None
    strides = list(dense_strides(shape))
    grown = 1
    for axis in reversed(range(len(shape))):
        if axis == len(shape) - 1 and vector > 1:
            grown = shape[axis]
            continue
        strides[axis] = grown + (draw(st.integers(0, 3)) if axis < len(shape) - 1 else draw(st.integers(0, 1)))
        grown = strides[axis] * shape[axis]
    return tuple(strides)


@st.composite
def conv_signatures(draw, modes: tuple[str, ...] = ("fwd", "bwd", "wrw", "bgrad"), max_size: int = 9) -> ConvSignature:
    dims = draw(st.integers(1, 3))
    mode = draw(st.sampled_from(modes))
    transposed = draw(st.booleans())
    groups = draw(st.sampled_from((1, 1, 1, 2, 3)))
    vector = draw(st.sampled_from((1, 1, 1, 4)))

    def layout(tensor: str) -> str:
        order = "".join(draw(st.permutations("NC" + LETTERS[dims])))
        return order + (f"c{vector}" if vector > 1 else "")

    channels = st.integers(1, 3).map(lambda n: n * groups * vector)
    c, k = draw(channels), draw(channels)
    spatial = [draw(st.integers(1, max_size)) for _ in range(dims)]
    taps = [draw(st.integers(1, 3)) for _ in range(dims)]
    stride = [draw(st.integers(1, 3)) for _ in range(dims)]
    padding = [draw(st.integers(0, 2)) for _ in range(dims)]
    if draw(st.integers(0, 2)) == 0:
        padding = [(low, draw(st.integers(0, 3))) for low in padding]
    dilation = [draw(st.integers(1, 2)) for _ in range(dims)]
    output_padding = [draw(st.integers(0, s - 1)) if transposed else 0 for s in stride]
    first, second = (c, k // groups) if transposed else (k, c // groups)
    layouts = [parse_layout(layout(t)) for t in ("x", "w", "y")]
    input_shape = layouts[0].layout_shape((draw(st.integers(1, 3)), c, *spatial))
    kernel_shape = layouts[1].layout_shape((first, second, *taps))
    integer = mode in ("fwd", "bwd") and draw(st.integers(0, 7)) == 0
    epilogue = draw(epilogues) if mode in ("fwd", "bwd") else Epilogue()
    if integer:
        epilogue = scaled(draw, epilogue)
        assume(epilogue.is_scaled or epilogue.activation in ("none", "relu", "clamp"))
        dtypes = {"dtype": "int8"}
    else:
        dtypes = {f"{name}_dtype": draw(st.sampled_from(FLOATS)) for name in ("input", "kernel", "output")}
        if draw(st.integers(0, 7)) == 0:
            dtypes = {"dtype": "fp32", "acc_dtype": "tf32"}
        elif draw(st.booleans()):
            dtypes["acc_dtype"] = "fp64"
        if mode in ("fwd", "bwd") and dtypes.get("input_dtype" if mode == "bwd" else "output_dtype", "") in FLOATS[-2:]:
            epilogue = scaled(draw, epilogue)
    try:
        sig = ConvSignature(
            input_shape=input_shape,
            kernel_shape=kernel_shape,
            stride=tuple(stride),
            padding=tuple(padding),
            dilation=tuple(dilation),
            groups=groups,
            transposed=transposed,
            output_padding=tuple(output_padding),
            mode=mode,
            input_layout=str(layouts[0]),
            kernel_layout=str(layouts[1]),
            output_layout=str(layouts[2]),
            input_strides=draw(pitches(input_shape, vector)),
            kernel_strides=draw(pitches(kernel_shape, vector)),
            epilogue=epilogue,
            deterministic=draw(st.booleans()),
            workspace_limit=draw(st.sampled_from((None, None, None, 0, 1 << 20))),
            **dtypes,
        )
    except errors.ProblemError as error:
        assume("output size" not in str(error) and "wider than" not in str(error))
        raise
    return replace(sig, output_strides=draw(pitches(sig.output_shape, vector)))


@st.composite
def gemm_signatures(draw) -> GemmSignature:
    m, n, k = (draw(st.integers(1, 6)) for _ in range(3))
    batch = draw(st.integers(1, 3))
    trans_a, trans_b = draw(st.booleans()), draw(st.booleans())
    stored = {"a": (k, m) if trans_a else (m, k), "b": (n, k) if trans_b else (k, n), "c": (m, n)}
    memory: dict[str, int | None] = {}
    for name, (rows, columns) in stored.items():
        lead = columns + draw(st.integers(0, 2))
        memory[f"ld{name}"] = lead if draw(st.booleans()) else None
        step = draw(st.sampled_from((None, rows * lead, rows * lead + 3)))
        memory[f"stride_{name}"] = 0 if name != "c" and draw(st.integers(0, 3)) == 0 else step
    integer = draw(st.integers(0, 5)) == 0
    epilogue = draw(epilogues)
    if integer:
        epilogue = scaled(draw, epilogue)
        assume(epilogue.is_scaled or epilogue.activation in ("none", "relu", "clamp"))
        dtypes = {"dtype": "int8"}
    else:
        dtypes = {f"{name}_dtype": draw(st.sampled_from(FLOATS)) for name in "abc"}
        if draw(st.integers(0, 7)) == 0:
            dtypes = {"acc_dtype": "tf32"}
        if dtypes.get("c_dtype", "") in FLOATS[-2:]:
            epilogue = scaled(draw, epilogue)
    return GemmSignature(
        m=m,
        n=n,
        k=k,
        batch=batch,
        trans_a=trans_a,
        trans_b=trans_b,
        alpha=draw(st.sampled_from((1.0, -2.0) if integer else (1.0, 0.5, -1e-9))),
        beta=draw(st.sampled_from((0.0, 1.0, -3.0))),
        epilogue=epilogue,
        deterministic=draw(st.booleans()),
        workspace_limit=draw(st.sampled_from((None, None, None, 0, 1 << 20))),
        **memory,
        **dtypes,
    )
