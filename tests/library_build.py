"""A C library of real problems as `tilesmith embed` makes one: plans in a package, kernels linked in."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tilesmith.runtime
from tilesmith.package.form import encode as package_bytes
from tilesmith.package.making import PackedPlan, make_package
from tilesmith.package.records import KernelPackage, Kind, Manifest
from tilesmith.plan.assemble import assemble
from tilesmith.plan.records import Plan, Source
from tilesmith.plan.serial import encode
from tilesmith.problems.rewrite import Signature
from tilesmith.runtime.executable import Executable
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import candidates
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import Artifact, ArtifactCache
from tilesmith.toolchain.compilers import find_compiler
from tilesmith.toolchain.toolchains import unit_text

CSRC = Path(tilesmith.runtime.__file__).parent / "csrc"
TYPES = (CSRC / "ts_types.h").read_text()
_C = {
    "uint32_t": ctypes.c_uint32, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "double": ctypes.c_double,
    "void *": ctypes.c_void_p, "const char *": ctypes.c_char_p, "char ": ctypes.c_char,
}  # fmt: skip


def record(name: str) -> type[ctypes.Structure]:
    """A record of ``ts_types.h``."""
    (body,) = re.findall(rf"typedef struct {name} {{\n(.*?)\n}} {name};", TYPES, re.S)
    found = re.findall(r"^  (\w+ ?\w* ?\*?)(?<=[ *])(\w+)(?:\[(\d+)\])?;", body, re.M)
    kinds = {kind.strip(): known for kind, known in _C.items()}
    fields = [(each, kinds[kind.strip()] * int(count) if count else kinds[kind.strip()]) for kind, each, count in found]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


@dataclass(frozen=True)
class Made:
    """A plan with its binaries and the texts that they were compiled from."""

    signature: Signature
    plan: Plan
    artifacts: tuple[Artifact, ...]
    sources: tuple[Source, ...]

    @property
    def executable(self) -> Executable:
        return Executable(self.plan, self.artifacts)


def make(
    signature: Signature, target: Target, cache: ArtifactCache, count: int = 1, solver: str | None = None
) -> list[Made]:
    """The first solvers' plans, or that of one solver, with their default configs."""
    named = None if solver is None else (solver,)
    found = [each for each in candidates(signature, target, named) if isinstance(each.verdict, Accepted)]
    made = []
    for candidate in found[:count]:
        config = candidate.solver.default_config(candidate.geometry, target)
        draft = candidate.solver.draft(candidate.geometry, config, target)
        built = [cache.get_or_build(source, target) for source in draft.sources]
        plan = assemble(draft, signature, candidate.name, str(config), target, [each.digest for each in built])
        of = {each.digest: each for each in built}
        made.append(Made(signature, plan, tuple(of[digest] for digest in plan.artifacts), draft.sources))
    return made


def package_of(plans: Sequence[Made], target: str, *, linked: bool = False, times: Sequence[float] = ()) -> bytes:
    """A package's bytes; ``linked``: without the binaries, which are compiled into the program."""
    packed = [PackedPlan(encode(each.plan), 1, *times[i : i + 1]) for i, each in enumerate(plans)]
    binaries = {artifact.digest: artifact.data for each in plans for artifact in each.artifacts}
    made = make_package(Manifest("test", target, "tilesmith 0", "0" * 16), packed, binaries)
    if linked:
        made = KernelPackage(made.manifest, tuple(e for e in made.entries if e.kind != Kind.BINARY))
    return package_bytes(made)


def contents(packages: Sequence[bytes], plans: Sequence[Made]) -> str:
    """The C text of ``ts_library_contents``."""
    kernels: dict[str, set[str]] = {}
    for each in plans:
        for step in (*each.plan.prepare, *each.plan.run):
            if hasattr(step, "symbol"):
                kernels.setdefault(each.plan.artifacts[step.artifact], set()).add(step.symbol)
    lines = ['#include "ts_library_data.h"']
    for symbol in sorted({symbol for each in kernels.values() for symbol in each}):
        lines.append(f"void {symbol}(void *const *, const int64_t *, void *, int64_t, int64_t);")
    for at, data in enumerate(packages):
        lines.append(f"static const unsigned char package{at}[] = {{{','.join(map(str, data))}}};")
    rows, tables = [], []
    for at, (digest, symbols) in enumerate(sorted(kernels.items())):
        entries = ", ".join(f'{{"{symbol}", {symbol}}}' for symbol in sorted(symbols))
        tables.append(f"static const ts_library_kernel kernels{at}[] = {{{entries}}};")
        octets = ",".join(f"0x{digest[i : i + 2]}" for i in range(0, 64, 2))
        rows.append(f"{{{{{octets}}}, {len(symbols)}, kernels{at}}}")
    places = ", ".join(f"{{package{at}, sizeof package{at}}}" for at in range(len(packages)))
    return "\n".join([
        *lines, *tables, f"static const ts_library_package packages[] = {{{places}}};",
        f"static const ts_library_artifact artifacts[] = {{{', '.join(rows)}}};",
        f'const ts_library_data ts_library_contents = {{"deconv", "deconv 1.2", {len(packages)}, {len(rows)}, '
        "packages, artifacts};", "",
    ])  # fmt: skip


@dataclass(frozen=True)
class Build:
    """The files of a library in one folder."""

    folder: Path
    plans: tuple[Made, ...]
    target: Target
    packages: tuple[bytes, ...]
    compiler: tuple[str, ...] = field(default_factory=lambda: find_compiler().command)

    def write(self) -> None:
        """The kernels' object and the text of the contents."""
        (self.folder / "contents.c").write_text(contents(self.packages, self.plans))
        sources = [source for each in self.plans for source in each.sources if source.language == "c"]
        if not sources:
            return
        (self.folder / "kernels.c").write_text(unit_text(sources))
        flags = [f for f in find_compiler().flags(self.target) if f != "-shared" and not f.startswith(("-s", "-Wl"))]
        self._run(*flags, "-std=gnu11", "-c", "kernels.c", "-o", "kernels.o")

    def link(self, output: str, *flags: str, program: str = "") -> Path:
        """A shared library, or a program of this text."""
        parts = [str(path) for path in sorted(CSRC.glob("*.c")) if path.name != "ts_library_empty.c"]
        if program:
            (self.folder / "program.c").write_text(program)
            parts.append("program.c")
        common = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}"]
        if (self.folder / "kernels.o").exists():
            parts.append("kernels.o")
        self._run(*common, *flags, "contents.c", *parts, "-o", output, "-lm", "-lpthread", "-ldl")
        return self.folder / output

    def _run(self, *words: str) -> None:
        done = subprocess.run([*self.compiler, *words], cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
