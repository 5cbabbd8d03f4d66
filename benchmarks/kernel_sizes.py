"""What kernels add to packages: their bytes, as they are and as they are stored, by solver.

python benchmarks/kernel_sizes.py [--encodings] PACKAGE...

A package is what `tilesmith package build LIST --target sm_90a:132:h200 -o DIR` writes. *code* is the machine code
alone, stored in the same way; the rest is what loads it: symbols, registers, sizes. ``--encodings`` prints what other
encodings of the same kernels would take. Exit status 1 if a kernel adds more than 10 kB to a package, or 60 kB to a
library: one for processors is linked into it whole, one for GPUs is stored there as in a package.
"""

from __future__ import annotations

import hashlib
import lzma
import sys
import zlib
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import mean

from tilesmith.package.files import PackageFile
from tilesmith.package.records import Kind, PackageEntry, new_entry
from tilesmith.plan.serial import decode
from tilesmith.targets.names import parse_target
from tilesmith.targets.target import CudaTarget
from tilesmith.toolchain.elf import code_of as machine_code
from tilesmith.toolchain.elf import machine_of

LIMIT = 10_000  # bytes that a kernel may add to a package
LINKED_LIMIT = 60_000  # and to a library
_INSTRUCTION = 16  # bytes
_REGISTERS = (2, 3, 4, 8)  # bytes of an instruction: the result, and the three operands


@dataclass(frozen=True)
class Kernel:
    solver: str
    config: str
    bytes: int
    stored: int
    code: int
    plans: int  # that count it
    linked: int  # bytes that it adds to a library


def main() -> int:
    paths = list(map(Path, sys.argv[1 + ("--encodings" in sys.argv[1:2]) :]))
    if not paths:
        sys.exit(__doc__)
    if "--encodings" in sys.argv:
        return encodings(paths)
    kernels = [kernel for path in paths for kernel in kernels_of(PackageFile(path))]
    print("| solver | kernels | bytes, mean | largest | stored, mean | code, mean | stored, largest | above 10 kB |")
    print("|---|---|---|---|---|---|---|---|")
    by_solver = defaultdict(list)
    for kernel in kernels:
        by_solver[kernel.solver].append(kernel)
    for solver, group in (*sorted(by_solver.items()), ("all", kernels)):
        whole, kept, code = (mean(getattr(each, name) for each in group) for name in ("bytes", "stored", "code"))
        largest, most = max(each.bytes for each in group), max(each.stored for each in group)
        above = sum(each.stored > LIMIT for each in group)
        print(f"| {solver} | {len(group)} | {whole:.0f} | {largest} | {kept:.0f} | {code:.0f} | {most} | {above} |")
    large = [each for each in kernels if each.stored > LIMIT or each.linked > LINKED_LIMIT]
    for kernel in sorted(large, key=lambda each: -each.stored):
        print(f"{kernel.bytes} bytes, {kernel.stored} stored, {kernel.plans} plans: {kernel.solver} {kernel.config}")
    return int(bool(large))


def kernels_of(package: PackageFile) -> list[Kernel]:
    binaries: dict[str, PackageEntry] = {}
    counted = defaultdict(list)
    for entry in package.entries():
        if entry.kind == Kind.BINARY:
            binaries[entry.name] = entry
        elif entry.kind == Kind.PLAN:
            plan = decode(entry.content())
            for digest in plan.artifacts:
                counted[digest].append((plan.solver.partition("@")[0], plan.config))
    on_gpu = isinstance(parse_target(package.manifest.target), CudaTarget)
    return [
        Kernel(
            *counted[name][0], entry.size, len(entry.stored), code_bytes(entry.content()), len(counted[name]),
            len(entry.stored) if on_gpu else entry.size,
        )
        for name, entry in binaries.items()
    ]  # fmt: skip


def stored(data: bytes) -> bytes:
    """As a package has a binary."""
    return new_entry(Kind.BINARY, hashlib.sha256(data).hexdigest(), data).stored


