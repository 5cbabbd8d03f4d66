"""One record per GPU card, and the texts that name cards in targets: ``sm_90a:132:h200``.

Sizes and peaks are those of NVIDIA's data sheets for dense operands, unless ``measured``. Sheets count what the memory
could move; ``_SUSTAINED`` of it is what a large copy reaches on the cards that were measured. NOTE: the common cards of
archs but sm_90a have the whole figure, with which their untuned choices were made; none of them was measured.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tilesmith.targets.target import Card

_MIB = 1024 * 1024
_SUSTAINED = 0.9
# Words of a device's name that do not tell cards apart.
_NOISE = frozenset(("nvidia", "geforce", "quadro", "tesla", "graphics", "gpu", "device"))
CARD_TEXT = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
CARD_LENGTH = 48


def card_text(device_name: str) -> str:
    """The card of a device that its driver calls ``device_name``: ``NVIDIA H100 PCIe`` is ``h100-pcie``.

    Lower-case words and numbers of the name joined by hyphens, without the maker's; ``generic`` if none is left.
    """
    words = [word for word in re.findall(r"[a-z0-9]+", device_name.lower()) if word not in _NOISE]
    return "-".join(words)[:CARD_LENGTH].strip("-") or GENERIC


GENERIC = "generic"  # a card, or a processor, of which nothing is known

_A100_80 = Card(
    name="a100-sxm4-80gb", arch="sm_80", cores=108, l2_bytes=40 * _MIB, clock_hz=1.41e9,
    bytes_per_s=_SUSTAINED * 2.039e12, bf16_flops=312e12, fp8_flops=0.0, int8_flops=624e12, tf32_flops=156e12,
    fp32_flops=19.5e12, fp64_flops=19.5e12, of_sheet=(1.0, _SUSTAINED),
)  # fmt: skip
_A100_40 = replace(_A100_80, name="a100-sxm4-40gb", bytes_per_s=1.555e12, of_sheet=(1.0, 1.0))
_A10 = Card(
    name="a10", arch="sm_86", cores=72, l2_bytes=6 * _MIB, clock_hz=1.695e9, bytes_per_s=_SUSTAINED * 0.6e12,
    bf16_flops=125e12, fp8_flops=0.0, int8_flops=250e12, tf32_flops=62.5e12, fp32_flops=31.2e12, fp64_flops=0.49e12,
    of_sheet=(1.0, _SUSTAINED),
)  # fmt: skip
_A40 = replace(
    _A10, name="a40", cores=84, clock_hz=1.74e9, bytes_per_s=0.696e12, bf16_flops=149.7e12, int8_flops=299e12,
    tf32_flops=74.8e12, fp32_flops=37.4e12, fp64_flops=0.58e12, of_sheet=(1.0, 1.0),
)  # fmt: skip
_ORIN = Card(
    name="orin", arch="sm_87", cores=16, l2_bytes=4 * _MIB, clock_hz=1.3e9, bytes_per_s=0.204e12, bf16_flops=42e12,
    fp8_flops=0.0, int8_flops=85e12, tf32_flops=21e12, fp32_flops=5.3e12, fp64_flops=0.083e12,
)  # fmt: skip
_L40S = Card(
    name="l40s", arch="sm_89", cores=142, l2_bytes=96 * _MIB, clock_hz=2.49e9, bytes_per_s=0.864e12, bf16_flops=362e12,
    fp8_flops=724e12, int8_flops=724e12, tf32_flops=181e12, fp32_flops=90.5e12, fp64_flops=1.4e12,
)  # fmt: skip
_L4 = replace(
    _L40S, name="l4", cores=58, l2_bytes=48 * _MIB, clock_hz=2.04e9, bytes_per_s=_SUSTAINED * 0.3e12, bf16_flops=121e12,
    fp8_flops=242e12, int8_flops=242e12, tf32_flops=60e12, fp32_flops=30.3e12, fp64_flops=0.47e12,
    of_sheet=(1.0, _SUSTAINED),
)  # fmt: skip
_RTX_4090 = replace(
    _L40S, name="rtx-4090", cores=128, l2_bytes=72 * _MIB, clock_hz=2.52e9, bytes_per_s=_SUSTAINED * 1.008e12,
    bf16_flops=165e12, fp8_flops=330e12, int8_flops=661e12, tf32_flops=82.6e12, fp32_flops=82.6e12, fp64_flops=1.3e12,
    of_sheet=(1.0, _SUSTAINED),
)  # fmt: skip
_H200 = Card(
    name="h200",
    arch="sm_90a",
    cores=132,
    l2_bytes=60 * _MIB,
    clock_hz=1.755e9,
    # A large copy, and a large matrix product on random numbers.
    bytes_per_s=4.3e12,
    bf16_flops=790e12,
    fp8_flops=1580e12,
    int8_flops=1580e12,
    tf32_flops=395e12,
    fp32_flops=60e12,
    fp64_flops=60e12,
    measured=True,
    of_sheet=(790 / 989.4, 4.3 / 4.8),
)
# The same chip with other memory; the matrix products of one draw the same power.
_H100_SXM = replace(
    _H200,
    name="h100-80gb-hbm3",
    l2_bytes=50 * _MIB,
    bytes_per_s=_SUSTAINED * 3.35e12,
    measured=False,
    of_sheet=(790 / 989.4, _SUSTAINED),
)
_H100_PCIE = replace(
    _H100_SXM, name="h100-pcie", cores=114, bytes_per_s=_SUSTAINED * 2.039e12, bf16_flops=600e12, fp8_flops=1200e12,
    int8_flops=1200e12, tf32_flops=300e12, fp32_flops=51e12, fp64_flops=51e12,
)  # fmt: skip
_H100_NVL = replace(_H100_SXM, name="h100-nvl", bytes_per_s=_SUSTAINED * 3.938e12)
_GH200 = replace(_H100_SXM, name="gh200-480gb", bytes_per_s=_SUSTAINED * 4.0e12)
_B200 = Card(
    name="b200", arch="sm_100a", cores=148, l2_bytes=126 * _MIB, clock_hz=1.85e9, bytes_per_s=7.7e12,
    bf16_flops=2250e12, fp8_flops=4500e12, int8_flops=4500e12, tf32_flops=1125e12, fp32_flops=75e12, fp64_flops=37e12,
)  # fmt: skip
_RTX_5090 = Card(
    name="rtx-5090", arch="sm_120a", cores=170, l2_bytes=96 * _MIB, clock_hz=2.4e9, bytes_per_s=1.79e12,
    bf16_flops=419e12, fp8_flops=838e12, int8_flops=838e12, tf32_flops=209e12, fp32_flops=104e12, fp64_flops=1.6e12,
)  # fmt: skip

# The first of each arch is its common card: a target that names no card is for it.
CARDS: dict[str, Card] = {
    card.name: card
    for card in (
        _A100_40, _A100_80, _A40, _A10, _ORIN, _L40S, _L4, _RTX_4090, _H200, _H100_SXM, _H100_PCIE, _H100_NVL, _GH200,
        _B200, _RTX_5090,
    )
}  # fmt: skip


_LIKE = {"compute_80": "sm_86", "compute_89": "sm_89"}  # PTX is for cards that nobody knows yet


def common_card(arch: str) -> Card:
    """The card that a target of ``arch`` is for when it names none."""
    like = _LIKE.get(arch, arch)
    return next(card for card in CARDS.values() if card.arch == like)


def like_cards(arch: str, name: str) -> tuple[str, ...]:
    """Recorded cards of ``arch`` that begin like ``name``, which has no record: ``h100`` is short for three cards.

    Empty for a card that has one, or that no record is like.
    """
    model = name.partition("-")[0]
    return () if name in CARDS else tuple(
        card.name for card in CARDS.values() if card.arch == arch and card.name.partition("-")[0] == model
    )  # fmt: skip


def card_of(arch: str, name: str, cores: int, clock_hz: float = 0.0, bytes_per_s: float = 0.0) -> Card:
    """The facts of a card with ``cores`` SMs: its record's, else an estimate.

    An estimate takes ``clock_hz`` and ``bytes_per_s`` (what the memory could move) as the driver reports them, 0 where
    it does not, and the rest from the arch's common card. Peaks grow with SMs and clock.
    """
    record = CARDS.get(name)
    if record is not None and record.arch == arch:
        return record if cores == record.cores else _scaled(record, cores, record.clock_hz)
    common = common_card(arch)
    guess = _scaled(common, cores, clock_hz or common.clock_hz)
    moved = _SUSTAINED * bytes_per_s or common.bytes_per_s * cores / common.cores
    share = (common.of_sheet[0], _SUSTAINED if bytes_per_s else common.of_sheet[1])
    return replace(guess, name=name, bytes_per_s=moved, measured=False, estimated=True, of_sheet=share)


def _scaled(card: Card, cores: int, clock_hz: float) -> Card:
    """``card`` with another number of SMs, at another clock."""
    share = cores / card.cores * clock_hz / card.clock_hz
    return replace(
        card, cores=cores, clock_hz=clock_hz, bf16_flops=card.bf16_flops * share, fp8_flops=card.fp8_flops * share,
        int8_flops=card.int8_flops * share, tf32_flops=card.tf32_flops * share, fp32_flops=card.fp32_flops * share,
        fp64_flops=card.fp64_flops * share,
    )  # fmt: skip
