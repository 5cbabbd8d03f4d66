"""What a kernel package costs: written, installed, opened, looked up, read; and what a selection leaves of one.

python benchmarks/packages.py [--entries 10000] [--kernel-bytes 20000]
python benchmarks/packages.py --build 10000 [--target sm_90a:132:h200] [-j JOBS]
python benchmarks/packages.py --selections [--target sm_90a:132:h200] [-j JOBS]

Entries are plans with synthetic kernels, four problems to a kernel. *Cold* is a package that is opened anew for each
look-up (its file is in the page cache); *warm* one whose index has been checked. A *launch* is what `get_launchable`
does with a package for a problem that it has not met before: the plan and its kernel are found, read, inflated and
compared with their digests. Times are medians.

``--build N`` runs `tilesmith package build` for a list whose package has at least N entries, none of them tuned: first
with an empty cache, then twice more, which finds every kernel and choice there. Exit status 1 if that takes 5 minutes.

``--selections`` builds real packages: layers of a decoder in five traits and four modes, then the same list under a
selection of each trait with each mode, and a range of 64 batches. It needs the target's compiler, and no GPU. Exit
status 1 if a trait and a mode leave a tenth or more.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from package_samples import MANIFEST, TARGET
from plan_samples import SMALL
from tilesmith.db.layers import open_layers
from tilesmith.dispatch.locations import DatabasePaths, open_cache
from tilesmith.dispatch.packaged import recall
from tilesmith.dispatch.packages import forget_packages, installed_packages
from tilesmith.dispatch.request import Request
from tilesmith.package.build import Rows, assemble_package, build_target, pack_problems
from tilesmith.package.files import PackageFile, write
from tilesmith.package.form import encode as encode_package
from tilesmith.package.install import Rules, install
from tilesmith.package.making import PackedPlan, make_package
from tilesmith.package.records import KernelPackage, Kind, name_of
from tilesmith.package.selection.ranges import expand_command
from tilesmith.package.selection.reading import Selection
from tilesmith.package.selection.size import fitting_package
from tilesmith.package.selection.spares import with_spares
from tilesmith.package.selection.terms import parse_tile, parse_trait
from tilesmith.plan.serial import encode
from tilesmith.problems.driver import parse_problem
from tilesmith.problems.keys import parse_key
from tilesmith.targets.names import parse_target
from tilesmith.targets.target import Target
from tilesmith.toolchain.cache import ArtifactCache

KEY = (
    "conv1;fwd;x=bf16,NHWC,{n}x56x56x64;w=bf16,NHWC,64x3x3x64;y=bf16,NHWC;stride=1x1;pad=1x1;dil=1x1;groups=1;acc=fp32"
)

BASES = ("conv", "convfp16", "convbfp16", "convfp8")
TRAITS = ("fp32/fp32/*/fp32", "fp32/fp32/*/tf32", "fp16", "bf16", "fp8")
LAYERS = (
    "-n 16 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 7", "-n 16 -c 256 -H 28 -W 28 -k 128 -F 7",
    "-n 16 -c 128 -H 56 -W 56 -k 128 -y 3 -x 3 -p 1 -q 1 -u 2 -v 2 -F 7",
    "-n 16 -c 256 -H 16 -W 16 -k 128 -y 4 -x 4 -p 1 -q 1 -u 2 -v 2 -m trans -F 1",
    "-n 16 -c 128 -H 28 -W 28 -k 64 -y 2 -x 2 -u 2 -v 2 -m trans -F 1",
)  # fmt: skip
RANGE = "convbfp16 -n 1..64 -c 256 -H 28 -W 28 -k 256 -y 3 -x 3 -p 1 -q 1 -F 1"
_LAYOUTS = " -I NHWC -f NHWC -O NHWC"


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--entries", type=int, default=10_000, help="plans and kernels together")
    options.add_argument("--kernel-bytes", type=int, default=20_000, help="of each kernel")
    options.add_argument("--selections", action="store_true", help="what a selection leaves of a real package")
    options.add_argument("--build", type=int, metavar="N", help="build a real package of N entries")
    options.add_argument("--target", default="sm_90a:132:h200", help="of --build and --selections (default: an H200)")
    options.add_argument("-j", "--jobs", type=int, help="compilers at a time (default: one a core)")
    given = options.parse_args()
    if given.selections:
        return selections(build_target(given.target), given.jobs)
    if given.build:
        return builds(given.build, given.target, given.jobs)
    kernels = max(1, given.entries // 5)
    problems = max(1, given.entries - kernels)
    with tempfile.TemporaryDirectory(prefix="tilesmith-packages-") as folder:
        path = Path(folder) / "many.kdb"
        began = time.perf_counter()
        package = make(problems, kernels, given.kernel_bytes)
        made = time.perf_counter()
        nbytes = write(path, package)
        written = time.perf_counter()
        print(f"{len(package.entries)} entries, {nbytes} bytes: made and deflated in {made - began:.2f} s, "
              f"written in {written - made:.2f} s")  # fmt: skip
        began = time.perf_counter()
        PackageFile(path).verify()
        print(f"every byte verified in {time.perf_counter() - began:.2f} s")
        began = time.perf_counter()
        install(str(path), Path(folder) / "installed", Rules(None))
        print(f"installed (read, verified, written and synced) in {time.perf_counter() - began:.2f} s")
        names = [name_of(KEY.format(n=n), TARGET) for n in random.Random(1).sample(range(problems), min(500, problems))]
        cold = microseconds(names, lambda name: PackageFile(path).find(Kind.PLAN, name))
        read = microseconds(names, lambda name: _read(PackageFile(path), name))
        opened = PackageFile(path)
        for name in names:
            opened.find(Kind.PLAN, name)
        warm = microseconds(range(100), lambda _: [opened.find(Kind.PLAN, name) for name in names]) / len(names)
        plan = microseconds(names, lambda name: _read(opened, name))
        print(f"cold: opened and looked up in {cold:.0f} us; its plan read, too: {read:.0f} us")
        print(f"warm: looked up in {warm:.2f} us; its plan read, too: {plan:.1f} us")
        launches(path, problems)
        binary = package.of_kind(Kind.BINARY)[0]
        index = opened.find(Kind.BINARY, binary.name)
        took = microseconds(range(50), lambda _: opened.read(index))
        print(f"a kernel of {binary.size} bytes ({len(binary.stored)} stored) read in {took:.0f} us")
    return 0


def launches(path: Path, problems: int) -> None:
    """What `dispatch` takes from the file to a plan with its kernel; the problems' keys have been computed."""
    os.environ["TILESMITH_PACKAGE_PATH"] = str(path)
    path.parent.chmod(0o755)
    target, nowhere = parse_target(TARGET), DatabasePaths((f"{path}.none",))
    asked = [
        Request(parse_key(KEY.format(n=n)), target, "strict", nowhere, ArtifactCache(f"{path}.cache"))
        for n in random.Random(1).sample(range(1, problems), min(500, problems - 1))
    ]
    for request in asked:
        assert request.problem

    def launch(request: Request) -> None:
        found = recall(replace(request, packages=installed_packages()))
        assert found is not None

    def first(request: Request) -> None:
        forget_packages()
        launch(request)

    took = microseconds(asked, first), microseconds(asked, launch)
    print(f"a launch finds its plan and kernel in {took[0]:.0f} us, the first one of a process; {took[1]:.0f} us later")
    print(f"a look for new packages: {microseconds(range(500), lambda _: installed_packages()):.1f} us")


