"""Writes the C runtime's tables of machines and mends from Python's: ``python tests/runtime/machine_tables.py``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import tilesmith.runtime
from tilesmith.plan.withdrawn import MENDS
from tilesmith.targets import cards, cpu, cuda, detect

CSRC = Path(tilesmith.runtime.__file__).parent / "csrc"


def files() -> dict[str, str]:
    """The name and text of each file."""
    return {
        "ts_target_tables.h": target_tables(),
        "ts_machine_tables.h": machine_tables(),
        "ts_withdrawn_table.h": withdrawn_table(),
    }


def target_tables() -> str:
    """What ``targets/names.py`` reads: which archs and cards there are."""
    sets = list(dict.fromkeys(each.zig_target for each in cpu.CPU_TARGETS.values()))
    archs = [(name, sets.index(each.zig_target)) for name, each in cpu.CPU_TARGETS.items()]
    return whole(
        "TS_TARGET_TABLES_H",
        "/* CPUs, of one instruction set the lowest first: each runs what those before it run. */\n",
        table("cpu_archs", "char arch[]; int instruction_set;", archs),
        "/* GPUs; code of those that are `portable` runs on later minors of the same major. PTX runs on all that is\n"
        " * later; `like` is the arch of its common card. */\n",
        table("cuda_archs", "char arch[]; int major, minor, portable, is_ptx; char like[];", cuda_rows()),
        "/* The first of each arch is its common card. */\n",
        table("cards", "char name[], arch[]; uint32_t cores;", card_rows()),
    )


def cuda_rows() -> list[tuple[object, ...]]:
    return [
        (name, each.cc_major, each.cc_minor, name[-1] != "a", name in cuda.PTX_ARCHS, cards.common_card(name).arch)
        for name, each in cuda.GPU_ARCHS.items()
    ]


def card_rows() -> list[tuple[object, ...]]:
    return [(card.name, card.arch, card.cores) for card in cards.CARDS.values()]


def machine_tables() -> str:
    """What ``targets/detect.py`` and ``targets/detect_cuda.py`` read: names for what a machine tells of itself."""
    intel = sorted((model, name) for name, models in detect._INTEL.items() for model in models)
    return whole(
        "TS_MACHINE_TABLES_H",
        "/* x86-64: the features that each arch adds to the one before it. */\n",
        table("x86_levels", "char arch[]; uint32_t adds;", ((arch, Flags(adds)) for arch, adds in cpu._X86_LEVELS)),
        "/* cpuid's text, and what targets call the maker. */\n",
        table("makers", "char vendor[], maker[];", detect._MAKERS.items()),
        "/* AMD: family, first and last model. */\n",
        table("amd", "uint8_t family, first, last; char name[];", ((*k, v) for k, v in detect._AMD.items())),
        "/* Intel: models of family 6. */\n",
        table("intel", "uint8_t model; char name[];", intel),
        "/* Arm: who made the core, and which one it is. */\n",
        table("arm", "uint16_t implementer, part; char name[];", ((*k, v) for k, v in detect._ARM.items())),
        "/* Words of a device's name that do not tell cards apart. */\n",
        f"static const char noise[][{1 + max(map(len, cards._NOISE))}] = {{"
        + ", ".join(map(shown, sorted(cards._NOISE)))
        + "};\n\n",
    )


def withdrawn_table() -> str:
    """What ``plan/withdrawn.py`` reads."""
    rows = [(each.solver, each.problem, each.config, each.wrong) for each in MENDS]
    head = "/* Written by tests/runtime/machine_tables.py from plan/withdrawn.py; a test compares. */\n"
    return guarded(
        head, "TS_WITHDRAWN_TABLE_H", "", table("mends", "char solver[], problem[], config[], wrong[];", rows)
    )


class Flags(frozenset[str]):
    """Names of features, shown as C's constants for them."""

    def __str__(self) -> str:
        return " | ".join(f"HAS_{name.upper()}" for name in sorted(self))


def whole(guard: str, *parts: str) -> str:
    head = "/* Written by tests/runtime/machine_tables.py from targets/, where new machines go; a test compares. */\n"
    return guarded(head, guard, '#include "ts_target.h"\n\n', *parts)


def guarded(head: str, guard: str, includes: str, *parts: str) -> str:
    begin = f"#ifndef {guard}\n#define {guard}\n\n{includes}/* clang-format off */\n"
    return "".join((head, begin, *parts, "/* clang-format on */\n\n#endif\n"))


def table(name: str, fields: str, rows: Iterable[Iterable[object]]) -> str:
    """One constant array. Its texts, ``name[]``, lie in it: a pointer would cost a library a relocation."""
    found = [tuple(each) for each in rows]
    for column, field in enumerate(re.findall(r"(\w+(?:\[\])?)[,;]", fields)):
        if field.endswith("[]"):
            width = 1 + max(len(str(each[column])) for each in found)
            fields = fields.replace(field, f"{field[:-1]}{width}]")
    lines = "".join(f"  {{{', '.join(map(shown, each))}}},\n" for each in found)
    return f"static const struct {{ {fields} }} {name}[] = {{\n{lines}}};\n\n"


def shown(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(int(value)) if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    for file_name, text in files().items():
        (CSRC / file_name).write_text(text)
