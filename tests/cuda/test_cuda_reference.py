"""The CUDA reference: its numbers through the emulator, NaN and Inf included, and its machine code for every arch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cuda_chain import H200, PTX_CACHE, executable
from hypothesis import HealthCheck, assume, given, settings

from sweep_problems import problems
from tilesmith.measure.accuracy import Accuracy, planted_copy
from tilesmith.measure.device_arrays import DeviceRechecker
from tilesmith.measure.device_oracle import DeviceSums
from tilesmith.measure.oracle import oracle
from tilesmith.plan.records import Draft, Memset, Pointer, Space
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import ACTIVATIONS, Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args
from tilesmith.problems.work import flops
from tilesmith.runtime.device import device
from tilesmith.solvers.cuda.reference.draft import reference_kernel
from tilesmith.solvers.cuda.reference.solver import CudaReferenceSolver
from tilesmith.solvers.solver import Accepted, Config
from tilesmith.targets.cuda import CUDA_TARGETS
from tilesmith.toolchain.build import build_unit

SOLVER = CudaReferenceSolver()
FLOATS = ("fp64", "fp32", "fp16", "bf16", "fp8e4m3", "fp8e5m2")


def draft(signature):
    geometry = signature.canonical.geometry
    assert SOLVER.applicable(geometry, H200) == Accepted()
    config = SOLVER.default_config(geometry, H200)
    assert SOLVER.search_space(geometry, H200).contains(config)
    assert SOLVER.predict(geometry, config, H200) > 0
    return SOLVER.draft(geometry, config, H200)


def verdicts(signature, emulating, specials) -> list[Accuracy]:
    """Of sample arguments, then with NaN and with Inf in one operand after the other."""
    signature = signature.canonical
    made = executable(signature, draft(signature), emulating)
    values = sample_args(signature)
    cases = [values]
    for place, value in enumerate(values if specials else ()):
        if value.dtype.kind not in "iu":
            for kinds in ((np.nan, np.nan), (np.inf, -np.inf)):
                cases.append((*values[:place], planted_copy(value, kinds, place), *values[place + 1 :]))
    found = []
    with np.errstate(all="ignore"):
        for case in cases:
            checker = DeviceRechecker(signature, case, oracle(signature, case), device(0))
            found.append(checker.check_plan(checker.plan(made), poison=True))
    return found


def problems_of(name):
    """Every direction, with tails in each loop, over several tiles, groups and layouts."""
    for mode in ("fwd", "bwd", "wrw", "bgrad"):
        yield ConvSignature((2, 6, 9, 8), (38, 3, 3, 2), stride=2, padding=(2, 1), groups=2, dtype=name, mode=mode)
        yield ConvSignature((7, 2, 6), (6, 3, 4), transposed=True, stride=3, output_padding=2, groups=2, padding=1,
                            dtype=name, mode=mode, input_layout="WNC", input_strides=(20, 8, 1))  # fmt: skip
    yield GemmSignature(m=35, n=18, k=70, batch=2, trans_b=True, alpha=0.5, beta=-2.0, dtype=name, lda=75)
    yield GemmSignature(m=90, n=18, k=70, groups=4, dtype=name, ldb=20)


def scaled_problems():
    """Each kind of factors, in blocks that end inside of tiles, and a bias behind them."""
    more = {"c_dtype": "fp32", "a_dtype": "fp8e5m2", "dtype": "fp8e4m3"}
    yield GemmSignature(5, 131, 140, trans_b=True, a_scale="1x128", b_scale="128x128", **more)
    yield GemmSignature(131, 3, 140, trans_a=True, a_scale="128x128", b_scale="1x128", **more)
    yield GemmSignature(3, 5, 7, a_scale="tensor", b_scale="tensor", epilogue=Epilogue(bias=True), **more)


@pytest.mark.parametrize("name", FLOATS)
def test_every_direction(name, emulating):
    wanted = list(problems_of(name))
    for signature in {"bf16": wanted, "fp32": wanted[1::3]}.get(name, wanted[::4]):
        for verdict in verdicts(signature, emulating, specials=name in ("fp32", "bf16")):
            assert verdict.ok, f"{signature.key()}: {verdict.message}"


def test_scaled_operands(emulating):
    for signature in scaled_problems():
        for verdict in verdicts(signature, emulating, specials=False):
            assert verdict.ok, f"{signature.key()}: {verdict.message}"


@pytest.mark.parametrize(
    "signature",
    [
        ConvSignature((1, 5, 4, 6, 80), (70, 2, 3, 3, 80), shared_layout="NDHWC", padding=1, dilation=(2, 1, 1)),
        ConvSignature((2, 40, 6, 5), (40, 1, 3, 3), groups=40, padding=1, dtype="bf16"),
        *(ConvSignature((2, 5, 6, 6), (8, 3, 4, 3), groups=2, padding=((0, 2), (3, 1)), stride=2, mode=mode,
                        shared_layout="NHWC") for mode in ("fwd", "bwd", "wrw")),
        # Strides that leave most taps out, one of them longer than a set of remainders, the next with a short last row.
        ConvSignature((1, 9, 13, 70), (20, 9, 5, 8), stride=(3, 4), dilation=(2, 1), padding=(1, 3), mode="bwd"),
        ConvSignature((2, 2, 1, 140), (18, 2, 1, 70), stride=(1, 67), padding=(0, 5), mode="bwd", dtype="bf16"),
        ConvSignature((1, 9, 3, 20), (20, 4, 8, 3), transposed=True, stride=(2, 8), dtype="fp16", shared_layout="NHWC"),
        ConvSignature((1, 9, 9, 9, 9), (5, 9, 2, 3, 3), stride=(2, 1, 3), dilation=(1, 2, 2), mode="bwd", dtype="int8"),
        ConvSignature((1, 3, 7, 7), (5, 3, 3, 3), dtype="int8", padding=1,
                      epilogue=Epilogue(bias=True, residual=True, activation="clamp", low=-900.0, high=2000.0)),
        GemmSignature(5, 66, 7, dtype="int8", beta=2.0, epilogue=Epilogue(activation="relu")),
        GemmSignature(5, 66, 7, dtype="int8", alpha=-2.0, beta=2.0, epilogue=Epilogue(scale="channel", bias=True)),
        GemmSignature(5, 66, 7, dtype="bf16", c_dtype="fp8e4m3", beta=2.0, epilogue=Epilogue(scale="tensor")),
        *(ConvSignature((1, 4, 5, 6), (6, 4, 3, 3), padding=1, dtype="int8", mode=mode,
                        epilogue=Epilogue(bias=True, residual=True, activation="silu", scale=scale))
          for mode, scale in (("fwd", "channel"), ("bwd", "tensor"))),
        ConvSignature((1, 4, 5, 6), (6, 4, 3, 3), padding=1, dtype="fp8e5m2",
                      epilogue=Epilogue(bias=True, scale="channel")),
        *(ConvSignature((2, 4, 5, 6), (9, 4, 3, 3), padding=1, dtype="fp16",
                        epilogue=Epilogue(bias=True, residual=True, activation=name))
          for name in ACTIVATIONS[1::3]),
    ],
    ids=str,
)  # fmt: skip
def test_forms(signature, emulating):
    for verdict in verdicts(signature, emulating, specials=True):
        assert verdict.ok, verdict.message


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(problems())
def test_random_problems(emulating, signature):
    assume(flops(signature) < 300_000)
    (verdict,) = verdicts(signature, emulating, specials=False)
    assert verdict.ok, f"{signature.key()}: {verdict.message}"


@pytest.mark.parametrize("arch", CUDA_TARGETS)
def test_every_arch_without_spills(arch, tmp_path):
    """Every kernel on one arch, in turn: the text is the same, and so are the registers, about."""
    target = CUDA_TARGETS[arch]
    plain = (each for each in problems_of("bf16") if not getattr(each, "transposed", False))
    signatures = [*plain, ConvSignature((1, 3, 7, 7), (5, 3, 3, 3), dtype="int8"), *scaled_problems()]
    signatures = signatures[list(CUDA_TARGETS).index(arch) :: len(CUDA_TARGETS)]
    found = {
        s.symbol: s for each in signatures for s in SOLVER.draft(each.canonical.geometry, Config(()), target).sources
    }
    kernels = build_unit(list(found.values()), target, tmp_path / "unit.cubin")
    assert len(kernels) == len(found)
    for kernel in kernels:
        assert (kernel.spill_store_bytes, kernel.spill_load_bytes) == (0, 0), kernel
        assert kernel.shared_bytes <= 48 * 1024


def test_one_kernel_serves_many_sizes():
    one = draft(ConvSignature((2, 6, 9, 8), (38, 6, 3, 2), dtype="bf16"))
    two = draft(ConvSignature((1, 9, 30, 30), (64, 9, 5, 5), stride=2, dtype="bf16"))
    assert one.sources == two.sources
    assert one.run != two.run


def test_guarded_runs_only_when_told(emulating):
    signature = ConvSignature((1, 3, 7, 7), (5, 3, 3, 3))
    flag = Pointer(Space.WORKSPACE)
    source, launch = reference_kernel(signature.geometry, H200, flag)
    for told in (0, 1):
        made = executable(signature, Draft((source,), (Memset(flag, 4, told), launch), workspace_bytes=4), emulating)
        values = sample_args(signature)
        checker = DeviceRechecker(signature, values, oracle(signature, values), device(0))
        assert checker.check_plan(checker.plan(made), poison=True).ok == bool(told)


def test_a_wrong_kernel_is_caught(emulating):
    """The whole way back from the device: one missing tap, one write beside the result, one into an operand."""
    signature = ConvSignature((1, 3, 7, 7), (5, 3, 3, 3))
    good = draft(signature)
    (source,) = good.sources
    body = source.text.replace(source.symbol, "@SYM@")
    for number, (old, new, word) in enumerate((
        ("depth = rn * fd * fh * fw", "depth = rn * fd * fh * fw - 1", "off by"),
        ("        store(y, at,", "        y[-1] = 0; store(y, at,", "wrote outside"),
        ("        store(y, at,", "        ((float *)w)[0] = 9; store(y, at,", "argument 1"),
    )):  # fmt: skip
        assert old in body
        symbol = f"ts_wrong{number}"
        planted = replace(source, symbol=symbol, text=body.replace(old, new).replace("@SYM@", symbol))
        run = tuple(replace(step, symbol=symbol) for step in good.run)
        values = sample_args(signature)
        checker = DeviceRechecker(signature, values, oracle(signature, values), device(0))
        verdict = checker.check_plan(
            checker.plan(executable(signature, Draft((planted,), run), emulating)), poison=True
        )
        assert not verdict.ok
        assert word in verdict.message or word == "off by", verdict.message


def test_the_device_oracle_is_the_oracle(emulating, monkeypatch):
    from tilesmith.solvers.cuda.reference import draft as reference

    real = reference.unit

    def emulated(*parts):
        source = real(*parts)
        emulating.emulate(source)
        return source

    monkeypatch.setattr(reference, "unit", emulated)
    last = {"padding": 1, "dtype": "bf16"}
    channels_last = [
        ConvSignature((2, 6, 7, 4), (10, 3, 2, 2), shared_layout="NHWC", groups=2, stride=2, mode=mode, **last)
        for mode in ("fwd", "bwd", "wrw")
    ]
    channels_last += [
        ConvSignature((2, 6, 4), (4, 3, 6), shared_layout="NWC", transposed=True, **last),
        ConvSignature(
            (2, 5, 4, 6, 3), (8, 3, 3, 3, 3), shared_layout="NDHWC", epilogue=Epilogue(residual=True), **last
        ),
        ConvSignature((2, 6, 7, 4), (10, 4, 3, 3), input_layout="NHWC", **last),
    ]
    few = ConvSignature((3, 4, 9), (4, 2, 3), groups=2, mode="wrw")
    for signature in (*problems_of("bf16"), few, *channels_last):
        values = sample_args(signature)
        plain, device_made = oracle(signature, values), oracle(signature, values, DeviceSums(H200, 0, PTX_CACHE))
        np.testing.assert_allclose(device_made.value, plain.value, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(device_made.norm, plain.norm, rtol=1e-5)
        if signature in channels_last and signature.mode == "fwd":
            assert np.moveaxis(device_made.norm, 1, -1).flags.c_contiguous  # where the host reads and adds
