"""Strided convolutions read and written as rows of elements: numbers through the emulator, refusals, choices, texts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cuda_chain import H200, check_numbers, executable

from tilesmith.dispatch.choice import Choice
from tilesmith.dispatch.choose import choose
from tilesmith.dispatch.facts import options_of
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.rewrite import rewrites
from tilesmith.solvers.cuda.runs import tile
from tilesmith.solvers.cuda.runs.solver import RunsBwdSolver, RunsSolver, RunsWrwSolver
from tilesmith.solvers.solver import Accepted, Config, Rejected
from tilesmith.targets.cuda import CUDA_TARGETS
from tilesmith.toolchain.build import build_unit

SOLVERS = {"fwd": RunsSolver(), "wrw": RunsWrwSolver(), "bwd": RunsBwdSolver()}


def conv(c=12, k=21, taps=(5, 3), size=(13, 37), stride=(2, 2), padding=1, n=2, **more):
    more = {"dtype": "bf16", "shared_layout": "NHWC", **more}
    return ConvSignature((n, *size, c), (k, *taps, c), stride=stride, padding=padding, **more)


def video(mode: str):
    return ConvSignature(
        (1, 4, 5, 20, 6), (10, 2, 2, 5, 6), stride=(1, 2, 4), padding=(1, 0, 2), dilation=(2, 1, 1), dtype="fp16",
        shared_layout="NDHWC", mode=mode,
    )  # fmt: skip


FUSED = Epilogue(bias=True, residual=True, activation="relu")
CASES = [
    # phases of different taps; two blocks of channels, results and elements of a run beyond the last
    (conv(), (4, 16, 2, 1, 2, 16, 2, 1)),
    # copies of 4 bytes, a run of 27 elements, paddings that differ
    (conv(3, 5, (3, 9), (9, 40), (4, 8), ((1, 2), (2, 3)), n=1, output_dtype="fp32"), (1, 16, 1, 1, 1, 8, 3, 1)),
    (conv(4, 8, (2, 4), (9, 71), (3, 2), 0, epilogue=FUSED), (2, 32, 1, 2, 1, 8, 2, 2)),
    (video("fwd"), (2, 16, 2, 1, 1, 16, 2, 1)),
    # a row's first and last tiles have padding, and rows lie above and below the image
    (conv(size=(13, 38), padding=((1, 3), (1, 4))), (4, 16, 2, 1, 2, 16, 2, 1)),
    # by bulk copies: warps that share results, phases of other taps, sums that need more room than a stage's rows
    (conv(21, 11, (9, 8), (39, 72), (8, 8), ((3, 4), (5, 4)), n=2, epilogue=FUSED), (16, 16, 4, 1, 4, 16, 2, 1)),
    (conv(21, 11, (9, 8), (19, 72), (8, 8), ((3, 4), (5, 4)), n=2), (2, 16, 1, 1, 2, 8, 3, 1)),
    (conv(size=(15, 70), n=1), (8, 32, 4, 1, 1, 24, 2, 1)),
    (conv(3, 40, (5, 7), (19, 72), (2, 8), ((3, 1), (5, 4)), n=2), (4, 32, 2, 1, 1, 16, 3, 1)),
    (video("fwd"), (4, 16, 1, 1, 1, 16, 2, 1)),
    (conv(3, 5, (3, 9), (9, 40), (4, 8), ((1, 2), (2, 3)), n=1), (1, 16, 1, 1, 1, 8, 3, 1)),
    (conv(mode="wrw"), (16, 2, 3, 16, 2, 1)),
    (conv(size=(13, 38), padding=((1, 3), (1, 4)), mode="wrw"), (16, 2, 3, 16, 3, 1)),  # by bulk copies
    (conv(3, 5, (3, 9), (9, 40), (4, 8), ((1, 2), (2, 3)), n=1, kernel_dtype="fp32", mode="wrw"), (16, 2, 2, 8, 3, 1)),
    (video("wrw"), (16, 4, 2, 16, 2, 1)),
    # odd channels on both sides, taps that do not exist, tiles beyond the image
    (conv(mode="bwd"), (2, 2, 2, 2, 2, 1)),
    # results that begin at an odd element, sums of a residual, bias by channel
    (conv(3, 5, (3, 9), (9, 40), (4, 8), ((1, 2), (1, 2)), n=1, mode="bwd"), (1, 1, 2, 1, 1, 2)),
    (conv(4, 8, (2, 4), (9, 70), (3, 2), 0, epilogue=FUSED, mode="bwd"), (3, 2, 1, 1, 1, 1)),
    (replace(video("bwd"), dilation=1, epilogue=Epilogue(activation="relu")), (1, 1, 1, 1, 1, 1)),
]


def config(solver, values) -> Config:
    return Config(tuple(zip((axis.name for axis in solver.axes), values, strict=True)))


@pytest.mark.parametrize(("signature", "values"), CASES, ids=lambda v: v.key()[6:70] if hasattr(v, "key") else "")
def test_numbers(signature, values, emulating):
    signature = signature.canonical
    geometry, solver = signature.geometry, SOLVERS[signature.mode]
    chosen, target = config(solver, values), replace(H200, cores=1)  # blocks go through many stages
    assert solver.applicable(geometry, target) == Accepted()
    assert solver.search_space(geometry, target).contains(chosen)
    made = executable(signature, solver.draft(geometry, chosen, target), emulating)
    check_numbers(signature, made)


@pytest.mark.parametrize("values", [(16, 16, 4, 1, 4, 16, 2, 1), (2, 16, 1, 1, 2, 8, 3, 1)], ids=["rows", "no rows"])
def test_a_stage_may_have_several_parts_of_the_filter(values, emulating, monkeypatch):
    monkeypatch.setattr(tile, "_PART_BYTES", (1, 1))
    signature = conv(21, 11, (9, 8), (39, 72), (8, 8), ((3, 4), (5, 4)), n=2).canonical
    chosen, target = config(SOLVERS["fwd"], values), replace(H200, cores=1)
    found = SOLVERS["fwd"].tile(signature.geometry, chosen, target)
    assert found.bulk
    assert found.form.k_steps > found.part_k
    check_numbers(signature, executable(signature, SOLVERS["fwd"].draft(signature.geometry, chosen, target), emulating))


def test_parts_of_the_filter_are_larger_where_the_ring_fits():
    geometry = conv(28, 56, (3, 3), (56, 56), 2, 1, n=32).canonical.geometry
    parts = [
        SOLVERS["fwd"].tile(geometry, config(SOLVERS["fwd"], (8, 32, 2, 1, 1, 32, 2, blocks)), H200).part_k
        for blocks in (1, 2)
    ]
    assert parts == [6, 3]


def test_a_stage_holds_the_sums_and_its_barriers():
    found = SOLVERS["fwd"].tile(conv().canonical.geometry, config(SOLVERS["fwd"], (8, 32, 4, 1, 1, 24, 2, 1)), H200)
    assert not found.bulk  # rows of 37 * 12 elements are no whole pieces
    geometry = conv(size=(15, 70)).canonical.geometry
    found = SOLVERS["fwd"].tile(geometry, config(SOLVERS["fwd"], (8, 32, 4, 1, 1, 24, 2, 1)), H200)
    assert found.bulk
    assert found.rows_bytes < found.sum_bytes <= found.stage_bytes - 16
    # Two blocks with rings of the filter do not fit beside these rows; without they do.
    geometry = rewrites(of_network("fwd"))[-1].signature.geometry
    found = SOLVERS["fwd"].tile(geometry, config(SOLVERS["fwd"], (8, 16, 4, 1, 4, 24, 2, 2)), H200)
    assert (found.whole_pieces, found.fits, found.bulk) == (True, True, False)


@pytest.mark.parametrize(
    ("signature", "word"),
    [
        (conv(10, size=(13, 36), stride=2), "multiple of 8"),
        (conv(size=(13, 36), taps=(3, 4), padding=2), "merged"),
        (conv(dilation=(1, 2)), "dilation"),
        (conv(16), "pixels of x are multiples of 8 elements"),
        (conv(dtype="fp32"), "dtype"),
        (conv(taps=(9, 3)), "share a row"),
        (conv(3, size=(13, 37), stride=8, padding=0), "rows begin at multiples of 2 bytes"),
        (conv(mode="bwd"), "bwd"),
        (conv(input_strides=(37 * 13 * 16, 37 * 16, 16, 1)), "gaps"),
        (ConvSignature((2, 12, 9, 9), (8, 12, 3, 3), stride=2, dtype="bf16"), "layout"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_refusals_name_their_reason(signature, word):
    verdict = SOLVERS["fwd"].applicable(signature.canonical.geometry, H200)
    assert isinstance(verdict, Rejected)
    assert word in str(verdict), verdict


def of_network(mode: str):
    return ConvSignature(
        (8, 512, 512, 21), (21, 16, 16, 21), stride=8, padding=4, dtype="bf16", shared_layout="NHWC", mode=mode
    ).canonical


@pytest.mark.parametrize("mode", ["fwd", "wrw"])
def test_the_table_chooses_it(mode):
    found = choose(options_of(of_network(mode), H200), (), mode="fast")
    assert isinstance(found, Choice)
    assert found.solver == f"{SOLVERS[mode].name}@wide"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
def test_untuned_kernels_compile_without_spills(arch, tmp_path):
    """Every direction on an H200, one on each of the others."""
    target, sources = CUDA_TARGETS[arch], {}
    for mode in {"sm_80": ("fwd",), "sm_120a": ("wrw",)}.get(arch, SOLVERS):
        solver = SOLVERS[mode]
        geometry = rewrites(of_network(mode))[-1].signature.geometry
        for source in solver.draft(geometry, solver.default_config(geometry, target), target).sources:
            sources[source.symbol] = source
    found = build_unit(list(sources.values()), target, tmp_path / "unit.cubin")
    assert [(r.symbol, r.spill_store_bytes, r.stack_bytes) for r in found if r.stack_bytes or r.spill_store_bytes] == []
