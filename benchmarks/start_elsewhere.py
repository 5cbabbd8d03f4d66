"""What starts take on a GPU machine that has no compiler, from files that a machine without a GPU has built.

    python benchmarks/start_elsewhere.py build [--target sm_90a:132:h100-80gb-hbm3] [-o build/start] [-j JOBS]
    python benchmarks/start_elsewhere.py run [build/start] [--runs 15] [--json FILE]

`build` makes a folder of less than 2 MB, which is all that the other machine needs beside Tilesmith: a package of one
convolution, the self-test of a C library of the same problem, and that of a library of 20 real problems (which name one
that no kernel fits). `run` prints, on the GPU machine, what passes from the start of a process to its first verified
result: in Python without PyTorch (`package_start.py`, mode `strict`, a home where nobody can write, an empty PATH), and
in C. *context* is what a C program takes that only makes a CUDA context, *memory* one that then allocates three buffers
and copies them up and down: what is beyond these is Tilesmith's, a kernel loaded and run, and the reference. Then each
of the real problems is compared with the plain reference. Exit status 1 if a median is above its limit, or a result is
wrong.

The C programs have an empty environment, but for CUDA_VISIBLE_DEVICES where that is set, as Python has it, too: the
driver starts every GPU that it may use, and takes longer for the context of one where it may use several.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import package_start

ROOT = Path(__file__).parents[1]
LIMITS_S = {"Python": 0.45, "C": 0.35}
TARGET = "sm_90a:132:h100-80gb-hbm3"
CONTEXT = """
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **words) {
  enum { BUFFERS = 3, BYTES = 65536 };
  void *lib = dlopen("libcuda.so.1", RTLD_NOW), *context = 0;
  int handle = 0;
  if (!lib) return 2;
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit");
  int (*get)(int *, int) = (int (*)(int *, int))dlsym(lib, "cuDeviceGet");
  int (*retain)(void **, int) = (int (*)(void **, int))dlsym(lib, "cuDevicePrimaryCtxRetain");
  if (init(0) || get(&handle, 0) || retain(&context, handle)) return 2;
  if (count == 1) return puts("a CUDA context") < 0;
  int (*current)(void *) = (int (*)(void *))dlsym(lib, "cuCtxSetCurrent");
  int (*allocate)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))dlsym(lib, "cuMemAlloc_v2");
  int (*up)(uint64_t, const void *, size_t) = (int (*)(uint64_t, const void *, size_t))dlsym(lib, "cuMemcpyHtoD_v2");
  int (*down)(void *, uint64_t, size_t) = (int (*)(void *, uint64_t, size_t))dlsym(lib, "cuMemcpyDtoH_v2");
  void *host = calloc(1, BYTES);
  uint64_t buffers[BUFFERS];
  if (host == NULL || current(context)) return 2;
  for (int i = 0; i < BUFFERS; i++)
    if (allocate(&buffers[i], BYTES) || up(buffers[i], host, BYTES)) return 2;
  for (int i = 0; i < BUFFERS; i++)
    if (down(host, buffers[i], BYTES)) return 2;
  puts("a CUDA context, and memory copied up and down");
  return 0;
}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    build = verbs.add_parser("build")
    build.add_argument("--target", default=TARGET)
    build.add_argument("-o", "--out", type=Path, default=ROOT / "build" / "start")
    build.add_argument("-j", "--jobs", default=str(os.cpu_count()))
    run = verbs.add_parser("run")
    run.add_argument("folder", type=Path, nargs="?", default=ROOT / "build" / "start")
    run.add_argument("--runs", type=int, default=15)
    run.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to try it without a GPU")
    run.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.verb == "build":
        return made(given.out, given.target, given.jobs)
    return measured(given.folder, given.runs, given.device, given.json)


