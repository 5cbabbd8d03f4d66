"""Where the cycles of sm_90a kernels go: clocks read inside the kernels of some problems.

python benchmarks/gpu/probes/inside.py FILE    lines KEY|SOLVER|CONFIG, with what differs from the untuned choice

Prints for each, as means over the blocks, in cycles from the kernel's first instruction: to the end of making barriers,
to the copying warps' begin, to their first tile, to the first copy, to the first operands, to the end of the first
tile's products, to the end of its results, to the block's end; and the cycles that the first multiplying warpgroup
waited for operands after the first. The kernel's length is by the device's timer.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[2] / "src")]

from tilesmith.measure.device_bench import DeviceBench  # noqa: E402
from tilesmith.plan.assemble import assemble  # noqa: E402
from tilesmith.plan.records import Draft, Launch, Pointer, Space  # noqa: E402
from tilesmith.problems.keys import parse_key  # noqa: E402
from tilesmith.problems.samples import sample_args  # noqa: E402
from tilesmith.runtime.executable import Executable  # noqa: E402
from tilesmith.solvers.old_names import read_config  # noqa: E402
from tilesmith.solvers.table_cuda import CUDA_SOLVERS  # noqa: E402
from tilesmith.targets.detect_cuda import cuda_target_of  # noqa: E402
from tilesmith.toolchain.cache import ArtifactCache  # noqa: E402
from tilesmith.toolchain.files import scratch  # noqa: E402

BLOCKS, SLOTS = 512, 16
_HEAD = """
__device__ unsigned long long ts_stamps[BLOCKS * SLOTS];
#define TS_BLOCK (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z))
#define TS_STAMP(i, v) (TS_BLOCK < BLOCKS ? (void)(ts_stamps[TS_BLOCK * SLOTS + (i)] = (v)) : (void)0)
static __device__ __forceinline__ unsigned long long ts_now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t) :: "memory");
  return t;
}
""".replace("BLOCKS", str(BLOCKS)).replace("SLOTS", str(SLOTS))
_READ = f"""
extern "C" __global__ void ts_read_stamps(unsigned long long *to) {{
  for (int i = threadIdx.x; i < {BLOCKS * SLOTS}; i += blockDim.x) to[i] = ts_stamps[i];
}}
"""
NAMES = {
    "barriers": 9, "begun": 10, "tile": 11, "copy": 1, "operands": 2, "products": 3, "results": 4, "end": 5,
    "waited": 8,
}  # fmt: skip
_FIRST = "if (ts_first) ts_first = false, TS_STAMP(1, clock64() - ts_entry);"
_NEXT_TILE = "if (threadIdx.x == 0 && !ts_tile && ts_done) ts_done = false, TS_STAMP(4, clock64() - ts_entry);"
_END = (
    f"{_NEXT_TILE} if (threadIdx.x == 0) TS_STAMP(5, clock64() - ts_entry), TS_STAMP(7, ts_now()), "
    "TS_STAMP(8, ts_wait_sum);"
)
_ENTRY = (
    "long long ts_entry = clock64(), ts_wait_sum = 0; bool ts_first = true, ts_tile = true, ts_done = true; "
    "if (threadIdx.x == 0) TS_STAMP(6, ts_now());"
)


def _waited(wait: str, first: bool = True) -> tuple[str, str]:
    stamp = "if (threadIdx.x == 0) { if (ts_first) { ts_first = false; TS_STAMP(2, clock64() - ts_entry); } else "
    begin = stamp if first else "if (threadIdx.x == 0) {"
    return wait, f"{{ const long long b = clock64(); {wait} {begin} ts_wait_sum += clock64() - b; }} }}"


def _before(place: str, clock: str) -> tuple[str, str]:
    return place, f"{clock} {place}"


def _behind(place: str, clock: str) -> tuple[str, str]:
    return place, f"{place} {clock}"


_BOTH = [
    _before("extern __shared__", _ENTRY),
    _behind("ts_barrier_init_done();", "TS_STAMP(9, clock64() - ts_entry);"),
    _behind("ts_registers_shrink<COPY_REGISTERS>();", "if (thread == 0) TS_STAMP(10, clock64() - ts_entry);"),
]


def _multiplied(tile: str) -> tuple[str, str]:
    stamp = "ts_tile = false, TS_STAMP(3, clock64() - ts_entry);"
    return _behind("ts_product_wait<0>();", f"if (threadIdx.x == 0 && {tile}) {stamp}")


_TILE = "if (ts_first) TS_STAMP(11, clock64() - ts_entry);"
_GEMM = [
    _before("Pixel p = {0, 0, 0, 0}, by", _TILE),
    _before("// The ring is free, and these copies need no argument.", _TILE),
    _behind("ts_expect(full(k), A_LOADED + B_LOADED);", _FIRST),
    _behind("ts_wait(empty(stage), phase ^ 1);", _FIRST),
    _waited("ts_wait(full(stage), phase);"),
    _multiplied("ts_tile && !dry"),
    _before("const Work w = work_at(run, dry ? begin : t, rank);", _NEXT_TILE),
    _behind("if (STORE == MAPPED || STORE == RUN) ts_store_wait();", _END),
]
_HALO = [
    _multiplied("ts_tile"),
    _before("const int w = x.w * STEP_W + run.corner_w", _TILE),
    _behind("ts_wait(window_empty(slot), turned ^ 1);", _FIRST),
    _waited("ts_wait(window_full(slot), window_phase);", False),
    _waited("""if (!RESIDENT) ts_wait(filter_full(stage), filter_phase);
            else if (turn < WARPGROUPS) ts_wait(filter_full(item < MOST ? item : MOST - 1), 0);"""),
    _before("if (PINGPONG && (turn & 1) != wg) {\n        const Planes p", _NEXT_TILE),
    _behind("if (thread == 0) ts_store_wait();\n  }", _END),
]


def patched(text: str) -> str:
    """The kernel with clocks."""
    for place, clocked in (*_BOTH, *(_HALO if "window_full" in text else _GEMM)):
        if place not in text:
            raise ValueError(f"no place for a clock: the kernel has no {place!r}")
        text = text.replace(place, clocked)
    return _HEAD + text + _READ


def with_clocks(draft: Draft) -> Draft:
    """The first kernel with clocks in it, and a last one that copies what they showed behind the workspace."""
    first, *others = draft.sources
    clocked = replace(first, text=patched(first.text))
    to = Pointer(Space.WORKSPACE, 0, draft.workspace_bytes)
    read = Launch(0, "ts_read_stamps", (1, 1, 1), (to,), block=(256, 1, 1))
    nbytes = draft.workspace_bytes + 8 * BLOCKS * SLOTS
    return replace(draft, sources=(clocked, *others), run=(*draft.run, read), workspace_bytes=nbytes)


def main(file: str) -> None:
    target, solvers = cuda_target_of(0), {solver.name: solver for solver in CUDA_SOLVERS}
    with scratch() as folder:
        cache = ArtifactCache(folder)
        for line in Path(file).read_text().splitlines():
            key, name, wanted = line.split("|")
            signature, solver = parse_key(key), solvers[name]
            default = solver.default_config(signature.geometry, target)
            config = default.replace(**dict(read_config(name, wanted).values))
            plain = solver.draft(signature.geometry, config, target)
            draft = with_clocks(plain)
            made = [cache.get_or_build(source, target) for source in draft.sources]
            plan = assemble(draft, signature, name, str(config), target, [artifact.digest for artifact in made])
            values = sample_args(signature)
            bench = DeviceBench(signature, values, lambda: None, target, 0, cache)
            run = bench.checker.plan(Executable(plan, [artifact.path for artifact in made]))
            run.prepare()
            for _ in range(3):
                run.run()
            bench.checker.finish()
            raw = np.empty((BLOCKS, SLOTS), np.uint64)
            run.workspace.read(raw.reshape(-1).view(np.uint8), plain.workspace_bytes)
            rows = raw[: min(BLOCKS, prod(plain.run[0].grid))].astype(np.int64)
            means = {word: round(statistics.mean(rows[:, place].tolist())) for word, place in NAMES.items()}
            begin, end = rows[:, 6].min(), rows[:, 7].max()
            late, worst = rows[:, 6].max() - begin, rows[:, 5].max()
            print(f"{key[:90]} {config}\n   inside {(end - begin) / 1e3:.2f} us, blocks start within "
                  f"{late / 1e3:.2f} us, longest {worst} cycles, {means}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
