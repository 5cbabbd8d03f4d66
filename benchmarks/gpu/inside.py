"""Where the cycles of sm_90a kernels go: clocks read inside the kernels of some problems.

python benchmarks/gpu/inside.py FILE      lines KEY|SOLVER|CONFIG: a problem's key; what is not the untuned choice

Prints for each, as means over the blocks, in cycles from the kernel's first instruction: to the end of making barriers,
to the copying warps' begin, to their first tile, to the first copy, to the first operands, to the end of the first
tile's products, to the end of its results, to the block's end; and the cycles that the first multiplying warpgroup
waited for operands after the first. The kernel's length is by the device's timer, and by two events around it.
"""

import ctypes
import shutil
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]
from sm90 import BUILD, SOLVERS, TARGET, flush_buffer, microseconds  # noqa: E402

from tilesmith.problems.signature import parse_key  # noqa: E402
from tilesmith.solvers.old_names import read_config  # noqa: E402

BLOCKS, SLOTS = 512, 16
_HEAD = """
__device__ unsigned long long ts_stamps[BLOCKS * SLOTS];
#define TS_STAMP(i, v) (blockIdx.x < BLOCKS ? (void)(ts_stamps[blockIdx.x * SLOTS + (i)] = (v)) : (void)0)
static __device__ __forceinline__ unsigned long long ts_now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t) :: "memory");
  return t;
}
""".replace("BLOCKS", str(BLOCKS)).replace("SLOTS", str(SLOTS))
_FILTER = """if (!RESIDENT) ts_wait(filter_full(stage), filter_phase);
          else if (turn < WARPGROUPS) ts_wait(filter_full(item < MOST ? item : MOST - 1), 0);"""
_FIRST = "if (ts_first) ts_first = false, TS_STAMP({0}, clock64() - ts_entry);"


def _waited(wait, first):
    stamp = "if (threadIdx.x == 0) { if (ts_first) { ts_first = false; TS_STAMP(2, clock64() - ts_entry); } else "
    return f"{{ const long long b = clock64(); {wait} {stamp if first else 'if (threadIdx.x == 0) {'} ts_wait_sum += clock64() - b; }} }}"  # noqa: E501


def patched(text):
    """The kernel with clocks; the places are those that both templates share."""
    entry = "long long ts_entry = clock64(), ts_wait_sum = 0; bool ts_first = true, ts_tile = true, ts_done = true;"
    rules = [
        ("extern __shared__", f"{entry} if (threadIdx.x == 0) TS_STAMP(6, ts_now());\n  extern __shared__"),
        ("Pixel p = {0, 0, 0, 0}, by", "if (ts_first) TS_STAMP(11, clock64() - ts_entry); Pixel p = {0, 0, 0, 0}, by"),
        ("ts_barrier_init_done();", "ts_barrier_init_done(); TS_STAMP(9, clock64() - ts_entry);"),
        (
            "ts_registers_shrink<COPY_REGISTERS>();",
            "ts_registers_shrink<COPY_REGISTERS>(); if (thread == 0) TS_STAMP(10, clock64() - ts_entry);",
        ),
        ("ts_wait(empty(stage), phase ^ 1);", f"ts_wait(empty(stage), phase ^ 1); {_FIRST.format(1)}"),
        ("ts_wait(window_empty(slot), phase ^ 1);", f"ts_wait(window_empty(slot), phase ^ 1); {_FIRST.format(1)}"),
        ("ts_wait(full(stage), phase);", _waited("ts_wait(full(stage), phase);", True)),
        ("ts_wait(window_full(slot), window_phase);", _waited("ts_wait(window_full(slot), window_phase);", False)),
        (
            _FILTER,
            _waited(_FILTER, True),
        ),
        (
            "ts_product_wait<0>();",
            "ts_product_wait<0>(); "
            "if (threadIdx.x == 0 && ts_tile) ts_tile = false, TS_STAMP(3, clock64() - ts_entry);",
        ),
        (
            "const Work w = work_at(run, t, rank);\n      if (PINGPONG",
            "{0}const Work w = work_at(run, t, rank);\n      if (PINGPONG",
        ),
        (
            "if (PINGPONG && (turn & 1) != wg) {\n        const ts_u32 next = slot",
            "{0}if (PINGPONG && (turn & 1) != wg) {\n        const ts_u32 next = slot",
        ),
        ("if (STORE == MAPPED) ts_store_wait();", "if (STORE == MAPPED) ts_store_wait();{1}"),
        ("if (thread == 0) ts_store_wait();\n  }", "if (thread == 0) ts_store_wait();{1}\n  }"),
    ]
    next_tile = "if (threadIdx.x == 0 && !ts_tile && ts_done) ts_done = false, TS_STAMP(4, clock64() - ts_entry); "
    end = (
        f" {next_tile} if (threadIdx.x == 0) TS_STAMP(5, clock64() - ts_entry), TS_STAMP(7, ts_now()), "
        "TS_STAMP(8, ts_wait_sum);"
    )
    for old, new in rules:
        text = text.replace(old, new.replace("{0}", next_tile).replace("{1}", end))
    return _HEAD + text


