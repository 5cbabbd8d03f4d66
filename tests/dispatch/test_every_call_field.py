"""What a process keeps for its next call is found for the same call alone: whatever differs is decided anew."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace

import numpy as np
import pytest

from problem_changes import conv_changes, gemm_changes
from tilesmith import conv, gemm, get_launchable
from tilesmith.dispatch import eager, hits, kept_calls, launchable, resolve
from tilesmith.dispatch.launchable import forget_launchables
from tilesmith.problems.conv import ConvSignature
from tilesmith.targets.detect import host_target

RNG = np.random.default_rng(5)


def array(*shape, dtype=np.float32):
    return RNG.integers(-3, 4, shape).astype(dtype)


@pytest.fixture
def asked(monkeypatch):
    """The problems that ``conv`` and ``gemm`` ask for, which are those that their memos do not hold."""
    seen = []
    real = eager.get_launchable

    def watched(signature, **options):
        seen.append((signature, options["threads"], options["mode"]))
        return real(signature, **options)

    monkeypatch.setattr(eager, "get_launchable", watched)
    return seen


# By parameter: another value than that of the plain call.
X, W = array(1, 4, 6, 5), array(4, 4, 3, 3)
CONV_OPTIONS = {
    "x": {
        "shape": array(1, 4, 7, 5), "batch": array(2, 4, 6, 5), "dtype": array(1, 4, 6, 5, dtype=np.float64),
        "strides": array(1, 4, 6, 9)[..., :5], "order": array(1, 6, 5, 4).transpose(0, 3, 1, 2),
    },
    "w": {"shape": array(4, 4, 2, 3), "strides": array(4, 4, 3, 5)[..., :3], "out": array(8, 4, 3, 3)},
    "b": array(4), "stride": 2, "padding": (0, 1), "dilation": (2, 1), "groups": 2, "transposed": True,
    "output_padding": 1, "input_layout": "NCWH", "kernel_layout": "NCWH", "output_layout": "NHWC",
    "shared_layout": "NHWC", "activation": "relu", "slope": 0.2, "low": -1.0, "high": 3.0,
    "residual": array(1, 4, 4, 3), "threads": 2, "mode": "hybrid", "acc_dtype": "fp64",
}  # fmt: skip
# What these say counts only beside another option.
CONV_BESIDE = {
    "groups": {"w": array(4, 2, 3, 3), "transposed": True}, "output_padding": {"transposed": True, "stride": 2},
    "slope": {"activation": "leaky_relu"}, "low": {"activation": "clamp"}, "high": {"activation": "clamp"},
    "shared_layout": {"x": array(1, 4, 6, 4), "w": array(4, 4, 4, 4)},
}  # fmt: skip
A, B = array(4, 6), array(6, 5)
GEMM_OPTIONS = {
    "a": {"shape": array(3, 6), "strides": array(4, 9)[:, :6], "dtype": array(4, 6, dtype=np.float64)},
    "b": {"shape": array(6, 7), "strides": array(6, 8)[:, :5]},
    "c": array(4, 9)[:, :5], "bias": array(5), "alpha": 2.0, "beta": 1.0, "trans_a": True, "trans_b": True,
    "activation": "relu", "slope": 0.2, "low": -1.0, "high": 3.0, "residual": array(4, 5), "threads": 2,
    "mode": "hybrid", "acc_dtype": "fp64",
}  # fmt: skip
SQUARE = array(6, 6)
GEMM_BESIDE = {
    "c": {"c": array(4, 5), "beta": 1.0}, "beta": {"c": array(4, 5)}, "trans_a": {"a": SQUARE, "b": SQUARE},
    "trans_b": {"a": SQUARE, "b": SQUARE}, "slope": {"activation": "leaky_relu"}, "low": {"activation": "clamp"},
    "high": {"activation": "clamp"},
}  # fmt: skip


def cases(options):
    for name, value in options.items():
        for label, each in value.items() if isinstance(value, dict) else [("", value)]:
            yield pytest.param(name, each, id=f"{name} {label}".strip())


@pytest.mark.parametrize(("name", "value"), list(cases(CONV_OPTIONS)))
def test_conv_by_parameter(asked, name, value):
    base = {"x": X, "w": W, **CONV_BESIDE.get(name, {})}
    check(conv, asked, base, name, value)


@pytest.mark.parametrize(("name", "value"), list(cases(GEMM_OPTIONS)))
def test_gemm_by_parameter(asked, name, value):
    base = {"a": A, "b": B, **GEMM_BESIDE.get(name, {})}
    check(gemm, asked, base, name, value)


def check(call, asked, base, name, value):
    changed = {**base, name: value}
    if name in ("x", "a") and value.dtype != base[name].dtype:
        changed = {each: operand.astype(value.dtype) for each, operand in changed.items()}
    for _ in range(3):  # by signature, by shapes, by the filter
        run(call, base)
    assert len(asked) == 1
    first = run(call, changed)
    assert len(asked) == 2, "it was found for another call"
    assert asked[0] != asked[1] or name == "c"  # which the kernel is given a copy of, whatever its strides
    kept_calls.forget()
    np.testing.assert_array_equal(first, run(call, changed))
    assert asked[2] == asked[1]


def run(call, options):
    names = ("x", "w", "b") if call is conv else ("a", "b", "c", "bias")
    return call(*(options.get(name) for name in names), **{k: v for k, v in options.items() if k not in names})


def test_every_parameter_is_in_the_tables():
    assert set(inspect.signature(conv).parameters) == set(CONV_OPTIONS)
    assert set(inspect.signature(gemm).parameters) == set(GEMM_OPTIONS)


# --- get_launchable ---

SMALL = ConvSignature((1, 4, 6, 6), (4, 4, 3, 3))


@pytest.fixture
def decided(monkeypatch):
    """The problems that are decided; none is compiled. First ends what earlier tests of this process have begun."""
    builder = sys.modules.get("tilesmith.torch_ops.compile.builder")
    assert builder is None or builder.wait_for_kernels(60.0)
    seen = []

    def resolved(request):
        seen.append(request.signature)
        return len(seen)

    monkeypatch.setattr(resolve, "resolve", resolved)
    monkeypatch.setattr(hits, "keep", lambda *_: None)
    monkeypatch.setattr(launchable, "_loaded", lambda request, number, options: number)
    return seen


def test_launchables_by_argument(decided, tmp_path, monkeypatch, processor):
    processor("x86_64-v3")
    here = host_target(1)
    arguments = [
        {"mode": "normal"}, {"threads": 2}, {"database": tmp_path / "another.db"}, {"cache": tmp_path / "cache"},
        {"only": "c_reference"}, {"target": replace(here, cores=2)}, {"target": replace(here, l2_bytes=1 << 10)},
        {"device": "cpu"}, {"frozen": False},
    ]  # fmt: skip
    named = {name for each in arguments for name in each}
    assert named | {"signature", "external"} == set(inspect.signature(get_launchable).parameters)
    environments = [
        {"TILESMITH_DB_PATH": str(tmp_path / "b.db")}, {"TILESMITH_CACHE_DIR": str(tmp_path / "b")},
        {"TILESMITH_FIND_MODE": "hybrid"}, {"TILESMITH_NUM_THREADS": "2"}, {"TILESMITH_ONLY_SOLVER": "c_reference"},
        {"TILESMITH_CPU_LEVEL": "x86_64-v2"},
    ]  # fmt: skip
    for options, environment in (*((each, {}) for each in arguments), *(({}, each) for each in environments)):
        forget_launchables()
        decided.clear()
        assert get_launchable(SMALL) == get_launchable(SMALL) == 1
        with monkeypatch.context() as changed:
            for name, value in environment.items():
                changed.setenv(name, value)
            assert get_launchable(SMALL, **options) == get_launchable(SMALL, **options) == 2, (options, environment)
        assert get_launchable(SMALL) == 1


def test_launchables_by_field_of_the_problem(decided):
    for name, (before, after) in {**conv_changes(), **gemm_changes()}.items():
        forget_launchables()
        assert get_launchable(before) == get_launchable(before)
        count = len(decided)
        get_launchable(after)
        assert decided[count:] == [after], name
