"""The serialised form: it returns what it was given, and refuses everything else."""

from __future__ import annotations

import random
import struct
import zlib
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings

from plan_samples import CUDA_SMALL, SMALL, TILED, WINDOW, plans
from tilesmith.errors import PlanError
from tilesmith.plan.records import Integer, Launch, Memset, Plan, Pointer, Slot, Space
from tilesmith.plan.serial import decode, encode


def sealed(body: bytes) -> bytes:
    """A plan file with a right checksum around any body."""
    rest = struct.pack("<Q", 24 + len(body)) + body
    return b"TSPLAN\r\n" + struct.pack("<II", 2, zlib.crc32(rest)) + rest


@settings(max_examples=150, deadline=None)
@given(plans())
def test_round_trip(plan):
    data = encode(plan)
    assert decode(data) == plan
    assert encode(decode(data)) == data


def test_the_bytes_never_change():
    """Databases and packages hold these bytes: a change of form needs a new version number."""
    data = encode(SMALL)
    assert data[:16] == b"TSPLAN\r\n" + struct.pack("<II", 2, zlib.crc32(data[16:]))
    assert (len(data), zlib.crc32(data)) == (607, 70054853)
    data = encode(CUDA_SMALL)
    assert (len(data), zlib.crc32(data)) == (1118, 1447515945)
    data = encode(replace(SMALL, slots=(replace(SMALL.slots[0], in_place=True), *SMALL.slots[1:])))
    assert (len(data), zlib.crc32(data)) == (607, 1998989808)


def test_truncated_at_every_length():
    data = encode(SMALL)
    for size in range(len(data)):
        with pytest.raises(PlanError):
            decode(data[:size])
    with pytest.raises(PlanError, match="608"):
        decode(data + b"\0")


def test_every_bit_flip_is_refused():
    data = encode(SMALL)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PlanError):
            decode(bytes(flipped))


def test_sealed_truncation_is_refused():
    body = encode(SMALL)[24:]
    for whole in (body, encode(CUDA_SMALL)[24:]):
        for size in range(len(whole)):
            with pytest.raises(PlanError):
                decode(sealed(whole[:size]))
    with pytest.raises(PlanError, match="ends at byte"):
        decode(sealed(body + b"\0"))


def test_round_trip_of_a_cuda_plan():
    assert decode(encode(CUDA_SMALL)) == CUDA_SMALL


@pytest.mark.parametrize("plan", [SMALL, CUDA_SMALL], ids=["cpu", "cuda"])
def test_sealed_noise_is_a_plan_or_an_error(plan):
    rng = random.Random(7)
    body = encode(plan)[24:]
    for _ in range(4000):
        noisy = bytearray(body)
        for _ in range(rng.randint(1, 3)):
            noisy[rng.randrange(len(noisy))] = rng.choice((0, 1, 2, 3, 127, 128, 255, rng.randrange(256)))
        with suppress(PlanError):  # no other error may come out
            assert isinstance(decode(sealed(bytes(noisy))), Plan)


LAUNCH = SMALL.run[1]
assert isinstance(LAUNCH, Launch)


def with_run(**changes):
    return replace(SMALL, run=(replace(LAUNCH, **changes),))


CUDA_LAUNCH = CUDA_SMALL.run[1]
assert isinstance(CUDA_LAUNCH, Launch)


def with_cuda(**changes):
    return replace(CUDA_SMALL, run=(replace(CUDA_LAUNCH, **changes),))


