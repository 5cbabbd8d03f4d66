"""The process that runs cases of `make gpu-test` on one device: ``checks_worker.py CASES START RESULTS``.

A kernel may kill it or hang; ``checks.py`` then starts another behind that case. Each result is a JSON line.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]
import numpy as np  # noqa: E402
from exact_memory import one_call  # noqa: E402
from gpu_cases import LONG, PLANTED, SPECIAL_FLOPS, TOOLS, Case, draft_of  # noqa: E402
from workers import keep_to_my_cores  # noqa: E402

from tilesmith.errors import LaunchError  # noqa: E402
from tilesmith.measure.accuracy import Accuracy, planted_copy  # noqa: E402
from tilesmith.measure.checker import NAN, NUMBER, same_bits  # noqa: E402
from tilesmith.measure.device_arrays import DevicePlan  # noqa: E402
from tilesmith.measure.device_bench import DeviceBench  # noqa: E402
from tilesmith.measure.device_oracle import device_oracle  # noqa: E402
from tilesmith.plan.assemble import assemble  # noqa: E402
from tilesmith.plan.slots import arguments  # noqa: E402
from tilesmith.problems.keys import parse_key  # noqa: E402
from tilesmith.problems.rewrite import Signature  # noqa: E402
from tilesmith.problems.samples import sample_args  # noqa: E402
from tilesmith.problems.work import flops  # noqa: E402
from tilesmith.runtime.executable import Executable  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402
from tilesmith.toolchain.cache import Artifact, ArtifactCache  # noqa: E402

CACHE = ArtifactCache(HERE.parents[1] / "build" / "gpu-test" / "cache")
AHEAD = 2  # cases that are compiled ahead, for each core
REFERENCE = "cuda_reference"
GRAPH, BITS, CERTIFIED = "graph", "bits", "other places, two filters, NaN and Inf"
INTEGERS = ("int8", "int32")  # in operands of these types no NaN can be planted


class Replayed:
    """A plan whose run is the replay of a captured graph: of two runs, as the second may begin before the first ends.

    Of one where the result is read as well.
    """

    def __init__(self, plan: DevicePlan, bench: DeviceBench) -> None:
        self._plan, self._stream = plan, bench.checker.stream
        with self._stream.capture() as graph:
            plan.run()
            if not getattr(bench.checker.signature.geometry, "beta", 0.0):
                plan.run()
        self._graph = graph

    def prepare(self) -> None:
        self._plan.prepare()

    def poison(self) -> None:
        self._plan.poison()

    def run(self) -> None:
        self._graph.launch(self._stream)


def build(case: Case, target) -> tuple[object, str, str, list[Artifact]] | None:
    """The plan of a case with its artifacts; None where there is nothing to run."""
    signature = parse_key(case.key)
    found = draft_of(case, target)
    if found is None:
        return None
    candidate, config, draft = found
    made = [CACHE.get_or_build(source, target) for source in draft.sources]
    plan = assemble(draft, signature, candidate.name, str(config), target, [artifact.digest for artifact in made])
    by_digest = {artifact.digest: artifact for artifact in made}
    return plan, candidate.name, str(config), [by_digest[digest] for digest in plan.artifacts]


def planted(signature: Signature, values: tuple[np.ndarray, ...]) -> Iterator[tuple[str, tuple[np.ndarray, ...]]]:
    """The values with NaN, then with Inf, in one operand after the other.

    A scale gets no Inf: times a sum that may be rounded to 0 or not, it is NaN or Inf, and both are right.
    """
    for place, (slot, value) in enumerate(zip(arguments(signature), values, strict=False)):
        if value.dtype.kind not in "iu":
            infinite = [] if slot.name == "scale" else [(np.inf, -np.inf)]
            for kinds in ((np.nan, np.nan), *infinite):
                changed = planted_copy(value, kinds, place)
                yield f"{kinds[0]} in argument {place}", (*values[:place], changed, *values[place + 1 :])


def verdicts(case: Case, signature: Signature, executable: Executable, target) -> Iterator[tuple[str, Accuracy]]:
    """What is checked of a case, and what was found."""
    drawn = case.part == "random"
    values = sample_args(signature, case.number if drawn else 0)
    if case.part in TOOLS:  # the tool watches every kernel: ours alone
        yield "numbers", one_call(signature, values, executable, case.part == "initcheck")
        return
    bench = DeviceBench(
        signature, values, partial(device_oracle, signature, values, target, 0, CACHE), target, 0, CACHE
    )
    verdict = bench.check(executable)
    yield "numbers", verdict
    if verdict.ok:
        replayed = Replayed(bench.checker.plan(executable), bench)
        yield GRAPH, bench.checker.check_plan(replayed, poison=True)
    if drawn:
        if signature.deterministic:
            runs = runs_of(case)
            yield f"{BITS} of {runs} runs", same_bits_in(runs, bench, executable)
        yield CERTIFIED, bench.certify(executable)
    everywhere = case.number % PLANTED == 0 if drawn else case.part == "kernels" and case.number == 0
    if everywhere and flops(signature) <= SPECIAL_FLOPS:
        with np.errstate(all="ignore"):
            for what, changed in planted(signature, values):
                truth = device_oracle(signature, changed, target, 0, CACHE)
                yield what, DeviceBench(signature, changed, truth, target).check(executable)


def runs_of(case: Case) -> int:
    """How often a deterministic kernel must give the same bits."""
    return 100 if case.number % LONG == 0 else 3


def same_bits_in(runs: int, bench: DeviceBench, executable: Executable) -> Accuracy:
    """A result that is right, and the same to the last bit in each run: over NaNs, then over numbers."""
    checker, first = bench.checker, None
    plan = checker.plan(executable)
    verdict = checker.check_plan(plan, poison=True)
    for number in range(runs if verdict.ok else 0):
        checker.clear(NUMBER if number % 2 else NAN)
        plan.run()
        checker.finish()
        found = checker.found()
        first = found.copy() if first is None else first
        if not same_bits(np.ascontiguousarray(found), np.ascontiguousarray(first)):
            return Accuracy(False, 0.0, 0.0, (), f"run {number + 1} has other bits than run 1")
    return verdict


def run(case: Case, built: Future, target) -> dict[str, object]:
    """One case as a row."""
    begin = time.perf_counter()
    row: dict[str, object] = {"name": case.name, "part": case.part, "ok": True}
    if case.family:
        row["family"] = case.family
    try:
        found = built.result()
        if found is None:
            return row | {"left_out": "the solver has no other config here"}
        plan, row["solver"], row["config"], artifacts = found
        signature = parse_key(case.key)
        executable = Executable(plan, [artifact.path for artifact in artifacts])
        row["checks"] = 0
        for what, verdict in verdicts(case, signature, executable, target):
            row["checks"] += 1
            if what == GRAPH:
                row["replayed"] = verdict.ok
            if what.startswith(BITS):
                row["runs"] = runs_of(case)
            if what == CERTIFIED and all(slot.dtype not in INTEGERS for slot in arguments(signature)[:-1]):
                row["planted"] = True
            if row["checks"] == 1 and math.isfinite(verdict.error):
                row |= {"error": verdict.error, "bound": verdict.bound}
            if not verdict.ok:
                row |= {"ok": False, "message": f"{what}: {verdict.message}"}
                break
        if case.part.startswith("list ") and row["solver"] == REFERENCE:
            row |= {"ok": False, "message": "left to the reference solver", "reference": True}
    except Exception as error:
        row |= {
            "ok": False,
            "message": f"{type(error).__name__}: {error}"[:400],
            "dead": isinstance(error, LaunchError),
        }
    row["seconds"] = round(time.perf_counter() - begin, 3)
    return row


def main(path: str, start: int, results: str) -> int:
    cases = [Case(**fields) for fields in json.loads(Path(path).read_text())]
    target = cuda_target_of(0)
    keep_to_my_cores()
    cores = len(os.sched_getaffinity(0))
    with open(results, "a") as file, ThreadPoolExecutor(cores) as pool:
        waiting: list[Future] = []
        for index in range(start, len(cases)):
            while len(waiting) < AHEAD * cores and index + len(waiting) < len(cases):
                waiting.append(pool.submit(build, cases[index + len(waiting)], target))
            row = run(cases[index], waiting.pop(0), target)
            file.write(json.dumps({"index": index, **row}) + "\n")
            file.flush()
            if row.pop("dead", False):  # nothing runs in this process after a kernel that failed
                os._exit(3)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
