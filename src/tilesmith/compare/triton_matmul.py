"""A matrix product in Triton, with the configs that its autotuner chooses among.

One block of threads computes one tile of the result; tiles are visited in groups of rows, so that blocks that run
together read the same operands from the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@dataclass(frozen=True)
class TritonConfig:
    """One config: the tile, the rows of tiles in a group, the stages of the pipeline, and warps of a block."""

    block_m: int
    block_n: int
    block_k: int
    group: int
    stages: int
    warps: int

    @property
    def name(self) -> str:
        return f"{self.block_m}x{self.block_n}x{self.block_k} stages={self.stages} warps={self.warps}"


_TILES = (
    (128, 256, 64, 3, 8), (128, 256, 32, 4, 8), (256, 128, 32, 4, 8), (256, 64, 32, 4, 4), (64, 256, 32, 4, 4),
    (128, 128, 64, 3, 8), (128, 128, 32, 4, 4), (128, 128, 32, 3, 8), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4),
    (128, 64, 32, 4, 4), (64, 128, 32, 4, 4), (64, 64, 64, 4, 4), (64, 64, 32, 5, 4), (128, 32, 32, 4, 4),
    (32, 128, 32, 4, 4), (64, 32, 32, 5, 2), (32, 64, 32, 5, 2), (32, 32, 64, 5, 2), (16, 128, 64, 5, 4),
    (128, 128, 16, 3, 8), (64, 64, 16, 3, 4), (128, 64, 16, 3, 4), (64, 128, 16, 3, 4), (16, 64, 128, 4, 4),
)  # fmt: skip
CONFIGS = tuple(TritonConfig(m, n, k, 8, stages, warps) for m, n, k, stages, warps in _TILES)


@triton.jit  # type: ignore[untyped-decorator]
def _matmul(  # type: ignore[no-untyped-def]  # noqa: ANN202
    a, b, c, m, n, k, a_row, a_col, b_row, b_col, c_row, a_batch, b_batch, c_batch, alpha,  # noqa: ANN001
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, group: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """``c = alpha * a @ b`` of one batch for each block in the second axis of the grid."""
    batch = tl.program_id(1).to(tl.int64)
    tiles_m = tl.cdiv(m, block_m)
    at, in_group = tl.program_id(0), group * tl.cdiv(n, block_n)
    first = at // in_group * group
    rows_here = min(tiles_m - first, group)
    tile_m = first + at % in_group % rows_here
    tile_n = at % in_group // rows_here
    rows = tile_m * block_m + tl.arange(0, block_m)
    columns = tile_n * block_n + tl.arange(0, block_n)
    depth = tl.arange(0, block_k)
    # Rows beyond the edge read rows of the beginning: they are never stored, and reads need no mask for them.
    a_at = a + batch * a_batch + (rows % m)[:, None].to(tl.int64) * a_row + depth[None, :] * a_col
    b_at = b + batch * b_batch + depth[:, None] * b_row + (columns % n)[None, :].to(tl.int64) * b_col
    total = tl.zeros((block_m, block_n), dtype=tl.float32)
    for done in range(0, tl.cdiv(k, block_k)):
        left = k - done * block_k
        total = tl.dot(
            tl.load(a_at, mask=depth[None, :] < left, other=0.0), tl.load(b_at, mask=depth[:, None] < left, other=0.0),
            total, input_precision=precision,
        )  # fmt: skip
        a_at += block_k * a_col
        b_at += block_k * b_row
    c_at = c + batch * c_batch + rows[:, None].to(tl.int64) * c_row + columns[None, :]
    tl.store(c_at, (total * alpha).to(c.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))


def multiply(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, alpha: float, config: TritonConfig, tf32: bool) -> None:
    """Queue ``c = alpha * a @ b`` on PyTorch's current stream.

    Args:
        a: ``(batch, m, k)``, any strides.
        b: ``(batch, k, n)``, any strides.
        c: ``(batch, m, n)``, its rows contiguous.
        alpha: The factor.
        config: Of the kernel.
        tf32: Whether fp32 operands may be rounded to TF32.
    """
    (batch, m, k), n = a.shape, b.shape[2]
    grid = (triton.cdiv(m, config.block_m) * triton.cdiv(n, config.block_n), batch)
    _matmul[grid](
        a, b, c, m, n, k, a.stride(1), a.stride(2), b.stride(1), b.stride(2), c.stride(1), a.stride(0), b.stride(0),
        c.stride(0), alpha, config.block_m, config.block_n, config.block_k, config.group,
        "tf32" if tf32 else "ieee", num_stages=config.stages, num_warps=config.warps,
    )  # fmt: skip
