"""What a new process takes to its first verified result from a kernel package, in Python without PyTorch.

    python benchmarks/package_start.py [--device cuda] [--runs 15] [--imports 12] [--package FILE]
    python benchmarks/package_start.py --program start/bin/start_self_test --device 0

The package is built here for this machine, or FILE, which another machine built from a problem that `--key` prints. The
process then runs in mode `strict` with a home where nobody can write and no compiler on its path; at its end it checks
that it has loaded neither NVRTC nor PyTorch. The first result of a convolution is compared with float64. Each line is
the time from the start of the process to the end of a step, the median of the runs and the fastest one; *processor*
counts the process's user and system time. `--imports N` prints the N modules that take longest to import (`-X
importtime`, the least of the runs).

With `--program`, it is a C program that is timed, from its start to the line that it prints, and to its end: the
self-test of the library that `tilesmith embed` makes of the same problem, which compares the result with the plain
reference. Its environment is empty, but for CUDA_VISIBLE_DEVICES where that is set: the driver starts every GPU that
it may use.

On a GPU the process begins with `tilesmith.open_device`, so that the driver starts while Python imports.

Python's own modules are taken from a cache of bytecode that a first run has filled, as an installed package has.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

from tilesmith import ConvSignature, __version__
from tilesmith.db.layers import open_layers
from tilesmith.dispatch.locations import target_of
from tilesmith.package.build import Rows, assemble_package, pack_problems
from tilesmith.package.files import write
from tilesmith.toolchain.cache import ArtifactCache

GPUS = "CUDA_VISIBLE_DEVICES"
STEPS = ("interpreter", "opening", "numpy", "tilesmith", "launchable", "result", "verified")
SIGNATURE = "ConvSignature((1, 14, 14, 32), (32, 3, 3, 32), padding=1, shared_layout='NHWC', dtype={dtype!r})"
CHILD = """
import os, time
at = [time.monotonic()]
if {device!r} != "cpu":
    import tilesmith
    tilesmith.open_device({device!r})
at.append(time.monotonic())
import numpy as np
at.append(time.monotonic())
import tilesmith
from tilesmith import get_launchable
at.append(time.monotonic())
signature = tilesmith.{signature}
launch = get_launchable(signature, device={device!r})
at.append(time.monotonic())
# Both signs, and no import of numpy.random.
def drawn(shape):
    return np.sin(np.arange(np.prod(shape)) * 1.7).reshape(shape).astype({numpy})
x, w = drawn(signature.input_shape), drawn(signature.kernel_shape)
if {device!r} == "cpu":
    y = launch(x, w)
else:
    from tilesmith.runtime.device import device, to_device, to_host
    place = device(0)
    out = to_device(place, np.zeros(signature.output_shape, {numpy}))
    launch(to_device(place, x), to_device(place, w), out=out)
    place.synchronize()
    y = to_host(out)
at.append(time.monotonic())
padded = np.pad(x.astype("f8"), ((0, 0), (1, 1), (1, 1), (0, 0)))
windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
right = np.tensordot(windows, w.astype("f8"), ([3, 4, 5], [3, 1, 2]))
assert np.abs(y.astype("f8") - right).max() < {bound} * np.abs(right).max()
at.append(time.monotonic())
assert launch.choice.basis == "package", launch.choice
used = os.times()
with open("/proc/self/maps") as maps:
    assert "nvrtc" not in maps.read(), "NVRTC is loaded"
import sys
assert "torch" not in sys.modules
print([*at, used.user + used.system])
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--runs", type=int, default=15, help="processes that are timed (15)")
    parser.add_argument("--imports", type=int, default=0, metavar="N", help="print the N slowest imports")
    parser.add_argument("--package", type=Path, metavar="FILE", help="use this package instead of building one")
    parser.add_argument("--key", action="store_true", help="print the problem's key, and do nothing else")
    parser.add_argument("--json", type=Path, help="write the figures to a file, too")
    parser.add_argument("--program", nargs=argparse.REMAINDER, help="time this C program and its words instead")
    options = parser.parse_args()
    if options.program:
        return programs(options.program)
    is_cpu = options.device == "cpu"
    text = SIGNATURE.format(dtype="fp32" if is_cpu else "fp16")
    numpy, bound = ("np.float32", 1e-5) if is_cpu else ("np.float16", 4e-3)
    if options.key:
        print(eval(text).key())
        return 0
    child = CHILD.format(signature=text, device=options.device, numpy=numpy, bound=bound)
    with tempfile.TemporaryDirectory(prefix="tilesmith-start-") as folder:
        environment = prepared(Path(folder), eval(text), options.device, options.package)
        rows = [timed(child, environment) for _ in range(options.runs + 1)][1:]  # the first one fills the caches
        imports = slowest(child, environment, options.runs) if options.imports else []
    target = target_of(None, None, None if is_cpu else "cuda").name
    print(f"{target}, Python {sys.version.split()[0]}, tilesmith {__version__}, {options.runs} processes, ms")
    print(f"{'':12} {'median':>8} {'fastest':>8}")
    found = {}
    for name, values in zip((*STEPS, "processor"), zip(*rows, strict=True), strict=True):
        found[name] = {"median_ms": round(median(values) * 1e3, 1), "fastest_ms": round(min(values) * 1e3, 1)}
        print(f"{name:12} {found[name]['median_ms']:8.1f} {found[name]['fastest_ms']:8.1f}")
    for name, own_us in imports[: options.imports]:
        print(f"{own_us / 1e3:8.1f} ms  {name}")
    if options.json:
        options.json.write_text(json.dumps({"target": target, "runs": options.runs, "steps": found}, indent=2) + "\n")
    return 0


