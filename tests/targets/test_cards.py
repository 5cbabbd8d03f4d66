"""The names of cards and processors in targets, and the facts of cards with and without a record."""

from __future__ import annotations

import pytest

from tilesmith.errors import TargetError
from tilesmith.targets.cards import CARD_LENGTH, CARD_TEXT, CARDS, card_of, card_text, common_card
from tilesmith.targets.cuda import CUDA_ARCHS, cuda_target
from tilesmith.targets.detect import processor_text
from tilesmith.targets.names import parse_target


@pytest.mark.parametrize(
    ("device", "card"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "h100-80gb-hbm3-mig-1g-10gb"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("Grafik-Chip \u00fc: 7/8 'x'; DROP", "grafik-chip-7-8-x-drop"),
        ("NVIDIA Graphics Device", "generic"),
        ("", "generic"),
        ("x" * 300, "x" * CARD_LENGTH),
    ],
)
def test_a_device_name_becomes_a_card(device, card):
    assert card_text(device) == card
    assert CARD_TEXT.fullmatch(card)
    assert parse_target(f"sm_80:10:{card}").card == card if card not in CARDS or CARDS[card].arch == "sm_80" else True


def test_records_of_cards():
    for name, card in CARDS.items():
        assert card.name == name
        assert card_text(name) == name
        assert parse_target(cuda_target(card.arch, card=name).name) == cuda_target(card.arch, card.cores, name)
        assert not cuda_target(card.arch, card=name).estimated
    assert {card.arch for card in CARDS.values()} == set(CUDA_ARCHS)
    assert CARDS["h200"].bytes_per_s > 1.3 * CARDS["h100-80gb-hbm3"].bytes_per_s


@pytest.mark.parametrize("arch", CUDA_ARCHS)
def test_a_card_without_a_record_is_estimated(arch):
    common = common_card(arch)
    half = card_of(arch, "some-card", common.cores * 2, common.clock_hz / 2, 2e12)
    assert half.estimated
    assert half.bf16_flops == pytest.approx(common.bf16_flops)
    assert half.bytes_per_s == pytest.approx(0.9 * 2e12)
    silent = card_of(arch, "some-card", common.cores * 2)  # a driver that tells nothing
    assert silent.clock_hz == common.clock_hz
    assert silent.bytes_per_s == pytest.approx(2 * common.bytes_per_s)
    assert cuda_target(arch, 7, "some-card").estimated
    assert not cuda_target(arch, 7).estimated


def test_a_card_of_another_arch_is_refused():
    with pytest.raises(TargetError, match="'b200' is a card of sm_100a, not of sm_90a"):
        parse_target("sm_90a:148:b200")


def _cpuinfo(vendor, family, model):
    return [f"vendor_id\t: {vendor}", f"cpu family\t: {family}", f"model\t\t: {model}", "model name\t: Free Text 9000"]


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (_cpuinfo("AuthenticAMD", 23, 49), "zen2"),
        (_cpuinfo("AuthenticAMD", 25, 1), "zen3"),
        (_cpuinfo("AuthenticAMD", 25, 17), "zen4"),
        (_cpuinfo("AuthenticAMD", 25, 33), "zen3"),
        (_cpuinfo("AuthenticAMD", 25, 97), "zen4"),
        (_cpuinfo("AuthenticAMD", 26, 2), "zen5"),
        (_cpuinfo("AuthenticAMD", 21, 2), "amd-21-2"),
        (_cpuinfo("GenuineIntel", 6, 143), "sapphire-rapids"),
        (_cpuinfo("GenuineIntel", 6, 85), "skylake-sp"),
        (_cpuinfo("GenuineIntel", 19, 1), "intel-19-1"),
        (_cpuinfo("Some Maker", 6, 85), "x86-6-85"),
        (["CPU implementer\t: 0x41", "CPU part\t: 0xd40"], "neoverse-v1"),
        (["CPU implementer\t: 0x48", "CPU part\t: 0xd01"], "arm-48-d01"),
        (["CPU implementer\t: junk", "CPU part\t: 0xd01"], "generic"),
        (["vendor_id : AuthenticAMD", "cpu family : x", "model : 1"], "generic"),
        ([], "generic"),
    ],
)
def test_processors_are_named_by_numbers(lines, name):
    assert processor_text(lines) == name
    assert parse_target(f"x86_64-v4:2:{name}").card == name
