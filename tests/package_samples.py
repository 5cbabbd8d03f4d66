"""Small packages with all kinds of entries."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

from plan_samples import SMALL
from tilesmith.db.records import Record
from tilesmith.package.making import PackedPlan, make_package
from tilesmith.package.records import KernelPackage, Manifest
from tilesmith.plan.serial import encode

TARGET = "x86_64-v4:2:zen5"
MANIFEST = Manifest("test", TARGET, "tilesmith 0.1.0", "0123456789abcdef", counter=3, date=1_700_000_000)


def binary(number: int, size: int = 300) -> bytes:
    """Bytes that deflate to half, the same for the same number."""
    draw = random.Random(number)
    return bytes(draw.choice(b"ELF\x7f0123456789") for _ in range(size))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def plan(problem: str, *binaries: bytes, solver: str = "c_dense", config: str = "mr=6", target: str = TARGET) -> bytes:
    names = tuple(map(digest, binaries))
    return encode(replace(SMALL, problem=problem, target=target, solver=solver, config=config, artifacts=names))


def row(problem: str, time_us: float = 12.5, **changes) -> Record:
    fields = {"target": TARGET, "solver": "c_dense", "config": "mr=6", "date": "2026-01-01T00:00:00Z"} | changes
    return Record(problem, time_us=time_us, **fields)


def package(problems: int = 3, manifest: Manifest = MANIFEST, binaries: int = 2, size: int = 300) -> KernelPackage:
    """Two plans, an answer and a trial for each problem; ``binaries`` are shared among the plans."""
    kernels = [binary(number, size) for number in range(binaries)]
    plans, results, trials = [], [], []
    for number in range(problems):
        name, kernel = f"conv1;fwd;n={number}", kernels[number % binaries]
        plans += [
            PackedPlan(plan(name, kernel, solver="c_direct"), 2),
            PackedPlan(plan(name, kernel), 1, 10.0 + number),
        ]
        results.append(row(name))
        trials += [row(name, 14.0, config="mr=4"), row(name, 12.5)]
    return make_package(manifest, plans, {digest(data): data for data in kernels}, results, trials)
