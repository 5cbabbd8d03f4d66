"""Plans and artifacts that cannot be loaded: an error in one line, never a crash. Both decoders refuse the same."""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from kernels import SCALE, artifact, depthwise, kernel, launch, load, scaled, slot

from plan_samples import CUDA_SMALL
from tilesmith.errors import LaunchError, PlanError
from tilesmith.plan.records import Integer, Launch, Memset, Pointer, Real, Space
from tilesmith.plan.serial import decode, encode
from tilesmith.runtime._runtime import LoadedPlan
from tilesmith.runtime.executable import Executable


def sealed(body):
    rest = struct.pack("<Q", 24 + len(body)) + body
    return b"TSPLAN\r\n" + struct.pack("<II", 2, zlib.crc32(rest)) + rest


def refused_by_c(data):
    try:
        LoadedPlan(data, ())
    except LaunchError:
        return True
    return False


def test_c_refuses_every_truncation_and_bit_flip():
    _, executable = scaled(8)
    data = encode(executable.plan)
    assert not refused_by_c(data)
    for size in range(len(data)):
        assert refused_by_c(data[:size])
        assert refused_by_c(sealed(data[24:size]) if size >= 24 else data[:size])
    assert refused_by_c(data + b"\0")
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert refused_by_c(bytes(flipped))


def test_c_and_python_refuse_the_same_noise():
    """Random bytes under a right checksum: both decoders take them, or neither does (text that is no UTF-8 apart)."""
    plan = replace(
        scaled(8)[1].plan,
        packed_bytes=128, workspace_bytes=64 + 2 * 64, scratch_offset=64, scratch_stride=64,
        run=(
            Memset(Pointer(Space.SLOT, 2, 4), 8, 3),
            Launch(0, "ts_k", (9, 1, 1), (Pointer(Space.WORKSPACE, 0, 8), Integer(-1), Real(2.5)), (2, 1, 1),
                   shared_bytes=8),
        ),
        prepare=(Launch(0, "ts_p", (1, 1, 1), (Pointer(Space.SLOT, 1), Pointer(Space.PACKED, 0, 64))),),
    )  # fmt: skip
    bodies = [encode(plan)[24:], encode(CUDA_SMALL)[24:]]
    rng = random.Random(11)
    taken = 0
    for turn in range(6000):
        noisy = bytearray(bodies[turn % 2])
        for _ in range(rng.randint(1, 3)):
            noisy[rng.randrange(len(noisy))] = rng.choice((0, 1, 2, 3, 4, 64, 127, 128, 255, rng.randrange(256)))
        data = sealed(bytes(noisy))
        try:
            decode(data)
            refused = False
        except PlanError as error:
            if "UTF-8" in str(error):
                refused_by_c(data)
                continue
            refused = True
        assert refused_by_c(data) == refused, data
        taken += not refused
    assert taken > 300


def test_a_plan_of_more_than_a_mebibyte():
    """Decoding takes many times the bytes of a plan: neither decoder begins with one, and none is written."""
    plan = scaled(8)[1].plan
    short = len(encode(replace(plan, provenance="")))
    longest = replace(plan, provenance="x" * ((1 << 20) - short))
    assert len(encode(longest)) == 1 << 20
    assert not refused_by_c(encode(longest))
    with pytest.raises(PlanError, match="at most 1048576"):
        encode(replace(plan, provenance=longest.provenance + "x"))
    data = encode(longest)
    data = sealed(data[24:] + b"\0")
    with pytest.raises(PlanError, match="at most 1048576"):
        decode(data)
    with pytest.raises(LaunchError, match="at most 1048576"):
        LoadedPlan(data, ())


def test_a_refusal_has_nothing_that_a_terminal_obeys():
    """A damaged plan names its parts as it likes; the message has letters alone."""
    name = "a\x1b[2Jb\x7f\x9b1mc\u00a0d"
    data = encode(scaled(8)[1].plan)
    old = data[24:].replace(b"\4\0\0\0fp32", struct.pack("<I", len(name.encode())) + name.encode(), 1)
    with pytest.raises(LaunchError, match=r"dtype a\?\[2Jb\?{3}1mc\u00a0d does not exist"):
        LoadedPlan(sealed(old), ())


def test_damaged_foreign_and_missing_artifacts(tmp_path):
    sig, executable = scaled(4)
    plan, whole = executable.plan, artifact(SCALE).path.read_bytes()
    path = tmp_path / "kernel.so"
    with pytest.raises(LaunchError, match="cannot be read"):
        Executable(plan, [path])
    path.write_bytes(whole[:-1])
    with pytest.raises(LaunchError, match="is damaged"):
        Executable(plan, [path])
    path.write_bytes(whole)
    with pytest.raises(LaunchError, match="1 artifacts, got 0 files"):
        Executable(plan, [])
    assert Executable(encode(plan), [path]).bind(sig) is not None
    with pytest.raises(PlanError):
        Executable(encode(plan)[:-1], [path])


def test_a_file_that_is_no_library_or_lacks_the_symbol(tmp_path):
    import hashlib

    _, executable = scaled(4)
    path = tmp_path / "text.so"
    path.write_bytes(b"no library")
    plan = replace(executable.plan, artifacts=(hashlib.sha256(b"no library").hexdigest(),))
    with pytest.raises(LaunchError, match="cannot be opened") as caught:
        Executable(plan, [path])
    assert "\n" not in str(caught.value)
    other = kernel("ts_other", "")
    plan = replace(executable.plan, artifacts=(artifact(other).digest,))
    with pytest.raises(LaunchError, match="no symbol ts_scale"):
        Executable(plan, [artifact(other).path])


def test_memsets_and_real_parameters():
    sig = depthwise(6)
    fill = kernel(
        "ts_real",
        "float *y = p[0]; double v; __builtin_memcpy(&v, &s[1], 8); for (i64 i = begin; i < end; i++) y[i] = v * s[0];",
    )
    step = Launch(0, "ts_real", (2, 1, 1), (slot(2, 8), Integer(-3), Real(0.5)))
    executable = load(sig, [fill], [Memset(slot(2), 24, 0), step])
    y = np.full((6, 1, 1, 1), 9, np.float32)
    executable.run([np.zeros_like(y), np.zeros((1, 1, 1, 1), np.float32), y])
    assert y.ravel().tolist() == [0, 0, -1.5, -1.5, 0, 0]


def test_two_plans_with_one_symbol():
    """Symbols are looked up in the artifact that the plan names, so that a name used twice does no harm."""
    sig = depthwise(2)
    one, two = kernel("ts_same", "((float *)p[0])[begin] = 1;"), kernel("ts_same", "((float *)p[0])[begin] = 2;")
    bounds = [load(sig, [s], [launch(0, s, 1, slot(2))]).bind(sig) for s in (one, two)]
    x, w = np.zeros((2, 1, 1, 1), np.float32), np.zeros((1, 1, 1, 1), np.float32)
    assert [b(x, w).flat[0] for b in bounds] == [1, 2]
