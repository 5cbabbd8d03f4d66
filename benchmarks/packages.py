"""What a kernel package costs: written, installed, opened, looked up, read.

python benchmarks/packages.py [--entries 10000] [--kernel-bytes 20000]

Entries are plans with synthetic kernels, four problems to a kernel. *Cold* is a package that is opened anew for each
look-up (its file is in the page cache); *warm* one whose index has been checked. A *launch* is what `get_launchable`
does with a package for a problem that it has not met before: the plan and its kernel are found, read, inflated and
compared with their digests. Times are medians.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
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
from tilesmith.dispatch.locations import DatabasePaths
from tilesmith.dispatch.packaged import recall
from tilesmith.dispatch.packages import forget_packages, installed_packages
from tilesmith.dispatch.request import Request
from tilesmith.package.files import PackageFile, write
from tilesmith.package.install import Rules, install
from tilesmith.package.making import PackedPlan, make_package
from tilesmith.package.records import KernelPackage, Kind, name_of
from tilesmith.plan.serial import encode
from tilesmith.problems.keys import parse_key
from tilesmith.targets.names import parse_target
from tilesmith.toolchain.cache import ArtifactCache

KEY = (
    "conv1;fwd;x=bf16,NHWC,{n}x56x56x64;w=bf16,NHWC,64x3x3x64;y=bf16,NHWC;stride=1x1;pad=1x1;dil=1x1;groups=1;acc=fp32"
)


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--entries", type=int, default=10_000, help="plans and kernels together")
    options.add_argument("--kernel-bytes", type=int, default=20_000, help="of each kernel")
    given = options.parse_args()
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
