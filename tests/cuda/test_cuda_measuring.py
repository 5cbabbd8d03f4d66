"""Detection, devices by name, and the measuring worker's side of a GPU, against the stand-in."""

from __future__ import annotations

import pytest
from cuda_chain import CACHE, H200, executable

from tilesmith.dispatch.locations import target_of
from tilesmith.errors import TargetError
from tilesmith.measure.device_bench import DeviceBench
from tilesmith.measure.device_flush import WAIT_CYCLES, Flush
from tilesmith.measure.device_timing import METHOD, calls_in_row, interleave_on_device
from tilesmith.measure.oracle import oracle
from tilesmith.plan.assemble import assemble
from tilesmith.plan.serial import encode
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.samples import sample_args
from tilesmith.runtime.device import Stream, device
from tilesmith.solvers.cuda.reference.solver import CudaReferenceSolver
from tilesmith.solvers.solver import Config
from tilesmith.solvers.table import candidates
from tilesmith.targets import detect_cuda
from tilesmith.targets.cuda import CUDA_TARGETS, cuda_arch
from tilesmith.targets.cuda_driver import device_ordinal
from tilesmith.targets.detect_cuda import cuda_devices, cuda_target_of
from tilesmith.targets.names import parse_target
from tilesmith.tune.crash_report import CrashReport
from tilesmith.tune.device_worker import DeviceWorker
from tilesmith.tune.messages import Load, Loaded, Race, Refused, Setup, Unload

CONV = ConvSignature((1, 3, 6, 6), (5, 3, 3, 3)).canonical


def test_devices_and_their_targets(cuda):
    first, second = cuda_devices()
    assert (first.name, first.sms, first.driver, second.ordinal) == ("NVIDIA H200", 132, "13.0", 1)
    assert cuda_target_of(1).name == "sm_90a:132:h200"
    assert cuda_target_of(0).l2_bytes == 50 << 20
    with pytest.raises(TargetError, match="cuda:2 does not exist; this machine has 2 CUDA devices"):
        cuda_target_of(2)


@pytest.mark.parametrize(
    ("name", "card", "bytes_per_s", "estimated"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3", 0.9 * 3.35e12, False),
        ("NVIDIA H200 NVL", "h200-nvl", 0.9 * 2.048e12, True),  # as the stand-in's driver reports its memory
    ],
)
def test_another_card_of_the_arch_has_facts_of_its_own(cuda, monkeypatch, name, card, bytes_per_s, estimated):
    detect_cuda._devices.cache_clear()
    cuda.call_devices(name)
    try:
        target = cuda_target_of(0)
        assert (target.name, target.estimated) == (f"sm_90a:132:{card}", estimated)
        assert target.bytes_per_s == pytest.approx(bytes_per_s)
        assert target.bytes_per_s < H200.bytes_per_s
        if estimated:
            assert target.bf16_flops == pytest.approx(H200.bf16_flops * 1.5e9 / H200.clock_hz)
        with pytest.raises(TargetError, match=f"sm_90a:132:h200 does not run on cuda:0, which is sm_90a:132:{card}"):
            target_of(H200, None)
    finally:
        cuda.call_devices("NVIDIA H200")
        detect_cuda._devices.cache_clear()


@pytest.mark.parametrize("arch", CUDA_TARGETS)
def test_names(arch):
    target = CUDA_TARGETS[arch]
    assert parse_target(target.name) == target
    assert parse_target(arch) == target
    assert parse_target(f"{arch}:7").cores == 7
    assert target.family == "cuda"
    assert cuda_arch(target.cc_major, target.cc_minor) == arch
    assert target.shared_bytes_per_block < target.shared_bytes_per_sm


def test_archs_without_a_record():
    assert cuda_arch(8, 8) == "sm_87"
    assert cuda_arch(9, 1) == cuda_arch(13, 0) == "compute_89"
    with pytest.raises(TargetError, match=r"compute capability 7\.5 are not supported"):
        cuda_arch(7, 5)
    for text in ("sm_75:40", "sm_90a:0", "sm_90a:2000", "sm_90a:x", "sm_90a:132:b200"):
        with pytest.raises(TargetError):
            parse_target(text)


def test_devices_by_name(cuda):
    assert [device_ordinal(name) for name in ("cpu", "cuda", "cuda:1")] == [-1, 0, 1]
    for name in ("gpu", "cuda:", "cuda:x", "cpu:0", "cuda:-1", "cuda:" + "9" * 5000, 3):
        with pytest.raises(TargetError, match="write it as cpu, cuda or cuda:1"):
            device_ordinal(name)
    assert target_of(None, None, "cuda:1").name == "sm_90a:132:h200"
    assert target_of(parse_target("sm_90a:132"), None).name == "sm_90a:132:h200"
    with pytest.raises(TargetError, match="sm_80:108:a100-sxm4-40gb does not run on cuda:0, which is sm_90a:132:h200"):
        target_of(parse_target("sm_80"), None)
    with pytest.raises(TargetError, match="does not run on the CPU"):
        target_of(H200, None, "cpu")


