"""Groups of rows by wgmma without a GPU: the walk over tiles as C++ on the host, tensor maps in NumPy, machine code."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import numpy as np
import pytest
from tensor_boxes import loaded_box

from tilesmith.codegen.cuda.unit import template
from tilesmith.measure.oracle import oracle
from tilesmith.plan.assemble import assemble
from tilesmith.plan.records import Space, TensorMap
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.row_groups import draft
from tilesmith.solvers.cuda.row_groups.solver import RowGroupsSolver
from tilesmith.solvers.cuda.row_groups.tile import BLOCK_K, MAX_GROUPS
from tilesmith.solvers.solver import Accepted, Rejected, parse_config
from tilesmith.solvers.table import candidates
from tilesmith.targets.cuda import CUDA_TARGETS, cuda_target
from tilesmith.toolchain.build import build_unit

H200 = cuda_target("sm_90a", 132)
SOLVER = RowGroupsSolver()
TILE = "warpgroups=2 products_n=1 block_m={} pingpong={} band_m={}"
HARNESS = """
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
typedef unsigned long long ts_u64;
#define TS_DEVICE static
struct Run { const int *ends; int rows, groups, tiles_n, band, width; ts_u64 by_width; };
static int quotient_by;
static int ts_quotient(int n, ts_u64) { return n / quotient_by; }
static std::barrier<> meet(32);
static int lanes[32];
static thread_local int self;
static int all(int v, int from) {
  lanes[self] = v;
  meet.arrive_and_wait();
  const int found = lanes[from];
  meet.arrive_and_wait();
  return found;
}
static int __shfl_up_sync(unsigned, int v, int by) { return all(v, self < by ? self : self - by); }
static int __shfl_sync(unsigned, int v, int from) { return all(v, from); }
static int BLOCK_ROWS, BLOCK_COLS;
@TEXT@
int main() {
  Run run = {};
  while (std::scanf("%d %d %d %d", &run.groups, &run.rows, &run.tiles_n, &run.band) == 4) {
    if (std::scanf("%d %d", &BLOCK_ROWS, &BLOCK_COLS) != 2) return 1;
    std::vector<int> ends(run.groups), table(2 * run.groups + 2);
    for (int &end : ends) if (std::scanf("%d", &end) != 1) return 1;
    run.ends = ends.data(), run.width = quotient_by = run.band * run.tiles_n;
    const Groups at = {table.data(), table.data() + run.groups + 1};
    std::vector<std::thread> warp;
    for (int i = 0; i < 32; i++) warp.emplace_back([&, i] { self = i; count_tiles(run, at, i); });
    for (auto &each : warp) each.join();
    std::printf("%d %d\\n", at.row[run.groups], at.tile[run.groups]);
    for (int t = 0; t < at.tile[run.groups]; t++) {
      const Work w = work_at(run, at, t);
      std::printf("%d %d %d %d\\n", w.group, w.row, w.rows, w.column);
    }
  }
}
"""


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """The kernel's tiles of cases ``(ends, rows, tiles_n, band, block_rows, block_columns)``."""
    folder = tmp_path_factory.mktemp("walk")
    text = template(draft._FOLDER, "kernel")
    text = text[text.index("struct Groups") : text.index("// Stores 16 bytes")]
    (folder / "walk.cpp").write_text(HARNESS.replace("@TEXT@", text))
    subprocess.run(["g++", "-std=c++20", "-pthread", "-o", "walk", "walk.cpp"], cwd=folder, check=True)

    def run(cases):
        asked = [[len(ends), *sizes, *ends] for ends, *sizes in cases]
        given = "\n".join(" ".join(map(str, each)) for each in asked)
        out = subprocess.run([folder / "walk"], input=given, capture_output=True, text=True, check=True).stdout
        lines = iter([tuple(map(int, line.split())) for line in out.splitlines()])
        return [(last, [next(lines) for _ in range(count)]) for last, count in lines]

    return run


def group_of(ends, rows):
    """The group of each row that has one, as the definition says."""
    first = {row: next((g for g, end in enumerate(ends) if end > row), None) for row in range(rows)}
    return {row: group for row, group in first.items() if group is not None}


