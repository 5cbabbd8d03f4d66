"""Copies of operands whose rows begin at multiples of 16, 32 and 128 bytes: products of odd sizes with each.

    python benchmarks/gpu/probes/sectors.py FILE.jsonl       prints what such a run has written
    python benchmarks/gpu/probes/sectors.py [LIST] [--seconds S] [--limit S] [--every N] [--out FILE.jsonl]

For each problem of benchmarks/problems/LIST.txt (default: gemm_odd) whose copies differ, the untuned config of
``wgmma_gemm_copied`` with each kind of copy is compiled, checked on the device, and timed beside cuBLAS, all
interleaved in one process, in rows of calls. A copy at multiples of 16 is what the solver made before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[2] / "src")]
from configs import Tried, build_all, measured, rows_in_time  # noqa: E402
from gpu_cases import listed  # noqa: E402

from tilesmith.problems.rewrite import Signature  # noqa: E402
from tilesmith.solvers.cuda.wgmma import copied  # noqa: E402
from tilesmith.solvers.solver import Accepted  # noqa: E402
from tilesmith.solvers.table import Candidate  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402

UNITS = (16, 32, 128)


@contextmanager
def rows_at(nbytes: int) -> Iterator[None]:
    """Rows of copies begin at multiples of ``nbytes`` inside."""
    before, copied._SECTOR = copied._SECTOR, nbytes
    try:
        yield
    finally:
        copied._SECTOR = before


class OtherCopies(copied.CopiedGemmSolver):
    """The solver with copies at multiples of ``nbytes``."""

    def __init__(self, nbytes: int) -> None:
        super().__init__()
        self.nbytes, self.name = nbytes, f"at{nbytes}"

    def applicable(self, problem, target):
        with rows_at(self.nbytes):
            return super().applicable(problem, target)

    def predict(self, problem, config, target):
        with rows_at(self.nbytes):
            return super().predict(problem, config, target)

    def draft(self, problem, config, target):
        with rows_at(self.nbytes):
            return super().draft(problem, config, target)

    def untuned(self, problem, target):
        with rows_at(self.nbytes):
            return super().default_config(problem, target)


SOLVERS = [OtherCopies(nbytes) for nbytes in UNITS]


def tried(signature: Signature, target) -> list[Tried]:
    """The untuned config with each kind of copy; none where all copies are alike."""
    found: list[Tried] = []
    pitches = set()
    for solver in SOLVERS:
        problem = signature.geometry
        verdict = solver.applicable(problem, target)
        if not isinstance(verdict, Accepted):
            return []
        with rows_at(solver.nbytes):
            pitches.add(tuple(copy.pitch for copy in copied.copies_of(problem)))
        config = solver.untuned(problem, target)
        found.append((Candidate(solver, "", problem, verdict), config, solver.predict(problem, config, target)))
    return found if len(pitches) > 1 else []


def show(rows: list[dict]) -> None:
    ratios: list[list[float]] = []
    for row in rows:
        us = {name.split()[0]: time_us for name, time_us in row["ours"].items()}
        if len(us) < len(UNITS):
            print(f"{'not all are right or fast enough':>40}  {row['key']}")
            continue
        at16, at32, at128 = (us[f"at{nbytes}"] for nbytes in UNITS)
        theirs = min(row["theirs"].values(), default=0.0)
        ratios.append([at16 / at32, at16 / at128, theirs / at32])
        print(f"{at16:9.2f} us at 16 bytes, {at32:9.2f} at 32, {at128:9.2f} at 128, cuBLAS {theirs:9.2f}  {row['key']}")
    if ratios:
        means = [f"{statistics.geometric_mean(each):.3f} (least {min(each):.3f})" for each in zip(*ratios, strict=True)]
        print(f"{len(ratios)} problems, geometric means: 16 over 32 {means[0]}, 16 over 128 {means[1]}, "
              f"cuBLAS over 32 {means[2]}; {sum(len(row['wrong']) for row in rows)} wrong")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", default="gemm_odd", metavar="LIST")
    parser.add_argument("--seconds", type=float, default=0.3, help="of timing a problem")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds on the device after which none is begun")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth problem alone")
    parser.add_argument("--out", type=Path, default=Path("sectors.jsonl"))
    args = parser.parse_args()
    if args.what.endswith(".jsonl"):
        show([json.loads(line) for line in Path(args.what).read_text().splitlines()])
        return 0
    target = cuda_target_of(0)
    signatures = [signature.canonical for _, _, signature in listed(args.what)][:: args.every]
    chosen = {each: found for each in signatures if (found := tried(each, target))}
    drafts = [each.solver.draft(each.geometry, config, target) for some in chosen.values() for each, config, _ in some]
    build_all((source for draft in drafts for source in draft.sources), target)
    tasks = (partial(measured, each, some, target, args.seconds, ("cublas",)) for each, some in chosen.items())
    show(rows_in_time(tasks, args.limit, args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
