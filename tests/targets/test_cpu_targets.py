"""Target records, their names, and detection from faked system files."""

import pytest

from tilesmith.errors import TargetError
from tilesmith.targets import detect
from tilesmith.targets.cpu import CPU_TARGETS, cpu_target, x86_arch
from tilesmith.targets.fitting import nearest_names
from tilesmith.targets.names import nearest_first, parse_target

V2 = "cx16 popcnt sse4_1 sse4_2 ssse3".split()
V3 = [*V2, *"avx avx2 bmi1 bmi2 f16c fma abm movbe".split()]
V4 = [*V3, *"avx512f avx512bw avx512cd avx512dq avx512vl".split()]


@pytest.mark.parametrize("arch", sorted(CPU_TARGETS))
@pytest.mark.parametrize("cores", [1, 2, 96])
def test_names_round_trip(arch, cores):
    target = cpu_target(arch, cores)
    assert target.name == f"{arch}:{cores}:generic"
    assert parse_target(target.name) == target
    assert parse_target(f"{arch}:{cores}") == target
    named = cpu_target(arch, cores, card="zen5")
    assert named.name == f"{arch}:{cores}:zen5"
    assert parse_target(named.name) == named != target


def test_half_wide_units_start_half_as_many_multiply_adds():
    """Zen 4 computes 64 bytes in two halves, and 32 bytes at once."""
    archs, cards = ("x86_64-v3", "x86_64-v4-bf16"), ("zen4", "zen5")
    counts = [cpu_target(arch, card=card).fma_per_cycle for arch in archs for card in cards]
    assert counts == [2, 2, 1, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sparc:2", "'sparc'"),
        ("x86_64-v4:0", "0 is not"),
        ("x86_64-v4:", "''"),
        ("x86_64-v4:two", "'two'"),
        ("x86_64-v4:-1", "'-1'"),
        ("x86_64-v4:99999", "99999"),
        ("x86_64-v4:2:", "ends where a card should stand"),
        ("x86_64-v4:2:zen5:x", "'2:zen5:x'"),
        ("x86_64-v4:2:Zen 5", "'Zen 5'"),
        ("x86_64-v4:2:" + "z" * 49, "'zzz"),
        ("sm_90a:132:H200", "'H200'"),
        ("sm_80:108:h200", "a card of sm_90a"),
        ("", "''"),
    ],
)
def test_bad_names_are_refused_by_value(text, said):
    with pytest.raises(TargetError, match=said) as caught:
        parse_target(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("features", "arch"),
    [
        (V2, "x86_64-v2"),
        (V3, "x86_64-v3"),
        (V4, "x86_64-v4"),
        ([*V4, "avx512_bf16"], "x86_64-v4-bf16"),
        ([*V4, "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"], "x86_64-v4-amx"),
        ([*V4, "avx512_bf16", "amx_tile", "amx_int8"], "x86_64-v4-bf16"),
        ([*V4, "amx_tile", "amx_bf16"], "x86_64-v4"),
        ([f for f in V3 if f != "fma"], "x86_64-v2"),  # one missing feature keeps the whole level away
        ([*V3, "avx512_bf16", "avx512f"], "x86_64-v3"),
    ],
)
def test_arch_follows_from_features(features, arch):
    assert x86_arch(frozenset(features)) == arch


def test_a_cpu_below_the_lowest_level_says_what_it_lacks():
    with pytest.raises(TargetError, match="popcnt"):
        x86_arch(frozenset(V2) - {"popcnt"})


def test_facts_of_the_records():
    assert cpu_target("x86_64-v4-bf16").bf16_dot
    assert not cpu_target("x86_64-v4").bf16_dot
    assert [arch for arch, record in CPU_TARGETS.items() if record.bf16_tiles] == ["x86_64-v4-amx"]
    assert cpu_target("x86_64-v3").lanes(4) == 8
    assert cpu_target("aarch64").vector_registers == 32
    for record in CPU_TARGETS.values():
        assert record.l1_bytes < record.l2_bytes < record.l3_bytes
        assert record.flags
        assert record.flags[0].startswith("-march=")


def test_records_of_the_level_below_are_near_those_of_matrix_tiles():
    """A database of versions that called such processors ``x86_64-v4-bf16``."""
    target = parse_target("x86_64-v4-amx:2:emerald-rapids")
    names = ["x86_64-v4:2:emerald-rapids", "x86_64-v4-bf16:4:emerald-rapids", "x86_64-v4-bf16:2:emerald-rapids"]
    assert nearest_first(target, names)[0] == nearest_names(target, names)[0] == names[-1]


def test_host_is_found_and_remembered():
    host = detect.host_target(3)
    assert host.cores == 3
    assert host.arch in CPU_TARGETS
    assert detect.host_target(3) is host
    assert detect.host_target().cores == detect.usable_cores()


def test_cache_sizes_come_from_the_system(tmp_path):
    for index, (level, kind, size) in enumerate(
        [
            ("1", "Data", "48K"),
            ("1", "Instruction", "64K"),
            ("2", "Unified", "2048K"),
            ("3", "Unified", "1G"),
            ("4", "Unified", "x"),
        ]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    assert detect._cache_sizes(tmp_path) == {1: 48 * 1024, 2: 2048 * 1024, 3: 1024**3}
    assert detect._cache_sizes(tmp_path / "absent") == {}


@pytest.mark.parametrize(("text", "cores"), [("max 100000", None), ("150000 100000", 2), ("junk", None), ("5 0", None)])
def test_quota_rounds_up(tmp_path, text, cores):
    path = tmp_path / "cpu.max"
    path.write_text(text)
    assert detect._quota_cores(path) == cores


def test_features_are_those_that_every_core_has():
    lines = ["flags\t\t: a b c", "model name : x", "flags\t\t: b c d"]
    assert detect._x86_features(lines) == {"b", "c"}