def test_every_result_has_one_tile(walk):
    rng, cases = np.random.default_rng(0), []
    for groups in (1, 5, 31, 32, 33, 100):
        for kind in range(4):
            rows = int(rng.integers(1, 150))
            ends = np.sort(rng.integers(0, rows + 1, groups)) if kind < 2 else rng.integers(-20, rows + 30, groups)
            sizes = (rng.choice(each) for each in ((1, 3), (1, 2, 16), (8, 24, 64)))
            cases.append((ends.tolist(), rows, *map(int, sizes), 128))
    for (ends, rows, tiles_n, _, block, columns), (last, tiles) in zip(cases, walk(cases), strict=True):
        wanted = group_of(ends, rows)
        found = [((row, column), group) for group, first, count, column in tiles for row in range(first, first + count)]
        assert last == len(wanted)
        assert len(dict(found)) == len(found) == len(wanted) * tiles_n
        assert all(wanted[row] == group and column % columns == 0 for (row, column), group in found)
        assert len(tiles) <= (-(-rows // block) + min(len(ends), rows) - 1) * tiles_n  # the most that a launch has


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("n", [136, 77])
def test_maps_and_tiles_make_the_product(walk, trans_b, n):
    """Boxes of the maps, multiplied tile by tile, against the oracle."""
    pitch = 144 if not trans_b and n % 8 else None
    signature = GemmSignature(45, n, 72, groups=5, trans_b=trans_b, dtype="fp16", ldb=pitch).canonical
    geometry, config = signature.geometry, parse_config(TILE.format(16, 0, 2))
    assert SOLVER.applicable(geometry, H200) == Accepted()
    (launch,) = SOLVER.draft(geometry, config, H200).run
    a_map, b_map, c_map = launch.parameters[:3]
    assert (c_map == a_map) == (n % 8 != 0)  # other rows are stored by elements
    values = sample_args(signature)
    flats = [np.lib.stride_tricks.as_strided(v, (sum((s - 1) * t for s, t in zip(v.shape, v.strides, strict=True)) // 2
                                                 + 1,), (2,)) for v in values[:2]]  # fmt: skip
    ((last, tiles),) = walk([(values[2].tolist(), 45, -(-n // 128), 2, 16, 128)])
    found = np.zeros((45, -(-n // 128) * 128))
    for group, row, rows, column in tiles:
        for k in range(0, 72, BLOCK_K):
            a = loaded_box(flats[0], a_map, (k, row, 0))
            corners = [(k, column, group)] if trans_b else [(column + q, k, group) for q in (0, 64)]
            boxes = [np.nan_to_num(loaded_box(flats[1], b_map, corner)) for corner in corners]
            b = boxes[0].T if trans_b else np.concatenate(boxes, axis=1)
            found[row : row + rows, column : column + 128] += (a @ b)[:rows]
    np.testing.assert_allclose(found[:, :n], oracle(signature, values).value, atol=1e-9)
    assert not found[last:].any()


def test_every_config_makes_a_plan():
    signature = GemmSignature(300, 320, 640, groups=9, dtype="bf16").canonical
    geometry, space = signature.geometry, SOLVER.search_space(signature.geometry, H200)
    points = SOLVER.ranked(geometry, H200)
    assert SOLVER.default_config(geometry, H200) == points[0]
    assert len(set(points)) == len(points) > 30
    for config in points:
        assert space.contains(config)
        assert 0 < SOLVER.predict(geometry, config, H200) < 1
        made = SOLVER.draft(geometry, config, H200)
        plan = assemble(made, signature, SOLVER.name, str(config), H200, ["0" * 64])
        assert plan.run[0].shared_bytes <= H200.shared_bytes_per_block


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"groups": 0}, reasons.OP), ({"dtype": "fp32"}, reasons.DTYPE), ({"c_dtype": "fp32"}, reasons.DTYPE),
        ({"k": 60, "trans_b": True}, reasons.LAYOUT), ({"n": 60}, reasons.LAYOUT),
        ({"groups": MAX_GROUPS + 1}, reasons.GROUPS), ({"m": 2**31 - 1}, reasons.SIZE),
    ],
    ids=str,
)  # fmt: skip
def test_refusals(change, reason):
    signature = GemmSignature(**({"m": 64, "n": 64, "k": 64, "groups": 3, "dtype": "bf16"} | change))
    verdict = SOLVER.applicable(signature.canonical.geometry, H200)
    assert isinstance(verdict, Rejected)
    assert verdict.reason == reason


def test_who_computes_groups():
    signature = GemmSignature(64, 64, 64, groups=3, dtype="bf16")
    for arch, target in CUDA_TARGETS.items():
        names = [c.name for c in candidates(signature, target) if isinstance(c.verdict, Accepted)]
        assert names == ([SOLVER.name] if arch == "sm_90a" else []) + ["cuda_reference"]
    odd = candidates(GemmSignature(64, 61, 63, groups=3, dtype="bf16"), H200)
    found = [c for c in odd if isinstance(c.verdict, Accepted)]
    assert [c.name for c in found] == [f"{SOLVER.name}_copied", "cuda_reference"]
    made = found[0].solver.draft(found[0].geometry, found[0].solver.default_config(found[0].geometry, H200), H200)
    spaces = [p.pointer.space for p in made.run[-1].parameters if isinstance(p, TensorMap)]
    assert spaces[:2] == [Space.WORKSPACE] * 2  # copies with rows of 128 bytes
    plain = candidates(replace(signature, groups=0), H200, [SOLVER.name])
    assert [c.verdict.reason for c in plain] == [reasons.OP]


def test_machine_code_without_spills(tmp_path):
    sources = []
    for trans_b, dtype, n, tile in ((False, "bf16", 512, (128, 1, 16)), (True, "fp16", 77, (256, 0, 8))):
        signature = GemmSignature(4096, n, 512, groups=8, trans_b=trans_b, dtype=dtype, ldb=520 if trans_b else None)
        config = parse_config(TILE.format(*tile))
        config = config.replace(products_n=2) if tile[1] else config
        sources += SOLVER.draft(signature.canonical.geometry, config, H200).sources
    found = build_unit(sources, H200, tmp_path / "unit.cubin")
    assert {(r.symbol, r.spill_store_bytes, r.stack_bytes) for r in found} == {(s.symbol, 0, 0) for s in sources}
    body = sources[0].text[sources[0].text.index("__global__") :]
    assert body.index("ts_wait_previous();") < body.index("count_tiles(")  # the kernel ahead may write the ends