def programs(words: list[str], runs: int = 15) -> int:
    """Print what a program takes from its start to the line that it prints, and to its end; median and fastest."""
    rows, line = program_times(words, runs)
    print(line)
    for what, values in zip(("its line", "its end"), zip(*rows, strict=True), strict=True):
        print(f"{runs} processes, ms to {what}: median {median(values) * 1e3:.1f}, fastest {min(values) * 1e3:.1f}")
    return 0


def program_times(words: list[str], runs: int) -> tuple[list[tuple[float, float]], str]:
    """Seconds from each start of a program to its last line, and to its end; and that line. The first does not count.

    Raises ``SystemExit`` where it fails.
    """
    rows, line = [], ""
    for _ in range(runs + 1):
        begun = time.monotonic()
        with subprocess.Popen(
            words, env=environment_in_c(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        ) as process:
            said, told = "", begun
            for line in process.stdout or ():
                said, told = said + line, time.monotonic()
        rows.append((told - begun, time.monotonic() - begun))
        if process.returncode:
            raise SystemExit(said)
    return rows[1:], line.strip()


def environment_in_c() -> dict[str, str]:
    """Which GPUs a program may use, if that is said, and nothing else."""
    return {name: os.environ[name] for name in (GPUS,) if name in os.environ}


def read_only_home(folder: Path) -> str:
    """A folder where this user, even root, can make nothing."""
    for home in (folder / "home", Path("/sys")):
        if home.parent == folder:
            home.mkdir(mode=0o555)
        try:
            (home / "x").mkdir()
        except OSError:
            return str(home)
        (home / "x").rmdir()
    raise SystemExit("this user can write everywhere")


def prepared(folder: Path, signature: ConvSignature, device: str, package: Path | None) -> dict[str, str]:
    """A home with a package alone; the environment of a process that has nothing else."""
    (folder / "packages").mkdir(mode=0o755)
    place = folder / "packages" / "start.kdb"
    if package:
        shutil.copyfile(package, place)
    else:
        target = target_of(None, None, device)
        layers, cache = open_layers(()), ArtifactCache(folder / "cache")
        packed = pack_problems([signature], target, layers, cache)
        write(place, assemble_package("start", target, packed, layers, Rows()))
    kept = ("TILESMITH_LIBCUDA", "TILESMITH_CPU_LEVEL", "LD_LIBRARY_PATH", GPUS, "PYTHONPATH")
    return {name: os.environ[name] for name in kept if name in os.environ} | {
        "HOME": read_only_home(folder), "PATH": "", "TILESMITH_FIND_MODE": "strict",
        "TILESMITH_PACKAGE_PATH": f"{folder}/packages", "PYTHONPYCACHEPREFIX": f"{folder}/bytecode",
    }  # fmt: skip


def timed(child: str, environment: dict[str, str]) -> list[float]:
    """Seconds from the start of a process to the end of each step, and its processor time."""
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", child], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    *at, used = json.loads(done.stdout)
    return [*(each - begun for each in at), used]


def slowest(child: str, environment: dict[str, str], runs: int) -> list[tuple[str, int]]:
    """Modules with the microseconds of their own import, without those that they import; the least of the runs."""
    best: dict[str, int] = defaultdict(lambda: 1 << 62)
    for _ in range(runs):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", child], env=environment, capture_output=True, text=True,
            timeout=120, check=True,
        )  # fmt: skip
        for own, name in re.findall(r"^import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)$", done.stderr, re.M):
            best[name] = min(best[name], int(own))
    return sorted(best.items(), key=lambda each: -each[1])


if __name__ == "__main__":
    sys.exit(main())
