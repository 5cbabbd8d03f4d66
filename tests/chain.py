"""From drafts to functions of arrays through the real chain: compiler, plan, runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import levels
from tilesmith.plan.assemble import assemble
from tilesmith.plan.records import Draft
from tilesmith.problems.rewrite import Signature
from tilesmith.runtime.executable import Executable
from tilesmith.targets.target import Target
from tilesmith.toolchain.compilers import find_compiler
from tilesmith.tune.units import UnitBuilder

TWO_THREADS = replace(levels.HIGHEST, cores=2)


@cache
def _builder(target: Target) -> tuple[UnitBuilder, tempfile.TemporaryDirectory[str]]:
    folder = tempfile.TemporaryDirectory(prefix="tilesmith-test-")
    return UnitBuilder(Path(folder.name), target, find_compiler(), 1), folder


def executables(pairs: Sequence[tuple[Signature, Draft]], target: Target | None = None) -> list[Executable]:
    """One executable for each problem and draft; all sources go to one compiler call."""
    target = target or TWO_THREADS
    builder = _builder(target)[0]
    found = []
    for (signature, draft), paths in zip(pairs, builder.build([draft for _, draft in pairs]), strict=True):
        assert not isinstance(paths, str), paths
        digests = [builder.digest(path) for path in paths]
        plan = assemble(draft, signature, "test", "", target, digests)
        files = dict(zip(digests, paths, strict=True))
        found.append(Executable(plan, [files[digest] for digest in plan.artifacts]))
    return found


def function(executable: Executable, signature: Signature) -> Callable[..., None]:
    """``call(*arguments, out)`` as ``measure.accuracy.verify`` wants it; every call starts with poisoned memory."""
    bound = executable.bind(signature)

    def call(*arrays):
        *operands, out = arrays
        executable.poison()
        if getattr(signature, "beta", 0) != 0:
            operands.append(_twin(out))
        bound(*operands, out=out)

    return call


def _twin(array):
    """A copy with the same strides: what GEMM's ``c`` begins as."""
    from tilesmith.measure.arrays import guarded

    return guarded(array.dtype, array.shape, [step // array.itemsize for step in array.strides], array).array
