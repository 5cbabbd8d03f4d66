"""Counts what the innermost loop of exact fp32 kernels issues, and how its FFMAs read registers; no GPU is needed.

    python benchmarks/gpu/probes/sass.py PROBLEMS CONFIG ... [--solver ffma_gemm|ffma_dense] [--target NAME]
        [--cuobjdump FILE]

PROBLEMS is a list as ``configs.py`` takes it, CONFIG of the solver as 'name=value ...'. Of the machine code that
``cuobjdump`` prints (``pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm``, or the CUDA toolkit) the loop with the
most FFMAs is read. An FFMA reads three registers from two banks, by the register's number odd or even; what ``.reuse``
kept of the instruction before, one register for each operand's place and bank, is not read again. ``slots`` are the
cycles of an FFMA if each bank gives one register a cycle, ``thrice`` is the share of FFMAs that read one bank three
times. Loops hold the copies of whole tiles and those of tails, of which each step issues one: ``instructions`` counts
both.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[2] / "src")]
from configs import problems_of  # noqa: E402

from tilesmith.solvers.cuda.ffma.solver import FfmaGemmSolver  # noqa: E402
from tilesmith.solvers.cuda.mma.solver import MmaDenseSolver  # noqa: E402
from tilesmith.solvers.solver import parse_config  # noqa: E402
from tilesmith.targets.names import parse_target  # noqa: E402
from tilesmith.toolchain.build import build_unit  # noqa: E402

SOLVERS = {solver.name: solver for solver in (FfmaGemmSolver(), MmaDenseSolver(exact=True))}
_LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?\w+\s+)?(\S+)\s*(.*?);")


@dataclass(frozen=True)
class Instruction:
    """One line of machine code."""

    address: int
    name: str
    operands: tuple[str, ...]


def instructions(text: str) -> list[Instruction]:
    """Those of the first kernel that cuobjdump prints."""
    found = (_LINE.match(line) for line in text.splitlines())
    return [
        Instruction(int(line[1], 16), line[2], tuple(part.strip() for part in line[3].split(",")))
        for line in found if line
    ]  # fmt: skip


def busiest_loop(code: list[Instruction]) -> list[Instruction]:
    """The loop with the most FFMAs that holds no other loop with one."""
    loops = []
    for each in code:
        target = re.search(r"0x([0-9a-f]+)", each.operands[-1])
        if each.name.startswith("BRA") and target and int(target[1], 16) < each.address:
            body = [one for one in code if int(target[1], 16) <= one.address <= each.address]
            if any(one.name == "FFMA" for one in body):
                loops.append(body)
    inner = [body for body in loops if not any(other is not body and set(other) < set(body) for other in loops)]
    return max(inner, key=lambda body: sum(one.name == "FFMA" for one in body))


def register_reads(loop: Iterable[Instruction]) -> dict[str, float]:
    """Of the FFMAs, each in mean: registers read, cycles of the busier bank, and the share that reads one thrice."""
    kept: dict[tuple[int, int], int] = {}
    count = reads = slots = thrice = 0
    for each in loop:
        if each.name != "FFMA":
            kept = {}
            continue
        after, banks = dict(kept), [0, 0]
        for place, operand in enumerate(each.operands[1:4]):
            number = re.match(r"[-|]*R(\d+)", operand)
            if number is None:  # RZ, a constant
                continue
            register = int(number[1])
            bank = register % 2
            banks[bank] += kept.get((place, bank)) != register
            after.pop((place, bank), None)
            if operand.endswith(".reuse"):
                after[place, bank] = register
        kept = after
        count, reads, slots, thrice = count + 1, reads + sum(banks), slots + max(1, *banks), thrice + (max(banks) > 2)
    return {"reads": reads / count, "slots": slots / count, "thrice": thrice / count}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems")
    parser.add_argument("configs", nargs="+", metavar="CONFIG")
    parser.add_argument("--solver", choices=SOLVERS, default="ffma_gemm")
    parser.add_argument("--target", default="sm_90a:132:h100")
    parser.add_argument("--cuobjdump", default="cuobjdump", metavar="FILE")
    args = parser.parse_args()
    target, solver = parse_target(args.target), SOLVERS[args.solver]
    for key, signature in problems_of(args.problems).items():
        for text in args.configs:
            config = parse_config(text)
            if not solver.search_space(signature.geometry, target).contains(config):
                print(f"{key} {text}: not in the space")
                continue
            source = solver.draft(signature.geometry, config, target).sources[0]
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "unit.cubin")
                (taken,) = build_unit([source], target, path)
                printed = subprocess.run([args.cuobjdump, "-sass", path], capture_output=True, text=True, check=True)
            loop = busiest_loop(instructions(printed.stdout))
            names = Counter(each.name.split(".")[0] for each in loop)
            told = ", ".join(f"{name} {value:.3f}" for name, value in register_reads(loop).items())
            print(
                f"{key} {text}\n    {taken.registers} registers, {taken.spill_store_bytes} bytes spilled; "
                f"{len(loop)} instructions, {names['FFMA']} FFMA, {names['LDS']} LDS; {told}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
