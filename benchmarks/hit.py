"""What an answer at hand costs: the whole of ``get_launchable`` in a fresh process, and a call of what it returned.

    python benchmarks/hit.py [-n PROCESSES] [--torch]

``--torch``: each process imports PyTorch first, which does not count; then the first call of ``conv`` on its tensors is
timed, too: that is when a program that uses PyTorch has its first result.

Each process does what a user's does: it imports ``get_launchable``, describes a problem, and asks for it, with the
defaults of a user who has set nothing. The clock runs from the call to its return: the environment is read, the
database's file is opened and has not changed, answer, plan and kernels are checked byte by byte, loaded and bound.
Nothing is imported meanwhile. What CPU this is was recalled from the cache with the import.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

CHILD = """
import json, sys, time
FIRST
begin, cpu = time.perf_counter(), time.process_time()
from tilesmith import ConvSignature, get_launchable
imported, importing, started = time.perf_counter() - begin, time.process_time() - cpu, cpu
signature = ConvSignature((1, 28, 28, 64), (64, 3, 3, 64), shared_layout="NHWC", padding=1)
modules = set(sys.modules)
begin, cpu = time.perf_counter(), time.thread_time()
launch = get_launchable(signature)
wall, cpu = time.perf_counter() - begin, time.thread_time() - cpu
whole = time.process_time() - started
assert set(sys.modules) == modules, set(sys.modules) - modules
result = 0.0
if "torch" in sys.modules:
    x, w = (torch.ones(shape).to(memory_format=torch.channels_last) for shape in ((1, 64, 28, 28), (64, 64, 3, 3)))
    began = time.perf_counter()
    from tilesmith import conv
    conv(x, w, padding=1)
    result = imported + time.perf_counter() - began
found = launch.remembered and launch.choice.basis == "database"
print(json.dumps([found, wall, cpu, imported, importing, whole, result]))
"""
ROWS = (
    "get_launchable, all of it", "... of processor time", "(import of get_launchable)", "(... of processor time)",
    "(both, of processor time)", "(import and first result)",
)  # fmt: skip


def user_of(home: str) -> dict[str, str]:
    """The environment of a user who has set nothing, and whose files lie in ``home``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TILESMITH_", "XDG_"))}
    return {**kept, "HOME": home}


def fresh_process(environment: dict[str, str], text: str) -> tuple[bool, list[float]]:
    """Whether it was a hit; the seconds of ``ROWS``."""
    done = json.loads(subprocess.check_output([sys.executable, "-c", text], env=environment, text=True))
    return done[0], done[1:]


def bound_us() -> float:
    """Microseconds of one call of a bound plan that has next to nothing to compute."""
    import numpy as np

    import tilesmith

    signature = tilesmith.ConvSignature((1, 1, 1, 1), (1, 1, 1, 1), shared_layout="NHWC")
    call = tilesmith.get_launchable(signature, target=tilesmith.host_target(1), mode="fast").bound
    x, w = signature.get_sample_args(seed=0)
    out = np.empty_like(x)
    best = float("inf")
    for _ in range(200):
        begin = time.perf_counter()
        for _ in range(100):
            call(x, w, out=out)
        best = min(best, (time.perf_counter() - begin) / 100)
    return best * 1e6


def again_ms() -> float:
    """Milliseconds of the same call where the process has made it before, and forgotten the answer."""
    import tilesmith

    signature = tilesmith.ConvSignature((1, 28, 28, 64), (64, 3, 3, 64), shared_layout="NHWC", padding=1)
    best = float("inf")
    for _ in range(100):
        tilesmith.forget()
        begin = time.perf_counter()
        tilesmith.get_launchable(signature)
        best = min(best, time.perf_counter() - begin)
    return best * 1e3


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=20, help="fresh processes")
    parser.add_argument("--torch", action="store_true", help="in processes that have imported PyTorch")
    options = parser.parse_args()
    count, text = options.n, CHILD.replace("FIRST", "import torch" if options.torch else "")
    with tempfile.TemporaryDirectory() as home:
        environment = user_of(home)
        # The first process decides, measures and compiles, the second asks the database and keeps what it found until
        # that changes; without the modules' check, for both import a good deal.
        first = text.replace("assert set", "set")
        for _ in range(2):
            subprocess.run([sys.executable, "-c", first], env=environment, stdout=subprocess.DEVNULL, check=True)
        found = [fresh_process(environment, text) for _ in range(count)]
        assert all(hit for hit, _ in found), "a process did not take the answer of the database"
        print(f"in {count} fresh processes, least and median milliseconds:")
        for name, values in zip(
            ROWS[: 6 if options.torch else 5], zip(*(times for _, times in found), strict=True), strict=False
        ):
            print(f"  {name:32} {min(values) * 1e3:7.3f} {statistics.median(values) * 1e3:7.3f}")
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ |= environment
        print(f"  {'... again, in one process':32} {again_ms():7.3f}")
        os.environ |= {"TILESMITH_CACHE_DIR": os.path.join(home, "bound")}
        print(f"bound: {bound_us():.2f} us a call")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
