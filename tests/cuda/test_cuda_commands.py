"""Commands with ``--device cuda`` end to end against the stand-in, PyTorch's CUDA side played by its CPU side."""

from __future__ import annotations

import csv
import json
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from cuda_chain import CACHE

from fresh_home import cache_dir, home  # noqa: F401
from tilesmith.cli.main import run
from tilesmith.db.layers import open_layers
from tilesmith.db.records import Record
from tilesmith.dispatch.launchable import get_launchable
from tilesmith.dispatch.request import Request
from tilesmith.dispatch.resolve import decide, resolve
from tilesmith.errors import NoSolutionError
from tilesmith.measure.accuracy import check
from tilesmith.measure.oracle import oracle
from tilesmith.measure.timing import Timing
from tilesmith.problems.driver import parse_command
from tilesmith.problems.samples import sample_args, torch_args
from tilesmith.solvers.external import bound, library
from tilesmith.solvers.solver import Config
from tilesmith.targets.detect_cuda import cuda_devices, cuda_target_of
from tilesmith.toolchain.cache import ArtifactCache
from tilesmith.tune.crash_report import CrashReport
from tilesmith.tune.device_worker import DeviceWorker
from tilesmith.tune.job import make_job
from tilesmith.tune.messages import Load, Loaded, Race, Refused, Setup
from tilesmith.tune.playoff import in_order
from tilesmith.tune.space import Point

CONV = "conv -n 1 -c 8 -H 5 -W 4 -k 8 -p 1 -q 1 -F 1 -I NHWC -f NHWC -O NHWC"
GEMM = "gemm -m 6 -n 7 -k 8"


def signature_of(command):
    return parse_command(command).signatures[0][1]


@pytest.fixture
def device(checking_ptx, monkeypatch, home):  # noqa: F811
    """A GPU on which the plain reference alone runs.

    Its cache is this process's own: kernels of a plan that another one has kept would not be emulated here.
    """
    monkeypatch.setenv("TILESMITH_ONLY_SOLVER", "cuda_reference")
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(CACHE.directory / "commands"))
    return checking_ptx


@pytest.fixture
def libraries(device, monkeypatch):
    """PyTorch's CPU in the place of its CUDA side; what it computes lies in memory that the stand-in reads."""
    monkeypatch.setattr(library, "torch_args", lambda values, place: torch_args(values, "cpu"))
    monkeypatch.setattr(library, "on_stream", lambda *facts: nullcontext())
    monkeypatch.setattr(library, "BLAS", ("cublas", "cublas"))
    return library


