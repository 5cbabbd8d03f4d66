"""Untuned kernels that keep registers in local memory, which can make them several times as slow. Needs no GPU.

    python benchmarks/gpu/probes/local_memory.py [LIST ...] [--target T] [--drawn N] [--seed S]

LISTs are as ``make gpu-bench`` takes them, or files of driver commands; without one ``irregular_random``. With
``--drawn`` N problems of each kind of ``irregular_random`` are drawn by the seed instead. Prints each kernel with
registers spilled or a stack, the largest first: bytes of spills, of the stack, registers, solver, config and problem.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "benchmarks" / "gpu"), str(ROOT / "benchmarks"), str(ROOT / "src")]
from ahead import on_all_cores  # noqa: E402
from gpu_cases import listed, predicted  # noqa: E402
from irregular_random import drawn  # noqa: E402

from tilesmith.problems.driver import parse_command  # noqa: E402
from tilesmith.problems.keys import parse_key  # noqa: E402
from tilesmith.targets.names import as_target  # noqa: E402
from tilesmith.targets.target import CudaTarget  # noqa: E402
from tilesmith.toolchain.build import build_unit  # noqa: E402


@dataclass(frozen=True, order=True)
class Local:
    """Local memory of a problem's untuned kernel, of the source that has most of it."""

    spilled: int
    stack: int
    registers: int
    solver: str
    config: str
    key: str


def local_of(key: str, target: CudaTarget) -> list[Local]:
    signature = parse_key(key)
    candidate, config = predicted(signature, target)
    with tempfile.TemporaryDirectory() as folder:
        sources = candidate.solver.draft(candidate.geometry, config, target).sources
        found = build_unit(list(sources), target, Path(folder, "unit.cubin"))
    each = ((one.spill_store_bytes, one.stack_bytes, one.registers) for one in found)
    return [Local(*max(each, default=(0, 0, 0)), candidate.name, str(config), key)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lists", nargs="*", metavar="LIST", default=["irregular_random"])
    parser.add_argument("--target", default="sm_90a:132:h200")
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="problems of each kind, in place of lists")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    target = as_target(args.target)
    if not isinstance(target, CudaTarget):
        parser.error(f"--target {args.target}: not a GPU")
    if args.drawn:
        lines = [line for line in drawn(args.seed, args.drawn) if not line.startswith("#")]
        signatures = [signature for line in lines for _, signature in parse_command(line).signatures]
    else:
        signatures = [signature for name in args.lists for _, _, signature in listed(name)]
    keys = list(dict.fromkeys(signature.canonical.key() for signature in signatures))
    found = list(on_all_cores("problems compiled", local_of, keys, target, time.monotonic() + 1e9))
    bad = sorted((one for one in found if one.spilled or one.stack), reverse=True)
    for one in bad:
        print(f"{one.spilled:6} {one.stack:6} {one.registers:4}  {one.solver} {one.config}\n    {one.key}")
    print(f"{len(bad)} of {len(found)} untuned kernels for {target.name} use local memory")
    return 0


if __name__ == "__main__":
    sys.exit(main())
