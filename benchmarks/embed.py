"""What a C library costs and keeps: its sizes, and the checks of the library of 20 real problems.

python benchmarks/embed.py [--sanitize] [--full LIST...]

The sizes are those of the shared library, code and constants (``size``: text and data). The full library has the
problems of ``--full`` (default: the lists of benchmarks/problems that a descriptor can say, whose kernels take minutes
to compile; without a list: no sizes) for this machine; the selected one has those of one element type and one mode
among them, without the plain reference.
``--sanitize`` builds the library of 20 problems with AddressSanitizer and UBSan, then with ThreadSanitizer.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "embed"))

from embedded import REAL, TARGET, built, linked, run

from tilesmith.cli.main import run as command

ROOT = Path(__file__).parents[1]
UNSAID = ("gemm_grouped",)  # a descriptor has no groups of rows: `embed` refuses the list, and names the problem
LISTS = tuple(sorted(str(each) for each in (ROOT / "benchmarks" / "problems").glob("*.txt") if each.stem not in UNSAID))
TRAIT, MODE = "bf16", "deconv"
FLAGS = "-g1 -fno-sanitize-recover=all"


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--sanitize", action="store_true", help="also build with sanitizers")
    options.add_argument("--full", nargs="*", help="lists of problems (default: those of benchmarks/problems)")
    given = options.parse_args()
    lists = list(LISTS) if given.full is None else given.full
    with tempfile.TemporaryDirectory(prefix="tilesmith-embed-") as name:
        folder = Path(name)
        os.environ["TILESMITH_CACHE_DIR"] = str(folder / "cache")
        os.environ["TILESMITH_DB_PATH"] = str(folder / "none.db")
        real(folder / "real", given.sanitize)
        if lists:
            sizes(folder / "sizes", lists)
    return 0


def real(folder: Path, sanitize: bool) -> None:
    folder.mkdir()
    began = time.perf_counter()
    library = built(folder, "deconv", REAL, ("--static", "--shared"))
    print(f"{len(REAL)} problems for {TARGET.name}: written and built in {time.perf_counter() - began:.1f} s")
    test = library.folder / "bin" / "deconv_self_test"
    print(run(test, env={}).strip() + " (empty environment)")
    needed = sorted(set(re.findall(r"(lib\w+)[\w.-]*\.so", run("ldd", test))))
    print(f"ldd of a program of deconv.a: {', '.join(needed)}")
    linked(library, "run_problems.c", folder / "static", "-static", "-Wl,--no-warnings")
    print(f"linked with -static: {(folder / 'static').stat().st_size} bytes")
    if shutil.which("strace"):
        run("strace", "-f", "-o", folder / "log", test)
        calls = (folder / "log").read_text()
        opened = re.findall(r"\b(?:open|openat|creat|memfd_create)\((.*)", calls)
        writing = [each for each in opened if re.search("O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", each)]
        print(f"strace: {len(writing)} files opened for writing, {calls.count('execve(') - 1} programs executed")
    objects = sorted(path.stat().st_size for path in (library.folder / "build").rglob("kernels/*/*.o"))
    print(
        f"{len(objects)} kernels: objects of {objects[0]} to {objects[-1]} bytes, "
        f"{sum(objects) // len(objects)} on average"
    )
    for kind in ("address,undefined", "thread") if sanitize else ():
        copy = folder / kind.partition(",")[0]
        shutil.copytree(library.folder, copy, ignore=shutil.ignore_patterns("build", "bin", "*.a", "*.so*"))
        flags = f"CFLAGS={FLAGS} -fsanitize={kind}"
        run("make", "-s", f"-j{os.cpu_count()}", "-C", copy, flags, "static", "bin/deconv_self_test", "DEFAULT=static")
        print(f"-fsanitize={kind}: {run(copy / 'bin' / 'deconv_self_test').strip()}")


def sizes(folder: Path, lists: list[str]) -> None:
    folder.mkdir()
    whole = make(folder / "full", lists)
    select = {"lists": [str(Path(each).resolve()) for each in lists], "traits": [TRAIT], "modes": [MODE]}
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in select.items()) + "reference = false\n"
    (folder / "select.toml").write_text(text)
    part = make(folder / "part", ["--select", str(folder / "select.toml")])
    print(f"full library: {whole[0]} problems, {whole[1]} kernels, {whole[2]} bytes")
    print(
        f"{TRAIT} {MODE} alone: {part[0]} problems, {part[1]} kernels, {part[2]} bytes, {part[2] / whole[2]:.3f} of it"
    )
    print(f"a kernel adds {(whole[2] - part[2]) / (whole[1] - part[1]):.0f} bytes to a library")


def make(folder: Path, words: list[str]) -> tuple[int, int, int]:
    """Problems, kernels and bytes of the shared library."""
    report = folder.with_suffix(".json")
    with open(report, "w") as file:
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            # A problem that no kernel fits is named, and left out.
            command(
                ["embed", *words, "--target", TARGET.name, "--name", "lib", "--shared", "--json", "-o", str(folder)]
            )
        finally:
            sys.stdout.flush()
            os.dup2(kept, 1)
    if not report.read_text():
        sys.exit(2)  # it has said why
    found = json.loads(report.read_text())
    text, data = run("size", folder / "lib" / "lib.so").splitlines()[1].split()[:2]
    return found["problems"], found["kernels"], int(text) + int(data)


if __name__ == "__main__":
    sys.exit(main())