def test_a_driver_command_prints_the_drivers_lines(device, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run([*CONV.split(), "-t", "1", "-i", "3", "-w", "1", "-o", "1", "--device", "cuda"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"MIOpenDriver {CONV} -t 1 -i 3 -w 1 -o 1"
    assert printed[1].endswith("/cuda_reference")
    # The stand-in's events are always a quarter of a ms apart, here with four calls between them.
    assert "GPU Kernel Time Forward Conv. Elapsed: 0.062500 ms (average)" in printed
    assert any(line.startswith("Wall-clock Time Forward Conv.") for line in printed)
    assert printed[-1].startswith("Forward Convolution Verifies OK on CPU reference")
    values = sample_args(signature_of(CONV))
    dumped = np.fromfile(tmp_path / "dump_fwd_out_gpu.bin", np.float32).reshape(1, 5, 4, 8)
    assert check(dumped, oracle(signature_of(CONV), values), signature_of(CONV)).ok
    assert (
        run(["gemm", "-m", "6", "-n", "7", "-k", "8", "--beta", "1", "-t", "1", "-V", "1", "--json", "--device=cuda:1"])
        == 0
    )
    row = json.loads(capsys.readouterr().out)
    assert (row["solver"], row["verified"], row["kernel_ms"]) == ("cuda_reference", True, pytest.approx(0.0625))


def test_single_calls_of_every_gpu_as_csv(device, capsys):
    words = [*CONV.split(), "-t", "1", "-i", "3", "--gpu-id", "-1", "--splat-input-value", "0.25", "--csv", "-"]
    assert run(words) == 0
    captured = capsys.readouterr()
    rows = list(csv.DictReader(captured.out.splitlines()))
    assert [row["device"] for row in rows] == [f"cuda:{each.ordinal}" for each in cuda_devices()]
    for row in rows:  # the stand-in's events are a quarter of a millisecond apart
        assert [float(row[f"tilesmith {name}"]) for name in ("min", "max", "mean", "stddev")] == [250, 250, 250, 0]
    assert "on cuda:0" in captured.err


def test_a_device_that_is_not_there(device, capsys):
    assert run([*CONV.split(), "--device", "cuda:7"]) == 2
    assert "cuda:7 does not exist" in capsys.readouterr().err
    assert run([*CONV.split(), "--device", "gpu"]) == 2
    assert "write it as cpu, cuda or cuda:1" in capsys.readouterr().err


def test_bench_beside_the_libraries(libraries, capsys, tmp_path):
    listing, out = tmp_path / "problems.txt", tmp_path / "out.json"
    listing.write_text(f"{CONV}\n{GEMM}\n")
    words = ["bench", str(listing), "--device", "cuda", "--seconds", "0.05", "--launches", "--json", str(out)]
    assert run(words) == 0
    result = json.loads(out.read_text())
    conv, gemm = result["results"]
    # Each beginning of a plan takes a row of the stand-in: the first launch has it, and the others add nothing.
    steps = [step["time_us"] for step in conv["launches"]]
    assert steps == [62.5] + [0.0] * (len(get_launchable(signature_of(CONV), device="cuda").plan.run) - 1)
    assert result["target"] == "sm_90a:132:h200"
    assert (result["host"]["gpu"], result["host"]["bf16_flops"]) == ("NVIDIA H200", pytest.approx(989.4e12))
    assert {"cudnn", "cublas"} <= set(result["host"])
    assert (conv["solver"], conv["status"], conv["against"]["cudnn"]["time_us"]) == ("cuda_reference", "ok", 62.5)
    assert (conv["ratio"], gemm["ratio"]) == ({"cudnn": 1.0}, {"cublas": 1.0})
    assert result["summary"]["geomean"] == {"cudnn": 1.0, "cublas": 1.0}


def test_a_library_with_wrong_numbers_has_no_ratio(libraries, capsys, monkeypatch):
    right = library.ConvCall.compute
    monkeypatch.setattr(library.ConvCall, "compute", lambda *given: right(*given) * 2)
    assert run(["bench", *CONV.split(), "--device", "cuda", "--against", "cudnn", "--seconds", "0.05"]) == 0
    captured = capsys.readouterr()
    assert "cudnn: wrong numbers: channels_last" in " ".join(captured.err.split())
    assert "geomean" not in captured.out


def test_rows_for_which_the_host_was_late_are_counted_and_in_no_summary(libraries, device, capsys, tmp_path):
    out = tmp_path / "out.json"
    words = ["bench", *CONV.split(), "--device", "cuda", "--against", "cudnn", "--seconds", "0.05"]
    device.come_early(10**9)
    try:
        assert run([*words, "--json", str(out)]) == 3
    finally:
        device.come_early(0)
    (row,) = json.loads(out.read_text())["results"]
    assert row["status"] == "disturbed"
    assert row["disturbed"] >= row["samples"] > 0
    assert "the host was late for" in row["reason"]
    assert json.loads(out.read_text())["summary"]["geomean"] == {}
    assert "1 of 1 left out: disturbed" in capsys.readouterr().out


def test_libraries_belong_to_devices(device, capsys):
    assert run(["bench", *CONV.split(), "--device", "cuda", "--against", "cudnn,onednn"]) == 2
    known = "cudnn, cublas, cutlass, triton, torch_compile, tvm, none"
    assert f"'onednn' is not measured on cuda; known there: {known}" in capsys.readouterr().err
    assert run(["bench", *CONV.split(), "--against", "cublas"]) == 2
    assert "'cublas' is not measured on cpu; known there: onednn, torch_compile, tvm, none" in capsys.readouterr().err


def test_bench_goes_on_with_a_file(device, capsys, tmp_path):
    listing, out = tmp_path / "problems.txt", tmp_path / "out.json"
    listing.write_text(f"{CONV}\n{GEMM}\n")
    words = ["bench", str(listing), "--device", "cuda", "--seconds", "0.05", "--against", "none", "--json", str(out)]
    assert run([*words, "--time-limit", "0"]) == 0
    assert json.loads(out.read_text())["results"] == []
    assert "2 of 2 problems were not begun (--time-limit)" in capsys.readouterr().err
    assert run(["bench", CONV, *words[2:]]) == 0
    held = json.loads(out.read_text())
    held["results"][0]["time_us"] = 123.0
    out.write_text(json.dumps(held))
    assert run([*words, "--resume"]) == 0
    assert [row["time_us"] for row in json.loads(out.read_text())["results"]] == [123.0, 62.5]
    out.write_text("{")
    assert run([*words, "--resume"]) == 2
    assert "holds no results of bench" in capsys.readouterr().err
    assert run(["bench", CONV, "--resume"]) == 2
    assert "name it with --json" in capsys.readouterr().err


def test_verify_and_its_planted_numbers(device, capsys):
    assert run(["verify", CONV, "--device", "cuda", "--specials"]) == 0
    assert "1 verified, 0 failed" in capsys.readouterr().err


# --- PyTorch's kernels as one more candidate --------------------------------------------------------------------------


def record(solver, time_us, revision=1, **more):
    key = signature_of(CONV).canonical.key()
    return Record(key, "sm_90a:132:h200", solver, "", revision=revision, time_us=time_us, spread_us=1.0, **more)


@pytest.fixture
def decided(device, monkeypatch, tmp_path):
    """The choice for ``CONV`` with these records, where PyTorch's kernels take part."""
    monkeypatch.delenv("TILESMITH_ONLY_SOLVER")
    target = cuda_target_of(0)
    from tilesmith.solvers.cuda.reference.solver import CudaReferenceSolver

    def find(ours, theirs, external=True, **failed):
        layers = open_layers([tmp_path / f"{ours}-{theirs}-{external}.db"])
        database = layers.writable
        database.put_result(record("cuda_reference", ours, CudaReferenceSolver().revision))
        database.put_result(record("torch_cudnn", theirs, **failed))
        cache = ArtifactCache(tmp_path / "cache")
        return decide(Request(signature_of(CONV), target, "hybrid", layers, cache, external=external))

    return find


def test_the_faster_is_chosen_and_ties_go_to_ours(decided):
    assert decided(20.0, 10.0).solver == "torch_cudnn"
    assert decided(10.0, 20.0).solver == "cuda_reference"
    assert decided(10.5, 10.0).solver == "cuda_reference"
    assert decided(20.0, 10.0, external=False).solver == "cuda_reference"
    assert decided(20.0, 9.0, status="failed").solver == "cuda_reference"


def test_a_shipped_answer_of_another_library_is_not_measured_as_ours(decided, tmp_path, monkeypatch):
    """The plan beside it is another kernel: its time would be kept under the library's name."""
    decided(20.0, 10.0)
    monkeypatch.setattr("tilesmith.dispatch.resolve._timed", lambda *_: pytest.fail("the plan was timed"))
    layers = open_layers([tmp_path / "20.0-10.0-True.db", tmp_path / "user.db"])
    cache = ArtifactCache(tmp_path / "cache")
    target = cuda_target_of(0)
    found = resolve(Request(signature_of(CONV), target, "trust_verify", layers, cache, external=True))
    assert (found.choice.solver, found.built.plan.solver) == ("torch_cudnn", "cuda_reference")
    assert found.bind is not None
    assert layers.writable.ranking(signature_of(CONV).canonical.key(), target.name) == ()


def test_explain_shows_it(decided, capsys, monkeypatch):
    choice = decided(20.0, 10.0)
    assert [(line.solver, line.time_us) for line in choice.trace if line.chosen] == [("torch_cudnn", 10.0)]
    monkeypatch.setenv("TILESMITH_ONLY_SOLVER", "torch_cudnn")
    assert run(["explain", CONV, "--device", "cuda"]) == 0
    printed = capsys.readouterr().out
    assert "for PyTorch's tensors; all others, and processes without PyTorch" in printed
    monkeypatch.setenv("TILESMITH_EXTERNAL", "0")
    assert run(["explain", CONV, "--device", "cuda"]) == 2


@pytest.mark.needs_torch
def test_a_launchable_calls_it_for_pytorchs_tensors_alone(device, monkeypatch):
    import torch

    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    monkeypatch.setattr(bound, "is_capturing", lambda: recording)
    recording = False
    monkeypatch.setenv("TILESMITH_ONLY_SOLVER", "torch_cudnn")
    with pytest.raises(NoSolutionError):
        get_launchable(signature_of(CONV), device="cuda", external=False)
    launch = get_launchable(signature_of(CONV), device="cuda", external=True)
    assert (launch.solver, launch.plan.solver != "torch_cudnn") == ("torch_cudnn", True)
    own = []

    class Own:
        def __call__(self, *tensors, out=None):
            own.append(out)
            return "ours"

        def prepare(self, filter_):
            return lambda *others, out=None: self(*others, out=out)

    made = bound.ExternalBound(signature_of(CONV), "", Own())
    values = sample_args(signature_of(CONV))
    x, w = torch_args(values, "cpu")
    truth = oracle(signature_of(CONV), values)
    for found in (made(x, w), made.prepare(w)(x)):
        assert check(found.numpy(), truth, signature_of(CONV)).ok
    assert own == []
    assert made(*values) == made(x, w, out="there") == made(x[:, :4], w) == made(x.double(), w) == "ours"
    assert made.prepare(w)(x, out="there") == made.prepare(values[1])(x) == "ours"
    assert len(own) == 6
    fresh = bound.ExternalBound(signature_of(CONV), "", Own())
    recording = True
    assert fresh(x, w) == "ours"  # a graph has no room for cuDNN's trials
    assert made(x, w) is not None
    assert len(own) == 7


def test_the_worker_races_it(libraries, tmp_path, monkeypatch):
    signature = signature_of(CONV).canonical
    setup = Setup(signature.key(), 0, "", 0, str(tmp_path / "cache"))
    worker = DeviceWorker(setup, CrashReport(tmp_path / "note"), lambda setup: None)
    reply = worker.load(Load("theirs", solver="torch_cudnn"))
    assert isinstance(reply, Loaded)
    assert reply.error <= reply.bound
    assert reply.made_by.startswith("cuDNN")
    assert set(worker.race(Race(("theirs",), 3, 0.01, 1, None)).timings) == {"theirs"}
    right = library.ConvCall.compute
    monkeypatch.setattr(library.ConvCall, "compute", lambda *given: right(*given) + 1)
    refused = worker.load(Load("wrong", solver="torch_cudnn"))
    assert isinstance(refused, Refused)
    assert "wrong numbers" in refused.reason


def test_a_search_lets_it_race_in_the_playoff_alone(device, monkeypatch):
    target = cuda_target_of(0)
    job = make_job(signature_of(CONV), target, "tune", external=True)
    assert job.external_points == [Point("torch_cudnn", Config(()))]
    assert "torch_cudnn" not in job.solvers
    assert list(job.candidates)[-1] == "torch_cudnn"
    gemm = make_job(signature_of(GEMM), target, "tune", external=True)
    assert [str(point) for point in gemm.external_points] == ["torch_cublas lt=0", "torch_cublas lt=1"]
    assert make_job(signature_of(CONV), target, "tune").external_points == []
    ours, theirs = job.untuned, job.external_points[0]
    time = Timing(10.0, 0.1, 9, "")
    assert in_order(job, {theirs: time, ours: time}) == [ours, theirs]
    assert in_order(job, {theirs: replace(time, median_us=8.0), ours: time}) == [theirs, ours]
    # Its call takes the host longer: a saving of less than a microsecond is none.
    assert in_order(job, {theirs: replace(time, median_us=9.2), ours: time}) == [ours, theirs]
