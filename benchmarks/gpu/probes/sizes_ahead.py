"""Compiles what a run of ``sizes.py`` would spend its time on, before it or on a machine without a GPU.

    python benchmarks/gpu/probes/sizes_ahead.py PROBLEMS [--types TYPE ...] [--target NAME] [--configs N]
        [--first FILE ...] [--build-seconds S]

First our kernels, on all cores: of each product the configs of --first, and the N that a search asks for before it has
timed any. They go into the cache that searches read (TILESMITH_CACHE_DIR). Then CUTLASS's kernels, for S seconds, into
the laboratory's folder (TILESMITH_LAB_DIR). The name of a library there says what went into it and nothing of the
machine: libraries that were copied from the same folder of another machine are found, if both have CUTLASS of one
version and nvcc of one release, and the C library is not an older one. The names of our kernels in the cache hold the
path of NVRTC, so each machine compiles its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "src")]
from size_lists import first_of, problems_of  # noqa: E402

from tilesmith.compare.cutlass.rival import RIVAL as CUTLASS  # noqa: E402
from tilesmith.dispatch.locations import open_cache  # noqa: E402
from tilesmith.errors import TilesmithError  # noqa: E402
from tilesmith.plan.records import Source  # noqa: E402
from tilesmith.problems.keys import parse_key  # noqa: E402
from tilesmith.solvers.old_names import read_config  # noqa: E402
from tilesmith.solvers.solver import Accepted  # noqa: E402
from tilesmith.solvers.table import Candidate, candidates  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402
from tilesmith.targets.names import parse_target  # noqa: E402
from tilesmith.targets.target import CudaTarget  # noqa: E402
from tilesmith.tune.model import Model  # noqa: E402
from tilesmith.tune.space import Point, SolverSpace, worthwhile  # noqa: E402

Asked = tuple[str, list[tuple[str, str]]]  # a problem's key, solvers with configs


def asked_first(asked: Asked, count: int, target: CudaTarget) -> list[Source]:
    """The kernels of the points that a search begins with: those that are given, all defaults, and ``count`` more."""
    key, given = asked
    found = {c.name: c for c in candidates(parse_key(key), target) if isinstance(c.verdict, Accepted)}
    spaces = worthwhile([_space_of(each, target) for each in found.values()])
    points = [
        Point(space.name, config)
        for space in spaces for name, text in given
        if name == space.name and space.space.contains(config := read_config(name, text))
    ]  # fmt: skip
    strategy = Model(spaces, 0)
    strategy.expect(points)
    points += strategy.ask(len(spaces))
    points += strategy.ask(count) if count else []
    drafts = (
        found[point.solver].solver.draft(found[point.solver].geometry, point.config, target)
        for point in dict.fromkeys(points)
    )
    return list({source.text: source for draft in drafts for source in draft.sources}.values())


def _space_of(candidate: Candidate, target: CudaTarget) -> SolverSpace:
    solver, geometry = candidate.solver, candidate.geometry
    return SolverSpace(
        candidate.name, solver.search_space(geometry, target), solver.default_config(geometry, target),
        partial(solver.predict, geometry, target=target), partial(solver.ranked, geometry, target),
    )  # fmt: skip


def compile_first(asked: Asked, count: int, target: CudaTarget) -> int:
    """Compile a product's kernels; returns how many are in the cache."""
    cache, done = open_cache(), 0
    for source in asked_first(asked, count, target):
        try:
            cache.get_or_build(source, target)
            done += 1
        except TilesmithError as error:
            print(f"  does not compile: {error}"[:300], flush=True)
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems")
    parser.add_argument("--types", nargs="+", default=[], metavar="TYPE", help="those alone: fp32, tf32, …")
    parser.add_argument("--target", metavar="NAME", help="default: the GPU of this machine")
    parser.add_argument("--configs", type=int, default=0, metavar="N")
    parser.add_argument("--first", nargs="+", default=[], type=Path, metavar="FILE", help="configs to begin with")
    parser.add_argument("--build-seconds", type=float, default=150.0, help="of compiling CUTLASS's kernels")
    args = parser.parse_args()
    target = parse_target(args.target) if args.target else cuda_target_of(0)
    assert isinstance(target, CudaTarget)
    problems, known = [each.canonical for each in problems_of(args.problems, args.types)], first_of(args.first)
    began = time.monotonic()
    if args.configs or known:
        tasks = [(each.key(), known.get(each.key(), [])) for each in problems]
        cores = len(os.sched_getaffinity(0))
        with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
            done = sum(pool.map(partial(compile_first, count=args.configs, target=target), tasks))
        print(f"{done} of our kernels are compiled, {time.monotonic() - began:.1f} s", flush=True)
    if CUTLASS.is_here():
        CUTLASS.build(problems, target, args.build_seconds, partial(print, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
