"""What fused kernels add to packages: bytes of the untuned choice's kernels, each stored as a package stores it.

python benchmarks/fused_sizes.py [TARGET] [--every N]

The problems: those of ``problems/fused.txt``, and of each trait and mode of ``library_sizes.py`` (fp32, tf32, bf16,
fp8, int8) six layers of its lists. ``--every N`` takes each Nth (default: 2; 1 compiles some 1,600 kernels). Each has
every epilogue below that a solver takes. Needs NVRTC and no GPU. Exit status 1 if a kernel adds more than 10 kB.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import mean

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "gpu"))
from checks_worker import CACHE  # noqa: E402
from gpu_cases import predicted  # noqa: E402
from kernel_sizes import LIMIT, stored  # noqa: E402
from library_sizes import LISTS, problems_of  # noqa: E402

from tilesmith.errors import TilesmithError  # noqa: E402
from tilesmith.plan.records import Source  # noqa: E402
from tilesmith.problems.driver import parse_problem  # noqa: E402
from tilesmith.problems.epilogue import Epilogue  # noqa: E402
from tilesmith.problems.gemm import GemmSignature  # noqa: E402
from tilesmith.problems.keys import parse_key  # noqa: E402
from tilesmith.problems.rewrite import Signature  # noqa: E402
from tilesmith.targets.names import as_target  # noqa: E402

TRAITS = ("bf16", "fp32", "tf32", "fp8", "int8")
LAYERS = 6  # of a trait and mode
GELU = Epilogue(activation="gelu")
EPILOGUES = {
    "bias+gelu": Epilogue(bias=True, activation="gelu"),
    "bias+residual+gelu": Epilogue(bias=True, residual=True, activation="gelu"),
    "bias+tanh": Epilogue(bias=True, activation="tanh"),
    "residual+silu": Epilogue(residual=True, activation="silu"),
    "bias+hardswish": Epilogue(bias=True, activation="hardswish"),
    "bias+residual+relu": Epilogue(bias=True, residual=True, activation="relu"),
}
ADDING = {"beta": Epilogue(), "beta+gelu": GELU}  # of products alone


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", nargs="?", default="sm_90a:132:h200")
    parser.add_argument("--every", type=int, default=2, metavar="N")
    asked = parser.parse_args()
    target = as_target(asked.target)
    found = dict[str, tuple[str, str, Source]]()
    for signature in problems()[:: asked.every]:
        for name, fused in forms(signature):
            try:
                candidate, config = predicted(fused, target)
                draft = candidate.solver.draft(candidate.geometry, config, target)
            except TilesmithError:  # no kernel of this target computes it
                continue
            for source in draft.sources:
                found.setdefault(source.symbol, (candidate.name.partition("@")[0], name, source))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda each: len(stored(CACHE.get_or_build(each[2], target).path.read_bytes())), found.values())
        sizes = {symbol: (*found[symbol][:2], size) for symbol, size in zip(found, made, strict=True)}
    groups = defaultdict(list)
    for solver, _, size in sizes.values():
        groups[solver].append(size)
    everything = [size for *_, size in sizes.values()]
    print("| solver | kernels | stored, mean | stored, largest | above 10 kB |\n|---|---|---|---|---|")
    for solver, group in (*sorted(groups.items()), ("all", everything)):
        above = sum(size > LIMIT for size in group)
        print(f"| {solver} | {len(group)} | {mean(group):.0f} | {max(group)} | {above} |")
    for symbol, (solver, name, size) in sorted(sizes.items(), key=lambda each: -each[1][2]):
        if size > LIMIT:
            print(f"{size} bytes: {solver} {name} {symbol}")
    return int(max(everything) > LIMIT)


def problems() -> list[Signature]:
    lines = (HERE / "problems" / "fused.txt").read_text().splitlines()
    keys = [line for line in lines if ";" in line and not line.startswith("#")]
    found = list({parse_key(key).canonical.key(): parse_key(key).canonical for key in keys}.values())
    for commands in problems_of(LISTS, 1, TRAITS).values():
        for command in commands[:: max(1, len(commands) // LAYERS)]:
            found += [signature.canonical for _, signature in parse_problem(command).signatures]
    return found


def forms(signature: Signature) -> list[tuple[str, Signature]]:
    """The fused forms that the problem can have, with their names."""
    made = []
    for name, epilogue in EPILOGUES.items():
        try:
            made.append((name, replace(signature, epilogue=epilogue).canonical))
        except TilesmithError:  # such as gradients of weights
            continue
    if isinstance(signature, GemmSignature):
        for name, epilogue in ADDING.items():
            try:
                made.append((name, replace(signature, alpha=1.5, beta=0.5, epilogue=epilogue).canonical))
            except TilesmithError:
                continue
    return made


if __name__ == "__main__":
    sys.exit(main())
