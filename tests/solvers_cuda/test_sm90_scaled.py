"""Scaled fp8 products by wgmma without a GPU: the factor of each sum as C++ on the host, forms, machine code."""

from __future__ import annotations

import itertools
import subprocess

import numpy as np
import pytest

from tilesmith.codegen.cuda.unit import template
from tilesmith.plan.records import Pointer, Space
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers import reasons
from tilesmith.solvers.cuda.wgmma import draft
from tilesmith.solvers.cuda.wgmma.solver import GemmSm90Solver
from tilesmith.solvers.solver import Accepted
from tilesmith.solvers.table import candidates
from tilesmith.targets.cuda import CUDA_TARGETS, cuda_target
from tilesmith.toolchain.build import build_unit

H200 = cuda_target("sm_90a", 132)
SOLVER = GemmSm90Solver()
BLOCKS = ("1x128", "128x128")
MORE = {"dtype": "fp8e4m3", "c_dtype": "bf16", "trans_b": True}
# Product widths that divide a block of columns, that do not, and tiles of two products.
CASES = [(n, width, *shares) for n, width in ((8, 8), (128, 128), (256, 128), (96, 96), (112, 112))
         for shares in itertools.product((1, 128), repeat=2)]  # fmt: skip
SIZES = (150, 300, 2)  # rows, columns, blocks along k
HARNESS = """
#include <cstdio>
typedef long long ts_i64;
typedef float Sum;
#define TS_DEVICE static
struct Run {
  const float *row_factors, *column_factors;
  ts_i64 row_step, row_along, column_step, column_along;
  int rows, cols;
};
@CASES@
int main() {
  static float factors[1000];
  for (int i = 0; i < 1000; i++) factors[i] = i;
@CALLS@
}
"""
# What the main loop does with ``few`` sums of 1, for one lane of one warp: it writes each sum's row, column and value.
CASE = """
namespace case@I@ {
enum { BLOCK_N = @N@, PRODUCT_N = @WIDTH@, ROWS_SHARE = @ROWS_SHARE@, COLUMNS_SHARE = @COLUMNS_SHARE@ };
@TEXT@
static void all(const Run &run, int row0, int column0, int block, int lane) {
  for (int piece = 0; piece < PIECES; piece++) {
    const int column = column0 + piece * PRODUCT_N, row = row0 + (lane >> 2);
    const float of_rows[2] = {*row_factor(run, row, block), *row_factor(run, row + 8, block)};
    float of_all[COLUMN_FACTORS], sums[PRODUCT_N / 2] = {}, few[PRODUCT_N / 2];
    for (float &each : few) each = 1;
    for (int j = 0; j < COLUMN_FACTORS; j++)
      of_all[j] = COLUMNS_SHARE == 1 ? *column_factor(run, column + j / 2 * 8 + (lane & 3) * 2 + j % 2, block)
                                     : *column_factor(run, column + j * COLUMNS_SHARE, block);
    add_scaled(sums, few, of_rows, of_all, COLUMNS_SHARE - column % COLUMNS_SHARE);
    for (int i = 0; i < PRODUCT_N / 2; i++) {
      const int told[] = {@I@, block, row + i % 4 / 2 * 8, column + i / 4 * 8 + (lane & 3) * 2 + i % 2, (int)sums[i]};
      std::fwrite(told, sizeof told, 1, stdout);
    }
  }
}
}
"""