def made(out: Path, target: str, jobs: str) -> int:
    """The folder."""
    sys.path.insert(0, str(ROOT / "tests" / "embed"))
    from embedded import REAL

    from tilesmith.cli.main import run as command
    from tilesmith.toolchain.compilers import find_compiler

    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    text = package_start.SIGNATURE.format(dtype="fp16" if target.startswith("sm_") else "fp32")
    signature = eval(text, {"ConvSignature": package_start.ConvSignature})
    with tempfile.TemporaryDirectory(prefix="tilesmith-start-") as name:
        folder = Path(name)
        lists = {"start": [signature.key()], "real": [each.key() for each in REAL]}
        for library, keys in lists.items():
            listed = folder / f"{library}.txt"
            listed.write_text("".join(f"{key}\n" for key in keys))
            # A problem that no kernel fits is named, and left out.
            command(["embed", str(listed), "--target", target, "--name", library, "-o", str(folder / library),
                     "-j", jobs])  # fmt: skip
            shutil.copy2(folder / library / "bin" / f"{library}_self_test", out)
        command(["package", "build", str(folder / "start.txt"), "--target", target, "--name", "start", "-o", str(out)])
        (folder / "context.c").write_text(CONTEXT)
        compiler = find_compiler().command
        subprocess.run(
            [*compiler, "-O2", "-w", "-o", str(out / "context"), str(folder / "context.c"), "-ldl"], check=True
        )
    paths = sorted(out.iterdir())
    print(f"{out}: {', '.join(path.name for path in paths)}: {sum(path.stat().st_size for path in paths)} bytes")
    return 0 if len(paths) == 4 else 1


def measured(folder: Path, runs: int, device: str, out: Path | None) -> int:
    """Prints the figures."""
    (package,) = folder.glob("start-*.kdb")
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="tilesmith-start-") as name:
        is_cpu = device == "cpu"
        signature = package_start.SIGNATURE.format(dtype="fp32" if is_cpu else "fp16")
        numpy, bound = ("np.float32", 1e-5) if is_cpu else ("np.float16", 4e-3)
        child = package_start.CHILD.format(signature=signature, device=device, numpy=numpy, bound=bound)
        environment = package_start.prepared(Path(name), None, device, package)
        print(f"home of the Python process: {environment['HOME']} (nobody can write there)")
        rows = [package_start.timed(child, environment) for _ in range(runs + 1)][1:]
    for step, values in zip(package_start.STEPS, zip(*rows, strict=False), strict=False):
        figures[f"Python: {step}"] = times(values)
    where = [] if is_cpu else ["--device", "0"]
    loaded = subprocess.run(
        [folder / "start_self_test", *where], env=package_start.environment_in_c() | {"LD_DEBUG": "files"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "nvrtc" not in loaded.stderr, "the C program loads NVRTC"
    programs = {"C": [folder / "start_self_test", *where]}
    if not is_cpu:
        programs |= {"context": [folder / "context"], "memory": [folder / "context", "memory"]}
    for program, words in programs.items():
        seconds, line = package_start.program_times(list(map(str, words)), runs)
        print(line)
        for step, values in zip(("verified", "end"), zip(*seconds, strict=True), strict=True):
            figures[f"{program}: {step}"] = times(values)
    real = subprocess.run(
        [folder / "real_self_test", *where], env=package_start.environment_in_c(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    print(real.stdout.strip())
    print(f"{'ms':22} {'median':>8} {'fastest':>8} {'slowest':>8}   ({runs} processes each)")
    for step, found in figures.items():
        print(f"{step:22} " + " ".join(f"{found[each]:8.1f}" for each in ("median", "fastest", "slowest")))
    beyond = {f"{what} beyond {bare}": round(figures[f"{what}: verified"]["median"] - found["median"], 1)
              for bare in ("context", "memory") if (found := figures.get(f"{bare}: verified"))
              for what in LIMITS_S}  # fmt: skip
    for what, added in beyond.items():
        print(f"{what:22} {added:8.1f}")
    missed = [what for what, most in LIMITS_S.items() if figures[f"{what}: verified"]["median"] > most * 1e3]
    for what in missed:
        print(f"{what}: above {LIMITS_S[what]} s")
    if out is not None:
        found = facts(package) | {"ms": figures, "ms_beyond": beyond, "real": real.stdout.strip()}
        out.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if missed or real.returncode else 0


def times(values: tuple[float, ...]) -> dict[str, float]:
    """In ms."""
    each = {"median": median(values), "fastest": min(values), "slowest": max(values)}
    return {name: round(value * 1e3, 1) for name, value in each.items()}


def facts(package: Path) -> dict[str, object]:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "command": " ".join(sys.argv),
        "package": package.name, "package_bytes": package.stat().st_size, "cores": os.cpu_count(),
        "load": os.getloadavg()[0], "python": sys.version.split()[0],
        "environment_of_c": package_start.environment_in_c(),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
