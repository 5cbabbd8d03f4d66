"""The machine and its targets in C: the same names, and the same order, as in Python."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys

import machine_tables
import pytest

from machine_library import CARD, EXACT, NEAREST, NONE, RUNS, CTarget, machine_library, read_target
from tilesmith import env
from tilesmith.errors import TargetError
from tilesmith.targets import cards, cpu, cuda, detect
from tilesmith.targets.names import nearest_first, parse_target
from tilesmith.targets.target import CpuTarget

pytestmark = pytest.mark.xdist_group("machine")  # which builds the library and the program once
CARDS = ["generic", "zen4", "zen5", "h200", "h100-80gb-hbm3", "intel-6-207", "a", "x" * 48]


def card(function: str, *arguments: object) -> str:
    made = ctypes.create_string_buffer(CARD)
    getattr(machine_library(), function)(*arguments, made)
    return made.value.decode()


def test_the_tables_are_those_of_python():
    for name, text in machine_tables.files().items():
        assert (machine_tables.CSRC / name).read_text() == text, "run python tests/runtime/machine_tables.py"


def test_every_processor_has_the_name_that_python_gives():
    for vendor in (*detect._MAKERS, "GenuineUnknwn", ""):
        for family in {"AuthenticAMD": range(22, 29), "GenuineIntel": range(5, 8)}.get(vendor, (6, 25)):
            for model in range(256):
                assert card("ts_x86_card", vendor.encode(), family, model) == detect._x86(vendor, family, model)
    for implementer, part in (*detect._ARM, (0x41, 0xD80), (0x61, 0x022), (0, 0), (0xFF, 0xFFF)):
        assert card("ts_arm_card", implementer, part) == detect._arm(implementer, part)


def features() -> dict[str, int]:
    """The bit of each feature, in the order of ``ts_target.h``."""
    text = (machine_tables.CSRC / "ts_target.h").read_text()
    words = [word.removeprefix("HAS_").lower() for word in text.replace(",", " ").split() if word.startswith("HAS_")]
    return {word: 1 << at for at, word in enumerate(words)}


def test_levels_of_x86():
    bits, draw = features(), random.Random(1)
    assert set(bits) == frozenset().union(*(needed for _, needed in cpu._X86_LEVELS))
    for _ in range(3000):
        lacking = {name for name in bits if draw.random() < draw.choice((0.02, 0.1, 0.5))}
        try:
            expected = cpu.x86_arch(frozenset(bits) - lacking).encode()
        except TargetError:
            expected = None
        given = sum(bits[name] for name in bits if name not in lacking)
        assert machine_library().ts_x86_arch(given) == expected, lacking


def test_gpus_and_their_cards():
    for major in range(14):
        for minor in range(11):
            try:
                expected = cuda.cuda_arch(major, minor).encode()
            except TargetError:
                expected = None
            assert machine_library().ts_cuda_arch(major, minor) == expected, (major, minor)
    draw = random.Random(2)
    words = [
        "NVIDIA",
        "Tesla",
        "GPU",
        "H200",
        "GeForce",
        "RTX",
        "4090",
        "80GB",
        "x" * 30,
        "ü",
        "-",
        "--",
        "A100-SXM4",
        "/",
    ]
    for _ in range(2000):
        name = draw.choice((" ", "-", "")).join(draw.choices(words, k=draw.randrange(6)))
        assert card("ts_gpu_card", name.encode()[:255]) == cards.card_text(name), name


def test_this_machine():
    cap = os.environ.get(env.CPU_LEVEL.name, "").lower()
    target = CTarget()
    for cores in (0, 1, 7):
        assert machine_library().ts_machine_cpu(cores, cap.encode(), ctypes.byref(target), None) == 0
        assert target.name == detect.host_target(cores or None).name
    assert machine_library().ts_machine_cpu(1025, b"", ctypes.byref(target), None)
    assert machine_library().ts_machine_cpu(1, b"v3", ctypes.byref(target), None)


REFUSED = """
import ctypes, sys
from tilesmith.targets import detect