def compiled(source):
    BUILD.mkdir(exist_ok=True)
    cubin, text = BUILD / f"{source.symbol}_inside.cubin", BUILD / f"{source.symbol}_inside.cu"
    if cubin.exists() and not shutil.which("nvcc"):  # compiled on another machine, with --compile
        return str(cubin)
    text.write_text(source.prelude + patched(source.text))
    flags = ["-cubin", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "-diag-suppress", "177"]
    done = subprocess.run(["nvcc", *flags, "-o", str(cubin), str(text)], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr[-1500:])
    return str(cubin)


def main(file, *options):
    cases = []
    for line in Path(file).read_text().splitlines():
        key, solver, config = line.split("|")
        geometry = parse_key(key).geometry
        chosen = SOLVERS[solver].default_config(geometry, TARGET).replace(**dict(read_config(solver, config).values))
        cases.append((key, solver, chosen, SOLVERS[solver].draft(geometry, chosen, TARGET)))
    sources = {source.symbol: source for *_, draft in cases for source in draft.sources}
    with ThreadPoolExecutor() as pool:
        cubins = dict(zip(sources, pool.map(compiled, sources.values()), strict=True))
    if "--compile" in options:
        return
    import torch
    from device import Bound, cu
    from device import _modules as modules
    from problem import Problem

    flush = flush_buffer()
    for key, _solver, config, draft in cases:
        problem = Problem(parse_key(key))
        bound = Bound(draft, [cubins[source.symbol] for source in draft.sources], problem.slots)
        for _ in range(3):
            us = microseconds(bound, flush, 5)
        flush.sum()
        bound()
        torch.cuda.synchronize()
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        module = modules[cubins[draft.sources[0].symbol]]
        cu.cuModuleGetGlobal_v2(ctypes.byref(address), ctypes.byref(size), module, b"ts_stamps")
        raw = (ctypes.c_uint64 * (BLOCKS * SLOTS))()
        cu.cuMemcpyDtoH_v2(raw, address, ctypes.c_size_t(BLOCKS * SLOTS * 8))
        count = min(BLOCKS, draft.run[0].grid[0])
        rows = [raw[i * SLOTS : i * SLOTS + SLOTS] for i in range(count)]
        names = {
            "barriers": 9, "begun": 10, "tile": 11, "copy": 1, "operands": 2, "products": 3, "results": 4, "end": 5,
            "waited": 8,
        }  # fmt: skip
        means = {name: round(statistics.mean(row[i] for row in rows)) for name, i in names.items()}
        begin, end = min(r[6] for r in rows), max(r[7] for r in rows)
        late = max(r[6] for r in rows) - begin
        worst = max(r[5] for r in rows)
        print(f"{key[:90]} {config}\n   events {us:.1f} us, inside {(end - begin) / 1e3:.2f} us, blocks start within "
              f"{late / 1e3:.2f} us, longest {worst} cycles, {means}", flush=True)  # fmt: skip
        del problem
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(*sys.argv[1:])
