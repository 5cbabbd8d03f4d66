"""Drafts become plans: slots of every kind of problem, memory, artifacts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilesmith.errors import PlanError
from tilesmith.plan.assemble import assemble
from tilesmith.plan.records import Draft, Launch, Pointer, Source, Space
from tilesmith.plan.slots import arguments, slot_names, slots_of
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.targets.cpu import CPU_TARGETS

TARGET = replace(CPU_TARGETS["x86_64-v4"], cores=3)
FWD = ConvSignature(input_shape=(2, 8, 9, 4), kernel_shape=(6, 3, 3, 4), shared_layout="NHWC")
SOURCES = tuple(Source("c", f"ts_{i}", "", "") for i in range(3))


def draft(**changes):
    launch = Launch(1, "ts_1", (7, 1, 1), (Pointer(Space.SLOT, 0), Pointer(Space.PACKED)), shared_bytes=5000)
    first = Launch(0, "ts_0", (1, 1, 1), (Pointer(Space.SLOT, 1), Pointer(Space.PACKED)), shared_bytes=8)
    made = Draft(
        SOURCES, (launch, replace(launch, artifact=2, symbol="ts_2")), (first,), packed_bytes=100, workspace_bytes=70
    )
    return replace(made, **changes)


def test_memory_and_artifacts():
    one, two = "1" * 64, "2" * 64
    plan = assemble(draft(), FWD, "dense", "mr=1", TARGET, [one, two, one], "tuned")
    assert (plan.packed_bytes, plan.scratch_offset, plan.scratch_stride, plan.threads) == (128, 128, 8192, 3)
    assert plan.workspace_bytes == 128 + 3 * 8192
    assert plan.artifacts == (one, two)
    assert [step.artifact for step in (*plan.prepare, *plan.run)] == [0, 1, 0]
    assert (plan.problem, plan.target, plan.provenance) == (FWD.canonical.key(), "x86_64-v4:3:generic", "tuned")


def test_no_scratch_no_workspace():
    launch = Launch(0, "ts_0", (1, 1, 1), ())
    plan = assemble(Draft(SOURCES[:1], (launch,)), FWD, "dense", "", TARGET, ["0" * 64])
    assert (plan.workspace_bytes, plan.packed_bytes) == (0, 0)


def test_bad_drafts():
    with pytest.raises(PlanError, match="3 sources, but 2"):
        assemble(draft(), FWD, "dense", "", TARGET, ["0" * 64] * 2)
    bad = draft(run=(Launch(3, "ts_3", (1, 1, 1), ()),))
    with pytest.raises(PlanError, match="source 3 of 3"):
        assemble(bad, FWD, "dense", "", TARGET, ["0" * 64] * 3)


EVERY = Epilogue(bias=True, residual=True, activation="relu")


@pytest.mark.parametrize(
    ("signature", "names", "shapes"),
    [
        (FWD, "x w y", [(2, 8, 9, 4), (6, 3, 3, 4), (2, 6, 7, 6)]),
        (replace(FWD, epilogue=EVERY), "x w b z y", [(2, 8, 9, 4), (6, 3, 3, 4), (6,), (2, 6, 7, 6), (2, 6, 7, 6)]),
        (replace(FWD, mode="bwd"), "y w x", [(2, 6, 7, 6), (6, 3, 3, 4), (2, 8, 9, 4)]),
        (
            replace(FWD, mode="bwd", epilogue=EVERY),
            "y w b z x",
            [(2, 6, 7, 6), (6, 3, 3, 4), (4,), (2, 8, 9, 4), (2, 8, 9, 4)],
        ),
        (replace(FWD, mode="wrw"), "y x w", [(2, 6, 7, 6), (2, 8, 9, 4), (6, 3, 3, 4)]),
        (replace(FWD, mode="bgrad"), "y b", [(2, 6, 7, 6), (6,)]),
        (GemmSignature(m=3, n=4, k=5), "a b c", [(3, 5), (5, 4), (3, 4)]),
        (
            GemmSignature(m=3, n=4, k=5, batch=2, trans_b=True, beta=1.0, epilogue=EVERY),
            "a b bias z c",
            [(2, 3, 5), (2, 4, 5), (4,), (2, 3, 4), (2, 3, 4)],
        ),
    ],
)
def test_slots(signature, names, shapes):
    slots = slots_of(signature)
    assert " ".join(s.name for s in slots) == names == " ".join(slot_names(signature.geometry))
    assert [s.shape for s in slots] == shapes
    assert [s.is_output for s in slots] == [False] * (len(slots) - 1) + [True]


def test_a_residual_may_be_the_results_memory():
    """Where the draft says so, and no ``c`` lies there already."""
    for signature, given, expected in (
        (replace(FWD, epilogue=EVERY), True, [False, False, False, True, False]),
        (replace(FWD, epilogue=EVERY), False, [False] * 5),
        (replace(FWD, epilogue=Epilogue(bias=True)), True, [False] * 4),
        (GemmSignature(m=3, n=4, k=5, epilogue=EVERY), True, [False, False, False, True, False]),
        (GemmSignature(m=3, n=4, k=5, epilogue=EVERY, beta=1.0), True, [False] * 5),
    ):
        assert [slot.in_place for slot in slots_of(signature, given)] == expected


def test_slots_are_the_arguments_memory():
    """Slot ``i`` spans the same bytes as the user's argument that ``canonical_order`` names."""
    lifted = {"input_shape": (2, 4, 9), "kernel_shape": (4, 6, 3), "transposed": True, "stride": 2}
    signatures = [
        ConvSignature(**lifted, mode=mode, output_strides=(6 * 50, 50, 1) if mode == "fwd" else None)
        for mode in ("fwd", "bwd", "wrw", "bgrad")
    ]
    for signature in signatures:
        *inputs, result = arguments(signature)
        slots = slots_of(signature)
        assert [slots[i].nbytes for i in range(len(inputs))] == [inputs[j].nbytes for j in signature.canonical_order]
        assert slots[-1].nbytes == result.nbytes
    assert slots_of(signatures[0])[-1].strides == (300, 50, 19, 1) or slots_of(signatures[0])[-1].nbytes == 4 * 569


def test_gemm_pitch():
    slots = slots_of(GemmSignature(m=3, n=4, k=5, ldc=10, dtype="bf16", a_dtype="bf16", b_dtype="bf16", c_dtype="fp32"))
    assert slots[2].strides == (10, 1)
    assert slots[2].nbytes == 4 * (2 * 10 + 4)
