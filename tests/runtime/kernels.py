"""Hand-written kernels and the whole chain from text to a callable."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from tilesmith.plan.assemble import assemble
from tilesmith.plan.records import Draft, Integer, Launch, Pointer, Source, Space, Step
from tilesmith.problems.conv import ConvSignature
from tilesmith.runtime.executable import Executable
from tilesmith.targets.detect import host_target
from tilesmith.toolchain.cache import Artifact, ArtifactCache

PRELUDE = "typedef long long i64;\n"
HEAD = "(void *const *p, const i64 *s, void *scratch, i64 begin, i64 end)"
TARGET = host_target()


def kernel(symbol: str, body: str) -> Source:
    return Source("c", symbol, PRELUDE, f"void {symbol}{HEAD} {{ {body} }}\n")


_folder = tempfile.TemporaryDirectory(prefix="tilesmith-test-")  # goes when the process ends
_cache = ArtifactCache(_folder.name)


@lru_cache(maxsize=64)
def artifact(source: Source) -> Artifact:
    return _cache.get_or_build(source, TARGET)


def slot(index: int, offset: int = 0) -> Pointer:
    return Pointer(Space.SLOT, index, offset)


PACKED = Pointer(Space.PACKED)
WORKSPACE = Pointer(Space.WORKSPACE)


def launch(
    index: int, source: Source, items: int, *parameters: Pointer | int, chunk: int = 1, scratch: int = 0
) -> Step:
    typed = tuple(Integer(v) if isinstance(v, int) else v for v in parameters)
    return Launch(index, source.symbol, (items, 1, 1), typed, (chunk, 1, 1), shared_bytes=scratch)


def load(
    signature, sources, run, prepare=(), threads=2, packed_bytes=0, workspace_bytes=0, in_place=False
) -> Executable:
    made = [artifact(source) for source in sources]
    draft = Draft(tuple(sources), tuple(run), tuple(prepare), packed_bytes, workspace_bytes, in_place)
    target = replace(TARGET, cores=threads)
    plan = assemble(draft, signature, "test", "", target, [a.digest for a in made])
    paths: dict[str, Path] = {a.digest: a.path for a in made}
    return Executable(plan, [paths[digest] for digest in plan.artifacts])


def depthwise(pixels: int) -> ConvSignature:
    """y = x * w[0], an elementwise problem: ``(pixels, 1, 1, 1)``."""
    return ConvSignature(input_shape=(pixels, 1, 1, 1), kernel_shape=(1, 1, 1, 1))


SCALE = kernel(
    "ts_scale",
    "const float *x = p[0], *w = p[1]; float *y = p[2]; for (i64 i = begin; i < end; i++) y[i] = x[i] * w[0];",
)
# The packed filter is its square.
PACK = kernel("ts_pack", "const float *w = p[0]; float *q = p[1]; q[0] = w[0] * w[0];")
# Each thread notes in its scratch what it computed; items are slow enough for others to help.
COUNT = kernel(
    "ts_count",
    "int *y = p[0]; i64 *mine = scratch; volatile i64 spin = 0;"
    "for (i64 i = begin; i < end; i++) { mine[0] = i; for (int k = 0; k < s[0]; k++) spin += k;"
    "__atomic_fetch_add(&y[i], (int)(mine[0] == i), __ATOMIC_RELAXED); }",
)
# Item i of the second step reads what an item of the first wrote at the far end.
FIRST = kernel("ts_first", "float *t = p[1]; const float *x = p[0]; for (i64 i = begin; i < end; i++) t[i] = x[i] + 1;")
SECOND = kernel(
    "ts_second",
    "const float *t = p[0]; float *y = p[1]; for (i64 i = begin; i < end; i++) y[i] = t[s[0] - 1 - i] * 2;",
)


def scaled(pixels: int, threads: int = 2) -> tuple[ConvSignature, Executable]:
    sig = depthwise(pixels)
    return sig, load(sig, [SCALE], [launch(0, SCALE, pixels, slot(0), slot(1), slot(2))], threads=threads)


def squared(pixels: int, threads: int = 2) -> tuple[ConvSignature, Executable]:
    """y = x * w * w, through a prepare part."""
    sig = depthwise(pixels)
    run = [launch(1, SCALE, pixels, slot(0), PACKED, slot(2), chunk=max(1, pixels // 8))]
    return sig, load(sig, [PACK, SCALE], run, [launch(0, PACK, 1, slot(1), PACKED)], threads, packed_bytes=4)
