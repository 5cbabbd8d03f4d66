"""The text of kernels, word for word: a change of a template shows in the diff of a golden file.

``python tests/solvers_cuda/test_golden.py`` writes the files anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tilesmith.codegen.cuda.layout import layout_copy
from tilesmith.codegen.symbols import parse_symbol
from tilesmith.plan.records import Pointer, Source, Space
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import TensorView
from tilesmith.solvers.cuda.mma.solver import MmaDenseSolver
from tilesmith.solvers.relayout import channels_last
from tilesmith.solvers.solver import parse_config
from tilesmith.targets.cuda import CUDA_TARGETS

FOLDER = Path(__file__).with_name("golden")
H200 = CUDA_TARGETS["sm_90a"]
TILE = "block_m=32 block_n=64 block_k=32 warps_m=1 warps_n=2 stages=2 split_k=2 group_m=1"


def layout(multiple: int) -> Source:
    planes = TensorView("x", "bf16", (2, 72, 1, 8, 8), (72 * 64, 64, 64, 8, 1))
    views = (
        (planes, channels_last(planes)) if multiple == 1 else (channels_last(planes), channels_last(planes, multiple))
    )
    return layout_copy(*views, Pointer(Space.SLOT, 0), Pointer(Space.SLOT, 1), H200)[0]


def mma(signature, number: int = 0) -> Source:
    return MmaDenseSolver(exact=False).draft(signature.canonical.geometry, parse_config(TILE), H200).sources[number]


CASES = {
    "layout_tiles": lambda: layout(1),
    "layout_rows": lambda: layout(80),
    "mma_tf32": lambda: mma(GemmSignature(64, 64, 64, trans_a=True, acc_dtype="tf32")),
    "mma_fp8_sum": lambda: mma(
        ConvSignature((2, 8, 8, 32), (64, 3, 3, 32), mode="wrw", dtype="fp8e4m3", shared_layout="NHWC"), 1
    ),
}


def text_of(name: str) -> str:
    """The kernel without what its family shares, under a name without its digest."""
    source = CASES[name]()
    parts = parse_symbol(source.symbol)
    return source.text.replace(source.symbol, str(parts).removesuffix(parts.variant) + "golden")


@pytest.mark.parametrize("name", CASES)
def test_text(name):
    assert text_of(name) == (FOLDER / f"{name}.cu").read_text()


if __name__ == "__main__":
    for case in CASES:
        (FOLDER / f"{case}.cu").write_text(text_of(case))