def builds(entries: int, target: str, jobs: int | None) -> int:
    """Build a package of the layers in many batches, with an empty cache and with a warm one."""
    commands: list[str] = []
    problems = batch = 0
    while problems < entries:
        batch += 1
        new = [f"convbfp16 {layer.replace('-n 16', f'-n {batch}')}{_LAYOUTS}" for layer in LAYERS]
        problems += sum(len(parse_problem(command).signatures) for command in new)
        commands += new
    with tempfile.TemporaryDirectory(prefix="tilesmith-packages-") as folder:
        listed = Path(folder, "problems.txt")
        listed.write_text("\n".join(commands))
        command = [
            sys.executable,
            "-m",
            "tilesmith",
            "package",
            "build",
            str(listed),
            "--target",
            target,
            "--name",
            "many",
        ]
        command += ["-o", folder, *(["-j", str(jobs)] if jobs else [])]
        nothing = {name: value for name, value in os.environ.items() if not name.startswith("TILESMITH_")}
        environment = nothing | {"TILESMITH_CACHE_DIR": f"{folder}/cache", "TILESMITH_DB_PATH": f"{folder}/none.db"}
        took = 0.0
        for cache in ("an empty", "a warm", "a warm"):
            began, used = time.perf_counter(), os.times()
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stderr[-2000:])
            took, now = time.perf_counter() - began, os.times()
            busy = now.children_user + now.children_system - used.children_user - used.children_system
            (path,) = Path(folder).glob("*.kdb")
            package = PackageFile(path)
            plans = sum(entry.kind == Kind.PLAN for entry in package.entries())
            print(f"{plans} plans, {len(package)} entries, {path.stat().st_size} bytes: built from {cache} cache in "
                  f"{took:.1f} s, {busy:.1f} s of the processor")  # fmt: skip
    return int(took >= 300)


