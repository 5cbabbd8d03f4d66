"""The plain reference in C on random problems: ``python tests/runtime/reference_problems.py 5000 [SEED] [--sanitize]``.

Problems come from the generators of ``problem_keys``: every mode, dtype, layout, pitch, epilogue. Each result is
compared with the float64 oracle, elementwise, with random data and with NaN and Inf planted in each operand. Every
fifth problem runs again on 2, 3 and 16 threads, which must give the same bits.

``--sanitize``: the reference under AddressSanitizer and UndefinedBehaviorSanitizer, in a process of its own.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from c_problems import OK, REFERENCE, Desc, Problems, build
from problem_keys import conv_case, gemm_case

from tilesmith.dispatch.empty import EmptyBound
from tilesmith.errors import ProblemError
from tilesmith.measure.accuracy import Accuracy, check_specials, verify
from tilesmith.measure.arrays import guarded_operands, guarded_result
from tilesmith.plan.slots import arguments
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.problems.samples import sample_args
from tilesmith.toolchain.compilers import find_compiler

MOST_BYTES = 1 << 20  # of one tensor
MOST_PRODUCTS = 1 << 20
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1")
ROOM = 4096  # bytes, more than a ts_reference has


@dataclass
class Report:
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Reference:
    """One opened problem; called with the arguments in the order of the signature, the result last."""

    def __init__(self, library: Problems, desc: Desc, signature: Signature, threads: int = 1) -> None:
        self._run = library.c.ts_reference_run
        self._run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]
        library.c.ts_reference_open.argtypes = [ctypes.c_void_p] * 3
        self.room = ctypes.create_string_buffer(ROOM)
        status = library.c.ts_reference_open(ctypes.addressof(desc), self.room, None)
        assert status == OK, signature
        self._order = signature.canonical_order
        self.threads = threads

    def __call__(self, *arrays: Any) -> None:
        *inputs, out = (array.__array_interface__["data"][0] for array in arrays)
        slots = [*(inputs[place] for place in self._order if place < len(inputs)), out]  # the initial c is in out
        status = self._run(self.room, (ctypes.c_void_p * len(slots))(*slots), self.threads)
        assert status == OK


def products(signature: Signature) -> int:
    if isinstance(signature, GemmSignature):
        return signature.batch * signature.m * signature.n * signature.k
    return prod(arguments(signature)[-1].shape) * signature.geometry.reduction_length


def problems(count: int, seed: int, library: Problems) -> Iterator[tuple[Signature, Desc, str]]:
    """Valid problems that take milliseconds."""
    rng = random.Random(seed)
    found = 0
    while found < count:
        case = (gemm_case if rng.random() < 0.25 else conv_case)(rng)
        try:
            signature = case.signature()
        except ProblemError:
            continue
        if max(slot.nbytes for slot in arguments(signature)) > MOST_BYTES:
            continue
        if not signature.is_empty and products(signature) > MOST_PRODUCTS:
            continue
        found += 1
        yield signature, library.desc(**case.values), f"{signature.key()} {case.values}"


def result(call: Reference, signature: Signature, threads: int) -> bytes:
    """The result's bits after a call on the sample arguments."""
    values = sample_args(signature, 1)
    operands, out = guarded_operands(signature, values), guarded_result(signature, values)
    call.threads = threads
    call(*(operand.array for operand in operands), out.array)
    return out.array.view(f"u{out.array.itemsize}").tobytes()


def check_empty(call: Reference, signature: Signature) -> Accuracy:
    """Results of sums over nothing are exact."""
    values = sample_args(signature, 1)
    *operands, slot = arguments(signature)
    wanted = EmptyBound(signature, "cpu")(*values)
    memory = guarded_result(signature, values) if prod(slot.shape) else None
    out = memory.array if memory else np.empty(slot.shape, dtype(slot.dtype).numpy())
    call(*values[: len(operands)], out)
    if memory and memory.out_of_bounds():
        return Accuracy(False, 0.0, 0.0, (), memory.out_of_bounds())
    same = np.array_equal(out.astype(np.float64), np.asarray(wanted).astype(np.float64), equal_nan=True)
    return Accuracy(same, 0.0, 0.0, (), "" if same else f"empty sums: {out} instead of {wanted}")


def check(count: int, seed: int, library: Problems) -> Report:
    report = Report()
    for number, (signature, desc, text) in enumerate(problems(count, seed, library)):
        call = Reference(library, desc, signature, threads=1 + number % 3)
        if signature.is_empty:
            report.counts["empty"] += 1
            verdicts = [check_empty(call, signature)]
        else:
            kind = "gemm" if isinstance(signature, GemmSignature) else signature.mode
            report.counts[kind] += 1
            report.counts[arguments(signature)[-1].dtype] += 1
            verdicts = [verify(call, signature, seed=number)]
            if verdicts[0].ok and number % 2:
                verdicts.append(check_specials(call, signature, seed=number))
                report.counts["with NaN and Inf"] += 1
            if number % 5 == 0:
                alone = result(call, signature, 1)
                if any(result(call, signature, threads) != alone for threads in (2, 3, 16)):
                    verdicts.append(Accuracy(False, 0.0, 0.0, (), "other bits on more threads"))
                report.counts["on 2, 3 and 16 threads"] += 1
        report.wrong += [f"{text}\n  {verdict.message}" for verdict in verdicts if not verdict.ok]
    return report


def sanitized(count: int, seed: int, runtime: Path) -> subprocess.CompletedProcess[str]:
    """The same in a process that begins with AddressSanitizer, as a library under it must be loaded.

    ``runtime`` is the runtime as a library, of which the reference alone is compiled again.
    """
    first = subprocess.run([*find_compiler().command, "-print-file-name=libasan.so"], capture_output=True, text=True,
                           check=True).stdout.strip()  # fmt: skip
    environment = os.environ | {"LD_PRELOAD": first, "ASAN_OPTIONS": "detect_leaks=0"}
    command = [sys.executable, __file__, str(count), str(seed), "--sanitized", str(runtime)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--sanitized", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if asked.sanitized:
            rest = [asked.sanitized, f"-Wl,-rpath,{Path(asked.sanitized).parent}"]
            library = build(Path(folder), *SANITIZE, *rest, only=("ts_reference*.c",))
        else:
            library = build(Path(folder), "-O2", only=REFERENCE)
        if asked.sanitize:
            done = sanitized(asked.count, asked.seed, Path(library.c._name))
            print(done.stdout + done.stderr, end="")
            return done.returncode
        begin = time.perf_counter()
        report = check(asked.count, asked.seed, library)
    for line in report.wrong[:20]:
        print(line)
    print(f"{asked.count} problems (seed {asked.seed}) in {time.perf_counter() - begin:.1f} s: {dict(report.counts)}, "
          f"{len(report.wrong)} wrong")  # fmt: skip
    return int(bool(report.wrong))


if __name__ == "__main__":
    sys.exit(main())
