"""The tables of a library in C: its packages as constants, and which function each plan's digest means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.package.embed.arrays import byte_array, text_literal, word_array, word_count
from tilesmith.package.embed.names import private
from tilesmith.package.embed.records import Library, LinkedKernel, TargetPart
from tilesmith.package.form import encode
from tilesmith.targets.target import CpuTarget

_ENDIAN = '#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__\n#error "packages are little-endian"\n#endif\n'
_PARAMETERS = "void *const *, const int64_t *, void *, int64_t, int64_t"


@dataclass(frozen=True)
class ArchKernels:
    """The kernels of one CPU arch, each once, and the parts whose plans count them."""

    target: CpuTarget
    kernels: tuple[LinkedKernel, ...]
    parts: tuple[TargetPart, ...]

    @property
    def arch(self) -> str:
        return self.target.arch


def by_arch(library: Library) -> tuple[ArchKernels, ...]:
    """The kernels of each arch: targets of one arch with other numbers of cores share them."""
    archs: dict[str, list[TargetPart]] = {}
    for part in library.parts:
        if isinstance(part.target, CpuTarget):
            archs.setdefault(part.target.arch, []).append(part)
    found = []
    for parts in archs.values():
        kernels = {kernel.symbol: kernel for part in parts for kernel in part.kernels}
        first = parts[0].target
        assert isinstance(first, CpuTarget)
        found.append(ArchKernels(first, tuple(kernels[symbol] for symbol in sorted(kernels)), tuple(parts)))
    return tuple(found)


def identifier(text: str) -> str:
    """A target's or arch's name as a part of names in C."""
    return re.sub(r"[^A-Za-z0-9]", "_", text)


def pair_of(part: TargetPart) -> str:
    """``arch_cores``, as MIOpen names targets."""
    return f"{part.target.arch}_{part.target.cores}"


def parts_header(library: Library) -> str:
    """Which parts this compilation has: those of GPUs, and those whose processor the compiler makes code for."""
    lines = [f"/* The targets of {library.name} that this compilation has. Generated. */\n"]
    for part in library.parts:
        flag = _has(part)
        rule = [f"defined(__{part.machine}__)"] if part.machine else []
        rule.append(f"!defined({library.name.upper()}_WITHOUT_{identifier(pair_of(part))})")
        lines.append(f"#if {' && '.join(rule)}\n#define {flag} 1\n#else\n#define {flag} 0\n#endif\n")
    return "".join(lines)


def package_text(library: Library, part: TargetPart) -> str:
    """The C file of a part's package."""
    data = encode(part.package)
    return (
        f"/* The package of {part.target.name}: plans, rows{'' if part.machine else ', kernels'}. Generated. */\n"
        f'#include "{library.name}_parts.h"\n\n#include <stdint.h>\n\n'
        f"extern const uint64_t {_array(library, part)}[{word_count(data)}];\n\n"
        f"#if {_has(part)}\n{_ENDIAN}"
        f"const uint64_t {_array(library, part)}[{word_count(data)}] = {{\n{word_array(data)}}};\n#endif\n"
    )


def kernel_text(library: Library, kernel: LinkedKernel, machine: str) -> str:
    """The C file of a kernel, under the library's own name for it."""
    return (
        f"#if defined(__{machine}__)\n#define {kernel.symbol} {private(library.name, kernel.symbol)}\n"
        f"{kernel.text}#else\n/* Not of this processor; ISO C wants a declaration. */\n"
        f"typedef int {private(library.name, 'nothing')};\n#endif\n"
    )


def contents_text(library: Library) -> str:
    """The C file of ``ts_library_contents``: with the packages of this compilation's targets and their kernels."""
    archs = by_arch(library)
    declared = "".join(
        f"void {private(library.name, kernel.symbol)}({_PARAMETERS});\n" for each in archs for kernel in each.kernels
    )
    packages = "".join(
        f"#if {_has(part)}\n    {{{_array(library, part)}, {len(encode(part.package))}u}},\n#endif\n"
        for part in library.parts
    )
    return (
        f"/* What {library.name} holds. Generated. */\n"
        f'#include "{library.name}_parts.h"\n#include "ts_library_data.h"\n\n'
        + "".join(f"extern const uint64_t {_array(library, part)}[];\n" for part in library.parts)
        + f"\n{declared}\nstatic const ts_library_package packages[] = {{\n{packages}    {{0, 0}}}};\n\n"
        + _artifacts(library, archs)
        + "\nconst ts_library_data ts_library_contents = {\n"
        f"    {text_literal(library.name)},\n    {text_literal(f'{library.name} {library.version}')},\n"
        "    sizeof packages / sizeof *packages - 1,\n    sizeof artifacts / sizeof *artifacts - 1,\n"
        "    packages,\n    artifacts};\n"
    )


def _artifacts(library: Library, archs: Sequence[ArchKernels]) -> str:
    """The table of digests, ascending; one row without a kernel ends it, as C has no empty arrays."""
    rows = sorted(((kernel.digest, kernel, each) for each in archs for kernel in each.kernels), key=lambda row: row[0])
    kernels, artifacts = [], []
    for number, (digest, kernel, each) in enumerate(rows):
        rule = f"#if {' || '.join(_has(part) for part in each.parts)}\n"
        entry = f"{{{text_literal(kernel.symbol)}, {private(library.name, kernel.symbol)}}}"
        kernels.append(f"{rule}static const ts_library_kernel kernel_{number} = {entry};\n#endif\n")
        artifacts.append(f"{rule}    {{{{{byte_array(bytes.fromhex(digest))}}}, 1, &kernel_{number}}},\n#endif\n")
    table = "".join(artifacts)
    return f"{''.join(kernels)}\nstatic const ts_library_artifact artifacts[] = {{\n{table}    {{{{0}}, 0, 0}}}};\n"


def _has(part: TargetPart) -> str:
    return f"HAS_{identifier(part.target.name)}"


def _array(library: Library, part: TargetPart) -> str:
    return private(library.name, f"package_{identifier(part.target.name)}")
