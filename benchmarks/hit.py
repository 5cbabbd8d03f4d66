"""What an answer at hand costs: in a fresh process after its imports, the opening of the database included, and bound.

    python benchmarks/hit.py [-n PROCESSES]

Each process imports, opens the database, looks a problem up, loads plan and kernels, and binds them. What machine it is
(its CPU, caches, cores) is found out before. The least time of all processes is what it costs; the median tells how
busy the machine was.
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
from pathlib import Path

CHILD = """
import json, sys, time
import tilesmith, tilesmith.dispatch.launchable, tilesmith.runtime.executable, tilesmith.problems.signature
import tilesmith.db.sqlite_store, tilesmith.db.files
from tilesmith.problems.keys import parse_conv_key
target = tilesmith.host_target(1)
signature = parse_conv_key(sys.argv[1])
from tilesmith.dispatch.facts import answers_of, open_databases
begin, cpu = time.perf_counter(), time.thread_time()
answers = answers_of(signature, target, open_databases())
found, cpu_found = time.perf_counter() - begin, time.thread_time() - cpu
launch = tilesmith.get_launchable(signature, target=target)
wall, cpu = time.perf_counter() - begin, time.thread_time() - cpu
assert answers and launch.remembered and launch.choice.basis == "database", launch.choice
print(json.dumps([found, cpu_found, wall, cpu]))
"""
KEY = "conv1;fwd;x=fp32,NHWC,1x28x28x64;w=fp32,NHWC,64x3x3x64;y=fp32,NHWC;stride=1x1;pad=1x1;dil=1x1;groups=1;acc=fp32"


def fresh_processes(count: int, environment: dict[str, str]) -> list[tuple[float, float, float, float]]:
    """Wall and processor seconds of each until the answer is found, and until the launchable is bound."""
    command = [sys.executable, "-c", CHILD, KEY]
    return [json.loads(subprocess.check_output(command, env=environment, text=True)) for _ in range(count)]


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


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=20, help="fresh processes")
    count = parser.parse_args().n
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "TILESMITH_DB_PATH": str(Path(folder) / "t.db"), "TILESMITH_CACHE_DIR": str(Path(folder) / "cache"),
        }  # fmt: skip
        import tilesmith

        signature = tilesmith.parse_key(KEY)
        tilesmith.get_launchable(signature, target=tilesmith.host_target(1), mode="hybrid")
        times = fresh_processes(count, dict(os.environ))
        print(f"in {count} fresh processes, after their imports, least and median milliseconds:")
        rows = (
            "database opened, answer found",
            "... of processor time",
            "plan and kernels loaded, bound",
            "... of processor time",
        )
        for name, values in zip(rows, zip(*times, strict=True), strict=True):
            print(f"  {name:32} {min(values) * 1e3:7.3f} {statistics.median(values) * 1e3:7.3f}")
        print(f"bound: {bound_us():.2f} us a call")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