class Stack(ctypes.Structure):
    _fields_ = ("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)

memory, target = ctypes.create_string_buffer(4096), ctypes.create_string_buffer(512)
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(Stack(ctypes.addressof(memory), 0, len(memory))), None) == 0
assert ctypes.CDLL(sys.argv[1]).ts_machine_cpu(1, b"", target, None) == 0
print(detect.found_cpu().arch, detect.host_cpu().arch, target.value.decode())
"""


@pytest.mark.needs_linux
def test_no_matrix_tiles_where_the_kernel_refuses_them():
    """It does where the registers do not fit into the stack that a thread has for signals."""
    command = [sys.executable, "-c", REFUSED, machine_library()._name]
    found, python, c = subprocess.check_output(command, text=True).split()
    assert python == c == ("x86_64-v4-bf16" if found == "x86_64-v4-amx" else found)


@pytest.mark.needs_linux
def test_the_cores_that_a_process_may_use(tmp_path):
    assert machine_library().ts_machine_cores() == detect.usable_cores()
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        assert machine_library().ts_machine_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    for text in ("max 100000", "100000 100000", "150000 100000", "1 100000", "250000 100000", "", "x y", "3 0", "7"):
        (tmp_path / "cpu.max").write_text(text)
        assert machine_library().ts_quota_cores(text.encode()) == (detect._quota_cores(tmp_path / "cpu.max") or 0)


def test_a_cap(processor, monkeypatch):
    for arch in cpu.CPU_TARGETS:
        for cap in ("", *env.CPU_LEVELS):
            processor(arch)
            monkeypatch.setenv(env.CPU_LEVEL.name, cap)
            expected = detect.host_target(1).arch
            assert machine_library().ts_capped_arch(arch.encode(), cap.encode()).decode() == expected, (arch, cap)


def some_name(draw: random.Random) -> str:
    arch = draw.choice([*cpu.CPU_TARGETS, *cuda.GPU_ARCHS])
    cores = draw.choice([1, 2, 3, 4, 6, 8, 9, 16, 64, 108, 132, 1024])
    card = draw.choice([name for name in CARDS if name not in cards.CARDS or cards.CARDS[name].arch == arch])
    return f"{arch}:{cores}:{card}"


def test_names_of_targets():
    draw = random.Random(3)
    names = [some_name(draw) for _ in range(300)]
    names += [text[: draw.randrange(len(text))] for text in names] + [*cpu.CPU_TARGETS, *cuda.GPU_ARCHS]
    names += [f"sm_90a:132:{card}" for card in (*cards.CARDS, "", "-", "a-", "a--b", "A", "ü", "x" * 49, "a:b")]
    names += [f"x86_64-v3:{cores}" for cores in ("", "0", "007", "1024", "1025", "+1", "1e3", "9" * 9, "9" * 40, " 1")]
    names += ["", ":", "sm_99", "sm_90a" + "x" * 300, "sm_90a:1025", "sm_90a:1024", "sm_80:1:h200", "sm_90a::h200"]
    refused = 0
    for name in names:
        found = read_target(name)
        try:
            expected = parse_target(name).name
        except TargetError:
            refused += 1
            assert isinstance(found, str), name
        else:
            assert isinstance(found, CTarget), found
            assert found.name == expected
    assert refused > 100


def grade(machine, other) -> int:
    """How a target suits a machine, by the facts of both."""
    if machine.name == other.name:
        return EXACT
    if not isinstance(machine, CpuTarget) or not isinstance(other, CpuTarget):
        return NEAREST if machine.arch == other.arch else NONE
    if other.arch not in cpu.archs_within(machine.arch):
        return NONE
    return RUNS if other.cores <= machine.cores else NEAREST


def rank(machine: str, names: list[str], least: int) -> list[str]:
    texts = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
    order = (ctypes.c_uint32 * len(names))()
    count = machine_library().ts_target_rank(ctypes.byref(read_target(machine)), texts, len(names), least, order)
    return [names[order[at]] for at in range(count)]


def test_the_order_is_that_of_python():
    draw = random.Random(4)
    for _ in range(300):
        machine = some_name(draw)
        names = [some_name(draw) for _ in range(12)] + draw.choices([machine, "sm_999:1:x", "", "sm_90a:132:"], k=2)
        target = parse_target(machine)
        made = {name: parse_target(name) for name in names[:12]} | ({machine: target} if machine in names else {})
        for least in (NONE, NEAREST, RUNS, EXACT):
            found = rank(machine, names, least)
            grades = [grade(target, made[name]) for name in found]
            assert sorted(found) == sorted(
                name for name in names if name in made and grade(target, made[name]) >= least
            )
            assert grades == sorted(grades, reverse=True)
            for level in set(grades):
                # Within a grade: archs from the machine's own downward, and those of one arch as Python has them.
                group = [name for name, each in zip(found, grades, strict=True) if each == level]
                archs = list(dict.fromkeys(made[name].arch for name in group))
                if level > NONE:
                    within = cpu.archs_within(target.arch)
                    assert archs == sorted(archs, key=lambda arch, w=within: -w.index(arch))
                    for arch in archs:
                        own = list(dict.fromkeys(name for name in group if made[name].arch == arch))
                        assert own == list(nearest_first(target, own)) or own == [machine]
