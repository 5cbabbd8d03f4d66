"""What rows of calls, and launches that begin early, do to the times of tuned kernels; beside PyTorch's own.

    python benchmarks/gpu/probes/rows.py [LIST ...]

Takes the choices of benchmarks/results/gpu_bench_<card>.json (default: those of gemm_llm), and launches each as it is
and with nothing that begins early. Times are those of single calls between two events and those of rows, all of a
problem interleaved. Prints a line a problem, and the geometric means of the library's time over ours.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2] / "src")]
from checks_worker import CACHE  # noqa: E402
from gpu_cases import accepted  # noqa: E402
from tables import slug  # noqa: E402

from tilesmith.compare.rival import Setting, rivals_of  # noqa: E402
from tilesmith.measure.device_bench import DeviceBench  # noqa: E402
from tilesmith.measure.device_oracle import device_oracle  # noqa: E402
from tilesmith.measure.device_timing import interleave_on_device  # noqa: E402
from tilesmith.plan.assemble import assemble  # noqa: E402
from tilesmith.plan.records import Launch  # noqa: E402
from tilesmith.problems.driver import parse_problem  # noqa: E402
from tilesmith.problems.rewrite import Signature  # noqa: E402
from tilesmith.problems.samples import sample_args  # noqa: E402
from tilesmith.runtime.executable import Executable  # noqa: E402
from tilesmith.solvers.external import library  # noqa: E402
from tilesmith.solvers.old_names import read_config  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_devices, cuda_target_of  # noqa: E402

OURS = ("early", "late")
ROUNDS, SECONDS = 21, 0.5


def executables(signature: Signature, solver: str, config: str, target) -> Iterator[Executable]:
    """A choice as it is, and with no launch that may begin early."""
    candidate = next(each for each in accepted(signature, target) if each.name == solver)
    draft = candidate.solver.draft(candidate.geometry, read_config(candidate.name, config), target)
    made = [CACHE.get_or_build(source, target) for source in draft.sources]
    steps = [replace(step, programmatic=False) if isinstance(step, Launch) else step for step in draft.run]
    for each in (draft, replace(draft, run=tuple(steps))):
        plan = assemble(each, signature, solver, config, target, [artifact.digest for artifact in made])
        yield Executable(plan, [next(a.path for a in made if a.digest == digest) for digest in plan.artifacts])


def times_of(signature: Signature, solver: str, config: str, target) -> dict[tuple[str, str], float]:
    """Microseconds by ``("single" or "row", "early", "late" or "library")``; only kinds whose times say something."""
    values = sample_args(signature)
    truth = partial(device_oracle, signature, values, target, 0, CACHE)
    bench = DeviceBench(signature, values, truth, target, 0, CACHE)
    calls = {}
    for name, executable in zip(OURS, executables(signature, solver, config, target), strict=True):
        verdict = bench.check(executable)
        if not verdict.ok:
            raise ValueError(f"{name}: {verdict.message}")
        calls[name] = bench.timed.plan(executable).run
    stream, found = bench.checker.stream, {}
    setting = Setting(signature, values, target, 0, stream.handle, bench.calls)
    with ExitStack() as held:
        for name, rival in rivals_of(target).items():
            for way in held.enter_context(rival.ways(setting)):
                calls[f"{name} {way.name}"] = partial(lambda ways, place: ways[place](), way.calls)
        for kind, count in (("single", 1), ("row", bench.calls)):
            timings = interleave_on_device(
                calls, stream, bench.flush, calls=count, budget_s=SECONDS, rounds=ROUNDS
            )  # fmt: skip
            if any(timing.disturbed for timing in timings.values()):
                print(f"{signature.key()[:90]} {kind}: left out, the host was late", flush=True)
                continue
            for name in OURS:
                found[kind, name] = timings[name].median_us
            if theirs := [timing.median_us for name, timing in timings.items() if name not in OURS]:
                found[kind, "library"] = min(theirs)
    library.empty_cache()
    return found


def main(*lists: str) -> int:
    target = cuda_target_of(0)
    path = HERE.parents[1] / "results" / f"gpu_bench_{slug(cuda_devices()[0].name)}.json"
    held = json.loads(path.read_text())["lists"]
    ratios: dict[tuple[str, str], list[float]] = {}
    for row in (row for name in lists or ("gemm_llm",) for row in held[name]):
        signature = dict(parse_problem(row["command"]).signatures)[row["direction"]].canonical
        times = times_of(signature, row["bench"]["solver"], row["bench"]["config"], target)
        for kind, name in times:
            if name in OURS and (kind, "library") in times:
                ratios.setdefault((kind, name), []).append(times[kind, "library"] / times[kind, name])
        print(signature.key()[:90], ", ".join(f"{' '.join(key)} {us:.2f}" for key, us in times.items()), flush=True)
    for key, found in ratios.items():
        mean = math.exp(sum(map(math.log, found)) / len(found))
        print(f"{' '.join(key)}: library / ours {mean:.3f}, least {min(found):.3f}, {len(found)} problems")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
