"""Checks and times the portable (mma.sync, fp32, depthwise) kernels on a device; the harness is that of ``sm90.py``.

python benchmarks/gpu/mma.py check                 small and odd problems, all kinds of loads and epilogues
python benchmarks/gpu/mma.py time resnet50 -n 6    problem lists: the untuned choice and 5 more, against PyTorch
Writes JSON lines to $OUT/sm90.jsonl.
"""

import argparse
import random
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "src")]
import sm90  # noqa: E402
from sm90 import Case  # noqa: E402

from tilesmith.problems.rewrite import rewrites  # noqa: E402
from tilesmith.problems.signature import parse_key  # noqa: E402
from tilesmith.solvers.cuda.depthwise import DepthwiseCudaSolver  # noqa: E402
from tilesmith.solvers.cuda.mma_dense import MmaDenseSolver  # noqa: E402
from tilesmith.solvers.cuda.mma_thin import MmaThinSolver  # noqa: E402
from tilesmith.solvers.cuda.relayout import CUDA_COPIES  # noqa: E402
from tilesmith.solvers.relayout import Relayout  # noqa: E402
from tilesmith.solvers.solver import Accepted, Config  # noqa: E402

_DENSE = MmaDenseSolver(exact=False)
_ALL = (DepthwiseCudaSolver(), MmaThinSolver(), _DENSE, MmaDenseSolver(exact=True), Relayout(_DENSE, CUDA_COPIES))
sm90.SOLVERS = {s.name: s for s in _ALL}
sm90.__file__ = __file__  # the worker is this program
TARGET = sm90.TARGET
WANTS = (
    {"split_k": 3},
    {"block_m": 128, "block_n": 128, "split_k": 1},
    {"block_k": 64, "split_k": 2},
    {"stages": 2, "split_k": 1},
)


def points(solver, g, count, seed=0, wants=()):
    """The untuned choice, one point for each of ``wants``, then points that the cost model likes, all different."""
    rng = random.Random(seed)
    space, default = solver.search_space(g, TARGET), solver.default_config(g, TARGET)
    found = {default: None}

    def draw(want):
        return Config(tuple((n, want.get(n, rng.choice(v))) for n, v in space.axes.items()))

    for want in wants:
        if all(v in space.axes.get(n, ()) for n, v in want.items()):
            found |= next(({c: None} for c in (draw(want) for _ in range(400)) if space.allowed(c)), {})
    pool = {c: solver.predict(g, c, TARGET) for c in (draw({}) for _ in range(4000)) if space.allowed(c)}
    kinds = {}
    for config in sorted(pool, key=pool.get):
        kind = config.values[:3]
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] <= 2 and len(found) < count + len(wants):
            found[config] = None
    return list(found)


def variants(key, count):
    found = []
    for rewrite in rewrites(parse_key(key)):
        g = rewrite.signature.geometry
        for solver in sm90.SOLVERS.values():
            if isinstance(solver.applicable(g, TARGET), Accepted):
                chosen = points(solver, g, count)
                found += [(solver.predict(g, c, TARGET), rewrite.signature.key(), solver.name, str(c)) for c in chosen]
    found.sort(key=lambda item: item[0])
    return [(form, name, config) for _, form, name, config in found[:count]]


def check_cases(pick):
    from mma_cases import problems

    found, seen = [], []
    for signature, nan in problems():
        key, g = signature.canonical.key(), signature.canonical.geometry
        if pick and not any(p in key for p in pick.split(",")):
            continue
        accepted = [s for s in sm90.SOLVERS.values() if isinstance(s.applicable(g, TARGET), Accepted)]
        if not accepted and len(sm90.SOLVERS) < len(_ALL):
            continue
        if not accepted:
            raise SystemExit(f"no solver takes {key}: {[str(s.applicable(g, TARGET)) for s in sm90.SOLVERS.values()]}")
        for solver in accepted[:1]:
            at = len(seen)
            seen.append(key)
            chosen = points(solver, g, 1, wants=(WANTS[at % 4], WANTS[(at + 1 + at // 4) % 4], {}))
            found += [Case(key, key, solver.name, str(config)) for config in chosen]
            if nan:
                found += [Case(key, key, solver.name, str(config), special="nan") for config in chosen[:2]]
    return found


def main():
    if sys.argv[1] == "worker":
        return sm90.worker(sys.argv[2], int(sys.argv[3]))
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("check", "time"))
    parser.add_argument("lists", nargs="*")
    parser.add_argument("-n", type=int, default=6)
    parser.add_argument("--only", default="fwd,bwd,wrw,gemm")
    parser.add_argument("--pick", default="", help="part of the keys to keep, several by commas")
    parser.add_argument("--solver", default="", help="part of the names of the solvers to keep, several by commas")
    parser.add_argument("--every", type=int, default=1)
    args = parser.parse_args()
    parts = args.solver.split(",")
    sm90.SOLVERS = {name: s for name, s in sm90.SOLVERS.items() if any(part in name for part in parts)}
    if args.mode == "check":
        cases = check_cases(args.pick)
    else:
        keys = sm90.listed(args.lists, args.only.split(","))[:: args.every]
        keys = [k for k in keys if not args.pick or any(p in k for p in args.pick.split(","))]
        cases = [Case(key, form, s, c, timed=True) for key in keys for form, s, c in variants(key, args.n)]
    sm90.run(cases)


if __name__ == "__main__":
    main()