def test_the_reference_is_the_last_candidate():
    found = candidates(CONV, H200)
    assert found[-1].solver.name == "cuda_reference"


def test_a_bench_checks_and_times(emulating):
    values = sample_args(CONV)
    bench = DeviceBench(CONV, values, oracle(CONV, values), H200)
    made = executable(CONV, CudaReferenceSolver().draft(CONV.geometry, Config(()), H200), emulating)
    assert bench.check(made).ok
    plan = bench.timed.plan(made)
    timings = bench.time({"a": plan.run, "b": plan.run}, budget_s=0.05, rounds=4, drop_ratio=1.1)
    # The stand-in's events are always a quarter of a ms apart, whatever lies between them: here four calls.
    assert timings["a"].median_us == pytest.approx(250 / 4)
    assert timings["b"].method == METHOD
    assert not [line for line in emulating.log() if line.startswith("launch") and "stream=0 " in line]


def test_rows_are_as_long_as_time_and_memory_allow(cuda):
    def calls(m, n, k):
        signature = GemmSignature(m, n, k, dtype="bf16").canonical
        values = sample_args(signature)
        return DeviceBench(signature, values, oracle(signature, values), H200).calls

    assert calls(64, 64, 64) == 16
    assert calls_in_row(7.9e-6, 33.6e6, 64e9) == 15  # those of 1 x 4096 x 4096: 120 us at the roofline
    assert calls_in_row(21e-6, 92e6, 64e9) == 5
    assert calls_in_row(1.0, 1e6, 64e9) == 1
    assert calls_in_row(1e-6, 1e9, 64e9) == 1  # one that fits is tried
    cuda.leave(8 * 5 * 3 * 64 * 64 * 2)
    assert calls(64, 64, 64) == 5


def test_samples_that_the_host_queued_too_late_are_taken_again(cuda, monkeypatch):
    place = device(0)
    flush, stream, waits = Flush(place, 1 << 20, 1), Stream(place), []
    monkeypatch.setattr(flush, "queue", lambda stream, wait: waits.append(wait))
    calls = []
    cuda.come_early(1)
    timings = interleave_on_device({"a": calls.append}, stream, flush, calls=3, budget_s=9, rounds=3)
    first, *others = waits
    assert calls[:2] == [0, 0]  # a first call that loads code, and a sample that tells how many make a row
    assert calls[-3:] == [0, 1, 2]  # each of the row on tensors of its own
    assert len(calls) == 1 + 1 + 1 + 3 * (len(waits) - 1)
    assert (first, set(others)) == (WAIT_CYCLES, {2 * WAIT_CYCLES})
    assert timings["a"].samples == 3
    cuda.come_early(10**6)  # a host that is always too late: the samples are kept in the end
    once = interleave_on_device({"a": lambda place: None}, stream, flush, calls=1, budget_s=9, rounds=3)
    assert (once["a"].samples, once["a"].disturbed) == (3, 3)
    assert timings["a"].disturbed == 0
    assert max(waits) == 16 * WAIT_CYCLES
    cuda.come_early(0)


def test_the_worker_refuses_and_races(checking_ptx, tmp_path):
    values = sample_args(CONV)
    worker = DeviceWorker(
        Setup(CONV.key(), 0, "", 0, str(tmp_path / "cache")),
        CrashReport(tmp_path / "note"),
        lambda setup: oracle(CONV, values),
    )
    draft = CudaReferenceSolver().draft(CONV.geometry, Config(()), H200)
    (source,) = draft.sources
    made = CACHE.get_or_build(source, H200)
    good = assemble(draft, CONV, "good", "", H200, [made.digest])
    replies = [worker.load(Load(name, encode(good), (str(made.path),))) for name in ("one", "two")]
    assert all(isinstance(reply, Loaded) and reply.error <= reply.bound for reply in replies)
    raced = worker.race(Race(("one", "two"), 3, 0.01, 1, None))
    assert set(raced.timings) == {"one", "two"}
    worker.unload(Unload(("one",)))
    with pytest.raises(KeyError):
        worker.race(Race(("one",), 3, 0.01, 1, None))
    worker.bench.checker._value.fill(0)  # now every result is wrong
    refused = worker.load(Load("three", encode(good), (str(made.path),)))
    assert isinstance(refused, Refused)
    assert "wrong numbers" in refused.reason
