"""The bias gradient by channel sums: numbers through the emulator, choices, refusals, and its text for every arch."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_chain import H200, executable

from tilesmith.measure.device_arrays import DeviceRechecker
from tilesmith.measure.oracle import oracle
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.features import features_of
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.device import device
from tilesmith.solvers.cuda.channel_sums.form import sums_form
from tilesmith.solvers.cuda.channel_sums.solver import ChannelSumsSolver
from tilesmith.solvers.solver import Accepted, Config, Rejected, refusal
from tilesmith.targets.cuda import CUDA_TARGETS
from tilesmith.toolchain.build import build_unit

SOLVER = ChannelSumsSolver()
AXES = [axis.name for axis in SOLVER.axes]
ARCHS = ("sm_80", "sm_90a", "sm_120a")


def gradient(n, k, *size, last=True, dtype="bf16", strides=None, **more):
    """The bias gradient of a 1x1 convolution whose dy has this shape."""
    layout = {1: "NWC", 2: "NHWC", 3: "NDHWC"}[len(size)] if last else {1: "NCW", 2: "NCHW", 3: "NCDHW"}[len(size)]
    shape = (n, *size, k) if last else (n, k, *size)
    filter_ = (k, *(1,) * len(size), 1) if last else (k, 1, *(1,) * len(size))
    return ConvSignature(
        shape, filter_, groups=k, mode="bgrad", dtype=dtype, shared_layout=layout, output_strides=strides, **more
    )


CASES = [
    # channels last
    (gradient(2, 64, 9, 11), (128, 4, 3)),
    (gradient(3, 3, 7, 11), (128, 4, 2)),  # 231 pixels: rows of 8, and 7 more
    (gradient(1, 1, 5, 7), (128, 4, 1)),
    (gradient(5, 37, 3, 3, dtype="fp32"), (128, 8, 4)),
    (gradient(2, 1001, 3), (512, 2, 1)),
    (gradient(2, 40, 3, 4, 5, strides=(60 * 48, 20 * 48, 5 * 48, 48, 1)), (128, 2, 5)),
    (gradient(2, 33, 4, 5, strides=(1000, 180, 35, 1)), (128, 4, 2)),  # nothing can be merged
    # channels first
    (gradient(2, 6, 16, 32, last=False), (128, 2, 2)),
    (gradient(3, 9, 45, 23, last=False, dtype="fp16"), (512, 4, 3)),
    (gradient(2, 3, 3, 5, 7, last=False, dtype="fp32"), (128, 2, 2)),
    (gradient(2, 5, 6, 9, last=False, strides=(1001, 170, 21, 1)), (128, 2, 2)),
    (gradient(2, 4, 6, 9, last=False, strides=(1000, 240, 40, 4)), (128, 2, 1)),  # nothing is contiguous
]


def config(values) -> Config:
    return Config(tuple(zip(AXES, values, strict=True)))


def checked(signature, chosen, emulating, poison=True):
    signature = signature.canonical
    made = executable(signature, SOLVER.draft(signature.geometry, chosen, H200), emulating)
    given = sample_args(signature)
    checker = DeviceRechecker(signature, given, oracle(signature, given), device(0))
    return checker.check_plan(checker.plan(made), poison=poison)


@pytest.mark.parametrize(("signature", "values"), CASES, ids=lambda v: v.key()[12:70] if hasattr(v, "key") else "")
def test_numbers(signature, values, emulating):
    assert SOLVER.applicable(signature.canonical.geometry, H200) == Accepted()
    verdict = checked(signature, config(values), emulating)
    assert verdict.ok, verdict.message


def test_not_a_number_stays_in_its_channel(emulating):
    """Vectors hold elements of neighbouring channels where rows begin anywhere."""
    signature = gradient(2, 3, 5, 7, last=False, dtype="fp32").canonical
    made = executable(signature, SOLVER.draft(signature.geometry, config((128, 4, 1)), H200), emulating)
    given = sample_args(signature)
    given[0][0, 1, 0, 0] = np.nan
    given[0][1, 1, 4, 6] = np.inf
    checker = DeviceRechecker(signature, given, oracle(signature, given), device(0))
    verdict = checker.check_plan(checker.plan(made), poison=True)
    assert verdict.ok, verdict.message


def test_rows_are_joined_and_folded():
    pixels = sums_form(gradient(2, 3, 7, 11).canonical.geometry)
    assert (pixels.columns, pixels.vector, pixels.items, pixels.left) == (24, 8, 19, 2)  # 154 pixels of 3 channels
    planes = sums_form(gradient(4, 5, 8, 8, last=False).canonical.geometry)
    assert (planes.vector, planes.axes, planes.row) == (8, ((8, 8), (4, 320)), 0)
    anywhere = sums_form(gradient(4, 5, 7, 7, last=False).canonical.geometry)
    assert (anywhere.vector, anywhere.axes, anywhere.row) == (8, ((7, 8), (4, 245)), 49)


@pytest.mark.parametrize(
    ("signature", "word"),
    [
        (gradient(1, 8, 4, 4, dtype="fp8e5m2"), "dtype"),
        (gradient(1, 8, 4, 4, dtype="fp32", acc_dtype="fp64"), "feature"),
        (ConvSignature((1, 8, 4, 4), (8, 1, 1, 1), groups=8), "feature"),
        (gradient(2**21, 1, 2**11, strides=(2**12, 2, 1)), "too large"),
    ],
    ids=["fp8", "fp64 sums", "forward", "too many elements that move alone"],
)
def test_refusals_name_their_reason(signature, word):
    geometry = signature.canonical.geometry
    verdict = refusal(SOLVER.features, features_of(geometry)) or SOLVER.applicable(geometry, H200)
    assert isinstance(verdict, Rejected)
    assert word in str(verdict), verdict


@pytest.mark.parametrize("arch", ARCHS)
def test_untuned_kernels_compile_without_spills(arch, tmp_path):
    """Every case on one arch, in turn."""
    target, sources = CUDA_TARGETS[arch], {}
    for signature, _ in CASES[ARCHS.index(arch) :: len(ARCHS)]:
        geometry = signature.canonical.geometry
        chosen = SOLVER.default_config(geometry, target)
        assert SOLVER.search_space(geometry, target).contains(chosen)
        for source in SOLVER.draft(geometry, chosen, target).sources:
            sources[source.symbol] = source
    found = build_unit(list(sources.values()), target, tmp_path / "unit.cubin")
    assert [(r.symbol, r.spill_store_bytes, r.stack_bytes) for r in found if r.stack_bytes or r.spill_store_bytes] == []
