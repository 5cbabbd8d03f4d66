"""What one trait and one mode leave of a C library, and what its bytes are.

python benchmarks/library_sizes.py [LIST ...] [--target "sm_90a:132:h200;x86_64-v4"] [--every N] [--traits TRAIT,...]
    [-j JOBS] [--out FILE.json] [--list FILE]

The full library has each convolution and matrix product of the lists (default: boo, deconv, diffusion, gemm_llm,
gemm_odd, resnet50) in every trait that GPUs have kernels for, and in every mode: fp32 with sums in fp32 and in tf32,
fp16, bf16, both kinds of fp8, and int8; fwd, bwd and wrw, deconv of the transposed ones, and gemm. Integers have no
wrw. ``--traits`` names some of them. ``--every N`` takes each Nth line of the lists alone. A problem that has no plan
for any target counts nowhere. The selected libraries have one trait and one mode of the same problems, without the
plain reference; a target that has no plan for any of these problems is left out of them, as `embed` asks.

All are shared libraries as `tilesmith embed` builds them: with every target in one library, where the machine's is
chosen at run time, once for this machine's processor and once for each other processor of the targets. Each holds the
kernels of all GPUs, and of its own processor's targets. They are linked with --gc-sections and stripped; the bytes are
those of the file, and of its code and constants (``size``: text and data). Nothing is tuned, and no GPU is asked.
Exit status 1 if a selected library has a tenth of the full one or more.

``--list`` writes the driver commands of the full library, and makes nothing: `tilesmith package build` makes a package
of them, whose kernels `kernel_sizes.py` counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

from tilesmith.cli.main import run as command
from tilesmith.errors import TilesmithError
from tilesmith.problems.driver import parse_problem

PROBLEMS = Path(__file__).parent / "problems"
TARGETS = "sm_90a:132:h200;sm_80:108:a100;x86_64-v4:8:generic;aarch64:8:generic"
LISTS = ("boo", "deconv", "diffusion", "gemm_llm", "gemm_odd", "resnet50")
TRAITS = {
    "fp32": "", "tf32": "", "fp16": "fp16", "bf16": "bfp16", "fp8": "fp8", "bf8": "bfp8", "int8": "int8",
}  # fmt: skip  # and what a driver command's name has for it
TF32 = " --acc_type tf32"
# Of selections: the input of bwd is the result, which is int32.
TERMS = {"fp32": "fp32/fp32/*/fp32", "tf32": "fp32/fp32/*/tf32", "int8": "*/int8"}
MODES = {"fwd": " -F 1", "bwd": " -F 2", "wrw": " -F 4", "deconv": " -F 1", "gemm": ""}
NAME = "lib"
PARTS = {
    "ts_reference": "the plain reference", "ts_cuda": "launching on GPUs", "ts_library": "the calls",
    "ts_machine": "which machine this is", "ts_target": "which machine this is", "ts_decode": "reading plans",
    "ts_withdrawn": "reading plans", "ts_error": "reading plans",
    **dict.fromkeys(("ts_package", "ts_inflate", "ts_lzma", "ts_sha256"), "reading packages"),
    **dict.fromkeys(("ts_run", "ts_pool", "ts_image", "ts_wait"), "running plans"),
}  # fmt: skip  # what the runtime's files are for
_OBJECT = re.compile(r"^ \.\S+\s+0x[0-9a-f]+\s+0x([0-9a-f]+) \S*?build/[^/\s]+/(\S+)\.o$", re.M)
# Of make, which fills the holes in: zig's linker writes no map.
_LINK = "-s $(if $(ZIG),,-Wl,-Map=$(basename $@).map)"
_NO_PLAN = re.compile(r"no problem has a plan for (\S+); leave this target out")
_NOT_LOADED = (".comment", ".debug", ".note")


@dataclass(frozen=True)
class Size:
    """The bytes of a shared library's file, and of its code and constants; these by parts too, if the linker tells."""

    file_bytes: int
    loaded_bytes: int
    parts: dict[str, int]


@dataclass(frozen=True)
class Made:
    """What is in a library, and its size for each processor."""

    targets: list[str]
    problems: int
    kernels: int
    libraries: dict[str, Size]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("lists", nargs="*", metavar="LIST", help=f"default: {' '.join(LISTS)}")
    options.add_argument("--target", default=TARGETS, help="of each library (default: %(default)s)")
    options.add_argument("--every", type=int, default=1, metavar="N", help="each Nth layer alone")
    options.add_argument("--traits", default=",".join(TRAITS), help="of the full library, with commas (default: all)")
    options.add_argument("-j", "--jobs", type=int, help="compilers at a time (default: one a core)")
    options.add_argument("--out", type=Path, help="the figures as JSON")
    options.add_argument("--list", type=Path, metavar="FILE", help="write the problems there, and do nothing else")
    given = options.parse_args()
    traits = given.traits.split(",")
    cells = problems_of(given.lists or LISTS, given.every, traits)
    commands = "\n".join(line for found in cells.values() for line in found)
    if given.list:
        given.list.write_text(commands + "\n")
        return 0
    print("problems:", ", ".join(f"{trait} {mode} {len(found)}" for (trait, mode), found in cells.items()), flush=True)
    with tempfile.TemporaryDirectory(prefix="tilesmith-sizes-") as name:
        folder = Path(name)
        os.environ |= {"TILESMITH_DB_PATH": str(folder / "none.db"), "LDFLAGS": _LINK}
        listed = folder / "all.txt"
        listed.write_text(commands)
        targets = given.target.split(";")
        full = made(folder, targets, given.jobs, [str(listed)])
        if full is None:
            return 2
        show("all traits and modes, with the plain reference", full, full)
        selected = {}
        for trait, mode in cells:
            select = folder / "select.toml"
            select.write_text(
                f"lists = [{json.dumps(str(listed))}]\ntraits = [{json.dumps(TERMS.get(trait, trait))}]\n"
                f"modes = [{json.dumps(mode)}]\nreference = false\n"
            )
            size = made(folder, targets, given.jobs, ["--select", str(select)])
            if size is not None:
                selected[f"{trait} {mode}"] = size
                show(f"{trait} {mode}", size, full)
    if given.out:
        found = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "command": " ".join(sys.argv),
            "target": given.target,
            "lists": given.lists or LISTS,
            "every": given.every,
            "traits": traits,
            "full": asdict(full),
        }
        found |= {name: asdict(size) for name, size in selected.items()}
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    ratios = {
        f"{name}, {machine}": size.loaded_bytes / full.libraries[machine].loaded_bytes
        for name, each in selected.items() for machine, size in each.libraries.items()
    }  # fmt: skip
    largest = max(ratios, key=ratios.__getitem__)
    print(f"one trait and one mode leave at most {ratios[largest]:.1%} ({largest})")
    return int(ratios[largest] >= 0.1)