def steps(share, size):
    return (1, size) if share == 1 else (SIZES[2], 1)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Rows ``case, block, row, column, factor``."""
    folder, text = tmp_path_factory.mktemp("factors"), template(draft.FOLDER, "factors")
    parts = [
        ("constexpr int PIECES", "constexpr int OF_COLUMNS"),
        ("TS_DEVICE const float *row_factor", "TS_DEVICE void copy_factor"),
    ]
    body = "".join(text[text.index(first) : text.index(last)] for first, last in parts)
    cases, calls = [], []
    for i, (n, width, rows_share, columns_share) in enumerate(CASES):
        case = CASE.replace("@TEXT@", body)
        values = {"I": i, "N": n, "WIDTH": width, "ROWS_SHARE": rows_share, "COLUMNS_SHARE": columns_share}
        for name, value in values.items():
            case = case.replace(f"@{name}@", str(value))
        cases.append(case)
        numbers = ", ".join(map(str, (*steps(rows_share, SIZES[0]), *steps(columns_share, SIZES[1]), *SIZES[:2])))
        calls.append(f"""  {{
    const Run run = {{factors + 1, factors + 2, {numbers}}};
    for (int row = 0; row < {SIZES[0]}; row += 16)
      for (int column = 0; column < {SIZES[1]}; column += {n})
        for (int lane = 0; lane < 32; lane++) case{i}::all(run, row, column, (row + column / {n}) / 16 % 2, lane);
  }}""")
    source = HARNESS.replace("@CASES@", "".join(cases)).replace("@CALLS@", "\n".join(calls))
    (folder / "factors.cpp").write_text(source)
    subprocess.run(["g++", "-std=c++20", "-O0", "-w", "-o", "factors", "factors.cpp"], cwd=folder, check=True)
    out = subprocess.run([folder / "factors"], capture_output=True, check=True).stdout
    return np.frombuffer(out, np.int32).reshape(-1, 5).astype(np.int64)


@pytest.mark.parametrize("case", range(len(CASES)), ids=[str(case) for case in CASES])
def test_each_sum_has_its_factors(found, case):
    _, block, row, column, value = found[found[:, 0] == case].T
    inside = (row < SIZES[0]) & (column < SIZES[1])
    assert len({*zip(row[inside], column[inside], strict=True)}) == inside.sum() == SIZES[0] * SIZES[1]
    wanted = 1
    for at, share, size, first in ((row, CASES[case][2], SIZES[0], 1), (column, CASES[case][3], SIZES[1], 2)):
        step, along = steps(share, size)
        wanted = wanted * (first + at // share * step + block * along)
    np.testing.assert_array_equal(value[inside], wanted[inside])


@pytest.mark.parametrize("kinds", [*itertools.product(BLOCKS, repeat=2), ("tensor", "tensor")], ids="-".join)
def test_what_is_computed_and_how_factors_lie(kinds):
    signature = GemmSignature(300, 520, 1040, a_scale=kinds[0], b_scale=kinds[1], **MORE).canonical
    g = signature.geometry
    assert SOLVER.applicable(g, H200) == Accepted()
    plain, swapped = SOLVER.forms(g)
    assert plain.factors[::-1] == swapped.factors
    assert [each.pointer for each in plain.factors] == [Pointer(Space.SLOT, 2), Pointer(Space.SLOT, 3)]
    assert plain.out == Pointer(Space.SLOT, 4)
    of_rows = {"1x128": (1, 1, 300), "128x128": (128, 9, 1), "tensor": (1, 0, 0)}[kinds[0]]
    assert (plain.factors[0].share, plain.factors[0].step, plain.factors[0].along) == of_rows
    for config in SOLVER.ranked(g, H200)[:40:4]:
        made = SOLVER.draft(g, config, H200)
        assert 0 < SOLVER.predict(g, config, H200) < 1
        assert SOLVER.search_space(g, H200).contains(config)
        assert len(made.sources) == 1 + (config["split_k"] > 1)


def test_who_computes_scaled_products():
    signature = GemmSignature(300, 520, 1040, a_scale="1x128", b_scale="128x128", **MORE)
    odd = GemmSignature(300, 520, 1039, a_scale="1x128", b_scale="128x128", **MORE)
    for arch, target in CUDA_TARGETS.items():
        hopper = arch == "sm_90a"
        for problem, mine in ((signature, "wgmma_gemm"), (odd, "wgmma_gemm_copied")):
            found = candidates(problem, target)
            names = [c.name for c in found if isinstance(c.verdict, Accepted)]
            assert names == [mine] * hopper + ["cuda_reference"]
            refused = [c.verdict.reason for c in found if c.name == "mma_dense"]
            assert refused == [reasons.FEATURE]


def test_machine_code_without_spills(tmp_path):
    """Two products of a tile, columns with a factor each, a product over two blocks, two tiles of rows, slices."""
    base = {"warpgroups": 2, "products_m": 1, "block_k": 128, "swap_mn": 0, "split_k": 1, "cluster_k": 1, "stages": 0}
    sources = []
    for kinds, tile in (
        (("1x128", "128x128"), {"block_n": 256}), (("1x128", "1x128"), {"block_n": 128}),
        (("1x128", "128x128"), {"block_n": 112, "products_m": 2}),
        (("128x128", "128x128"), {"block_n": 64, "split_k": 3}),
        (("tensor", "tensor"), {"block_n": 128, "split_k": 3}),
    ):  # fmt: skip
        g = GemmSignature(2048, 2048, 4096, a_scale=kinds[0], b_scale=kinds[1], **MORE).canonical.geometry
        config = SOLVER.default_config(g, H200)
        config = config.replace(**({name: 0 for name in ("pingpong", "resident")} | {"cluster_m": 1} | base | tile))
        assert SOLVER.search_space(g, H200).contains(config), config
        sources += SOLVER.draft(g, config, H200).sources
    found = build_unit(list({source.symbol: source for source in sources}.values()), H200, tmp_path / "unit.cubin")
    assert [(r.symbol, r.spill_store_bytes, r.stack_bytes) for r in found] == [(r.symbol, 0, 0) for r in found]
