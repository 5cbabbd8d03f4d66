"""What compact texts of grouped and depthwise kernels for CPUs cost: the time without them over that with them.

    python benchmarks/compact_texts.py [--target x86_64-v4:1] [--seconds 2] [LIST ...]

For each problem of the lists (default: all of benchmarks/problems/) whose untuned kernel would be another if a kernel
could be of any length, both are compiled, and called in turns on the same tensors, of 8 images at most. Prints a line
a problem, with the bytes that each adds to a package, and the geometric mean. Exit status 1 if results differ by a bit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "gpu"))
from checks_worker import CACHE  # noqa: E402
from gpu_cases import listed  # noqa: E402
from kernel_sizes import stored  # noqa: E402

from tilesmith.measure.arrays import aligned_arrays  # noqa: E402
from tilesmith.measure.timing import interleave  # noqa: E402
from tilesmith.plan.assemble import assemble  # noqa: E402
from tilesmith.plan.check import FILTER_SLOT  # noqa: E402
from tilesmith.plan.records import Draft  # noqa: E402
from tilesmith.problems.conv import ConvSignature  # noqa: E402
from tilesmith.problems.samples import sample_args  # noqa: E402
from tilesmith.runtime.executable import Executable  # noqa: E402
from tilesmith.solvers.c.grouped import solver, tile  # noqa: E402
from tilesmith.solvers.c.grouped.solver import DepthwiseSolver, GroupedSolver  # noqa: E402
from tilesmith.solvers.solver import Accepted, Config  # noqa: E402
from tilesmith.targets.names import parse_target  # noqa: E402
from tilesmith.targets.target import CpuTarget  # noqa: E402

IMAGES = 8
ROUNDS = 21


@dataclass(frozen=True)
class Made:
    config: Config
    draft: Draft


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lists", nargs="*", default=sorted(path.stem for path in (HERE / "problems").glob("*.txt")))
    parser.add_argument("--target", default="x86_64-v4:1")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each problem")
    asked = parser.parse_args()
    target, ratios, count, differ = parse_target(asked.target), [], 0, 0
    assert isinstance(target, CpuTarget)
    signatures = {
        signature.canonical.key(): signature.canonical for name in asked.lists for _, _, signature in listed(name)
    }
    for key, signature in signatures.items():
        if not isinstance(signature, ConvSignature):
            continue
        for family in (DepthwiseSolver(), GroupedSolver()):
            if family.applicable(signature.geometry, target) != Accepted():
                continue
            count += 1
            now = made(family, signature, target)
            with mock.patch.object(solver, "MOST", 1e9), mock.patch.object(tile, "MOST", 1e9):
                before = made(type(family)(), signature, target)  # another solver: choices are remembered by solver
            if now.draft.sources[0].text == before.draft.sources[0].text:
                continue
            ratio, same, sizes = raced(signature, before, now, target, asked.seconds)
            ratios.append(ratio)
            differ += not same
            print(
                f"{ratio:.3f} {'same' if same else 'DIFFERENT'} {sizes[0]:6} -> {sizes[1]:5} bytes  {key}", flush=True
            )
    mean = statistics.geometric_mean(ratios)
    print(f"{len(ratios)} of {count} kernels are others: {mean:.3f} times as fast (geometric mean), "
          f"{min(ratios):.3f} to {max(ratios):.3f}; {differ} differ")  # fmt: skip
    return int(differ > 0)


def of_few(signature: ConvSignature) -> ConvSignature:
    images, *rest = signature.input_shape
    return replace(signature, input_shape=(min(IMAGES, images), *rest))


def made(family: GroupedSolver, signature: ConvSignature, target: CpuTarget) -> Made:
    """The untuned choice for all images, and its draft for a few: the kernel is the same."""
    config = family.default_config(signature.geometry, target)
    return Made(config, family.draft(of_few(signature).geometry, config, target))


def raced(
    signature: ConvSignature, before: Made, now: Made, target: CpuTarget, seconds: float
) -> tuple[float, bool, list[int]]:
    """The first time over the second, whether results are equal, and the bytes that each kernel adds to a package."""
    few = of_few(signature)
    values, calls, results, sizes = sample_args(few), {}, [], []
    for name, each in (("before", before), ("now", now)):
        artifacts = [CACHE.get_or_build(source, target) for source in each.draft.sources]
        sizes.append(len(stored(artifacts[0].path.read_bytes())))
        plan = assemble(each.draft, few, "", str(each.config), target, [artifact.digest for artifact in artifacts])
        executable = Executable(plan, [next(a.path for a in artifacts if a.digest == d) for d in plan.artifacts])
        arrays = aligned_arrays(few, values)
        packed = executable.prepare(arrays[FILTER_SLOT]) if executable.prepares else None
        calls[name] = executable.hold(arrays, packed)
        calls[name]()
        results.append(arrays[-1])
    times = interleave(calls, budget_s=seconds, rounds=ROUNDS, threads=target.cores)
    same = np.array_equal(*(np.ascontiguousarray(result).view(np.uint8) for result in results))
    return times["before"].median_us / times["now"].median_us, same, sizes


if __name__ == "__main__":
    sys.exit(main())
