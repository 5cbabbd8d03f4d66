"""Peaks are plausible, remembered, and make a roofline."""

import json
from dataclasses import replace
from itertools import chain

import pytest

from tilesmith.measure import machine as calibration
from tilesmith.measure.host import host_facts
from tilesmith.measure.machine import Machine, machine_of, roofline_seconds
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.targets.cpu import cpu_target
from tilesmith.targets.detect import host_target
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.toolchain.sealed import seal, unseal

PEAKS = Machine("t", "h", "d", 200e9, 100e9, 400e9, 100e9, 40e9)


def test_the_peaks_of_this_machine_are_measured_once(tmp_path, monkeypatch):
    target, cache = host_target(1), ArtifactCache(tmp_path)
    found = machine_of(target, cache)
    # One core: a vector of multiply-adds each nanosecond is slow, sixteen each are beyond every CPU.
    vector = target.vector_bytes // 4 * 2 * 1e9
    assert 0.2 * vector < found.fp32_flops < 16 * vector
    # A neighbour on the same core may come or go between the two.
    again = (calibration.measure_machine(target, cache) for _ in range(4))
    assert any(0.3 < each.fp64_flops / each.fp32_flops < 0.75 for each in chain([found], again))
    assert (found.bf16_flops is not None) == target.bf16_dot
    assert 1e9 < found.memory_bandwidth <= found.cache_bandwidth < 4e12
    assert (found.target, found.host) == (target.name, host_facts().name)
    monkeypatch.setattr(calibration, "measure_machine", lambda *a: pytest.fail("measured again"))
    assert machine_of(target, cache) == found


@pytest.mark.parametrize(
    "content",
    [b"", b"{}\n", json.dumps(vars(PEAKS)).encode(), seal({"target": 1}), seal({**vars(PEAKS), "fp32_flops": -1})],
)
def test_a_file_that_makes_no_sense_is_measured_again(tmp_path, monkeypatch, content):
    target = host_target(1)
    mine = replace(PEAKS, target=target.name, host=host_facts().name)
    monkeypatch.setattr(calibration, "measure_machine", lambda *a: mine)
    machine_of(target, ArtifactCache(tmp_path))
    (path,) = (tmp_path / "machine").iterdir()
    path.write_bytes(content)
    assert machine_of(target, ArtifactCache(tmp_path)) == mine
    assert unseal(path.read_bytes()) == vars(mine)


def test_the_roofline_is_the_tighter_of_two_bounds():
    target = cpu_target("x86_64-v4-bf16")
    dense = ConvSignature((1, 56, 56, 64), (64, 3, 3, 64), padding=1, shared_layout="NHWC")
    products = (3 * 56 - 2) ** 2 * 64 * 64  # those with padding are no work
    assert roofline_seconds(dense, target, PEAKS) == pytest.approx(2 * products / 200e9)
    half = ConvSignature((1, 56, 56, 64), (64, 3, 3, 64), padding=1, shared_layout="NHWC", dtype="bf16")
    assert roofline_seconds(half, target, PEAKS) == pytest.approx(2 * products / 400e9)
    assert roofline_seconds(half, target, replace(PEAKS, bf16_flops=None)) == roofline_seconds(dense, target, PEAKS)
    double = GemmSignature(m=64, n=64, k=64, dtype="fp64")
    assert roofline_seconds(double, target, PEAKS) == pytest.approx(2 * 64**3 / 100e9)
    thin = GemmSignature(m=1, n=64, k=64)
    assert roofline_seconds(thin, target, PEAKS) == pytest.approx((64 + 64 * 64 + 64) * 4 / 100e9)
    big = GemmSignature(m=1, n=8192, k=8192)
    assert roofline_seconds(big, target, PEAKS) == pytest.approx((8192 + 8192**2 + 8192) * 4 / 40e9)


def test_the_gradient_of_the_bias_is_bound_by_its_bytes():
    target = cpu_target("x86_64-v4")
    signature = ConvSignature((1, 56, 56, 64), (64, 3, 3, 64), padding=1, shared_layout="NHWC", mode="bgrad")
    assert roofline_seconds(signature, target, PEAKS) == pytest.approx((56 * 56 * 64 + 64) * 4 / 100e9)


def test_host_facts_name_the_machine_and_the_moment():
    facts = host_facts("gcc 12")
    assert facts.compiler == "gcc 12"
    assert facts.cores >= 1
    assert facts.date.endswith("Z")
    assert str(facts.cores) in facts.name
    assert set(facts.as_dict()) == {"cpu", "cores", "system", "python", "compiler", "load", "date", "gpu", "driver"}
