"""`make gpu-test`'s random problems and its sanitizer part, with the stand-in for a GPU."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from cuda_chain import CACHE, H200, PTX_CACHE, executable

from tilesmith.measure.device_bench import DeviceBench
from tilesmith.measure.device_oracle import device_oracle
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.keys import parse_key
from tilesmith.problems.rewrite import FORMS
from tilesmith.problems.samples import sample_args
from tilesmith.problems.work import flops
from tilesmith.runtime.device import DeviceMemory
from tilesmith.solvers.cuda.reference.solver import CudaReferenceSolver
from tilesmith.solvers.relayout import Relayout
from tilesmith.solvers.solver import Config
from tilesmith.solvers.table_cuda import CUDA_SOLVERS

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "gpu"))
import checks
import checks_worker
import exact_memory
from gpu_cases import TOOLS, Case, accepted, chosen, picked_row, random_rows, sanitizer_cases, small_problems
from random_problems import FAMILIES, LARGE_FLOPS, MODES, drawn

CONV = ConvSignature((2, 6, 7, 8), (5, 3, 3, 8), padding=1, stride=2, dtype="bf16", shared_layout="NHWC",
                     deterministic=True, epilogue=Epilogue(activation="relu")).canonical  # fmt: skip


def test_a_longer_draw_begins_with_the_shorter_one():
    short, long = drawn(5, 250, ()), drawn(5, 400, ())
    keys = [[signature.key() for _, row in each for signature in row] for each in (short, long)]
    assert keys[0] == keys[1][:250]
    assert len(set(keys[1])) == 400
    assert keys[1] != [signature.key() for _, row in drawn(6, 400, ()) for signature in row]
    assert {name for name, _ in long} == set(FAMILIES)
    assert {name for name, _ in drawn(5, 30, ("gemm_fp8",))} == {"gemm_fp8"}


def test_draws_have_what_signatures_can_say():
    signatures = [signature for _, row in drawn(1, 900, ()) for signature in row]
    convs = [each for each in signatures if isinstance(each, ConvSignature)]
    gemms = [each for each in signatures if isinstance(each, GemmSignature)]
    found = Counter(
        what
        for each in convs
        for what, is_so in (
            (each.mode, True), (f"{len(each.stride)}-D", True), (each.dtype, True), (each.acc_dtype, True),
            ("grouped", each.groups > 1), ("strided", max(each.stride) > 1), ("dilated", max(each.dilation) > 1),
            ("unequal padding", isinstance(each.padding[0], tuple)), ("epilogue", not each.epilogue.is_identity),
            ("scale", each.epilogue.is_scaled), ("pitch", each.input_strides is not None),
            ("odd channels", each.input_logical[1] % 2 == 1), ("deterministic", each.deterministic),
            ("planes", each.input_layout.startswith("NC")),
        ) if is_so
    )  # fmt: skip
    wanted = {*MODES, "2-D", "3-D", "bf16", "fp16", "fp32", "tf32", "fp8e4m3", "fp8e5m2", "int8", "grouped",
              "strided", "dilated", "unequal padding", "epilogue", "scale", "pitch", "odd channels", "deterministic",
              "planes"}  # fmt: skip
    assert not {what for what in wanted if found[what] < 3}, found
    transposed = {(each.trans_a, each.trans_b) for each in gemms}
    assert len(transposed) == 4
    for name in ("lda", "stride_b", "groups"):
        assert any(getattr(each, name) for each in gemms), name
    assert any(each.batch > 1 for each in gemms)
    assert any(each.beta and each.alpha != 1 for each in gemms)
    assert {each.a_dtype for each in gemms} == {"bf16", "fp16", "fp32", "fp8e4m3", "fp8e5m2", "int8"}
    assert max(map(flops, signatures)) <= LARGE_FLOPS


def test_the_problems_of_a_row_share_a_kernel():
    (row,) = random_rows(2, 4, ("gemm_halves",))
    picked = picked_row(row, H200)
    assert [case.name for case in picked] == [case.name for case in row]
    assert picked == picked_row(row, H200)
    for case in picked:
        candidate, config = chosen(case, parse_key(case.key), H200)
        assert f"{candidate.name} {config}".rstrip() == case.pick
    assert len({case.pick for case in picked}) < len(picked)


def test_the_sanitizer_sees_every_template_and_then_every_type():
    def case(name, batch):
        return Case("", GemmSignature(8, 8, 8 * batch).key(), name, pick=name)

    found = [
        (case("large", 9), frozenset({("wgmma", "bf16"), ("sum", "bf16")})),
        (case("both", 2), frozenset({("wgmma", "fp16"), ("sum", "fp16")})),
        (case("one", 1), frozenset({("wgmma", "fp16")})),
        (case("again", 3), frozenset({("wgmma", "fp16")})),
    ]
    cases = list(sanitizer_cases(found))
    assert [each.solver for each in cases if each.part == "initcheck"] == ["one", "both", "large"]
    assert [each.part for each in cases[:8]] == [tool for tool in TOOLS for _ in range(2)]
    assert [each.solver for each in cases[8:]] == ["large"] * 4


def test_odd_problems_reach_every_solver():
    left = {solver.name for solver in CUDA_SOLVERS if not isinstance(solver, Relayout)}
    for signature in small_problems():
        left -= {candidate.solver.name for candidate in accepted(signature, H200, _forms(left))}
        if not left:
            return
    raise AssertionError(f"no odd problem for {left}")


def _forms(names):
    return {f"{name}@{form}" if form else name for name in names for form in FORMS}


def reference(signature, emulator):
    return executable(signature, CudaReferenceSolver().draft(signature.geometry, Config(()), H200), emulator)


def test_a_random_case_is_checked_from_all_sides(checking, monkeypatch):
    monkeypatch.setattr(checks_worker, "CACHE", PTX_CACHE)
    monkeypatch.setattr(checks_worker.Replayed, "__init__", lambda self, plan, bench: setattr(self, "plan", plan))
    for name in ("prepare", "poison", "run"):
        monkeypatch.setattr(checks_worker.Replayed, name, lambda self, name=name: getattr(self.plan, name)())
    case = Case("random", CONV.key(), "", 1, "dense", "cuda_reference")
    found = dict(checks_worker.verdicts(case, CONV, reference(CONV, checking), H200))
    assert list(found) == ["numbers", "graph", "bits of 3 runs", checks_worker.CERTIFIED]
    assert all(verdict.ok for verdict in found.values()), found
    assert (checks_worker.runs_of(case), checks_worker.runs_of(Case("random", CONV.key(), "", 32))) == (3, 100)


def test_other_bits_in_a_later_run_are_found(checking):
    values = sample_args(CONV)
    bench = DeviceBench(CONV, values, lambda: device_oracle(CONV, values, H200, 0, PTX_CACHE), H200, 0, PTX_CACHE)
    plan = reference(CONV, checking)
    assert checks_worker.same_bits_in(3, bench, plan).ok
    given, found = bench.checker.found, iter((0, 0, 1))

    def changed():
        result = given()
        result[0, 0, 0, 0] += next(found)
        return result

    bench.checker.found = changed
    verdict = checks_worker.same_bits_in(3, bench, plan)
    assert (verdict.ok, verdict.message) == (False, "run 3 has other bits than run 1")


@pytest.mark.parametrize("fresh", [False, True])
def test_a_watched_call_has_memory_of_the_exact_size(fresh, emulating, monkeypatch):
    sizes = []

    class Recorded(DeviceMemory):
        def __init__(self, place, nbytes):
            sizes.append(nbytes)
            super().__init__(place, nbytes)

    monkeypatch.setattr(exact_memory, "DeviceMemory", Recorded)
    assert exact_memory.one_call(CONV, sample_args(CONV), reference(CONV, emulating), fresh).ok
    assert sizes == [2 * 2 * 6 * 7 * 8, 2 * 5 * 9 * 8, 2 * 2 * 3 * 4 * 5]  # all of them multiples of 16


BULK = 0x9B7
ROWS = GemmSignature(5003, 127, 71, dtype="bf16", trans_b=True)  # the rows of its result are in no tensor map


@pytest.mark.parametrize(
    ("solver", "signature", "stores"),
    [
        ("wgmma_gemm", GemmSignature(512, 256, 64, dtype="bf16", trans_b=True), True),
        # Maps for loads alone.
        ("wgmma_gemm", GemmSignature(512, 250, 64, dtype="bf16", trans_b=True, beta=1.0), False),
        ("wgmma_thin", ROWS, True),
        ("mma_dense", ROWS, False),
    ],
)
def test_bulk_stores_are_seen_in_machine_code(solver, signature, stores):
    candidate = next(each for each in accepted(signature.canonical, H200) if each.name == solver)
    config = candidate.solver.default_config(candidate.geometry, H200)
    source = candidate.solver.draft(candidate.geometry, config, H200).sources[0]
    found = exact_memory.opcodes(CACHE.get_or_build(source, H200).path.read_bytes())
    assert found
    assert (BULK in found) == stores


def test_counts_by_family():
    row = {"part": "random", "ok": True, "checks": 4, "replayed": True, "solver": "s", "family": "dense"}
    rows = [
        row | {"name": "a", "runs": 100, "planted": True}, row | {"name": "b", "runs": 3},
        {"name": "c", "part": "random", "family": "gemm_fp8", "ok": False, "message": "does not compile"},
    ]  # fmt: skip
    found = checks.summarized(rows)
    assert found["families"]["dense"] == {
        "ok": 2, "wrong": 0, "checks": 8, "replayed as graphs": 2, "NaN and Inf planted": 1, "same bits in 3 runs": 1,
        "same bits in 100 runs": 1,
    }  # fmt: skip
    assert (found["families"]["gemm_fp8"]["wrong"], found["solvers_of_random"]) == (1, {"s": 2})
