"""Many configs of the fused problems, checked on the device: python benchmarks/gpu/probes/fused_checks.py [CONFIGS]."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "src")]
from checks_worker import CACHE  # noqa: E402
from gpu_cases import accepted  # noqa: E402
from odd_problems import fused_problems  # noqa: E402

from tilesmith.measure.device_bench import DeviceBench  # noqa: E402
from tilesmith.measure.device_oracle import device_oracle  # noqa: E402
from tilesmith.plan.assemble import assemble  # noqa: E402
from tilesmith.problems.samples import sample_args  # noqa: E402
from tilesmith.runtime.executable import Executable  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402
from tilesmith.tune.space import random_point  # noqa: E402


def main(most: int = 10) -> int:
    target, checked, wrong = cuda_target_of(0), 0, 0
    for problem in fused_problems():
        signature = problem.canonical
        values = sample_args(signature)
        bench = DeviceBench(
            signature, values, partial(device_oracle, signature, values, target, 0, CACHE), target, 0, CACHE
        )
        for candidate in accepted(signature, target):
            if "reference" in candidate.name:
                continue
            solver, geometry, rng = candidate.solver, candidate.geometry, random.Random(5)
            space = solver.search_space(geometry, target)
            configs = {solver.default_config(geometry, target)}
            for _ in range(most if candidate.name.startswith("wgmma") else 2):
                found = random_point(space, rng)
                configs |= {found} if found else set()
            drafts = {config: solver.draft(geometry, config, target) for config in configs}
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda source: CACHE.get_or_build(source, target),
                              [source for draft in drafts.values() for source in draft.sources]))  # fmt: skip
            for config, draft in drafts.items():
                made = [CACHE.get_or_build(source, target) for source in draft.sources]
                plan = assemble(draft, signature, candidate.name, str(config), target, [a.digest for a in made])
                executable = Executable(plan, [next(a.path for a in made if a.digest == d) for d in plan.artifacts])
                verdict = bench.check(executable)
                checked += 1
                if not verdict.ok:
                    wrong += 1
                    print("WRONG", signature.key(), candidate.name, config, verdict.message, flush=True)
    print(f"{checked} checked, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