def selections(target: Target, jobs: int | None) -> int:
    """Print the bytes of a whole package and of what each trait with each mode leaves of it."""
    layers, cache = open_layers([]), open_cache()
    commands = [f"{base} {layer}{_LAYOUTS}" for base in BASES for layer in LAYERS]
    commands += [f"conv {layer}{_LAYOUTS} --acc_type tf32" for layer in LAYERS]
    listed = [each for command in commands for _, each in parse_problem(command).signatures]

    def built(selection: Selection) -> tuple[int, int, int]:
        """Problems, binaries and bytes of the package; of the file alone, as no row is in it."""
        packed = pack_problems(selection.signatures, target, layers, cache, jobs, selection=selection)
        if missing := next((each.reason for each in packed if not each.plans and not each.refused), ""):
            print(f"not computed: {missing}", file=sys.stderr)
        packed, package = fitting_package(
            packed, target, selection,
            lambda kept: assemble_package("selected", target, kept, layers, Rows(), selection=selection),
            lambda: with_spares(packed, target, layers, cache, selection),
        )  # fmt: skip
        problems = sum(bool(each.plans) for each in packed)
        return problems, len(package.of_kind(Kind.BINARY)), len(encode_package(package))

    free = Selection(Path("all.toml"), tuple(listed))
    problems, binaries, whole = built(free)
    print(f"{target.name}, all traits and modes: {problems} problems, {binaries} kernels, {whole} bytes")
    largest = 0.0
    for trait in map(parse_trait, TRAITS):
        for mode in ("fwd", "bwd", "wrw", "deconv"):
            problems, binaries, nbytes = built(replace(free, traits=(trait,), modes=(mode,)))
            largest = max(largest, nbytes / whole)
            print(f"  {trait!s:15} {mode:6} {problems:3} problems {binaries:3} kernels {nbytes:7} bytes, "
                  f"{nbytes / whole:.1%} of all")  # fmt: skip
    print(f"one trait and one mode leave at most {largest:.1%}")
    wide = tuple(parse_problem(each).signatures[0][1] for each in expand_command(RANGE + _LAYOUTS))
    for tiles, size in ((), None), (("128x128",), None), ((), 60_000):
        chosen = Selection(Path("range.toml"), wide, tiles=tuple(map(parse_tile, tiles)), size=size)
        problems, binaries, nbytes = built(chosen)
        print(f"64 batches of a layer, tiles {', '.join(tiles) or 'any'}, size {size or 'any'}: {problems} problems, "
              f"{binaries} kernels, {nbytes} bytes, {nbytes / problems:.0f} each")  # fmt: skip
    return int(largest >= 0.1)


def make(problems: int, kernels: int, kernel_bytes: int) -> KernelPackage:
    draw = random.Random(2)
    words = [draw.randbytes(16) for _ in range(400)]  # instructions: kernels deflate to a quarter or so
    binaries = {}
    for _ in range(kernels):
        data = b"".join(draw.choices(words, k=kernel_bytes // 16))
        binaries[hashlib.sha256(data).hexdigest()] = data
    digests = list(binaries)
    plans = [
        PackedPlan(
            encode(replace(SMALL, problem=KEY.format(n=n), target=TARGET, artifacts=(digests[n % kernels],))), 1, 1.0
        )
        for n in range(problems)
    ]
    return make_package(MANIFEST, plans, binaries)


def _read(package: PackageFile, name: str) -> bytes:
    index = package.find(Kind.PLAN, name)
    assert index is not None
    return package.read(index)


def microseconds(items, work: Callable) -> float:
    """The median over the items."""
    times = []
    for item in items:
        began = time.perf_counter()
        work(item)
        times.append(time.perf_counter() - began)
    return median(times) * 1e6


if __name__ == "__main__":
    sys.exit(main())
