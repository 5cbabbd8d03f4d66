"""What kernels add to packages: those that once added most stay under the limit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cuda_chain import H200

from tilesmith.problems.keys import parse_key
from tilesmith.solvers.solver import parse_config
from tilesmith.solvers.table import candidates
from tilesmith.toolchain.build import build_unit

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from kernel_sizes import LIMIT, stored

NHWC = "conv1;{};x={t},NHWC,{};w={t},NHWC,{};y={t},NHWC;stride={};pad={};dil=1x1;groups=1;acc={}"
FFMA = "warps_k=1 stages=4 split_k=1 stream_k=1 group_m=8 producers=0"
DEPTHWISE = "conv1;{};x=bf16,{l},{};w=bf16,{l},{};y=bf16,{l};stride={};pad={};dil={};groups={};acc=fp32"
FUSED = ";epi=bias+residual+gelu"


def gemm(m: int, n: int, k: int, ta: str, tb: str, fused: str = "") -> str:
    return f"gemm1;m={m};n={n};k={k};batch=1;a=fp32,{ta};b=fp32,{tb};c=fp32;acc=fp32;alpha=1.0;beta=0.0{fused}"


CASES = [
    ("mma_dense", NHWC.format("bwd", "64x28x28x256", "256x3x3x256", "2x2", "1x1", "tf32", t="fp32") + FUSED,
     "block_m=128 block_n=256 block_k=32 warps_m=2 warps_n=4 stages=2 split_k=1 group_m=1"),
    ("ffma_dense", NHWC.format("bwd", "2x128x128x320", "320x3x3x320", "1x1", "1x1", "fp32", t="fp32") + FUSED,
     "block_m=128 block_n=64 block_k=32 warps_m=4 warps_n=1 stages=2 split_k=1 group_m=8"),
    ("first_layer", NHWC.format("fwd", "64x224x224x3", "64x7x7x3", "2x2", "3x3", "fp32", t="fp16"),
     "tile_w=16 warps=8 parts=2 block_n=64 wgmma=1 blocks_per_sm=1"),
    ("wgmma_thin@gemm", NHWC.format("bwd", "64x56x56x127", "128x1x1x127", "1x1", "0x0", "fp32", t="bf16"),
     "warps=12 stage_rows=16 stages=3 blocks_per_sm=1"),
    ("ffma_gemm", gemm(3445, 2544, 1641, "t", "t"), f"block_m=128 block_n=256 block_k=16 warps_m=2 warps_n=4 {FFMA}"),
    ("ffma_gemm", gemm(3444, 2544, 1641, "t", "t", FUSED),
     f"block_m=256 block_n=128 block_k=32 warps_m=4 warps_n=2 {FFMA.replace('producers=0', 'producers=1')}"),
    ("ffma_gemm", gemm(771, 4710, 4738, "t", "t", FUSED),
     f"block_m=96 block_n=128 block_k=16 warps_m=2 warps_n=2 {FFMA}"),
    ("wgmma_gemm", "gemm1;m=3136;n=768;k=3072;batch=1;a=bf16,n;b=bf16,t;c=bf16;acc=fp32;alpha=1.5;beta=0.5;epi=gelu",
     "warpgroups=2 products_m=1 block_n=144 block_k=64 stages=0 pingpong=0 cluster_k=1 split_k=1 group_m=8 "
     "taps_inner=0 swap_mn=1 blocks_per_sm=1 mix_layers=0 store_buffers=2 slab_n=64 resident=0 cluster_m=1"),
    ("cuda_depthwise", DEPTHWISE.format("fwd", "64x112x112x64", "64x3x3x1", "2x2", "1x1", "1x1", 64, l="NHWC")
     + ";epi=bias+relu", "channels_per_thread=4 rows_per_thread=4 columns_per_thread=4 threads=256 rows_ahead=1 "
     "filter_rows=0 blocks_per_sm=0"),
    ("cuda_depthwise", DEPTHWISE.format("wrw", "2x112x15x320", "320x5x5x1", "2x2", "2x2", "1x1", 320, l="NHWC"),
     "channels_per_thread=4 rows_per_thread=3 columns_per_thread=4 threads=256 rows_ahead=0 filter_rows=1 "
     "blocks_per_sm=4"),
    ("cuda_depthwise", DEPTHWISE.format("fwd", "64x28x28x384", "384x7x7x1", "1x1", "3x3", "1x1", 384, l="NHWC"),
     "channels_per_thread=2 rows_per_thread=4 columns_per_thread=7 threads=256 rows_ahead=1 filter_rows=0 "
     "blocks_per_sm=0"),
    ("mma_depthwise", DEPTHWISE.format("bwd", "96x20x28x720", "720x9x9x1", "1x1", "4x4", "1x1", 720, l="NHWC"),
     "block_c=16 block_w=32 products_m=3 strips=1 group_rows=4 stages=3 filter_rows=0"),
    ("cuda_depthwise_planes", DEPTHWISE.format("wrw", "4x768x48x48", "768x1x7x7", "1x1", "3x3", "1x1", 768, l="NCHW"),
     "columns_per_thread=8 rows_per_thread=1 threads=64 blocks_per_sm=2"),
]  # fmt: skip


@pytest.mark.parametrize(("solver", "key", "config"), CASES, ids=lambda text: text[:20])
def test_a_kernel_adds_less_than_10_kb(solver, key, config, tmp_path):
    candidate = next(c for c in candidates(parse_key(key).canonical, H200) if c.name == solver)
    path = tmp_path / "unit.cubin"
    source = candidate.solver.draft(candidate.geometry, parse_config(config), H200).sources[0]
    build_unit([source], H200, path)
    assert len(stored(path.read_bytes())) < LIMIT
