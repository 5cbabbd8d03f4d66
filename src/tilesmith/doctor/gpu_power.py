"""The power limit and the clocks of GPUs, as nvidia-smi tells them: a card that is held back gives other times."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from tilesmith.doctor.check import FINE, NOTE, Check
from tilesmith.targets.detect_cuda import has_cuda

_SECONDS = 20.0
_FIELDS = (
    "index", "name", "power.limit", "power.default_limit", "clocks.max.sm", "clocks.applications.graphics",
    "clocks.default_applications.graphics", "clocks_throttle_reasons.active", "temperature.gpu",
)  # fmt: skip
# Bits of the reasons for which a clock is low now (NVML); an idle card, and an application's own setting, are none.
_REASONS = {
    0x4: "its power limit", 0x8: "a hardware slowdown", 0x20: "its temperature", 0x40: "its temperature (hardware)",
    0x80: "the power supply's brake",
}  # fmt: skip


@dataclass(frozen=True)
class CardState:
    """Watts, MHz and degrees Celsius; None where the driver does not tell."""

    index: str
    name: str
    limit_w: float | None
    usual_w: float | None
    most_mhz: float | None
    set_mhz: float | None
    usual_mhz: float | None
    reasons: int
    degrees: float | None


def gpu_power() -> Iterator[Check]:
    """One check for each card that nvidia-smi lists."""
    if not has_cuda():
        return
    if shutil.which("nvidia-smi") is None:
        yield Check("gpu clocks", NOTE, "no nvidia-smi here: the power limit and the clocks are not known")
        return
    query = ["nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Check("gpu clocks", NOTE, f"nvidia-smi gives no answer ({error})")
        return
    if done.returncode:
        told = (done.stdout or done.stderr).strip().splitlines()
        yield Check("gpu clocks", NOTE, f"nvidia-smi fails: {told[-1] if told else done.returncode}")
        return
    for line in done.stdout.splitlines():
        if line.strip():
            yield judged(read_state(line))


def read_state(line: str) -> CardState:
    """One line of nvidia-smi's answer."""
    index, name, *rest = (part.strip() for part in line.split(","))
    limit, usual, most, own, usual_mhz, reasons, degrees = rest
    bits = int(reasons, 16) if reasons.startswith("0x") else 0
    return CardState(
        index, name, _number(limit), _number(usual), _number(most), _number(own), _number(usual_mhz), bits,
        _number(degrees),
    )  # fmt: skip


def judged(card: CardState) -> Check:
    """A card below its usual limits is worth knowing: its times are not those of others like it."""
    what = f"GPU {card.index} {card.name}: power limit {_shown(card.limit_w)} W (usual {_shown(card.usual_w)} W), "
    what += f"clock up to {_shown(card.most_mhz)} MHz, {_shown(card.degrees)} degrees"
    notes, advice = [], ""
    if card.limit_w is not None and card.usual_w is not None and card.limit_w < card.usual_w - 0.5:
        notes.append("the power limit is lowered")
        advice = f"nvidia-smi -i {card.index} -pl {card.usual_w:.0f} (needs root)"
    if card.set_mhz is not None and card.usual_mhz is not None and card.set_mhz < card.usual_mhz:
        notes.append(f"the clock is set to {card.set_mhz:.0f} MHz, usual {card.usual_mhz:.0f}")
        advice = advice or f"nvidia-smi -i {card.index} -rac (needs root)"
    slowed = [text for bit, text in _REASONS.items() if card.reasons & bit]
    if slowed:
        notes.append(f"slowed now by {' and '.join(slowed)}")
    if not notes:
        return Check("gpu clocks", FINE, what)
    return Check("gpu clocks", NOTE, f"{what}; {', '.join(notes)}: times are not those of other such cards", advice)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # such as [N/A]
        return None


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f}"
