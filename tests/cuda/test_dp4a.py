"""int8 depthwise convolution by dp4a: numbers through the emulator, choices, refusals, and its text for every arch."""

from __future__ import annotations

import pytest
from cuda_chain import H200, executable

from tilesmith.measure.device_arrays import DeviceRechecker
from tilesmith.measure.oracle import oracle
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.device import device
from tilesmith.solvers.cuda.dp4a.solver import Dp4aSolver
from tilesmith.solvers.solver import Accepted, Config, Rejected
from tilesmith.solvers.table import candidates
from tilesmith.targets.cuda import CUDA_TARGETS
from tilesmith.toolchain.build import build_unit

SOLVER = Dp4aSolver()
AXES = [axis.name for axis in SOLVER.axes]
ARCHS = ("sm_80", "sm_90a", "sm_120a")


def depthwise(c=12, size=(9, 11), taps=(3, 3), out="int32", **more):
    return ConvSignature(
        (2, *size, c), (c, *taps, 1), groups=c, shared_layout="NHWC", dtype="int8", output_dtype=out, **more
    )


def scaled(kind: str, **more):
    return {"out": "int8", "epilogue": Epilogue(scale=kind, **more)}


CASES = [
    (depthwise(padding=1), (4, 2, 4, 64)),
    (depthwise(20, taps=(5, 7), padding=3), (4, 1, 8, 64)),
    (depthwise(8, size=(13, 17), padding=1, stride=2), (8, 2, 4, 64)),
    (depthwise(12, size=(13, 17), taps=(3, 2), padding=2, stride=(3, 1), dilation=(2, 3)), (4, 2, 2, 64)),
    (depthwise(4, size=(5, 5), taps=(1, 1)), (4, 1, 1, 64)),
    (depthwise(12, padding=1, input_strides=(9 * 11 * 16, 11 * 16, 16, 1)), (4, 2, 2, 64)),
    (depthwise(12, padding=1, **scaled("tensor")), (4, 2, 4, 64)),
    (depthwise(16, padding=1, stride=2, **scaled("channel", bias=True, activation="relu")), (8, 1, 4, 64)),
    (depthwise(16, padding=1, **scaled("channel", bias=True, activation="clamp", low=-3, high=90)), (16, 1, 2, 64)),
]


def config(values) -> Config:
    return Config(tuple(zip(AXES, values, strict=True)))


@pytest.mark.parametrize(("signature", "values"), CASES, ids=lambda v: v.key()[12:70] if hasattr(v, "key") else "")
def test_numbers(signature, values, emulating):
    signature = signature.canonical
    geometry, chosen = signature.geometry, config(values)
    assert SOLVER.applicable(geometry, H200) == Accepted()
    assert SOLVER.search_space(geometry, H200).contains(chosen)
    made = executable(signature, SOLVER.draft(geometry, chosen, H200), emulating)
    given = sample_args(signature)
    checker = DeviceRechecker(signature, given, oracle(signature, given), device(0))
    verdict = checker.check_plan(checker.plan(made), poison=True)
    assert verdict.ok, verdict.message


def test_the_table_chooses_it():
    for signature, _ in CASES:
        found = [c for c in candidates(signature.canonical, H200) if isinstance(c.verdict, Accepted)]
        times = {c.name: c.solver.predict(c.geometry, c.solver.default_config(c.geometry, H200), H200) for c in found}
        assert min(times, key=times.get) == SOLVER.name, times


@pytest.mark.parametrize(
    ("signature", "word"),
    [
        (depthwise(10), "layout"),
        (ConvSignature((2, 9, 9, 8), (8, 3, 3, 2), groups=4, shared_layout="NHWC", dtype="int8"), "group"),
        (depthwise(taps=(12, 12), size=(20, 20)), "too large"),
        (depthwise(epilogue=Epilogue(activation="relu")), "epilogue"),
        (ConvSignature((2, 12, 9, 9), (12, 1, 3, 3), groups=12, dtype="int8", output_dtype="int32"), "layout"),
    ],
    ids=["ten channels", "groups of two", "144 taps", "int32 and relu", "channels first"],
)
def test_refusals_name_their_reason(signature, word):
    verdict = SOLVER.applicable(signature.canonical.geometry, H200)
    assert isinstance(verdict, Rejected)
    assert word in str(verdict), verdict


@pytest.mark.parametrize("arch", ARCHS)
def test_untuned_kernels_compile_without_spills(arch, tmp_path):
    """Most cases on one arch each, in turn."""
    target, sources = CUDA_TARGETS[arch], {}
    for signature, _ in CASES[ARCHS.index(arch) :: len(ARCHS) + 1]:
        geometry = signature.canonical.geometry
        chosen = SOLVER.default_config(geometry, target)
        assert SOLVER.search_space(geometry, target).contains(chosen)
        for source in SOLVER.draft(geometry, chosen, target).sources:
            sources[source.symbol] = source
    found = build_unit(list(sources.values()), target, tmp_path / "unit.cubin")
    assert [(r.symbol, r.spill_store_bytes, r.stack_bytes) for r in found if r.stack_bytes or r.spill_store_bytes] == []
