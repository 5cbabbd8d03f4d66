"""Solvers opt in: the table refuses a problem that uses a feature which a solver does not name."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from tilesmith.problems import features
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import ACTIVATIONS, Epilogue
from tilesmith.problems.features import CONV, EVERYTHING, FEATURES, GEMM, features_of
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import ConvGeometry, GemmGeometry
from tilesmith.solvers import reasons
from tilesmith.solvers.solver import Accepted, Rejected
from tilesmith.solvers.table import candidates, solvers_for
from tilesmith.targets.cpu import cpu_target
from tilesmith.targets.cuda import cuda_target

TARGETS = (cpu_target("x86_64-v3", 2), cpu_target("aarch64"), cuda_target("sm_90a"), cuda_target("sm_80"))
PROBLEMS = (
    ConvSignature((2, 9, 9, 16), (32, 3, 3, 16), shared_layout="NHWC", padding=1, dtype="bf16"),
    ConvSignature((2, 16, 9, 9), (16, 1, 3, 3), groups=16, mode="wrw"),
    GemmSignature(m=64, n=64, k=64, dtype="bf16"),
    GemmSignature(m=64, n=64, k=64, dtype="bf16", groups=3),
    GemmSignature(m=64, n=64, k=64, trans_b=True, dtype="fp8e4m3", a_scale="1x128", b_scale="128x128"),
)

# What a field of a geometry asks of a solver: names of features, or why it asks for none.
SIZES, READ = "solvers read every size", "solvers read dtypes and strides; gaps are the feature pitch"
FIELDS = {
    ConvGeometry: {
        "direction": {"fwd", "bwd", "wrw", "bgrad"}, "n": SIZES, "c": SIZES, "k": SIZES, "groups": {"groups"},
        "input": {"depth"}, "filter": {"depth"}, "output": {"depth"}, "stride": {"stride"}, "padding": {"padding"},
        "padding_high": {"padding_high"},
        "dilation": {"dilation"}, "x": {"pitch", "vector"}, "w": {"pitch", "vector"}, "y": {"pitch", "vector"},
        "acc_dtype": {"acc=fp32", "acc=fp64", "acc=int32"}, "deterministic": {"deterministic"}, "tf32": {"tf32"},
        "epilogue": {"bias", "residual", "scale_tensor", "scale_channel", *ACTIVATIONS} - {"none"},
    },
    GemmGeometry: {
        "batch": {"batch"}, "m": SIZES, "n": SIZES, "k": SIZES, "a": {"pitch"}, "b": {"pitch"}, "c": {"pitch"},
        "alpha": {"alpha"}, "beta": {"beta"}, "acc_dtype": {"acc=fp32", "acc=fp64", "acc=int32"},
        "deterministic": {"deterministic"}, "tf32": {"tf32"}, "groups": {"row_groups"},
        "a_scale": {"operand_scales"}, "b_scale": {"operand_scales"},
        "epilogue": {"bias", "residual", "scale_tensor", "scale_channel", *ACTIVATIONS} - {"none"},
    },
    Epilogue: {
        "bias": {"bias"}, "residual": {"residual"}, "activation": set(ACTIVATIONS) - {"none"}, "slope": {"leaky_relu"},
        "low": {"clamp"}, "high": {"clamp"}, "scale": {"scale_tensor", "scale_channel"},
    },
}  # fmt: skip


@pytest.mark.parametrize("record", FIELDS, ids=lambda record: record.__name__)
def test_every_field_of_a_problem_has_its_features(record):
    """A new field fails here until a feature says that a problem uses it, or a reason why it needs none."""
    assert {field.name for field in fields(record)} == set(FIELDS[record])
    named = set().union(*(value for value in FIELDS[record].values() if isinstance(value, set)))
    assert named <= EVERYTHING


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.arch)
def test_a_feature_that_nobody_knows_is_refused_by_every_solver(target, monkeypatch):
    before = [candidates(signature, target) for signature in PROBLEMS]
    assert all(isinstance(found[-1].verdict, Accepted) for found in before)
    monkeypatch.setitem(FEATURES, "time travel", lambda problem: True)
    for signature in PROBLEMS:
        for candidate in candidates(signature, target, external=True):
            assert isinstance(candidate.verdict, Rejected), candidate.name
            assert "time travel" in candidate.verdict.detail or candidate.verdict.reason != reasons.FEATURE


def test_solvers_name_known_features_alone():
    for target in TARGETS:
        for solver in solvers_for(target):
            assert solver.features <= EVERYTHING, solver.name
        assert solvers_for(target)[-1].features == EVERYTHING


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.arch)
def test_a_feature_that_is_struck_out_is_refused(target, monkeypatch):
    """Whatever a solver accepts, it accepts no more when one of the problem's features is not in its list."""
    for signature in PROBLEMS:
        for candidate in candidates(signature, target):
            if isinstance(candidate.verdict, Accepted) and hasattr(type(candidate.solver), "features"):
                for name in features_of(candidate.geometry):
                    with monkeypatch.context() as changed:
                        changed.setattr(type(candidate.solver), "features", candidate.solver.features - {name})
                        again = candidates(signature, target, [candidate.name])
                        assert [c.verdict for c in again] == [Rejected(reasons.FEATURE, name)], candidate.name


def test_features_of_a_problem():
    plain = ConvSignature((2, 9, 9, 16), (32, 3, 3, 16), shared_layout="NHWC").canonical.geometry
    assert features_of(plain) == {"fwd", "acc=fp32"}
    much = ConvSignature(
        (2, 6, 9, 9, 16), (32, 3, 3, 3, 4), shared_layout="NDHWC", groups=4, stride=2, padding=1, dilation=2,
        dtype="bf16", deterministic=True, output_strides=(100000, 10000, 1000, 40, 1),
        epilogue=Epilogue(bias=True, residual=True, activation="gelu"),
    ).canonical.geometry  # fmt: skip
    assert features_of(much) == {
        "fwd", "acc=fp32", "groups", "stride", "padding", "dilation", "depth", "deterministic", "pitch", "bias",
        "residual", "gelu",
    }  # fmt: skip
    assert features_of(much) <= CONV | {"acc=fp32", "deterministic", "pitch"}
    vector = ConvSignature((1, 2, 5, 5, 8), (8, 16, 1, 1), input_layout="NCHWc8").canonical.geometry
    assert "vector" in features_of(vector)
    gemm = GemmSignature(m=4, n=5, k=6, batch=3, alpha=2.0, beta=1.0, ldc=9).canonical.geometry
    assert features_of(gemm) == {"gemm", "acc=fp32", "batch", "alpha", "beta", "pitch"} <= GEMM | {"acc=fp32", "pitch"}
    shared = GemmSignature(m=4, n=5, k=6, batch=3, stride_b=0).canonical.geometry
    assert "pitch" in features_of(shared)
    assert "pitch" not in features_of(replace(gemm, c=gemm.a))
    assert features._has_gaps(gemm.c)
