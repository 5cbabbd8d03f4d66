"""Random plans that obey every rule, and a small one by hand."""

from __future__ import annotations

from hypothesis import strategies as st

from tilesmith.plan.records import Im2col, Integer, Launch, Memset, Plan, Pointer, Real, Slot, Space, TensorMap
from tilesmith.plan.slots import span_bytes
from tilesmith.problems.layouts import dense_strides

TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=12)
SIZE = st.integers(0, 2**40)
SYMBOL = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)


@st.composite
def slots(draw):
    shape = tuple(draw(st.lists(st.integers(1, 70), max_size=5)))
    strides = dense_strides(shape)
    if draw(st.booleans()):
        strides = tuple(s * 3 for s in strides)
    name = draw(st.sampled_from(["fp32", "bf16", "fp64", "int8", "fp8e4m3"]))
    is_output, in_place = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
    return Slot(draw(TEXT), name, shape, strides, span_bytes(name, shape, strides), is_output, in_place)


@st.composite
def plans(draw):
    some_slots = tuple(draw(st.lists(slots(), max_size=4)))
    artifacts = tuple(draw(st.lists(st.binary(min_size=32, max_size=32).map(bytes.hex), min_size=1, max_size=3)))
    packed = draw(SIZE)
    scratch_offset, stride = draw(SIZE) // 64 * 64, draw(st.integers(0, 100)) * 64
    threads = draw(st.integers(1, 1024))

    def pointer(only=None, nbytes=0):
        spaces = [(Space.PACKED, 0, packed), (Space.WORKSPACE, 0, scratch_offset)]
        spaces += [(Space.SLOT, i, s.nbytes) for i, s in enumerate(some_slots) if only is None or only(i, s)]
        spaces = [entry for entry in spaces if entry[2] >= nbytes]
        if not spaces:
            return None
        space, index, size = draw(st.sampled_from(spaces))
        return Pointer(space, index, draw(st.integers(0, size - nbytes)))

    def step(preparing):
        if draw(st.integers(0, 3)) == 0:
            nbytes = draw(st.integers(0, 100))
            place = pointer(lambda _, s: s.is_output and not preparing, nbytes)
            if place is not None:
                return Memset(place, nbytes, draw(st.integers(0, 255)))
        parameters = []
        for kind in draw(st.lists(st.sampled_from("pir"), max_size=6)):
            if kind == "p":
                parameters.append(pointer((lambda i, s: i == 1 and not s.is_output) if preparing else None))
            elif kind == "i":
                parameters.append(Integer(draw(st.integers(-(2**63), 2**63 - 1))))
            else:
                parameters.append(Real(draw(st.floats(allow_nan=False))))
        return Launch(
            draw(st.integers(0, len(artifacts) - 1)), draw(SYMBOL),
            (draw(SIZE), 1, 1), tuple(parameters), (draw(st.integers(1, 9)), 1, 1),
            shared_bytes=draw(st.integers(0, stride)),
        )  # fmt: skip

    prepare = tuple(step(True) for _ in range(draw(st.integers(0, 2))))
    run = tuple(step(False) for _ in range(draw(st.integers(0, 3))))
    return Plan(
        problem=draw(TEXT), target=draw(TEXT), solver=draw(TEXT), config=draw(TEXT), slots=some_slots,
        artifacts=artifacts, prepare=prepare, run=run, packed_bytes=packed,
        workspace_bytes=scratch_offset + threads * stride + draw(SIZE), scratch_offset=scratch_offset,
        scratch_stride=stride, threads=threads, alignment=64, provenance=draw(TEXT),
    )  # fmt: skip


SMALL = Plan(
    problem="p", target="x86_64-v4:2", solver="s", config="mr=1",
    slots=(
        Slot("x", "fp32", (2, 3), (3, 1), 24, False),
        Slot("w", "bf16", (4,), (2,), 14, False),
        Slot("y", "fp32", (2,), (1,), 8, True),
    ),
    artifacts=("ab" * 32,),
    prepare=(Launch(0, "ts_pack", (1, 1, 1), (Pointer(Space.SLOT, 1), Pointer(Space.PACKED))),),
    run=(
        Memset(Pointer(Space.SLOT, 2), 8, 255),
        Launch(
            0, "ts_kernel", (5, 1, 1),
            (Pointer(Space.SLOT, 0, 4), Pointer(Space.PACKED, 0, 64), Integer(-3), Real(0.5), Pointer(Space.SLOT, 2)),
            (2, 1, 1), shared_bytes=100,
        ),
    ),
    packed_bytes=128, workspace_bytes=8256, scratch_offset=64, scratch_stride=4096, threads=2,
)  # fmt: skip

TILED = TensorMap(
    Pointer(Space.SLOT, 1), "bf16", (64, 9, 32), (128, 1152), (64, 1, 32), (1, 1, 1), swizzle=128, l2_promotion=256
)
WINDOW = TensorMap(
    Pointer(Space.SLOT, 0), "bf16", (64, 7, 6, 2), (128, 896, 5376), (), (1, 2, 2, 1),
    im2col=Im2col((-1, -1), (-1, -1), 64, 128),
)  # fmt: skip

CUDA_SMALL = Plan(
    problem="p", target="sm_90a:132", solver="s", config="bm=64",
    slots=(
        Slot("x", "bf16", (2, 6, 7, 64), (2688, 448, 64, 1), 10752, False),
        Slot("w", "bf16", (32, 9, 64), (576, 64, 1), 36864, False),
        Slot("y", "bf16", (2, 3, 4, 32), (384, 128, 32, 1), 1536, True),
    ),
    artifacts=("cd" * 32,),
    prepare=(Launch(0, "ts_pack", (4, 1, 1), (TILED, Pointer(Space.PACKED)), (128, 1, 1)),),
    run=(
        Memset(Pointer(Space.WORKSPACE), 256),
        Launch(
            0, "ts_kernel", (6, 2, 1), (WINDOW, Integer(-3), TILED, Pointer(Space.SLOT, 2), Real(0.5)),
            (384, 1, 1), (2, 1, 1), 200_000, programmatic=True,
        ),
    ),
    packed_bytes=512, workspace_bytes=256, scratch_offset=256, scratch_stride=0, threads=1, alignment=256,
    family="cuda",
)  # fmt: skip
