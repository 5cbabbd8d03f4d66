"""Rivals of groups of rows: which there are, and how their results are read."""

from __future__ import annotations

import numpy as np
import torch

from tilesmith.compare.cuda_groups import cleared
from tilesmith.compare.cutlass.kernels import product_of
from tilesmith.compare.onednn import gemm_calls
from tilesmith.compare.tvm.tuning import computes
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args


def test_rows_of_no_group_are_read_as_zeros():
    found = torch.full((1, 6, 2), torch.nan)
    found[0, :4] = 3.0
    for ends in ([2, 4, 3], [-1, 4, 0]):
        read = cleared(np.array(ends, np.int32), found)[0]
        assert torch.equal(read, torch.tensor([3.0, 3, 3, 3, 0, 0])[:, None].expand(6, 2))
    assert not cleared(np.zeros(3, np.int32), found).any()


def test_other_rivals_have_no_ways():
    signature = GemmSignature(32, 48, 64, groups=3)
    assert product_of(GemmSignature(32, 48, 64, dtype="bf16")) is not None
    assert product_of(GemmSignature(32, 48, 64, dtype="bf16", groups=3)) is None
    assert gemm_calls(signature, sample_args(signature)) == {}
    assert not computes(signature)