def with_map(made, **changes):
    return with_cuda(parameters=(replace(made, **changes),))


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (replace(SMALL, threads=0), "threads 0"),
        (replace(SMALL, threads=1025), "threads 1025"),
        (replace(SMALL, threads=3), "ends beyond the workspace"),
        (replace(SMALL, alignment=48), "power of two"),
        (replace(SMALL, scratch_offset=32), "multiple of the alignment"),
        (replace(SMALL, packed_bytes=-1), "packed_bytes -1"),
        (replace(SMALL, problem="a\0b"), "NUL"),
        (replace(SMALL, artifacts=("AB" * 32,)), "sha256"),
        (replace(SMALL, slots=(replace(SMALL.slots[0], nbytes=20), *SMALL.slots[1:])), "span 24"),
        (replace(SMALL, slots=(replace(SMALL.slots[0], dtype="fp31"), *SMALL.slots[1:])), "fp31"),
        (replace(SMALL, slots=(Slot("x", "int8", (0,), (1,), 0, False), *SMALL.slots[1:])), "size 0"),
        (replace(SMALL, slots=(replace(SMALL.slots[0], shape=(6,)), *SMALL.slots[1:])), "fit together"),
        (with_run(artifact=1), "artifact 1"),
        (with_run(symbol="a b"), "symbol 'a b'"),
        (with_run(symbol=""), "symbol ''"),
        (with_run(grid=(-1, 1, 1)), "grid -1"),
        (with_run(block=(0, 1, 1)), "block 0"),
        (with_run(shared_bytes=4097), "shared_bytes 4097"),
        (with_run(parameters=(Pointer(Space.SLOT, 3),)), "slot 3"),
        (with_run(parameters=(Pointer(Space.SLOT, 0, 25),)), "SLOT end beyond its 24"),
        (with_run(parameters=(Pointer(Space.SLOT, 0, -4),)), "offset -4"),
        (with_run(parameters=(Pointer(Space.PACKED, 0, 129),)), "PACKED end beyond its 128"),
        (with_run(parameters=(Pointer(Space.PACKED, 1),)), "index 1"),
        (with_run(parameters=(Pointer(Space.WORKSPACE, 0, 65),)), "WORKSPACE end beyond its 64"),
        (with_run(parameters=(Integer(2**63),)), "out of range"),
        (with_run(parameters=(Integer(0),) * 257), "257 parameters"),
        (replace(SMALL, run=(Memset(Pointer(Space.SLOT, 2, 4), 5),)), "end beyond its 8"),
        (replace(SMALL, run=(Memset(Pointer(Space.SLOT, 0), 8),)), "which is an input"),
        (replace(SMALL, run=(Memset(Pointer(Space.SLOT, 2), 8, 256),)), "value 256"),
        (replace(SMALL, prepare=SMALL.run), "prepare points at slot 2"),
        (replace(SMALL, family="tpu"), "family 'tpu'"),
        (with_run(programmatic=True), "programmatic is CUDA's"),
        (with_run(parameters=(TILED,)), "takes no tensor map"),
        (replace(CUDA_SMALL, threads=2), "threads 2"),
        (replace(CUDA_SMALL, scratch_stride=256, workspace_bytes=512), "scratch_stride 256"),
        (with_cuda(grid=(5, 2, 1)), "no multiple of the cluster"),
        (with_cuda(grid=(6, 65536, 1)), "grid 65536"),
        (with_cuda(block=(1024, 2, 1)), "threads of a block 2048"),
        (with_cuda(cluster=(2, 2, 8)), "blocks of a cluster 32"),
        (with_cuda(shared_bytes=2**18 + 1), "shared_bytes 262145"),
        (with_cuda(parameters=(WINDOW,) * 33), "bytes of parameters 4224"),
        (with_map(TILED, dtype="fp31"), "dtype 'fp31'"),
        (with_map(TILED, dims=(64, 9), strides=(128,)), "ranks are 1 to 5 and agree"),
        (with_map(TILED, strides=(120, 1152)), "stride 120 is no multiple of 16"),
        (with_map(TILED, strides=(128, 2**40)), "stride 1099511627776"),
        (with_map(TILED, dims=(64, 9, 33)), "of SLOT end beyond its 36864"),
        (with_map(TILED, box=(64, 1, 257)), "box 257"),
        (with_map(TILED, box=(72, 1, 32)), "innermost 144 bytes"),
        (with_map(TILED, box=(4, 1, 32)), "innermost 8 bytes"),
        (with_map(TILED, swizzle=48), "swizzle 48"),
        (with_map(TILED, l2_promotion=32), "L2 promotion 32"),
        (with_map(TILED, element_strides=(1, 1, 9)), "element stride 9"),
        (with_map(TILED, pointer=Pointer(Space.SLOT, 1, 8)), "byte 8, no multiple of 16"),
        (with_map(WINDOW, im2col=replace(WINDOW.im2col, lower=(-129, 0))), "corner -129"),
        (with_map(WINDOW, im2col=replace(WINDOW.im2col, pixels=1025)), "pixels 1025"),
        (with_map(WINDOW, im2col=replace(WINDOW.im2col, upper=(0,))), "im2col of rank 4"),
        (with_map(WINDOW, box=(64, 1, 1, 1)), "im2col of rank 4"),
    ],
)
def test_broken_rules_are_named(plan, words):
    with pytest.raises(PlanError, match=words):
        encode(plan)
