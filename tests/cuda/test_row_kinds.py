"""Products of an operand whose rows begin inside sectors: even and odd rows have tiles of their own.

Numbers through the emulator: what lies behind a row's end must not reach the next row, whose first copy begins there.
"""

from __future__ import annotations

import pytest
from cuda_chain import check_numbers, executable
from test_one_tile import SOLVER, SOME, config_of, gemm, named

from tilesmith.solvers.cuda.wgmma import tile as tiles

# Two and more kinds, one tile a block and several, clusters, tails of rows, columns and k, a pitch longer than rows.
KINDS = [
    (gemm(256, 128, 1016), {"warpgroups": 2, "block_n": 64}, 2),
    (gemm(254, 136, 1064, "fp16"), {"products_m": 2, "block_n": 64, "stages": 3}, 2),
    (gemm(390, 320, 1048, trans_b=True), {"warpgroups": 2, "products_m": 2, "block_n": 88, "store_buffers": 4}, 2),
    (gemm(390, 136, 1032, lda=1080, alpha=0.5), {"warpgroups": 2, "products_m": 2, "pingpong": 1, "block_n": 64}, 2),
    (gemm(1030, 264, 1016, trans_b=True), {"warpgroups": 2, "block_n": 64, "stages": 3, "group_m": 2}, 2),
    (gemm(388, 136, 1032, trans_b=True), {"warpgroups": 1, "block_n": 72}, 4),
    (gemm(264, 200, 1016, lda=1032), {"warpgroups": 2, "block_n": 128, "cluster_m": 2}, 8),
    (gemm(516, 200, 1016, trans_b=True), {"warpgroups": 2, "block_n": 112, "cluster_m": 4}, 2),
    (gemm(520, 512, 1016), {"warpgroups": 3, "block_n": 128, "cluster_m": 4, "stages": 3}, 8),
]


@pytest.mark.parametrize(("signature", "wanted", "kinds"), KINDS, ids=named)
def test_kinds_of_rows(signature, wanted, kinds, emulating, monkeypatch):
    monkeypatch.setattr(tiles, "ROW_KINDS", kinds)
    signature = signature.canonical
    config = config_of(signature, wanted)
    tile = SOLVER.tile(signature.geometry, config, SOME)
    assert tile.fits
    assert tile.kinds == kinds
    check_numbers(signature, executable(signature, SOLVER.draft(signature.geometry, config, SOME), emulating, SOME))