def encodings(paths: list[Path]) -> int:
    """Print the bytes of all kernels under other encodings, and how many are above ``LIMIT`` under each."""
    solvers, found = dict[bytes, str](), dict[str, bytes]()
    for package in map(PackageFile, paths):
        binaries = [entry for entry in package.entries() if entry.kind == Kind.BINARY]
        for entry, kernel in zip(binaries, kernels_of(package), strict=True):
            found[entry.name] = entry.content()
            solvers[found[entry.name]] = kernel.solver
    elfs = sorted(found.values(), key=lambda elf: -deflated(elf))
    common = b"".join(sorted(elfs, key=len)[len(elfs) // 4 :][:2])
    taken = {
        "as packages have them": [len(stored(elf)) for elf in elfs],
        "deflated": [deflated(elf) for elf in elfs],
        "xz": [len(lzma.compress(elf, preset=9 | lzma.PRESET_EXTREME)) for elf in elfs],
        "code alone, deflated": [deflated(code_of(elf)) for elf in elfs],
        "code alone, its bytes grouped by their place in 16, deflated": [
            deflated(b"".join(code_of(elf)[place::16] for place in range(16))) for elf in elfs
        ],
        "code alone, as packages have it": [len(stored(code_of(elf))) for elf in elfs],
        "code alone, the halves of its instructions apart, the same": [
            len(stored(halves(code_of(elf), 8))) for elf in elfs
        ],
        "code alone, its words of 4 bytes by their place in 16, the same": [
            len(stored(halves(code_of(elf), 4))) for elf in elfs
        ],
        "code alone, registers as differences from the last instruction of their kind, the same": [
            len(stored(differences(code_of(elf)))) for elf in elfs
        ],
        "as packages have them; LZMA after the best of six smaller kernels of its solver where above": based(solvers),
        "deflated after a dictionary of two kernels": [deflated(elf, common) for elf in elfs],
        "deflated after the next larger kernel": [deflated(*pair) for pair in zip(elfs, [b"", *elfs], strict=False)],
    }
    print("| encoding | bytes | the largest | above 10 kB |")
    print("|---|---|---|---|")
    for name, each in taken.items():
        print(f"| {name} | {sum(each)} | {max(each)} | {sum(nbytes > LIMIT for nbytes in each)} |")
    return 0


def based(solvers: dict[bytes, str]) -> list[int]:
    """Stored bytes of each kernel, a key of ``solvers``. A kernel above ``LIMIT`` is LZMA that goes on from a kernel of
    the same solver, of the six largest up to ``LIMIT`` that which leaves the fewest bytes: what both streams begin with
    is stored once."""
    alone = {elf: len(stored(elf)) for elf in solvers}
    smaller = sorted((elf for elf in alone if alone[elf] <= LIMIT), key=lambda elf: -alone[elf])
    taken = []
    for elf, nbytes in alone.items():
        bases = [base for base in smaller if solvers[base] == solvers[elf]][:6] if nbytes > LIMIT else []
        taken.append(min([nbytes, *(len(streamed(base + elf)) - len(streamed(base)) for base in bases)]))
    return taken


@lru_cache(16)
def streamed(data: bytes) -> bytes:
    """The raw stream of LZMA with the parameters of packages, and one window for all."""
    how = {"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 20, "lc": 1, "lp": 2, "pb": 3}
    return lzma.compress(data, format=lzma.FORMAT_RAW, filters=[how])


def halves(code: bytes, nbytes: int) -> bytes:
    """The first ``nbytes`` of all instructions, then the next ones of all, and so on."""
    places = range(0, _INSTRUCTION, nbytes)
    return b"".join(
        code[at + place : at + place + nbytes] for place in places for at in range(0, len(code), _INSTRUCTION)
    )


def differences(code: bytes) -> bytes:
    """Each register as its difference from that of the last instruction with the same opcode."""
    changed, last = bytearray(code), dict[bytes, int]()
    for at in range(0, len(code), _INSTRUCTION):
        before = last.get(code[at : at + 2])
        if before is not None:
            for place in _REGISTERS:
                changed[at + place] = (code[at + place] - code[before + place]) & 0xFF
        last[code[at : at + 2]] = at
    return bytes(changed)


def deflated(data: bytes, before: bytes = b"") -> int:
    """Bytes of ``data`` deflated, with what can be repeated of ``before``."""
    window = [before[-32768:]] if before else []
    stream = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, *window)
    return len(stream.compress(data) + stream.flush())


def code_bytes(image: bytes) -> int:
    """Stored bytes of the sections of machine code; all of what is no ELF file."""
    return len(stored(code_of(image)))


def code_of(image: bytes) -> bytes:
    """The sections of machine code; all of what is no ELF file."""
    return machine_code(image) if machine_of(image) else image


if __name__ == "__main__":
    sys.exit(main())