def problems_of(lists: Sequence[str], every: int, traits: Sequence[str]) -> dict[tuple[str, str], list[str]]:
    """Driver commands of each trait and mode: the layers of the lists, whatever types and directions stand there."""
    layers = dict.fromkeys(
        re.sub(r"^(conv|gemm)\w*|( -F \d+| -t 1)\b", r"\1", line)
        for name in lists
        for line in (PROBLEMS / f"{name}.txt").read_text().splitlines()
        if re.match(r"(conv|gemm)\w* -", line)
    )
    cells: dict[tuple[str, str], list[str]] = {}
    for trait in traits:
        for mode, direction in MODES.items():
            for layer in list(layers)[::every]:
                own = "gemm" if layer.startswith("gemm") else "deconv" if " -m trans" in layer else "fwd"
                if own != mode and (own == "gemm" or mode not in ("bwd", "wrw")):
                    continue
                line = f"{layer[:4]}{TRAITS[trait]}{layer[4:]}{direction}{TF32 if trait == 'tf32' else ''}"
                try:
                    parse_problem(line)
                except TilesmithError:  # such as gradients of weights in integers
                    continue
                cells.setdefault((trait, mode), []).append(line)
    return cells


def made(folder: Path, targets: Sequence[str], jobs: int | None, words: list[str]) -> Made | None:
    """The shared libraries of these words of ``embed``; None if no problem has a plan."""
    project, said = folder / "project", StringIO()
    shutil.rmtree(project, ignore_errors=True)
    more = ["-j", str(jobs)] if jobs else []
    with redirect_stdout(said), redirect_stderr(StringIO()) as noted:
        # A problem that no kernel fits is named, and left out.
        command(["embed", *words, "--target", ";".join(targets), "--name", NAME, "--shared", "--json", "-o",
                 str(project), *more])  # fmt: skip
    if not said.getvalue():
        missing = _NO_PLAN.search(" ".join(noted.getvalue().split()))
        if missing is None:
            sys.exit(noted.getvalue()[-2000:])
        rest = [each for each in targets if not missing[1].startswith(each)]
        if len(rest) == len(targets):
            sys.exit(f"{missing[0]}: written otherwise than in --target")
        return made(folder, rest, jobs, words) if rest else None
    found = json.loads(said.getvalue())
    if found["unbuilt"]:
        sys.exit(f"no compiler for {', '.join(found['unbuilt'])}")
    sizes = {}
    for name, _ in found["libraries"]:
        library = Path(name)
        # Another processor's lies in a folder of its own.
        machine = library.parent.name if library.parent.name != "lib" else platform.machine()
        text, data = subprocess.check_output(["size", library], text=True).splitlines()[1].split()[:2]
        loaded, listing = int(text) + int(data), library.with_suffix(".map")
        parts = parts_of(listing, loaded) if listing.exists() else {}
        sizes[machine] = Size(library.stat().st_size, loaded, parts)
    return Made(found["targets"], found["problems"], found["kernels"], sizes)


def parts_of(listing: Path, loaded: int) -> dict[str, int]:
    """The loaded bytes of a library by what they are for, from the linker's map."""
    parts: Counter[str] = Counter()
    joined = re.sub(
        r"^( \.\S+)\n +", r"\1 ", listing.read_text().partition("Linker script and memory map")[2], flags=re.M
    )
    for match in _OBJECT.finditer(joined):
        if not match[0].strip().startswith((*_NOT_LOADED, ".bss", ".tbss")):
            parts[part_of(match[2])] += int(match[1], 16)
    parts["the linker's tables"] = loaded - sum(parts.values())
    return dict(parts.most_common())


def part_of(path: str) -> str:
    """What an object of the project is for."""
    folder, _, name = path.rpartition("/")
    if folder.startswith("kernels"):
        return "kernels of CPUs"
    if folder == "packages":
        return "plans and packed kernels"
    found = next((part for begin, part in PARTS.items() if name.startswith(begin)), "describing problems")
    return found if folder == "runtime" else "tables of contents"


def show(what: str, made: Made, full: Made) -> None:
    print(f"{what}: {made.problems} problems, {made.kernels} kernels for {', '.join(made.targets)}")
    for machine, size in made.libraries.items():
        ratio = size.loaded_bytes / full.libraries[machine].loaded_bytes
        loaded = f"{size.loaded_bytes} bytes of code and constants ({ratio:.1%}), a file of {size.file_bytes}"
        parts = [f"{part} {nbytes}" for part, nbytes in size.parts.items()]
        print(f"   {machine}: {'; '.join([loaded, *parts])}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
