"""Records of versions whose targets named no card (``sm_90a:132``): they get the card that their host names."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from tilesmith.db.records import Record
from tilesmith.targets.cards import GENERIC, card_text
from tilesmith.targets.cpu import CPU_TARGETS
from tilesmith.targets.cuda import GPU_ARCHS
from tilesmith.targets.detect import cpu_model, host_cpu

_GPU_HOST = re.compile(r"(.+), driver [0-9.]+")
_CPU_HOST = re.compile(r"(.*) x[0-9]+, .*")


@dataclass(frozen=True)
class Processor:
    """This machine's: the model as hosts of records spell it, the arch, and its name in targets."""

    model: str
    arch: str
    card: str


@lru_cache(maxsize=1)
def processor_of_host() -> Processor:
    found = host_cpu()
    return Processor(cpu_model(), found.arch, found.card)


def with_card(target: str, host: str, here: Processor | None = None) -> str:
    """``target`` with a card, from the ``host`` of its record; a target that has one, or is not ours, as it is.

    A GPU's card is in its host's name. A CPU's host says its model alone: where model and arch are those of this
    machine (``here``), its processor is this machine's, else ``generic``.
    """
    arch, *rest = target.split(":")
    if len(rest) != 1 or not rest[0].isdecimal():
        return target
    if arch in GPU_ARCHS:
        match = _GPU_HOST.fullmatch(host)
        return f"{target}:{card_text(match[1]) if match else GENERIC}"
    if arch not in CPU_TARGETS:
        return target
    here = here or processor_of_host()
    match = _CPU_HOST.fullmatch(host)
    same = match is not None and (match[1], arch) == (here.model, here.arch)
    return f"{target}:{here.card if same else GENERIC}"


def named(record: Record) -> Record:
    """The record with a card in its target."""
    target = with_card(record.target, record.host)
    return record if target == record.target else replace(record, target=target)


def without_card(target: str) -> str:
    """The name that a target had in versions without cards."""
    return target.rpartition(":")[0] if target.count(":") == 2 else target
